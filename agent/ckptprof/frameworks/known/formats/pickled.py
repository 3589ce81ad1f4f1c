"""pickle, cloudpickle and joblib (joblib/numpy_pickle.py): anything is stored so, checkpoints among it."""

from ckptprof.frameworks.knowledge import PACKED, Framework, Layer, mark

FRAMEWORK = Framework(
    name="pickle",
    layer=Layer.FORMAT,
    weight=0.15,
    files=(mark(r".*\.(?:pkl|pickle|cloudpickle|joblib)" + PACKED),),
)
