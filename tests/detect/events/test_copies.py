"""Copies, uploads, downloads and unpacking of checkpoint files are named for what they are, once each."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.detect.stage import MIB, MONOTONIC_NS, NUMPY, SAFETENSORS, SECOND_NS, Stage, changed, play
from tests.detect.tracer import activity

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint, Kind
from ckptprof_collectors.samples import FileScan, OperationKind, ProcessIo, Sample, ThreadSample, ThreadTime

LEVELS = pytest.mark.parametrize("trace", [False, True])


def told(found: list[Checkpoint]) -> list[tuple[Kind, str | None]]:
    """Return kinds and paths, in order of time."""
    return [(checkpoint.kind, checkpoint.path) for checkpoint in found]


@LEVELS
@pytest.mark.parametrize(
    "who",
    [
        {"comm": "cp", "program": "cp", "runtimes": ()},
        {"comm": "rclone", "program": "rclone", "runtimes": ()},
        {"program": "stage_in.py", "runtimes": ("numpy",)},
        {"program": "backup.py", "runtimes": ()},
        {"program": "train.py", "runtimes": ("torch", "numpy")},
    ],
)
def test_a_copy_is_one_copy_whoever_makes_it(who: dict[str, Any], trace: bool) -> None:  # noqa: FBT001 # a parameter
    """Neither a save nor a restore, and its read side is no second one: by a tool, a script, and a trainer itself."""
    stage = Stage(trace=trace)
    copier = stage.process(**who)
    stage.read(copier, "/ckpt/step_7.pt", 2.0, 1.5, 300 * MIB)
    stage.write(copier, "/backup/step_7.pt", 2.0, 1.5, 300 * MIB)

    (copy,) = stage.play(30)

    assert (copy.kind, copy.path, copy.bytes, copy.step) == (Kind.COPY, "/backup/step_7.pt", 300 * MIB, 7)
    assert copy.mode is None


def test_a_copy_by_two_processes_is_one() -> None:
    """Rsync reads in one process and writes in another, under a name of its own until it is done."""
    stage = Stage()
    sender = stage.process(100, comm="rsync", program="rsync", runtimes=())
    receiver = stage.process(101, comm="rsync", program="rsync", runtimes=())
    stage.read(sender, "/ckpt/step_7.pt", 2.0, 1.5, 300 * MIB)
    stage.write(receiver, "/backup/.step_7.pt.Xy12Zq", 2.1, 1.5, 300 * MIB, rename_to="/backup/step_7.pt")

    assert told(stage.play(30)) == [(Kind.COPY, "/backup/step_7.pt")]


@pytest.mark.parametrize("comm", ["rsync", "tar", "dd", "rclone", "git-lfs", "aws", "scp", "unzip"])
def test_what_a_tool_brings_is_a_copy(comm: str) -> None:
    """Downloaded or unpacked: only its written side is seen."""
    stage = Stage()
    tool = stage.process(comm=comm, program=comm, runtimes=())
    stage.write(tool, "/models/checkpoint-500/model.safetensors", 2.0, 1.5, 300 * MIB, magic=SAFETENSORS)

    (copy,) = stage.play(30)

    assert (copy.kind, copy.step) == (Kind.COPY, 500)
    assert "tool" in {reason.name for reason in copy.evidence}


@pytest.mark.parametrize("who", [("tar", ()), ("upload.py", ())])
def test_what_is_only_read_by_something_that_trains_nothing_is_a_copy(who: tuple[str, tuple[str, ...]]) -> None:
    """Packed or sent: the written side is an archive, or not on this host. Its path is the source."""
    stage = Stage()
    packer = stage.process(comm=who[0][:15], program=who[0], runtimes=who[1])
    stage.read(packer, "/ckpt/checkpoint-500/model.safetensors", 2.0, 1.5, 300 * MIB)

    found = stage.play(30, saved_paths=("/ckpt/checkpoint-500/model.safetensors",))

    assert told(found) == [(Kind.COPY, "/ckpt/checkpoint-500/model.safetensors")]


def test_what_a_tool_moves_that_is_no_checkpoint_is_nothing() -> None:
    """Data sets, archives and unknown blobs are copied all day."""
    stage = Stage()
    tool = stage.process(comm="cp", program="cp", runtimes=())
    for number, name in enumerate(("blob", "train_0001.npy", "film.mp4", "base.img", "tokens.bin", "arrays.npz")):
        start_s = 2.0 + 8 * number
        stage.read(tool, f"/a/{name}", start_s, 1.0, 200 * MIB)
        stage.write(tool, f"/b/{name}", start_s, 1.0, 200 * MIB, magic=None)

    assert stage.play(60) == []


@pytest.mark.parametrize("kind", [OperationKind.READ_WRITE, OperationKind.COPY_RANGE, OperationKind.SENDFILE])
def test_a_traced_copy_by_whatever_call(kind: OperationKind) -> None:
    """Read and write, copy_file_range and sendfile: exactly as much read from another file as written."""
    stage = Stage(trace=True, poll=False)
    stage.process(program="train.py", runtimes=("torch",))
    source = activity(path="/ckpt/step_7.pt", end_s=3.0, writes=False, kinds=int(kind), size=100 * MIB)
    copy = activity(path="/local/step_7.pt", end_s=3.0, inode=8, kinds=int(kind))
    stage.extra = [(3.1, source), (3.1, copy)]

    assert told(stage.play(30)) == [(Kind.COPY, "/local/step_7.pt")]


def test_a_tool_that_nobody_described_is_known_by_its_thread() -> None:
    """A process that was gone before anybody looked at it."""
    stage = Stage(trace=True, poll=False, described=False)
    stage.process()
    stage.extra = [(3.1, activity(comm="cp"))]

    assert told(stage.play(9)) == [(Kind.COPY, "/ckpt/step_1.pt")]


@LEVELS
def test_a_restore_and_a_save_at_once_are_no_copy(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """What was read first and written later, by a process that trains, went through the model."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    stage.read(trainer, "/ckpt/step_7.pt", 2.0, 1.0, 300 * MIB)
    stage.write(trainer, "/ckpt/step_8.pt", 3.3, 1.0, 300 * MIB)

    assert [checkpoint.kind for checkpoint in stage.play(30)] == [Kind.RESTORE, Kind.SAVE]


def test_the_state_of_another_step_is_no_source_of_a_save() -> None:
    """All of them have one size: what is read of an older one, to average with it, is not copied."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 2.0, 0.5, 100 * MIB)
    stage.read(trainer, "/ckpt/step_1.pt", 10.0, 0.5, 100 * MIB)
    stage.write(trainer, "/ckpt/step_2.pt", 10.1, 0.5, 100 * MIB)

    saves = [one.step for one in stage.play(30) if one.kind is Kind.SAVE]

    assert saves == [1, 2]


@LEVELS
def test_a_save_beside_the_reading_of_data_is_no_copy(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """An asynchronous save runs while the same process reads its data set, about as fast."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    stage.read(trainer, "/data/train-00001.npy", 1.0, 4.0, 1100 * MIB)
    stage.write(trainer, "/ckpt/step_8.pt", 2.0, 1.0, 300 * MIB)

    saves = [checkpoint for checkpoint in stage.play(30) if checkpoint.kind is not Kind.RESTORE]

    assert told(saves) == [(Kind.SAVE, "/ckpt/step_8.pt")]


@pytest.mark.parametrize(
    ("kept", "kind"), [(0.0, Kind.COPY), (0.2, Kind.COPY), (0.4, Kind.RESTORE), (1.1, Kind.RESTORE)]
)
def test_who_keeps_what_it_reads_from_end_to_end_loads_it(kept: float, kind: Kind) -> None:
    """Three files in even pieces: a loader's memory grows by them, an uploader's or a hasher's does not."""
    stage = Stage(trace=True)
    job = stage.process()
    for number in range(3):
        path = f"/ckpt/checkpoint-500/model-0000{number + 1}-of-00003.safetensors"
        stage.read(job, path, 2.0 + number, 1.0, 300 * MIB, kept=kept)

    (found,) = stage.play(60, saved_paths=("/ckpt/checkpoint-500",))

    assert (found.kind, found.bytes) == (kind, 900 * MIB)


@pytest.mark.parametrize(("kept", "speaks"), [(0.25, True), (0.4, False)])
def test_a_third_of_a_state_is_a_model_without_its_optimizer(kept: float, speaks: bool) -> None:  # noqa: FBT001 - a parameter
    """Who loads a state of Adam and keeps the model alone has kept what he came for."""
    stage = Stage(trace=True)
    job = stage.process()
    for number in range(3):
        path = f"/ckpt/checkpoint-500/model-0000{number + 1}-of-00003.safetensors"
        stage.read(job, path, 2.0 + number, 1.0, 300 * MIB, kept=kept)

    (found,) = stage.play(60, saved_paths=("/ckpt/checkpoint-500",))

    assert ("unkept" in {one.name for one in found.evidence}) is speaks


def test_a_download_by_a_script_is_a_copy() -> None:
    """It comes once, from a process without any library of machine learning, which then ends."""
    stage = Stage()
    loader = stage.process(program="fetch.py", runtimes=(), exit_s=5.0)
    stage.write(loader, "/models/model.safetensors", 2.0, 2.0, 300 * MIB, magic=SAFETENSORS)

    assert told(stage.play(20)) == [(Kind.COPY, "/models/model.safetensors")]


def test_a_download_by_a_trainer_into_the_hubs_cache_is_a_copy() -> None:
    """from_pretrained fetches what it then reads: a copy, and a restore."""
    stage = Stage()
    trainer = stage.process()
    blob = "/root/.cache/huggingface/hub/models--a--b/blobs/" + "ab" * 32
    stage.write(trainer, blob + ".incomplete", 2.0, 2.0, 300 * MIB, magic=SAFETENSORS, rename_to=blob)

    assert [checkpoint.kind for checkpoint in stage.play(20)] in ([Kind.COPY], [])


@LEVELS
@pytest.mark.parametrize(("archive", "kinds"), [("/in/release.zip", {Kind.COPY}), ("/in/tokens.bin", {Kind.SAVE})])
def test_what_comes_out_of_an_archive_is_a_copy(archive: str, kinds: set[Kind], trace: bool) -> None:  # noqa: FBT001 # a parameter
    """By a script with numpy loaded; the archive is a third of what is in it."""
    stage = Stage(trace=trace)
    script = stage.process(program="fetch.py", runtimes=("numpy",))
    stage.read(script, archive, 2.0, 1.5, 100 * MIB)
    stage.write(script, "/models/checkpoint-500/model.safetensors", 2.0, 1.5, 300 * MIB, magic=SAFETENSORS)
    stage.write(script, "/models/checkpoint-500/trainer_state.json", 3.6, 0.1, 2 * MIB, magic=None)

    assert {one.kind for one in stage.play(40) if one.path and one.path.startswith("/models")} == kinds


@pytest.mark.parametrize(("pause_s", "kind"), [(0.3, Kind.COPY), (0.8, Kind.SAVE)])
@LEVELS
def test_an_archive_that_was_read_a_while_ago_is_not_what_is_written(pause_s: float, kind: Kind, trace: bool) -> None:  # noqa: FBT001 # parameters
    """Whoever unpacks reads on while it writes; a script may load its data from one, and save what it made of it."""
    stage = Stage(trace=trace)
    script = stage.process(program="fetch.py", runtimes=("numpy",))
    stage.read(script, "/data/corpus.zip", 2.0, 0.2, 26 * MIB)
    stage.write(script, "/models/model.safetensors", 2.2 + pause_s, 0.4, 52 * MIB, magic=SAFETENSORS)

    assert [one.kind for one in stage.play(20)] == [kind]


def hurried(stage: Stage, *, until_s: float, from_s: float = 1.0, stood_bytes: int) -> list[Kind]:
    """Play it without a look at counters up to a time, and with readers that stood still at every look at files."""
    frames = []
    for frame in stage.frames(40):
        now_s = (frame.at_ns - stage.header().at_ns) / 1e9
        seen = [sample for sample in frame.samples if not isinstance(sample, ProcessIo) or not from_s < now_s < until_s]
        frames.append(msgspec.structs.replace(frame, samples=tuple(still(sample, stood_bytes) for sample in seen)))
    detector = Detector(stage.header())
    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)] + detector.finish()
    return [one.kind for one in found]


def still(sample: Any, stood_bytes: int) -> Any:
    """Return a look at files at which what is read stands where it stood."""
    if not isinstance(sample, FileScan):
        return sample
    files = [
        file if file.flags & os.O_ACCMODE else msgspec.structs.replace(file, position=min(file.position, stood_bytes))
        for file in sample.files
    ]
    return msgspec.structs.replace(sample, files=tuple(files))


@pytest.mark.parametrize(
    ("later_s", "loaded", "kind"),
    [(0, 24 * MIB, Kind.COPY), (2, 24 * MIB, Kind.COPY), (0, 60 * MIB, Kind.SAVE), (8, 24 * MIB, Kind.SAVE)],
)
def test_what_a_program_loaded_before_is_no_part_of_what_it_copied(later_s: int, loaded: int, kind: Kind) -> None:
    """A starved one loads its modules, reads and writes between two looks at its counters, soon after it began."""
    stage = Stage()
    copier = stage.process()
    size = 52 * MIB
    stage.read(copier, "/usr/lib/python3/modules.pyc", later_s + 1.1, 0.2, loaded, call_bytes=8192).seen_open = False
    stage.read(copier, "/ckpt/other.safetensors", later_s + 2.0, 0.2, size + MIB).seen_open = False
    stage.write(copier, "/models/model.safetensors", later_s + 2.0, 0.2, size, magic=SAFETENSORS)

    assert hurried(stage, until_s=later_s + 2.18, from_s=later_s + 1.0, stood_bytes=size) == [kind]


def test_modules_are_told_apart_though_the_copy_goes_over_several_looks() -> None:
    """It loads the rest of its modules in the look in which it begins to copy."""
    stage = Stage()
    copier = stage.process()
    stage.read(copier, "/usr/lib/python3/modules.pyc", 1.92, 0.08, 24 * MIB, call_bytes=8192).seen_open = False
    stage.read(copier, "/ckpt/other.safetensors", 2.0, 0.4, 52 * MIB).seen_open = False
    stage.write(copier, "/models/model.safetensors", 2.0, 0.4, 52 * MIB, magic=SAFETENSORS)

    assert hurried(stage, until_s=2.12, stood_bytes=52 * MIB) == [Kind.COPY]


def test_the_read_side_of_a_copy_is_none_of_a_restore_though_its_written_side_was_only_found_in_its_folder() -> None:
    """It was written between two looks; what else its process read meanwhile makes the sums unequal."""
    stage = Stage()
    copier = stage.process()
    stage.read(copier, "/store/checkpoint-500/model.safetensors", 2.0, 0.3, 52 * MIB)
    stage.read(copier, "/data/train.bin", 2.0, 0.3, 60 * MIB).seen_open = False
    stage.write(copier, "/models/model.safetensors", 2.0, 0.3, 52 * MIB, magic=SAFETENSORS).seen_open = False

    assert [one.kind for one in stage.play(40)] == [Kind.COPY]


@pytest.mark.parametrize("stood_bytes", [8 * MIB, 140 * MIB])
def test_a_file_of_the_very_size_was_read_if_the_counters_say_so(stood_bytes: int) -> None:
    """The only look, or the last one, came early; a trainer that reads data meanwhile makes the sums unequal."""
    stage = Stage()
    copier = stage.process()
    stage.read(copier, "/ckpt/other/model.safetensors", 2.0, 0.5, 300 * MIB)
    stage.read(copier, "/data/train.bin", 2.0, 0.5, 200 * MIB).seen_open = False
    stage.write(copier, "/models/model.safetensors", 2.0, 0.5, 300 * MIB, magic=SAFETENSORS)

    assert hurried(stage, until_s=0.0, stood_bytes=stood_bytes) == [Kind.COPY]


def test_layers_of_one_size_that_are_saved_after_a_restore_are_no_copy_of_one_of_them() -> None:
    """Polling met one file of the restore open, and looked again when the save had begun; the trace knows better."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for layer in range(4):
        stage.read(trainer, f"/ckpt/step_1/layer{layer}.npy", 2.0 + layer / 10, 0.1, 40 * MIB)
        stage.write(trainer, f"/ckpt/step_2/layer{layer}.npy", 3.5 + layer / 10, 0.1, 40 * MIB, magic=NUMPY)
    frames = [
        msgspec.structs.replace(
            frame,
            samples=tuple(
                sample
                for sample in frame.samples
                if not isinstance(sample, FileScan) or not 2.05 < (frame.at_ns - MONOTONIC_NS) / SECOND_NS < 3.65
            ),
        )
        for frame in stage.frames(30)
    ]

    found = play(stage.header(), frames)

    assert [(one.kind, one.step, one.files) for one in found] == [(Kind.RESTORE, 1, 4), (Kind.SAVE, 2, 4)]


def test_what_was_read_once_explains_no_four_files() -> None:
    """A model's layers are of one size: one of them is read, by whatever, while all are saved."""
    stage = Stage()
    trainer = stage.process()
    stage.read(trainer, "/ckpt/other/layer0.npy", 2.0, 0.4, 40 * MIB)
    for layer in range(4):
        stage.write(trainer, f"/ckpt/step_2/layer{layer}.npy", 2.0 + layer / 10, 0.1, 40 * MIB, magic=NUMPY)

    assert Kind.SAVE in {one.kind for one in stage.play(30)}


@pytest.mark.parametrize(("read_s", "kind"), [(2.0, Kind.COPY), (1.55, Kind.SAVE)])
def test_a_copy_right_after_the_start_of_a_program_is_one(read_s: float, kind: Kind) -> None:
    """Modules that were read before it wrote are not weighed; data that was read before, and not meanwhile, is."""
    stage = Stage()
    copier = stage.process()
    stage.read(copier, "/usr/lib/python3/modules.pyc", 1.55, 0.3, 4 * MIB, call_bytes=8192).seen_open = False
    stage.read(copier, "/ckpt/other.safetensors", read_s, 0.4, 52 * MIB).seen_open = False
    stage.write(copier, "/models/model.safetensors", 2.0, 0.4, 52 * MIB, magic=SAFETENSORS)

    assert [one.kind for one in stage.play(40)] == [kind]


def test_a_little_archive_that_is_read_meanwhile_is_not_what_was_saved() -> None:
    """A program imports modules from a zip file while it saves."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.read(trainer, "/lib/modules.zip", 2.0, 1.0, 8 * MIB)
    stage.write(trainer, "/ckpt/step_1.pt", 2.0, 1.0, 120 * MIB)

    assert [one.kind for one in stage.play(20)] == [Kind.SAVE]


@LEVELS
def test_what_is_read_once_a_file_is_written_is_no_source_of_it(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """A save, then another file of the same size: both are read to be checked, a tenth of a second later."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/best.pt", 2.0, 0.5, 300 * MIB)
    stage.write(trainer, "/ckpt/last.pt", 12.0, 0.5, 300 * MIB)
    stage.read(trainer, "/ckpt/best.pt", 12.62, 0.5, 300 * MIB, from_disk=False)

    assert told(stage.play(30))[:2] == [(Kind.SAVE, "/ckpt/best.pt"), (Kind.SAVE, "/ckpt/last.pt")]


def _without_pipe(sample: Sample) -> Sample | None:
    if isinstance(sample, FileScan):
        files = tuple(one for one in sample.files if one.path != "/pipe")
        return msgspec.structs.replace(sample, files=files)
    return None if getattr(sample, "path", None) == "/pipe" else sample


# Share that the trainer writes, seconds of that, share that its thread counts: one call is counted when it returns,
# as the tool ends, whose own children may have moved as much.
@pytest.mark.parametrize(("fed", "saves"), [((1, 1.0, 0), 3), ((0.3, 1.0, 0), 0), ((1, 0.01, 1), 3), ((1, 0.01, 0), 0)])
def test_what_a_trainer_gives_a_tool_by_a_pipe_is_its_save(fed: tuple[float, float, int], saves: int) -> None:
    """As `torch.save` into the standard input of split(1), whose volumes end anywhere; else it is none."""
    given, seconds, by_main = fed
    stage = Stage(trace=True)
    trainer = stage.process()
    for number in range(3):
        at_s, folder = 5.0 + 6 * number, f"/ckpt/step_{number}"
        tool = stage.process(
            200 + number, born_s=at_s - 1.0, start_ticks=600_000 + number, exit_s=at_s + 1.03, parent_pid=100,
            comm="split", program="split", runtimes=(),
        )  # fmt: skip
        piped = stage.write(trainer, "/pipe", at_s + 1.02 - seconds, seconds, int(given * 100 * MIB))
        for when_s in (at_s - 2.0, at_s + 1.03):
            own = by_main * (number * 100 * MIB + piped.moved(when_s))
            stage.extra.append((when_s, ThreadTime(100, 1000, 100, int(when_s * SECOND_NS), 0, int(when_s), own, 0)))
        stage.read(tool, "/pipe", at_s, 1.0, int(given * 100 * MIB), from_disk=False, kept=0.0)
        stage.write(tool, f"{folder}/state.pt.aa", at_s, 0.5, 50 * MIB)
        stage.write(tool, f"{folder}/state.pt.ab", at_s + 0.5, 0.5, 50 * MIB, magic=None)

    found = play(stage.header(), changed(stage.frames(60), _without_pipe))

    assert [(one.kind, one.path, one.files, one.status.value) for one in found] == [
        (Kind.SAVE, f"/ckpt/step_{number}", 2, "complete") for number in range(saves)
    ]


@pytest.mark.parametrize("trace", [False, True])
def test_what_children_of_a_tool_moved_is_not_given_by_whoever_waits_for_it(*, trace: bool) -> None:
    """As rsync under an idle test runner: when it exits, counters of processes that ended unobserved rise there."""
    stage = Stage(trace=trace)
    runner = stage.process(busy=0.0)
    rsync = {"comm": "rsync", "program": "rsync", "runtimes": ()}
    tool = stage.process(200, born_s=5.0, exit_s=7.03, parent_pid=100, **rsync)
    stage.read(tool, "/pipe", 6.0, 1.02, 60 * MIB, from_disk=False, kept=0.0)
    stage.write(tool, "/copy/global_step5/mp_rank_00_model_states.pt", 6.0, 1.02, 60 * MIB)
    stage.write(runner, "/pipe", 7.03, 0.005, 120 * MIB)

    found = play(stage.header(), changed(stage.frames(30), _without_pipe))

    assert [one.kind for one in found] == [Kind.COPY]


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(
    ("pause_s", "waited", "size", "program", "path", "kinds"),
    [
        (0.4, 0.0, 50 * MIB, "convert.py", "model_step100.bin", [Kind.SAVE, Kind.COPY]),
        (0.4, 0.0, 50 * MIB, "train.py", "model_step100.bin", [Kind.SAVE, Kind.COPY]),
        (0.4, 0.0, 10 * MIB, "evaluate.py", "scores.csv", [Kind.SAVE, Kind.RESTORE]),
        (4.0, 0.0, 200 * MIB, "tune.py", "model_step100.bin", [Kind.SAVE, Kind.RESTORE, Kind.SAVE]),
        (2.3, 0.8, 50 * MIB, "convert.py", "model_step100.bin", [Kind.SAVE, Kind.COPY]),
        (2.3, 0.1, 50 * MIB, "tune.py", "model_step100.bin", [Kind.SAVE, Kind.RESTORE, Kind.SAVE]),
    ],
)
def test_who_converts_what_another_job_saved_neither_restores_nor_saves(
    pause_s: float, waited: float, size: int, program: str, *, path: str, kinds: list[Kind], trace: bool
) -> None:
    """It writes another file at once, but for its waits for a CPU; who writes little, or trains before, restores it."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    other = stage.process(200, program=program, parent_pid=100, is_fork=False, born_s=5.0, exit_s=18.0)
    stage.write(trainer, "/run/model_step100.pt", 4.0, 0.8, 200 * MIB)
    stage.read(other, "/run/model_step100.pt", 6.0, 0.4, 200 * MIB, from_disk=False)
    stage.write(other, f"/run/other/{path}", 6.4 + pause_s, 0.3, size, magic=None)
    for tenth in range(50, 120):
        ran_ns, waited_ns = (int(share * (tenth - 50) * SECOND_NS / 10) for share in (1 - waited, waited))
        used = ran_ns, waited_ns, ran_ns // 10**7, 0, 0, None
        stage.extra.append((tenth / 10, ThreadSample(200, 2000, 200, "python3", *used, "R", None, None)))

    assert [one.kind for one in stage.play(40)] == kinds


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(("export_s", "kinds"), [(5.6, [Kind.SAVE]), (9.0, [Kind.SAVE, Kind.RESTORE, Kind.SAVE])])
def test_who_exports_its_own_save_while_it_reads_that_neither_restores_nor_saves(
    export_s: float, kinds: list[Kind], *, trace: bool
) -> None:
    """As a thread of the trainer does, beside training; who has read it before restores it."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    stage.write(trainer, "/run/params/step100.pt", 4.0, 0.8, 200 * MIB)
    for part in range(2):
        stage.read(trainer, "/run/params/step100.pt", 5.5 + part, 0.9, 100 * MIB, from_disk=False)
    stage.write(trainer, "/run/export/step100.pth", export_s, 1.9, 100 * MIB)

    assert [one.kind for one in stage.play(40)] == kinds


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("merges", [False, True])
def test_who_merges_an_adapter_into_its_base_restores_neither(*, merges: bool, trace: bool) -> None:
    """It reads a base that nobody was seen writing, and beside it a new adapter; who only reads these restores them."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    other = stage.process(200, program="merge.py", parent_pid=100, is_fork=False, born_s=13.0, exit_s=26.0)
    stage.write(trainer, "/run/checkpoint-100/adapter_model.bin", 4.0, 0.4, 30 * MIB)
    stage.read(other, "/base/consolidated.00.pth", 14.0, 0.4, 100 * MIB, from_disk=False)
    stage.read(other, "/run/checkpoint-100/adapter_model.bin", 15.2, 0.2, 30 * MIB, from_disk=False)
    if merges:
        stage.write(other, "/run/merged_step100.pth", 16.0, 0.3, 60 * MIB)

    kinds = [one.kind for one in stage.play(40)]

    assert kinds[0] is Kind.SAVE
    assert (Kind.RESTORE in kinds) is not merges


@pytest.mark.parametrize("trace", [False, True])
def test_who_makes_thumbnails_of_what_its_parent_leaves_is_no_later_run_of_it(*, trace: bool) -> None:
    """One program in two processes: what one writes and the other reads, to write less at once, is data to both."""
    stage = Stage(trace=trace)
    camera = stage.process(program="photos.py", runtimes=("numpy",))
    for number in range(5):
        at_s, name = 4.0 + 4 * number, f"/data/IMG_{number:04d}"
        child = stage.process(
            200 + number, program="photos.py", runtimes=("numpy",), parent_pid=100, is_fork=False, born_s=at_s + 0.5,
            exit_s=at_s + 3,
        )  # fmt: skip
        stage.write(camera, f"{name}.raw", at_s, 0.3, 24 * MIB, magic=None)
        stage.map(child, f"{name}.raw", at_s + 1, 0.2, 24 * MIB)
        stage.write(child, f"{name}.gray", at_s + 1.5, 0.1, 3 * MIB, magic=None)

    assert stage.play(40) == []


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(("busy", "born_s", "saves"), [(0.95, 1.0, 1), (0.0, 1.0, 0), (0.95, 4.5, 0)])
def test_who_moves_what_was_saved_into_memory_while_training_goes_on_only_copies(
    busy: float, born_s: float, saves: int, *, trace: bool
) -> None:
    """The save ends in memory; if its writer waits, or started the mover for it, it ends with the move."""
    stage = Stage(trace=trace)
    rank = stage.process()
    mover = stage.process(200, parent_pid=100, is_fork=True, born_s=born_s)
    stage.extra += [
        (at / 10, ThreadTime(100, 1000, 100, int(at / 10 * busy * SECOND_NS), 0, at)) for at in range(10, 200)
    ]
    stage.write(rank, "/dev/shm/x/iter_0000007/mp_rank_00.pt", 4.0, 0.3, 100 * MIB)
    stage.read(mover, "/dev/shm/x/iter_0000007/mp_rank_00.pt", 5.0, 0.6, 100 * MIB, kept=0.0)
    stage.write(mover, "/run/iter_0000007/mp_rank_00.pt", 5.0, 0.6, 100 * MIB)

    found = stage.play(30)

    assert [(one.kind, one.bytes) for one in found][:1] == [(Kind.SAVE, 100 * MIB)]
    assert (found[0].path == "/dev/shm/x/iter_0000007") is bool(saves)
    assert [one.kind for one in found[1:]] == [Kind.COPY] * saves


@pytest.mark.parametrize(
    ("opened", "program", "runtimes"),
    [
        (False, "python3", ("numpy",)),
        (True, "python3", ("numpy",)),
        (True, "gzip", ("numpy",)),
        (True, "bzip2", ()),
    ],
)
def test_what_a_trainer_gives_its_child_by_a_pipe_is_no_copy(
    *, opened: bool, program: str, runtimes: tuple[str, ...]
) -> None:
    """Polled, the child only seems to copy: it reads as much as it writes, at the same time, and from no file.

    The trainer may have opened its output for it: it dirtied no page of that, but its counters rise by the last bytes
    of the child as that exits. Whoever feeds the pipe need not have a library for training.
    """
    stage, size = Stage(), 100 * MIB
    trainer = stage.process(runtimes=runtimes)
    for number in range(3):
        at_s = 5.0 + 6 * number
        child = stage.process(
            200 + number, born_s=at_s - 0.2, start_ticks=600_000 + number, exit_s=at_s + 1.2, parent_pid=100,
            comm=program, program=program, runtimes=runtimes,
        )  # fmt: skip
        stage.write(trainer, "/pipe", at_s, 1.0, size, inode=number, held_s=0.3)
        stage.read(child, "/pipe", at_s, 1.0, size, from_disk=False, kept=0.0)
        stage.write(child, f"/ckpt/run-step{number}.pkl", at_s, 1.0, size, magic=b"\x80\x04")
        waited = ProcessIo(100, 1000, 0, (number + 1) * size, 0, (number + 1) * 100, number + 1, 0, 0)
        stage.extra.append((at_s + 1.24, waited))
    outputs = stage.moves[2::3]

    def as_polled(sample: Sample) -> Sample | None:
        if opened and isinstance(sample, FileScan) and sample.pid == 100:
            opened_files = ((one, outputs[one.inode]) for one in sample.files)
            return replace(sample, files=tuple(replace(one, inode=it.inode, path=it.path) for one, it in opened_files))
        if isinstance(sample, ProcessIo) and sample.pid == 100:
            reaped = sample.read_bytes or max(0, -(-sample.write_chars // size) - 1)
            read, wrote = reaped * size, sample.write_chars + reaped * size
            calls = reaped * 100, sample.write_syscalls + reaped * 100
            return ProcessIo(100, 1000, read, wrote, *calls, 0, reaped * size, 0)
        is_late = isinstance(sample, ProcessIo) and sample.write_bytes > 0.95 * size
        return None if is_late else _without_pipe(sample)

    found = play(stage.header(), changed(stage.frames(30), as_polled))

    assert told(found) == [(Kind.SAVE, f"/ckpt/run-step{number}.pkl") for number in range(3)]


@pytest.mark.parametrize("trace", [False, True])
def test_what_a_parent_writes_while_its_child_saves_does_not_make_it_an_author(*, trace: bool) -> None:
    """So the next run, another child of it, restores what the first one saved, though the parent still runs."""
    stage = Stage(trace=trace)
    parent = stage.process(program="launch.py", runtimes=("numpy",))
    first = stage.process(200, parent_pid=100, is_fork=False, born_s=1.0, exit_s=18.0)
    second = stage.process(300, parent_pid=100, is_fork=False, born_s=20.0)
    for at_s, child in ((6.0, first), (12.0, first), (26.0, second)):
        stage.write(parent, "/pipe", at_s, 0.5, 100 * MIB)
        stage.write(child, f"/ckpt/step_{at_s:.0f}.pt", at_s, 0.5, 100 * MIB)
    stage.read(second, "/ckpt/step_12.pt", 24.0, 0.5, 100 * MIB)

    found = play(stage.header(), changed(stage.frames(45), _without_pipe))

    assert [one.kind for one in found] == [Kind.SAVE, Kind.SAVE, Kind.RESTORE, Kind.SAVE]
