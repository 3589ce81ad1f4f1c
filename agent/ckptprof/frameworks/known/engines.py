"""Libraries that write whole checkpoints, called by trainers."""

from __future__ import annotations

from ckptprof.frameworks.framework_entry import CodePatterns, Framework, file_pattern, folder_pattern, temporary_pattern

_BELOW = (
    r"(?:^|/)(?:ocdbt\.process_\d+/|manifest\.ocdbt$|_METADATA$|_CHECKPOINT_METADATA$|_sharding$|commit_success\.txt$|"
    r"array_metadatas/|d/[0-9a-f]{32}$)|^[\w-]+/(?:msgpack_)?checkpoint$|/(?:\.zarray|zarr\.json|c(?:/\d+)+|\d+(?:\.\d+)*)$"
)
FRAMEWORKS = (
    # NVIDIA Resiliency Extension (checkpointing/local/ckpt_managers/local_manager.py): a file of each rank.
    # ROOT/SESSION/RANK/iter_0000500_RANK_local.pt, written with .dirty in its name and renamed.
    Framework(
        name="nvrx",
        libraries=("torch",),
        files=(file_pattern(r"iter_(?P<step>\d{7})_(?P<rank>\d+)_local\.pt", r"(?P<below>/\d+)?$"),),
        temporary=(temporary_pattern("dirty", r"\.dirty(?=\.pt$)"),),
        code=CodePatterns(
            saves=(r"nvidia_resiliency_ext/checkpointing/.*",),
            background=(r"nvidia_resiliency_ext/checkpointing/async_ckpt/\w+",),
        ),
        launchers=("ft_launcher",),
    ),
    # ByteCheckpoint, also as used by VeOmni: model/, optimizer/ (each as PyTorch DCP) and extra_state/ in one folder.
    Framework(
        name="bytecheckpoint",
        libraries=("torch",),
        files=(
            file_pattern(r"__(?P<rank>\d+)_\d+\.distcp", r"/global_step_(?P<step>\d{1,12})/(?:model|optimizer)$"),
            file_pattern(r"extra_states?_rank_?(?P<rank>\d+)\.pt", r"(?P<below>/extra_states?)$"),
        ),
        directories=(folder_pattern(r"global_step_(?P<step>\d{1,12})"),),
        code=CodePatterns(saves=(r"bytecheckpoint/.*",)),
    ),
    # accelerate (utils/constants.py, utils/fsdp_utils.py, accelerator.py): save_state, to checkpoints/checkpoint_N/.
    # With FSDP the model and the optimizer are two folders of PyTorch DCP, or one file of each rank; every rank writes
    # random_states_RANK.pkl, the last of its files.
    Framework(
        name="accelerate",
        libraries=("torch",),
        files=(
            file_pattern(
                r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp",
                r"(?P<below>/(?:pytorch_model_fsdp|optimizer)_\d+|/distributed_checkpoint)$",
            ),
            file_pattern(r"(?:pytorch_model_fsdp|optimizer)(?:_\d+)?_rank(?P<rank>\d+)\.bin"),
            file_pattern(r"(?:pytorch_model_fsdp|optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin"),
            file_pattern(r"random_states_(?P<rank>\d+)\.pkl"),
            file_pattern(r"custom_checkpoint_\d+\.pkl"),
            file_pattern(
                r"(?:model|pytorch_model).*\.(?:safetensors|bin)", r"/checkpoints/checkpoint_(?P<step>\d{1,12})$"
            ),
        ),
        directories=(folder_pattern(r"checkpoint_(?P<step>\d{1,12})"),),
        launchers=(
            "accelerate",
            "accelerate-launch",
            "accelerate.commands.launch",
            "accelerate.commands.accelerate_cli",
        ),
    ),
    # DeepSpeed (deepspeed/runtime/engine.py): global_stepN/ (or any tag), then the text file `latest` beside it. The
    # fast engine writes with O_DIRECT and syncs at close, the decoupled one writes in a process of its own; a universal
    # checkpoint (checkpoint/ds_to_universal.py) is one folder for each parameter below zero/.
    Framework(
        name="deepspeed",
        libraries=("torch",),
        files=(
            file_pattern(
                r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt",
                r"(?P<below>/pytorch_model)?$",
            ),
            file_pattern(r"mp_rank_(?P<rank>\d+)_model_states\.pt", r"(?P<below>/pytorch_model)?$"),
            file_pattern(r"layer_\d+(?:_expert_\d+_mp_rank_\d+|-model_\d+)[-_](?:model|optim)_states\.pt"),
            file_pattern(r"expp_rank_\d+_mp_rank_\d+_optim_states\.pt"),
            file_pattern(r"(?:fp32|exp_avg|exp_avg_sq|step)\.pt", r"(?P<below>/zero/[^/]+)$"),
        ),
        directories=(folder_pattern(r"global_step(?P<step>\d{1,12})(?:_universal)?"),),
        commit=(file_pattern(r"latest(?:_universal)?"),),
        code=CodePatterns(saves=(r"(?:\w+/)*checkpoint_engine/.*",), background=(r"fast_persist\w*",)),
        launchers=("deepspeed", "deepspeed.launcher.launch", "deepspeed.launcher.runner"),
    ),
    # Orbax (orbax/checkpoint/_src/path/{atomicity_types,step}.py, _src/serialization): STEP/ or PREFIX_STEP/. Written
    # as STEP.orbax-checkpoint-tmp[-N]/ and renamed when complete, or in place with commit_success.txt at the end.
    # Arrays are data files of OCDBT below ocdbt.process_N/ or, without it, one folder of zarr chunks for each.
    Framework(
        name="orbax",
        libraries=("jax",),
        files=(
            file_pattern(r"[0-9a-f]{32}", r"(?P<below>/ocdbt\.process_(?P<rank>\d+)/d)$"),
            file_pattern(r"[0-9a-f]{32}", r"(?P<below>/d)$"),
            file_pattern(r"manifest\.ocdbt|_CHECKPOINT_METADATA|_METADATA|_sharding|commit_success\.txt"),
            file_pattern(r"process_(?P<rank>\d+)", r"/array_metadatas$"),
            file_pattern(r"checkpoint|msgpack_checkpoint", r"/(?:\w+_)?(?P<step>\d{1,12})/[\w-]+$"),
            file_pattern(
                r"\.zarray|zarr\.json|\d+(?:\.\d+)*", r"/(?:\w+_)?\d{1,12}/[\w-]+/[^/]*\.[^/]*(?:/c(?:/\d+)*)?$"
            ),
        ),
        directories=(folder_pattern(r"(?:\w+_)?(?P<step>\d{1,12})", _BELOW),),
        commit=(file_pattern(r"commit_success\.txt"), file_pattern(r"_CHECKPOINT_METADATA")),
        temporary=(
            temporary_pattern("orbax-checkpoint-tmp", r"\.orbax-checkpoint-tmp.*$"),
            temporary_pattern("__lock", r"\.__lock$"),
        ),
        code=CodePatterns(saves=(r"tensorstore/.*", r"orbax/.*"), background=(r"checkpointers/async_checkpointer",)),
    ),
)
