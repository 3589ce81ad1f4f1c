"""NeMo 2 and 1 (nemo/lightning/pytorch/callbacks/model_checkpoint.py, nemo/utils/callbacks/nemo_model_checkpoint.py).

NAME--METRIC-...step=N/{weights,context}/ with Megatron's files; an empty NAME-unfinished beside it exists from before
the first byte until it is complete; NAME-last is the same again. NeMo 1 has mp_rank_XX/NAME.ckpt and packs one .nemo.
"""

from ckptprof.frameworks.examples import SMALL, Save, dcp, each, tensor
from ckptprof.frameworks.knowledge import Async, Durability, Framework, Layer, directory, mark

_MODEL = r"(?:[^/-]|-(?!-))*--"  # up to the first two dashes: one way only to match, so that no name costs much
_NAME = rf"{_MODEL}[^/]*(?:epoch|step|consumed_samples)=[^/]*"

FRAMEWORK = Framework(
    name="nemo",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", rf"/{_NAME}(?:/weights)?$"),
        mark(r"common\.pt|metadata\.json|\.metadata", rf"/{_NAME}(?:/weights)?$"),
        mark(r"io\.json|model\.yaml", rf"/{_NAME}/context$"),
        mark(
            rf"{_NAME}\.ckpt",
            r"(?P<below>/(?:mp_rank_(?P<rank>\d+)|tp_rank_\d+_pp_rank_\d+))?$",
        ),
        mark(r".*\.nemo"),
    ),
    directories=(
        directory(rf"{_MODEL}.*[-_]step=(?P<step>\d{{1,12}})(?:\D.*)?"),
        directory(rf"{_MODEL}.*(?:epoch|consumed_samples)=\d.*"),
    ),
    begin=(mark(r".*-unfinished"),),
    durability=Durability.FSYNC,
    asynchronous=(Async.DAEMON, Async.CHILD),
    copies_whole=True,
    names="`NAME--METRIC-step=N/{weights,context}/`, `-last`; NeMo 1: `mp_rank_XX/NAME--….ckpt`, `.nemo`",
    completed_by="`-unfinished` is deleted",
    saves=(
        Save(
            (
                *dcp("m--val_loss=2.1-step={step}/weights"),
                tensor("m--val_loss=2.1-step={step}/weights/common.pt", SMALL),
            ),
            path="m--val_loss=2.1-step={step}/weights",
            ranks=2,
        ),
        Save(each(tensor("mp_rank_0{rank}/gpt--val_loss=2.1-step={step}.ckpt")), ranks=2, variant="nemo1"),
    ),
)
