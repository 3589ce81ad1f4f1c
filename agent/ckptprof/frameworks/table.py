"""All frameworks that are known by name: of two that a name fits, the one that stands first."""

from __future__ import annotations

from importlib import import_module

from ckptprof.frameworks.knowledge import Framework

# a line for each file of known/
FILES = (
    # those that train
    "trainers.megatron",
    "trainers.nemo",
    "trainers.swift",
    "trainers.axolotl",
    "trainers.transformers",
    "trainers.lightning",
    "trainers.verl",
    "trainers.torchtitan",
    "trainers.torchtune",
    "trainers.fairseq",
    "trainers.composer",
    "trainers.stable_baselines3",
    "trainers.paddle",
    "trainers.llm_c",
    "trainers.detectron2",
    "trainers.ultralytics",
    # what they save with
    "engines.nvrx",
    "engines.bytecheckpoint",
    "engines.accelerate",
    "engines.deepspeed",
    "engines.orbax",
    # layouts
    "layouts.torch_dcp",
    "layouts.tensorflow",
    "layouts.mindspore",
    "layouts.mxnet",
    "layouts.flax",
    "layouts.keras",
    "layouts.peft",
    "layouts.mlx",
    # formats
    "formats.safetensors",
    "formats.torch_save",
    "formats.boosting",
    "formats.gguf",
    "formats.hdf5",
    "formats.numpy",
    "formats.pickled",
    "formats.zarr",
)

FRAMEWORKS: tuple[Framework, ...] = tuple(
    import_module(f"ckptprof.frameworks.known.{file}").FRAMEWORK for file in FILES
)
BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
COMPANIONS = tuple(one for framework in FRAMEWORKS for one in framework.companions)
SHARDED = frozenset(framework.sharded for framework in FRAMEWORKS if framework.sharded is not None)
CONSOLIDATED = frozenset(framework.consolidated for framework in FRAMEWORKS if framework.consolidated is not None)


def libraries(name: str | None) -> frozenset[str]:
    """Return what a job has that saves by this framework: itself, what it is built on, and what it uses; or nothing."""
    known = BY_NAME.get(name or "")
    if known is None:
        return frozenset()
    return frozenset({known.name, *known.libraries}).union(*map(libraries, known.extends))
