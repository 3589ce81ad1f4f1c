"""pickle, cloudpickle and joblib (joblib/numpy_pickle.py): anything is stored so, checkpoints among it."""

from ckptprof.frameworks.examples import GZIP, PICKLE, Save, Write
from ckptprof.frameworks.knowledge import PACKED, Code, Framework, Layer, mark

FRAMEWORK = Framework(
    name="pickle",
    layer=Layer.FORMAT,
    weight=0.15,
    files=(mark(r".*\.(?:pkl|pickle|cloudpickle|joblib)" + PACKED),),
    code=Code(saves=(r"joblib/numpy_pickle", r"pickle", r"cloudpickle/\w+")),
    names="`.pkl`, `.pickle`, `.joblib`, `.cloudpickle`, also with `.gz`, `.zst` and the like",
    proven_by=("tests/e2e/jobs/torch_save.py",),
    saves=(
        Save((Write("ckpt_{step}.pkl.gz", 40, magic=GZIP),), path="ckpt_{step}.pkl.gz", variant="compressed"),
        Save((Write("policy_step_{step}.pkl", 40, magic=PICKLE),), path="policy_step_{step}.pkl"),
    ),
)
