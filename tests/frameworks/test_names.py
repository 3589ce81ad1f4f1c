"""What paths say: every framework's real names, names that are none, and names that mean harm."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.frameworks.names import file_format, read_name, shape, step_of
from ckptprof.frameworks.table import FRAMEWORKS

# path, framework, step, rank, unit
REAL = [
    # torch.save: any name
    ("/r/step_500.pt", "torch.save", 500, None, "/r#500"),
    ("/r/model_step-12.pth", "torch.save", 12, None, "/r#12"),
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
    ("/r/checkpoints/checkpoint_4/pytorch_model_fsdp_0/__1_0.distcp", "accelerate", 4, 1, "/r/checkpoints/checkpoint_4"),
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
    # numpy
    ("/r/ckpt_20.npz", "numpy", 20, None, "/r#20"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "framework", "step", "rank", "unit"), REAL, ids=[row[0] for row in REAL])
def test_a_real_name_is_understood(
    path: str, framework: str | None, step: int | None, rank: int | None, unit: str
) -> None:
    """Framework, step, rank and the checkpoint that the file is a part of."""
    name = read_name(path)

    assert (name.framework.name if name.framework else None, name.step, name.rank, name.unit) == (
        framework, step, rank, unit,
    )  # fmt: skip
    assert not name.never
    assert not name.data or framework == "numpy"


@pytest.mark.parametrize(
    "path",
    [
        "/r/step-7/.metadata",
        "/r/checkpoint-500/trainer_state.json",
        "/r/latest",
        "/r/latest_checkpointed_iteration.txt",
        "/r/30/_CHECKPOINT_METADATA",
        "/r/30/commit_success.txt",
    ],
)
def test_what_completes_a_checkpoint_is_known(path: str) -> None:
    """The markers of commit."""
    assert read_name(path).commit


@pytest.mark.parametrize(
    ("temporary", "final"),
    [
        ("/r/step-7/.metadata.tmp", "/r/step-7/.metadata"),
        ("/r/step_7.pt.tmp", "/r/step_7.pt"),
        ("/r/model.pt.partial", "/r/model.pt"),
        ("/r/model.pt~", "/r/model.pt"),
        ("/r/30.orbax-checkpoint-tmp/d/manifest.ocdbt", "/r/30/d/manifest.ocdbt"),
        ("/r/30.orbax-checkpoint-tmp-1750000000/d/manifest.ocdbt", "/r/30/d/manifest.ocdbt"),
    ],
)
def test_a_temporary_name_is_of_the_same_checkpoint_as_the_final_one(temporary: str, final: str) -> None:
    """Files of both names join."""
    assert (read_name(temporary).unit, read_name(temporary).step) == (read_name(final).unit, read_name(final).step)


@pytest.mark.parametrize("path", ["/r/.tmpAb3X9k", "/r/a.tmp", "/r/a.tmpx1", "/r/a.partial", "/r/step-7/.metadata.tmp"])
def test_temporary_names_are_known_as_such(path: str) -> None:
    """Also those of safetensors, which bear nothing of the final name."""
    assert read_name(path).temporary


@pytest.mark.parametrize(
    "path",
    [
        "/r/train.log", "/r/out.txt", "/r/metrics.csv", "/r/metrics.jsonl", "/r/train.log.1", "/r/state.db",
        "/r/state.db-wal", "/r/events.out.tfevents.1750000000.host.1.0", "/r/profile.nsys-rep", "/r/data.tar",
        "/r/model.tar.gz", "/r/wheel.whl", "/r/shard.parquet", "/r/core", "/r/core.1234", "/r/lib.so", "/r/x.py",
        "/r/page.html", "/r/video.mp4", "/var/lib/mysql/x.sqlite3", "/r/cache.arrow",
    ],
)  # fmt: skip
def test_logs_databases_and_archives_are_never_checkpoints(path: str) -> None:
    """Whatever else speaks for them."""
    assert read_name(path).never


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
    assert read_name(path).data


@pytest.mark.parametrize(
    "path", ["/train/run1/step_500.pt", "/data/user/exp/checkpoint-5/model.safetensors", "/data/ckpt/model_3.pt",
             "/train/best.pt", "/out/results/step-7/__0_0.distcp"],
)  # fmt: skip
def test_a_checkpoint_below_a_folder_of_data_is_still_one(path: str) -> None:
    """Homes and disks are called data, too."""
    assert not read_name(path).data


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
    assert file_format(magic, path) == kind


def test_the_saves_of_a_series_have_one_shape() -> None:
    """Numbers are what differs."""
    assert shape("/r/step-5/__3_0.distcp") == shape("/r/step-1200/__11_2.distcp") != shape("/r/step-5/model.pt")


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
    """Nothing is raised; a unit is never a place elsewhere (but for the marks of temporary names, taken away)."""
    name = read_name(path)
    folder = name.unit.partition("#")[0] if "#" not in path else None

    assert name.step is None or name.step >= 0
    if folder is not None and not re.search(r"\.tmp|temp|part|incomplete|unfinished|orbax|~", path):
        assert path == folder or path.startswith(folder.rstrip("/") + "/")


@pytest.mark.parametrize("name", ["/global_step{}/mp_rank_00_model_states.pt", "/r/{}/manifest.ocdbt", "/step_{}.pt",
                                  "/checkpoint-{}/optimizer.pt", "/step-1/__{}_0.distcp", "/{}.pt"])  # fmt: skip
def test_a_number_that_would_overflow_a_database_is_no_step_and_no_rank(name: str) -> None:
    """64 bits are what SQL and JSON readers have; a name of forty digits counts nothing."""
    found = read_name(name.format("9" * 40))

    assert all(number is None or number < 1 << 63 for number in (found.step, found.rank))


LONGEST = ["a" * 4000, "-" * 4000, "1" * 4000, "/".join(["step-1"] * 600), "checkpoint" * 400, ".tmp" * 1000]


@pytest.mark.parametrize("path", LONGEST)
def test_the_longest_names_cost_little(path: str) -> None:
    """No expression backtracks without end: a name of the kernel's greatest length is read in a blink."""
    import time  # noqa: PLC0415 - measured here only

    started = time.process_time()
    read_name("/" + path)
    shape(path)

    assert time.process_time() - started < 0.25
