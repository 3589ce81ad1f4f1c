"""torch.save (torch/serialization.py): any name, known by its ending and first bytes: zip, or pickle of old.

In place, no fsync, no marker. `.pth.tar` is what the examples of PyTorch and timm call it, `.tar` what its
tutorial on general checkpoints does; they are no tar, and another `.tar` is one unless its first bytes tell.
"""

from ckptprof.frameworks.formats import COMPRESSED
from ckptprof.frameworks.knowledge import PACKED, Framework, Layer, mark

FRAMEWORK = Framework(
    name="torch.save",
    layer=Layer.FORMAT,
    weight=0.4,
    formats=frozenset(("torch-zip", "pickle", COMPRESSED)),
    files=(mark(r".*\.(?:pt|pth|ckpt)" + PACKED), mark(r".*\.tar"), mark(r"pytorch_model.*\.bin")),
    every_rank_reads_all=True,
)
