"""ByteCheckpoint, also as used by VeOmni: model/, optimizer/ (each as PyTorch DCP) and extra_state/ in one folder."""

from ckptprof.frameworks.examples import SMALL, TORCH_ZIP, Save, Write, dcp, each
from ckptprof.frameworks.knowledge import Async, Code, Framework, Layer, directory, mark

FRAMEWORK = Framework(
    name="bytecheckpoint",
    layer=Layer.ENGINE,
    libraries=("torch",),
    files=(
        mark(r"__(?P<rank>\d+)_\d+\.distcp", r"/global_step_(?P<step>\d{1,12})/(?:model|optimizer)$"),
        mark(r"extra_states?_rank_?(?P<rank>\d+)\.pt", r"(?P<below>/extra_states?)$"),
    ),
    directories=(directory(r"global_step_(?P<step>\d{1,12})"),),
    asynchronous=(Async.CHILD, Async.THREAD),
    code=Code(saves=(r"bytecheckpoint/.*",)),
    names="`global_step_N/{model,optimizer,extra_state}/`",
    completed_by="`.metadata`",
    saves=(
        Save(
            (
                *dcp("global_step_{step}/model"),
                *dcp("global_step_{step}/optimizer"),
                *each(Write("global_step_{step}/extra_state/extra_state_rank_{rank}.pt", SMALL, magic=TORCH_ZIP)),
            ),
            path="global_step_{step}",
            ranks=2,
        ),
    ),
)
