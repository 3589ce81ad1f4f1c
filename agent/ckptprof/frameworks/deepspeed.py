"""DeepSpeed (runtime/engine.py): global_stepN/, then the text file `latest` beside it."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(
    name="deepspeed",
    files=patterns(
        r"/(?:bf16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt$",
        r"/mp_rank_\d+_model_states\.pt$",
        r"/layer_\d+(?:_expert_\d+_mp_rank_\d+|-model_\d+)_(?:model|optim)_states\.pt$",
    ),
    unit=patterns(r"/global_step(?P<step>\d+)$"),
    commit=patterns(r"/latest$"),
)
