"""Libraries with a file layout of their own."""

from __future__ import annotations

from ckptprof.frameworks.examples import HDF5, NPZ, SAFETENSORS, SMALL, Write, dcp, each, safetensors, save
from ckptprof.frameworks.knowledge import Code, Framework, companion, mark, temporary

FRAMEWORKS = (
    # PyTorch Distributed Checkpoint (torch/distributed/checkpoint/filesystem.py, hf_storage.py, _hf_utils.py). Every
    # file is synced; .metadata is renamed into place last. The Hugging Face variant writes sharded/shard-00001-model-*
    # (ranks counted from one) and then joins them into model-0000i-of-0000n.safetensors beside that folder.
    Framework(
        name="torch-dcp",
        libraries=("torch",),
        files=(
            mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp"),
            mark(r"shard-(?P<rank1>\d+)-model-\d+-of-\d+\.safetensors", r"(?P<below>(?:/sharded)?)$"),
        ),
        commit=(mark(r"\.metadata"), mark(r"__\d+\.metadata")),
        temporary=(temporary(".tmp", r"(?<=\.metadata)\.tmp$"),),
        durability="fsync",
        asynchronous=("thread", "child"),
        code=Code(
            saves=(r"torch/distributed/checkpoint/.*",), background=(r"torch/distributed/checkpoint/_async_\w+",)
        ),
        companions=(companion(r"__\d+_\d+\.distcp$", ".metadata"),),
        sharded="sharded",
        consolidated="consolidated",
        names="`__R_N.distcp`; `sharded/shard-R-model-*.safetensors`",
        completed_by="`.metadata`",
        proven_by=("examples/train_torch.py", "tests/e2e/jobs/dcp.py"),
        saves=(
            save(*dcp("step-{step}")),
            save(
                *each(
                    Write(
                        "step_{step}/sharded/shard-{rank1:05}-model-00001-of-00001.safetensors",
                        30,
                        magic=SAFETENSORS,
                        held_s=0.02,
                    )
                ),
                path="step_{step}",
                variant="hf",
            ),
        ),
    ),
    # TensorFlow (core/kernels/save_restore_v2_ops.cc, core/util/tensor_bundle): PREFIX-N.index and
    # .data-00000-of-00001. Each shard is written as PREFIX-N_temp/part-00000-of-00001.data-*, with .tempstateN
    # appended, and renamed; the text file `checkpoint` is renamed into place last. A SavedModel has the same files as
    # variables/variables.*.
    Framework(
        name="tensorflow",
        files=(
            mark(r"part-\d{5}-of-\d{5}\.(?:index|data-.*)", r"(?P<below>/[^/]*?(?P<step>\d{1,12}))$"),
            mark(r"variables\.(?:index|data-\d{5}-of-\d{5})", r"(?P<below>/variables)$"),
            mark(r"(?:.*[-_])?(?P<step>\d{1,12})\.(?:index|data-\d{5}-of-\d{5}|meta)"),
            mark(r".*\.data-\d{5}-of-\d{5}"),
            mark(r"saved_model\.pb"),
        ),
        commit=(mark(r"checkpoint"),),
        temporary=(temporary("tempstate", r"\.tempstate\d+$"),),
        durability="rename",
        code=Code(
            saves=(
                r"tensorflow/python/(?:checkpoint|saved_model)/.*",
                r"tensorflow/python/training/(?:saver|checkpoint\w*)",
            )
        ),
        names="`PREFIX-N.data-*`, `PREFIX-N.index`, `variables/variables.*`",
        completed_by="`checkpoint`",
        saves=(
            save(
                Write(
                    "ckpt-{step}.data-00000-of-00001",
                    60,
                    temporary="ckpt-{step}_temp/part-00000-of-00001.data-00000-of-00001",
                ),
                Write("ckpt-{step}.index", SMALL, temporary="ckpt-{step}.index.tempstate123"),
                path="",
                runtimes=("tensorflow", "numpy"),
            ),
        ),
    ),
    # MindSpore (mindspore/train/callback/_checkpoint.py): PREFIX-EPOCH_STEP.ckpt, after an exception with _breakpoint.
    Framework(
        name="mindspore",
        files=(
            mark(
                r".+-\d{1,9}_(?P<step>\d{1,12})(?:_breakpoint)?\.(?:ckpt|safetensors)",
                r"(?P<below>/rank_(?P<rank>\d+))$",
            ),
            mark(r".+-\d{1,9}_(?P<step>\d{1,12})(?:_breakpoint)?\.ckpt"),
        ),
        asynchronous=("thread", "child"),
        launchers=("msrun",),
        names="`PREFIX-E_N.ckpt`, `_breakpoint`, `rank_R/`",
        saves=(save(Write("CKP-2_{step}.ckpt", 40), runtimes=("mindspore", "numpy")),),
    ),
    # Apache MXNet (mxnet/module/module.py): PREFIX-0012.params and .states, the epoch with four digits.
    Framework(
        name="mxnet",
        files=(mark(r".+-(?P<step>\d{4})\.(?:params|states)"),),
        names="`PREFIX-000N.params`, `.states`",
        saves=(
            save(
                Write("resnet-{step:04}.params", 40), Write("resnet-{step:04}.states", 40), runtimes=("mxnet", "numpy")
            ),
        ),
    ),
    # Flax of old (flax/training/checkpoints.py): checkpoint_N of msgpack, written as checkpoint_tmp, then renamed.
    Framework(
        name="flax",
        libraries=("jax",),
        files=(mark(r"checkpoint_(?P<step>\d{1,12})"), mark(r"(?:.*[-_])?flax_model.*\.msgpack"), mark(r".*\.msgpack")),
        weight=0.5,
        durability="rename",
        asynchronous=("thread",),
        code=Code(saves=(r"flax/(?:training/checkpoints|serialization)",)),
        names="`checkpoint_N` (a file), `.msgpack`",
        completed_by="rename",
        saves=(save(Write("checkpoint_{step}", 40, temporary="checkpoint_tmp"), runtimes=("jax", "numpy")),),
    ),
    # Keras 3 (keras/src/saving/saving_lib.py, callbacks/model_checkpoint.py): a zip `.keras` or `.weights.h5`, in
    # place. BackupAndRestore writes latest.weights.h5 and then training_metadata.json.
    Framework(
        name="keras",
        weight=0.5,
        formats=frozenset(("zip", "hdf5", "keras")),
        files=(mark(r".*\.keras"), mark(r".*\.weights\.h5")),
        commit=(mark(r"training_metadata\.json"),),
        code=Code(saves=(r"keras/(?:src/)?saving/.*",)),
        names="`.keras`, `.weights.h5`",
        completed_by="`training_metadata.json` (BackupAndRestore)",
        proven_by=("tests/e2e/jobs/keras_fit.py",),
        saves=(
            save(Write("ckpt-epoch={step}.keras", 40, magic=NPZ), runtimes=("tensorflow", "numpy")),
            save(Write("step_{step}.weights.h5", 40, magic=HDF5), runtimes=("tensorflow", "numpy"), variant="weights"),
        ),
    ),
    # PEFT (peft/utils/constants.py): adapter_model.safetensors or .bin, with adapter_config.json beside it.
    Framework(
        name="peft",
        libraries=("torch",),
        files=(mark(r"adapter_model\.(?:safetensors|bin)"),),
        durability="rename",
        names="`adapter_model.safetensors`, `.bin`",
        completed_by="rename",
        saves=(save(safetensors("step_{step}/adapter_model.safetensors")),),
    ),
    # MLX LM (mlx_lm/tuner/trainer.py): adapters.safetensors and a second, numbered copy of it in the same folder.
    Framework(
        name="mlx",
        files=(mark(r"(?P<step>\d{7})_adapters\.safetensors"), mark(r"adapters\.safetensors")),
        copies_whole=True,
        names="`000N_adapters.safetensors`",
        saves=(save(Write("{step:07}_adapters.safetensors", 40, magic=SAFETENSORS), runtimes=("numpy",)),),
    ),
)
