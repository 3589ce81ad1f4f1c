"""PEFT (peft/utils/constants.py): adapter_model.safetensors or .bin, with adapter_config.json beside it."""

from ckptprof.frameworks.knowledge import Durability, Framework, Layer, mark

FRAMEWORK = Framework(
    name="peft",
    layer=Layer.LIBRARY,
    files=(mark(r"adapter_model\.(?:safetensors|bin)"),),
    durability=Durability.RENAME,
    restores_by_mapping=True,
    every_rank_reads_all=True,
)
