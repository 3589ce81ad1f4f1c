"""DeepSpeed (deepspeed/runtime/engine.py): global_stepN/ (or any tag), then the text file `latest` beside it.

The fast engine writes with O_DIRECT and syncs at close, the decoupled one writes in a process of its own; a universal
checkpoint (checkpoint/ds_to_universal.py) is one folder for each parameter below zero/.
"""

from ckptprof.frameworks.knowledge import Async, Framework, Layer, mark, unit

FRAMEWORK = Framework(
    name="deepspeed",
    layer=Layer.ENGINE,
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
    units=(unit(r"global_step(?P<step>\d{1,12})(?:_universal)?"),),
    commit=(mark(r"latest(?:_universal)?"),),
    asynchronous=(Async.CHILD, Async.THREAD),
)
