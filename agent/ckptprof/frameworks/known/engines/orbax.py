"""Orbax (orbax/checkpoint/_src/path/{atomicity_types,step}.py, _src/serialization): STEP/ or PREFIX_STEP/.

Written as STEP.orbax-checkpoint-tmp[-N]/ and renamed when complete, or in place with commit_success.txt at the end.
Arrays are data files of OCDBT below ocdbt.process_N/ or, without it, one folder of zarr chunks for each.
"""

from ckptprof.frameworks.examples import SMALL, Save, Write, each
from ckptprof.frameworks.knowledge import Async, Code, Durability, Framework, Layer, directory, mark, temporary

_BELOW = (
    r"(?:^|/)(?:ocdbt\.process_\d+/|manifest\.ocdbt$|_METADATA$|_CHECKPOINT_METADATA$|_sharding$|commit_success\.txt$|"
    r"array_metadatas/|d/[0-9a-f]{32}$)|^[\w-]+/(?:msgpack_)?checkpoint$|/(?:\.zarray|zarr\.json|c(?:/\d+)+|\d+(?:\.\d+)*)$"
)

FRAMEWORK = Framework(
    name="orbax",
    layer=Layer.ENGINE,
    libraries=("jax",),
    files=(
        mark(r"[0-9a-f]{32}", r"(?P<below>/ocdbt\.process_(?P<rank>\d+)/d)$"),
        mark(r"[0-9a-f]{32}", r"(?P<below>/d)$"),
        mark(r"manifest\.ocdbt|_CHECKPOINT_METADATA|_METADATA|_sharding|commit_success\.txt"),
        mark(r"process_(?P<rank>\d+)", r"/array_metadatas$"),
        mark(r"checkpoint|msgpack_checkpoint", r"/(?:\w+_)?(?P<step>\d{1,12})/[\w-]+$"),
        mark(r"\.zarray|zarr\.json|\d+(?:\.\d+)*", r"/(?:\w+_)?\d{1,12}/[\w-]+/[^/]*\.[^/]*(?:/c(?:/\d+)*)?$"),
    ),
    directories=(directory(r"(?:\w+_)?(?P<step>\d{1,12})", _BELOW),),
    commit=(mark(r"commit_success\.txt"), mark(r"_CHECKPOINT_METADATA")),
    temporary=(temporary("orbax-checkpoint-tmp", r"\.orbax-checkpoint-tmp.*$"), temporary("__lock", r"\.__lock$")),
    durability=Durability.FSYNC,
    asynchronous=(Async.THREAD,),
    code=Code(saves=(r"tensorstore/.*", r"orbax/.*"), background=(r"checkpointers/async_checkpointer",)),
    names="`N/`, `PREFIX_N/`, `.orbax-checkpoint-tmp*`: `ocdbt.process_R/`, `manifest.ocdbt`, zarr folders",
    completed_by="rename of the folder, `commit_success.txt`",
    proven_by=("tests/e2e/jobs/orbax_manager.py",),
    saves=(
        Save(
            (
                *each(
                    Write(
                        "{step}/default/ocdbt.process_{rank}/d/0123456789abcdef0123456789abcdef",
                        40,
                        held_s=0.05,
                        temporary="{step}.orbax-checkpoint-tmp/default/ocdbt.process_{rank}/d/0123456789abcdef0123456789abcdef",
                    )
                ),
                Write(
                    "{step}/_CHECKPOINT_METADATA", SMALL, temporary="{step}.orbax-checkpoint-tmp/_CHECKPOINT_METADATA"
                ),
            ),
            path="{step}",
            ranks=2,
            runtimes=("jax", "numpy"),
        ),
        Save(
            tuple(
                Write(
                    f"ckpt_{{step}}/default/params.layer{n}.kernel/0.0",
                    30,
                    temporary=f"ckpt_{{step}}.orbax-checkpoint-tmp/default/params.layer{n}.kernel/0.0",
                )
                for n in (1, 2)
            ),
            path="ckpt_{step}/default",
            runtimes=("jax", "numpy"),
            variant="zarr",
        ),
    ),
)
