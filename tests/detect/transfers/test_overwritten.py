"""Files that are written anew under their old names: a file's birth tells nothing of such a writing."""

from __future__ import annotations

from collections.abc import Sequence
from os import O_APPEND

import msgspec
import pytest
from tests.detect.observed import history_of, observed
from tests.detect.stage import MIB, MONOTONIC_NS, NUMPY, SECOND_NS, Move, Stage, play
from tests.detect.transfers.test_unasked_files import credited, fact, facts_of, history

from ckptprof.detect.transfers.edges import estimate_write_edges
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import FileEvent, FileFact, Frame

SIZE = 16 * MIB
LAST = "/run/checkpoints/last.ckpt"
PAIR = ["/run/checkpoints/model.pt", "/run/checkpoints/optimizer.pt"]


def closing(move: Move, at_s: float | None = None) -> tuple[float, FileEvent]:
    """Return the event of the closing of a file, and when it comes."""
    closed_s = move.closed_s if at_s is None else at_s
    at_ns = MONOTONIC_NS + int(closed_s * SECOND_NS)
    return closed_s, FileEvent(at_ns, "closed-written", 2049, move.inode, move.bytes, move.path)


def seconds_of(saves: Sequence[Checkpoint]) -> list[float]:
    """Return the durations of saves."""
    return [(save.end_ns - save.start_ns) / SECOND_NS for save in saves]


@pytest.mark.parametrize("size", [SIZE, 200 * MIB])
def test_what_nobody_saw_open_is_told_where_no_births_are_kept(size: int) -> None:
    """On NFS, FUSE and many a tmpfs: it began when its process can have written all of it, not when it ended."""
    stage = Stage(births=False)
    trainer = stage.process()
    for number in range(3):
        stage.write(trainer, LAST, 5.0 + 4 * number, 1.5, size, seen_open=False)

    saves = stage.play(30)

    assert [save.bytes for save in saves] == [size] * 3
    assert seconds_of(saves) == pytest.approx([1.5] * 3, abs=0.4)


@pytest.mark.parametrize("seen_open", [True, False])
def test_a_second_round_over_the_same_names_takes_as_long_as_it_took(seen_open: bool) -> None:  # noqa: FBT001 - a case
    """Four steps, and the same four again: each was told to have begun when its file was born, seconds before."""
    stage = Stage()
    trainer = stage.process()
    for number in range(8):
        path = f"/run/checkpoints/step_{number % 4}.pt"
        stage.write(trainer, path, 5.0 + 0.5 * number, 0.1, SIZE, seen_open=seen_open)

    saves = stage.play(20)

    assert [save.step for save in saves] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert max(seconds_of(saves)) < 0.25


def test_each_writing_of_a_file_that_nobody_looks_at_in_between_is_told() -> None:
    """It is asked for once, when all is over; that it was closed each time was heard."""
    stage = Stage()
    trainer = stage.process()
    moves = [
        stage.write(trainer, LAST, 5.0 + 0.35 * number, 0.06, SIZE, seen_open=False, size_before=SIZE)
        for number in range(6)
    ]
    stage.extra += [closing(move) for move in moves]

    saves = stage.play(20)

    assert [save.bytes for save in saves] == [SIZE] * 6
    assert max(seconds_of(saves)) < 0.2


def test_a_child_that_ended_between_two_writings_wrote_none_of_the_second() -> None:
    """Since the birth of the file, as each loader worker or compiler does: it is this writing that counts."""
    stage = Stage()
    trainer = stage.process(runtimes=("numpy",))
    stage.process(200, parent_pid=trainer.pid, runtimes=(), busy=0.1, exit_s=7.0)
    for number in range(3):
        move = stage.write(trainer, LAST, 5.0 + 4 * number, 0.2, SIZE, seen_open=not number, magic=NUMPY)
        stage.extra.append(closing(move))

    assert [save.bytes for save in stage.play(30)] == [SIZE] * 3


def test_a_closing_that_is_explained_is_no_other_writing() -> None:
    """The file was synced long after its last byte, and closed then."""
    stage = Stage()
    trainer = stage.process()
    move = stage.write(trainer, LAST, 5.0, 0.1, SIZE, seen_open=False)
    stage.extra.append(closing(move, 5.8))

    assert len(stage.play(20)) == 1


@pytest.mark.parametrize("rename_to", [None, "/run/checkpoints/step_3.pt"])
def test_a_file_that_was_closed_before_the_counters_came_is_reported_once(rename_to: str | None) -> None:
    """On a slow host: its process was sampled early in the write, then after five seconds; inotify reported the end."""
    stage = Stage(facts=False)
    trainer = stage.process()
    path = "/run/checkpoints/step_3.pt" + (".tmp" if rename_to else "")
    move = stage.write(trainer, path, 5.0, 1.2, 100 * MIB, rename_to=rename_to, held_s=0.2)
    closed_s, event = closing(move)
    named = msgspec.structs.replace(event, kind="renamed", path=rename_to)
    stage.extra += [(closed_s, event), *([(closed_s, named)] if rename_to else []), (11.3, stage.fact(move, 11.3))]
    stage.extra.append((10.5, stage._io(trainer, 10.5)))

    def thinned(frame: Frame) -> Frame:
        at_s = (frame.at_ns - MONOTONIC_NS) / SECOND_NS
        if not 5.2 < at_s < 10.5:
            return frame
        return msgspec.structs.replace(
            frame, samples=tuple(one for one in frame.samples if isinstance(one, FileEvent)), read=()
        )

    saves = play(stage.header(), list(map(thinned, stage.frames(20))))

    assert [(save.path, save.bytes) for save in saves] == [("/run/checkpoints/step_3.pt", 100 * MIB)]
    assert saves[0].end_ns - saves[0].start_ns == pytest.approx(1.4 * SECOND_NS, rel=0.1)


def test_a_process_that_began_after_a_file_was_written_has_not_written_it() -> None:
    """A child that is met with all that it wrote, of another file, within two seconds of the first one's birth."""
    child = history(first_s=11.5, total=31 * MIB)
    began_tick = 1150
    book = facts_of(observed({(200, began_tick): child}, parents={200: 100}))
    book.record(12 * SECOND_NS, fact(100, 10.5))

    assert credited(book) == []


def emptied(size: int = SIZE) -> Transfer:
    """Return a transfer of a file that was looked at from 10.10 s on, and not open at 10.05 s."""
    looks = [PositionSample(round(at_s * SECOND_NS), position, min(position, size)) for at_s, position in LOOKED]
    first_ns, last_ns = looks[0].at_ns, looks[-1].at_ns
    return Transfer((100, 1), (8, 7), writes=True, path=LAST, first_ns=first_ns, last_ns=last_ns,
                    before_ns=round(10.05 * SECOND_NS), closed_ns=round(10.3 * SECOND_NS), samples=looks,
                    size=size)  # fmt: skip


LOOKED = ((10.1, 1 << 20), (10.2, SIZE))


def wrote(*spans: tuple[float, float]) -> ProcessHistory:
    """Return a process that wrote 8 MiB in each of these times."""
    return history_of(
        [ProcessInterval(round(low * 1e9), round(high * 1e9), new_written_bytes=8 * MIB) for low, high in spans]
    )


def test_what_was_written_before_a_file_was_opened_is_not_of_it() -> None:
    """The save before ended 0.2 s earlier: both are one run of writing, which began long before."""
    writer = wrote((9.6, 9.7), (9.7, 9.8), (10.08, 10.1), (10.1, 10.2))
    world = observed({(100, 1): writer})

    start_ns, _ = estimate_write_edges(emptied(), writer, world, FileOpenings())

    assert round(10.08 * SECOND_NS) <= start_ns <= round(10.1 * SECOND_NS)


def test_bytes_that_were_there_at_the_first_look_were_written_by_then() -> None:
    """Counters may tell of them later."""
    writer = wrote((9.7, 9.8), (10.12, 10.2))
    world = observed({(100, 1): writer})

    start_ns, _ = estimate_write_edges(emptied(), writer, world, FileOpenings())

    assert start_ns <= round(10.1 * SECOND_NS)


def test_an_opening_that_was_heard_is_the_begin() -> None:
    """Between the look at which the file was not open and the first that met it."""
    writer = wrote((10.08, 10.1), (10.1, 10.2))
    world, openings = observed({(100, 1): writer}), FileOpenings()
    openings.record(FileEvent(round(10.06 * SECOND_NS), "opened", 8, 7, SIZE, LAST))  # by somebody who reads
    openings.record(FileEvent(round(10.065 * SECOND_NS), "closed-read", 8, 7, 0, LAST))
    openings.record(FileEvent(round(10.07 * SECOND_NS), "opened", 8, 7, 0, LAST))
    openings.record(FileEvent(round(10.25 * SECOND_NS), "closed-written", 8, 7, SIZE, LAST))
    transfer = emptied()
    transfer.fact = fact(100, 10.2, path=LAST, size=SIZE)

    start_ns, _ = estimate_write_edges(transfer, writer, world, openings)

    assert start_ns == round(10.07 * SECOND_NS)


def test_the_size_of_a_file_is_not_that_of_the_one_that_has_its_inode_now() -> None:
    """A small one was deleted, and a large one closed 0.1 s later."""
    openings = FileOpenings()
    openings.record(FileEvent(round(10.3 * SECOND_NS), "closed-written", 8, 7, SIZE, "/run/checkpoints/d/9c3c"))

    assert openings.closing_of(emptied(205)) is None


def back_to_back(paths: Sequence[str], seconds: float) -> tuple[Stage, list[Move]]:
    """Return saves of these files, each of which begins as the one before ends."""
    stage = Stage(facts=False)
    trainer = stage.process()
    moves = [stage.write(trainer, path, 5.0 + seconds * n, seconds, SIZE) for n, path in enumerate(paths * 4)]
    ended_s = 5.0 + seconds * len(moves) + 0.4
    stage.extra += [(ended_s, stage.fact(move, ended_s)) for move in moves[-len(paths) :]]
    return stage, moves


@pytest.mark.parametrize(("paths", "seconds"), [([LAST], 0.33), ([LAST], 0.57), (PAIR, 0.33)])
def test_what_was_written_after_the_last_look_is_of_the_file(paths: list[str], seconds: float) -> None:
    """The next save empties it before anybody asks for its size; another file's part is of that one."""
    stage, _ = back_to_back(paths, seconds)

    saves = stage.play(20)

    assert sum(save.bytes for save in saves) == 4 * SIZE * len(paths)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_look_at_a_file_that_is_written_anew_says_nothing_of_the_writing_before(share: float) -> None:
    """Somebody asked for it when it had been emptied, or was half written."""
    stage, moves = back_to_back([LAST], 0.33)
    for move in moves[1:]:
        at_s = move.start_s + share * 0.33
        stage.extra.append((at_s, stage.fact(move, at_s)))

    saves = stage.play(20)

    assert [save.bytes for save in saves] == [SIZE] * 4


def test_a_file_that_was_emptied_before_anybody_saw_it_opened_says_nothing_of_the_writing_before() -> None:
    """It bears the old time yet: the save before was told without it, or not at all."""
    stage = Stage(facts=False)
    trainer = stage.process()
    first = stage.write(trainer, LAST, 5.0, 0.4, SIZE)
    stage.extra.append((6.0, stage.fact(first, 6.0)))
    second = stage.write(trainer, LAST, 7.1, 0.6, SIZE)
    stage.extra.append((7.1, msgspec.structs.replace(stage.fact(first, 7.1), size=0)))
    stage.extra.append((9.0, stage.fact(second, 9.0)))

    assert [save.bytes for save in stage.play(20)] == [SIZE] * 2


def test_a_file_is_at_most_as_large_as_it_ever_was() -> None:
    """Its process wrote a log, too, which nobody saw open."""
    stage, moves = back_to_back([LAST], 0.33)
    for move in moves:
        stage.write(move.actor, "/run/log.txt", move.end_s - 0.005, 0.004, 1000, flags=O_APPEND, seen_open=False)

    saves = stage.play(20)

    assert [save.bytes for save in saves if save.path == LAST] == [SIZE] * 4


def of_another_job(stage: Stage, number: int, at_s: float) -> None:
    """Let the file system tell of a file of another job, which is not watched: as large, and as old."""
    born_ns, asker = stage.stamp(at_s), stage.actors[0]
    other = FileFact(
        pid=asker.pid, start_ticks=asker.info.start_ticks, device=2049, inode=9000 + number,
        path=f"/runs/b-step-{number}/model.npy", size=SIZE, is_directory=False, birth_ns=born_ns,
        modified_ns=stage.stamp(at_s + 0.1), changed_ns=stage.stamp(at_s + 0.1), accessed_ns=None, magic=NUMPY,
    )  # fmt: skip
    stage.extra.append((at_s + 0.42, other))


@pytest.mark.parametrize("known_by", ["look", "credit", "a file before"])
def test_a_job_beside_it_that_saves_as_much_at_the_same_moments_is_another(known_by: str) -> None:
    """Of two files of which one process can have written one, it wrote the one that is like those it wrote before.

    Or not the one of whose kind there was one that it cannot have written.
    """
    stage = Stage()
    trainer = stage.process()
    for number in range(5):
        at_s = 5.0 + 4 * number
        stage.write(trainer, f"/runs/a-step-{number}/model.npy", at_s, 0.1, SIZE, magic=NUMPY,
                    seen_open=known_by == "look" and not number)  # fmt: skip
        if number or known_by == "a file before":
            of_another_job(stage, number, at_s)
    if known_by == "a file before":
        of_another_job(stage, 9, 3.0)

    assert [save.path for save in stage.play(40)] == [f"/runs/a-step-{number}/model.npy" for number in range(5)]


@pytest.mark.parametrize("closed", [False, True], ids=["kept open", "closed"])
@pytest.mark.parametrize("watched", [True, False])
def test_a_file_that_is_emptied_and_written_anew_while_it_is_open_is_one_save(*, watched: bool, closed: bool) -> None:
    """A writer began again at the middle: that was two saves, of half and of no time. Who closes it saves."""
    stage = Stage()
    trainer = stage.process()
    before = stage.write(trainer, "/run/checkpoints/model_1.pt", 5.0, 0.5, SIZE)
    half = stage.write(trainer, "/run/checkpoints/model_2.pt", 9.0, 0.5, SIZE)
    whole = stage.write(trainer, "/run/checkpoints/model_2.pt", 9.5, 1.0, 2 * SIZE)
    if watched:
        stage.extra += [closing(before), *([closing(half)] if closed else []), closing(whole)]

    found = [(save.bytes, (save.end_ns - save.start_ns) / SECOND_NS) for save in stage.play(25)[1:]]

    if watched and not closed:
        assert found == [(2 * SIZE, pytest.approx(1.5, abs=0.1))]
    else:
        assert [size for size, _ in found] == [SIZE, 2 * SIZE]


def test_a_file_that_has_the_inode_of_a_deleted_one_begins_with_its_birth() -> None:
    """The oldest checkpoint is deleted right before the next is written: what ended then was another file."""
    stage = Stage(hz=2.0)
    job = stage.process()
    old = stage.write(job, "/run/checkpoint-1/model.safetensors", 3.0, 0.5, SIZE)
    stage.extra.append(closing(old))
    stage.write(job, "/run/checkpoint-2/model.safetensors", 9.3, 0.4, SIZE, inode=old.inode, seen_open=False)

    starts = [one.start_ns for one in stage.play(20)]

    assert starts[1] == pytest.approx(stage.wall(9.3), abs=SECOND_NS // 50)
