"""Zarr (v2 and v3, zarr/storage/_local.py, _zip.py): a folder or a zip of chunks, which data sets are, too.

Each chunk is written to `NAME.<32 hexadecimal digits>.partial` and renamed; metadata lie beside them.
"""

from ckptprof.frameworks.examples import SMALL, Save, Write
from ckptprof.frameworks.knowledge import Durability, Framework, Layer, mark, temporary

FRAMEWORK = Framework(
    name="zarr",
    layer=Layer.FORMAT,
    weight=0.1,
    files=(
        mark(
            r"zarr\.json|\.zarray|\.zattrs|\.zgroup|\.zmetadata|\d+(?:\.\d+)*",
            r"[^/]\.zarr(?P<below>/.*)?$",
        ),
        mark(r"[^/]+\.zarr\.zip"),
    ),
    temporary=(temporary("partial", r"\.[0-9a-f]{32}\.partial$"),),
    durability=Durability.RENAME,
    names="`NAME.zarr/`: `zarr.json`, `.zarray`, chunks (`c/0/1`, `0.1`); `NAME.zarr.zip`",
    saves=(
        Save(
            (
                *(
                    Write(
                        f"step_{{step}}.zarr/layer{n}/c/0/0",
                        20,
                        temporary=f"step_{{step}}.zarr/layer{n}/c/0/0.{'0123456789abcdef' * 2}.partial",
                    )
                    for n in range(3)
                ),
                *(Write(f"step_{{step}}.zarr/layer{n}/zarr.json", SMALL) for n in range(3)),
            ),
            path="step_{step}.zarr",
            runtimes=("jax", "numpy"),
        ),
        Save((Write("step_{step}.zarr.zip", 20),), path="step_{step}.zarr.zip", runtimes=("numpy",)),
    ),
)
