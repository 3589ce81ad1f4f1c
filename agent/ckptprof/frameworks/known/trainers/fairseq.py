"""fairseq (fairseq/checkpoint_utils.py): checkpoint_EPOCH_UPDATE.pt, _last.pt, .best_*.pt, -shardRANK.

Written as .tmp and renamed; each further name is a full copy of the first, read back by the process that trains.
"""

import re

from ckptprof.frameworks.examples import Save, tensor
from ckptprof.frameworks.knowledge import Async, Durability, Framework, Layer, mark

FRAMEWORK = Framework(
    name="fairseq",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r"checkpoint_\d+_(?P<step>\d{1,12})(?:-shard(?P<rank>\d+))?\.pt"),
        mark(r"checkpoint(?P<step>\d{1,12})-shard(?P<rank>\d+)\.pt"),
        mark(r"checkpoint(?:_last|_best|\.best_.*)-shard(?P<rank>\d+)\.pt"),
        mark(r"checkpoint\.best_.+\.pt"),
    ),
    programs=re.compile(r"fairseq"),
    extends=("torch.save",),
    durability=Durability.RENAME,
    asynchronous=(Async.THREAD,),
    copies_whole=True,
    names="`checkpoint_E_N.pt`, `checkpoint.best_*.pt`, `-shardR`; `checkpoint_last.pt` by the program (`fairseq…`)",
    completed_by="rename",
    saves=(
        Save(
            (tensor("checkpoint_1_{step}.pt", temporary="checkpoint_1_{step}.pt.tmp"),), path="checkpoint_1_{step}.pt"
        ),
    ),
)
