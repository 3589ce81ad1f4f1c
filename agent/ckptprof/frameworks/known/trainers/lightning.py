"""PyTorch Lightning (pytorch/callbacks/model_checkpoint.py, fabric/utilities/cloud_io.py, fabric/strategies/fsdp.py).

The file is written to $TMPDIR/tmpXXXXXXXX in full and, where that is another file system, copied to its place;
last.ckpt is all of it again. A sharded checkpoint is a folder of the same name.
"""

from ckptprof.frameworks.examples import SMALL, Save, dcp, tensor
from ckptprof.frameworks.knowledge import Async, Code, Framework, Layer, directory, mark

_NAME = r"(?:[^/]*[-_])?(?:epoch|step)=\d[^/]*\.ckpt"

FRAMEWORK = Framework(
    name="lightning",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r"(?:.*[-_])?step=(?P<step>\d{1,12})\D.*ckpt"),
        mark(_NAME),
        mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", rf"/{_NAME}(?:/|$)"),
        mark(
            r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt",
            r"\.ckpt/checkpoint$",
        ),
        mark(r"meta\.pt|mp_rank_\d+_model_states\.pt|\.metadata", rf"/{_NAME}(?:/|$)"),
        mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp|meta\.pt", r"/last(?:-v\d+)?\.ckpt$"),
    ),
    directories=(
        directory(r"(?:.*[-_])?step=(?P<step>\d{1,12})(?:\D.*)?ckpt"),
        directory(_NAME),
        directory(r"last(?:-v\d+)?\.ckpt", bare="last.ckpt"),
    ),
    commit=(mark(r"meta\.pt", r"\.ckpt$"),),
    asynchronous=(Async.THREAD,),
    copies_whole=True,
    code=Code(saves=(r"lightning\w*/fabric/plugins/io/.*",), background=(r"plugins/io/async_plugin",)),
    names="`epoch=E-step=N.ckpt` (file or folder), `-vN`, `{epoch}-{metric}` names, `last.ckpt`",
    completed_by="`meta.pt`, if sharded",
    proven_by=("tests/e2e/jobs/lightning_fit.py",),
    saves=(
        Save((tensor("epoch=1-step={step}.ckpt"),), path="epoch=1-step={step}.ckpt"),
        Save(
            (*dcp("epoch=1-step={step}.ckpt"), tensor("epoch=1-step={step}.ckpt/meta.pt", SMALL)),
            path="epoch=1-step={step}.ckpt",
            ranks=2,
            variant="sharded",
        ),
    ),
)
