"""axolotl (axolotl/core/trainers/base.py): a Trainer of Hugging Face's; only the program tells them apart."""

import re

from ckptprof.frameworks.examples import Save, safetensors, tensor
from ckptprof.frameworks.knowledge import Framework, Layer, directory

FRAMEWORK = Framework(
    name="axolotl",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(),
    directories=(directory(r"checkpoint-(?P<step>\d{1,12})"),),
    programs=re.compile(r"axolotl\b"),
    extends=("transformers", "accelerate"),
    names="the Trainer's; told by the program (`axolotl…`)",
    completed_by="`trainer_state.json`",
    saves=(
        Save(
            (safetensors("checkpoint-{step}/model.safetensors"), tensor("checkpoint-{step}/optimizer.pt")),
            path="checkpoint-{step}",
            program="axolotl.cli.train",
        ),
    ),
)
