"""detectron2 (engine/hooks.py; fvcore/common/checkpoint.py): model_0004999.pth, then the text file last_checkpoint.

By torch.save in place, by rank 0; the number is that of the iteration, counted from 0. At the end comes
model_final.pth, which anybody's job may write.
"""

from ckptprof.frameworks.examples import SMALL, Save, Write, tensor
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="detectron2",
    layer=Layer.TRAINER,
    libraries=("torch",),
    weight=0.5,
    files=(mark(r"model_(?P<step>\d{7})\.pth"),),
    commit=(mark(r"last_checkpoint"),),
    names="`model_000N.pth`",
    completed_by="`last_checkpoint`",
    saves=(
        Save(
            (tensor("output/model_{step:07}.pth"), Write("output/last_checkpoint", SMALL)),
            path="output/model_{step:07}.pth",
        ),
    ),
)
