"""A file that nobody was caught writing is of the process that wrote as much, whoever of its job asked for it."""

from __future__ import annotations

import msgspec
import pytest
from tests.detect.observed import history_of, observed
from tests.detect.stage import MIB, Stage, play

from ckptprof.detect.transfers.edges import estimate_write_edges
from ckptprof.detect.transfers.file_facts import FileFacts
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.transfers.transferred_bytes import estimate_bytes
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import (
    FileEvent,
    FileFact,
    FileScan,
    Frame,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    ThreadSample,
)

SECOND_NS = 1_000_000_000
CHILDREN = (201, 202)
LATER_S = 20.0  # nothing is left for a later look
OF_TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}
ON_TWO_NODES = {**OF_TORCHRUN, "GROUP_WORLD_SIZE": "2", "GROUP_RANK": "0"}


def asked_by_the_trainer_only(frames: list[Frame]) -> list[Frame]:
    """Let nobody see what the children hold open, and their parent ask for all files of the folder."""
    changed = []
    for frame in frames:
        samples = [s for s in frame.samples if not (isinstance(s, FileScan) and s.pid in CHILDREN)]
        facts = [msgspec.structs.replace(s, pid=100, start_ticks=1000) for s in samples if isinstance(s, FileFact)]
        rest = [s for s in samples if not isinstance(s, FileFact)]
        changed.append(msgspec.structs.replace(frame, samples=(*rest, *facts)))
    return changed


@pytest.mark.parametrize("seconds", [0.3, 0.6])
def test_files_of_children_that_ended_at_once_are_of_the_save(seconds: float) -> None:
    """Megatron's writers live as long as one file takes, and are gone before anybody looks at what they have open."""
    stage = Stage(poll=True)
    stage.process()
    for rank, pid in enumerate(CHILDREN):
        child = stage.process(pid, parent_pid=100, born_s=4.5, exit_s=5.2 + seconds)
        stage.write(child, f"/run/iter_0000007/__0_{rank}.distcp", 5.0, seconds, 30 * MIB)

    (save,) = play(stage.header(), asked_by_the_trainer_only(stage.frames(20)))

    assert (save.step, save.files, save.bytes) == (7, 2, 60 * MIB)


def fact(pid: int, modified_s: float, *, path: str = "/run/ckpt_7/a.pt", size: int = 30 * MIB) -> FileFact:
    """Return what was told to one process; wall and monotonic clock are the same here."""
    modified = round(modified_s * SECOND_NS)
    return FileFact(pid, 1, 8, 7, path, size, False, SECOND_NS * 10, modified, modified, None, None)  # noqa: FBT003 - no folder


def history(*, first_s: float, total: int, wrote: int = 0, until_s: float = 11.0) -> ProcessHistory:
    """Return the history of a process that was met at a time, with what it wrote in its life and since it was met."""
    counters = ProcessIo(1, 1, 0, total, 0, 0, 0, 0, 0)
    intervals = [
        ProcessInterval(round(first_s * SECOND_NS), round(until_s * SECOND_NS), busy=1.0, new_written_bytes=wrote)
    ]
    return history_of(intervals if wrote else [], counters, None, round(first_s * SECOND_NS))


def facts_of(world: World) -> FileFacts:
    """Return an empty book of a world that nobody traces."""
    return FileFacts(world, TracedTransfers(), FileOpenings())


def credited(book: FileFacts, at_s: float = LATER_S) -> list[Transfer]:
    """Return the streams that are made of facts only."""
    return book.apply([], [], round(at_s * SECOND_NS))


def test_a_file_is_of_any_of_those_who_asked() -> None:
    """Two ranks look at one folder, and the one that did not write looks last."""
    writer, other = history(first_s=9, total=30 * MIB, wrote=30 * MIB), history(first_s=9, total=0)
    book = facts_of(observed({(100, 1): writer, (101, 1): other}))
    book.record(12 * SECOND_NS, fact(100, 10.5))
    book.record(12 * SECOND_NS, fact(101, 10.5))

    (one,) = credited(book)

    assert one.process == (100, 1)


@pytest.mark.parametrize("ranks", [(0, 1), (1, 0)])
def test_a_file_is_of_the_rank_in_its_name_if_several_wrote_as_much(ranks: tuple[int, int]) -> None:
    """Ranks that save at once write equal files, and either of them asks for all of the folder."""
    histories = {(pid, 1): history(first_s=9, total=30 * MIB, wrote=30 * MIB) for pid in (100, 101)}
    world = observed(histories)
    for pid, rank in zip((100, 101), ranks, strict=True):
        info = ProcessInfo(
            pid=pid, start_ticks=1, parent_pid=1, uid=0, comm="python3", program="train.py", runtimes=("torch",),
            environment={"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "29500"}, cgroup=None,
        )  # fmt: skip
        world.jobs.observe(info)
    book = facts_of(world)
    for inode, name in enumerate(("__0_0.distcp", "__1_0.distcp")):
        told = msgspec.structs.replace(fact(101, 10.5, path=f"/run/ckpt_7/{name}"), inode=inode)
        book.record(12 * SECOND_NS, told)

    written = {one.process[0]: one.path for one in credited(book)}

    assert [written[100 + ranks.index(rank)][-10] for rank in (0, 1)] == ["0", "1"]


@pytest.mark.parametrize(
    ("born_s", "first_s", "total", "found"),
    [
        (9.9, 10.4, 31, 1),
        (9.9, 14.0, 31, 1),
        (9.9, 10.4, 12, 0),
        (7.5, 8.0, 31, 0),
        (11.0, 14.0, 31, 0),
        (None, 10.4, 31, 1),
        (None, 14.0, 31, 0),
    ],
    ids=["forked", "sampled late", "less", "before the file", "after the file", "older", "older, sampled late"],
)
def test_what_a_process_wrote_before_its_first_sample_counts(
    born_s: float | None, first_s: float, total: int, found: int
) -> None:
    """Its counters were zero when it was born; an older one counts if it was first sampled as it wrote."""
    child = ProcessHistory(born_ns=None if born_s is None else round(born_s * SECOND_NS))
    counters, first_ns = ProcessIo(200, 1, 0, total * MIB, 0, 30, 0, total * MIB, 0), round(first_s * SECOND_NS)
    child.observe(first_ns, first_ns - SECOND_NS // 10, counters, None, 100)
    book = facts_of(observed({(200, 1): child}, parents={200: 100}))
    book.record(12 * SECOND_NS, fact(100, 10.5))

    streams = credited(book)

    assert [stream.process for stream in streams] == [(200, 1)] * found


@pytest.mark.parametrize("size", [50_000, 30 * MIB])
@pytest.mark.parametrize(
    ("faults", "trainers", "asked_by", "found"),
    [(500, (), 100, 0), (500, (100,), 100, 1), (0, (), 100, 1), (500, (100,), 200, 0)],
)
def test_what_a_child_wrote_is_not_of_who_waited_for_it_unless_that_one_trains(
    size: int, faults: int, trainers: tuple[int, ...], asked_by: int, found: int
) -> None:
    """Its bytes come into the counters of whoever waits for it; of a runner with torch not if git asked for it."""
    writer = ProcessHistory()
    book = facts_of(observed({(100, 1): writer}, trainers=trainers, parents={200: 100}))
    book.record(12 * SECOND_NS, fact(asked_by, 10.5, size=size))
    for at_s, wrote in ((10.0, 0), (10.6, size), (11.0, size)):
        stat = ProcessStat(100, 1, "S", 0, 0, 0, 0, 1, None, None, faults if wrote else 0)
        io = ProcessIo(100, 1, 0, wrote, 0, 1 if wrote else 0, 0, wrote, 0)
        writer.observe(round(at_s * SECOND_NS), round((at_s - 0.5) * SECOND_NS), io, stat, 100)

    assert len(credited(book)) == found


def test_a_small_file_is_of_who_trains_and_wrote_as_much() -> None:
    """Not of somebody else who looked at the folder later, or first, and wrote something just then."""
    writer, other = history(first_s=9, total=MIB, wrote=MIB), history(first_s=9, total=MIB, wrote=MIB)
    book = facts_of(observed({(100, 1): writer, (101, 1): other}, trainers=(100,)))
    book.record(11 * SECOND_NS, fact(101, 10.5, size=50_000))
    early = credited(book, 11)
    book.record(12 * SECOND_NS, fact(100, 10.5, size=50_000))
    book.record(12 * SECOND_NS, fact(101, 10.5, size=50_000))

    (one,) = credited(book, 11)

    assert early == []
    assert one.process == (100, 1)


@pytest.mark.parametrize(("wrote", "at_s"), [(20_000, 11), (MIB, 15)])
def test_a_small_file_of_nobody_who_trains_is_of_who_asked(wrote: int, at_s: int) -> None:
    """If those who train wrote too little for it, or never asked for it."""
    histories = {(100, 1): history(first_s=9, total=wrote, wrote=wrote), (101, 1): history(first_s=9, total=1, wrote=1)}
    book = facts_of(observed(histories, trainers=(100,)))
    book.record(11 * SECOND_NS, fact(101, 10.5, size=50_000))

    (one,) = credited(book, at_s)

    assert one.process == (101, 1)


@pytest.mark.parametrize(
    ("own", "dirtied", "counted_s", "found"),
    [(30, 0, 10, 0), (30, 30, 10, 1), (0, 0, 10, 1), (30, 30, 9, 1), (0, 30, 9, 0)],
    ids=["pipes", "files", "files in memory", "counted late", "counted late, in memory"],
)
def test_what_a_process_wrote_into_pipes_is_no_file(own: int, dirtied: int, counted_s: int, found: int) -> None:
    """Pages of a file of its parent on that disk were counted: another one would have dirtied some, too."""
    before, after = (
        ProcessInterval(
            low * SECOND_NS, low * SECOND_NS + SECOND_NS // 2, new_written_bytes=30 * MIB, dirtied_bytes=pages
        )
        for low, pages in ((5, own * MIB), (counted_s, dirtied * MIB))
    )
    histories = {(pid, 1): history_of([one], None, None, SECOND_NS) for pid, one in ((100, before), (101, after))}
    book = facts_of(observed(histories))
    times = 5 * SECOND_NS, 6 * SECOND_NS, 5 * SECOND_NS
    known = Transfer((100, 1), (8, 9), True, "/run/b.pt", *times, size=30 * MIB)  # noqa: FBT003 - written
    book.record(12 * SECOND_NS, fact(101, 10.5))

    transfers = book.apply([known], [], round(LATER_S * SECOND_NS))

    assert [one.process for one in transfers if one.is_credited] == [(101, 1)] * found


class Weighed(ProcessHistory):
    """Counts how often it is asked what was written."""

    times = 0

    def wrote_bytes(self, start_ns: int, end_ns: int) -> int:
        """Answer, and count."""
        Weighed.times += 1
        return super().wrote_bytes(start_ns, end_ns)


def test_small_files_that_wait_for_a_trainer_are_not_weighed_again_at_each_round() -> None:
    """Another user has thousands of them: each is weighed once, and waits until a trainer has asked or it is late."""
    wrote = history(first_s=9, total=MIB, wrote=MIB)
    trainer = Weighed(wrote.last_io, None, wrote.first_ns)
    trainer._append(*wrote.intervals)
    book = facts_of(observed({(100, 1): trainer, (101, 1): history(first_s=9, total=0)}, trainers=(100,)))
    for inode in range(50):
        told = msgspec.structs.replace(fact(101, 10.5, path=f"/run/{inode}", size=900), inode=inode)
        book.record(12 * SECOND_NS, told)

    Weighed.times = 0
    early = [credited(book, at_s) for at_s in (12.2, 12.7, 13.2)]
    assert Weighed.times == 50
    book.record(13 * SECOND_NS, msgspec.structs.replace(told, pid=100))
    late = credited(book, 13.7)

    assert early == [[], [], []]
    assert [(one.process, one.path) for one in late] == [((100, 1), "/run/49")]


def test_a_marker_that_is_written_anew_is_of_the_next_save() -> None:
    """DeepSpeed's `latest` has one inode for all saves; the one before may wait for judgement still."""
    book = facts_of(observed({(100, 1): history(first_s=9, total=99, wrote=99, until_s=14)}))
    book.record(11 * SECOND_NS, fact(100, 10.5, path="/run/latest", size=12))
    (first,) = credited(book)
    book.record(14 * SECOND_NS, fact(100, 12.5, path="/run/latest", size=12))

    streams = book.apply([first], [], 20 * SECOND_NS)

    assert [stream.last_ns / SECOND_NS for stream in streams] == [10.5, 12.5]


def caught(first_s: float, position: int) -> Transfer:
    """Return the stream of a writer that was met with the file open, and closed it soon."""
    at_ns = round(first_s * SECOND_NS)
    look = PositionSample(at_ns, position, position)
    return Transfer(
        (100, 1),
        (8, 7),
        True,  # noqa: FBT003 - it writes
        "/run/ckpt_7/a.pt",
        at_ns,
        at_ns,
        at_ns,
        at_ns + SECOND_NS,
        samples=[look],
    )


@pytest.mark.parametrize(
    ("first_s", "position", "left"), [(10.9, 40 * MIB, 1), (10.9, 10 * MIB, 2), (13.0, 40 * MIB, 2)]
)
def test_a_file_that_was_found_while_it_grew_is_of_who_was_caught_with_it(
    first_s: float, position: int, left: int
) -> None:
    """One save, from when the file was born; but who begins anew, or comes much later, writes another."""
    book = facts_of(observed({(100, 1): history(first_s=9, total=30 * MIB, wrote=30 * MIB)}))
    book.record(11 * SECOND_NS, fact(100, 10.5))
    (found,) = credited(book)
    later = caught(first_s, position)

    book.record(12 * SECOND_NS, fact(100, 11.5, size=40 * MIB))
    streams = book.apply([found, later], [], 20 * SECOND_NS)

    assert len(streams) == left
    assert (later.first_ns == found.first_ns) == (left == 1)


def test_a_file_that_was_found_while_it_grew_waits_for_who_still_has_it_open() -> None:
    """Nothing is told of it before it is closed."""
    book = facts_of(observed({(100, 1): history(first_s=9, total=30 * MIB, wrote=30 * MIB)}))
    book.record(11 * SECOND_NS, fact(100, 10.5))
    (found,) = credited(book)
    book.record(12 * SECOND_NS, fact(100, 11.5, size=40 * MIB))

    assert book.apply([found], [caught(10.9, 40 * MIB)], 20 * SECOND_NS) == []


@pytest.mark.parametrize(("looked_at_s", "told"), [(10.96, 40 * MIB), (12.0, 30 * MIB)])
def test_a_file_that_was_looked_at_while_it_grew_is_as_long_as_it_was_seen_to_be(looked_at_s: float, told: int) -> None:
    """Orbax merges its files and deletes them: nobody can look again. What was looked at later was cut off."""
    book = facts_of(observed())
    book.record(round(looked_at_s * SECOND_NS), fact(100, 10.95, size=30 * MIB))
    stream = caught(11.0, 40 * MIB)
    stream.size = 40 * MIB

    book.apply([stream], [], 20 * SECOND_NS)

    assert stream.fact is not None
    assert stream.fact.size == told


@pytest.mark.parametrize(("busy", "met", "end"), [(0.2, "", 13.1), (0.5, "", 11.5), (0.2, "R", 11.5), (0.2, "D", 13.1)])
def test_who_computes_while_a_file_stays_open_does_not_flush_it(busy: float, met: str, end: float) -> None:
    """A process in fsync(2) sleeps; one that goes on with something else forgot to close its file."""
    writer, ended = caught(11.0, 40 * MIB), round(11.5 * SECOND_NS)
    writer.last_ns, writer.closed_ns = 13 * SECOND_NS, round(13.2 * SECOND_NS)
    writer.fact = fact(100, 11.5, size=40 * MIB)
    steps = [(11 * SECOND_NS, ended, 40 * MIB, 1.0), (ended, writer.last_ns, 0, busy)]
    intervals = (ProcessInterval(begin, end, busy=share, new_written_bytes=size) for begin, end, size, share in steps)
    world = observed()
    for at_ns in (11_600_000_000, 12_200_000_000, 12_800_000_000) if met else ():  # 74: fsync(2)
        sample = ThreadSample(*writer.process, 100, "", 0, 0, 0, 0, 0, None, met, 74 if met == "D" else -1, "")
        world.threads.observe(at_ns, sample)

    edges = estimate_write_edges(writer, history_of(list(intervals)), world, FileOpenings())

    assert edges[1] / SECOND_NS == pytest.approx(end)


@pytest.mark.parametrize(("size", "end_s"), [(30 * MIB, 11.6), (20 * MIB, 10.6)])
def test_what_a_file_has_and_nobody_had_written_at_its_stamp_was_written_later(size: int, end_s: float) -> None:
    """A server stamped it with its opening, or it was one long call; what is too much for it went elsewhere."""
    writer = caught(10.5, size)
    writer.first_ns, writer.last_ns, writer.closed_ns = (round(at_s * SECOND_NS) for at_s in (10.5, 11.65, 11.7))
    writer.samples = [PositionSample(writer.first_ns, 0, 0), PositionSample(writer.last_ns, size, size)]
    writer.fact = fact(100, 10.5, size=size)
    spans = ((10.5, 10.6, 20 * MIB), (10.6, 11.5, 0), (11.5, 11.6, 10 * MIB))
    steps = [
        ProcessInterval(round(low * 1e9), round(high * 1e9), busy=1.0, new_written_bytes=wrote, written_bytes=wrote)
        for low, high, wrote in spans
    ]

    edges = estimate_write_edges(writer, history_of(steps), observed(), FileOpenings())

    assert edges[1] / SECOND_NS == pytest.approx(end_s)


@pytest.mark.parametrize(("busy", "end_s"), [(0.1, 12.5), (0.9, 11.1)])
def test_a_closing_that_nobody_looked_at_is_of_who_rests_until_it(busy: float, end_s: float) -> None:
    """The sampler came late; a file that stays open while its process computes was complete before."""
    writer = caught(10.5, 20 * MIB)
    writer.first_ns, writer.last_ns, writer.closed_ns = round(10.5 * SECOND_NS), round(10.9 * SECOND_NS), None
    writer.samples = [PositionSample(writer.first_ns, 0, 0), PositionSample(writer.last_ns, 0, 0)]
    writer.fact = fact(100, 10.5, size=20 * MIB)
    spans = ((10.5, 11.0, 0, 0.3), (11.0, 11.1, 20 * MIB, 0.3), (11.1, 12.5, 0, busy))
    steps = [
        ProcessInterval(round(low * 1e9), round(high * 1e9), busy=share, new_written_bytes=wrote, written_bytes=wrote)
        for low, high, wrote, share in spans
    ]
    openings = FileOpenings()
    openings.record(FileEvent(round(12.5 * SECOND_NS), "closed-written", *writer.file, 20 * MIB, writer.path))
    closing = openings.closing_of(writer)
    assert closing is not None
    writer.set_closing(closing.at_ns, closing.size)

    edges = estimate_write_edges(writer, history_of(steps), observed(), openings)

    assert edges[1] / SECOND_NS == pytest.approx(end_s)


def test_a_position_that_lags_behind_the_counters_leaves_no_hole() -> None:
    """It moves when write(2) ends; what that has written was counted before."""
    begun, met, last = 10 * SECOND_NS, round(10.1 * SECOND_NS), round(10.2 * SECOND_NS)
    looks = [
        PositionSample(met, 20 * MIB, 29 * MIB),
        PositionSample(met + 1, 20 * MIB, 30 * MIB),
        PositionSample(last, 30 * MIB, 30 * MIB),
    ]
    stream = Transfer(
        (100, 1),
        (8, 7),
        True,  # noqa: FBT003 - it writes
        "/run/ckpt_7/a.pt",
        met,
        last,
        met,
        last,
        samples=looks,
        size=30 * MIB,
    )
    seen = [ProcessInterval(begun, met, busy=1.0, new_written_bytes=9 * MIB)]
    seen.append(ProcessInterval(met, last, busy=1.0, new_written_bytes=MIB))
    stream.fact = fact(100, 10.2)

    assert estimate_bytes(stream, history_of(list(seen), None, None, begun), (begun, last)) == 30 * MIB


@pytest.mark.parametrize(("wrote", "told"), [(10 * MIB, 10 * MIB), (24 * MIB, 30 * MIB)])
def test_a_position_that_outruns_the_bytes_by_far_leaves_holes(wrote: int, told: int) -> None:
    """Who seeks on in a file that is there, or is sparse, writes a part of it; counters may miss some of the rest."""
    writer, begun, ended = caught(10.5, 30 * MIB), 10 * SECOND_NS, 11 * SECOND_NS
    writer.samples = [
        PositionSample(at_ns, at * MIB, 30 * MIB) for at_ns, at in ((begun, 0), (begun + 200, 9), (ended, 30))
    ]
    writer.size = 30 * MIB
    seen = ProcessInterval(begun, ended, busy=1.0, new_written_bytes=wrote)

    assert estimate_bytes(writer, history_of([seen]), (begun, ended)) == told


def test_a_marker_that_is_written_anew_begins_and_ends_when_it_was_written() -> None:
    """Not when its inode was born or its process began to write, whatever the clocks differ by from look to look."""
    writer = history(first_s=9, total=99, wrote=MIB, until_s=14)
    world = observed({(100, 1): writer})
    book = facts_of(world)
    book.record(11 * SECOND_NS, fact(100, 12.5, path="/run/latest", size=12))
    (marker,) = credited(book)
    world.clock.update(0, 500)

    edges = estimate_write_edges(marker, writer, world, FileOpenings())

    assert [at_ns / SECOND_NS for at_ns in edges] == pytest.approx([12.5, 12.5], abs=1e-6)


@pytest.mark.parametrize("late", [True, False])
def test_who_asked_for_a_fresh_file_is_remembered_though_it_learnt_no_news(*, late: bool) -> None:
    """The launcher asked first, the trainer when its burst was over: the file is the trainer's."""
    histories = {(one, 1): history(first_s=9, total=MIB, wrote=MIB) for one in (100, 101)}
    book = facts_of(observed(histories, trainers=(100,)))
    book.record(11 * SECOND_NS, fact(101, 10.5, size=50_000))
    if late:
        book.record(12 * SECOND_NS, msgspec.structs.replace(fact(100, 10.5, size=50_000), unwritten_bytes=0))

    (one,) = credited(book, 15)

    assert one.process == ((100, 1) if late else (101, 1))


@pytest.mark.parametrize(
    ("wrote", "folder", "environment", "found"),
    [(10, "ckpt_7", {}, 2), (10, "ckpt_6", {}, 1), (3, "ckpt_7", {}, 1), (10, "ckpt_7", ON_TWO_NODES, 1)],
)
def test_a_file_beside_what_its_process_wrote_just_then_needs_little_credit(
    wrote: int, folder: str, environment: dict[str, str], found: int
) -> None:
    """Counters are read before the last bytes and after the first of the next file: a part is left for this one.

    Of a run on two nodes it is as likely the other node's.
    """
    begun, end = 10 * SECOND_NS, round(10.6 * SECOND_NS)
    beside = caught(10.2, 40 * MIB)
    beside.file, beside.path, beside.before_ns, beside.size = (8, 9), f"/run/{folder}/b.pt", begun, 40 * MIB
    beside.last_ns = beside.closed_ns = round(10.5 * SECOND_NS)
    moved = (40 + wrote) * MIB
    writer = history_of([ProcessInterval(begun, end, busy=1.0, new_written_bytes=moved)], first_ns=SECOND_NS)
    book = facts_of(observed({(100, 1): writer}, environment=environment))
    book.record(11 * SECOND_NS, fact(100, 10.5))

    assert len(book.apply([beside], [], 20 * SECOND_NS)) == found


@pytest.mark.parametrize(("environment", "found"), [({}, 1), (OF_TORCHRUN, 1), (ON_TWO_NODES, 0)])
def test_a_file_that_grows_beyond_what_was_written_here_is_another_nodes(
    environment: dict[str, str], found: int
) -> None:
    """It was looked at when it was as large as what the process here had written of its own file, and not said yet."""
    writer = history(first_s=9, total=8 * MIB, wrote=8 * MIB)
    book = facts_of(observed({(100, 1): writer}, environment=environment))
    book.record(11 * SECOND_NS, fact(100, 10.5, size=6 * MIB))
    early = credited(book, 11)
    assert [one.stored_size for one in early] == [6 * MIB]
    book.record(12 * SECOND_NS, fact(100, 10.5, size=30 * MIB))

    late = book.apply(early, [], 12 * SECOND_NS)

    assert [one.stored_size for one in late] == [30 * MIB] * found


def test_what_another_file_can_have_had_is_no_more_than_was_written_then() -> None:
    """Rank 1's next file was seen open up to half a second after; its bytes came later than the missed one's."""
    later = caught(10.55, 40 * MIB)
    later.file, later.path, later.before_ns, later.size = (8, 9), "/run/ckpt_7/b.pt", round(10.45 * SECOND_NS), 40 * MIB
    steps = [(10.3, 10.5, 30 * MIB), (10.5, 10.56, 4096), (10.56, 11.5, 40 * MIB)]
    writer = history_of(
        [
            ProcessInterval(round(start_s * SECOND_NS), round(end_s * SECOND_NS), busy=1.0, new_written_bytes=size)
            for start_s, end_s, size in steps
        ],
        None, None, 9 * SECOND_NS,
    )  # fmt: skip
    later.last_ns = later.closed_ns = round(10.75 * SECOND_NS)
    book = facts_of(observed({(100, 1): writer}))
    book.record(11 * SECOND_NS, fact(100, 10.5))
    found = book.apply([later], [], 20 * SECOND_NS)

    assert [stream.path for stream in found] == ["/run/ckpt_7/b.pt", "/run/ckpt_7/a.pt"]
