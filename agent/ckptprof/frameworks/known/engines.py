"""Libraries that write whole checkpoints, called by trainers."""

from __future__ import annotations

from ckptprof.frameworks.examples import PICKLE, SMALL, TORCH_ZIP, Write, dcp, each, safetensors, save, tensor
from ckptprof.frameworks.knowledge import Code, Framework, directory, mark, temporary

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
        files=(mark(r"iter_(?P<step>\d{7})_(?P<rank>\d+)_local\.pt", r"(?P<below>/\d+)?$"),),
        temporary=(temporary("dirty", r"\.dirty(?=\.pt$)"),),
        durability="rename",
        asynchronous=("daemon", "child", "thread"),
        code=Code(
            saves=(r"nvidia_resiliency_ext/checkpointing/.*",),
            background=(r"nvidia_resiliency_ext/checkpointing/async_ckpt/\w+",),
        ),
        launchers=("ft_launcher",),
        names="`SESSION/R/iter_0000500_R_local.pt` (`.dirty.pt` before)",
        completed_by="rename",
        saves=(
            save(
                *each(
                    tensor(
                        "s/{rank}/iter_{step:07}_{rank}_local.pt",
                        temporary="s/{rank}/iter_{step:07}_{rank}_local.dirty.pt",
                    )
                )
            ),
        ),
    ),
    # ByteCheckpoint, also as used by VeOmni: model/, optimizer/ (each as PyTorch DCP) and extra_state/ in one folder.
    Framework(
        name="bytecheckpoint",
        libraries=("torch",),
        files=(
            mark(r"__(?P<rank>\d+)_\d+\.distcp", r"/global_step_(?P<step>\d{1,12})/(?:model|optimizer)$"),
            mark(r"extra_states?_rank_?(?P<rank>\d+)\.pt", r"(?P<below>/extra_states?)$"),
        ),
        directories=(directory(r"global_step_(?P<step>\d{1,12})"),),
        asynchronous=("child", "thread"),
        code=Code(saves=(r"bytecheckpoint/.*",)),
        names="`global_step_N/{model,optimizer,extra_state}/`",
        completed_by="`.metadata`",
        saves=(
            save(
                *dcp("global_step_{step}/model"),
                *dcp("global_step_{step}/optimizer"),
                *each(Write("global_step_{step}/extra_state/extra_state_rank_{rank}.pt", SMALL, magic=TORCH_ZIP)),
            ),
        ),
    ),
    # accelerate (utils/constants.py, utils/fsdp_utils.py, accelerator.py): save_state, to checkpoints/checkpoint_N/.
    # With FSDP the model and the optimizer are two folders of PyTorch DCP, or one file of each rank; every rank writes
    # random_states_RANK.pkl, the last of its files.
    Framework(
        name="accelerate",
        libraries=("torch",),
        files=(
            mark(
                r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp",
                r"(?P<below>/(?:pytorch_model_fsdp|optimizer)_\d+|/distributed_checkpoint)$",
            ),
            mark(r"(?:pytorch_model_fsdp|optimizer)(?:_\d+)?_rank(?P<rank>\d+)\.bin"),
            mark(r"(?:pytorch_model_fsdp|optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin"),
            mark(r"random_states_(?P<rank>\d+)\.pkl"),
            mark(r"custom_checkpoint_\d+\.pkl"),
            mark(r"(?:model|pytorch_model).*\.(?:safetensors|bin)", r"/checkpoints/checkpoint_(?P<step>\d{1,12})$"),
        ),
        directories=(directory(r"checkpoint_(?P<step>\d{1,12})"),),
        asynchronous=("thread",),
        launchers=(
            "accelerate",
            "accelerate-launch",
            "accelerate.commands.launch",
            "accelerate.commands.accelerate_cli",
        ),
        names=(
            "`checkpoints/checkpoint_N/`: `optimizer.bin`, `random_states_R.pkl`, `pytorch_model_fsdp_N/`, "
            "`optimizer_N/`"
        ),
        proven_by=("tests/e2e/jobs/accelerator.py",),
        saves=(
            save(
                safetensors("checkpoints/checkpoint_{step}/model.safetensors"),
                tensor("checkpoints/checkpoint_{step}/optimizer.bin", 80),
                *each(Write("checkpoints/checkpoint_{step}/random_states_{rank}.pkl", SMALL, magic=PICKLE)),
            ),
            save(*dcp("checkpoint_{step}/pytorch_model_fsdp_0"), *dcp("checkpoint_{step}/optimizer_0"), variant="fsdp"),
        ),
    ),
    # DeepSpeed (deepspeed/runtime/engine.py): global_stepN/ (or any tag), then the text file `latest` beside it. The
    # fast engine writes with O_DIRECT and syncs at close, the decoupled one writes in a process of its own; a universal
    # checkpoint (checkpoint/ds_to_universal.py) is one folder for each parameter below zero/.
    Framework(
        name="deepspeed",
        libraries=("torch",),
        files=(
            mark(
                r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt",
                r"(?P<below>/pytorch_model)?$",
            ),
            mark(r"mp_rank_(?P<rank>\d+)_model_states\.pt", r"(?P<below>/pytorch_model)?$"),
            mark(r"layer_\d+(?:_expert_\d+_mp_rank_\d+|-model_\d+)[-_](?:model|optim)_states\.pt"),
            mark(r"expp_rank_\d+_mp_rank_\d+_optim_states\.pt"),
            mark(r"(?:fp32|exp_avg|exp_avg_sq|step)\.pt", r"(?P<below>/zero/[^/]+)$"),
        ),
        directories=(directory(r"global_step(?P<step>\d{1,12})(?:_universal)?"),),
        commit=(mark(r"latest(?:_universal)?"),),
        asynchronous=("child", "thread"),
        code=Code(saves=(r"(?:\w+/)*checkpoint_engine/.*",), background=(r"fast_persist\w*",)),
        launchers=("deepspeed", "deepspeed.launcher.launch", "deepspeed.launcher.runner"),
        names=(
            "`global_stepN/` or any tag: `*zero_pp_rank_R_mp_rank_XX_*_states.pt`, `mp_rank_XX_…`, `zero/NAME/fp32.pt`"
        ),
        completed_by="`latest`",
        proven_by=("tests/e2e/jobs/deepspeed_zero.py",),
        saves=(
            save(
                tensor("global_step{step}/mp_rank_00_model_states.pt"),
                *each(
                    Write("global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP)
                ),
                Write("latest", SMALL),
            ),
            save(
                *each(Write("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt", 20, magic=TORCH_ZIP)),
                *each(Write("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP)),
                variant="zero3",
            ),
        ),
    ),
    # Orbax (orbax/checkpoint/_src/path/{atomicity_types,step}.py, _src/serialization): STEP/ or PREFIX_STEP/. Written
    # as STEP.orbax-checkpoint-tmp[-N]/ and renamed when complete, or in place with commit_success.txt at the end.
    # Arrays are data files of OCDBT below ocdbt.process_N/ or, without it, one folder of zarr chunks for each.
    Framework(
        name="orbax",
        libraries=("jax",),
        files=(
            mark(r"[0-9a-f]{32}", r"(?P<below>/ocdbt\.process_(?P<rank>\d+)/d)$"),
            mark(r"[0-9a-f]{32}", r"(?P<below>/d)$"),
            mark(r"manifest\.ocdbt|_CHECKPOINT_METADATA|_METADATA|_sharding|commit_success\.txt"),
            mark(r"process_(?P<rank>\d+)", r"/array_metadatas$"),
            mark(r"checkpoint|msgpack_checkpoint", r"/(?:\w+_)?(?P<step>\d{1,12})/[\w-]+$"),
            mark(r"\.zarray|zarr\.json|\d+(?:\.\d+)*", r"/(?:\w+_)?\d{1,12}/[\w-]+/[^/]*\.[^/]*(?:/c(?:/\d+)*)?$"),
        ),
        directories=(directory(r"(?:\w+_)?(?P<step>\d{1,12})", _BELOW),),
        commit=(mark(r"commit_success\.txt"), mark(r"_CHECKPOINT_METADATA")),
        temporary=(temporary("orbax-checkpoint-tmp", r"\.orbax-checkpoint-tmp.*$"), temporary("__lock", r"\.__lock$")),
        durability="fsync",
        asynchronous=("thread",),
        code=Code(saves=(r"tensorstore/.*", r"orbax/.*"), background=(r"checkpointers/async_checkpointer",)),
        names="`N/`, `PREFIX_N/`, `.orbax-checkpoint-tmp*`: `ocdbt.process_R/`, `manifest.ocdbt`, zarr folders",
        completed_by="rename of the folder, `commit_success.txt`",
        proven_by=("tests/e2e/jobs/orbax_manager.py",),
        saves=(
            save(
                *each(
                    Write(
                        "{step}/default/ocdbt.process_{rank}/d/0123456789abcdef0123456789abcdef",
                        40,
                        held_s=0.05,
                        temporary="{step}.orbax-checkpoint-tmp/default/ocdbt.process_{rank}/d/0123456789abcdef0123456789abcdef",
                    )
                ),
                Write(
                    "{step}/_CHECKPOINT_METADATA", SMALL, temporary="{step}.orbax-checkpoint-tmp/_CHECKPOINT_METADATA"
                ),
                path="{step}",
                runtimes=("jax", "numpy"),
            ),
            save(
                *tuple(
                    Write(
                        f"ckpt_{{step}}/default/params.layer{n}.kernel/0.0",
                        30,
                        temporary=f"ckpt_{{step}}.orbax-checkpoint-tmp/default/params.layer{n}.kernel/0.0",
                    )
                    for n in (1, 2)
                ),
                runtimes=("jax", "numpy"),
                variant="zarr",
            ),
        ),
    ),
)
