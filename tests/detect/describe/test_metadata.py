"""What is done to names beside moving data is counted, in bounded memory, and what was not seen is said."""

from __future__ import annotations

from tests.detect.observed import books
from tests.detect.stage import MIB, SECOND_NS, Stage, play
from tests.detect.tracer import life, mono

from ckptprof.detect.world.file_calls import MAX_EVENTS, FileCalls
from ckptprof.units import size
from ckptprof_collectors.samples import FileFact, Frame, TraceHealth


def health(lost_events: int = 0, calls: str = "call_exit_typed") -> TraceHealth:
    """Return an account of the trace."""
    return TraceHealth(
        calls=1, lost_operations=0, lost_bytes=0, lost_sessions=0, lost_events=lost_events, untimed_operations=0,
        programs={"calls": calls}, degraded=(),
    )  # fmt: skip


def small_files(stage: Stage, count: int) -> None:
    """Save as many files of 100 KiB, each written under another name first."""
    job = stage.process()
    for number in range(count):
        path = f"/run/checkpoint-200/layer_{number}.weight"
        stage.write(job, f"{path}.tmp", 2.0 + number * 0.01, 0.006, 100 << 10, rename_to=path, seen_open=False)


def without_facts(frames: list[Frame], known: set[int]) -> list[Frame]:
    """Return the frames without the facts of other files."""
    return [
        Frame(
            frame.at_ns,
            frame.wall_ns,
            frame.read,
            tuple(one for one in frame.samples if not isinstance(one, FileFact) or one.inode in known),
        )
        for frame in frames
    ]


def test_creations_and_renames_are_counted() -> None:
    """By the trace: exactly, with the time in write calls; what others did, or at another time, is not of it."""
    stage = Stage(trace=True)
    small_files(stage, 150)
    stage.process(7, runtimes=(), program="other", comm="other")
    for at_s, pid in ((2.5, 7), (30.0, 100), (1.0, 100)):
        stage.extra.append((at_s, life("unlinked", at_s, pid, inode=None, path="/tmp/x")))
    stage.extra.append((2.2, life("unlinked", 2.2, inode=None, path="/run/old.pt")))

    (save,) = stage.play(40)

    assert save.files == 150
    told = save.metadata
    assert (told.created, told.renamed, told.unlinked, told.synced, told.at_least) == (150, 150, 1, 0, False)
    assert told.data_call_ns == 150 * 1000


def test_lost_events_make_the_counts_lower_bounds() -> None:
    """And the loss is said."""
    stage = Stage(trace=True)
    small_files(stage, 150)
    stage.extra += [(0.5, health()), (4.0, health(9000))]

    (save,) = stage.play(20)

    assert (save.metadata.renamed, save.metadata.at_least) == (150, True)
    assert any("9,000 events" in sentence for sentence in save.limitations)


def test_polling_tells_which_of_the_files_it_found_are_new() -> None:
    """Of renames it sees nothing."""
    stage = Stage()
    small_files(stage, 150)

    (save,) = stage.play(20)

    assert (save.metadata.created, save.metadata.renamed, save.metadata.data_call_ns) == (save.files, None, None)
    assert not any("its processes wrote" in sentence for sentence in save.limitations)


def test_polling_says_when_most_of_a_save_was_never_seen() -> None:
    """The writer's own counters show more than the files hold that were found."""
    stage = Stage()
    small_files(stage, 400)
    known = {move.inode for move in stage.moves if move.inode % 8 == 0}

    (save,) = play(stage.header(), without_facts(stage.frames(20), known))

    assert save.files == len(known)
    (said,) = (sentence for sentence in save.limitations if "its processes wrote" in sentence)
    assert said.startswith("most of what was written")
    assert f"{size(save.bytes)} of it" in said


def test_one_file_that_was_found_whole_is_not_doubted() -> None:
    """Its writer's counters say what it holds."""
    stage = Stage()
    stage.write(stage.process(), "/run/step_1.pt", 2.0, 1.0, 100 * MIB)

    (save,) = stage.play(10)

    assert save.metadata.created == 1
    assert not any("its processes wrote" in sentence for sentence in save.limitations)


def test_files_that_are_removed_one_after_the_other_are_one_stall() -> None:
    """After a save the thread that trains removes an old checkpoint: it waits for the last file, too."""
    book = FileCalls()
    for number in range(30):
        book.observe(life("unlinked", 5.0 + number * 0.15, inode=None))

    assert book.naming_spans((100, 1000), mono(2.0), mono(5.5)) == [(mono(5.0), mono(9.35))]


def test_the_book_of_names_is_bounded_and_forgets() -> None:
    """A flood by one process drops its own oldest half, and what began in it is not whole."""
    book = FileCalls()
    for number in range(MAX_EVENTS + 1):
        book.observe(life("created", number / 1000, inode=None))

    assert 163_840 <= book._count <= 327_680
    assert not book.is_complete_since(mono(1))
    assert book.is_complete_since(mono(MAX_EVENTS / 1000 - 1))
    end_ns = mono(MAX_EVENTS / 1000)
    assert book.count_calls([(100, 1000)], "created", end_ns - SECOND_NS, end_ns) == 1001
    book.forget_before(end_ns + SECOND_NS)
    assert book._count == books(book) == 0
