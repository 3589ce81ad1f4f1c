"""What the file system says of files, with os.stat as oracle; folders that are huge, hostile or vanishing."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.descriptors import held
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof_collectors.files import file_facts
from ckptprof_collectors.files.fact_cache import (
    MAX_CACHED,
    SETTLED_NS,
    FactCache,
    ReportedFiles,
    TwoGenerationCache,
    _version_key,
)
from ckptprof_collectors.files.file_facts import MAX_OLD_ENTRIES, FactFinder, FactQuery, find_facts
from ckptprof_collectors.files.process_roots import OWN_PROCESS, ProcessKey, ProcessRoots
from ckptprof_collectors.files.statx import FileStatus, statx
from ckptprof_collectors.files.workers import MAX_DESCRIPTORS, URGENT, WorkerPool
from ckptprof_collectors.mounts.failure_domains import LOCAL
from ckptprof_collectors.samples import FileFact


def answer(question: FactQuery, on_open: Callable[[bytes], None] = lambda _: None) -> list[FileFact]:
    """Return the facts of what is local."""
    return [fact for fact in find_facts(question, on_open) if fact is not None]


def ask(*, files: list[Path] | None = None, folders: list[Path] | None = None, since_ns: int = 0,
        view: ProcessKey = OWN_PROCESS) -> dict[str, FileFact]:  # fmt: skip
    """Return the answer by path."""
    question = FactQuery(
        7, 8, view, tuple(map(os.fsencode, files or [])), tuple(map(os.fsencode, folders or [])), since_ns
    )
    return {fact.path: fact for fact in answer(question)}


def test_a_fact_is_what_stat_says(tmp_path: Path) -> None:
    """Identity, size and times; the first bytes; born between the clock before and after."""
    before_ns = time.time_ns() - 50_000_000
    path = tmp_path / "a.pt"
    path.write_bytes(b"PK\x03\x04" + bytes(996))
    fact = ask(files=[path])[str(path)]
    status = path.stat()

    assert (fact.pid, fact.start_ticks, fact.is_directory, fact.is_missing) == (7, 8, False, False)
    assert (fact.device, fact.inode, fact.size) == (status.st_dev, status.st_ino, 1000)
    assert (fact.modified_ns, fact.changed_ns) == (status.st_mtime_ns, status.st_ctime_ns)
    assert fact.folder_inode == tmp_path.stat().st_ino
    assert fact.magic == b"PK\x03\x04" + bytes(20)
    assert fact.birth_ns is None or before_ns <= fact.birth_ns <= time.time_ns()


def test_looking_leaves_the_access_time_alone(tmp_path: Path) -> None:
    """Never alters what it watches."""
    path = tmp_path / "a.pt"
    path.write_bytes(bytes(4096))
    os.utime(path, ns=(1_000_000_000, path.stat().st_mtime_ns))
    ask(files=[path], folders=[tmp_path])

    assert path.stat().st_atime_ns == 1_000_000_000


def test_files_that_changed_since_are_found_in_the_folder_and_below(tmp_path: Path) -> None:
    """Three folders deep, old ones left out."""
    for name in ("old", "new", "a/b/deep", "a/b/c/d/deeper"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(32))
    since_ns = time.time_ns() - 3_600_000_000_000
    os.utime(tmp_path / "old", ns=(0, 0))

    found = ask(folders=[tmp_path], since_ns=since_ns)

    assert {str(tmp_path / name) for name in ("new", "a", "a/b", "a/b/deep", "a/b/c")} <= found.keys()
    assert str(tmp_path / "a/b/c/d/deeper") not in found
    assert found[str(tmp_path / "a")].is_directory
    assert found[str(tmp_path / "a/b/deep")].folder_inode == found[str(tmp_path / "a/b")].inode
    later = ask(folders=[tmp_path], since_ns=time.time_ns() + 3_600_000_000_000)
    assert later == {}


def test_a_known_file_that_is_gone_is_told_as_missing(tmp_path: Path) -> None:
    """One that was never known is not."""
    found = ask(files=[tmp_path / "gone"], folders=[tmp_path / "nowhere"])

    assert [fact.is_missing for fact in found.values()] == [True]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Neither to a file nor into a folder elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_bytes(b"secret" * 10)
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "file").symlink_to(elsewhere / "secret")
    (folder / "tree").symlink_to(elsewhere)

    assert ask(files=[folder / "file"], folders=[folder]) == {}


def test_what_is_no_file_is_left_out_and_never_waited_for(tmp_path: Path) -> None:
    """A FIFO without a writer, which is waited for without an end, and a device."""
    os.mkfifo(tmp_path / "fifo")

    assert ask(files=[tmp_path / "fifo", Path("/dev/null")], folders=[tmp_path]) == {}


@pytest.mark.parametrize("name", [b"a\nb", b"\x1b[2J", b"\xff\xfe", b"<script>", b" ", b"..."])
def test_hostile_names_are_told_as_text(tmp_path: Path, name: bytes) -> None:
    """Bytes that are no UTF-8 are escaped, so that what stores them cannot fail."""
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(bytes(32))

    (fact,) = ask(folders=[tmp_path]).values()

    assert fact.path == str(tmp_path) + "/" + name.decode("utf-8", "backslashreplace")
    assert fact.path.encode("utf-8")


def test_of_a_folder_of_very_many_files_few_old_ones_are_looked_at(tmp_path: Path) -> None:
    """All of 10,000 new files are told; of as many old ones no more than some thousand are looked at."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(10_000):
        os.close(os.open(folder / str(number), os.O_WRONLY | os.O_CREAT))

    assert len(ask(folders=[folder])) == 10_000

    question = FactQuery(7, 8, OWN_PROCESS, (), (os.fsencode(folder),), time.time_ns() + 3_600_000_000_000)
    assert list(find_facts(question)) == [None] * MAX_OLD_ENTRIES


@pytest.mark.parametrize("named", [False, True])
def test_of_too_many_files_those_of_the_newest_folder_are_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: bool,  # noqa: FBT001 - a case
) -> None:
    """Two saves of many files, one soon after the other: the first was told when the second is asked for."""
    monkeypatch.setattr(file_facts, "MAX_FACTS", 30)
    folders = [tmp_path / "checkpoint-10", tmp_path / "checkpoint-20", tmp_path / "checkpoint-5"]
    for age, folder in zip((20, 0, 40), folders, strict=True):
        folder.mkdir()
        for number in range(25):
            (folder / f"shard_{number}.bin").write_bytes(b"x")
        os.utime(folder, ns=(0, time.time_ns() - age * 1_000_000_000))

    told = ask(folders=folders if named else [tmp_path])

    assert sum("checkpoint-20/" in path for path in told) == 25


def test_what_was_told_is_told_again_only_if_it_changed_or_its_pages_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of tens of thousands is asked for again and again while it is filled."""
    monkeypatch.setattr(file_facts, "MAX_PAGE_COUNTS", 3)
    for number in range(20):
        (tmp_path / f"{number}.bin").write_bytes(b"x")
    memory = FactCache()
    asked = FactQuery(7, 8, OWN_PROCESS, (), (os.fsencode(tmp_path),), 0, count_unwritten=True)

    def told(question: FactQuery) -> int:
        return sum(fact is not None for fact in find_facts(question, cache=memory))

    for number in range(10):
        (tmp_path / f"{number}.lock").touch()

    assert told(asked) == 30
    assert told(asked) == 3  # what is empty has no pages
    (tmp_path / "new.bin").write_bytes(b"x")
    (tmp_path / "19.bin").write_bytes(b"xx")
    assert told(replace(asked, count_unwritten=False)) == 2
    assert told(replace(asked, count_unwritten=False, pid=9)) == 31  # another one wrote them, perhaps


@pytest.mark.parametrize("counted", [4096, None], ids=["counted", "not available"])
def test_the_pages_of_a_file_are_counted_once_for_all_who_look_into_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int | None
) -> None:
    """Ranks that write into one folder are each told of all its files; a second later its pages are counted again."""
    for number in range(8):
        (tmp_path / f"__{number}_0.distcp").write_bytes(bytes(4096))
    monkeypatch.setattr(file_facts, "count_unwritten_bytes", lambda _: counted)
    memory = FactCache()
    ranks = [
        FactQuery(pid, 8, OWN_PROCESS, (), (os.fsencode(tmp_path),), 0, count_unwritten=True) for pid in range(100, 108)
    ]
    found = [fact for rank in ranks for fact in find_facts(rank, cache=memory) if fact is not None]

    assert len(found) == 64
    assert sum(fact.unwritten_bytes == 4096 for fact in found) == (8 if counted else 0)
    assert not [fact for rank in ranks for fact in find_facts(rank, cache=memory) if fact is not None]


@pytest.mark.parametrize("named", [True, False], ids=["file", "folder"])
def test_a_file_is_read_once_for_as_long_as_it_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """Each reading of sixteen bytes costs an object store a request, and s3fs megabytes of the link that trains."""
    path = tmp_path / "step_1.pt"
    path.write_bytes(b"PK\x03\x04" + bytes(996))
    files, folders = ((os.fsencode(path),), ()) if named else ((), (os.fsencode(tmp_path),))
    memory, opened = FactCache(), list[bytes]()

    def magic(pid: int) -> bytes | None:
        question = FactQuery(pid, 8, OWN_PROCESS, files, folders, 0)
        (fact,) = (fact for fact in find_facts(question, opened.append, cache=memory) if fact is not None)
        return fact.magic

    first, early = magic(1), magic(2)  # just written: its stamp may be that of the next writing, too
    now_ns = time.time_ns()
    monkeypatch.setattr("ckptprof_collectors.files.fact_cache.time.time_ns", lambda: now_ns + SETTLED_NS)
    later = [magic(pid) for pid in range(3, 9)]

    assert [first, early, *later] == [b"PK\x03\x04" + bytes(20)] * 8
    assert len(opened) == 3
    path.write_bytes(b"GGUF" + bytes(996))
    assert magic(9) == b"GGUF" + bytes(20)


def test_what_is_kept_of_files_is_bounded_and_what_is_asked_for_stays() -> None:
    """Of many files the ones that were asked for last are known, at most as many as the bound; each takes 200 bytes."""
    kept, asked = TwoGenerationCache(), b"asked for again and again"
    kept.put(asked, 1)
    for number in range(3 * MAX_CACHED):
        assert kept.get(asked) == 1
        kept.put(b"%d" % number, number)

    assert MAX_CACHED // 2 <= len(kept) <= MAX_CACHED
    assert kept.get(b"%d" % (3 * MAX_CACHED - MAX_CACHED // 2)) is not None
    assert kept.get(b"0") is None


def test_two_versions_of_a_file_are_not_one(tmp_path: Path) -> None:
    """A stamp before 1970 and the largest there is make two versions as well."""
    (tmp_path / "a").touch()
    versions = set()
    for stamp_ns in (-1, 0, 1, (1 << 62) + 1):
        os.utime(tmp_path / "a", ns=(0, stamp_ns))
        versions.add(_version_key(statx(os.fsencode(tmp_path / "a"))._replace(changed_ns=0)))

    assert len(versions) == 4


def test_a_file_that_vanishes_while_its_folder_is_read_hides_no_other(tmp_path: Path) -> None:
    """Rotation and renames go on while we look."""
    for number in range(50):
        (tmp_path / f"{number}.pt").write_bytes(bytes(32))
    opened: list[bytes] = []

    def remove_half(path: bytes) -> None:
        if not opened:
            for number in range(0, 50, 2):
                if not path.endswith(b"/%d.pt" % number):
                    (tmp_path / f"{number}.pt").unlink()
        opened.append(path)

    question = FactQuery(7, 8, OWN_PROCESS, (), (os.fsencode(tmp_path),), 0)
    found = {fact.path for fact in answer(question, remove_half)}

    assert {str(tmp_path / f"{number}.pt") for number in range(1, 50, 2)} <= found


def test_an_empty_or_short_file_has_no_first_bytes(tmp_path: Path) -> None:
    """None is: not read."""
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_bytes(b"PK\x03\x04")

    assert [fact.magic for fact in ask(folders=[tmp_path]).values()] == [None, None]


def test_a_process_that_nobody_has_met_is_not_looked_for_on_the_host(tmp_path: Path) -> None:
    """It has ended, and which root it had is not known: what is here under the same name may be another file."""
    (tmp_path / "a").write_bytes(bytes(32))
    ourselves = ProcessRoots().record(
        os.getpid(), int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    )

    assert ask(files=[tmp_path / "a", tmp_path / "b"], folders=[tmp_path], view=ProcessKey(4194305, 1)) == {}
    assert ask(files=[tmp_path / "a"], view=ProcessKey(os.getpid(), 1)) == {}
    assert list(ask(files=[tmp_path / "a"], view=ourselves)) == [str(tmp_path / "a")]


def test_the_finder_answers_in_its_own_thread_and_refuses_what_is_too_much(tmp_path: Path) -> None:
    """It never waits: a question too many is counted."""
    (tmp_path / "a").write_bytes(bytes(32))
    gate = os.pipe()
    finder = FactFinder(workers=WorkerPool(limit=2), on_open=lambda _: list(os.read(gate[0], 1)).clear())
    question = FactQuery(7, 8, OWN_PROCESS, (os.fsencode(tmp_path / "a"),), (), 0)
    for _ in range(8):
        finder.request(question)
    refused = finder.refused

    assert refused >= 5
    os.write(gate[1], b"x" * 8)
    facts = all_of(finder)
    finder.close()
    for fd in gate:
        os.close(fd)

    assert len(facts) == 8 - refused


def test_a_long_answer_is_given_in_parts_and_lets_others_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save of very many files is told in full, and what is asked meanwhile is answered before its end."""
    monkeypatch.setattr("ckptprof_collectors.files.file_facts.SLICE_NS", 1_000_000)
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(3_000):
        os.close(os.open(folder / str(number), os.O_WRONLY | os.O_CREAT))
    (tmp_path / "a").write_bytes(bytes(32))
    workers, both = WorkerPool(), threading.Event()
    for domain in (LOCAL, URGENT):
        workers.put(domain, lambda: both.wait(PATIENCE_SECONDS) and False)
    finder = FactFinder(workers=workers)
    finder.request(FactQuery(7, 8, OWN_PROCESS, (), (os.fsencode(folder),), 0))
    finder.request(FactQuery(9, 8, OWN_PROCESS, (os.fsencode(tmp_path / "a"),), (), 0))
    both.set()
    facts = all_of(finder)

    assert len(facts) == 3_001
    assert [fact.pid for fact in facts].index(9) < 2_999


def test_who_asks_pays_for_all_parts_of_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread spent is charged to the one who asked, when its answers are consumed."""
    path = tmp_path / "a"
    path.write_bytes(bytes(32))
    clock = iter(range(0, 1_000_000, 10))
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(clock))
    monkeypatch.setattr("ckptprof_collectors.files.file_facts.SLICE_NS", -1)  # a part for each file
    finder = FactFinder(workers=WorkerPool())
    spent: dict[int, list[int]] = {7: [], 9: []}
    for pid, files in ((7, 1), (9, 3)):
        paths = [tmp_path / f"{pid}-{n}" for n in range(files)]
        for one in paths:
            one.write_bytes(b"")
        names = tuple(map(os.fsencode, paths))
        finder.request(FactQuery(pid, 8, OWN_PROCESS, names, (), 0, spend=spent[pid].append))
    facts = all_of(finder)
    finder.consume()

    assert sorted(fact.pid for fact in facts) == [7, 9, 9, 9]
    assert spent == {7: [10] * 2, 9: [10] * 4}


def all_of(finder: FactFinder) -> list[FileFact]:
    """Return all that a finder answers."""
    facts: list[FileFact] = []

    def ended() -> bool:
        facts.extend(finder.consume())
        return not finder.waiting

    wait_until(ended)
    return facts


def test_answers_that_nobody_takes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of very many new files does not come to lie in memory; all of it is told in the end."""
    monkeypatch.setattr("ckptprof_collectors.files.file_facts.MAX_WAITING", 20)
    for number in range(150):
        (tmp_path / f"f{number}").write_bytes(b"x")
    finder = FactFinder(workers=WorkerPool())
    finder.request(FactQuery(7, 8, OWN_PROCESS, (), (os.fsencode(tmp_path),), 0))
    found: list[FileFact] = []
    most = 0
    while finder.waiting:
        wait_until(lambda: finder._answers or not finder.waiting)
        most = max(most, len(finder._answers))
        found += finder.consume()

    assert len({fact.path for fact in found if not fact.is_directory}) == 150
    assert 0 < most <= 20


def test_searches_that_are_left_off_keep_little(tmp_path: Path) -> None:
    """Sixty-four wait for each other in a domain: of each file that one has passed nothing stays."""
    for number in range(2000):
        (tmp_path / f"a-name-of-some-length-{number}.o").touch()
    question = FactQuery(7, 8, OWN_PROCESS, (), (os.fsencode(tmp_path),), 0)
    searches = [find_facts(question) for _ in range(4)]
    here = tracemalloc.Filter(inclusive=True, filename_pattern=file_facts.__file__)
    tracemalloc.start()
    try:
        passed = [sum(1 for _, _fact in zip(range(1900), search, strict=False)) for search in searches]
        snapshot = tracemalloc.take_snapshot().filter_traces([here])
    finally:
        tracemalloc.stop()

    assert passed == [1900] * 4
    assert sum(trace.size for trace in snapshot.traces) < len(searches) * 100_000


def test_a_search_of_many_folders_holds_few_descriptors(tmp_path: Path) -> None:
    """Forty folders, three deep: one way down at a time is open, so that many searches fit into a low limit."""
    for number in range(40):
        folder = tmp_path / f"{number}" / "a" / "b"
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"1")
    folders = tuple(os.fsencode(tmp_path / f"{number}") for number in range(40))
    before = held()

    more = [len(held() - before) for _ in find_facts(FactQuery(7, 8, OWN_PROCESS, (), folders, 0))]

    assert len(more) == 40 * 3
    assert max(more) <= MAX_DESCRIPTORS


def test_a_file_that_is_asked_for_is_not_found_again_in_its_folder(tmp_path: Path) -> None:
    """Nor one whose path is given twice, or whose folder is named in two ways."""
    paths = [tmp_path / name for name in ("known", "beside")]
    for path in paths:
        path.write_bytes(bytes(32))
    known, folder = os.fsencode(paths[0]), os.fsencode(tmp_path)
    told = answer(FactQuery(7, 8, OWN_PROCESS, (known, known), (folder, folder + b"/"), 0))

    assert sorted(fact.path for fact in told) == sorted(map(str, paths))


def test_who_goes_over_very_many_files_in_turn_is_told_most_of_them_once() -> None:
    """Two processes at one folder of twenty thousand files; what is known of them takes a megabyte."""
    told, askers, paths = ReportedFiles(), [(7, 1), (8, 1)], [b"/run/%d" % number for number in range(20_000)]
    status = FileStatus(0o100644, 1, 2, 3, None, 4, 5, 6, 0, 0)

    first, again = (sum(told.is_new(asker, path, status) for asker in askers for path in paths) for _ in range(2))

    assert first == 40_000
    assert again < first / 4
    assert told._slots.nbytes == 1 << 20
