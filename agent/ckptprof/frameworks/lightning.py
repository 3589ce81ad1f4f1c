"""PyTorch Lightning (lightning/pytorch/callbacks/model_checkpoint.py)."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(
    name="lightning",
    files=patterns(r"/epoch=\d+-step=(?P<step>\d+)(?:-v\d+)?\.ckpt(?:/|$)"),
    unit=patterns(r"/epoch=\d+-step=(?P<step>\d+)(?:-v\d+)?\.ckpt$"),
)
