"""Keras 3 (keras/src/saving/saving_lib.py, callbacks/model_checkpoint.py): a zip `.keras` or `.weights.h5`, in place.

BackupAndRestore writes latest.weights.h5 and then training_metadata.json.
"""

from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="keras",
    layer=Layer.LIBRARY,
    weight=0.5,
    formats=frozenset(("zip", "hdf5", "keras")),
    files=(mark(r".*\.keras"), mark(r".*\.weights\.h5")),
    commit=(mark(r"training_metadata\.json"),),
)
