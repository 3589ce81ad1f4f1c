"""Where one opening of a file ends and the next begins, when not every thread tells that it closed it."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Stage
from tests.detect.tracer import activity, life

from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import Frame, Sample


def seen(*samples: tuple[float, Sample], until_s: float = 20.0) -> list[Checkpoint]:
    """Return the checkpoints of a trainer that only the trace sees."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    stage.extra = list(samples)
    return stage.play(until_s)


def seconds(checkpoint: Checkpoint) -> tuple[float, float]:
    """Return the edges in seconds of the stage."""
    zero = Stage().wall(0)
    return (checkpoint.start_ns - zero) / SECOND_NS, (checkpoint.end_ns - zero) / SECOND_NS


@pytest.mark.parametrize(("closed_s", "end_s"), [(2.3, 2.3), (4.0, 2.02)])
def test_a_closing_soon_after_the_last_write_is_the_end(closed_s: float, end_s: float) -> None:
    """close(2) of a network file system flushes; a file that is left open for two seconds was done before."""
    done = activity(closed_ns=MONOTONIC_NS + int(closed_s * SECOND_NS))

    (save,) = seen((4.1, done))

    assert seconds(save) == (2.0, end_s)


def test_a_file_that_is_opened_again_and_stays_open_is_waited_for() -> None:
    """Closed, opened again to append, four seconds of pause, and more: one save."""
    first = activity(start_s=2.0, end_s=2.02)
    again = activity(start_s=2.2, end_s=2.3, offset=100 * MIB, closed=False)
    whole = activity(start_s=2.2, end_s=6.5, offset=100 * MIB, moved=200 * MIB)

    saves = seen((2.04, first), (2.32, again), (6.52, whole))

    assert [save.bytes for save in saves] == [300 * MIB]
    assert seconds(saves[0]) == (2.0, 6.5)


def test_a_file_that_is_still_open_holds_back_the_others_of_its_folder() -> None:
    """One shard is closed, the other one waits for five seconds: one save of both."""
    first = activity(path="/c/run/model_1.safetensors", moved=50 * MIB)
    live = activity(path="/c/run/model_2.safetensors", inode=8, moved=50 * MIB, closed=False)
    whole = activity(path="/c/run/model_2.safetensors", inode=8, end_s=7.0)

    saves = seen((2.1, first), (2.1, live), (7.1, whole))

    assert [(save.bytes, save.files) for save in saves] == [(150 * MIB, 2)]


def test_threads_that_never_close_save_the_same_path_twice() -> None:
    """The second save's operations are in the sessions of the first: the closing between them parts the two."""
    workers = [activity(tid=tid, end_s=2.1, offset=(tid - 101) * 50 * MIB, moved=50 * MIB, closed=False)
               for tid in (101, 102)]  # fmt: skip
    later = [
        activity(tid=tid, end_s=2.9, offset=(tid - 101) * 50 * MIB, moved=100 * MIB, closed=False, size=100 * MIB,
                 high_offset=(tid - 100) * 50 * MIB) for tid in (101, 102)
    ]  # fmt: skip
    saves = seen(
        *((2.12, worker) for worker in workers), (2.2, life("closed-written", 2.15)),
        *((2.92, worker) for worker in later), (3.0, life("closed-written", 2.95)), until_s=8,
    )  # fmt: skip

    assert [save.bytes for save in saves] == [100 * MIB, 100 * MIB]
    assert seconds(saves[0]) == (2.0, 2.15)
    assert seconds(saves[1])[0] >= 2.15


def test_a_file_that_was_truncated_is_written_anew() -> None:
    """By another thread, while a session of the first save was never closed."""
    first = activity(closed=False)
    second = activity(tid=101, start_s=2.5, end_s=2.52, moved=80 * MIB)

    assert [save.bytes for save in seen((2.04, first), (2.54, second))] == [100 * MIB, 80 * MIB]


def test_reading_it_again_is_another_restore() -> None:
    """Later from the beginning, the session of the first reader left open."""
    first = activity(writes=False, closed=False)
    second = activity(tid=101, start_s=15.0, end_s=15.02, writes=False)

    assert [restore.bytes for restore in seen((2.04, first), (15.04, second))] == [100 * MIB, 100 * MIB]


def test_polling_tells_that_a_file_was_closed() -> None:
    """A reader's thread does not close the file: a complete look without it is enough, no minute is waited."""
    stage = Stage()
    job = stage.process()
    move = stage.read(job, "/c/step-1/model.pt", 2.0, 1.0, 300 * MIB, inode=5)
    stage.extra = [(3.01, activity(path=move.path, inode=5, end_s=3.0, moved=300 * MIB, writes=False, closed=False))]
    detector = Detector(stage.header())

    found = [checkpoint for frame in stage.frames(14) for checkpoint in detector.ingest(frame)]

    assert [restore.bytes for restore in found] == [300 * MIB]
    assert not detector.active


def test_a_temporary_name_is_given_time_to_become_final() -> None:
    """The rename comes four seconds after the last byte: the name is the final one."""
    moved = life("renamed", 6.02, inode=None, path="/ckpt/last.pt.tmp", new_path="/ckpt/last.pt")

    (save,) = seen((2.1, activity(path="/ckpt/last.pt.tmp")), (6.1, moved))

    assert (save.path, seconds(save)[1]) == ("/ckpt/last.pt", 6.02)


@pytest.mark.parametrize(("synced_s", "told_s"), [(22.0, 22.0), (42.0, 2.02)])
def test_a_sync_belongs_to_the_save_before_it_for_half_a_minute(synced_s: float, told_s: float) -> None:
    """Whoever syncs all files each minute, or a database beside the save, makes that no longer."""
    book = TracedTransfers()
    book.ingest(activity(), 0)
    book.ingest_event(life("synced", synced_s))
    (saved,) = book.take_ended(0)

    assert saved.edges()[1] == MONOTONIC_NS + round(told_s * SECOND_NS)


def test_a_log_that_stays_open_holds_nothing_back() -> None:
    """A trainer's log in the folder of its checkpoints is open for ever."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    stage.extra = [(0.1 * n, activity(path="/run/train.log", inode=9, start_s=0.05, end_s=0.1 * n, moved=n * 100,
                                      closed=False)) for n in range(1, 100)]  # fmt: skip
    stage.extra.append((2.1, activity(path="/run/model_final.pt")))
    detector = Detector(stage.header())

    found = [checkpoint for frame in stage.frames(6) for checkpoint in detector.ingest(frame)]

    assert [save.path for save in found] == ["/run/model_final.pt"]


def test_a_file_that_nobody_closes_is_told_a_minute_after_its_last_operation() -> None:
    """A mapping, or a descriptor that leaks: whoever waits for its end waits for ever."""
    stage = Stage(trace=True, poll=False, hz=1.0)
    stage.process()
    stage.extra = [(2.1, activity(closed=False))]
    detector = Detector(stage.header())

    told_ns = [frame.at_ns - MONOTONIC_NS for frame in stage.frames(200) if detector.ingest(frame)]

    assert [at_ns // SECOND_NS for at_ns in told_ns[:1]] == [63]


def test_twenty_thousand_open_sessions_cost_nothing_when_nothing_moves() -> None:
    """Frames without samples of the trace do not walk the book, and a late sample finds its stream."""
    detector = Detector(Stage().header())
    sessions = [activity(100, f"/data/{n % 50}/file_{n}.bin", 0.0, 1.0, MIB, inode=n, closed=False)
                for n in range(20_000)]  # fmt: skip
    at_ns = MONOTONIC_NS + SECOND_NS
    detector.ingest(Frame(at_ns, at_ns, (), tuple(sessions)))
    book = detector._transfers.traced
    looked = []
    book.open_transfers = lambda: looked.append(book) or []  # type: ignore[method-assign,func-returns-value]
    for number in range(200):
        detector.ingest(Frame(at_ns + number * SECOND_NS // 25, at_ns + number * SECOND_NS // 25, (), ()))

    assert len(book._open) == 20_000
    assert looked == []


def test_a_call_that_takes_long_moved_its_bytes_all_that_time() -> None:
    """A write(2) of a second is counted when it returns, not in the last instant before."""
    header = activity(end_s=2.001, moved=MIB, closed=False, call_ns=1_000_000)
    whole = activity(end_s=3.0, call_ns=1_000_000 + 900_000_000)

    (save,) = seen((2.04, header), (3.04, whole))

    zero = Stage().wall(0)
    assert [((p.start_ns - zero) / SECOND_NS, (p.end_ns - zero) / SECOND_NS, p.bytes) for p in save.timeline] == [
        (2.0, 2.001, MIB),
        (2.1, 3.0, 99 * MIB),
    ]


def test_what_is_told_of_a_transfer_after_it_was_judged_takes_nothing_from_it() -> None:
    """Its sums stay, so that it still counts among what its process moved."""
    book = TracedTransfers()
    book.ingest(activity(), MONOTONIC_NS)
    (transfer,) = book.take_ended(MONOTONIC_NS + 3 * SECOND_NS)
    transfer.mark_classified()
    book.ingest_event(life("closed-written", 9.0))

    assert transfer.closed_ns == MONOTONIC_NS + 9 * SECOND_NS
    assert transfer.operations is not None
    assert transfer.operations.bytes == 100 * MIB
    assert book.take_ended(MONOTONIC_NS + 10 * SECOND_NS) == [], "nobody judges it twice"
