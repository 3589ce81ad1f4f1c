"""What the detector holds of thousands of short-lived processes is bounded, and gone when they are long over."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.detect.observed import books, frame, history_of, observed
from tests.detect.stage import MIB, NUMPY, SECOND_NS, Stage
from tests.detect.test_budget import deep_bytes
from tests.detect.tracer import activity, life, mono

from ckptprof.detect.events.event_history import EventHistory, HistoryEvent
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.transfers.file_facts import FileFacts
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.world.counter_history import CounterHistories, CounterHistory
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof_collectors.samples import (
    FileFact,
    FileScan,
    Frame,
    GpuUse,
    OpenFile,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    Sample,
    StackSample,
    ThreadTime,
)

_EACH_S = 0.1  # a process begins
_FILES = 2
_WRITERS = 200
_KEPT = 8192  # of each kind of knowledge of files: some megabytes


def process(pid: int, parent_pid: int = 10, program: str = "prep.py") -> ProcessInfo:
    """Describe one."""
    return ProcessInfo(pid=pid, start_ticks=pid * 10, parent_pid=parent_pid, uid=1000, comm="python3", program=program,
                       runtimes=("numpy",), environment={}, cgroup="/user.slice")  # fmt: skip


def short_lived(stage: Stage, pid: int, at_s: float, *, traced: bool) -> tuple[list[Sample], list[Sample]]:
    """Return what is seen of a process that writes two files, at two looks."""
    written = _FILES * 2 * MIB
    first: list[Sample] = [process(pid), ProcessIo(pid, pid * 10, 0, 0, 0, 0, 0, 0, 0)]
    last: list[Sample] = [ProcessIo(pid, pid * 10, 300_000, written, 9, 9, 0, written, 0)]
    for number in range(_FILES):
        path, inode = f"/data/part_{pid % 7}/out_{pid}_{number}.npy", pid * _FILES + number
        if traced:
            last += [
                life("created", at_s, pid, inode=inode, path=path),
                activity(pid, path, at_s, at_s + 0.01, 2 * MIB, inode=inode),
                activity(pid, f"/usr/share/x_{number}.npy", at_s, at_s + 0.01, 70_000, inode=number, writes=False),
                life("unlinked", at_s + 0.02, pid, inode=None, path=f"/tmp/x{pid}_{number}"),
            ]
        stamp = stage.wall(at_s)
        last.append(FileFact(pid, pid * 10, 2049, inode, path, 2 * MIB, False, stamp, stamp, stamp, None, NUMPY))  # noqa: FBT003 - it is no folder
    return first, [*last, ProcessExit(pid, pid * 10)]


def sizes(detector: Detector) -> dict[str, int]:
    """Return the lengths of its books."""
    return {
        "jobs": books(detector._world.jobs),
        "histories": len(detector._world.histories),
        "ended": len(detector._world.ended),
        "traced": books(detector._transfers.traced),
        "host": sum(map(books, (detector._world.calls, detector._world.threads, detector._world.usage))),
        "waiting": len(detector._transfers.waiting),
    }


@pytest.mark.parametrize("traced", [True, False], ids=["trace", "poll"])
def test_thousands_of_short_lived_writers_are_forgotten(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """Of one in each tenth of a second so many are known as the last two minutes brought, later none."""
    stage = Stage()
    detector = Detector(stage.header())
    coming: list[Sample] = []

    def feed(at_s: float, samples: list[Sample]) -> None:
        at_ns = stage.header().at_ns + int(at_s * SECOND_NS)
        detector.ingest(Frame(at_ns, stage.wall(at_s), ("processes",), (*coming, *samples)))

    for number in range(_WRITERS):
        first, last = short_lived(stage, 20_000 + number, number * _EACH_S, traced=traced)
        feed((number + 1) * _EACH_S, first)
        coming = last
    full = sizes(detector)
    for later_s in range(1, 240, 2):
        feed(_WRITERS * _EACH_S + later_s, [])
        coming = []
    idle = sizes(detector)

    assert full["histories"] <= _WRITERS
    assert full["jobs"] <= 8 * _WRITERS
    assert full["traced"] <= 16 * _FILES * _WRITERS
    assert max(idle.values()) < 20, idle


def test_a_log_that_is_open_for_ever_keeps_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own process's counters stay, for as many as there is room for; who has ended meanwhile is forgotten."""
    stage = Stage()
    detector = Detector(stage.header())
    writer, log = (10, 100), "/data/run/train.log"

    def feed(at_s: float, samples: list[Sample]) -> None:
        written = int(at_s * 4) << 20
        own = ProcessIo(*writer, 0, written, 9, 9, 0, written, 0)
        scan = FileScan(*writer, (OpenFile(3, 2049, 77, written, 1, written, stage.wall(at_s), log),), None)
        at_ns = stage.header().at_ns + int(at_s * SECOND_NS)
        detector.ingest(Frame(at_ns, stage.wall(at_s), ("processes",), (own, scan, *samples)))

    feed(0, [process(10, 1)])
    for number in range(300):  # one each second
        key = (20_000 + number, 10 * (20_000 + number))
        feed(number + 0.5, [process(key[0]), ProcessIo(*key, 0, 0, 0, 0, 0, 0, 0)])
        feed(number + 1, [ProcessIo(*key, 0, 5 << 20, 0, 5, 0, 5 << 20, 0), ProcessExit(*key)])

    assert len(detector._world.histories) < 200, sizes(detector)
    assert len(detector._world.ended) < 200
    assert len(detector._world.histories[writer].intervals) > 500
    monkeypatch.setattr("ckptprof.detect.world.world.MAX_SAMPLES", 500)
    feed(306, [])
    assert len(detector._world.histories[writer].intervals) < 300


def test_the_counters_of_crowds_are_bounded_and_the_latest_stay() -> None:
    """Of processes that nobody ends the half that was read longest ago goes; files that stay open keep no flood."""
    world = observed()
    for pid in range(4097):
        world.histories[pid, 1] = ProcessHistory(last_ns=pid)
        gone = world.drop_stalest()
        assert bool(gone) == (pid == 4096)
    assert gone == [(pid, 1) for pid in range(2048)]
    assert len(world.histories) == 2049

    for number, kept in ((40_000, 40_000), (40_001, 0)):
        interval = ProcessInterval(1, 2)
        world.histories = {(10, 1): history_of([interval] * number)}
        world.forget_before(10, [((10, 1), 0)])
        assert len(world.histories[10, 1].intervals) == kept


def test_what_is_kept_of_a_trainer_is_bounded() -> None:
    """Looks at its stacks, what its GPUs did, and saves, the latest of each."""
    book = observed().trainers
    for number in range(2000):
        at_ns = number * SECOND_NS
        told: list[Sample] = [ThreadTime(10, 100, 10, at_ns, 0, number), StackSample(at_ns, 10, 100, 0, ())]
        told += [GpuUse(10, 100, gpu, ((at_ns, 50),)) for gpu in range(20)]
        book.ingest(frame(at_ns, 0, *told))
        book.record_save("pid-10", at_ns, at_ns)

    assert len(book.stacks((10, 100), 0, 2000 * SECOND_NS)) == 600
    assert [len(points) for points in book.gpu_uses((10, 100))] == [600] * 16
    assert [len(book.saves_between((10, 100), number * SECOND_NS, number * SECOND_NS)) for number in (1743, 1744)] == [
        0,
        1,
    ]
    for pid in range(1000):
        book.ingest(frame(2000 * SECOND_NS, 0, ThreadTime(pid + 1000, 1, 1, 0, 1, 1)))
    assert sum(book.is_known((pid + 1000, 1)) for pid in range(1000)) == 512


def test_what_a_history_takes_besides_its_samples_is_known() -> None:
    """A thousand connections have one each."""
    book: CounterHistories[tuple[int, int]] = CounterHistories(lambda: CounterHistory(1), limit=1000)
    for number in range(1000):
        book.touch((number, 10_000 + number)).add(number, (number,))
    assert book.retained_bytes == pytest.approx(deep_bytes(book), rel=0.2)


def test_what_is_known_of_processes_is_bounded() -> None:
    """A build on a host where nobody tells that processes end: the one that was described longest ago goes."""
    book = Jobs()
    for pid in range(2, 20_003):
        book.observe(process(pid, 1))
        book.record_traced((pid, 1), "cc1")

    assert (book.info((2, 20)), book.comm((2, 1))) == (None, "")
    assert book.info((3, 30)) is not None
    assert book.comm((3, 1)) == "cc1"


def test_a_process_that_others_descend_from_is_kept() -> None:
    """A launcher that is long gone still tells what job its ranks are of."""
    book = Jobs()
    for pid, parent_pid in ((10, 1), (11, 10), (12, 11), (13, 1)):
        book.observe(process(pid, parent_pid))
    name = book.job_of((12, 120))
    for pid in (10, 11, 13):
        book.record_exit((pid, pid * 10))
    book.forget([(pid, pid * 10) for pid in (10, 11, 13)])

    assert book.job_of((12, 120)) == name
    assert book.info((11, 110)) is not None
    assert book.info((13, 130)) is None
    book.record_exit((12, 120))
    book.forget([(12, 120)])
    assert books(book) == 0


def test_the_streams_that_were_judged_are_bounded() -> None:
    """In a flood of files the oldest go, and what is left keeps its sums but not its sessions."""
    book = TracedTransfers()
    for inode in range(_KEPT + 500):
        book.ingest(activity(100, f"/d/{inode}", 2.0, 2.01, 2000, inode=inode), 0)
        for stream in book.take_ended(0):
            stream.mark_classified()
    book.forget_before(0)
    left = book.transfers_of((100, 1000))

    assert len(left) == _KEPT
    assert not books(book.file_events), "where they are is not asked for any more"
    assert {stream.operations.bytes for stream in left if stream.operations is not None} == {2000}
    assert not any(stream.threads for stream in left)


def test_what_was_judged_is_bounded_while_something_older_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that goes on for an hour does not keep every file that others moved meanwhile."""
    monkeypatch.setattr("ckptprof.detect.transfers.observed.traced_books.MAX_FILES", 50)
    stage = Stage()
    detector = Detector(stage.header())
    path = "/data/checkpoint-1/model.safetensors"
    for number in range(150):
        at_s = number * 0.2
        at_ns = stage.header().at_ns + int((at_s + 0.2) * SECOND_NS)
        files = [
            activity(100, path, 0.0, at_s, (number + 1) * MIB, inode=1, closed=False),
            activity(100, path.replace("model", f"m-{number}"), at_s, at_s + 0.1, MIB, inode=9000 + number),
        ]
        files += [
            activity(200, f"/usr/lib/{inode}.so", at_s, at_s + 0.01, 999, inode=inode, writes=False)
            for inode in range(10 * number, 10 * number + 8)
        ]
        detector.ingest(Frame(at_ns, stage.wall(at_s + 0.2), ("processes",), (process(100), process(200), *files)))

    told = [stream for stream in detector._transfers.traced._ended if stream.phase is Phase.CLASSIFIED]
    assert min(stream.first_ns for stream in detector._transfers.waiting) < stage.header().at_ns + 2 * SECOND_NS
    assert len(told) < 600  # what came since the last time that old ones were looked for


def facts_of(numbers: Iterable[int]) -> FileFacts:
    """Return the facts of small files that nobody was seen writing."""
    stage, world = Stage(), observed()
    book = FileFacts(world, TracedTransfers(), FileOpenings())
    world.clock.update(stage.header().at_ns, stage.wall(0.0))
    learn(book, numbers)
    return book


def learn(book: FileFacts, numbers: Iterable[int]) -> None:
    """Take more of them."""
    stamp = Stage().wall(1.0)
    for inode in numbers:
        book.record(1, FileFact(10, 100, 2049, inode, f"/lib/{inode}", 9000, False, stamp, stamp, stamp, None, None))  # noqa: FBT003 - it is no folder


def test_facts_are_bounded_once_they_were_used() -> None:
    """Of an installation of ten thousand files the latest are remembered; what waits for its stream is kept."""
    book = facts_of(range(_KEPT + 300))
    book.apply([], [], Stage().header().at_ns)
    learn(book, range(50_000, 50_010))
    book.forget_before(0)

    assert book.modified_ns("/lib/0") is None
    assert book.modified_ns(f"/lib/{_KEPT}") is not None
    assert book.modified_ns("/lib/50000") is not None
    assert len(book._facts) == _KEPT + 10


def test_a_save_of_twenty_thousand_files_at_once_has_room() -> None:
    """More would lose their first ones before they are looked at: that is not put off when many have come."""
    book = facts_of(range(20_000))

    assert book.modified_ns("/lib/0") is not None
    learn(book, range(20_000, 20_010))
    assert book.modified_ns("/lib/9") is None
    assert [facts_of(range(number)).is_nearly_full for number in (5_000, 8_000)] == [False, True]


def test_what_is_kept_of_one_file_is_bounded() -> None:
    """It stays open, and is written, synced and looked at ten thousand times."""
    book = TracedTransfers()
    world = observed()
    polled = PolledTransfers(world, FileOpenings())
    for number in range(10_000):
        at_s = 2 + number / 5
        book.ingest(activity(100, "/d/log", 2.0, at_s, 4096 * (number + 1), closed=False), mono(at_s - 0.2))
        book.ingest_event(life("synced", at_s + 0.1))
        polled.ingest(mono(at_s), FileScan(100, 1000, (OpenFile(3, 2049, 7, number, 1, number, 0, "/d/log"),), None))
    (counted,), (looked_at,) = book.open_transfers(), polled.open_transfers()

    assert len(counted.syncs) == 64
    assert 600 <= len(counted.points) <= 1200
    assert sum(point.bytes for point in counted.points) == 4096 * 10_000
    assert len(looked_at.samples) == 4000
    assert looked_at.samples[-1].position == 9999
    assert looked_at.samples[0].position == 0
    assert deep_bytes(looked_at.samples) < 130_000, "numbers side by side: 4000 objects would take 700,000"
    assert polled.sample_count == 4000


def test_remembered_candidates_are_bounded_over_all_jobs() -> None:
    """Those of the job that did nothing for the longest go first; of a file of theirs nobody knows who wrote it."""
    memory = EventHistory()
    for number in range(2000):
        paths = frozenset(f"/d/{number}/{file}" for file in range(64))
        event = HistoryEvent(number, number + 1, 1, frozenset(("/d/0",)), paths, frozenset(), frozenset())
        for job in ("busy", f"job-{number // 64}"):
            memory.record(job, event, writes=True)

    held = [event for events in memory._events.values() for event in events]
    assert sum(len(event.paths) for event in held) <= 32_768
    assert len(memory.events("busy", writes=True)) == 64
    assert len(memory.events("job-31", writes=True)) == 2000 % 64
    assert memory.author_of("/d/0/0") is None


@pytest.mark.parametrize(("folder", "dismissed", "saves"), [("/data/out", 3, 0), ("/run/checkpoint-5/x", 0, 1)])
def test_nobody_waits_for_the_end_of_what_has_none(
    monkeypatch: pytest.MonkeyPatch, folder: str, dismissed: int, saves: int
) -> None:
    """A data set is made, a file twenty times a second; but a checkpoint of as many files is waited for."""
    monkeypatch.setattr("ckptprof.detect.events.gathering.MANY_PARTS", 100)
    monkeypatch.setattr("ckptprof.detect.events.gathering._MAX_PARTS", 200)
    stage = Stage()
    detector = Detector(stage.header())
    told, waiting = [], 0
    for number in range(800):
        at_s, path = number / 20, f"{folder}/shard_{number}.npy"
        stamp = stage.wall(at_s)
        samples: list[Sample] = [
            *([process(10, 1)] if not number else []),
            life("created", at_s, 10, inode=number, path=path),
            activity(10, path, at_s, at_s + 0.01, MIB, inode=number),
            FileFact(10, 100, 2049, number, path, MIB, False, stamp, stamp, stamp, None, NUMPY),  # noqa: FBT003 - it is no folder
        ]
        at_ns = stage.header().at_ns + int(at_s * SECOND_NS)
        told += detector.ingest(Frame(at_ns, stage.wall(at_s), ("processes",), tuple(samples)))
        waiting = max(waiting, len(detector._transfers.waiting))
    told += detector.finish()

    endless = [one for one in detector.rejected if {"endless"} == {reason.name for reason in one.evidence}]
    assert len(endless) == dismissed
    assert (waiting < 300) == bool(dismissed)
    assert len({one.uid for one in told}) == saves
