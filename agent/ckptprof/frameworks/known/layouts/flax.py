"""Flax of old (flax/training/checkpoints.py): checkpoint_N of msgpack, written as checkpoint_tmp, then renamed."""

from ckptprof.frameworks.knowledge import Async, Durability, Framework, Layer, mark

FRAMEWORK = Framework(
    name="flax",
    layer=Layer.LIBRARY,
    files=(mark(r"checkpoint_(?P<step>\d{1,12})"), mark(r"(?:.*[-_])?flax_model.*\.msgpack"), mark(r".*\.msgpack")),
    weight=0.5,
    durability=Durability.RENAME,
    asynchronous=(Async.THREAD,),
)
