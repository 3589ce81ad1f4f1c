"""MLX LM (mlx_lm/tuner/trainer.py): adapters.safetensors and a second, numbered copy of it in the same folder."""

from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="mlx",
    layer=Layer.LIBRARY,
    files=(mark(r"(?P<step>\d{7})_adapters\.safetensors"), mark(r"adapters\.safetensors")),
    copies_whole=True,
)
