"""All frameworks that are known by name: of two that a name fits, the one that stands first."""

from __future__ import annotations

from ckptprof.frameworks import (
    accelerate,
    axolotl,
    boosting,
    bytecheckpoint,
    composer,
    deepspeed,
    fairseq,
    flax,
    gguf,
    hdf5,
    keras,
    lightning,
    llm_c,
    megatron,
    mindspore,
    mlx,
    mxnet,
    nemo,
    numpy,
    nvrx,
    orbax,
    paddle,
    peft,
    pickled,
    safetensors,
    stable_baselines3,
    swift,
    tensorflow,
    torch_dcp,
    torch_save,
    torchtitan,
    torchtune,
    transformers,
    verl,
)
from ckptprof.frameworks.knowledge import Framework

FRAMEWORKS: tuple[Framework, ...] = (
    # those that train
    megatron.FRAMEWORK,
    nemo.FRAMEWORK,
    swift.FRAMEWORK,
    axolotl.FRAMEWORK,
    transformers.FRAMEWORK,
    lightning.FRAMEWORK,
    verl.FRAMEWORK,
    torchtitan.FRAMEWORK,
    torchtune.FRAMEWORK,
    fairseq.FRAMEWORK,
    composer.FRAMEWORK,
    stable_baselines3.FRAMEWORK,
    paddle.FRAMEWORK,
    llm_c.FRAMEWORK,
    # what they save with
    nvrx.FRAMEWORK,
    bytecheckpoint.FRAMEWORK,
    accelerate.FRAMEWORK,
    deepspeed.FRAMEWORK,
    orbax.FRAMEWORK,
    # layouts
    torch_dcp.FRAMEWORK,
    tensorflow.FRAMEWORK,
    mindspore.FRAMEWORK,
    mxnet.FRAMEWORK,
    flax.FRAMEWORK,
    keras.FRAMEWORK,
    peft.FRAMEWORK,
    mlx.FRAMEWORK,
    # formats
    safetensors.FRAMEWORK,
    torch_save.FRAMEWORK,
    boosting.FRAMEWORK,
    gguf.FRAMEWORK,
    hdf5.FRAMEWORK,
    numpy.FRAMEWORK,
    pickled.FRAMEWORK,
)

BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
