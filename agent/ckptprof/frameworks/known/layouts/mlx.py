"""MLX LM (mlx_lm/tuner/trainer.py): adapters.safetensors and a second, numbered copy of it in the same folder."""

from ckptprof.frameworks.examples import SAFETENSORS, Save, Write
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="mlx",
    layer=Layer.LIBRARY,
    files=(mark(r"(?P<step>\d{7})_adapters\.safetensors"), mark(r"adapters\.safetensors")),
    copies_whole=True,
    names="`000N_adapters.safetensors`",
    saves=(
        Save(
            (Write("{step:07}_adapters.safetensors", 40, magic=SAFETENSORS),),
            path="{step:07}_adapters.safetensors",
            runtimes=("numpy",),
        ),
    ),
)
