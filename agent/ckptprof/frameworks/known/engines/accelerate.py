"""accelerate (utils/constants.py, utils/fsdp_utils.py, accelerator.py): save_state, to checkpoints/checkpoint_N/.

With FSDP the model and the optimizer are two folders of PyTorch DCP, or one file of each rank; every rank writes
random_states_RANK.pkl, the last of its files.
"""

from ckptprof.frameworks.examples import PICKLE, SMALL, Save, Write, dcp, each, safetensors, tensor
from ckptprof.frameworks.knowledge import Async, Durability, Framework, Layer, directory, mark

FRAMEWORK = Framework(
    name="accelerate",
    layer=Layer.ENGINE,
    libraries=("torch",),
    files=(
        mark(
            r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp",
            r"(?P<below>/(?:pytorch_model_fsdp|optimizer)_\d+|/distributed_checkpoint)$",
        ),
        mark(r"(?:pytorch_model_fsdp|optimizer)(?:_\d+)?_rank(?P<rank>\d+)\.bin"),
        mark(r"(?:pytorch_model_fsdp|optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin"),
        mark(r"random_states_(?P<rank>\d+)\.pkl"),
        mark(r"custom_checkpoint_\d+\.pkl"),
        mark(r"(?:model|pytorch_model).*\.(?:safetensors|bin)", r"/checkpoints/checkpoint_(?P<step>\d{1,12})$"),
    ),
    directories=(directory(r"checkpoint_(?P<step>\d{1,12})"),),
    durability=Durability.NONE,
    asynchronous=(Async.THREAD,),
    launchers=("accelerate", "accelerate-launch", "accelerate.commands.launch", "accelerate.commands.accelerate_cli"),
    names=(
        "`checkpoints/checkpoint_N/`: `optimizer.bin`, `random_states_R.pkl`, `pytorch_model_fsdp_N/`, `optimizer_N/`"
    ),
    proven_by=("tests/e2e/jobs/accelerator.py",),
    saves=(
        Save(
            (
                safetensors("checkpoints/checkpoint_{step}/model.safetensors"),
                tensor("checkpoints/checkpoint_{step}/optimizer.bin", 80),
                *each(Write("checkpoints/checkpoint_{step}/random_states_{rank}.pkl", SMALL, magic=PICKLE)),
            ),
            path="checkpoints/checkpoint_{step}",
            ranks=2,
        ),
        Save(
            (*dcp("checkpoint_{step}/pytorch_model_fsdp_0"), *dcp("checkpoint_{step}/optimizer_0")),
            path="checkpoint_{step}",
            ranks=2,
            variant="fsdp",
        ),
    ),
)
