"""Flax of old (flax/training/checkpoints.py): checkpoint_N of msgpack, written as checkpoint_tmp, then renamed."""

from ckptprof.frameworks.examples import Save, Write
from ckptprof.frameworks.knowledge import Async, Code, Durability, Framework, Layer, mark

FRAMEWORK = Framework(
    name="flax",
    layer=Layer.LIBRARY,
    libraries=("jax",),
    files=(mark(r"checkpoint_(?P<step>\d{1,12})"), mark(r"(?:.*[-_])?flax_model.*\.msgpack"), mark(r".*\.msgpack")),
    weight=0.5,
    durability=Durability.RENAME,
    asynchronous=(Async.THREAD,),
    code=Code(saves=(r"flax/(?:training/checkpoints|serialization)",)),
    names="`checkpoint_N` (a file), `.msgpack`",
    completed_by="rename",
    saves=(
        Save(
            (Write("checkpoint_{step}", 40, temporary="checkpoint_tmp"),),
            path="checkpoint_{step}",
            runtimes=("jax", "numpy"),
        ),
    ),
)
