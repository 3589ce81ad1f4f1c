"""HDF5 (h5py): weights of older Keras and much else that is no checkpoint."""

from ckptprof.frameworks.examples import HDF5, Save, Write
from ckptprof.frameworks.knowledge import Code, Framework, Layer, mark

FRAMEWORK = Framework(
    name="hdf5",
    layer=Layer.FORMAT,
    weight=0.15,
    formats=frozenset(("hdf5",)),
    files=(mark(r".*\.(?:h5|hdf5)"),),
    code=Code(saves=(r"h5py/_hl/\w+",), writes=(r"h5py/_hl/\w+",)),
    magics=((b"\x89HDF", "hdf5"),),
    names="`.h5`, `.hdf5`",
    saves=(Save((Write("weights_step_{step}.h5", 40, magic=HDF5),), path="weights_step_{step}.h5"),),
)
