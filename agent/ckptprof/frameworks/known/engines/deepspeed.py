"""DeepSpeed (deepspeed/runtime/engine.py): global_stepN/ (or any tag), then the text file `latest` beside it.

The fast engine writes with O_DIRECT and syncs at close, the decoupled one writes in a process of its own; a universal
checkpoint (checkpoint/ds_to_universal.py) is one folder for each parameter below zero/.
"""

from ckptprof.frameworks.examples import SMALL, TORCH_ZIP, Save, Write, each, tensor
from ckptprof.frameworks.knowledge import Async, Code, Framework, Layer, directory, mark

FRAMEWORK = Framework(
    name="deepspeed",
    layer=Layer.ENGINE,
    libraries=("torch",),
    files=(
        mark(
            r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt",
            r"(?P<below>/pytorch_model)?$",
        ),
        mark(r"mp_rank_(?P<rank>\d+)_model_states\.pt", r"(?P<below>/pytorch_model)?$"),
        mark(r"layer_\d+(?:_expert_\d+_mp_rank_\d+|-model_\d+)[-_](?:model|optim)_states\.pt"),
        mark(r"expp_rank_\d+_mp_rank_\d+_optim_states\.pt"),
        mark(r"(?:fp32|exp_avg|exp_avg_sq|step)\.pt", r"(?P<below>/zero/[^/]+)$"),
    ),
    directories=(directory(r"global_step(?P<step>\d{1,12})(?:_universal)?"),),
    commit=(mark(r"latest(?:_universal)?"),),
    asynchronous=(Async.CHILD, Async.THREAD),
    code=Code(saves=(r"(?:\w+/)*checkpoint_engine/.*",), background=(r"fast_persist\w*",)),
    launchers=("deepspeed", "deepspeed.launcher.launch", "deepspeed.launcher.runner"),
    names="`global_stepN/` or any tag: `*zero_pp_rank_R_mp_rank_XX_*_states.pt`, `mp_rank_XX_…`, `zero/NAME/fp32.pt`",
    completed_by="`latest`",
    proven_by=("tests/e2e/jobs/deepspeed_zero.py",),
    saves=(
        Save(
            (
                tensor("global_step{step}/mp_rank_00_model_states.pt"),
                *each(
                    Write("global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP)
                ),
                Write("latest", SMALL),
            ),
            path="global_step{step}",
            ranks=2,
        ),
        Save(
            (
                *each(Write("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt", 20, magic=TORCH_ZIP)),
                *each(Write("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP)),
            ),
            path="global_step{step}",
            ranks=2,
            variant="zero3",
        ),
    ),
)
