"""NVIDIA Resiliency Extension (checkpointing/local/ckpt_managers/local_manager.py): a file of each rank.

ROOT/SESSION/RANK/iter_0000500_RANK_local.pt, written with .dirty in its name and renamed.
"""

from ckptprof.frameworks.examples import Save, each, tensor
from ckptprof.frameworks.knowledge import Async, Code, Durability, Framework, Layer, mark, temporary

FRAMEWORK = Framework(
    name="nvrx",
    layer=Layer.ENGINE,
    libraries=("torch",),
    files=(mark(r"iter_(?P<step>\d{7})_(?P<rank>\d+)_local\.pt", r"(?P<below>/\d+)?$"),),
    temporary=(temporary("dirty", r"\.dirty(?=\.pt$)"),),
    durability=Durability.RENAME,
    asynchronous=(Async.DAEMON, Async.CHILD, Async.THREAD),
    code=Code(
        saves=(r"nvidia_resiliency_ext/checkpointing/.*",),
        background=(r"nvidia_resiliency_ext/checkpointing/async_ckpt/\w+",),
    ),
    launchers=("ft_launcher",),
    names="`SESSION/R/iter_0000500_R_local.pt` (`.dirty.pt` before)",
    completed_by="rename",
    saves=(
        Save(
            each(
                tensor(
                    "s/{rank}/iter_{step:07}_{rank}_local.pt", temporary="s/{rank}/iter_{step:07}_{rank}_local.dirty.pt"
                )
            ),
            path="s",
            ranks=2,
        ),
    ),
)
