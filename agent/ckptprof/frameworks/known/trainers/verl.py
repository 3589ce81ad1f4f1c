"""verl (verl/utils/checkpoint/fsdp_checkpoint_manager.py, trainer/ppo/ray_trainer.py): global_step_N/{actor,critic}/.

Every rank writes model, optim and extra_state_world_size_W_rank_R.pt; latest_checkpointed_iteration.txt comes last.
"""

from ckptprof.frameworks.examples import Save, each, tensor
from ckptprof.frameworks.knowledge import Framework, Layer, directory, mark

FRAMEWORK = Framework(
    name="verl",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r"(?:model|optim|extra_state)_world_size_(?P<world>\d{1,7})_rank_(?P<rank>\d+)\.pt"),
        mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", r"/global_step_(?P<step>\d{1,12})/(?:actor|critic)/dist_ckpt$"),
        mark(r".*\.safetensors|data\.pt", r"/global_step_(?P<step>\d{1,12})/(?:actor|critic)(?:/|$)"),
    ),
    directories=(directory(r"global_step_(?P<step>\d{1,12})"),),
    commit=(mark(r"latest_checkpointed_iteration\.txt"),),
    names="`global_step_N/{actor,critic}/*_world_size_W_rank_R.pt`",
    completed_by="`latest_checkpointed_iteration.txt`",
    saves=(
        Save(
            (
                *each(tensor("global_step_{step}/actor/model_world_size_2_rank_{rank}.pt")),
                *each(tensor("global_step_{step}/actor/optim_world_size_2_rank_{rank}.pt")),
            ),
            path="global_step_{step}/actor",
            ranks=2,
        ),
    ),
)
