"""Files that were opened and read between two looks: to whom they are credited, and to whom not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.detect.observed import observed
from tests.detect.stage import MIB, SECOND_NS

from ckptprof.detect.tolerances import MAX_FILES
from ckptprof.detect.transfers.edges import estimate_read_edges
from ckptprof.detect.transfers.estimates import TransferEstimates
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.observed.polled_transfers import PolledTransfers
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.transfers.recent_files import RecentTransfers, SavedFiles
from ckptprof.detect.transfers.unobserved_reads import find_unobserved_reads
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval
from ckptprof.detect.world.thread_histories import ThreadHistories
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import FileEvent, ProcessIo, ProcessStat

SIZE = 70 * MIB
PATH = "/run/checkpoint-500/optimizer.pt"


class Book(FileOpenings):
    """The openings of a world with some saved files."""

    def __init__(self, world: World, saved: tuple[str, ...]) -> None:
        """Start with nothing."""
        super().__init__()
        self._world, self._saved = world, SavedFiles(saved)

    def unexplained(self, now_ns: int, known: list[Transfer]) -> list[Transfer]:
        """Return what is made of the openings that `known` does not explain."""
        return find_unobserved_reads(self, known, self._world, self._saved, now_ns)


def no_openings(
    history: ProcessHistory | None = None, *, loads_models: bool = True, saved: tuple[str, ...] = (PATH,)
) -> Book:
    """Return an empty book, of a world with one process, which has PyTorch loaded or nothing."""
    world = observed({(100, 1): history} if history is not None else {}, trainers=(100,) if loads_models else ())
    return Book(world, saved)


def openings(
    history: ProcessHistory | None = None, *, loads_models: bool = True, saved: tuple[str, ...] = (PATH,)
) -> Book:
    """Return a book of one file that was open from 10.0 to 10.2 s."""
    book = no_openings(history, loads_models=loads_models, saved=saved)
    learn(book)
    return book


def learn(book: FileOpenings) -> None:
    """Tell of one file that was open from 10.0 to 10.2 s."""
    for kind, at_s in (("opened", 10.0), ("closed-read", 10.2)):
        book.record(FileEvent(round(at_s * SECOND_NS), kind, 1, 7, SIZE, PATH))


def reader(read_bytes: int) -> ProcessHistory:
    """Return a process that read so much while the file was open."""
    history = ProcessHistory()
    begin_ns, end_ns = round(10.0 * SECOND_NS), round(10.2 * SECOND_NS)
    history._append(
        ProcessInterval(begin_ns, end_ns, read_bytes=read_bytes, returned_bytes=read_bytes, reads=70, busy=0.5)
    )
    return history


def credited(read_bytes: int, *, loads_models: bool, saved: tuple[str, ...] = (PATH,)) -> list[Transfer]:
    """Return what is made of the opening."""
    return openings(reader(read_bytes), loads_models=loads_models, saved=saved).unexplained(20 * SECOND_NS, [])


def test_what_was_read_while_it_was_open_is_credited_to_a_process_that_loads_models() -> None:
    """Its counters rose by the size of the file."""
    (stream,) = credited(SIZE, loads_models=True)

    assert (stream.process, stream.path, stream.size) == ((100, 1), PATH, SIZE)


@pytest.mark.parametrize(
    ("read_bytes", "loads_models", "saved"),
    [(SIZE, False, (PATH,)), (SIZE // 2, True, (PATH,)), (SIZE, True, ("/run/checkpoint-400/optimizer.pt",))],
)
def test_nobody_is_credited_who_did_not_read_as_much_or_loads_no_models(
    read_bytes: int,
    loads_models: bool,  # noqa: FBT001 - a case
    saved: tuple[str, ...],
) -> None:
    """Gzip read it, and a shell moved as many bytes elsewhere meanwhile; or nobody ever saved that file."""
    assert credited(read_bytes, loads_models=loads_models, saved=saved) == []


@pytest.mark.parametrize(("path", "credited_to"), [("/run/checkpoint-500/model.pt", 1), ("/run/data/model.pt", 0)])
def test_who_was_seen_at_a_file_of_the_folder_is_credited_too(path: str, credited_to: int) -> None:
    """The smaller files of a checkpoint are read between two looks, beside the larger ones."""
    seen = Transfer((100, 1), (1, 8), writes=False, path=path, first_ns=0, last_ns=10 * SECOND_NS, before_ns=0)

    found = openings(reader(SIZE), saved=()).unexplained(20 * SECOND_NS, [seen])

    assert len(found) == credited_to


@pytest.mark.parametrize(("file", "open_s", "credited_to"), [(8, 0.2, 0), (8, 3.0, 0), (7, 0.2, 0), (9, 0.2, 1)])
def test_what_somebody_else_opened_while_a_trainer_read_another_file_is_not_the_trainers(
    file: int, open_s: float, credited_to: int
) -> None:
    """A backup looks at the last checkpoint while the one before is restored: those bytes are of that one.

    However long it stays open: they may have been read at any time of it.
    """
    at_ns = round(10.0 * SECOND_NS)
    looks = [PositionSample(at_ns + 1, 0, SIZE), PositionSample(at_ns + SECOND_NS // 5, SIZE if file != 9 else 0, SIZE)]
    other = Transfer((100, 1), (1, file), writes=False, path="/run/checkpoint-400/optimizer.pt",
                           first_ns=at_ns + 1, last_ns=at_ns + round(open_s * SECOND_NS), before_ns=at_ns,
                           samples=looks, size=SIZE)  # fmt: skip

    found = openings(reader(SIZE)).unexplained(20 * SECOND_NS, [other])

    assert len(found) == credited_to


@pytest.mark.parametrize(("closed_s", "credited_to"), [(9.95, 1), (None, 0)])
def test_a_file_that_is_opened_when_its_writer_has_closed_it_is_read(closed_s: float | None, credited_to: int) -> None:
    """A converter starts at once. Without an observed close it may be the writer's own open."""
    book = no_openings(reader(SIZE))
    for at_s in filter(None, (closed_s,)):
        book.record(FileEvent(round(at_s * SECOND_NS), "closed-written", 1, 7, SIZE, PATH))
    learn(book)
    write = Transfer((101, 1), (1, 7), writes=True, path=PATH, first_ns=9 * SECOND_NS, last_ns=round(9.9 * SECOND_NS),
                     before_ns=9 * SECOND_NS, closed_ns=round(9.98 * SECOND_NS))  # fmt: skip

    assert [one.process for one in book.unexplained(20 * SECOND_NS, [write])] == [(100, 1)] * credited_to


@pytest.mark.parametrize(
    ("born_s", "open_s", "credited_to"),
    [(9.9, 0.2, 1), (9.0, 0.2, 0), (9.9, 0.0, 0)],
    ids=["started", "long before", "inspected"],
)
def test_what_a_process_read_before_its_first_sample_is_credited_where_its_time_is_known(
    born_s: float, open_s: float, credited_to: int
) -> None:
    """Its counters started from zero; those of a second may be of any time in it, and of any file that was open."""
    history, first_ns = ProcessHistory(born_ns=round(born_s * SECOND_NS)), round(10.3 * SECOND_NS)
    history.observe(first_ns, first_ns - SECOND_NS // 10, ProcessIo(100, 1, SIZE, 0, 70, 0, 0, 0, 0), None, 100)
    book = no_openings(history)
    for kind, at_s in (("opened", 10.0), ("closed-read", 10.0 + open_s)):
        book.record(FileEvent(round(at_s * SECOND_NS), kind, 1, 7, SIZE, PATH))

    assert len(book.unexplained(20 * SECOND_NS, [])) == credited_to


@pytest.mark.parametrize(
    ("open_s", "files_read", "credited_to"),
    [
        ((0.04, 0.04), 1, []),
        ((0.04, 0.04), 2, [7, 8]),
        ((0.04, 0.0), 1, [7]),
        ((0.0, 0.04), 1, [8]),
        ((0.0, 0.0), 1, []),
    ],
)
def test_of_two_files_of_one_size_none_is_credited_unless_both_were_read(
    open_s: tuple[float, float], files_read: int, credited_to: list[int]
) -> None:
    """Both were open within one interval of the counters; a look of another recorder into one is too short."""
    book = no_openings(reader(files_read * SIZE), saved=("/run",))
    for file, at_s, length_s in zip((7, 8), (10.0, 10.14), open_s, strict=True):
        for kind, late_s in (("opened", 0.0), ("closed-read", length_s)):
            book.record(FileEvent(round((at_s + late_s) * SECOND_NS), kind, 1, file, SIZE, f"/run/{file}.pt"))

    assert [one.file[1] for one in book.unexplained(20 * SECOND_NS, [])] == credited_to


@pytest.mark.parametrize(("open_s", "was_read"), [(0.002, False), (0.02, True)])
def test_who_looks_into_a_file_for_a_moment_has_not_read_it(open_s: float, was_read: bool) -> None:  # noqa: FBT001
    """70 MB within 2 ms are more than a thread reads."""
    book = no_openings()
    for kind, at_s in (("opened", 10.0), ("closed-read", 10.0 + open_s)):
        book.record(FileEvent(round(at_s * SECOND_NS), kind, 1, 7, SIZE, PATH))

    assert book.may_have_been_read((1, 7), 9 * SECOND_NS, 11 * SECOND_NS) is was_read


@pytest.mark.parametrize(("ended_s", "credited_to"), [(10.1, 0), (8.0, 1), (12.0, 1)])
def test_who_waited_for_a_child_just_then_is_not_credited(ended_s: float, credited_to: int) -> None:
    """The counters of a program take in those of all that it waited for: it read nothing by that."""
    history = reader(SIZE)
    history.add_child_counters(round(ended_s * SECOND_NS), ProcessIo(101, 1, 0, 0, 0, 0, 0, 0, 0))

    found = openings(history).unexplained(20 * SECOND_NS, [])

    assert len(found) == credited_to


@pytest.mark.parametrize(("waited", "credited_to"), [(True, 0), (False, 1)])
def test_who_waited_for_a_child_that_nobody_met_is_not_credited(waited: bool, credited_to: int) -> None:  # noqa: FBT001 - a case
    """A script runs cp, which copies as much as the file holds, while a backup opens that."""
    history = ProcessHistory()
    for at_s, read in ((9.9, 0), (10.1, SIZE)):
        stat = ProcessStat(100, 1, "S", 0, 0, 0, 0, 1, None, None, 200 if waited and read else 100)
        io = ProcessIo(100, 1, read, 0, 9 if read else 0, 0, 0, 0, 0)
        history.observe(round(at_s * SECOND_NS), round((at_s - 0.1) * SECOND_NS), io, stat, 100)

    found = openings(history).unexplained(20 * SECOND_NS, [])

    assert len(found) == credited_to


@pytest.mark.parametrize(
    ("returned", "calls", "fetched", "major_faults", "credited_to"),
    [
        (SIZE, 70, 0, 0, 1),
        (SIZE, 70, SIZE, 9, 1),  # it begins, and reads the file all the same
        (0, 1, SIZE, 500, 0),  # libraries
        (SIZE, 7000, 0, 0, 0),  # modules
    ],
)
def test_what_a_process_loads_of_libraries_and_modules_is_no_file_that_somebody_else_opened(
    returned: int, calls: int, fetched: int, major_faults: int, credited_to: int
) -> None:
    """Another recorder looks at the last checkpoint while a training process begins, from a cold page cache."""
    history = ProcessHistory()
    for at_s, share in ((9.9, 0), (10.1, 1)):
        stat = ProcessStat(100, 1, "S", 0, 0, 0, share * major_faults, 1, None, None, 0)
        io = ProcessIo(100, 1, share * returned, 0, share * calls, 0, share * fetched, 0, 0)
        history.observe(round(at_s * SECOND_NS), round((at_s - 0.1) * SECOND_NS), io, stat, 100)

    assert len(openings(history).unexplained(20 * SECOND_NS, [])) == credited_to


@pytest.mark.parametrize(
    ("waited", "loads_models", "position", "read_bytes"),
    [(True, False, 0, 0), (False, False, 0, SIZE), (True, True, 0, SIZE), (True, False, MIB, SIZE)],
)
def test_what_a_child_read_is_not_of_a_file_that_its_parent_has_open(
    *, waited: bool, loads_models: bool, position: int, read_bytes: int
) -> None:
    """A driver syncs a save after the evaluation that it waited for; who loads models may read by pread(2)."""
    history, at_ns = reader(SIZE), 10 * SECOND_NS
    if waited:
        history.add_child_counters(at_ns + SECOND_NS // 10, ProcessIo(101, 1, 0, 0, 0, 0, 0, 0, 0))
    world = observed({(100, 1): history}, trainers=(100,) if loads_models else ())
    openings, traced = FileOpenings(), TracedTransfers()
    recent = RecentTransfers(PolledTransfers(world, openings), traced)
    stream = Transfer((100, 1), (1, 7), writes=False, path=PATH, first_ns=at_ns, last_ns=at_ns + SECOND_NS // 5,
                      before_ns=at_ns, samples=[PositionSample(at_ns + 1, position, SIZE)], size=SIZE)  # fmt: skip

    assert TransferEstimates(world, openings, traced, recent)._estimate_polled(stream)[2] == read_bytes


def test_what_was_asked_of_an_opening_is_not_forgotten_with_the_answer() -> None:
    """A restore is judged some seconds later, and still begins when its file was opened."""
    world = observed(trainers=(100,))
    book = Book(world, (PATH,))
    learn(book)
    at_ns = round(10.0 * SECOND_NS)

    book.unexplained(20 * SECOND_NS, [])
    known = book.opened_between((1, 7), 0, 20 * SECOND_NS)
    world.histories[100, 1] = reader(SIZE)
    again = book.unexplained(21 * SECOND_NS, [])
    book.forget_before(at_ns + 1)

    assert (known, again) == (at_ns, [])
    assert book.opened_between((1, 7), 0, 20 * SECOND_NS) is None


def test_the_oldest_openings_are_dropped() -> None:
    """A data set of any number of files does not fill the memory."""
    book = no_openings()
    for number in range(MAX_FILES + 1):
        book.record(FileEvent(number, "opened", 1, number, SIZE, f"/data/{number}"))

    kept = [number for number in range(MAX_FILES + 1) if book.opened_between((1, number), 0, SECOND_NS) is not None]

    assert kept == list(range(1, MAX_FILES + 1))


@pytest.mark.parametrize(
    ("openings_of_it", "read_bytes", "credited_to"),
    [(2, 2 * SIZE, 1), (2, SIZE, 0), (1, 2 * SIZE, 0), (20, 20 * SIZE, 0)],
)
def test_a_file_that_was_read_once_more_between_two_looks_is_credited_once_more(
    openings_of_it: int, read_bytes: int, credited_to: int
) -> None:
    """If there was another opening, and the process read as much more; of a data set that is not asked."""
    at_ns, book = round(10.0 * SECOND_NS), no_openings(reader(read_bytes))
    for number in range(openings_of_it):
        for kind, late_ns in (("opened", 0), ("closed-read", SECOND_NS // 5)):
            book.record(FileEvent(at_ns + number + late_ns, kind, 1, 7, SIZE, PATH))
    seen = Transfer((100, 1), (1, 7), writes=False, path=PATH, first_ns=at_ns, last_ns=at_ns,
                          before_ns=at_ns - SECOND_NS, closed_ns=at_ns + SECOND_NS // 5,
                          samples=[PositionSample(at_ns, 4096, SIZE)], size=SIZE)  # fmt: skip

    found = book.unexplained(20 * SECOND_NS, [seen])

    assert len(found) == credited_to


def test_a_reading_begins_at_its_opening_though_that_was_heard_of_within_the_look() -> None:
    """The frame of a look bears the time at which it began; before it the process read what is not of this file."""
    at_ns, book, history = round(10.0 * SECOND_NS), no_openings(), ProcessHistory()
    book.record(FileEvent(at_ns + 30_000, "opened", 1, 7, SIZE, PATH))
    for number in range(-10, 10):
        begin_ns = at_ns + number * SECOND_NS // 50
        history._append(ProcessInterval(begin_ns, begin_ns + SECOND_NS // 50, read_bytes=7 * MIB, reads=70, busy=0.5))
    stream = Transfer((100, 1), (1, 7), writes=False, path=PATH, first_ns=at_ns, last_ns=at_ns + SECOND_NS // 5,
                    before_ns=at_ns - SECOND_NS, samples=[PositionSample(at_ns, 4096, SIZE)], size=SIZE)  # fmt: skip

    assert estimate_read_edges(stream, history, book, ThreadHistories()) == (at_ns, at_ns + SECOND_NS // 5)


@pytest.mark.parametrize(("growing", "began"), [(10, 0), (4, 6), (0, 9)])
def test_a_reading_by_one_call_begins_where_memory_began_to_grow_for_it(growing: int, began: int) -> None:
    """The call is counted when it returns, in the last of ten looks; where memory tells nothing, it was read there."""
    at_ns, look_ns, book, history = 10 * SECOND_NS, SECOND_NS // 50, no_openings(), ProcessHistory()
    book.record(FileEvent(at_ns, "opened", 1, 7, SIZE, PATH))
    for number in range(-10, 10):
        end_ns, last = at_ns + (number + 1) * look_ns, number == 9
        grown = SIZE // growing if growing and number >= 10 - growing else -1
        moved = {"read_bytes": SIZE, "returned_bytes": SIZE, "reads": 1} if last else {}
        history._append(ProcessInterval(end_ns - look_ns, end_ns, grown_bytes=grown, minor_faults=1, **moved))
    end_ns = at_ns + 10 * look_ns
    stream = Transfer((100, 1), (1, 7), writes=False, path=PATH, first_ns=at_ns, last_ns=end_ns,
                    before_ns=at_ns - SECOND_NS, samples=[PositionSample(at_ns, 0, SIZE)], size=SIZE)  # fmt: skip

    assert estimate_read_edges(stream, history, book, ThreadHistories()) == (at_ns + began * look_ns, end_ns)


def test_a_write_has_ended_with_the_first_close_after_its_last_sample() -> None:
    """Orbax merges the files of its processes, and deletes them before anybody can ask for their sizes."""
    at_ns, book = round(10.0 * SECOND_NS), no_openings()
    for number, name in enumerate((PATH, PATH + ".tmp", PATH)):
        book.record(FileEvent(at_ns + (1 + number) * SECOND_NS // 100, "closed-written", 1, 7, SIZE + number, name))
    stream = Transfer(
        (100, 1), (1, 7), writes=True, path=PATH, first_ns=at_ns, last_ns=at_ns, before_ns=at_ns, size=MIB
    )
    renamed = replace(stream, path="/run/final.pt", earlier_path=PATH + ".tmp")
    before = replace(stream, closed_ns=at_ns - SECOND_NS)
    later = replace(stream, first_ns=at_ns + SECOND_NS, last_ns=at_ns + SECOND_NS)

    found = [book.closing_of(one) for one in (stream, renamed, before, later)]

    assert [one and one.size for one in found] == [SIZE, SIZE + 1, None, None]
