"""Megatron-LM and Megatron-Core (training/checkpointing.py, core/dist_checkpointing): iter_0000500/ or release/.

torch_dist is PyTorch DCP with common.pt and metadata.json, zarr (of old) one folder for each tensor, torch one file for
each tensor- and pipeline-parallel rank. The tracker file is written last. An async save is by forked or persistent
processes, with old checkpoints deleted by another one.
"""

from ckptprof.frameworks.examples import SMALL, TORCH_ZIP, Save, Write, dcp, each, tensor
from ckptprof.frameworks.knowledge import Async, Code, Durability, Framework, Layer, directory, mark

_FOLDER = r"/(?:iter_(?P<step>\d{7})|release)(?:/|$)"

FRAMEWORK = Framework(
    name="megatron",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", _FOLDER),
        mark(r"common\.pt|metadata\.json|modelopt_run_config\.yaml", r"/(?:iter_(?P<step>\d{7})|release)$"),
        mark(
            r"(?:model_optim_rng|model_rng|optim|distrib_optim)\.pt",
            r"/(?:iter_(?P<step>\d{7})|release)/mp_rank_(?P<rank>\d+)(?:_\d+)*$",
        ),
        mark(r"shard_\d+_\d+\.pt|\.zarray|\d+(?:\.\d+)*", r"/iter_(?P<step>\d{7})/[^/]+$"),
    ),
    directories=(
        directory(r"iter_(?P<step>\d{7})"),
        directory(r"release", r"^(?:mp_rank_\d.*/|__\d+_\d+\.distcp$|common\.pt$)", bare="release"),
    ),
    commit=(mark(r"latest_checkpointed_iteration\.txt"),),
    durability=Durability.FSYNC,
    asynchronous=(Async.DAEMON, Async.CHILD),
    code=Code(
        saves=(r"(?:\w+/)*dist_checkpointing/.*",), background=(r"strategies/async_utils",), at_once=("execute_sync",)
    ),
    names="`iter_0000500/`, `release/`: `__R_N.distcp`, `common.pt`, `mp_rank_XX/model_optim_rng.pt`, zarr folders",
    completed_by="`latest_checkpointed_iteration.txt`",
    proven_by=("tests/e2e/jobs/megatron_core.py",),
    saves=(
        Save(
            (
                *dcp("iter_{step:07}"),
                tensor("iter_{step:07}/common.pt", SMALL),
                Write("latest_checkpointed_iteration.txt", SMALL),
            ),
            path="iter_{step:07}",
            ranks=2,
        ),
        Save(
            each(Write("iter_{step:07}/mp_rank_0{rank}/model_optim_rng.pt", 40, magic=TORCH_ZIP)),
            path="iter_{step:07}",
            ranks=2,
            variant="torch",
        ),
    ),
)
