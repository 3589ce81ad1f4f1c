"""What is no checkpoint: logs, copies, tools, data sets, and small or marginal files; and that it can be asked why."""

from __future__ import annotations

import hashlib
import os
import pickle

import msgspec
import pytest
from tests.detect.stage import MIB, NUMPY, SAFETENSORS, SECOND_NS, TORCH_ZIP, Stage

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Kind
from ckptprof_collectors.files.file_facts import MAGIC_BYTES


def rejected_for(stage: Stage, until_s: float) -> list[set[str]]:
    """Return, for each candidate that was turned down, the names of what spoke against it."""
    detector = Detector(stage.header())
    found = [checkpoint for frame in stage.frames(until_s) for checkpoint in detector.ingest(frame)]

    assert found + detector.finish() == []
    return [{reason.name for reason in entry.evidence if reason.weight < 0} for entry in detector.rejected]


@pytest.mark.parametrize(
    "path", ["/run/train.log", "/run/metrics.jsonl", "/run/events.out.tfevents.17.host", "/run/a.csv"]
)
def test_logs_are_never_saves(path: str) -> None:
    """However much a trainer writes to its log, it is none."""
    stage = Stage()
    stage.write(stage.process(), path, 2.0, 6.0, 200 * MIB, flags=os.O_WRONLY | os.O_APPEND, magic=b"[info] step 1 lo")

    assert rejected_for(stage, 14) == []


def test_a_file_that_is_appended_to_is_no_save() -> None:
    """O_APPEND speaks against a save even with a trainer's name for it."""
    stage = Stage()
    stage.write(stage.process(), "/run/output", 2.0, 3.0, 100 * MIB, flags=os.O_WRONLY | os.O_APPEND,
                magic=b"abcdefghijklmnop", size_before=400 * MIB)  # fmt: skip

    (against,) = rejected_for(stage, 10)

    assert "appends" in against


def test_a_data_sets_shards_are_no_saves() -> None:
    """A script that writes numbered arrays of tokens again and again prepares data."""
    stage = Stage()
    job = stage.process(program="tokenize.py", runtimes=("numpy",))
    for number in range(6):
        stage.write(job, f"/data/train_tokens_{number:04d}.npy", 2.0 + number * 4, 1.0, 200 * MIB, magic=NUMPY)

    found = rejected_for(stage, 30)

    assert len(found) == 6
    assert all("data" in against for against in found)


@pytest.mark.parametrize("protocol", [4, 5])
def test_what_the_allocator_of_a_trainer_holds_is_no_save(protocol: int) -> None:
    """Torchtitan's profiler pickles `torch.cuda.memory._snapshot()`, in a folder of its iteration, by each rank."""
    stage = Stage()
    trainer = stage.process(runtimes=("torch",))
    begin = pickle.dumps({"segments": [{"device": 0}] * 9, "device_traces": []}, protocol)[:MAGIC_BYTES]
    for step in (20, 40, 60, 80):
        path = f"/run/memory_snapshot/iteration_{step}/rank0_memory_snapshot.pickle"
        stage.write(trainer, path, 2.0 + step / 4, 0.8, 20 * MIB, magic=begin)

    found = rejected_for(stage, 40)

    assert found
    assert all("foreign" in against for against in found)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("name", ["{}.pt", "sample_{:06d}.pt", "cache/{}.npy"])
def test_samples_that_are_numbered_are_no_saves(name: str, trace: bool) -> None:  # noqa: FBT001 - a parameter
    """Features are kept for later, several files a second: the number is no step of a training."""
    stage = Stage(trace=trace)
    job = stage.process(program="embed.py", runtimes=("torch",))
    for number in range(12):
        stage.write(job, f"/scratch/x/{name.format(number)}", 2.0 + number * 0.4, 0.1, 4 * MIB, magic=TORCH_ZIP)

    found = rejected_for(stage, 30)

    assert found
    assert all("shards" in against for against in found)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(("seconds", "saves"), [(1.5, 4), (60.0, 0)])
def test_children_that_write_one_after_the_other_number_a_state(seconds: float, saves: int, trace: bool) -> None:  # noqa: FBT001
    """A fork is a snapshot, and ends before the next one; workers live on, and what they number is a data set."""
    stage = Stage(trace=trace)
    stage.process(runtimes=("numpy",))
    for number in range(4):
        at_s = 4.0 + 6 * number
        child = stage.process(
            200 + number, parent_pid=100, is_fork=True, runtimes=("numpy",), born_s=at_s, exit_s=at_s + seconds
        )
        stage.write(child, f"/run/snap.{number}.npy", at_s + 0.1, 0.8, 80 * MIB, magic=NUMPY)

    assert [one.path for one in stage.play(40)] == [f"/run/snap.{number}.npy" for number in range(saves)]


@pytest.mark.parametrize("trace", [False, True])
def test_samples_that_are_named_by_their_hash_are_no_saves(trace: bool) -> None:  # noqa: FBT001 - a parameter
    """A cache of features has no number to count by, and is no save all the same."""
    stage = Stage(trace=trace)
    job = stage.process(program="embed.py", runtimes=("torch",))
    for number in range(24):
        name = hashlib.sha256(b"%d" % number).hexdigest()
        stage.write(job, f"/scratch/x/{name}.pt", 2.0 + number * 0.4, 0.1, 4 * MIB, magic=TORCH_ZIP)

    found = rejected_for(stage, 40)

    assert found


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(("ending", "magic"), [("pt", TORCH_ZIP), ("npy", NUMPY), ("safetensors", SAFETENSORS)])
@pytest.mark.parametrize("hashed", [False, True])
def test_samples_that_loaders_keep_hide_no_save(ending: str, magic: bytes, hashed: bool, trace: bool) -> None:  # noqa: FBT001
    """Workers make them all through the first epoch, each in a temporary folder; then the trainer saves above them."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    workers = [stage.process(pid, parent_pid=100, born_s=1.0) for pid in (101, 102)]
    for at in range(60):
        name = hashlib.sha256(b"%d" % at).hexdigest() if hashed else f"sample_{at:06d}"
        start_s, part = 2.0 + at * 0.2, f"/run/cache/train/tmp{at:08x}/s.{ending}"
        path = f"/run/cache/train/{name}.{ending}"
        stage.write(workers[at % 2], part, start_s, 0.1, 2 * MIB, rename_to=path, magic=magic)
    for at_s, epoch in ((14.2, 0), (24.0, 1)):
        stage.write(trainer, f"/run/model_epoch{epoch}.pt", at_s, 0.5, 100 * MIB)

    found = stage.play(40)

    assert [(one.kind, one.path, one.bytes) for one in found] == [
        (Kind.SAVE, f"/run/model_epoch{epoch}.pt", 100 * MIB) for epoch in (0, 1)
    ]


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(
    ("name", "magic"),
    [
        ("predictions/eval_epoch_{}.npy", NUMPY), ("predictions/epoch_{}.pt", TORCH_ZIP),
        ("features/trainfeat.pth", TORCH_ZIP), ("logits_step_{}00.npy", NUMPY),
    ],
)  # fmt: skip
def test_what_a_model_yields_at_each_evaluation_is_no_save(name: str, magic: bytes, trace: bool) -> None:  # noqa: FBT001
    """It has an epoch and a rhythm as saves do, and they hide no state that is saved beside."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    for epoch in range(1, 5):
        stage.write(trainer, f"/run/{name.format(epoch)}", 8.0 * epoch, 0.5, 40 * MIB, magic=magic)
        stage.write(trainer, f"/run/model_{epoch}.pt", 8.0 * epoch + 4, 0.5, 100 * MIB)

    assert [one.path for one in stage.play(60)] == [f"/run/model_{epoch}.pt" for epoch in range(1, 5)]


def test_a_state_that_is_numbered_in_a_folder_of_no_name_is_a_save() -> None:
    """It waits for the next one, or for a minute."""
    stage = Stage()
    stage.write(stage.process(), "/scratch/x/1000.pt", 2.0, 1.0, 200 * MIB, magic=TORCH_ZIP)

    (save,) = stage.play(70)

    assert save.step == 1000


def test_a_few_kilobytes_are_no_save() -> None:
    """Less than a mebibyte is not worth the name, whatever the name is."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 0.2, 600 << 10, magic=TORCH_ZIP)

    assert rejected_for(stage, 8) == []


def test_a_process_without_any_runtime_that_writes_an_unknown_file_is_no_trainer() -> None:
    """Nothing speaks for it, and that no library of machine learning is loaded speaks against."""
    stage = Stage()
    stage.write(stage.process(comm="app", program="app", runtimes=()), "/var/lib/app/blob", 2.0, 1.0, 300 * MIB)

    (against,) = rejected_for(stage, 8)

    assert "runtime" in against


def test_ckptprofs_own_bookkeeping_bounds_what_it_remembers_of_rejections() -> None:
    """At most 256 turned-down candidates are kept for those who ask why."""
    header = Stage().header()
    detector = Detector(header)
    for number in range(300):
        stage = Stage(hz=10)
        job = stage.process(100 + number, comm="app", program="app", runtimes=())
        stage.write(job, f"/var/{number}/blob", 0.5, 0.4, 4 * MIB)
        for frame in stage.frames(4.5):
            shift_ns = number * 5 * SECOND_NS
            detector.ingest(
                msgspec.structs.replace(frame, at_ns=frame.at_ns + shift_ns, wall_ns=frame.wall_ns + shift_ns)
            )
    detector.finish()

    assert len(detector.rejected) == 256
