"""File formats, which any program may write."""

from __future__ import annotations

import re

from ckptprof.frameworks.framework_entry import PACKED, CodePatterns, Framework, file_pattern, temporary_pattern

FRAMEWORKS = (
    # safetensors (safetensors/src/tensor.rs): written as .tmpXXXXXX beside the target, then renamed; read by mmap.
    Framework(
        name="safetensors",
        weight=0.45,
        formats=frozenset(("safetensors",)),
        files=(file_pattern(r".*\.safetensors"),),
        temporary=(temporary_pattern(".tmp", r"^\.tmp[A-Za-z0-9]{6}$"),),
        code=CodePatterns(saves=(r"safetensors/\w+",), writes=(r"safetensors/\w+",)),
    ),
    # Tensorizer (tensorizer/serialization.py): preallocated, several threads write with pwrite; the header is written
    # again last. In place, no fsync, no marker. Weights alone, mostly to be served.
    Framework(
        name="tensorizer",
        libraries=("torch",),
        weight=0.45,
        formats=frozenset(("tensorizer",)),
        files=(file_pattern(r".*\.tensors"),),
        code=CodePatterns(saves=(r"tensorizer/\w+",), writes=(r"tensorizer/\w+",)),
        magics=((b"|TZR|", "tensorizer"),),
    ),
    # torch.save (torch/serialization.py): any name, known by its ending and first bytes: zip, or pickle of old.
    # In place, no fsync, no marker. `.pth.tar` is what the examples of PyTorch and timm call it, `.tar` what its
    # tutorial on general checkpoints does; they are no tar, and another `.tar` is one unless its first bytes differ.
    Framework(
        name="torch.save",
        libraries=("torch",),
        weight=0.4,
        formats=frozenset(("torch-zip", "pickle", "compressed")),
        files=(
            file_pattern(r".*\.(?:pt|pth|ckpt)" + PACKED),
            file_pattern(r".*\.tar"),
            file_pattern(r"pytorch_model.*\.bin"),
        ),
        code=CodePatterns(saves=(r"torch/serialization",), writes=(r"torch/serialization",)),
        doubtful=re.compile(r"(?<!\.pth)(?<!\.pt)\.tar$"),
    ),
    # XGBoost (callback.py, TrainingCheckPoint: model_12.ubj), LightGBM (snapshot_freq: model.txt.snapshot_iter_12).
    Framework(
        name="boosting",
        weight=0.3,
        files=(
            file_pattern(r".*_(?P<step>\d{1,12})\.ubj"),
            file_pattern(r".*\.ubj"),
            file_pattern(r".*\.snapshot_iter_(?P<step>\d{1,12})"),
        ),
    ),
    # GGUF (ggml/docs/gguf.md): weights for llama.cpp, mostly converted or downloaded, seldom saved by what trains.
    Framework(
        name="gguf",
        weight=0.15,
        formats=frozenset(("gguf",)),
        files=(file_pattern(r".*\.gguf"),),
        magics=((b"GGUF", "gguf"),),
    ),
    # HDF5 (h5py): weights of older Keras and much else that is no checkpoint.
    Framework(
        name="hdf5",
        weight=0.15,
        formats=frozenset(("hdf5",)),
        files=(file_pattern(r".*\.(?:h5|hdf5)"),),
        code=CodePatterns(saves=(r"h5py/_hl/\w+",), writes=(r"h5py/_hl/\w+",)),
        magics=((b"\x89HDF", "hdf5"),),
    ),
    # numpy.save and savez (numpy/lib/_npyio_impl.py): the weakest of marks, since data sets bear them too.
    Framework(
        name="numpy",
        weight=0.15,
        formats=frozenset(("npy", "npz")),
        files=(file_pattern(r".*\.np[yz]"),),
        code=CodePatterns(saves=(r"numpy/lib/\w*npyio\w*",)),
        magics=((b"\x93NUMPY", "npy"),),
    ),
    # pickle, cloudpickle and joblib (joblib/numpy_pickle.py): anything is stored so, checkpoints among it.
    Framework(
        name="pickle",
        weight=0.15,
        files=(file_pattern(r".*\.(?:pkl|pickle|cloudpickle|joblib)" + PACKED),),
        code=CodePatterns(saves=(r"joblib/numpy_pickle", r"pickle", r"cloudpickle/\w+")),
    ),
    # Zarr (v2 and v3, zarr/storage/_local.py, _zip.py): a folder or a zip of chunks, which data sets are, too.
    # Each chunk is written to `NAME.<32 hexadecimal digits>.partial` and renamed; metadata lie beside them.
    Framework(
        name="zarr",
        weight=0.1,
        files=(
            file_pattern(
                r"zarr\.json|\.zarray|\.zattrs|\.zgroup|\.zmetadata|\d+(?:\.\d+)*", r"[^/]\.zarr(?P<below>/.*)?$"
            ),
            file_pattern(r"[^/]+\.zarr\.zip"),
        ),
        temporary=(temporary_pattern("partial", r"\.[0-9a-f]{32}\.partial$"),),
    ),
)
