"""torchtune (torchtune/training/checkpointing/_checkpointer.py, _utils.py): epoch_N/ and recipe_state/recipe_state.pt.

Its shards are numbered with five digits even where there is one, which Hugging Face's own are not.
"""

from ckptprof.frameworks.knowledge import Async, Framework, Layer, mark, unit

FRAMEWORK = Framework(
    name="torchtune",
    layer=Layer.TRAINER,
    files=(
        mark(r"recipe_state\.pt", r"(?P<below>/recipe_state)?$"),
        mark(r"model-\d{5}-of-\d{5}\.(?:safetensors|bin)", r"/(?:epoch|step)_(?P<step>\d{1,12})$"),
        mark(r"(?:adapter|hf_model|meta_model)_\d+(?:_\d+)?\.pt"),
    ),
    units=(unit(r"(?:epoch|step)_(?P<step>\d{1,12})"),),
    asynchronous=(Async.THREAD,),
)
