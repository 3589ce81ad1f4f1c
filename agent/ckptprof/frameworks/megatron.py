"""Megatron-LM and Megatron-Core (megatron/training/checkpointing.py): iter_0000500/, then the tracker file."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(
    name="megatron",
    files=patterns(
        r"/iter_(?P<step>\d{7})/(?:.*/)?(?:\w*__(?P<rank>\d+)_\d+\.distcp|common\.pt|metadata\.json)$",
        r"/iter_(?P<step>\d{7})/mp_rank_[\d_]+/(?:model_optim_rng|distrib_optim)\.pt$",
    ),
    unit=patterns(r"/iter_(?P<step>\d{7})$"),
    commit=patterns(r"/latest_checkpointed_iteration\.txt$"),
)
