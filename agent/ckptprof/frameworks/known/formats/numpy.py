"""numpy.save and savez (numpy/lib/_npyio_impl.py): the weakest of marks, since data sets bear them too."""

from ckptprof.frameworks.examples import NPZ, Save, Write
from ckptprof.frameworks.knowledge import Code, Framework, Layer, mark

FRAMEWORK = Framework(
    name="numpy",
    layer=Layer.FORMAT,
    weight=0.15,
    formats=frozenset(("npy", "npz")),
    files=(mark(r".*\.np[yz]"),),
    code=Code(saves=(r"numpy/lib/\w*npyio\w*",)),
    magics=((b"\x93NUMPY", "npy"),),
    names="`.npy`, `.npz`",
    proven_by=("examples/train_numpy.py",),
    saves=(
        Save(
            (Write("params_step_{step}.npz", 40, magic=NPZ),), path="params_step_{step}.npz", runtimes=("jax", "numpy")
        ),
    ),
)
