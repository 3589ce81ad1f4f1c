"""PaddlePaddle (paddle.save; paddle.distributed.checkpoint; PaddleNLP's Trainer): .pdparams, .pdopt, RANK_N.distcp."""

from ckptprof.frameworks.examples import PICKLE, Save, Write, each
from ckptprof.frameworks.knowledge import Async, Framework, Layer, mark

FRAMEWORK = Framework(
    name="paddle",
    layer=Layer.TRAINER,
    files=(
        mark(r".*\.(?:pdparams|pdopt|pdmodel|pdiparams|pdstates)"),
        mark(r"(?P<rank>\d+)_\d+\.distcp"),
    ),
    commit=(mark(r"\d+\.metadata"),),
    asynchronous=(Async.CHILD,),
    launchers=("paddle.distributed.launch", "fleetrun"),
    names="`.pdparams`, `.pdopt`, `R_N.distcp`",
    completed_by="`N.metadata`",
    saves=(
        Save(
            (
                Write("step_{step}/model_state.pdparams", 40, magic=PICKLE),
                Write("step_{step}/optimizer.pdopt", 80, magic=PICKLE),
            ),
            path="step_{step}",
            runtimes=("paddle", "numpy"),
        ),
        Save(
            each(Write("step_{step}/{rank}_0.distcp", 40, magic=PICKLE)),
            path="step_{step}",
            ranks=2,
            runtimes=("paddle", "numpy"),
            variant="distributed",
        ),
    ),
)
