"""Trainers: they decide when and where a checkpoint is written."""

from __future__ import annotations

import re

from ckptprof.frameworks.framework_entry import CodePatterns, Framework, file_pattern, folder_pattern, temporary_pattern

_MEGATRON_FOLDER = r"/(?:iter_(?P<step>\d{7})|release)(?:/|$)"
_MODEL = r"(?:[^/-]|-(?!-))*--"  # up to the first two dashes: one way only to match, so that no name costs much
_NEMO_NAME = rf"{_MODEL}[^/]*(?:epoch|step|consumed_samples)=[^/]*"
_SWIFT_FOLDER = r"/v\d+-\d{8}-\d{6}/checkpoint-(?P<step>\d{1,12})(?:/|$)"
_TRANSFORMERS_FOLDER = r"/checkpoint-(?P<step>\d{1,12})(?:/|$)"
_LIGHTNING_NAME = r"(?:[^/]*[-_])?(?:epoch|step)=\d[^/]*\.ckpt"
FRAMEWORKS = (
    # Megatron-LM and Megatron-Core (training/checkpointing.py, core/dist_checkpointing): iter_0000500/ or release/.
    # torch_dist is PyTorch DCP with common.pt and metadata.json, zarr (of old) one folder for each tensor, torch one
    # file for each tensor- and pipeline-parallel rank. The tracker file is written last. An async save is by forked or
    # persistent processes, with old checkpoints deleted by another one.
    Framework(
        name="megatron",
        libraries=("torch",),
        files=(
            file_pattern(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", _MEGATRON_FOLDER),
            file_pattern(r"common\.pt|metadata\.json|modelopt_run_config\.yaml", r"/(?:iter_(?P<step>\d{7})|release)$"),
            file_pattern(
                r"(?:model_optim_rng|model_rng|optim|distrib_optim)\.pt",
                r"/(?:iter_(?P<step>\d{7})|release)/mp_rank_(?P<rank>\d+)(?:_\d+)*$",
            ),
            file_pattern(r"shard_\d+_\d+\.pt|\.zarray|\d+(?:\.\d+)*", r"/iter_(?P<step>\d{7})/[^/]+$"),
        ),
        directories=(
            folder_pattern(r"iter_(?P<step>\d{7})"),
            folder_pattern(r"release", r"^(?:mp_rank_\d.*/|__\d+_\d+\.distcp$|common\.pt$)", bare="release"),
        ),
        commit=(file_pattern(r"latest_checkpointed_iteration\.txt"),),
        code=CodePatterns(
            saves=(r"(?:\w+/)*dist_checkpointing/.*",),
            background=(r"strategies/async_utils",),
            at_once=("execute_sync",),
        ),
    ),
    # NeMo 2 and 1 (nemo/lightning/pytorch/callbacks/model_checkpoint.py,
    # nemo/utils/callbacks/nemo_model_checkpoint.py). NAME--METRIC-...step=N/{weights,context}/ with Megatron's files;
    # an empty NAME-unfinished beside it exists from before the first byte until it is complete; NAME-last is the same
    # again. NeMo 1 has mp_rank_XX/NAME.ckpt and packs one .nemo.
    Framework(
        name="nemo",
        libraries=("torch",),
        files=(
            file_pattern(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", rf"/{_NEMO_NAME}(?:/weights)?$"),
            file_pattern(r"common\.pt|metadata\.json|\.metadata", rf"/{_NEMO_NAME}(?:/weights)?$"),
            file_pattern(r"io\.json|model\.yaml", rf"/{_NEMO_NAME}/context$"),
            file_pattern(rf"{_NEMO_NAME}\.ckpt", r"(?P<below>/(?:mp_rank_(?P<rank>\d+)|tp_rank_\d+_pp_rank_\d+))?$"),
            file_pattern(r".*\.nemo"),
        ),
        directories=(
            folder_pattern(rf"{_MODEL}.*[-_]step=(?P<step>\d{{1,12}})(?:\D.*)?"),
            folder_pattern(rf"{_MODEL}.*(?:epoch|consumed_samples)=\d.*"),
        ),
        in_progress=(file_pattern(r".*-unfinished"),),
        copies_whole=True,
    ),
    # ms-swift (swift/trainers): the Trainer's files in vN-DATE-TIME/checkpoint-STEP/, with args.json beside them.
    Framework(
        name="ms-swift",
        libraries=("torch",),
        files=(
            file_pattern(r".*\.safetensors", _SWIFT_FOLDER),
            file_pattern(r"(?:optimizer|scheduler|scaler)\.(?:pt|bin)", _SWIFT_FOLDER),
            file_pattern(r"rng_state(?:_(?P<rank>\d+))?\.pth", _SWIFT_FOLDER),
            file_pattern(r"(?:training_args\.bin|trainer_state\.json)", _SWIFT_FOLDER),
        ),
        directories=(folder_pattern(r"checkpoint-(?P<step>\d{1,12})"),),
        programs=re.compile(r"swift(?:\.cli\b.*)?$"),
        extends=("transformers",),
    ),
    # axolotl (axolotl/core/trainers/base.py): a Trainer of Hugging Face's; only the program distinguishes them.
    Framework(
        name="axolotl",
        libraries=("torch",),
        files=(),
        directories=(folder_pattern(r"checkpoint-(?P<step>\d{1,12})"),),
        programs=re.compile(r"axolotl\b"),
        extends=("transformers", "accelerate"),
    ),
    # Hugging Face Trainer (transformers/trainer.py, trainer_utils.py): checkpoint-STEP/, trainer_state.json last. Rank
    # 0 writes all but rng_state_RANK.pth; with FSDP or DeepSpeed their files are in the same folder. Older versions
    # wrote tmp-checkpoint-STEP and renamed it. Then old checkpoints are deleted, while training waits.
    Framework(
        name="transformers",
        libraries=("torch", "accelerate", "safetensors"),
        files=(
            file_pattern(r"(?:model|adapter_model|pytorch_model).*\.(?:safetensors|bin)", _TRANSFORMERS_FOLDER),
            file_pattern(r"(?:optimizer|scheduler|scaler)\.(?:pt|bin)", _TRANSFORMERS_FOLDER),
            file_pattern(r"rng_state(?:_(?P<rank>\d+))?\.pth", _TRANSFORMERS_FOLDER),
            file_pattern(r"(?:training_args\.bin|trainer_state\.json)", _TRANSFORMERS_FOLDER),
            file_pattern(
                r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp",
                r"/checkpoint-(?P<step>\d{1,12})/(?:pytorch_model_fsdp|optimizer)_\d+$",
            ),
            file_pattern(
                r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt",
                r"/checkpoint-(?P<step>\d{1,12})/global_step\d+$",
            ),
            file_pattern(r"mp_rank_\d+_model_states\.pt", r"/checkpoint-(?P<step>\d{1,12})/global_step\d+$"),
        ),
        directories=(folder_pattern(r"checkpoint-(?P<step>\d{1,12})"),),
        commit=(file_pattern(r"trainer_state\.json", r"/checkpoint-\d+$"),),
        temporary=(temporary_pattern("tmp-", r"^tmp-(?=checkpoint-\d+$)"),),
        code=CodePatterns(saves=(r"transformers/trainer_pt_utils",)),
    ),
    # PyTorch Lightning (pytorch/callbacks/model_checkpoint.py, fabric/utilities/cloud_io.py,
    # fabric/strategies/fsdp.py). The file is written to $TMPDIR/tmpXXXXXXXX in full and, where that is another file
    # system, copied to its place; last.ckpt is all of it again. A sharded checkpoint is a folder of the same name.
    Framework(
        name="lightning",
        libraries=("torch",),
        files=(
            file_pattern(r"(?:.*[-_])?step=(?P<step>\d{1,12})\D.*ckpt"),
            file_pattern(_LIGHTNING_NAME),
            file_pattern(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", rf"/{_LIGHTNING_NAME}(?:/|$)"),
            file_pattern(
                r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt",
                r"\.ckpt/checkpoint$",
            ),
            file_pattern(r"meta\.pt|mp_rank_\d+_model_states\.pt|\.metadata", rf"/{_LIGHTNING_NAME}(?:/|$)"),
            file_pattern(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp|meta\.pt", r"/last(?:-v\d+)?\.ckpt$"),
        ),
        directories=(
            folder_pattern(r"(?:.*[-_])?step=(?P<step>\d{1,12})(?:\D.*)?ckpt"),
            folder_pattern(_LIGHTNING_NAME),
            folder_pattern(r"last(?:-v\d+)?\.ckpt", bare="last.ckpt"),
        ),
        commit=(file_pattern(r"meta\.pt", r"\.ckpt$"),),
        copies_whole=True,
        code=CodePatterns(saves=(r"lightning\w*/fabric/plugins/io/.*",), background=(r"plugins/io/async_plugin",)),
    ),
    # verl (verl/utils/checkpoint/fsdp_checkpoint_manager.py, trainer/ppo/ray_trainer.py):
    # global_step_N/{actor,critic}/. Every rank writes model, optim and extra_state_world_size_W_rank_R.pt;
    # latest_checkpointed_iteration.txt comes last.
    Framework(
        name="verl",
        libraries=("torch",),
        files=(
            file_pattern(r"(?:model|optim|extra_state)_world_size_(?P<world>\d{1,7})_rank_(?P<rank>\d+)\.pt"),
            file_pattern(
                r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", r"/global_step_(?P<step>\d{1,12})/(?:actor|critic)/dist_ckpt$"
            ),
            file_pattern(r".*\.safetensors|data\.pt", r"/global_step_(?P<step>\d{1,12})/(?:actor|critic)(?:/|$)"),
        ),
        directories=(folder_pattern(r"global_step_(?P<step>\d{1,12})"),),
        commit=(file_pattern(r"latest_checkpointed_iteration\.txt"),),
    ),
    # torchtitan (torchtitan/components/checkpointer/dcp.py): step-N/ with the files of PyTorch DCP.
    # A job of one's own that saves by DCP to step-N/ looks the same: only the program identifies torchtitan.
    Framework(
        name="torchtitan",
        libraries=("torch",),
        files=(),
        directories=(folder_pattern(r"step-(?P<step>\d{1,12})"),),
        programs=re.compile(r"torchtitan\b"),
        extends=("torch-dcp",),
    ),
    # torchtune (torchtune/training/checkpointing/_checkpointer.py, _utils.py): epoch_N/ and
    # recipe_state/recipe_state.pt. One shard alone is still called 00001-of-00001, which Hugging Face's own is not;
    # several are called alike by both.
    Framework(
        name="torchtune",
        libraries=("torch",),
        files=(
            file_pattern(r"recipe_state\.pt", r"(?P<below>/recipe_state)?$"),
            file_pattern(r"model-00001-of-00001\.(?:safetensors|bin)", r"/(?:epoch|step)_(?P<step>\d{1,12})$"),
            file_pattern(r"(?:adapter|hf_model|meta_model)_\d+(?:_\d+)?\.pt"),
        ),
        directories=(folder_pattern(r"(?:epoch|step)_(?P<step>\d{1,12})"),),
    ),
    # fairseq (fairseq/checkpoint_utils.py): checkpoint_EPOCH_UPDATE.pt, _last.pt, .best_*.pt, -shardRANK.
    # Written as .tmp and renamed; each further name is a full copy of the first, read back by the process that trains.
    Framework(
        name="fairseq",
        libraries=("torch",),
        files=(
            file_pattern(r"checkpoint_\d+_(?P<step>\d{1,12})(?:-shard(?P<rank>\d+))?\.pt"),
            file_pattern(r"checkpoint(?P<step>\d{1,12})-shard(?P<rank>\d+)\.pt"),
            file_pattern(r"checkpoint(?:_last|_best|\.best_.*)-shard(?P<rank>\d+)\.pt"),
            file_pattern(r"checkpoint\.best_.+\.pt"),
        ),
        programs=re.compile(r"fairseq"),
        extends=("torch.save",),
        copies_whole=True,
    ),
    # MosaicML Composer (composer/callbacks/checkpoint_saver.py): ep0-ba100-rank0.pt, or ep0-ba100/ of PyTorch DCP.
    Framework(
        name="composer",
        libraries=("torch",),
        files=(
            file_pattern(r"ep\d+-ba(?P<step>\d{1,12})(?:-rank(?P<rank>\d+))?\.pt"),
            file_pattern(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", r"/ep\d+-ba(?P<step>\d{1,12})$"),
        ),
        directories=(folder_pattern(r"ep\d+-ba(?P<step>\d{1,12})"),),
        launchers=("composer",),
    ),
    # Stable-Baselines3 (common/save_util.py, common/callbacks.py: CheckpointCallback): a zip archive, in place.
    # `rl_model_1000_steps.zip` by its callback; `ppo_cartpole.zip` and `models/PPO/10000.zip` in what people write by
    # model.save; beside it, where asked for, `rl_model_replay_buffer_1000_steps.pkl` and `…_vecnormalize_…`.
    Framework(
        name="stable-baselines3",
        libraries=("torch",),
        weight=0.4,
        formats=frozenset(("zip", "pickle")),
        files=(
            file_pattern(r".*_(?P<step>\d{1,12})_steps\.zip"),
            file_pattern(r".*_(?:replay_buffer|vecnormalize)_(?P<step>\d{1,12})_steps\.pkl"),
            file_pattern(r"best_model\.zip"),
            file_pattern(r"(?i:ppo|a2c|dqn|sac|td3|ddpg|trpo|tqc|qrdqn|crossq)(?:[-_].*)?\.zip"),
            file_pattern(r"(?P<step>\d{2,12})\.zip", r"/(?:models?|checkpoints?|ckpts?)(?:/[^/]+)?$"),
        ),
    ),
    # PaddlePaddle (paddle.save; paddle.distributed.checkpoint; PaddleNLP's Trainer): .pdparams, .pdopt, RANK_N.distcp.
    Framework(
        name="paddle",
        files=(
            file_pattern(r".*\.(?:pdparams|pdopt|pdmodel|pdiparams|pdstates)"),
            file_pattern(r"(?P<rank>\d+)_\d+\.distcp"),
        ),
        commit=(file_pattern(r"\d+\.metadata"),),
        launchers=("paddle.distributed.launch", "fleetrun"),
    ),
    # llm.c (train_gpt2.cu): rank 0 writes model_STEP.bin, every rank state_STEP_RANK.bin; then comes DONE_STEP, empty.
    Framework(
        name="llm.c",
        files=(
            file_pattern(r"model_(?P<step>\d{8})\.bin"),
            file_pattern(r"state_(?P<step>\d{8})_(?P<rank>\d{5})\.bin"),
        ),
        commit=(file_pattern(r"DONE_\d{8}"),),
    ),
    # detectron2 (engine/hooks.py; fvcore/common/checkpoint.py): model_0004999.pth, then the text file last_checkpoint.
    # By torch.save in place, by rank 0; the number is that of the iteration, counted from 0. At the end comes
    # model_final.pth, which anybody's job may write.
    Framework(
        name="detectron2",
        libraries=("torch",),
        weight=0.5,
        files=(file_pattern(r"model_(?P<step>\d{7})\.pth"),),
        commit=(file_pattern(r"last_checkpoint"),),
    ),
    # Ultralytics YOLO (ultralytics/engine/trainer.py, save_model): weights/last.pt, best.pt, now and then epochN.pt.
    # Each is all of the same bytes, made by torch.save in memory and written in place in one call, by rank 0.
    Framework(
        name="ultralytics",
        libraries=("torch",),
        weight=0.5,
        files=(
            file_pattern(r"epoch(?P<step>\d{1,12})\.pt", r"/weights$"),
            file_pattern(r"(?:last|best)\.pt", r"/weights$"),
        ),
        copies_whole=True,
    ),
)
