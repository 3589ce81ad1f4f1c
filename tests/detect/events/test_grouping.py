"""One event for each save and restore: not one for each file, not two in one; by the trace and by polling."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.detect.stage import MIB, SAFETENSORS, SECOND_NS, Actor, Stage

from ckptprof.model import Checkpoint, Kind

LEVELS = pytest.mark.parametrize("traced", [True, False], ids=["trace", "poll"])


def saves(found: list[Checkpoint]) -> list[tuple[int | None, int]]:
    """Return step and files of each save."""
    return [(save.step, save.files) for save in found if save.kind is Kind.SAVE]


def ranks(stage: Stage, count: int, *, told: bool = True, first: int = 100) -> list[Actor]:
    """Add a launcher and its ranks, with or without a rank in their environment."""
    launcher = stage.process(first - 1, program="torchrun", comm="torchrun", runtimes=())
    return [
        stage.process(
            first + rank,
            parent_pid=launcher.pid,
            environment={"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_PORT": str(20_000 + first)}
            if told
            else {},
        )
        for rank in range(count)
    ]


Scene = Callable[[Stage], None]


def straggler(stage: Stage) -> None:
    """One rank writes 20 s after the others."""
    for rank, job in enumerate(ranks(stage, 4)):
        stage.write(job, f"/run/step-8/__{rank}_0.distcp", 2.0 if rank < 3 else 22.0, 1.0, 40 * MIB)


def sibling_folders(stage: Stage) -> None:
    """Model and optimizer lie in folders of their own."""
    job = stage.process()
    for number in range(2):
        stage.write(job, f"/run/model/step_{number + 1}/weights.pt", 2.0 + 9 * number, 1.0, 40 * MIB)
        stage.write(job, f"/run/optim/step_{number + 1}/optim.pt", 3.5 + 9 * number, 1.0, 80 * MIB)


def sibling_files(stage: Stage) -> None:
    """Model and optimizer are files of one folder that bear the same number."""
    job = stage.process()
    for number in (100, 200):
        stage.write(job, f"/run/model_{number}.pt", 2.0 + number / 10, 1.0, 40 * MIB)
        stage.write(job, f"/run/optim_{number}.pt", 4.0 + number / 10, 1.0, 80 * MIB)


def rank_files(stage: Stage) -> None:
    """Each rank has a file whose name tells step and rank."""
    for rank, job in enumerate(ranks(stage, 4, told=False)):
        stage.write(job, f"/run/model_step_100_rank_{rank}.pt", 2.0 + rank * 0.7, 0.5, 40 * MIB)


def further_names(stage: Stage) -> None:
    """Last and best are written again in full after the file of the step, twice over."""
    job = stage.process()
    for number in range(2):
        at_s = 2.0 + 10 * number
        stage.write(job, f"/run/ckpt_step_{number + 5}.pt", at_s, 0.5, 40 * MIB)
        stage.write(job, "/run/last.pt", at_s + 0.6, 0.5, 40 * MIB)
        stage.write(job, "/run/best.pt", at_s + 1.2, 0.5, 40 * MIB)


def back_to_back(stage: Stage) -> None:
    """Two steps follow each other without a pause, each with its further name."""
    job = stage.process()
    for number in range(2):
        stage.write(job, f"/run/ckpt_step_{number + 10}.pt", 2.0 + 2.2 * number, 1.0, 40 * MIB)
        stage.write(job, "/run/last.pt", 3.1 + 2.2 * number, 1.0, 40 * MIB)


def loose_numbers(stage: Stage) -> None:
    """Two numbers that count training, although no word says so."""
    job = stage.process()
    stage.write(job, "/run/model_10.pt", 2.0, 1.0, 40 * MIB)
    stage.write(job, "/run/model_11.pt", 3.05, 1.0, 40 * MIB)


def overlapping(stage: Stage) -> None:
    """Step 10 is still being flushed in the background when step 11 begins."""
    job = stage.process()
    for part in range(4):
        stage.write(job, f"/run/step-10/__0_{part}.distcp", 2.0 + part, 1.0, 40 * MIB)
        stage.write(job, f"/run/step-11/__0_{part}.distcp", 4.5 + part, 1.0, 40 * MIB)


def overwritten(stage: Stage) -> None:
    """Model and optimizer are overwritten each time, with some gathering between them."""
    job = stage.process()
    for number in range(3):
        stage.write(job, "/run/model.safetensors", 2.0 + 6 * number, 0.5, 40 * MIB, magic=SAFETENSORS)
        stage.write(job, "/run/optimizer.pt", 3.8 + 6 * number, 0.5, 80 * MIB)


def unnumbered_folders(stage: Stage) -> None:
    """ByteCheckpoint's three folders without any number."""
    job = stage.process()
    for folder, at_s in (("model", 2.0), ("optimizer", 3.2)):
        stage.write(job, f"/run/final/{folder}/__0_0.distcp", at_s, 1.0, 40 * MIB)
    stage.write(job, "/run/final/extra_state/extra_state_rank_0.pt", 4.4, 0.2, 4 * MIB)


def late_fork(stage: Stage) -> None:
    """One process forks a writer for each rank, the second 4 s after the first one has ended."""
    job = stage.process()
    for rank, at_s in enumerate((2.0, 7.0)):
        writer = stage.process(101 + rank, parent_pid=job.pid, born_s=at_s - 0.2, exit_s=at_s + 1.3)
        stage.write(writer, f"/run/step_300/__{rank}_0.distcp", at_s, 1.0, 40 * MIB)


def marker_beside(stage: Stage) -> None:
    """DeepSpeed's marker comes into the folder above when all ranks are through, 4 s later."""
    for rank, job in enumerate(ranks(stage, 2)):
        name = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        stage.write(job, f"/run/global_step10/{name}", 2.0, 1.0, 40 * MIB)
        if rank == 0:
            stage.write(job, "/run/latest", 7.0, 0.01, 13, magic=None)


@LEVELS
@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (straggler, [(8, 4)]),
        (sibling_folders, [(1, 2), (2, 2)]),
        (sibling_files, [(100, 2), (200, 2)]),
        (rank_files, [(100, 4)]),
        (further_names, [(5, 3), (6, 3)]),
        (back_to_back, [(10, 2), (11, 2)]),
        (loose_numbers, [(10, 1), (11, 1)]),
        (overlapping, [(10, 4), (11, 4)]),
        (overwritten, [(None, 2)] * 3),
        (unnumbered_folders, [(None, 3)]),
        (late_fork, [(300, 2)]),
    ],
)
def test_saves_are_told_as_their_engineers_would(
    scene: Scene, expected: list[tuple[int | None, int]], traced: bool  # noqa: FBT001 - a parameter
) -> None:  # fmt: skip
    """Step and files of each."""
    stage = Stage(hz=10, trace=traced)
    scene(stage)

    assert expected == saves(stage.play(40))


def test_a_marker_in_the_folder_above_belongs_to_the_save() -> None:
    """It names the newest save, and completes it."""
    stage = Stage(hz=10, trace=True)
    marker_beside(stage)

    (save,) = stage.play(30)

    assert (save.step, save.files, save.ranks) == (10, 3, 2)
    assert save.moments.committed_ns is not None


@LEVELS
def test_two_jobs_beside_each_other_are_two(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """Two torchruns save the same step at the same time into sibling folders."""
    stage = Stage(hz=10, trace=traced)
    for first, name in ((100, "a"), (200, "b")):
        for rank, job in enumerate(ranks(stage, 2, first=first)):
            stage.write(job, f"/run/{name}/step-8/__{rank}_0.distcp", 2.0, 1.0, 40 * MIB)

    found = stage.play(20)

    assert saves(found) == [(8, 2), (8, 2)]
    assert {"train.py-99", "train.py-199"} == {save.job for save in found}


@LEVELS
def test_one_file_overwritten_each_second_is_as_many_saves(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """In place, without a pause that would tell them apart."""
    stage = Stage(hz=10, trace=traced)
    job = stage.process()
    for number in range(6):
        stage.write(job, "/run/ckpt.pt", 2.0 + number, 0.6, 40 * MIB)

    assert saves(stage.play(16)) == [(None, 1)] * 6


@LEVELS
def test_a_process_for_each_save_overwrites_the_file_of_the_last(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """Who writes the file is another each time; it still is another save."""
    stage = Stage(hz=10, trace=traced)
    stage.process(100)
    for number in range(3):
        child = stage.process(110 + number, parent_pid=100, born_s=1.5 + 2 * number, exit_s=3.4 + 2 * number)
        stage.write(child, "/run/ckpt.pt", 2.0 + 2 * number, 0.8, 40 * MIB, inode=7)

    found = stage.play(16)

    assert saves(found) == [(None, 1)] * 3
    assert {"train.py-100"} == {save.job for save in found}


@LEVELS
def test_ranks_that_read_one_file_are_one_restore(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """One after the other with some seconds between them; what is read again a minute later is another one."""
    stage = Stage(hz=10, trace=traced)
    for rank, job in enumerate(ranks(stage, 4)):
        stage.read(job, "/run/step_5.pt", 2.0 + 2.2 * rank, 1.0, 80 * MIB, inode=7)
        stage.read(job, "/run/step_5.pt", 70.0, 1.0, 80 * MIB, inode=7)

    found = stage.play(90)

    assert [restore.kind for restore in found] == [Kind.RESTORE] * 2
    assert [len(restore.writers) for restore in found] == [4, 4]


@LEVELS
def test_model_and_optimizer_loaded_in_one_go_are_one_restore(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """Files of one folder; the folder of another step is another restore."""
    stage = Stage(hz=10, trace=traced)
    job = stage.process()
    stage.read(job, "/run/checkpoint-5/model.safetensors", 2.0, 1.0, 80 * MIB)
    stage.read(job, "/run/checkpoint-5/optimizer.pt", 4.0, 1.0, 160 * MIB)
    stage.read(job, "/run/checkpoint-4/optimizer.pt", 5.2, 1.0, 160 * MIB)

    found = stage.play(20)

    assert [(restore.step, restore.files) for restore in found] == [(5, 2), (4, 1)]


def staged(stage: Stage, job: Actor, target: str, at_s: float, **options: Any) -> None:
    """Write a file to a temporary folder, read it whole and write it to its place, as fsspec's transaction does."""
    name = f"/tmp/tmp{abs(hash(target)) % 10**8:08d}"
    stage.write(job, name, at_s, 1.0, 80 * MIB, **options)
    stage.read(job, name, at_s + 1.02, 1.0, 80 * MIB)
    stage.write(job, target, at_s + 1.03, 1.0, 80 * MIB)


def test_a_stage_is_no_save_of_its_own() -> None:
    """Lightning writes to $TMPDIR, copies to the target and does it all again for last.ckpt: one save of two files."""
    stage = Stage(hz=10, trace=True)
    job = stage.process()
    staged(stage, job, "/run/epoch=0-step=10.ckpt", 2.0)
    staged(stage, job, "/run/last.ckpt", 4.1)

    found = stage.play(20)

    (save,) = found
    assert (save.kind, save.step, save.files, save.bytes) == (Kind.SAVE, 10, 2, 160 * MIB)
    assert save.start_ns == pytest.approx(stage.wall(2.0), abs=SECOND_NS // 20)
    assert all("/tmp/" not in stream.path for stream in save.streams)


def test_a_long_copy_of_a_stage_is_waited_for() -> None:
    """The stage is not told as a save while its copy to a slow target goes on."""
    stage = Stage(hz=10, trace=True)
    job = stage.process()
    stage.write(job, "/tmp/tmpab12cd34", 2.0, 1.0, 80 * MIB)
    stage.read(job, "/tmp/tmpab12cd34", 3.02, 12.0, 80 * MIB)
    stage.write(job, "/run/epoch=0-step=10.ckpt", 3.03, 12.0, 80 * MIB)

    (save,) = stage.play(30)

    assert (save.path, save.files, save.bytes) == ("/run/epoch=0-step=10.ckpt", 1, 80 * MIB)


@pytest.mark.parametrize("trace", [True, False])
@pytest.mark.parametrize("late_s", [0.3, 1.0, 5.0])
def test_a_copy_that_is_closed_before_its_stage_is_not_lost(*, late_s: float, trace: bool) -> None:
    """`with open(stage) as source, open(target, "wb") as copy` closes the copy first; what comes between takes long."""
    stage = Stage(hz=10, trace=trace)
    job = stage.process()
    stage.write(job, "/tmp/tmpab12cd34", 2.0, 1.0, 80 * MIB)
    reading = stage.read(job, "/tmp/tmpab12cd34", 3.02, 2.0, 80 * MIB, from_disk=False)
    reading.closed_s += late_s
    stage.write(job, "/run/epoch=0-step=10.ckpt", 3.03, 2.0, 80 * MIB)

    (save,) = stage.play(30)

    assert (save.path, save.files, save.bytes) == ("/run/epoch=0-step=10.ckpt", 1, 80 * MIB)


def test_an_alias_that_takes_long_is_waited_for() -> None:
    """last.pt is still open when the file of the step has been quiet for long."""
    stage = Stage(hz=10, trace=True)
    job = stage.process()
    stage.write(job, "/run/ckpt_step_5.pt", 2.0, 1.0, 80 * MIB)
    stage.write(job, "/run/last.pt", 3.1, 9.0, 80 * MIB)

    assert saves(stage.play(30)) == [(5, 2)]


def test_thousands_of_short_lived_writers_are_one_save_of_their_parent() -> None:
    """A process for each file, none of which lived long enough to be described."""
    stage = Stage(hz=4, trace=True, poll=False)
    parent = stage.process(100)
    stage.described = True
    for number in range(300):
        at_s = 2.0 + number * 0.005
        child = stage.process(1000 + number, parent_pid=parent.pid, born_s=at_s - 0.001, exit_s=at_s + 0.01)
        stage.write(child, f"/run/step-7/part_{number}.pt", at_s, 0.004, MIB)
    unknown = {actor.pid for actor in stage.actors if actor is not parent}
    frames = [_undescribed(frame, unknown) for frame in stage.frames(14)]

    from tests.detect.stage import play  # noqa: PLC0415 - beside its only use

    (save,) = play(stage.header(), frames)

    assert (save.job, save.step, save.files, save.ranks) == ("train.py-100", 7, 300, 1)
    assert len(save.writers) == 300


def _undescribed(frame: Any, unknown: set[int]) -> Any:
    import msgspec  # noqa: PLC0415 - beside its only use

    from ckptprof_collectors.samples import FileActivity, ProcessInfo  # noqa: PLC0415 - likewise

    samples = []
    for sample in frame.samples:
        if isinstance(sample, ProcessInfo) and sample.pid in unknown:
            continue
        if isinstance(sample, FileActivity) and sample.pid in unknown:
            sample = msgspec.structs.replace(sample, parent_pid=100)  # noqa: PLW2901 - as the trace tells it
        samples.append(sample)
    return msgspec.structs.replace(frame, samples=tuple(samples))


@LEVELS
@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_between_two_ranks_does_not_part_them(traced: bool, jump_s: float) -> None:  # noqa: FBT001
    """Order and duration come from the monotonic clock."""
    stage = Stage(hz=10, trace=traced, wall_jumps=((2.6, jump_s),))
    for rank, job in enumerate(ranks(stage, 2)):
        stage.write(job, f"/run/step-8/__{rank}_0.distcp", 2.0 + rank, 1.0, 40 * MIB)

    (save,) = stage.play(20)

    assert (save.step, save.files) == (8, 2)
    assert (save.end_ns - save.start_ns) / SECOND_NS == pytest.approx(2.0, abs=0.2)


def test_a_file_that_stays_open_does_not_hold_up_a_save_for_ever() -> None:
    """A file that the job keeps writing beside its saves is waited for, but not for longer than a minute."""
    stage = Stage(hz=4, trace=True)
    job = stage.process()
    stage.write(job, "/run/step_5.pt", 2.0, 1.0, 80 * MIB)
    stage.write(job, "/run/state.bin", 2.5, 200.0, 400 * MIB, flags=os.O_WRONLY)
    frames = stage.frames(90)

    from ckptprof.detect.pipeline import Detector  # noqa: PLC0415 - beside its only use

    detector = Detector(stage.header())
    told = [(frame.at_ns, save) for frame in frames for save in detector.ingest(frame)]

    assert [save.step for _, save in told] == [5]


@LEVELS
@pytest.mark.parametrize(("name", "steps"), [("step_{}.pt", [1, 2]), ("last.pt", [None, None])])
def test_what_else_a_job_writes_above_its_saves_is_no_part_of_them(
    name: str, steps: list[int | None], *, traced: bool
) -> None:
    """A data base, or a file of an unknown kind, in the folder that holds the folder of the saves."""
    stage = Stage(hz=10, trace=traced)
    job = stage.process()
    stage.write(job, "/run/xdb", 0.5, 14.0, 30 * MIB, magic=b"SQLite format 3\0")
    for step in (1, 2):
        stage.write(job, "/run/ckpt/" + name.format(step), 2.0 + 5 * step, 1.0, 40 * MIB)

    found = stage.play(30)

    assert saves(found) == [(step, 1) for step in steps]
    assert len({save.uid for save in found}) == 2


def test_ranks_that_nobody_saw_writing_are_told_by_their_files() -> None:
    """Two short-lived children write one after the other; polling meets neither, and credits their parent with both."""
    stage = Stage()
    job = stage.process()
    for rank in range(2):
        stage.write(job, f"/run/step_300/__{rank}_0.distcp", 2.0 + rank, 0.5, 40 * MIB, magic=None, seen_open=False)
    stage.write(job, "/run/step_300/.metadata", 3.8, 0.1, 40_000, magic=None)

    (save,) = stage.play(20)

    assert (save.step, save.ranks) == (300, 2)


@LEVELS
def test_one_process_that_writes_the_parts_of_two_ranks_is_one(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """It was seen with both files open: a checkpoint that was cut anew for as many ranks."""
    stage = Stage(trace=traced)
    job = stage.process()
    for rank in range(2):
        stage.write(job, f"/run/step_300/__{rank}_0.distcp", 2.0 + rank, 0.9, 40 * MIB, magic=None)

    (save,) = stage.play(20)

    assert save.ranks == 1


@LEVELS
@pytest.mark.parametrize(
    ("size", "gap_s", "expected"),
    [(80, 3.5, [(4, 2), (8, 2)]), (80, 9.0, [(4, 1), (None, 1), (8, 1), (None, 1)]), (40, 3.5, None)],
    ids=["pickled-first", "much-later", "less"],
)
def test_a_further_name_may_begin_late_if_it_holds_as_much(
    size: int, gap_s: float, expected: list[tuple[int | None, int]] | None, *, traced: bool
) -> None:
    """Lightning pickles all of it into memory before it opens last.ckpt; what holds less is something else."""
    stage = Stage(hz=10, trace=traced)
    job = stage.process()
    for number in (1, 2):
        at_s = 2.0 + 30 * (number - 1)
        stage.write(job, f"/run/epoch=0-step={4 * number}.ckpt", at_s, 1.0, 80 * MIB)
        stage.write(job, "/run/last.ckpt", at_s + 1.0 + gap_s, 1.0, size * MIB)

    found = saves(stage.play(75))

    assert found == expected if expected is not None else (4, 1) in found
