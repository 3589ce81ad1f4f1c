"""A save ends when close(2) returns, where NFS, FUSE and S3 send what was written, or a sync of everything after it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.detect.observed import history_of, observed
from tests.detect.stage import MIB, SECOND_NS, Stage, play
from tests.detect.tracer import activity, life, mono

from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfer_tracker import TransferTracker
from ckptprof.detect.world.process_counters import ProcessInterval
from ckptprof.detect.world.thread_histories import ThreadHistories
from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import FileEvent, FileFact, FileScan, Frame, Sample, ThreadSample

CLOSE, SYNC = 3, 162
FOR_SECONDS = 30.0


def met_in_close(at_s: float, call: int = CLOSE) -> ThreadSample:
    """Return a look at the writer, asleep in close(2) or another call."""
    return ThreadSample(
        pid=100, start_ticks=1000, tid=100, comm="python3", on_cpu_ns=SECOND_NS, waited_ns=0, user_ticks=50,
        system_ticks=50, major_faults=0, block_delay_ticks=None, state="S", call=call, wait=None, at_ns=mono(at_s),
    )  # fmt: skip


def seen(*samples: tuple[float, Sample], until_s: float = 30.0) -> list[Checkpoint]:
    """Return the checkpoints of a trainer of whom the trace and looks tell."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    frames = []
    before_ns = 0
    for frame in stage.frames(until_s):
        more = tuple(sample for at_s, sample in samples if before_ns < mono(at_s) <= frame.at_ns)
        frames.append(Frame(frame.at_ns, frame.wall_ns, (*frame.read, "trace"), (*frame.samples, *more)))
        before_ns = frame.at_ns
    return play(stage.header(), frames)


def seconds(save: Checkpoint) -> float:
    """Return how long it took."""
    return (save.end_ns - save.start_ns) / SECOND_NS


def test_a_closing_that_takes_longer_than_judgement_waits_is_of_the_save() -> None:
    """Written within 0.02 s, sent within nine seconds of close(2): one save of nine seconds."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(2.03))
    looks = [(at, met_in_close(at)) for at in (2.1 + 0.2 * number for number in range(45))]

    saves = seen((2.05, written), *looks, (11.05, life("closed-written", 11.03, duration_s=9.0)))

    assert [round(seconds(save), 2) for save in saves if save.revision == 0] == [9.03]


def test_a_closing_that_began_late_is_not() -> None:
    """A file that was left open for three seconds was complete before, however long its closing took then."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(5.0))

    (save,) = seen((5.02, written), (6.02, life("closed-written", 6.0, duration_s=1.0)))

    assert seconds(save) < 0.1


@pytest.mark.parametrize(("sends_s", "waits"), [(1.0, 1), (0.0, 0)])
def test_a_file_that_is_empty_while_its_close_sends_the_data_waits_for_its_size(sends_s: float, waits: int) -> None:
    """Its descriptor is gone by then; s3fs reports the size when the object has arrived."""
    key, inspected_ns = (100, 1000), mono(2.12)
    world = observed({key: history_of([ProcessInterval(mono(2.0), mono(2.1), new_written_bytes=MIB)], last_ns=mono(3))})
    for tenth in range(round(10 * sends_s)):
        world.threads.observe(0, met_in_close(2.1 + tenth / 10))
    empty = FileFact(*key, 8, 7, "/s3/step_1.pt", 0, False, None, 0, 0, None, None)  # noqa: FBT003 # no folder
    write = Transfer(key, (8, 7), writes=True, path="/s3/step_1.pt", first_ns=mono(2.0), last_ns=mono(2.08),
                     before_ns=mono(1.9), closed_ns=mono(2.1), fact=empty, fact_at_ns=inspected_ns)  # fmt: skip

    waiting, _ = TransferTracker(world).estimates.await_sizes([write], mono(2.2))

    assert len(waiting) == waits


def test_an_earlier_closing_holds_nothing_up() -> None:
    """Who was met in close(2) only while it lasted is judged as soon as any other."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(2.03))

    (save,) = seen((2.05, written), (2.06, met_in_close(2.06)), (2.1, life("closed-written", 2.08, duration_s=0.05)))

    assert round(seconds(save), 2) == 0.08


def test_a_sync_of_everything_after_the_closing_is_of_the_save() -> None:
    """os.sync() by the writer in place of fsync, for nine seconds; one that comes two seconds later is not."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(2.03))
    looks = [(at, met_in_close(at, SYNC)) for at in (2.1 + 0.2 * number for number in range(45))]

    (save,) = seen((2.05, written), *looks, (11.05, life("synced", 11.03, inode=None, duration_s=9.0)))
    assert round(seconds(save), 2) == 9.03
    assert save.durable_ns == save.end_ns

    (save,) = seen((2.05, written), (4.55, life("synced", 4.53, inode=None, duration_s=0.5)))
    assert seconds(save) < 0.1


def test_a_sync_of_everything_stores_the_shards_that_were_written_before_it_too() -> None:
    """It ends the save with the last of them; a sync of another file system is about none of them."""
    shards = [
        (at_s + 0.05, activity(path=f"/ckpt/step_1/rank{n}.pt", inode=7 + n, start_s=at_s, end_s=at_s + 0.02))
        for n, at_s in enumerate((2.0, 3.5, 5.0))
    ]

    (save,) = seen(*shards, (6.1, life("synced", 6.05, inode=None, duration_s=0.9)))
    assert save.end_ns == save.durable_ns
    assert round(seconds(save), 2) == 4.05

    other = msgspec.structs.replace(life("synced", 6.05, inode=None, duration_s=0.9), device=99)
    (save,) = seen(*shards, (6.1, other))
    assert round(seconds(save), 2) == 3.02
    assert save.durable_ns is None


def test_syncs_of_the_saves_that_follow_are_not_of_the_first() -> None:
    """Each small save ends in sync(2), the next begins at once."""
    found = seen(
        *(
            (at_s, sample)
            for n in range(3)
            for at_s, sample in (
                (
                    2.1 + 0.6 * n,
                    activity(path=f"/ckpt/step_{n}.pt", inode=7 + n, start_s=2.0 + 0.6 * n, end_s=2.02 + 0.6 * n),
                ),
                (2.45 + 0.6 * n, life("synced", 2.4 + 0.6 * n, inode=None, duration_s=0.35)),
            )
        )
    )

    assert [round(seconds(save), 2) for save in found] == [0.4] * 3


def test_a_sync_of_a_folder_makes_nothing_durable() -> None:
    """It stores names, not data."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(2.03))

    (save,) = seen((2.05, written), (2.3, life("synced", 2.25, inode=2, duration_s=0.2)))

    assert save.durable_ns is None


def test_a_sync_of_everything_that_polling_met_its_writer_in_is_of_the_save() -> None:
    """Looks at the threads meet it in sync(2) from the closing on; those of a later save are no part of it."""
    stage = Stage()
    trainer = stage.process()
    move = stage.write(trainer, "/ckpt/checkpoint_step_10.pt", 2.0, 0.3, 200 * MIB)
    looks = [2.32 + 0.2 * number for number in range(35)] + [20.0 + 0.2 * number for number in range(10)]
    stage.extra = [(at_s, met_in_close(at_s, SYNC)) for at_s in looks]

    (save,) = [save for save in stage.play(40) if save.path == move.path]

    assert seconds(save) == pytest.approx(7.12, abs=0.15)


@pytest.mark.parametrize(("first_s", "found_s"), [(0.4, 4.0), (3.0, None)])
def test_looks_that_are_few_still_meet_a_sync_that_lasts(first_s: float, found_s: float | None) -> None:
    """Of many threads each is looked at every half second; after three seconds without a look nothing is known."""
    book = ThreadHistories()
    book.observe(0, met_in_close(9.9, 1))
    for at in range(9):
        book.observe(0, met_in_close(10.0 + first_s + 0.45 * at, SYNC))
    book.observe(0, met_in_close(30.0, SYNC))

    until_ns = book.state_end_ns((100, 1000), "sync", mono(10.0))

    assert until_ns == (None if found_s is None else mono(10.0 + found_s))


def polled(*, watched: bool, met_s: float, writes_on: bool = False) -> list[Checkpoint]:
    """Return the saves of a trainer that wrote 200 MB between 2.0 and 2.3 s and was in close(2) up to `met_s`."""
    stage = Stage()
    trainer = stage.process()
    move = stage.write(trainer, "/s3/checkpoint_step_10.pt", 2.0, 0.3, 200 * MIB)
    if writes_on:
        stage.write(trainer, "/log/events.out", 4.0, 4.0, 40 * MIB, magic=None)
    looks = [(2.32 + 0.2 * number, number) for number in range(60) if 2.32 + 0.2 * number < met_s]
    stage.extra = [(at_s, met_in_close(at_s)) for at_s, _ in looks]
    if watched:
        event = FileEvent(mono(met_s + 0.1), "closed-written", 2049, move.inode, 200 * MIB, move.path)
        stage.extra.append((met_s + 0.1, event))
    return [save for save in stage.play(40) if save.path == move.path]


@pytest.mark.parametrize(("watched", "met_s", "took_s"), [(True, 9.0, 7.1), (False, 9.0, 6.92), (False, 2.0, 0.3)])
def test_a_closing_that_polling_met_its_writer_in_is_of_the_save(
    watched: bool,  # noqa: FBT001 - a case
    met_s: float,
    took_s: float,
) -> None:
    """The file is gone from the table of open ones while close(2) sends it; the folder tells when that was over."""
    (save,) = polled(watched=watched, met_s=met_s)

    assert seconds(save) == pytest.approx(took_s, abs=0.1)


def test_the_closing_of_one_that_writes_on_is_not_known_to_be_of_this_file() -> None:
    """Without the folder's event nothing tells which file another thread closes, while more is written."""
    (save,) = polled(watched=False, met_s=9.0, writes_on=True)

    assert seconds(save) < 0.7


def test_a_save_whose_server_hangs_is_told_after_a_quarter_of_an_hour() -> None:
    """Its writer is met in close(2) for ever."""
    stage = Stage(hz=1, trace=True)
    stage.write(stage.process(), "/s3/checkpoint_step_10.pt", 2.0, 1.0, 200 * MIB)
    stage.extra = [(at_s, met_in_close(at_s)) for at_s in range(4, 1000)]
    detector = Detector(stage.header())

    told = [frame.at_ns for frame in stage.frames(1000) if detector.ingest(frame)]

    assert told[0] == pytest.approx(mono(903.0), abs=5 * SECOND_NS)


def as_on_s3(frames: list[Frame], asked_s: float) -> Iterator[Frame]:
    """Give what s3fs shows: an empty file at its begin while it is open, whole seconds as stamps, and those late."""
    said: list[Sample] = []
    for frame in frames:
        samples: list[Sample] = []
        for sample in frame.samples:
            if isinstance(sample, FileScan):
                files = tuple(msgspec.structs.replace(file, size=0, position=0) for file in sample.files)
                samples.append(msgspec.structs.replace(sample, files=files))
            elif isinstance(sample, FileFact):
                whole_ns = sample.modified_ns // SECOND_NS * SECOND_NS
                said.append(msgspec.structs.replace(sample, modified_ns=whole_ns, changed_ns=whole_ns, birth_ns=None))
            else:
                samples.append(sample)
        if frame.at_ns >= mono(asked_s):
            samples += said
            said = []
        yield Frame(frame.at_ns, frame.wall_ns, frame.read, tuple(samples))


@pytest.mark.parametrize("asked_s", [2.4, 9.0, 14.0, 99.0], ids=["at once", "sent", "late", "never"])
def test_a_file_that_is_empty_until_its_server_has_it_is_told_with_its_closing(asked_s: float) -> None:
    """A size that comes late is waited for; one that never comes is what its process wrote meanwhile."""
    stage = Stage()
    trainer = stage.process()
    move = stage.write(trainer, "/s3/checkpoint_step_10.pt", 2.0, 0.3, 200 * MIB, held_s=6.7)
    stage.extra = [(at_s, met_in_close(at_s)) for at_s in (2.32 + 0.2 * number for number in range(33))]
    found = play(stage.header(), list(as_on_s3(stage.frames(FOR_SECONDS), asked_s)))

    assert [save.path for save in found] == [move.path]
    assert found[0].bytes == pytest.approx(200 * MIB, rel=0.01)
    assert seconds(found[0]) == pytest.approx(6.7, abs=0.5)
    assert any("did not report it" in sentence for sentence in found[0].limitations) is (asked_s > FOR_SECONDS)


def test_a_file_that_looked_empty_is_as_large_as_it_was_closed_and_of_one_save() -> None:
    """It was met when it was just created, and nobody has asked for its size yet."""
    stage = Stage(facts=False)
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_1/a.pt", 2.0, 0.6, 100 * MIB)
    met = stage.write(trainer, "/ckpt/step_1/b.pt", 2.6, 0.06, 40 * MIB)
    stage.extra.append((2.68, FileEvent(mono(2.66), "closed-written", 2049, met.inode, 40 * MIB, met.path)))
    frames = []
    for frame in stage.frames(20.0):
        samples = [
            msgspec.structs.replace(
                sample,
                files=tuple(
                    msgspec.structs.replace(file, position=0, size=0) if file.inode == met.inode else file
                    for file in sample.files
                ),
            )
            if isinstance(sample, FileScan)
            else sample
            for sample in frame.samples
        ]
        frames.append(msgspec.structs.replace(frame, samples=tuple(samples)))

    (save,) = play(stage.header(), frames)

    assert save.files == 2
    assert save.bytes == pytest.approx(140 * MIB, rel=0.06)
