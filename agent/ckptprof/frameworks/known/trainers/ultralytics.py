"""Ultralytics YOLO (ultralytics/engine/trainer.py, save_model): weights/last.pt, best.pt, now and then epochN.pt.

Each is all of the same bytes, made by torch.save in memory and written in place in one call, by rank 0.
"""

from ckptprof.frameworks.examples import Save, tensor
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="ultralytics",
    layer=Layer.TRAINER,
    libraries=("torch",),
    weight=0.5,
    files=(mark(r"epoch(?P<step>\d{1,12})\.pt", r"/weights$"), mark(r"(?:last|best)\.pt", r"/weights$")),
    copies_whole=True,
    names="`weights/last.pt`, `weights/best.pt`, `weights/epochN.pt`",
    saves=(
        Save(
            (tensor("detect/train/weights/last.pt"), tensor("detect/train/weights/epoch{step}.pt")),
            path="detect/train/weights/epoch{step}.pt",
        ),
    ),
)
