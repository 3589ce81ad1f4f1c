"""Sync or async, and how long training was blocked: by writer, by pace, by stacks, on machines made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.detect import sockets
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Actor, Stage, changed

from ckptprof.detect.describe.stall import Stall, blocked_intervals
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import BeforeMeasure
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.verdicts import Limit
from ckptprof_collectors.samples import (
    FileActivity,
    FileLifeEvent,
    Frame,
    GpuUse,
    ProcessIo,
    ProcessStat,
    Sample,
    StackSample,
    ThreadSample,
    ThreadStack,
    ThreadTime,
)

LOOP = (("step", "/job/train.py", 30), ("main", "/job/train.py", 80))
SAVING = (("_save", "/site/torch/serialization.py", 900), ("main", "/job/train.py", 90))
JOINING = (("Thread.join", "/lib/python3.11/threading.py", 1119), ("write_out", "/job/train.py", 50), LOOP[1])
STEPPING = (LOOP[0], ("save_in_background", "/job/train.py", 60), LOOP[1])
FINISHING = (
    ("Thread.join", "/lib/python3.11/threading.py", 1119),
    ("AsyncCheckpointer.wait_until_finished", "/site/orbax/checkpoint/_src/checkpointers/async_checkpointer.py", 700),
    LOOP[1],
)
UNKNOWN = (("put_away", "/job/train.py", 44), LOOP[1])
FOR_SECONDS = 16.0
LONGER_SECONDS = 22.0  # more of a step's folder may follow for ten seconds


def times(
    actor: Actor, still: tuple[tuple[float, float], ...] = (), *, share: float = 0.9, slices: float = 40.0
) -> list[tuple[float, Sample]]:
    """Return what a thread's counters show at an even pace but for some times, at each tick at which they changed."""
    found: list[tuple[float, Sample]] = []
    before = None
    for count in range(int(FOR_SECONDS * 25)):
        at_s = count / 25
        moved_s = at_s - sum(max(0.0, min(at_s, high) - low) for low, high in still if low < at_s)
        values = (int(moved_s * share * 1e9), 0, int(moved_s * slices))
        if values != before:
            found.append((at_s, ThreadTime(actor.pid, actor.info.start_ticks, actor.pid, *values)))
            before = values
    return found


def stacks(
    actor: Actor,
    at_s: float,
    frames: tuple[tuple[str, str, int], ...],
    active: bool = True,  # noqa: FBT001, FBT002 # as py-spy tells
) -> tuple[float, Sample]:
    """Return one look at the main thread."""
    sample = StackSample(
        MONOTONIC_NS + int(at_s * SECOND_NS), actor.pid, actor.info.start_ticks, 10_000_000,
        (ThreadStack(actor.pid, "MainThread", active=active, frames=frames),),
    )  # fmt: skip
    return at_s + 0.03, sample


def by_thread(frames: list[Frame], pid: int) -> list[Frame]:
    """Return the frames with everything that a process wrote written by another of its threads."""

    def moved(sample: Sample) -> Sample:
        own = isinstance(sample, FileActivity) and sample.pid == pid
        return msgspec.structs.replace(sample, tid=pid + 1) if own else sample

    return changed(frames, moved)


def uncounted(frames: list[Frame]) -> list[Frame]:
    """Return the frames with nothing written by calls: pages that a mapping makes dirty are counted otherwise."""
    return changed(
        frames,
        lambda sample: msgspec.structs.replace(sample, write_chars=0) if isinstance(sample, ProcessIo) else sample,
    )


def growing(frames: list[Frame], grows: tuple[tuple[float, float, int], ...]) -> list[Frame]:
    """Return the frames with each process's memory growing evenly in some times by so many bytes."""
    made = []
    for frame in frames:
        at_s = (frame.at_ns - MONOTONIC_NS) / SECOND_NS
        more = sum(int(size * max(0.0, min(1.0, (at_s - low) / (high - low)))) for low, high, size in grows)
        samples = tuple(
            msgspec.structs.replace(sample, rss_bytes=(sample.rss_bytes or 0) + more)
            if isinstance(sample, ProcessStat)
            else sample
            for sample in frame.samples
        )
        made.append(msgspec.structs.replace(frame, samples=samples))
    return made


def detect(stage: Stage, frames: list[Frame] | None = None) -> list[Checkpoint]:
    """Return what is found."""
    detector = Detector(stage.header())
    found: dict[str, Checkpoint] = {}
    for frame in frames if frames is not None else stage.frames(FOR_SECONDS):
        for checkpoint in detector.ingest(frame):
            found.setdefault(checkpoint.uid, checkpoint)
    for checkpoint in detector.finish():
        found.setdefault(checkpoint.uid, checkpoint)
    return list(found.values())


def threaded(
    still: tuple[tuple[float, float], ...] = (), looks: tuple[tuple[Any, ...], ...] = (),
    grows: tuple[tuple[float, float, int], ...] = (), **pace: float,
) -> Checkpoint:  # fmt: skip
    """Return the save of a trainer whose other thread writes from second 8 to 10."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    stage.extra += times(trainer, still, **pace)
    stage.extra += [stacks(trainer, *look) for look in looks]
    found = detect(stage, growing(by_thread(stage.frames(FOR_SECONDS), trainer.pid), grows))
    assert len(found) == 1
    return found[0]


def seconds(checkpoint: Checkpoint) -> float:
    """Return the stall in seconds."""
    assert checkpoint.stall_ns is not None
    return checkpoint.stall_ns / 1e9


@pytest.mark.parametrize(("trace", "every"), [(True, 1), (False, 1), (False, 5)])
def test_who_stages_a_save_is_held_for_that_and_not_while_a_thread_takes_it_away(
    trace: bool,  # noqa: FBT001
    every: int,
) -> None:
    """The trainer writes into a temporary folder; a reporter copies that slowly to where it is kept, and deletes it.

    It stages the next one right after that; of `every` so many frames one has its counters.
    """
    stage, size = Stage(trace=trace), 200 * MIB
    trainer = stage.process()
    staged = []
    for number, at_s in enumerate((5.21, 8.61), 1):
        staged.append(stage.write(trainer, f"/tmp/ckpt_x{number}/model.pt", at_s, 0.1, size))
        stage.read(trainer, f"/tmp/ckpt_x{number}/model.pt", at_s + 0.2, 3.0, size, from_disk=False, kept=0.0)
        stage.write(trainer, f"/runs/ckpt_{number}/model.pt", at_s + 0.24, 3.0, size)
    for at_s, sample in times(trainer):
        own = {"written_chars": sum(one.moved(at_s) for one in staged), "read_chars": 0}
        stage.extra.append((at_s, sample if trace else msgspec.structs.replace(sample, **own)))

    def by_reporter(sample: Sample) -> Sample:
        is_stage = isinstance(sample, FileActivity) and sample.inode in {one.inode for one in staged} and sample.writes
        is_reporters = isinstance(sample, FileActivity) and not is_stage
        return msgspec.structs.replace(sample, tid=trainer.pid + 1) if is_reporters else sample

    frames = stage.frames(LONGER_SECONDS)
    for number, frame in enumerate(frames):
        if number % every:
            left = tuple(one for one in frame.samples if not isinstance(one, ProcessIo | ThreadTime))
            frames[number] = msgspec.structs.replace(frame, samples=left)
    found = detect(stage, changed(frames, by_reporter))

    assert [(one.mode, one.writers[0].role) for one in found] == [(Mode.ASYNC, "thread")] * 2
    assert [seconds(one) for one in found] == pytest.approx([0.1, 0.1], abs=0.08)


def test_the_trainer_that_writes_itself_is_held_all_the_time() -> None:
    """The main thread wrote every byte: sync, as long as the save."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB, held_s=0.5)
    stage.extra += times(trainer)
    (found,) = detect(stage)

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(2.5, abs=0.1)
    assert found.writers[0].role == "trainer"


@pytest.mark.parametrize(("waited_s", "stall"), [(0.4, 0.6), (1.5, 0.2)])
def test_what_a_trainer_waits_right_before_it_writes_is_of_the_save_unless_it_is_long(
    waited_s: float, stall: float
) -> None:
    """It serialises its state, or waits for another rank; for longer than the save, it is for something else."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 0.2, 200 * MIB)
    stage.extra += times(trainer, ((8.0 - waited_s, 8.0),))
    (found,) = detect(stage)

    assert seconds(found) == pytest.approx(stall, abs=0.15)


def test_a_thread_that_writes_while_the_trainer_keeps_its_pace_is_async() -> None:
    """Nothing is held: the stall is zero, and that is known."""
    found = threaded()

    assert (found.mode, found.stall_ns) == (Mode.ASYNC, 0)
    assert found.writers[0].role == "thread"


def test_a_thread_that_writes_while_the_trainer_stands_still_is_sync() -> None:
    """It joined its writer: for the pace it is the same as if it wrote, with what it waited before and after."""
    found = threaded(still=((7.5, 10.3),))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(2.8, abs=0.35)


@pytest.mark.parametrize(
    ("still", "next_s", "modes", "stalls"),
    [
        pytest.param((8.8, 10.0), 10.05, (Mode.ASYNC, Mode.ASYNC), (0.0, 1.2), id="the next save waits for the last"),
        pytest.param((8.8, 10.0), 11.5, (Mode.ASYNC, Mode.ASYNC), (1.2, 0.0), id="it trains before the next save"),
        pytest.param((9.4, 10.0), None, (Mode.ASYNC,), (0.6,), id="the last save of all"),
        pytest.param((8.0, 10.0), 10.05, (Mode.SYNC, Mode.ASYNC), (2.0, 0.0), id="it did not go on"),
    ],
)
def test_who_waits_for_a_save_to_begin_the_next_is_held_by_the_next(
    still: tuple[float, float], next_s: float | None, modes: tuple[Mode, ...], stalls: tuple[float, ...]
) -> None:
    """A thread writes each; what the trainer waits at the end of one it waits for the other, if it went on before."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    if next_s is not None:
        stage.write(trainer, "/ckpt/step_2.pt", next_s, 1.5, 200 * MIB)
    stage.extra += times(trainer, (still,))
    found = detect(stage, by_thread(stage.frames(FOR_SECONDS), trainer.pid))

    assert tuple(one.mode for one in found) == modes
    assert [seconds(one) for one in found] == pytest.approx(stalls, abs=0.25)


@pytest.mark.parametrize(("frames", "mode"), [(LOOP, Mode.ASYNC), (SAVING, Mode.SYNC)])
def test_who_was_met_training_while_others_wrote_waits_for_their_end(
    frames: tuple[tuple[str, str, int], ...], mode: Mode
) -> None:
    """Who prepares what others write, and then waits for them, is as busy: its stack tells."""
    looks = ((8.2, frames), (8.6, frames), (9.5, JOINING))
    found = threaded(still=((8.8, 10.0),), looks=looks, share=0.5)

    assert found.mode is mode
    assert seconds(found) == pytest.approx(1.2 if mode is Mode.ASYNC else 2.0, abs=0.25)


def test_a_wait_for_the_save_before_is_told_of_one_save() -> None:
    """Of two that begin right after it the first has waited."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for folder, start_s, lasts_s in (("/ckpt", 8.0, 2.0), ("/ckpt", 10.05, 0.2), ("/best", 10.3, 0.2)):
        step = len(stage.moves) + 1
        stage.write(trainer, f"{folder}/step_{step}/model.pt", start_s, lasts_s, 200 * MIB)
    stage.extra += times(trainer, ((8.8, 10.0),))
    found = detect(stage, by_thread(stage.frames(LONGER_SECONDS), trainer.pid))

    assert [seconds(one) for one in found] == pytest.approx([0.0, 1.2, 0.0], abs=0.25)


def test_a_wait_for_the_save_before_is_told_though_nothing_tells_of_the_copy() -> None:
    """Memory grew by another size before each: how long the copies took is unknown, the wait is not."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for step, (start_s, lasts_s) in enumerate(((8.0, 2.0), (10.05, 1.5))):
        stage.write(trainer, f"/ckpt/step_{step}.pt", start_s, lasts_s, 200 * MIB)
    stage.extra += times(trainer, ((8.8, 10.0),))
    grows = ((7.4, 7.9, 600 * MIB), (9.9, 10.04, 600 * MIB))
    first, second = detect(stage, growing(by_thread(stage.frames(FOR_SECONDS), trainer.pid), grows))

    assert (first.mode, first.stall_ns) == (Mode.ASYNC, None)
    assert second.mode is Mode.ASYNC
    assert seconds(second) == pytest.approx(1.2, abs=0.25)


def test_a_look_that_met_it_waiting_tells_nothing_of_when_it_ran() -> None:
    """On a host that is short of processors there may be one look alone."""
    found = threaded(still=((9.0, 10.0),), looks=((9.7, JOINING),))

    assert seconds(found) == pytest.approx(1.0, abs=0.2)


def test_a_wait_at_the_end_of_an_async_save_counts_as_long_as_it_lasts() -> None:
    """Nothing is saved after it: async all the same, with a stall."""
    found = threaded(still=((9.4, 10.0),), looks=((8.1, LOOP), (8.6, LOOP), (9.7, JOINING)))

    assert found.mode is Mode.ASYNC
    assert seconds(found) == pytest.approx(0.6, abs=0.2)


@pytest.mark.parametrize("frames", [SAVING, JOINING])
def test_stacks_tell_of_a_trainer_that_spins_while_it_is_held(frames: tuple[tuple[str, str, int], ...]) -> None:
    """Waiting for a GPU or a barrier takes a whole core, as training does: the stack knows better."""
    found = threaded(looks=((8.1, frames), (8.5, frames), (9.5, frames), (11.5, LOOP)))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(2.0, abs=0.1)


def test_a_function_that_holds_the_whole_loop_is_no_save_for_its_name() -> None:
    """`train_and_save` is in every stack, also long after."""
    outer = ("train_and_save", "/job/train.py", 12)
    found = threaded(looks=((8.1, (LOOP[0], outer)), (9.0, (LOOP[0], outer)), (11.5, (LOOP[0], outer))))

    assert found.mode is Mode.ASYNC


def test_a_step_of_training_is_none_of_the_save_that_it_was_called_from() -> None:
    """`save_in_background` goes on training while it waits for its thread: what is called last decides."""
    found = threaded(looks=((8.1, STEPPING), (8.6, STEPPING), (9.6, STEPPING), (11.5, LOOP)))

    assert (found.mode, found.stall_ns) == (Mode.ASYNC, 0)


@pytest.mark.parametrize(("still", "mode"), [((), Mode.ASYNC), (((8.0, 10.0),), Mode.SYNC)])
def test_a_function_named_for_a_save_is_held_to_its_pace(still: tuple[tuple[float, float], ...], mode: Mode) -> None:
    """`save_all` may train on until its thread is done, or stand still in code that no pattern knows."""
    frames = (("advance", "/job/native.py", 5), ("save_all", "/job/train.py", 60), LOOP[1])
    found = threaded(still, looks=((8.1, frames), (8.6, frames), (9.6, frames), (11.5, LOOP)))

    assert found.mode is mode


@pytest.mark.parametrize(("active", "mode"), [(True, Mode.ASYNC), (False, Mode.SYNC)])
def test_who_sleeps_in_a_function_named_for_a_save_waits_for_it(active: bool, mode: Mode) -> None:  # noqa: FBT001 # a parameter
    """In C, for threads of a library, while they use the CPU at its pace; a look in the next save is no calm one."""
    frames = (("save_all", "/job/train.py", 60), LOOP[1])
    found = threaded(looks=tuple((at_s, frames, active) for at_s in (8.1, 8.6, 9.6, 11.5)))

    assert found.mode is mode


def test_waiting_for_what_a_library_writes_in_the_background_is_async_with_a_stall() -> None:
    """The last save of a run: nothing is left to train, and the program waits for its checkpointer."""
    found = threaded(looks=((8.1, FINISHING), (8.6, FINISHING), (9.6, FINISHING), (11.5, LOOP)))

    assert found.mode is Mode.ASYNC
    assert seconds(found) == pytest.approx(2.0, abs=0.1)


def test_a_rank_that_often_waits_for_others_is_not_held_by_the_save() -> None:
    """In a collective the thread that trains stands still, too, before, during and after."""
    pauses = tuple((0.7 + count, 1.1 + count) for count in range(15))
    found = threaded(still=pauses)

    assert (found.mode, found.stall_ns) == (Mode.ASYNC, 0)


def test_who_waits_for_data_before_each_step_is_not_held_by_the_save_that_follows_one() -> None:
    """Its last steps are as short as the moment in which a state is sent, and its pauses are none of the save."""
    pauses = tuple((0.3 + 1.2 * count, 1.15 + 1.2 * count) for count in range(13))
    found = threaded(still=pauses)

    assert (found.mode, found.stall_ns) == (Mode.ASYNC, 0)


@pytest.mark.parametrize(
    ("grows", "stall"),
    [
        (((7.4, 7.9, 200 * MIB),), 0.5),
        (((7.4, 7.9, 70 * MIB),), 0.5),
        (((4.0, 8.0, 200 * MIB),), 4.0),
        (((7.4, 7.9, 20 * MIB),), 0.0),
        (((7.4, 7.9, 600 * MIB),), None),
        (tuple((0.4 + count, 0.9 + count, 200 * MIB) for count in range(15)), None),
    ],
)
def test_the_copy_of_the_state_is_told_by_the_memory_that_it_took_or_not_at_all(
    grows: tuple[tuple[float, float, int], ...], stall: float | None
) -> None:
    """Its size, right before the first byte, though slowly, or in part where it had memory left.

    Growth of another size, or one that is usual, tells nothing.
    """
    found = threaded(grows=grows)

    assert found.mode is Mode.ASYNC
    assert found.limitations
    if stall is None:
        assert found.stall_ns is None
    else:
        assert seconds(found) == pytest.approx(stall, abs=0.15)


def test_a_copy_of_the_state_ends_with_the_first_byte_at_the_latest() -> None:
    """The look at its memory that shows the last of it may come later."""
    stage = Stage(hz=4, trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.05, 2.0, 200 * MIB)
    stage.extra += times(trainer)
    (found,) = detect(stage, growing(by_thread(stage.frames(FOR_SECONDS), trainer.pid), ((7.5, 8.05, 200 * MIB),)))

    assert found.mode is Mode.ASYNC
    assert seconds(found) == pytest.approx(0.55, abs=0.05)


def forked(stage: Stage, born_s: float, exit_s: float) -> Actor:
    """Return a child of process 100 that says when it was born: a pid of the stage is a tenth of its start's ticks."""
    return stage.process(round(MONOTONIC_NS / 1e8 + born_s * 10), parent_pid=100, born_s=born_s, exit_s=exit_s)


def test_who_copies_its_state_for_a_child_is_held_until_that_is_forked() -> None:
    """To copy the tables of a large memory takes the kernel a while, in which it grows no more."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(forked(stage, 7.9, 10.1), "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    stage.extra += times(trainer)
    (found,) = detect(stage, growing(stage.frames(FOR_SECONDS), ((7.4, 7.7, 200 * MIB),)))

    assert found.mode is Mode.ASYNC
    assert seconds(found) == pytest.approx(0.5, abs=0.05)


def test_who_joins_the_children_that_write_is_held_since_the_first_was_born() -> None:
    """It runs while it forks them: that is no training."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for number, born_s in enumerate((7.7, 7.9)):
        child = forked(stage, born_s, 9.0)
        stage.write(child, f"/ckpt/step_1/part_{number}.bin", 8.0, 1.0, 100 * MIB)
    stage.extra += times(trainer, ((7.95, 9.0),))
    (found,) = detect(stage, stage.frames(LONGER_SECONDS))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(1.3, abs=0.1)


@pytest.mark.parametrize(
    ("grows", "stall"),
    [
        (((6.0, 8.0, 200 * MIB), (8.6, 8.7, -200 * MIB)), 2.6),  # pickled in memory
        (((4.0, 4.5, 300 * MIB), (4.5, 8.0, 40 * MIB), (8.6, 8.7, -340 * MIB)), 4.6),  # slowly, of a copy of its own
        (((6.0, 8.0, 200 * MIB),), 2.6),  # kept for the next save
        (((5.0, 8.0, 400 * MIB),), 3.6),  # with its pieces
        (((6.0, 7.7, 900 * MIB), (7.8, 8.0, -700 * MIB), (8.6, 8.7, -200 * MIB)), 2.6),  # which go as they are joined
        (((1.5, 8.0, 200 * MIB),), 0.6),  # it was not seen for a third as long before: training may take it
        (((6.0, 8.0, 60 * MIB), (8.6, 8.7, -60 * MIB)), 0.6),  # not what was written
        (
            tuple((5.0 + 0.2 * at, 5.1 + 0.2 * at, 200 * MIB) for at in range(15))
            + tuple((5.1 + 0.2 * at, 5.2 + 0.2 * at, -200 * MIB) for at in range(15)),
            0.6,
        ),  # taken and given back in each step
    ],
)
def test_a_save_begins_when_the_memory_grows_that_it_writes(
    grows: tuple[tuple[float, float, int], ...], stall: float
) -> None:
    """A state that is pickled in memory before its one write holds training from then on."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 0.6, 200 * MIB)
    stage.extra += times(trainer)
    frames = growing(stage.frames(FOR_SECONDS), grows)
    anonymous = changed(
        frames, lambda one: msgspec.structs.replace(one, rss_file_bytes=0) if isinstance(one, ProcessStat) else one
    )
    (found,) = detect(stage, anonymous)

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(stall, abs=0.15)


def test_a_thread_that_ran_for_longer_than_since_the_last_frame_did_not_stand_still_until_then() -> None:
    """A recording that keeps its times once a second has no pauses of a second."""
    stage = Stage(hz=10, trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 0.8, 200 * MIB)
    seldom = [pair for pair in times(trainer, ((8.0, 8.8),)) if pair[0] % 1 == 0 or pair[0] > 7.9]
    stage.extra += seldom
    (found,) = detect(stage, by_thread(stage.frames(FOR_SECONDS), trainer.pid))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(0.8, abs=0.15)


def test_who_waits_to_the_end_of_a_save_is_held_to_it_though_the_last_look_comes_later() -> None:
    """What it ran in that look it ran after the end: the time before was too short for a look of its own."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.04, 0.19, 200 * MIB)
    for at_s in (count * 0.12 for count in range(130)):
        ran = at_s - max(0.0, min(at_s, 8.23) - 8.04)
        time = ThreadTime(trainer.pid, trainer.info.start_ticks, trainer.pid, int(ran * 1e9), 0, int(ran * 100))
        stage.extra.append((at_s, time))
    (found,) = detect(stage, by_thread(stage.frames(FOR_SECONDS), trainer.pid))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(0.19, abs=0.03)


def test_a_rank_that_waits_for_the_last_one_is_held_until_that_is_done() -> None:
    """Rank 0 writes for 0.2 s, then waits for rank 1, which comes three seconds later."""
    stage = Stage(trace=True)
    first, late = (
        stage.process(number, environment={"RANK": str(number - 100), "WORLD_SIZE": "2"}) for number in (100, 101)
    )
    stage.write(first, "/ckpt/step_1/model_rank_0.pt", 8.0, 0.2, 200 * MIB)
    stage.write(late, "/ckpt/step_1/model_rank_1.pt", 11.0, 0.2, 200 * MIB)
    stage.extra += times(first, ((8.2, 11.2),))
    stage.extra += times(late, ((8.0, 11.0),))
    (found,) = detect(stage, stage.frames(LONGER_SECONDS))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(3.2, abs=0.3)


@pytest.mark.parametrize("looks", [(), ((8.1, UNKNOWN), (11.5, LOOP))])
def test_a_trainer_that_sleeps_is_judged_by_its_wakings(
    looks: tuple[tuple[float, tuple[tuple[str, str, int], ...]], ...],
) -> None:
    """It hardly uses the CPU, but wakes up twenty times a second unless it is held."""
    held = threaded(still=((8.0, 10.0),), share=0.01, slices=20.0)
    free = threaded(looks=looks, share=0.01, slices=20.0)

    assert (held.mode, free.mode) == (Mode.SYNC, Mode.ASYNC)
    assert seconds(held) == pytest.approx(2.0, abs=0.35)


def sleeping(
    actor: Actor, still: tuple[tuple[float, float], ...], computed: tuple[tuple[float, float], ...]
) -> list[tuple[float, Sample]]:
    """Return the pace of a thread that wakes 40 times a second but for some times, in which it may use a core."""
    found: list[tuple[float, Sample]] = []
    for count in range(int(FOR_SECONDS * 25)):
        at_s = count / 25
        idle_s, ran_s = (sum(max(0.0, min(at_s, high) - low) for low, high in spans) for spans in (still, computed))
        on_cpu_ns = int((0.01 * (at_s - idle_s) + ran_s) * 1e9)
        found.append(
            (at_s, ThreadTime(actor.pid, actor.info.start_ticks, actor.pid, on_cpu_ns, 0, int((at_s - idle_s) * 40)))
        )
    return found


@pytest.mark.parametrize(("computed", "mode"), [(((2.0, 3.0), (5.0, 6.0)), Mode.SYNC), ((), None)])
def test_what_a_sleeper_computed_is_no_pause_of_its_own(
    computed: tuple[tuple[float, float], ...], mode: Mode | None
) -> None:
    """It made its tensors without waking; had it stood still so long, this pause would tell nothing of the save."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 0.5, 200 * MIB)
    stage.extra += sleeping(trainer, ((2.0, 3.0), (5.0, 6.0), (8.0, 8.5)), computed)
    (found,) = detect(stage, by_thread(stage.frames(FOR_SECONDS), trainer.pid))

    assert found.mode is mode
    assert mode is not None or any("for no longer than it does" in sentence for sentence in found.limitations)


def test_a_look_at_the_end_of_a_save_tells_nothing_of_the_rest() -> None:
    """The file was whole, the wait was over, and the loop went on before the last sign of the save was seen."""
    found = threaded(still=((8.0, 9.97),), looks=((9.98, LOOP), (11.5, LOOP)))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(
    ("frames", "folder", "mode", "stall"),
    [
        pytest.param(LOOP, "/ckpt", Mode.ASYNC, None, id="it trained"),
        pytest.param(SAVING, "/ckpt", Mode.SYNC, None, id="it waited"),
        pytest.param(LOOP, "/other", None, None, id="elsewhere it may save in another way"),
    ],
)
def test_a_save_of_which_nothing_tells_is_made_as_that_before_of_its_series(
    frames: tuple[tuple[str, str, int], ...], folder: str, mode: Mode | None, stall: float | None
) -> None:
    """Of the first a look at its stack told; it has no rhythm that could tell of the second."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 3.0, 2.0, 200 * MIB)
    stage.write(trainer, f"{folder}/step_2.pt", 10.0, 2.0, 200 * MIB)
    stage.extra += [*times(trainer, share=0.1, slices=0.1), stacks(trainer, 4.0, frames)]
    first, second = detect(stage, by_thread(stage.frames(LONGER_SECONDS), trainer.pid))

    assert first.mode is (Mode.SYNC if frames is SAVING else Mode.ASYNC)
    assert second.mode is mode
    assert stall == (None if second.stall_ns is None else pytest.approx(seconds(second), abs=0.1))


@pytest.mark.parametrize("size", [20 * MIB, 200 * MIB])
def test_a_save_that_is_taken_for_async_has_no_stall_that_nothing_tells(size: int) -> None:
    """Whatever a copy of it would have taken: that it did not stand still otherwise was not seen either."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for step, start_s in ((1, 3.0), (2, 10.0)):
        stage.write(trainer, f"/ckpt/step_{step}.pt", start_s, 2.0, size)
    stage.extra += [*times(trainer, share=0.1, slices=0.1), stacks(trainer, 4.0, LOOP)]
    _, second = detect(stage, by_thread(stage.frames(LONGER_SECONDS), trainer.pid))

    assert (second.mode, second.stall_ns) == (Mode.ASYNC, None)
    assert any("neither its memory nor its rhythm shows" in sentence for sentence in second.limitations)


def test_nothing_is_invented_where_nothing_tells() -> None:
    """A trainer without rhythm, and no stacks: neither mode nor stall, and a sentence that says why."""
    found = threaded(share=0.0, slices=0.1)

    assert (found.mode, found.stall_ns) == (None, None)
    assert any(sentence.startswith("whether training went on") for sentence in found.limitations)


@pytest.mark.parametrize(
    ("still", "mode"), [((), Mode.ASYNC), (((7.0, 10.1),), Mode.SYNC), (((2.0, 10.1),), Mode.SYNC)]
)
def test_a_child_that_writes_is_held_against_its_parent(still: tuple[tuple[float, float], ...], mode: Mode) -> None:
    """The trainer is who started the child, whether it joins the child or goes on; what it waits is not its rhythm."""
    stage = Stage(trace=True)
    trainer = stage.process()
    child = stage.process(200, parent_pid=100, born_s=7.2, exit_s=10.1)
    stage.write(child, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    stage.extra += times(trainer, still)
    (found,) = detect(stage)

    assert found.mode is mode
    assert [writer.role for writer in found.writers] == ["child"]
    assert (found.stall_ns or 0) / 1e9 == pytest.approx(sum(end - start for start, end in still), abs=0.4)


def test_who_sends_its_state_to_a_child_that_it_started_is_held_since_it_stood_still() -> None:
    """A fresh Python imports for 4 s, gets the state within 0.3 s, and writes; that burst is no rhythm and no end."""
    stage = Stage(trace=True)
    trainer = stage.process()
    child = stage.process(200, parent_pid=100, born_s=3.7, exit_s=9.1)
    stage.write(child, "/ckpt/step_1.pt", 8.0, 1.0, 200 * MIB)
    stage.extra += times(trainer, ((3.6, 7.6), (7.9, 9.1)))
    (found,) = detect(stage)

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(5.5, abs=0.4)


def test_who_waits_for_several_children_is_held_between_their_files_too() -> None:
    """It sends one what the other has done with."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for number in range(2):
        child = stage.process(200 + number, parent_pid=100, born_s=7.8, exit_s=11.0)
        stage.write(child, f"/ckpt/step_1/part_{number}.bin", 8.0 + 1.2 * number, 0.3, 100 * MIB)
    stage.extra += times(trainer, ((7.9, 9.6),))
    (found,) = detect(stage, stage.frames(LONGER_SECONDS))

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(1.7, abs=0.3)


@pytest.mark.parametrize(
    ("until_s", "mode"),
    [
        pytest.param(8.4, Mode.SYNC, id="it runs again as the save ends"),
        pytest.param(FOR_SECONDS, Mode.ASYNC, id="it has another way by now"),
    ],
)
def test_who_leaves_its_way_for_as_long_as_a_save_is_held_though_it_stirs(until_s: float, mode: Mode) -> None:
    """Each of several threads wakes it when it is done."""
    stage = Stage()
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 0.4, 200 * MIB)
    ran_ns = 0
    for count in range(int(FOR_SECONDS * 25)):
        at_s = count / 25
        ran_ns += 2_000_000 if 8.0 < at_s <= until_s else 38_000_000
        sample = ThreadTime(trainer.pid, trainer.info.start_ticks, trainer.pid, ran_ns, 0, int(60 * at_s), 0, 0)
        stage.extra.append((at_s, sample))
    (found,) = detect(stage)

    assert found.mode is mode
    if mode is Mode.SYNC:
        assert seconds(found) == pytest.approx(0.4, abs=0.15)


def test_a_child_that_its_parent_left_to_others_is_held_against_who_forked_it() -> None:
    """It was forked twice, so that nobody has to wait for it: what runs the same program goes on."""
    stage = Stage(trace=True)
    trainer = stage.process()
    orphan = stage.process(200, parent_pid=1, is_fork=True, born_s=7.8, exit_s=11.0)
    stage.write(orphan, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    stage.extra += times(trainer)
    (found,) = detect(stage)

    assert (found.mode, found.stall_ns) == (Mode.ASYNC, 0)
    assert found.writers[0].role == "child"


def met(actor: Actor, call: int, start_s: float, end_s: float) -> list[tuple[float, Sample]]:
    """Return looks at a main thread that sleeps in one call throughout, ten a second."""
    look = ThreadSample(
        pid=actor.pid, start_ticks=actor.info.start_ticks, tid=actor.pid, comm="python3", on_cpu_ns=SECOND_NS,
        waited_ns=0, user_ticks=50, system_ticks=50, major_faults=0, block_delay_ticks=None, state="S", call=call,
        wait=None,
    )  # fmt: skip
    at_s = [start_s + 0.1 * number for number in range(round((end_s - start_s) * 10))]
    return [(each, msgspec.structs.replace(look, at_ns=MONOTONIC_NS + int(each * SECOND_NS))) for each in at_s]


@pytest.mark.parametrize(("call", "end_s", "mode"), [(61, 10.1, Mode.SYNC), (61, 8.5, None), (202, 10.1, None)])
def test_who_is_met_waiting_for_a_child_that_writes_is_blocked(call: int, end_s: float, mode: Mode | None) -> None:
    """In wait4(2), for most of the time: it has no rhythm that it could have missed, and no stack was seen."""
    stage = Stage()
    trainer = stage.process()
    child = stage.process(200, parent_pid=100, born_s=7.2, exit_s=10.1)
    stage.write(child, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    stage.extra += [*times(trainer, share=0.1, slices=0.1), *met(trainer, call, 7.5, end_s)]
    (found,) = detect(stage)

    assert found.mode is mode
    assert found.stall_ns is None or seconds(found) == pytest.approx(2.0, abs=0.2)


def test_what_it_waited_for_the_save_before_is_no_usual_pause() -> None:
    """It stood still from before the first byte until after the last one, both times."""
    still = ((4.3, 6.3), (9.3, 11.3))
    stage = Stage()
    trainer = stage.process()
    for number, (start_s, end_s) in enumerate(still):
        child = stage.process(200 + number, parent_pid=100, born_s=start_s, exit_s=end_s)
        stage.write(child, f"/ckpt/step_{number + 1}.pt", start_s + 0.2, 1.5, 200 * MIB)
    stage.extra += times(trainer, still)

    found = detect(stage)

    assert [one.mode for one in found] == [Mode.SYNC] * 2


def test_who_wrote_but_a_note_does_not_tell_the_mode_of_all() -> None:
    """Rank 1 went on, and wrote 8 KB; of rank 0, whose child wrote all else, nothing tells."""
    stage = Stage(trace=True)
    for rank, size in ((0, 200 * MIB), (1, 8 << 10)):
        job = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
        trainer = stage.process(100 + rank, environment=job)
        child = stage.process(200 + rank, parent_pid=100 + rank, born_s=7.2, exit_s=10.1, environment=job)
        stage.write(child, f"/ckpt/step_1/__{rank}_0.distcp", 8.0, 2.0, size)
        stage.extra += times(trainer) if rank else times(trainer, share=0.1, slices=0.1)
    (found,) = detect(stage, stage.frames(LONGER_SECONDS))

    assert (found.ranks, found.mode, found.stall_ns) == (2, None, None)


def on_gpu(
    uses: dict[int, Callable[[float], int | None]], *, by_stacks: bool = False, others: int = 0, ranks: int = 1
) -> Checkpoint:
    """Return the save of a trainer that spins on its CPU while GPUs compute; a point each 0.2 s, or None."""
    stage = Stage(trace=True)
    environment = {"RANK": "0", "WORLD_SIZE": str(ranks)} if ranks > 1 else {}
    trainer = stage.process(runtimes=("torch", "cuda"), environment=environment)
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    stage.extra += times(trainer, slices=4.0)
    stage.extra += [stacks(trainer, 9.0, SAVING)] if by_stacks else []
    for gpu, use in uses.items():
        for second in range(1, 15):
            at_s = [second - 0.2 * number for number in range(5, 0, -1)]
            told = ((MONOTONIC_NS + int(each * SECOND_NS), use(each)) for each in at_s)
            points = tuple((at_ns, percent) for at_ns, percent in told if percent is not None)
            use_of = GpuUse(100, trainer.info.start_ticks, gpu, points, others, second * MIB, 0)
            stage.extra.append((float(second), use_of))
    (found,) = detect(stage, by_thread(stage.frames(FOR_SECONDS), trainer.pid))
    return found


IN_THE_DARK = ("unused", "often idle", "not looked at", "not known before")


@pytest.mark.parametrize(
    ("use", "mode", "stall"),
    [
        (lambda at_s: 0 if 8.0 < at_s <= 10.2 else 95, Mode.SYNC, 2.0),
        (lambda at_s: 0 if 7.0 < at_s <= 8.05 else 95, Mode.ASYNC, 1.0),  # its state was copied before
        (lambda at_s: 0 if 8.0 < at_s <= 8.4 else 95, Mode.ASYNC, 0.4),
        (lambda at_s: 40 if 8.0 < at_s <= 8.2 else 0 if 8.2 < at_s <= 8.4 else 95, Mode.ASYNC, 0.3),
        (lambda at_s: 0 if 2.0 < at_s <= 3.0 or 4.0 < at_s <= 5.0 or 8.0 < at_s <= 9.0 else 95, Mode.ASYNC, 0.0),
        (lambda _: 95, Mode.ASYNC, 0.0),
        (lambda _: 7, None, None),  # it trains elsewhere
        (lambda at_s: 95 if round(at_s * 5) % 5 < 3 else 0, None, None),  # it often waits
        (lambda at_s: None if 8.0 < at_s < 12.0 else 95, None, None),  # nothing is told of the time of the save
        (lambda at_s: None if at_s < 7.3 else 0 if 8.0 < at_s <= 10.2 else 95, None, None),  # or of what is usual
    ],
    ids=["held", "held before", "held at first", "in part", "as it often is", "on", *IN_THE_DARK],
)
def test_a_gpu_that_stands_still_tells_that_training_is_held(
    use: Callable[[float], int | None], mode: Mode | None, stall: float | None
) -> None:
    """Its process waits for it on the CPU in any case: that tells nothing."""
    found = on_gpu({0: use})

    assert found.mode is mode
    assert any("GPU was idle" in evidence.text for evidence in found.evidence) is (mode is not None)
    if stall is None:
        assert found.stall_ns is None
    else:
        assert seconds(found) == pytest.approx(stall, abs=0.05 if stall < 1.5 else 0.25)


@pytest.mark.parametrize(("until_s", "sent"), [(10.2, 3 * MIB), (8.4, None)], ids=["sync", "async"])
def test_what_gpus_send_while_training_goes_on_is_none_of_the_save(until_s: float, sent: int | None) -> None:
    """A MiB each second; who is held for the whole of it sends nothing else."""
    found = on_gpu({0: lambda at_s: 0 if 8.0 < at_s <= until_s else 95})

    assert found.mode is (Mode.SYNC if sent else Mode.ASYNC)
    assert found.measures is not None
    assert found.measures.gpu_sent_bytes == sent


def test_of_several_gpus_the_one_that_waited_longest_holds_training() -> None:
    """It waits for the others in none of its kernels."""
    waits = {0: lambda _: 95, 1: lambda at_s: 0 if 8.0 < at_s <= 10.2 else 80}

    assert on_gpu(waits).mode is Mode.SYNC


@pytest.mark.parametrize(
    ("others", "ranks", "mode"),
    [(0, 1, Mode.ASYNC), (1, 1, Mode.SYNC), (0, 2, Mode.SYNC)],
    ids=["alone", "beside another process", "beside another rank"],
)
def test_a_gpu_that_computes_is_believed_before_a_stack_where_it_computes_for_one_alone(
    others: int, ranks: int, mode: Mode
) -> None:
    """Else it may compute for another process, or wait for other ranks in a kernel of a collective."""
    assert on_gpu({0: lambda _: 95}, by_stacks=True, others=others, ranks=ranks).mode is mode


def test_ranks_save_in_one_way_and_the_one_that_was_looked_at_tells_it() -> None:
    """Rank 0 seems to go on by its pace alone, and wrote more; rank 1 was met in the save."""
    stage = Stage(trace=True)
    for rank, size in ((0, 220), (1, 200)):
        job = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
        trainer = stage.process(100 + rank, environment=job)
        child = stage.process(200 + rank, parent_pid=100 + rank, born_s=7.2, exit_s=10.1, environment=job)
        stage.write(child, f"/ckpt/step_1/__{rank}_0.distcp", 8.0, 2.0, size * MIB)
        stage.extra += times(trainer, ((7.8, 10.1),) if rank else ())
        stage.extra += [stacks(trainer, 9.0, SAVING)] if rank else []
    (found,) = detect(stage, stage.frames(LONGER_SECONDS))

    assert (found.ranks, found.mode) == (2, Mode.SYNC)
    assert seconds(found) == pytest.approx(2.2, abs=0.3)


@pytest.mark.parametrize(("wakes", "mode"), [(100, Mode.ASYNC), (20, None)])
def test_who_computed_in_a_part_of_a_look_did_not_go_on(wakes: int, mode: Mode | None) -> None:
    """Half of the usual time on CPU, but seldom woken: it may have computed first and then waited."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    before = [one for one in times(trainer, slices=100.0) if one[0] <= 8.0]
    last = before[-1][1]
    assert isinstance(last, ThreadTime)
    stage.extra += before
    for look in (1, 2):
        on_cpu_ns, slices = last.on_cpu_ns + look * 450_000_000, last.slices + look * wakes // 2
        stage.extra.append((8.0 + look, msgspec.structs.replace(last, on_cpu_ns=on_cpu_ns, slices=slices)))
    (found,) = detect(stage, by_thread(stage.frames(FOR_SECONDS), trainer.pid))

    assert found.mode is mode


@pytest.mark.parametrize(("busy_s", "frames", "stall"), [(0.0, (), 2.0), (3.0, LOOP, 2.0), (3.0, (), 10.0)])
def test_workers_of_a_launcher_train_themselves(
    busy_s: float, frames: tuple[tuple[str, str, int], ...], stall: float
) -> None:
    """A parent that waits for them does not train; one that waits for a child to save and to end does."""
    stage = Stage(trace=True)
    launcher = stage.process(100)
    worker = stage.process(200, parent_pid=100)
    stage.write(worker, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    stage.extra += [*times(launcher, ((busy_s, FOR_SECONDS),)), *times(worker), stacks(worker, 11.3, frames)]
    (found,) = detect(stage)

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(stall, abs=0.1)


@pytest.mark.parametrize(
    ("lives", "waits", "mode", "stall"),
    [
        ((0.5, FOR_SECONDS), (0.7, FOR_SECONDS), Mode.ASYNC, 0.0),
        ((0.5, FOR_SECONDS), (7.0, 9.2), Mode.SYNC, 2.0),
        ((4.0, 9.8), (4.2, 9.8), Mode.SYNC, 5.6),
    ],
)
def test_who_waits_while_its_other_child_trains_is_a_launcher(
    lives: tuple[float, float], waits: tuple[float, float], mode: Mode, stall: float
) -> None:
    """A daemon writes. Who trained itself and has a data loader is blocked, and who starts two children to save."""
    stage = Stage(trace=True)
    parent, writer, other = stage.process(), forked(stage, *lives), forked(stage, lives[0] + 0.1, lives[1])
    stage.write(writer, "/ckpt/step_1.pt", 7.2, 2.0, 200 * MIB)
    stage.extra += [*times(parent, (waits,)), *met(parent, 61, *waits)]
    stage.extra += [
        *times(writer, ((lives[0], FOR_SECONDS),)),
        *times(other, ((0.0, lives[0]), (lives[1], FOR_SECONDS))),
    ]
    (found,) = detect(stage)

    assert (found.mode, seconds(found)) == (mode, pytest.approx(stall, abs=0.2))


@pytest.mark.parametrize("trace", [True, False])
def test_who_joins_a_child_that_it_starts_for_each_save_is_no_launcher(*, trace: bool) -> None:
    """It computes before it writes and after, as a check does; no save of its job was in the life of the second one."""
    stage, lives = Stage(trace=trace), ((1.0, 6.2), (8.0, 13.2))
    trainer = stage.process()
    stage.extra += times(trainer, lives)
    for number, (born_s, exit_s) in enumerate(lives):
        child = forked(stage, born_s, exit_s)
        stage.write(child, f"/ckpt/step_{number + 1}.pt", born_s + 1.5, 0.5, 200 * MIB)
        stage.extra += [*times(child, ((0.0, born_s), (exit_s, FOR_SECONDS))), *met(trainer, 61, born_s + 0.1, exit_s)]

    *_, second = detect(stage)

    assert (second.writers[0].role, seconds(second)) == ("child", pytest.approx(5.0, abs=0.2))


def test_polling_tells_the_writer_by_what_its_main_thread_wrote() -> None:
    """/proc/PID/task/PID/io: the main thread's own bytes are those of the file, or they are not."""
    modes = []
    for share in (1.0, 0.0):
        stage = Stage()
        trainer = stage.process()
        move = stage.write(trainer, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
        for when_s, sample in times(trainer):
            assert isinstance(sample, ThreadTime)
            written = int(move.moved(when_s) * share)
            stage.extra.append((when_s, msgspec.structs.replace(sample, written_chars=written, read_chars=0)))
        (found,) = detect(stage)
        modes.append((found.mode, found.writers[0].role))

    assert modes == [(Mode.SYNC, "trainer"), (Mode.ASYNC, "thread")]


@pytest.mark.parametrize(
    ("until_s", "stall", "listed_s", "hz", "is_counted"),
    [
        pytest.param(10.0, 2.0, 0.0, 25, False, id="deletes in line"),
        pytest.param(8.5, 0.5, 0.0, 25, False, id="trains at once"),
        pytest.param(10.0, 2.0, 1.0, 25, False, id="had looked for it in the kernel, too"),
        pytest.param(10.0, 2.0, 0.0, 3, False, id="the last byte is counted late"),
        pytest.param(10.0, 2.0, 0.0, 25, True, id="its thread is counted, too"),
    ],
)
def test_who_runs_in_the_kernel_alone_after_its_last_byte_is_held_until_it_runs_its_own_code(
    until_s: float, stall: float, listed_s: float, hz: float, *, is_counted: bool
) -> None:
    """On a crowded host a look meets it waiting for a processor, and in no call: the kernel counts for whom it ran."""
    stage = Stage(hz=hz)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 0.5, 200 * MIB)
    stage.extra += times(trainer, share=1.0) if is_counted else []
    frames = []
    for frame in stage.frames(FOR_SECONDS):
        at_s = (frame.at_ns - MONOTONIC_NS) / SECOND_NS
        in_kernel = int(100 * (min(max(at_s, 8.5), until_s) - 8.5 + min(max(at_s - 8.0 + listed_s, 0.0), listed_s)))

        def split(sample: Sample, in_kernel: int = in_kernel) -> Sample:
            if not isinstance(sample, ProcessStat):
                return sample
            own = sample.user_ticks - in_kernel
            return msgspec.structs.replace(sample, user_ticks=own, system_ticks=in_kernel, threads=1)

        frames += changed([frame], split)
    (found,) = detect(stage, frames)

    assert found.mode is Mode.SYNC
    assert seconds(found) == pytest.approx(stall, abs=0.15)
    if is_counted:
        verdict = diagnose(found).verdict
        assert found.measures is not None
        assert found.measures.clean_up_after_ns == pytest.approx(1.5 * SECOND_NS, abs=0.15 * SECOND_NS)
        assert verdict is not None
        assert verdict.limit is Limit.CLEAN_UP


def test_polling_gives_each_byte_of_the_main_thread_to_one_file() -> None:
    """It writes the model, and goes on; another thread writes the average of it beside, slowly: that is not its own."""
    stage = Stage()
    trainer = stage.process()
    move = stage.write(trainer, "/ckpt/model_1.pt", 8.0, 0.3, 300 * MIB)
    stage.write(trainer, "/ckpt/ema_1.pt", 8.0, 2.0, 100 * MIB)
    for when_s, sample in times(trainer):
        assert isinstance(sample, ThreadTime)
        stage.extra.append((when_s, msgspec.structs.replace(sample, written_chars=move.moved(when_s), read_chars=0)))

    (found,) = detect(stage)

    assert found.mode is Mode.ASYNC
    assert seconds(found) == pytest.approx(0.3, abs=0.15)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_of_one_thread_is_blocked_by_what_it_writes(threads: int) -> None:
    """Whatever library it has: its threads are counted with it. Of two nobody knows which one wrote."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)

    def counted(sample: Sample) -> Sample:
        return msgspec.structs.replace(sample, threads=threads) if isinstance(sample, ProcessStat) else sample

    (found,) = detect(stage, changed(stage.frames(FOR_SECONDS), counted))

    if threads > 1:
        assert (found.mode, found.stall_ns) == (None, None)
        assert any("the training thread was not sampled" in text for text in found.limitations)
    else:
        assert (found.mode, found.stall_ns) == (Mode.SYNC, pytest.approx(2 * SECOND_NS, rel=0.05))


@pytest.mark.parametrize(
    ("call", "state", "others", "role"),
    [(26, "S", 1, "trainer"), (202, "S", 1, "thread"), (-1, "R", 0, "trainer")],
    ids=["msync", "futex", "runs-alone"],
)
def test_polling_tells_the_writer_by_where_its_main_thread_was_met(
    call: int, state: str, others: int, role: str
) -> None:
    """What is written by a mapping is in no counter; who trains was met in msync(2), waiting, or running alone."""
    stage = Stage()
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 8.0, 2.0, 200 * MIB)
    for when_s, sample in times(trainer):
        assert isinstance(sample, ThreadTime)
        stage.extra.append((when_s, msgspec.structs.replace(sample, written_chars=0, read_chars=0)))
    for at_s in (8.1 + 0.1 * number for number in range(19)):
        look = ThreadSample(
            pid=trainer.pid, start_ticks=trainer.info.start_ticks, tid=trainer.pid, comm="python3",
            on_cpu_ns=SECOND_NS, waited_ns=0, user_ticks=50, system_ticks=50, major_faults=0, block_delay_ticks=None,
            state=state, call=call, wait=None, at_ns=MONOTONIC_NS + int(at_s * SECOND_NS),
        )  # fmt: skip
        stage.extra += [(at_s, msgspec.structs.replace(look, tid=look.tid + other)) for other in range(others + 1)]

    (found,) = detect(stage, uncounted(stage.frames(FOR_SECONDS)))

    assert found.mode is (Mode.SYNC if role == "trainer" else Mode.ASYNC)
    assert found.writers[0].role == role


def test_of_a_flood_of_files_the_writer_of_those_that_the_trace_told_of_is_that_of_all() -> None:
    """It had no room for most; whose thread wrote those is not seen, and its stack has no word of a save."""
    stage = Stage(trace=True)
    trainer = stage.process()
    moves = [stage.write(trainer, f"/ckpt/step_1/part_{n:02}.bin", 8.0 + 0.1 * n, 0.09, 10 * MIB) for n in range(20)]
    stage.extra += times(trainer)
    stage.extra += [stacks(trainer, at_s, UNKNOWN) for at_s in (6.0, 7.0, 8.5, 9.0, 9.5, 11.0, 12.0)]
    dropped = {move.inode for move in moves[2:]}

    def told(sample: Sample) -> Sample | None:
        return None if isinstance(sample, (FileActivity, FileLifeEvent)) and sample.inode in dropped else sample

    (found,) = detect(stage, changed(stage.frames(LONGER_SECONDS), told))

    assert found.files == 20
    assert (found.mode, found.writers[0].role) == (Mode.SYNC, "trainer")
    assert seconds(found) == pytest.approx(2.0, abs=0.1)


def test_a_restore_holds_who_reads_it() -> None:
    """It has no mode; training begins when it is over."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.read(trainer, "/ckpt/step_1.pt", 2.0, 1.5, 200 * MIB)
    stage.extra += times(trainer)
    (found,) = detect(stage)

    assert found.mode is None
    assert seconds(found) == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize(
    ("grows", "stall"),
    [
        ((), 0.5),
        (((8.5, 10.5, 100 * MIB),), 2.5),  # parsed
        (((8.5, 12.5, 100 * MIB),), 4.5),  # for longer than an event is waited for
        (((9.2, 10.5, 100 * MIB),), 0.5),  # training that begins
    ],
)
def test_a_restore_holds_who_builds_of_what_it_read(grows: tuple[tuple[float, float, int], ...], stall: float) -> None:
    """From the last byte on, as its memory tells."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.read(trainer, "/ckpt/step_1.pt", 8.0, 0.5, 200 * MIB)
    stage.extra += times(trainer)
    (found,) = detect(stage, growing(stage.frames(FOR_SECONDS), grows))

    assert seconds(found) == pytest.approx(stall, abs=0.15)


def test_what_took_memory_ever_since_the_save_before_is_training() -> None:
    """Though it is given back with the last byte."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for at_s, step in ((4.0, 1), (8.0, 2)):
        stage.write(trainer, f"/ckpt/step_{step}.pt", at_s, 0.4, 200 * MIB)
    stage.extra += times(trainer)
    frames = growing(stage.frames(FOR_SECONDS), ((4.5, 8.0, 200 * MIB), (8.6, 8.7, -200 * MIB)))

    assert [seconds(one) for one in detect(stage, frames)] == pytest.approx([0.4, 0.4], abs=0.15)


def test_who_kept_memory_of_an_earlier_save_may_build_the_next_one_unseen() -> None:
    """That is said, from the second save on; and after two that were built alike the third's stall is not known."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for at_s, step in ((3.0, 1), (7.0, 2), (11.0, 3)):
        stage.write(trainer, f"/ckpt/step_{step}.pt", at_s, 0.4, 200 * MIB)
    stage.extra += times(trainer)
    grows = ((2.0, 3.0, 200 * MIB), (6.0, 7.0, 200 * MIB))
    built, again, unseen = detect(stage, growing(stage.frames(FOR_SECONDS), grows))
    first, second, third = detect(stage, growing(stage.frames(FOR_SECONDS), grows[:1]))

    assert [seconds(one) for one in (built, again)] == pytest.approx([1.4, 1.4], abs=0.15)
    assert (unseen.mode, unseen.stall_ns) == (Mode.SYNC, None)
    assert [seconds(one) for one in (first, second, third)] == pytest.approx([1.4, 0.4, 0.4], abs=0.15)
    assert ["memory left from an earlier save" in " ".join(one.limitations) for one in (first, second, third)] == [
        False,
        True,
        True,
    ]


def profiled(
    actor: Actor, until_s: float, *places: tuple[float, tuple[tuple[str, str, int], ...]]
) -> list[tuple[float, Sample]]:
    """Return what a profile shows of each place from a second on, eight times a second; it comes at its end."""
    found = []
    for (since_s, frames), (next_s, _) in itertools.pairwise([*places, (until_s, ())]):
        for count in range(int((next_s - since_s) * 8)):
            _, sample = stacks(actor, since_s + count / 8, frames)
            found.append((until_s, msgspec.structs.replace(sample, interval_ns=SECOND_NS // 8)))
    return found


def test_a_profile_of_its_stack_shows_since_when_it_prepared_a_save() -> None:
    """Two saves with a digest before the first byte; of the third only a part shows in memory: its stall is unknown."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for at_s, step in ((3.0, 1), (7.0, 2), (11.0, 3)):
        stage.write(trainer, f"/ckpt/step_{step}.pt", at_s, 0.4, 200 * MIB)
        if step < 3:
            digests = at_s - 1.0, (("digest", "/job/train.py", 44), ("main", "/job/train.py", 90))
            stage.extra += profiled(
                trainer, at_s + 1.2, (at_s - 2.5, LOOP), digests, (at_s, SAVING), (at_s + 0.4, LOOP)
            )
    stage.extra += times(trainer)
    grows = ((10.8, 11.0, 200 * MIB), (11.4, 11.5, -200 * MIB))

    first, second, third = detect(stage, growing(stage.frames(FOR_SECONDS), grows))

    assert [seconds(one) for one in (first, second)] == pytest.approx([1.4, 1.4], abs=0.15)
    assert (third.mode, third.stall_ns) == (Mode.SYNC, None)
    assert "its stacks were not sampled" in " ".join(third.limitations)


def test_memory_that_grows_while_its_stack_is_training_is_none_of_the_save() -> None:
    """It allocates for its next steps."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 6.0, 0.4, 200 * MIB)
    stage.extra += times(trainer)
    stage.extra += profiled(trainer, 7.0, (1.0, LOOP), (6.0, SAVING), (6.4, LOOP))

    (checkpoint,) = detect(stage, growing(stage.frames(FOR_SECONDS), ((4.0, 6.0, 200 * MIB),)))

    assert seconds(checkpoint) == pytest.approx(0.4, abs=0.15)


def test_what_a_thread_then_writes_is_prepared_before() -> None:
    """The training thread takes a digest, starts the thread, and trains on."""
    stage = Stage(trace=True)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1.pt", 6.0, 1.0, 200 * MIB)
    stage.extra += times(trainer)
    digests = (("digest", "/job/train.py", 44), ("main", "/job/train.py", 90))
    stage.extra += profiled(trainer, 8.0, (1.0, LOOP), (5.0, digests), (5.9, LOOP))

    (checkpoint,) = detect(stage, by_thread(stage.frames(FOR_SECONDS), trainer.pid))

    assert checkpoint.mode is Mode.ASYNC
    assert seconds(checkpoint) == pytest.approx(0.9, abs=0.15)


@pytest.mark.parametrize(("trace", "program"), [*itertools.product([True, False], ["python3", "cp", "rsync"])])
def test_who_waits_for_a_child_that_carries_its_files_is_held_until_that_is_done(*, trace: bool, program: str) -> None:
    """A child takes each save from scratch to a store, and fetches the last one: one save or restore, of the store."""
    stage, size = Stage(trace=trace), 100 * MIB
    trainer = stage.process(runtimes=("numpy",))
    still: list[tuple[float, float]] = []

    def carried(at_s: float, source: str, target: str) -> None:
        pid = (MONOTONIC_NS + int(at_s * SECOND_NS)) * 10 // SECOND_NS + 1  # a stage's process starts at tick 10 * pid
        reader, writer = (
            stage.process(
                one, parent_pid=above, comm=program, program=program, runtimes=(), busy=0.1, born_s=at_s,
                exit_s=at_s + 1.6,
            )
            for one, above in ((pid, trainer.pid), (pid + 1, pid))
        )  # fmt: skip
        stage.read(reader, source, at_s + 0.05, 1.5, size, from_disk=False, kept=0.0)
        stage.write(
            writer if program == "rsync" else reader, target, at_s + 0.06, 1.5, size, magic=b"PK\x03\x04" + bytes(12)
        )
        still.append((at_s, at_s + 1.6))

    for number, at_s in enumerate((4.0, 8.0), 1):
        stage.write(trainer, f"/run/scratch/state_{number}0.npz", at_s, 0.2, size)
        carried(at_s + 0.22, f"/run/scratch/state_{number}0.npz", f"/run/store/state_{number}0.npz")
    carried(13.0, "/run/store/state_20.npz", "/run/scratch/resume.npz")
    stage.read(trainer, "/run/scratch/resume.npz", 14.62, 0.1, size, from_disk=False)
    stage.extra += times(trainer, tuple(still))

    first, second, restore = detect(stage, stage.frames(LONGER_SECONDS))

    assert [one.path for one in (first, second, restore)] == [f"/run/store/state_{n}0.npz" for n in (1, 2, 2)]
    assert [one.kind for one in (first, second, restore)] == [Kind.SAVE, Kind.SAVE, Kind.RESTORE]
    assert [one.mode for one in (first, second)] == [Mode.SYNC, Mode.SYNC]
    assert [seconds(one) for one in (first, second, restore)] == pytest.approx([1.78, 1.78, 1.67], abs=0.15)


@pytest.mark.parametrize("trace", [True, False])
@pytest.mark.parametrize(
    ("reading_s", "sent_mib", "stall"), [(3.9, 0, 4.2), (30, 0, 30.3), (0.6, 0, 0.2), (0.6, 200, 4.2)]
)
def test_who_waits_for_a_child_that_reads_its_save_to_the_end_or_sends_it_is_blocked(
    reading_s: float, sent_mib: int, stall: float, *, trace: bool
) -> None:
    """It packs or checks it, for longer than a save waits for its decision; who only computes after it does neither."""
    stage, end_s = Stage(trace=trace), 5.3 + max(reading_s, 3.9)
    trainer = stage.process()
    child = stage.process(200, parent_pid=100, program="pack.py", runtimes=(), born_s=5.2, exit_s=end_s)
    stage.write(trainer, "/ckpt/step_1.pt", 5.0, 0.2, 200 * MIB)
    stage.read(child, "/ckpt/step_1.pt", 5.25, reading_s, 200 * MIB, from_disk=False, kept=0.0)
    stage.extra += [*times(trainer, ((5.0, end_s),)), *met(trainer, 61, 5.3, end_s)]
    sockets.look(stage, child, sockets.saved(sent_mib * MIB, (5.3,), took_s=3.8), 10.0, port=8000)

    (save,) = (one for one in detect(stage, stage.frames(40.0)) if one.kind is Kind.SAVE)

    assert (save.mode, seconds(save)) == (Mode.SYNC, pytest.approx(stall, abs=0.2))


@pytest.mark.parametrize(("trace", "tid", "stall"), [(False, 100, 1.82), (True, 100, 1.82), (True, 101, 0.7)])
def test_who_packs_what_it_has_saved_is_held_until_that_is_done(trace: bool, tid: int, stall: float) -> None:  # noqa: FBT001 # a parameter
    """Two processes write as much each; one reads its own at once while the other still writes: no staging file."""

    def read_by(sample: Sample) -> Sample:
        reads = isinstance(sample, FileActivity) and sample.pid == 100 and not sample.writes
        return msgspec.structs.replace(sample, tid=tid) if reads else sample

    stage, size = Stage(trace=trace), 100 * MIB
    for rank, seconds_of_writing in enumerate((0.2, 0.7)):
        actor = stage.process(100 + rank, environment={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "29500"})
        stage.write(actor, f"/ckpt/step_10/{rank}/state.npz", 5.0, seconds_of_writing, size)
        stage.extra += times(actor)
    stage.read(stage.actors[0], "/ckpt/step_10/0/state.npz", 5.22, 1.6, size, from_disk=False, kept=0.0)

    found = detect(stage, changed(stage.frames(LONGER_SECONDS), read_by))
    (save,) = (one for one in found if one.kind is Kind.SAVE)

    assert (save.mode, save.files, seconds(save)) == (Mode.SYNC, 2, pytest.approx(stall, abs=0.15))


@pytest.mark.parametrize(("received_mib", "stall_s"), [(15, 3), (5, 1)])
def test_the_time_in_which_a_part_of_the_save_arrived_is_blocked(received_mib: int, stall_s: int) -> None:
    """A tenth of it at least: ranks wait for each other without a save, too."""
    first_ns, last_ns, candidate = 10 * SECOND_NS, 11 * SECOND_NS, Candidate("train.py-100", writes=True)
    candidate.add(Transfer((100, 1), (1, 7), writes=True, path="/ckpt/step_1.pt", first_ns=first_ns, last_ns=last_ns,
                           before_ns=first_ns, start_ns=first_ns, end_ns=last_ns, bytes=100 * MIB))  # fmt: skip
    stall = Stall(Mode.SYNC, SECOND_NS, (), (), {(100, 1): "trainer"}, (), ((first_ns, last_ns),), {}, None)
    before = BeforeMeasure(blocked_ns=2 * SECOND_NS, received_bytes=received_mib * MIB)

    stall_ns, blocked = stall.including_before_save(before, candidate)

    assert (stall_ns, list(blocked)) == (stall_s * SECOND_NS, [(last_ns - stall_s * SECOND_NS, last_ns)])


def test_so_many_intervals_of_one_save_are_kept_or_none() -> None:
    """All or nothing: a part of them would not add up to the stall."""
    spans = [(at, at + 1) for at in range(0, 80, 2)]

    assert [len(blocked_intervals(spans[:count], count)) for count in (20, 32, 33, 40)] == [20, 32, 0, 0]
