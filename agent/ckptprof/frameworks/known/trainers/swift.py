"""ms-swift (swift/trainers): the Trainer's files in vN-DATE-TIME/checkpoint-STEP/, with args.json beside them."""

import re

from ckptprof.frameworks.examples import Save, safetensors, tensor
from ckptprof.frameworks.knowledge import Framework, Layer, directory, mark

_FOLDER = r"/v\d+-\d{8}-\d{6}/checkpoint-(?P<step>\d{1,12})(?:/|$)"

FRAMEWORK = Framework(
    name="ms-swift",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r".*\.safetensors", _FOLDER),
        mark(r"(?:optimizer|scheduler|scaler)\.(?:pt|bin)", _FOLDER),
        mark(r"rng_state(?:_(?P<rank>\d+))?\.pth", _FOLDER),
        mark(r"(?:training_args\.bin|trainer_state\.json)", _FOLDER),
    ),
    directories=(directory(r"checkpoint-(?P<step>\d{1,12})"),),
    programs=re.compile(r"swift(?:\.cli\b.*)?$"),
    extends=("transformers",),
    names="`vN-DATE-TIME/checkpoint-N/` with the Trainer's files",
    completed_by="`trainer_state.json`",
    saves=(
        Save(
            (
                safetensors("v0-20250101-120000/checkpoint-{step}/model.safetensors"),
                tensor("v0-20250101-120000/checkpoint-{step}/optimizer.pt"),
            ),
            path="v0-20250101-120000/checkpoint-{step}",
        ),
    ),
)
