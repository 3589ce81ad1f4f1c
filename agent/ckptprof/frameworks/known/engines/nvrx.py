"""NVIDIA Resiliency Extension (checkpointing/local/ckpt_managers/local_manager.py): a file of each rank.

ROOT/SESSION/RANK/iter_0000500_RANK_local.pt, written with .dirty in its name and renamed.
"""

from ckptprof.frameworks.knowledge import Async, Durability, Framework, Layer, mark, patterns

FRAMEWORK = Framework(
    name="nvrx",
    layer=Layer.ENGINE,
    files=(mark(r"iter_(?P<step>\d{7})_(?P<rank>\d+)_local\.pt", r"(?P<below>/\d+)?$"),),
    temporary=patterns(r"\.dirty(?=\.pt$)"),
    durability=Durability.RENAME,
    asynchronous=(Async.DAEMON, Async.CHILD, Async.THREAD),
)
