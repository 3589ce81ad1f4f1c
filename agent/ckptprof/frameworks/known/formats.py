"""File formats, which any program may write."""

from __future__ import annotations

import re

from ckptprof.frameworks.examples import GGUF, GZIP, HDF5, NPZ, PICKLE, SMALL, Write, each, safetensors, save, tensor
from ckptprof.frameworks.knowledge import PACKED, Code, Framework, mark, temporary

FRAMEWORKS = (
    # safetensors (safetensors/src/tensor.rs): written as .tmpXXXXXX beside the target, then renamed; read by mmap.
    Framework(
        name="safetensors",
        weight=0.45,
        formats=frozenset(("safetensors",)),
        files=(mark(r".*\.safetensors"),),
        temporary=(temporary(".tmp", r"^\.tmp[A-Za-z0-9]{6}$"),),
        durability="rename",
        code=Code(saves=(r"safetensors/\w+",), writes=(r"safetensors/\w+",)),
        names="`.safetensors` (`.tmpXXXXXX` before)",
        completed_by="rename",
        proven_by=("examples/train_torch.py", "tests/e2e/jobs/torch_save.py"),
        saves=(
            save(safetensors("step_{step}/model.safetensors"), mapped=True),
            save(
                *tuple(safetensors(f"step_{{step}}/model-0000{n}-of-00002.safetensors") for n in (1, 2)),
                mapped=True,
                variant="shards",
            ),
        ),
    ),
    # torch.save (torch/serialization.py): any name, known by its ending and first bytes: zip, or pickle of old.
    # In place, no fsync, no marker. `.pth.tar` is what the examples of PyTorch and timm call it, `.tar` what its
    # tutorial on general checkpoints does; they are no tar, and another `.tar` is one unless its first bytes differ.
    Framework(
        name="torch.save",
        libraries=("torch",),
        weight=0.4,
        formats=frozenset(("torch-zip", "pickle", "compressed")),
        files=(mark(r".*\.(?:pt|pth|ckpt)" + PACKED), mark(r".*\.tar"), mark(r"pytorch_model.*\.bin")),
        code=Code(saves=(r"torch/serialization",), writes=(r"torch/serialization",)),
        doubtful=re.compile(r"(?<!\.pth)(?<!\.pt)\.tar$"),
        names=(
            "`.pt`, `.pth`, `.ckpt`, also with `.gz`, `.zst` and the like; `.pth.tar`, `.tar` that is none, "
            "`pytorch_model*.bin`"
        ),
        proven_by=("examples/train_torch.py", "tests/e2e/jobs/torch_save.py"),
        saves=(
            save(tensor("ckpt_{step}.pt")),
            save(*each(tensor("model_step_{step}_rank_{rank}.pt")), variant="ranks"),
            save(Write("model_{step}.pt", 40, magic=b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."), variant="legacy"),
            save(Write("ckpt_{step}.pt.gz", 40, magic=GZIP), variant="compressed"),
        ),
    ),
    # XGBoost (callback.py, TrainingCheckPoint: model_12.ubj), LightGBM (snapshot_freq: model.txt.snapshot_iter_12).
    Framework(
        name="boosting",
        weight=0.3,
        files=(mark(r".*_(?P<step>\d{1,12})\.ubj"), mark(r".*\.ubj"), mark(r".*\.snapshot_iter_(?P<step>\d{1,12})")),
        names="`.ubj`, `.snapshot_iter_N` (XGBoost, LightGBM)",
        saves=(save(Write("model_{step}.ubj", 20), runtimes=("numpy",)),),
    ),
    # GGUF (ggml/docs/gguf.md): weights for llama.cpp, mostly converted or downloaded, seldom saved by what trains.
    Framework(
        name="gguf",
        weight=0.15,
        formats=frozenset(("gguf",)),
        files=(mark(r".*\.gguf"),),
        magics=((b"GGUF", "gguf"),),
        names="`.gguf`",
        saves=(save(Write("checkpoint-{step}.gguf", 40, magic=GGUF)),),
    ),
    # HDF5 (h5py): weights of older Keras and much else that is no checkpoint.
    Framework(
        name="hdf5",
        weight=0.15,
        formats=frozenset(("hdf5",)),
        files=(mark(r".*\.(?:h5|hdf5)"),),
        code=Code(saves=(r"h5py/_hl/\w+",), writes=(r"h5py/_hl/\w+",)),
        magics=((b"\x89HDF", "hdf5"),),
        names="`.h5`, `.hdf5`",
        saves=(save(Write("weights_step_{step}.h5", 40, magic=HDF5)),),
    ),
    # numpy.save and savez (numpy/lib/_npyio_impl.py): the weakest of marks, since data sets bear them too.
    Framework(
        name="numpy",
        weight=0.15,
        formats=frozenset(("npy", "npz")),
        files=(mark(r".*\.np[yz]"),),
        code=Code(saves=(r"numpy/lib/\w*npyio\w*",)),
        magics=((b"\x93NUMPY", "npy"),),
        names="`.npy`, `.npz`",
        proven_by=("examples/train_numpy.py",),
        saves=(save(Write("params_step_{step}.npz", 40, magic=NPZ), runtimes=("jax", "numpy")),),
    ),
    # pickle, cloudpickle and joblib (joblib/numpy_pickle.py): anything is stored so, checkpoints among it.
    Framework(
        name="pickle",
        weight=0.15,
        files=(mark(r".*\.(?:pkl|pickle|cloudpickle|joblib)" + PACKED),),
        code=Code(saves=(r"joblib/numpy_pickle", r"pickle", r"cloudpickle/\w+")),
        names="`.pkl`, `.pickle`, `.joblib`, `.cloudpickle`, also with `.gz`, `.zst` and the like",
        proven_by=("tests/e2e/jobs/torch_save.py",),
        saves=(
            save(Write("ckpt_{step}.pkl.gz", 40, magic=GZIP), variant="compressed"),
            save(Write("policy_step_{step}.pkl", 40, magic=PICKLE)),
        ),
    ),
    # Zarr (v2 and v3, zarr/storage/_local.py, _zip.py): a folder or a zip of chunks, which data sets are, too.
    # Each chunk is written to `NAME.<32 hexadecimal digits>.partial` and renamed; metadata lie beside them.
    Framework(
        name="zarr",
        weight=0.1,
        files=(
            mark(r"zarr\.json|\.zarray|\.zattrs|\.zgroup|\.zmetadata|\d+(?:\.\d+)*", r"[^/]\.zarr(?P<below>/.*)?$"),
            mark(r"[^/]+\.zarr\.zip"),
        ),
        temporary=(temporary("partial", r"\.[0-9a-f]{32}\.partial$"),),
        durability="rename",
        names="`NAME.zarr/`: `zarr.json`, `.zarray`, chunks (`c/0/1`, `0.1`); `NAME.zarr.zip`",
        saves=(
            save(
                *(
                    Write(
                        f"step_{{step}}.zarr/layer{n}/c/0/0",
                        20,
                        temporary=f"step_{{step}}.zarr/layer{n}/c/0/0.{'0123456789abcdef' * 2}.partial",
                    )
                    for n in range(3)
                ),
                *(Write(f"step_{{step}}.zarr/layer{n}/zarr.json", SMALL) for n in range(3)),
                runtimes=("jax", "numpy"),
            ),
            save(Write("step_{step}.zarr.zip", 20), runtimes=("numpy",)),
        ),
    ),
)
