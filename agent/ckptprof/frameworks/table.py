"""All frameworks that are known by name, the most particular first."""

from __future__ import annotations

from ckptprof.frameworks import (
    deepspeed,
    lightning,
    megatron,
    numpy,
    orbax,
    safetensors,
    torch_dcp,
    torch_save,
    transformers,
)
from ckptprof.frameworks.knowledge import Framework

FRAMEWORKS: tuple[Framework, ...] = (
    megatron.FRAMEWORK,
    deepspeed.FRAMEWORK,
    transformers.FRAMEWORK,
    lightning.FRAMEWORK,
    orbax.FRAMEWORK,
    torch_dcp.FRAMEWORK,
    safetensors.FRAMEWORK,
    torch_save.FRAMEWORK,
    numpy.FRAMEWORK,
)
