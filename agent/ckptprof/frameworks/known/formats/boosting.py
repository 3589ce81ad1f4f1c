"""XGBoost (callback.py, TrainingCheckPoint: model_12.ubj), LightGBM (snapshot_freq: model.txt.snapshot_iter_12)."""

from ckptprof.frameworks.examples import Save, Write
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="boosting",
    layer=Layer.FORMAT,
    weight=0.3,
    files=(mark(r".*_(?P<step>\d{1,12})\.ubj"), mark(r".*\.ubj"), mark(r".*\.snapshot_iter_(?P<step>\d{1,12})")),
    names="`.ubj`, `.snapshot_iter_N` (XGBoost, LightGBM)",
    saves=(Save((Write("model_{step}.ubj", 20),), path="model_{step}.ubj", runtimes=("numpy",)),),
)
