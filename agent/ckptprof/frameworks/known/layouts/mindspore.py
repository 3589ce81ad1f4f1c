"""MindSpore (mindspore/train/callback/_checkpoint.py): PREFIX-EPOCH_STEP.ckpt, after an exception with _breakpoint."""

from ckptprof.frameworks.examples import Save, Write
from ckptprof.frameworks.knowledge import Async, Framework, Layer, mark

FRAMEWORK = Framework(
    name="mindspore",
    layer=Layer.LIBRARY,
    files=(
        mark(
            r".+-\d{1,9}_(?P<step>\d{1,12})(?:_breakpoint)?\.(?:ckpt|safetensors)", r"(?P<below>/rank_(?P<rank>\d+))$"
        ),
        mark(r".+-\d{1,9}_(?P<step>\d{1,12})(?:_breakpoint)?\.ckpt"),
    ),
    asynchronous=(Async.THREAD, Async.CHILD),
    launchers=("msrun",),
    names="`PREFIX-E_N.ckpt`, `_breakpoint`, `rank_R/`",
    saves=(Save((Write("CKP-2_{step}.ckpt", 40),), path="CKP-2_{step}.ckpt", runtimes=("mindspore", "numpy")),),
)
