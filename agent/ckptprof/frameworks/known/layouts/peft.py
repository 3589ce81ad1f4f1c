"""PEFT (peft/utils/constants.py): adapter_model.safetensors or .bin, with adapter_config.json beside it."""

from ckptprof.frameworks.examples import Save, safetensors
from ckptprof.frameworks.knowledge import Durability, Framework, Layer, mark

FRAMEWORK = Framework(
    name="peft",
    layer=Layer.LIBRARY,
    libraries=("torch",),
    files=(mark(r"adapter_model\.(?:safetensors|bin)"),),
    durability=Durability.RENAME,
    names="`adapter_model.safetensors`, `.bin`",
    completed_by="rename",
    saves=(
        Save((safetensors("step_{step}/adapter_model.safetensors"),), path="step_{step}/adapter_model.safetensors"),
    ),
)
