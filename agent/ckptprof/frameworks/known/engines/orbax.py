"""Orbax (orbax/checkpoint/_src/path/{atomicity_types,step}.py, _src/serialization): STEP/ or PREFIX_STEP/.

Written as STEP.orbax-checkpoint-tmp[-N]/ and renamed when complete, or in place with commit_success.txt at the end.
Arrays are data files of OCDBT below ocdbt.process_N/ or, without it, one folder of zarr chunks for each.
"""

from ckptprof.frameworks.knowledge import Async, Durability, Framework, Layer, mark, patterns, unit

_BELOW = (
    r"(?:^|/)(?:ocdbt\.process_\d+/|manifest\.ocdbt$|_METADATA$|_CHECKPOINT_METADATA$|_sharding$|commit_success\.txt$|"
    r"array_metadatas/|d/[0-9a-f]{32}$)|^[\w-]+/(?:msgpack_)?checkpoint$|/(?:\.zarray|zarr\.json|c(?:/\d+)+|\d+(?:\.\d+)*)$"
)

FRAMEWORK = Framework(
    name="orbax",
    layer=Layer.ENGINE,
    files=(
        mark(r"[0-9a-f]{32}", r"(?P<below>/ocdbt\.process_(?P<rank>\d+)/d)$"),
        mark(r"[0-9a-f]{32}", r"(?P<below>/d)$"),
        mark(r"manifest\.ocdbt|_CHECKPOINT_METADATA|_METADATA|_sharding|commit_success\.txt"),
        mark(r"process_(?P<rank>\d+)", r"/array_metadatas$"),
        mark(r"checkpoint|msgpack_checkpoint", r"/(?:\w+_)?(?P<step>\d{1,12})/[\w-]+$"),
        mark(r"\.zarray|zarr\.json|\d+(?:\.\d+)*", r"/(?:\w+_)?\d{1,12}/[\w-]+/[^/]*\.[^/]*(?:/c(?:/\d+)*)?$"),
    ),
    units=(unit(r"(?:\w+_)?(?P<step>\d{1,12})", _BELOW),),
    commit=(mark(r"commit_success\.txt"), mark(r"_CHECKPOINT_METADATA")),
    temporary=patterns(r"\.orbax-checkpoint-tmp.*$", r"\.__lock$"),
    durability=Durability.FSYNC,
    asynchronous=(Async.THREAD,),
)
