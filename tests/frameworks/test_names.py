"""What paths say: every framework's real names, names that are none, and names that mean harm."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.frameworks.file_formats import identify_format
from ckptprof.frameworks.file_names import is_in_progress_marker, parse_name, path_shape, step_of
from ckptprof.frameworks.framework_table import FRAMEWORKS

# path, framework, step, rank, directory
REAL = [
    # torch.save: any name
    ("/r/step_500.pt", "torch.save", 500, None, "/r#500"),
    ("/r/model_step-12.pth", "torch.save", 12, None, "/r#12"),
    ("/r/model001000.pt", "torch.save", 1000, None, "/r"),  # guided-diffusion's, as are the next two
    ("/r/ema_0.9999_001000.pt", "torch.save", 1000, None, "/r"),
    ("/r/opt001000.pt", "torch.save", 1000, None, "/r"),
    ("/r/ckpt_0.5_300.pt", "torch.save", None, None, "/r"),  # a fraction counts nothing, as of the next two
    ("/r/model_0.987.pt", "torch.save", None, None, "/r"),
    ("/r/best_acc_97.3.pt", "torch.save", None, None, "/r"),
    ("/r/ckpt_3.pt", "torch.save", 3, None, "/r#3"),
    ("/r/last.ckpt", "torch.save", None, None, "/r"),
    ("/r/checkpoint.pt", "torch.save", None, None, "/r"),
    ("/r/pytorch_model-00001-of-00003.bin", "torch.save", None, None, "/r"),
    # PyTorch DCP
    ("/r/step-7/__3_0.distcp", "torch-dcp", 7, 3, "/r/step-7"),
    ("/r/step-7/__12_4.distcp", "torch-dcp", 7, 12, "/r/step-7"),
    ("/r/step-7/.metadata", None, 7, None, "/r/step-7"),
    ("/r/out/__0_0.distcp", "torch-dcp", None, 0, "/r/out"),
    ("/r/out/sharded/shard-00001-model-00002-of-00004.safetensors", "torch-dcp", None, 0, "/r/out"),
    # torchtitan
    ("/dump/checkpoint/step-1000/__7_0.distcp", "torch-dcp", 1000, 7, "/dump/checkpoint/step-1000"),
    # safetensors
    ("/r/model.safetensors", "safetensors", None, None, "/r"),
    ("/r/model-00002-of-00004.safetensors", "safetensors", None, None, "/r"),
    # Hugging Face Trainer
    ("/r/checkpoint-500/model.safetensors", "transformers", 500, None, "/r/checkpoint-500"),
    ("/r/checkpoint-500/model-00001-of-00002.safetensors", "transformers", 500, None, "/r/checkpoint-500"),
    ("/r/checkpoint-500/optimizer.pt", "transformers", 500, None, "/r/checkpoint-500"),
    ("/r/checkpoint-500/scheduler.pt", "transformers", 500, None, "/r/checkpoint-500"),
    ("/r/checkpoint-500/rng_state_3.pth", "transformers", 500, 3, "/r/checkpoint-500"),
    ("/r/checkpoint-500/rng_state.pth", "transformers", 500, None, "/r/checkpoint-500"),
    ("/r/checkpoint-500/trainer_state.json", "transformers", 500, None, "/r/checkpoint-500"),
    # accelerate
    ("/r/checkpoints/checkpoint_4/model.safetensors", "accelerate", 4, None, "/r/checkpoints/checkpoint_4"),
    ("/checkpoints/checkpoint_4/pytorch_model_fsdp_0/__1_0.distcp", "accelerate", 4, 1, "/checkpoints/checkpoint_4"),
    ("/r/out/pytorch_model_fsdp_0/__1_0.distcp", "accelerate", None, 1, "/r/out"),
    ("/r/out/optimizer_0/__3_0.distcp", "accelerate", None, 3, "/r/out"),
    ("/r/out/random_states_3.pkl", "accelerate", None, 3, "/r/out"),
    ("/r/out/optimizer.bin", "accelerate", None, None, "/r/out"),
    ("/r/out/pytorch_model_fsdp_0_rank5.bin", "accelerate", None, 5, "/r/out"),
    ("/r/checkpoint_7/pytorch_model/mp_rank_00_model_states.pt", "deepspeed", 7, 0, "/r/checkpoint_7"),
    # Lightning
    ("/r/epoch=2-step=700.ckpt", "lightning", 700, None, "/r#700"),
    ("/r/epoch=2-step=700-v1.ckpt", "lightning", 700, None, "/r#700"),
    ("/r/epoch=2-step=700.ckpt/__0_0.distcp", "lightning", 700, 0, "/r/epoch=2-step=700.ckpt"),
    # DeepSpeed
    ("/r/global_step40/mp_rank_00_model_states.pt", "deepspeed", 40, 0, "/r/global_step40"),
    ("/r/global_step40/zero_pp_rank_3_mp_rank_00_optim_states.pt", "deepspeed", 40, 3, "/r/global_step40"),
    ("/r/global_step40/bf16_zero_pp_rank_11_mp_rank_01_optim_states.pt", "deepspeed", 40, 11, "/r/global_step40"),
    ("/r/global_step40/zero_pp_rank_2_mp_rank_00_model_states.pt", "deepspeed", 40, 2, "/r/global_step40"),
    ("/r/global_step40/layer_0_expert_3_mp_rank_00_model_states.pt", "deepspeed", 40, 0, "/r/global_step40"),
    # Megatron
    ("/r/iter_0000500/__31_1.distcp", "megatron", 500, 31, "/r/iter_0000500"),
    ("/r/iter_0000500/common.pt", "megatron", 500, None, "/r/iter_0000500"),
    ("/r/iter_0000500/mp_rank_00/model_optim_rng.pt", "megatron", 500, 0, "/r/iter_0000500"),
    ("/r/iter_0000500/mp_rank_01_002/distrib_optim.pt", "megatron", 500, 1, "/r/iter_0000500"),
    # NeMo 2
    ("/r/m--loss=2.1-step=99/weights/__0_0.distcp", "nemo", 99, 0, "/r/m--loss=2.1-step=99"),
    # orbax
    ("/r/30/default/ocdbt.process_2/d/0123456789abcdef0123456789abcdef", "orbax", 30, 2, "/r/30"),
    ("/r/30.orbax-checkpoint-tmp/default/ocdbt.process_0/d/0123456789abcdef0123456789abcdef", "orbax", 30, 0, "/r/30"),
    ("/r/30/default/manifest.ocdbt", "orbax", 30, None, "/r/30"),
    ("/r/30/_CHECKPOINT_METADATA", "orbax", 30, None, "/r/30"),
    # fairseq
    ("/r/checkpoint12.pt", "torch.save", 12, None, "/r#12"),
    ("/r/checkpoint_last.pt", "torch.save", None, None, "/r"),
    ("/r/checkpoint_1_100.pt", "fairseq", 100, None, "/r#100"),
    ("/r/checkpoint_last-shard3.pt", "fairseq", None, 3, "/r"),
    ("/r/checkpoint.best_loss_2.10.pt", "fairseq", None, None, "/r"),
    # torch.save by all ranks, as people write it
    ("/r/model_step_100_rank_3.pt", "torch.save", 100, 3, "/r#100"),
    ("/r/rank3/step100.pt", "torch.save", 100, 3, "/r#100"),
    ("/r/step_100/rank_3.pt", "torch.save", 100, 3, "/r/step_100"),
    ("/r/step_100/rank3/model.pt", "torch.save", 100, 3, "/r/step_100"),
    ("/r/rank_3/checkpoint-500/optimizer.pt", "transformers", 500, 3, "/r#500"),
    ("/r/ckpt_000100.pt", "torch.save", 100, None, "/r#100"),
    ("/r/state-rank-00003.pt", "torch.save", None, 3, "/r"),
    ("/r/ckpt_100_shard3of8.pt", "torch.save", 100, 3, "/r#100"),
    ("/r/checkpoint.pth.tar", "torch.save", None, None, "/r"),
    ("/r/checkpoint-12.pth.tar", "torch.save", 12, None, "/r#12"),
    ("/r/ckpt/500/model.pt", "torch.save", 500, None, "/r/ckpt/500"),
    ("/runs/exp2/checkpoint-500/model.safetensors", "transformers", 500, None, "/runs/exp2/checkpoint-500"),
    ("/checkpoint-1/out/checkpoint-900/optimizer.pt", "transformers", 900, None, "/checkpoint-1/out/checkpoint-900"),
    # Trainer with FSDP, with DeepSpeed, with PEFT, by ms-swift
    ("/r/checkpoint-500/pytorch_model_fsdp_0/__1_0.distcp", "transformers", 500, 1, "/r/checkpoint-500"),
    ("/checkpoint-5/global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt", "transformers", 5, 1, "/checkpoint-5"),
    ("/r/checkpoint-500/adapter_model.safetensors", "transformers", 500, None, "/r/checkpoint-500"),
    ("/v0-20250101-120000/checkpoint-5/model.safetensors", "ms-swift", 5, None, "/v0-20250101-120000/checkpoint-5"),
    ("/r/out/adapter_model.safetensors", "peft", None, None, "/r/out"),
    # Lightning
    ("/r/last.ckpt/__1_0.distcp", "lightning", None, 1, "/r/last.ckpt"),
    ("/r/sample-mnist-epoch=02-val_loss=0.32.ckpt", "lightning", 2, None, "/r#2"),
    ("/step=9.ckpt/checkpoint/zero_pp_rank_1_mp_rank_0_optim_states.pt", "lightning", 9, 1, "/step=9.ckpt"),
    # DeepSpeed
    ("/r/mytag/mp_rank_00_model_states.pt", "deepspeed", None, 0, "/r/mytag"),
    ("/r/global_step40/layer_01-model_00-model_states.pt", "deepspeed", 40, None, "/r/global_step40"),
    ("/r/global_step40_universal/zero/lm_head.weight/exp_avg.pt", "deepspeed", 40, None, "/r/global_step40_universal"),
    # Megatron, NVRx, NeMo
    ("/r/release/mp_rank_01/model_optim_rng.pt", "megatron", None, 1, "/r/release"),
    ("/r/iter_0000500/optimizer.state.exp_avg.weight/0.0.1", "megatron", 500, None, "/r/iter_0000500"),
    ("/l/sess/3/iter_0000500_3_local.pt", "nvrx", 500, 3, "/l/sess#500"),
    ("/l/sess/3/iter_0000500_3_local.dirty.pt", "nvrx", 500, 3, "/l/sess#500"),
    ("/m--val_loss=2.10-step=99-last/weights/__1_0.distcp", "nemo", 99, 1, "/m--val_loss=2.10-step=99-last"),
    ("/r/mp_rank_01/gpt--val_loss=2.1-step=99-consumed_samples=512.0.ckpt", "nemo", 99, 1, "/r#99"),
    ("/r/gpt.nemo", "nemo", None, None, "/r"),
    # Orbax
    ("/r/ckpt_12/default/manifest.ocdbt", "orbax", 12, None, "/r/ckpt_12"),
    ("/r/12/default/params.layer.kernel/.zarray", "orbax", 12, None, "/r/12"),
    ("/r/12/default/params.layer.kernel/0.0", "orbax", 12, None, "/r/12"),
    ("/r/12/state/checkpoint", "orbax", 12, None, "/r/12"),
    ("/r/7/default/d/0123456789abcdef0123456789abcdef", "orbax", 7, None, "/r/7"),
    ("/r/7/default/array_metadatas/process_1", "orbax", 7, 1, "/r/7"),
    ("/r/checkpoint_700", "flax", 700, None, "/r#700"),
    # torchtune, verl, ByteCheckpoint, Composer, llm.c
    ("/r/epoch_0/model-00001-of-00001.safetensors", "torchtune", 0, None, "/r/epoch_0"),
    ("/r/recipe_state/recipe_state.pt", "torchtune", None, None, "/r"),
    ("/r/global_step_5/actor/model_world_size_8_rank_3.pt", "verl", 5, 3, "/r/global_step_5"),
    ("/r/global_step_5/extra_state/extra_state_rank_3.pt", "bytecheckpoint", 5, 3, "/r/global_step_5"),
    ("/r/global_step_5/model/__3_0.distcp", "bytecheckpoint", 5, 3, "/r/global_step_5"),
    ("/r/ep0-ba100-rank3.pt", "composer", 100, 3, "/r#100"),
    ("/r/rl_model_50000_steps.zip", "stable-baselines3", 50000, None, "/r#50000"),
    ("/r/rl_model_replay_buffer_50000_steps.pkl", "stable-baselines3", 50000, None, "/r#50000"),
    ("/r/ckpt_5.pkl.gz", "pickle", 5, None, "/r#5"),
    ("/r/model_00001000.bin", "llm.c", 1000, None, "/r#1000"),
    ("/r/state_00001000_00003.bin", "llm.c", 1000, 3, "/r#1000"),
    # TensorFlow, Keras
    ("/r/ckpt-5.data-00000-of-00001", "tensorflow", 5, None, "/r#5"),
    ("/r/ckpt-5.index", "tensorflow", 5, None, "/r#5"),
    ("/r/ckpt-5.data-00000-of-00001.tempstate123456", "tensorflow", 5, None, "/r#5"),
    ("/r/ckpt-5_temp/part-00000-of-00001.data-00000-of-00001", "tensorflow", 5, None, "/r#5"),
    ("/r/model.ckpt-1000.data-00001-of-00004", "tensorflow", 1000, None, "/r#1000"),
    ("/r/saved/variables/variables.data-00000-of-00001", "tensorflow", None, None, "/r/saved"),
    ("/r/ckpt-epoch=3.keras", "keras", 3, None, "/r#3"),
    ("/r/checkpoint.weights.h5", "keras", None, None, "/r"),
    # PaddlePaddle, MindSpore, MXNet, MLX, boosting
    ("/r/checkpoint-500/model_state.pdparams", "paddle", 500, None, "/r/checkpoint-500"),
    ("/r/step_5/3_0.distcp", "paddle", 5, 3, "/r/step_5"),
    ("/r/CKP-2_100.ckpt", "mindspore", 100, None, "/r#100"),
    ("/r/rank_3/CKP-2_100_breakpoint.ckpt", "mindspore", 100, 3, "/r#100"),
    ("/r/resnet-0012.params", "mxnet", 12, None, "/r#12"),
    ("/r/0000100_adapters.safetensors", "mlx", 100, None, "/r#100"),
    ("/r/model_12.ubj", "boosting", 12, None, "/r#12"),
    ("/r/model.txt.snapshot_iter_30", "boosting", 30, None, "/r#30"),
    # formats that anybody uses
    ("/r/policy_10.pkl", "pickle", 10, None, "/r"),
    ("/r/weights.h5", "hdf5", None, None, "/r"),
    ("/r/weights.07-0.45.h5", "hdf5", 7, None, "/r"),
    ("/r/model.gguf", "gguf", None, None, "/r"),
    # numpy
    ("/r/ckpt_20.npz", "numpy", 20, None, "/r#20"),
    # zarr
    ("/r/step_3.zarr/params/w/c/0/1", "zarr", 3, None, "/r/step_3.zarr"),
    ("/r/step_3.zarr/zarr.json", "zarr", 3, None, "/r/step_3.zarr"),
    ("/r/step_3.zarr/w/0.1.0123456789abcdef0123456789abcdef.partial", "zarr", 3, None, "/r/step_3.zarr"),
    # stable-baselines3 by model.save
    ("/r/models/PPO/10000.zip", "stable-baselines3", 10000, None, "/r/models/PPO#10000"),
    ("/r/ppo_cartpole.zip", "stable-baselines3", None, None, "/r"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "framework", "step", "rank", "directory"), REAL, ids=[row[0] for row in REAL])
def test_a_real_name_is_understood(
    path: str, framework: str | None, step: int | None, rank: int | None, directory: str
) -> None:
    """Framework, step, rank and the checkpoint that the file is a part of."""
    name = parse_name(path)

    assert (name.framework.name if name.framework else None, name.step, name.rank, name.directory) == (
        framework, step, rank, directory,
    )  # fmt: skip
    assert not name.never_checkpoint
    assert not name.data


@pytest.mark.parametrize(
    "path",
    [
        "/r/step-7/.metadata",
        "/r/checkpoint-500/trainer_state.json",
        "/r/latest",
        "/r/latest_universal",
        "/r/DONE_00001000",
        "/r/0.metadata",
        "/r/latest_checkpointed_iteration.txt",
        "/r/30/_CHECKPOINT_METADATA",
        "/r/30/commit_success.txt",
    ],
)
def test_what_completes_a_checkpoint_is_known(path: str) -> None:
    """The markers of commit."""
    assert parse_name(path).commit


@pytest.mark.parametrize(
    ("temporary", "final"),
    [
        ("/r/step-7/.metadata.tmp", "/r/step-7/.metadata"),
        ("/r/step_7.pt.tmp", "/r/step_7.pt"),
        ("/r/model.pt.partial", "/r/model.pt"),
        ("/r/model.pt~", "/r/model.pt"),
        ("/r/30.orbax-checkpoint-tmp/d/manifest.ocdbt", "/r/30/d/manifest.ocdbt"),
        ("/r/30.orbax-checkpoint-tmp-1750000000/d/manifest.ocdbt", "/r/30/d/manifest.ocdbt"),
        ("/r/ckpt_30.orbax-checkpoint-tmp-123/default/a.b/0.0", "/r/ckpt_30/default/a.b/0.0"),
        ("/r/tmp-checkpoint-500/optimizer.pt", "/r/checkpoint-500/optimizer.pt"),
        ("/r/checkpoint-500.tmp/optimizer.pt", "/r/checkpoint-500/optimizer.pt"),
        ("/r/checkpoint-500_tmp/optimizer.pt", "/r/checkpoint-500/optimizer.pt"),
        ("/r/.tmp_step_5/model.pt", "/r/step_5/model.pt"),
        ("/r/step_5.incomplete/model.pt", "/r/step_5/model.pt"),
        ("/r/step_5.writing/model.pt", "/r/step_5/model.pt"),
        ("/r/step_5.pt.tmp.4711", "/r/step_5.pt"),
        ("/r/step_5.tmp.pt", "/r/step_5.pt"),
        ("/r/step_5-unfinished/model.pt", "/r/step_5/model.pt"),
        ("/r/step_5.tmp-0b6a1c2d-1111-2222/model.pt", "/r/step_5/model.pt"),
        ("/r/acme_step_000200..tmp/model.pt", "/r/acme_step_000200/model.pt"),
        ("/r/step_5...partial", "/r/step_5"),
    ],
)
def test_a_temporary_name_is_of_the_same_checkpoint_as_the_final_one(temporary: str, final: str) -> None:
    """Files of both names join."""
    assert (parse_name(temporary).directory, parse_name(temporary).step) == (
        parse_name(final).directory,
        parse_name(final).step,
    )


@pytest.mark.parametrize(
    ("path", "piece"),
    [
        ("/r/part-00003-of-00008.pt", (3, 8)),
        ("/r/model-00002-of-00004.safetensors", (2, 4)),
        ("/r/shard_0of2.bin", (0, 2)),
        ("/r/global_step_4/actor/model_world_size_8_rank_3.pt", (3, 8)),
        ("/r/best-of-8.pt", None),
        ("/r/9-of-8.pt", None),
        ("/r/model_rank_3.pt", None),
    ],
)
def test_which_of_how_many_files_a_name_says_to_be(path: str, piece: tuple[int, int] | None) -> None:
    """A rank where its framework says how many there are, else one number of another."""
    assert parse_name(path).piece == piece


@pytest.mark.parametrize("path", ["/r/.tmpAb3X9k", "/r/a.tmp", "/r/a.tmpx1", "/r/a.partial", "/r/step-7/.metadata.tmp"])
def test_temporary_names_are_known_as_such(path: str) -> None:
    """Also those of safetensors, which bear nothing of the final name."""
    assert parse_name(path).temporary


@pytest.mark.parametrize(
    "path",
    [
        "/r/train.log", "/r/out.txt", "/r/metrics.csv", "/r/metrics.jsonl", "/r/train.log.1", "/r/state.db",
        "/r/state.db-wal", "/r/events.out.tfevents.1750000000.host.1.0", "/r/profile.nsys-rep", "/r/data.tar",
        "/r/model.tar.gz", "/r/wheel.whl", "/r/shard.parquet", "/r/core", "/r/core.1234", "/r/lib.so", "/r/x.py",
        "/r/page.html", "/r/video.mp4", "/var/lib/mysql/x.sqlite3", "/r/cache.arrow", "/r/checkpoint-500.tar",
    ],
)  # fmt: skip
def test_logs_databases_and_archives_are_never_checkpoints(path: str) -> None:
    """Whatever else speaks for them."""
    assert parse_name(path).never_checkpoint


@pytest.mark.parametrize(
    ("path", "never"),
    [
        ("/r/checkpoint-50/model_rank_0.bz2", False), ("/r/checkpoint-50/state.bin.zst", False),
        ("/r/weights.xz", False), ("/r/out/part0.gz", True), ("/r/checkpoint-50/train.log.gz", True),
        ("/r/checkpoint-50/code.tar.zst", True),
    ],
)  # fmt: skip
def test_what_is_compressed_is_what_the_rest_of_its_name_says(path: str, never: bool) -> None:  # noqa: FBT001 - a case
    """A word for checkpoints, or a name of what is none below the compression's own ending; without either, nothing."""
    assert parse_name(path).never_checkpoint == never


@pytest.mark.parametrize(
    "path",
    [
        "/data/train_tokens_0001.npy", "/corpus/tokens.bin", "/out/embeddings.npy", "/data/shard-00017.bin",
        "/cache/features_3.npz", "/r/val.npy", "/preprocessed/0001.npy", "/eval/predictions.npz", "/r/batch_12.npy",
        "/datasets/x.bin",
    ],
)  # fmt: skip
def test_data_sets_and_results_are_named_as_such(path: str) -> None:
    """Words for what a model is trained on or what it yields."""
    assert parse_name(path).data


@pytest.mark.parametrize(
    "path", ["/train/run1/step_500.pt", "/data/user/exp/checkpoint-5/model.safetensors", "/data/ckpt/model_3.pt",
             "/train/best.pt", "/out/results/step-7/__0_0.distcp", "/exp/valid.acc.ave_10best.pth"],
)  # fmt: skip
def test_a_checkpoint_below_a_folder_of_data_is_still_one(path: str) -> None:
    """Homes and disks are called data, too."""
    assert not parse_name(path).data


@pytest.mark.parametrize(
    ("path", "yielded"),
    [
        ("/r/predictions/eval_epoch_3.npy", True), ("/r/predictions/epoch_3.pt", True), ("/r/logits_step_9.npz", True),
        ("/r/features/trainfeat.pth", True), ("/r/final_predictions.pt", True), ("/r/samples/epoch_3/0.npy", False),
        ("/r/predictions/model_epoch_3.pt", False), ("/r/step_500/embeddings.npy", False),
        ("/r/output/netG_A2B.pth", False), ("/r/results/epoch_3.pt", False), ("/r/embeddings/epoch_3.pt", False),
        ("/r/epoch=3-val_loss=0.2.ckpt", False), ("/r/images/step_7/__0_0.distcp", False),
        ("/r/images-256/epoch_3.pt", False), ("/r/sd-latents/step_7.pt", False), ("/r/labels2photo/epoch_3.pth", False),
        ("/r/feature_extractor_epoch_3.pth", False), ("/r/image_encoder_step_100.pt", False),
        ("/r/oof/fold0_epoch2.npz", True), ("/r/fold1_oof_epoch2.npy", True), ("/r/oof/model_epoch_3.pt", False),
    ],
)  # fmt: skip
def test_what_a_model_yields_is_told_from_its_state(path: str, yielded: bool) -> None:  # noqa: FBT001 - a case
    """A number or `final` is of both; a word for what a restart needs, or a strong name, is of a state."""
    assert parse_name(path).model_output == yielded


@pytest.mark.parametrize(
    "path",
    ["/r/last.ckpt", "/r/last-v1.ckpt", "/r/best.pt", "/r/checkpoint_last.pt", "/r/checkpoint_best.pt", "/r/latest",
     "/r/model_best.pth.tar", "/r/m--loss=1-step=9-last/weights/__0_0.distcp", "/r/latest.weights.h5"],
)  # fmt: skip
def test_a_name_that_every_save_bears_is_known(path: str) -> None:
    """It says nothing of which save it is."""
    assert parse_name(path).alias


@pytest.mark.parametrize("path", ["/r/step_5.pt", "/r/lastname.pt", "/best/of/step_5.pt", "/r/checkpoint-5/model.bin"])
def test_other_names_are_of_one_save(path: str) -> None:
    """Words within words, and folders further up, mean nothing."""
    assert not parse_name(path).alias


def test_the_marker_of_a_save_that_goes_on_is_known() -> None:
    """NeMo's, which is there from before the first byte until all is complete."""
    assert is_in_progress_marker("/r/m--loss=1-step=9-unfinished")
    assert parse_name("/r/m--loss=1-step=9-unfinished").in_progress
    assert not is_in_progress_marker("/r/m--loss=1-step=9")


def test_a_temporary_file_of_python_is_known_as_such() -> None:
    """Lightning writes there first; so does much else."""
    assert parse_name("/tmp/tmpab12_x9z").staging
    assert not parse_name("/r/tmpfile.pt").staging


def test_a_name_may_say_how_many_ranks_there_are() -> None:
    """As verl's do."""
    assert parse_name("/r/global_step_5/actor/optim_world_size_8_rank_3.pt").world == 8


@pytest.mark.parametrize(
    "path",
    ["/r/checkpoint-500.log", "/r/global_step5/plot.png", "/r/checkpoint-5/events.out.tfevents.1.host",
     "/r/iter_0000500/a.txt",
     "/r/step-5/trace.json.gz", "/r/epoch=1-step=2.csv", "/r/checkpoint-500.tar.gz", "/r/iter_0000500.db"],
)  # fmt: skip
def test_what_only_looks_like_a_checkpoint_is_none(path: str) -> None:
    """A log, a picture, a table or an archive in or beside one stays what it is."""
    name = parse_name(path)

    assert name.never_checkpoint
    assert name.framework is None


@pytest.mark.parametrize(
    "path",
    ["/r/data.bin", "/r/x.pkl", "/r/x.h5", "/r/x.npy", "/r/x.msg", "/r/5/x.dat", "/r/checkpoint", "/r/index.index",
     "/r/exp_12/0.0", "/zarr/12/temperature/0.0.0", "/r/0001.params.bak", "/r/shard_3_of_8.bin"],
)  # fmt: skip
def test_a_generic_name_is_no_strong_evidence(path: str) -> None:
    """Neither of a framework, nor of a rank."""
    name = parse_name(path)

    assert name.framework is None or name.framework.weak
    assert name.rank is None


@pytest.mark.parametrize(
    ("part", "step"),
    [
        ("step-500", 500), ("step_500", 500), ("step500", 500), ("global_step40", 40), ("iter_0000500", 500),
        ("iteration-7", 7), ("epoch=2-step=700", 700), ("epoch_3", 3), ("ckpt.12", 12), ("checkpoint12", 12),
        ("update-9", 9), ("STEP_5", 5), ("model-step-5-ema", 5), ("footstep", None), ("steps", None), ("v2", None),
        ("stepper3", None), ("7b", None), ("resnet50", None), ("step_" + "9" * 40, None), ("llama-2-7b", None),
        ("step_5x", None), ("", None),
    ],
)  # fmt: skip
def test_the_number_that_counts_training_is_found(part: str, step: int | None) -> None:
    """As people write it, and nothing else that is a number."""
    assert step_of(part) == step


@pytest.mark.parametrize(
    ("magic", "path", "kind"),
    [
        (b"PK\x03\x04" + bytes(12), "/r/a.pt", "torch-zip"),
        (b"PK\x03\x04" + bytes(12), "/r/a", "torch-zip"),
        (b"PK\x03\x04" + bytes(12), "/r/a.npz", "npz"),
        (b"PK\x03\x04" + bytes(12), "/r/a.zip", "zip"),
        (b"\x93NUMPY\x01\x00v\x00{'des", "/r/a.npy", "npy"),
        (b"\x89HDF\r\n\x1a\n" + bytes(8), "/r/a.h5", "hdf5"),
        ((4096).to_bytes(8, "little") + b'{"__meta', "/r/a.safetensors", "safetensors"),
        ((2**63).to_bytes(8, "little") + b'{"__meta', "/r/a", None),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "/r/a.pt", "pickle"),
        (b"\x80\x04\x95" + bytes(13), "/r/a.pkl", "pickle"),
        (b"\x80", "/r/a", None),
        (b"", "/r/a", None),
        (None, "/r/a", None),
        (b"\x7fELF" + bytes(12), "/r/a", None),
    ],
)
def test_the_format_is_known_by_its_first_bytes(magic: bytes | None, path: str, kind: str | None) -> None:
    """None where they are unknown, too short or could not be read."""
    assert identify_format(magic, path) == kind


def test_the_saves_of_a_series_have_one_shape() -> None:
    """Numbers are what differs."""
    assert (
        path_shape("/r/step-5/__3_0.distcp")
        == path_shape("/r/step-1200/__11_2.distcp")
        != path_shape("/r/step-5/model.pt")
    )


def test_names_of_frameworks_are_unique_words() -> None:
    """They are labels of metrics and keys of queries."""
    names = [framework.name for framework in FRAMEWORKS]

    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][a-z0-9.\-]*", name) for name in names)


parts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), max_size=30)
pieces = st.sampled_from(
    ["step-5", "iter_0000500", "30.orbax-checkpoint-tmp", "checkpoint-7", "global_step4", "epoch=1-step=2.ckpt", "0",
     "..", ".", "__3_0.distcp", ".tmpAb3X9k", "model.safetensors", "\x1b[2J", "a\nb", "\\xff", "99999999999999999999"]
)  # fmt: skip
any_path = st.lists(parts | pieces, max_size=8).map(lambda found: "/" + "/".join(found))


@given(any_path)
def test_any_path_is_read_and_its_unit_is_the_path_or_a_folder_of_it(path: str) -> None:
    """Nothing is raised; a directory is never a place elsewhere (but for the marks of temporary names, taken away)."""
    name = parse_name(path)
    folder = name.directory.partition("#")[0] if "#" not in path else None

    assert name.step is None or name.step >= 0
    if folder is not None and not re.search(r"\.tmp|temp|part|incomplete|unfinished|orbax|~", path):
        assert path == folder or path.startswith(folder.rstrip("/") + "/")


@pytest.mark.parametrize("name", ["/global_step{}/mp_rank_00_model_states.pt", "/r/{}/manifest.ocdbt", "/step_{}.pt",
                                  "/checkpoint-{}/optimizer.pt", "/step-1/__{}_0.distcp", "/{}.pt"])  # fmt: skip
def test_a_number_that_would_overflow_a_database_is_no_step_and_no_rank(name: str) -> None:
    """64 bits are what SQL and JSON readers have; a name of forty digits counts nothing."""
    found = parse_name(name.format("9" * 40))

    assert all(number is None or number < 1 << 63 for number in (found.step, found.rank))


LONGEST = ["a" * 4000, "-" * 4000, "1" * 4000, "/".join(["step-1"] * 600), "checkpoint" * 400, ".tmp" * 1000]
FOLDERS = [
    "-" * 255,
    "--" * 127 + "1",
    "step=" * 50 + "1",
    "epoch=1-" * 31,
    "_1" * 127,
    "rank_1" * 42,
    "a--step=1" * 28,
]
FILES = ["__0_0.distcp", "x.ckpt", "0.0", "io.json", "step=" * 51, "-1" * 127, "--step=" * 36 + ".ckpt"]
HOSTILE = [f"{'/'.join([folder] * 15)}/{file}" for folder in FOLDERS for file in FILES]


@pytest.mark.parametrize("path", [*LONGEST, *HOSTILE], ids=range(len(LONGEST) + len(HOSTILE)))
def test_the_longest_names_cost_little(path: str) -> None:
    """No expression backtracks: that would take hours with a name of the kernel's greatest length, and never end."""
    assert parse_name("/" + path) is not None
    assert path_shape(path)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/run/step_100/shard_3.bin", False),
        ("/run/step_100/embeddings.bin", False),
        ("/run/step_100/train_tokens.bin", True),
        ("/data/prepared/shard_3.bin", True),
        ("/runs/train/00001.npy", True),
        ("/runs/train_01/00001.npy", False),
        ("/tmp/test_of_mine0/w.bin", False),
        ("/runs/my_dataset/00001.npy", True),
        ("/runs/tokens_16k/00001.npy", True),
        ("/runs/batch64_lr3/00001.npy", False),
        ("/runs/trace.run/00001.npy", False),
        ("/runs/sample-efficient-rl/00001.npy", False),
    ],
)
def test_words_for_data_count_where_they_mean_data(path: str, *, data: bool) -> None:
    """A shard in a step's folder is one of a model, and a run may be called after what it does."""
    assert parse_name(path).data is data
