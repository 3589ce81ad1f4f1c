"""What a job reads in the midst of a save, to average, merge, check or strip, is a part of that save."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, SECOND_NS, Stage

from ckptprof.model import Kind

RUN = "/run/exp"
SIZE = 60 * MIB


def averaging(*, trace: bool, pause_s: float = 0.0, last: str = "valid.acc.ave_2best.pth") -> Stage:
    """Return a trainer that keeps its state and its weights, then reads the last two weights and keeps their mean."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    for epoch in (1, 2):
        at_s = 8.0 * epoch
        stage.write(trainer, f"{RUN}/checkpoint.pth", at_s, 0.9, 3 * SIZE)
        stage.write(trainer, f"{RUN}/{epoch}epoch.pth", at_s + 0.95, 0.4, SIZE)
        at_s += 1.4 + pause_s
        for number in range(1, epoch + 1):
            stage.read(trainer, f"{RUN}/{number}epoch.pth", at_s, 0.4, SIZE, from_disk=False)
            at_s += 0.45
        stage.write(trainer, f"{RUN}/{last}", at_s + 0.6, 0.4, SIZE)
    return stage


@pytest.mark.parametrize("trace", [False, True])
def test_weights_that_are_read_to_be_averaged_are_no_restore(trace: bool) -> None:  # noqa: FBT001 - a case
    """Each epoch is one save of three files: the last was told apart, and each reading as a restore."""
    found = averaging(trace=trace).play(30)

    assert [(one.kind, one.files) for one in found] == [(Kind.SAVE, 3)] * 2
    assert [one.bytes for one in found] == pytest.approx([5 * SIZE] * 2, rel=0.02)


def test_what_is_read_after_a_pause_is_restored() -> None:
    """Three seconds after a save nobody averages any more: the best state is loaded, and written for good."""
    found = averaging(trace=True, pause_s=3.0).play(40)

    assert Kind.RESTORE in {one.kind for one in found}


@pytest.mark.parametrize(("after", "restores"), [("step_2.pt", 1), ("step_1.pt", 1), ("merged.pt", 0)])
def test_a_restore_between_two_saves_is_one(after: str, restores: int) -> None:
    """The one after is of another step, or of the same file anew; a further file is of the same save."""
    stage = Stage(trace=True, poll=False)
    trainer = stage.process()
    stage.write(trainer, f"{RUN}/step_1.pt", 2.0, 1.0, SIZE)
    stage.read(trainer, f"{RUN}/step_1.pt", 3.2, 0.5, SIZE)
    stage.write(trainer, f"{RUN}/{after}", 4.0, 1.0, SIZE - 9000)

    found = stage.play(20)

    assert [one.kind for one in found].count(Kind.RESTORE) == restores


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(("epochs", "share", "restores"), [((1, 3), 1.0, 0), ((3,), 1.0, 1), ((1, 3), 0.3, 1)])
def test_who_reads_several_of_its_saves_in_a_row_restores_none(
    epochs: tuple[int, ...], share: float, restores: int, *, trace: bool
) -> None:
    """Each was told as a restore where the mean was kept seconds after a save; one that is cut off is passed over."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    for epoch in (1, 2, 3):
        stage.write(trainer, f"{RUN}/checkpoint_epoch_{epoch}.pt", 6.0 * epoch, 0.8, SIZE)
    for number, epoch in enumerate(epochs):
        path, size = f"{RUN}/checkpoint_epoch_{epoch}.pt", round(SIZE * (1.0 if number else share))
        stage.read(trainer, path, 24.0 + 0.5 * number, 0.4, size, from_disk=False, layout="part").size_before = SIZE
    stage.write(trainer, f"{RUN}/checkpoint.avg.pt", 26.0, 0.4, SIZE)

    found = stage.play(40)

    assert [one.kind for one in found].count(Kind.RESTORE) >= restores
    assert restores or Kind.RESTORE not in {one.kind for one in found}


@pytest.mark.parametrize(
    ("epochs", "pause_s", "blocked_s", "trace"),
    [((1, 3), 0.2, 1.5, False), ((1, 3), 0.2, 1.5, True), ((1, 3), 1.0, 0.4, False), ((3,), 0.2, 0.4, True)],
)
def test_training_is_blocked_while_what_is_averaged_is_read(
    epochs: tuple[int, ...],
    pause_s: float,
    blocked_s: float,
    trace: bool,  # noqa: FBT001 - a case
) -> None:
    """Up to the first byte of the mean; one state that is read may be gone on from, and so may be after a pause."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    for epoch in (1, 2, 3):
        stage.write(trainer, f"{RUN}/checkpoint_epoch_{epoch}.pt", 6.0 * epoch, 0.8, SIZE)
    begin_s = 24.9 - 0.5 * len(epochs)
    for number, epoch in enumerate(epochs):
        path = f"{RUN}/checkpoint_epoch_{epoch}.pt"
        stage.read(trainer, path, begin_s + 0.5 * number, 0.4, SIZE, from_disk=False)
    stage.write(trainer, f"{RUN}/checkpoint.avg.pt", 24.8 + pause_s, 0.4, SIZE // 3)

    stall_ns = next(one.stall_ns for one in stage.play(40) if one.path.endswith("avg.pt"))

    assert stall_ns is not None
    assert stall_ns / SECOND_NS == pytest.approx(blocked_s, abs=0.15)


def test_another_process_that_reads_several_saves_in_a_row_may_restore() -> None:
    """Two members of an ensemble, say: what its own job did not save in this life is what it goes on from."""
    stage = Stage(trace=True, poll=False)
    trainer, later = stage.process(exit_s=20.0), stage.process(200, born_s=22.0)
    for epoch in (2, 3):
        stage.write(trainer, f"{RUN}/checkpoint_epoch_{epoch}.pt", 6.0 * epoch - 8.0, 0.8, SIZE)
        stage.read(later, f"{RUN}/checkpoint_epoch_{epoch}.pt", 22.0 + 0.5 * epoch, 0.4, SIZE)

    assert [one.kind for one in stage.play(40)].count(Kind.RESTORE) == 2


def test_a_line_of_a_log_right_after_a_save_was_read_is_no_copy_of_it() -> None:
    """The log stays open for as long as the job runs: the save was told at the end, and apart from its other file."""
    stage = Stage(trace=True, poll=False)
    trainer = stage.process()
    stage.write(trainer, f"{RUN}/step_1.pt", 2.0, 1.0, SIZE)
    stage.read(trainer, f"{RUN}/step_1.pt", 3.05, 0.5, SIZE)
    stage.write(trainer, "/logs/out", 3.55, 30.0, 30_000, call_bytes=100, magic=None)

    found = stage.play(12)

    assert [(one.kind, one.path) for one in found] == [(kind, f"{RUN}/step_1.pt") for kind in (Kind.SAVE, Kind.RESTORE)]
    assert found[0].end_ns == pytest.approx(stage.wall(3.0), abs=SECOND_NS // 10)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(("pause_s", "restores"), [(0.2, 0), (4.0, 2)])
def test_what_is_read_to_be_stripped_is_no_restore(trace: bool, pause_s: float, restores: int) -> None:  # noqa: FBT001
    """At the end of a run best and last are read, and written without the optimizer; seconds later is not that."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    for epoch in (1, 2):
        for at_s, name in ((8.0 * epoch, "last.pt"), (8.0 * epoch + 0.5, "best.pt")):
            stage.write(trainer, f"{RUN}/{name}", at_s, 0.4, SIZE)
    for at_s, name in ((24.0, "best.pt"), (24.8 + pause_s + 0.4, "last.pt")):
        stage.read(trainer, f"{RUN}/{name}", at_s, 0.4, SIZE, from_disk=False)
        stage.write(trainer, f"{RUN}/{name}", at_s + 0.4 + pause_s, 0.3, SIZE // 5)

    found = stage.play(45)

    assert [one.kind for one in found].count(Kind.RESTORE) == restores
    assert [one.bytes for one in found if one.kind is Kind.SAVE][:2] == pytest.approx([2 * SIZE] * 2, rel=0.02)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(("mapped", "name"), [(False, "shard_{}.npy"), (True, "shard_{}.npy"), (False, "{}")])
def test_shards_that_one_rank_joins_are_one_save_of_twice_the_bytes(*, mapped: bool, name: str, trace: bool) -> None:
    """It reads what all ranks have just written, maps it until the next save, and writes it as a whole."""
    stage = Stage(trace=trace, faults=True)
    ranks = [stage.process(100 + number, parent_pid=100) for number in range(3)]
    for step in (1, 2):
        at_s, folder = 8.0 * step, f"{RUN}/iter_{step}"
        shards = [f"{folder}/{name.format(number)}" for number in range(3)]
        for rank, path in zip(ranks, shards, strict=True):
            stage.write(rank, path, at_s, 0.4, SIZE, magic=None)
        for number, path in enumerate(shards):
            if mapped:
                stage.map(ranks[0], path, at_s + 0.45 + 0.1 * number, 0.1, SIZE, unmapped_s=at_s + 8.3)
            else:
                stage.read(ranks[0], path, at_s + 0.45 + 0.1 * number, 0.1, SIZE, from_disk=False)
        stage.write(ranks[0], f"{folder}/weights.npy", at_s + 0.42, 1.08, 3 * SIZE, magic=None)

    found = stage.play(40)

    assert [(one.kind, one.files) for one in found] == [(Kind.SAVE, 4)] * 2
    assert [one.bytes for one in found] == pytest.approx([6 * SIZE] * 2, rel=0.02)
    assert [(one.end_ns - one.start_ns) / SECOND_NS for one in found] == pytest.approx([1.5, 1.5], abs=0.1)
    assert [[extra.reason for extra in one.overheads] for one in found] == [["consolidation"]] * 2


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("exported", [MIB // 64, 2 * MIB, 10 * MIB])
def test_a_child_that_evaluates_or_exports_what_was_saved_is_no_writer_of_it(*, exported: int, trace: bool) -> None:
    """It reads the state and takes seconds to write less into the same folder: the save had ended, and training not."""
    stage = Stage(trace=trace)
    trainer, child = stage.process(), stage.process(200, parent_pid=100)
    for step in (1, 2):
        at_s, folder = 10.0 * step, f"{RUN}/checkpoint_{step}000"
        stage.write(trainer, f"{folder}/state.npz", at_s, 0.4, SIZE, magic=None)
        stage.read(child, f"{folder}/state.npz", at_s + 0.6, 0.4, SIZE, from_disk=False)
        stage.write(child, f"{folder}/exported.npz", at_s + 1.2, 5.0, exported, magic=None, call_bytes=MIB // 64)

    found = stage.play(50)

    saves = [one for one in found if one.kind is not Kind.COPY]
    assert [(one.kind, one.files, one.bytes) for one in saves] == [(Kind.SAVE, 1, SIZE)] * 2
    assert [(one.end_ns - one.start_ns) / SECOND_NS for one in saves] == pytest.approx([0.4] * 2, abs=0.1)
