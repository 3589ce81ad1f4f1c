"""torchtune (torchtune/training/checkpointing/_checkpointer.py, _utils.py): epoch_N/ and recipe_state/recipe_state.pt.

One shard alone is still called 00001-of-00001, which Hugging Face's own is not; several are called alike by both.
"""

from ckptprof.frameworks.examples import SAFETENSORS, Save, Write, tensor
from ckptprof.frameworks.knowledge import Async, Framework, Layer, directory, mark

FRAMEWORK = Framework(
    name="torchtune",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r"recipe_state\.pt", r"(?P<below>/recipe_state)?$"),
        mark(r"model-00001-of-00001\.(?:safetensors|bin)", r"/(?:epoch|step)_(?P<step>\d{1,12})$"),
        mark(r"(?:adapter|hf_model|meta_model)_\d+(?:_\d+)?\.pt"),
    ),
    directories=(directory(r"(?:epoch|step)_(?P<step>\d{1,12})"),),
    asynchronous=(Async.THREAD,),
    names="`epoch_N/`, `recipe_state/recipe_state.pt`",
    saves=(
        Save(
            (
                *(Write(f"epoch_{{step}}/model-0000{n}-of-00002.safetensors", 40, magic=SAFETENSORS) for n in (1, 2)),
                tensor("recipe_state/recipe_state.pt", 20),
            )
        ),
    ),
)
