"""TensorFlow (core/kernels/save_restore_v2_ops.cc, core/util/tensor_bundle): PREFIX-N.index and .data-00000-of-00001.

Each shard is written as PREFIX-N_temp/part-00000-of-00001.data-*, with .tempstateN appended, and moved; the text file
`checkpoint` is renamed into place last. A SavedModel has the same files as variables/variables.*.
"""

from ckptprof.frameworks.examples import SMALL, Save, Write
from ckptprof.frameworks.knowledge import Code, Durability, Framework, Layer, mark, temporary

FRAMEWORK = Framework(
    name="tensorflow",
    layer=Layer.LIBRARY,
    files=(
        mark(r"part-\d{5}-of-\d{5}\.(?:index|data-.*)", r"(?P<below>/[^/]*?(?P<step>\d{1,12}))$"),
        mark(r"variables\.(?:index|data-\d{5}-of-\d{5})", r"(?P<below>/variables)$"),
        mark(r"(?:.*[-_])?(?P<step>\d{1,12})\.(?:index|data-\d{5}-of-\d{5}|meta)"),
        mark(r".*\.data-\d{5}-of-\d{5}"),
        mark(r"saved_model\.pb"),
    ),
    commit=(mark(r"checkpoint"),),
    temporary=(temporary("tempstate", r"\.tempstate\d+$"),),
    durability=Durability.RENAME,
    code=Code(
        saves=(
            r"tensorflow/python/(?:checkpoint|saved_model)/.*",
            r"tensorflow/python/training/(?:saver|checkpoint\w*)",
        )
    ),
    names="`PREFIX-N.data-*`, `PREFIX-N.index`, `variables/variables.*`",
    completed_by="`checkpoint`",
    saves=(
        Save(
            (
                Write(
                    "ckpt-{step}.data-00000-of-00001",
                    60,
                    temporary="ckpt-{step}_temp/part-00000-of-00001.data-00000-of-00001",
                ),
                Write("ckpt-{step}.index", SMALL, temporary="ckpt-{step}.index.tempstate123"),
            ),
            runtimes=("tensorflow", "numpy"),
        ),
    ),
)
