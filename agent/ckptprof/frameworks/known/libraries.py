"""Libraries with a file layout of their own."""

from __future__ import annotations

from ckptprof.frameworks.framework_entry import CodePatterns, Framework, file_pattern, required_file, temporary_pattern

FRAMEWORKS = (
    # PyTorch Distributed Checkpoint (torch/distributed/checkpoint/filesystem.py, hf_storage.py, _hf_utils.py). Every
    # file is synced; .metadata is renamed into place last. The Hugging Face variant writes sharded/shard-00001-model-*
    # (ranks counted from one) and then joins them into model-0000i-of-0000n.safetensors beside that folder.
    Framework(
        name="torch-dcp",
        libraries=("torch",),
        files=(
            file_pattern(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp"),
            file_pattern(r"shard-(?P<rank1>\d+)-model-\d+-of-\d+\.safetensors", r"(?P<below>(?:/sharded)?)$"),
        ),
        commit=(file_pattern(r"\.metadata"), file_pattern(r"__\d+\.metadata")),
        temporary=(temporary_pattern(".tmp", r"(?<=\.metadata)\.tmp$"),),
        code=CodePatterns(
            saves=(r"torch/distributed/checkpoint/.*",), background=(r"torch/distributed/checkpoint/_async_\w+",)
        ),
        companions=(required_file(r"__\d+_\d+\.distcp$", ".metadata"),),
    ),
    # TensorFlow (core/kernels/save_restore_v2_ops.cc, core/util/tensor_bundle): PREFIX-N.index and
    # .data-00000-of-00001. Each shard is written as PREFIX-N_temp/part-00000-of-00001.data-*, with .tempstateN
    # appended, and renamed; the text file `checkpoint` is renamed into place last. A SavedModel has the same files as
    # variables/variables.*.
    Framework(
        name="tensorflow",
        files=(
            file_pattern(r"part-\d{5}-of-\d{5}\.(?:index|data-.*)", r"(?P<below>/[^/]*?(?P<step>\d{1,12}))$"),
            file_pattern(r"variables\.(?:index|data-\d{5}-of-\d{5})", r"(?P<below>/variables)$"),
            file_pattern(r"(?:.*[-_])?(?P<step>\d{1,12})\.(?:index|data-\d{5}-of-\d{5}|meta)"),
            file_pattern(r".*\.data-\d{5}-of-\d{5}"),
            file_pattern(r"saved_model\.pb"),
        ),
        commit=(file_pattern(r"checkpoint"),),
        temporary=(temporary_pattern("tempstate", r"\.tempstate\d+$"),),
        code=CodePatterns(
            saves=(
                r"tensorflow/python/(?:checkpoint|saved_model)/.*",
                r"tensorflow/python/training/(?:saver|checkpoint\w*)",
            )
        ),
    ),
    # MindSpore (mindspore/train/callback/_checkpoint.py): PREFIX-EPOCH_STEP.ckpt, after an exception with _breakpoint.
    Framework(
        name="mindspore",
        files=(
            file_pattern(
                r".+-\d{1,9}_(?P<step>\d{1,12})(?:_breakpoint)?\.(?:ckpt|safetensors)",
                r"(?P<below>/rank_(?P<rank>\d+))$",
            ),
            file_pattern(r".+-\d{1,9}_(?P<step>\d{1,12})(?:_breakpoint)?\.ckpt"),
        ),
        launchers=("msrun",),
    ),
    # Apache MXNet (mxnet/module/module.py): PREFIX-0012.params and .states, the epoch with four digits.
    Framework(
        name="mxnet",
        files=(file_pattern(r".+-(?P<step>\d{4})\.(?:params|states)"),),
    ),
    # Flax of old (flax/training/checkpoints.py): checkpoint_N of msgpack, written as checkpoint_tmp, then renamed.
    Framework(
        name="flax",
        libraries=("jax",),
        files=(
            file_pattern(r"checkpoint_(?P<step>\d{1,12})"),
            file_pattern(r"(?:.*[-_])?flax_model.*\.msgpack"),
            file_pattern(r".*\.msgpack"),
        ),
        weight=0.5,
        code=CodePatterns(saves=(r"flax/(?:training/checkpoints|serialization)",)),
    ),
    # Keras 3 (keras/src/saving/saving_lib.py, callbacks/model_checkpoint.py): a zip `.keras` or `.weights.h5`, in
    # place. BackupAndRestore writes latest.weights.h5 and then training_metadata.json.
    Framework(
        name="keras",
        weight=0.5,
        formats=frozenset(("zip", "hdf5", "keras")),
        files=(file_pattern(r".*\.keras"), file_pattern(r".*\.weights\.h5")),
        commit=(file_pattern(r"training_metadata\.json"),),
        code=CodePatterns(saves=(r"keras/(?:src/)?saving/.*",)),
    ),
    # PEFT (peft/utils/constants.py): adapter_model.safetensors or .bin, with adapter_config.json beside it.
    Framework(
        name="peft",
        libraries=("torch",),
        files=(file_pattern(r"adapter_model\.(?:safetensors|bin)"),),
    ),
    # MLX LM (mlx_lm/tuner/trainer.py): adapters.safetensors and a second, numbered copy of it in the same folder.
    Framework(
        name="mlx",
        files=(file_pattern(r"(?P<step>\d{7})_adapters\.safetensors"), file_pattern(r"adapters\.safetensors")),
        copies_whole=True,
    ),
)
