"""Keras 3 (keras/src/saving/saving_lib.py, callbacks/model_checkpoint.py): a zip `.keras` or `.weights.h5`, in place.

BackupAndRestore writes latest.weights.h5 and then training_metadata.json.
"""

from ckptprof.frameworks.examples import HDF5, NPZ, Save, Write
from ckptprof.frameworks.knowledge import Code, Framework, Layer, mark

FRAMEWORK = Framework(
    name="keras",
    layer=Layer.LIBRARY,
    weight=0.5,
    formats=frozenset(("zip", "hdf5", "keras")),
    files=(mark(r".*\.keras"), mark(r".*\.weights\.h5")),
    commit=(mark(r"training_metadata\.json"),),
    code=Code(saves=(r"keras/(?:src/)?saving/.*",)),
    names="`.keras`, `.weights.h5`",
    completed_by="`training_metadata.json` (BackupAndRestore)",
    proven_by=("tests/e2e/jobs/keras_fit.py",),
    saves=(
        Save(
            (Write("ckpt-epoch={step}.keras", 40, magic=NPZ),),
            path="ckpt-epoch={step}.keras",
            runtimes=("tensorflow", "numpy"),
        ),
        Save(
            (Write("step_{step}.weights.h5", 40, magic=HDF5),),
            path="step_{step}.weights.h5",
            runtimes=("tensorflow", "numpy"),
            variant="weights",
        ),
    ),
)
