"""PaddlePaddle (paddle.save; paddle.distributed.checkpoint; PaddleNLP's Trainer): .pdparams, .pdopt, RANK_N.distcp."""

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
)
