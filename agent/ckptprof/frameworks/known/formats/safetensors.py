"""safetensors (safetensors/src/tensor.rs): written as .tmpXXXXXX beside the target, then renamed; read by mmap."""

from ckptprof.frameworks.knowledge import Durability, Framework, Layer, mark, patterns

FRAMEWORK = Framework(
    name="safetensors",
    layer=Layer.FORMAT,
    weight=0.45,
    formats=frozenset(("safetensors",)),
    files=(mark(r".*\.safetensors"),),
    temporary=patterns(r"^\.tmp[A-Za-z0-9]{6}$"),
    durability=Durability.RENAME,
    restores_by_mapping=True,
    every_rank_reads_all=True,
)
