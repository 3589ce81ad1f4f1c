"""torchtitan (torchtitan/components/checkpointer/dcp.py): step-N/ with the files of PyTorch DCP.

A job of one's own that saves by DCP to step-N/ looks the same: only the program tells that it is torchtitan.
"""

import re

from ckptprof.frameworks.examples import Save, dcp
from ckptprof.frameworks.knowledge import Async, Durability, Framework, Layer, directory

FRAMEWORK = Framework(
    name="torchtitan",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(),
    directories=(directory(r"step-(?P<step>\d{1,12})"),),
    programs=re.compile(r"torchtitan\b"),
    extends=("torch-dcp",),
    durability=Durability.FSYNC,
    asynchronous=(Async.THREAD, Async.CHILD),
    names="`step-N/` as PyTorch DCP; told by the program (`torchtitan…`)",
    completed_by="`.metadata`",
    saves=(Save(dcp("checkpoint/step-{step}"), path="checkpoint/step-{step}", ranks=2, program="torchtitan.train"),),
)
