"""What the file system says of files after they were written: size, times, first bytes; and what lies beside them.

A file that lived between two looks at the open descriptors is found here by its times. All of it is bounded in entries
and depth, reads file attributes from cache where a server would have to be asked, and runs in a thread that is shared
only by what hangs with it, because a hung file server hangs whoever asks it (see `workers`).
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ckptprof_collectors.files.cachestat import unwritten_bytes
from ckptprof_collectors.files.factmemory import Inside, Memory
from ckptprof_collectors.files.statx import AT_SYMLINK_NOFOLLOW, FileStatus, statx
from ckptprof_collectors.files.wholeness import is_whole
from ckptprof_collectors.files.workers import WORKERS, WorkerPool
from ckptprof_collectors.samples import FileFact, text

MAX_ENTRIES = 20_000  # of one folder
MAX_OLD_ENTRIES = 4096  # of a folder that holds nothing new so far: a data set
MAX_FACTS = 20_000  # of one question
MAX_TAKEN = 1000  # at once: each is a part of the next frame
MAX_WAITING = 4096  # answers that nobody has taken yet, 1 KB each: then those who look wait
MAX_DEPTH = 3
_WAIT_SECONDS = 0.02
SLICE_NS = 500_000_000  # of one question, before others have their turn
MAX_MAGIC_READS = 256
MAX_PAGE_COUNTS = 256
MAGIC_BYTES = 16


@dataclass(frozen=True)
class Question:
    """Which files are asked for: known ones by path, and whatever changed in some folders since a time."""

    pid: int
    start_ticks: int
    root: bytes  # of the process, "/proc/PID/root"; empty to look from here
    files: tuple[bytes, ...]
    folders: tuple[bytes, ...]
    since_ns: int  # wall clock
    contents: bool = True  # whether to look into the files: their first bytes, and whether they are whole
    unwritten: bool = False  # whether to ask how much of each file is not yet on its device


class Spent:
    """What the counting of pages took: it walks over every page of a file."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.unwritten_ns = 0
        self._lock = threading.Lock()

    def add(self, spent_ns: int) -> None:
        """Add to it, from any thread."""
        with self._lock:
            self.unwritten_ns += spent_ns


@dataclass
class _Search:
    question: Question
    prefix: bytes
    apart: frozenset[bytes] = frozenset()  # mount points below the folders that may hang: not looked at
    seen: set[bytes] = field(default_factory=set)
    told: int = 0
    seen_folders: set[bytes] = field(default_factory=set)
    magic_reads: int = 0
    page_counts: int = 0
    on_open: Callable[[bytes], None] = lambda _: None
    spent: Spent = field(default_factory=Spent)
    memory: Memory = field(default_factory=Memory)

    @property
    def asker(self) -> tuple[int, int]:
        return self.question.pid, self.question.start_ticks

    @property
    def counts_pages(self) -> bool:
        return self.question.unwritten and self.page_counts < MAX_PAGE_COUNTS


_Found = Iterator["FileFact | None"]  # None: one more was looked at, and there is nothing to tell


def answer(
    question: Question, on_open: Callable[[bytes], None] = lambda _: None, spent: Spent | None = None
) -> list[FileFact]:
    """Return the facts; what cannot be looked at is left out, a known file that is gone is told as missing.

    `on_open` is told of each file before it is opened for its first bytes.
    """
    return [fact for fact in look(question, on_open, spent) if fact is not None]


def look(
    question: Question,
    on_open: Callable[[bytes], None] = lambda _: None,
    spent: Spent | None = None,
    apart: frozenset[bytes] = frozenset(),
    memory: Memory | None = None,
) -> _Found:
    """Yield the facts one by one, and None after looks without any, so that the caller can leave off in between.

    What is mounted at a path of `apart` is not looked at. What was told before by the `memory`, and whose pages are not
    counted, is left out; what was read before, and has not changed since, is not read again.
    """
    prefix = question.root
    if prefix:
        try:
            statx(prefix + b"/")
        except OSError:
            prefix = b""  # the process has ended or may not be entered: look from our own root
    search = _Search(question, prefix, apart, on_open=on_open, spent=spent or Spent(), memory=memory or Memory())
    for path in question.files:
        yield _look(search, path, None, known=True)
    for folder in sorted(question.folders, key=lambda folder: _modified_ns(prefix + folder), reverse=True):
        yield from _walk(search, folder, MAX_DEPTH)


def _modified_ns(folder: bytes) -> int:
    try:
        return statx(folder).modified_ns
    except OSError:
        return 0


def _walk(search: _Search, folder: bytes, depth: int) -> _Found:
    """Yield what changed in a folder, then in those below it: the newest first, as an older one was told before."""
    if folder in search.seen_folders or search.told >= MAX_FACTS:
        return
    search.seen_folders.add(folder)
    since_ns, base = search.question.since_ns, folder.rstrip(b"/") + b"/"
    below: list[tuple[int, bytes]] = []
    fresh = 0
    for count, name in enumerate(_names(search.prefix + folder)):
        if search.told >= MAX_FACTS or (count >= MAX_OLD_ENTRIES and not fresh):
            break
        path = base + name
        if path in search.seen or path in search.apart:
            continue
        try:
            status = statx(search.prefix + path, flags=AT_SYMLINK_NOFOLLOW)
        except OSError:  # it went since its folder was listed: no reason to miss its neighbours
            yield None
            continue
        if max(status.modified_ns, status.changed_ns) < since_ns:
            yield None
            continue
        fresh += 1
        if not search.memory.told.is_new(search.asker, path, status) and not search.counts_pages:
            yield None
        else:
            yield _look(search, path, status, known=False)
        if depth > 1 and stat.S_ISDIR(status.mode):
            below.append((status.modified_ns, path))
    for _, path in sorted(below, reverse=True):
        yield from _walk(search, path, depth - 1)


def _names(folder: bytes) -> list[bytes]:
    """Return what is in a folder, in one go: it is not kept open while others are looked at."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for _, entry in zip(range(MAX_ENTRIES), entries, strict=False)]
    except OSError:
        return []


def _look(search: _Search, path: bytes, status: FileStatus | None, *, known: bool) -> FileFact | None:
    if path in search.seen or search.told >= MAX_FACTS:
        return None
    question = search.question
    try:
        status = status or statx(search.prefix + path, flags=AT_SYMLINK_NOFOLLOW)
    except OSError:
        if not known:
            return None
        search.seen.add(path)
        search.told += 1
        return FileFact(
            pid=question.pid, start_ticks=question.start_ticks, device=0, inode=0, path=text(path), size=0,
            is_directory=False, birth_ns=None, modified_ns=0, changed_ns=0, accessed_ns=None, magic=None,
            missing=True,
        )  # fmt: skip
    is_directory = stat.S_ISDIR(status.mode)
    if not is_directory and not stat.S_ISREG(status.mode):
        return None
    search.seen.add(path)
    search.told += 1
    inside = Inside() if is_directory else _look_inside(search, path, status)
    return FileFact(
        pid=question.pid,
        start_ticks=question.start_ticks,
        device=status.device,
        inode=status.inode,
        path=text(path),
        size=status.size,
        is_directory=is_directory,
        birth_ns=status.birth_ns,
        modified_ns=status.modified_ns,
        changed_ns=status.changed_ns,
        accessed_ns=status.accessed_ns,
        magic=inside.magic,
        unwritten_bytes=inside.unwritten_bytes,
        whole=inside.whole,
        free_bytes=inside.free_bytes,
    )


def _look_inside(search: _Search, path: bytes, status: FileStatus) -> Inside:
    """Open a file, if there is anything to be learnt from that and not too many were opened for the same question."""
    known = search.memory.contents.of(status)
    wanted = search.question.contents and status.size >= MAGIC_BYTES
    contents = wanted and known is None and search.magic_reads < MAX_MAGIC_READS
    unwritten = search.counts_pages and status.size > 0
    inside = known if wanted and known is not None else Inside()
    if not contents and not unwritten:
        return inside
    search.on_open(path)
    search.magic_reads += contents
    fd = _open(search.prefix + path)
    if fd is None:
        return inside
    try:
        dirty_bytes = _unwritten(search, fd) if unwritten else None
        if contents:
            magic = _first_bytes(fd)
            whole = is_whole(fd, status.size, magic) if magic is not None else None
            inside = Inside(magic, whole, free_bytes=_free_bytes(fd))
            search.memory.contents.keep(status, inside)
        return replace(inside, unwritten_bytes=dirty_bytes)
    finally:
        os.close(fd)


def _unwritten(search: _Search, fd: int) -> int | None:
    search.page_counts += 1
    started = time.thread_time_ns()
    counted = unwritten_bytes(fd)
    search.spent.add(time.thread_time_ns() - started)
    return counted


def _free_bytes(fd: int) -> int | None:
    """Return how much its owner may still write to a file's file system; None: it does not tell."""
    try:
        system, owner = os.fstatvfs(fd), os.fstat(fd).st_uid
    except OSError:
        return None
    if system.f_blocks == 0:  # without a limit, or in user space and not caring
        return None
    return (system.f_bfree if owner == 0 else system.f_bavail) * system.f_frsize


def _first_bytes(fd: int) -> bytes | None:
    try:
        return os.pread(fd, MAGIC_BYTES, 0)
    except OSError:
        return None


def _open(path: bytes) -> int | None:
    """Open a file for reading, its access time left alone where that is allowed; None: it cannot be opened."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # that flag is for the owner and CAP_FOWNER only
        pass
    except OSError:
        return None
    try:
        return os.open(path, flags)
    except OSError:
        return None


def read_magic(path: bytes) -> bytes | None:
    """Return the first bytes of a file; None: not readable."""
    fd = _open(path)
    if fd is None:
        return None
    try:
        return _first_bytes(fd)
    finally:
        os.close(fd)


class FactFinder:
    """Answers questions, each where it holds up itself only if it hangs; one too many is refused and counted."""

    def __init__(self, *, workers: WorkerPool = WORKERS, on_open: Callable[[bytes], None] = lambda _: None) -> None:
        """Make it; `on_open` is called before a file is opened, in one thread or another."""
        self._on_open = on_open
        self._workers = workers
        self._answers: deque[FileFact] = deque()
        self._closed = False
        self.refused = 0
        self._memory = Memory()
        self.spent = Spent()  # added to by the threads, read by others

    def ask(self, question: Question) -> None:
        """Put a question; never waits, and touches nothing that may hang."""
        parts = self._parts(question)
        for domain, (part, apart) in parts.items():
            if not self._workers.put(domain, self._job(look(part, self._on_open, self.spent, apart, self._memory))):
                self.refused += 1

    def _parts(self, question: Question) -> dict[str, tuple[Question, frozenset[bytes]]]:
        """Split a question by what hangs together; what is mounted below a folder, and is apart from it, is its own."""
        mounts, root = self._workers.mounts, question.root
        files: dict[str, list[bytes]] = {}
        folders: dict[str, list[bytes]] = {}
        apart: set[bytes] = set()
        for path in question.files:
            files.setdefault(mounts.domain_of(root, os.path.dirname(path)), []).append(path)
        for folder in question.folders:
            folders.setdefault(mounts.domain_of(root, folder), []).append(folder)
            for point, domain in mounts.below(root, folder).items():
                apart.add(point)
                if point[len(folder.rstrip(b"/")) :].count(b"/") < MAX_DEPTH:
                    folders.setdefault(domain, []).append(point)
        return {
            domain: (
                replace(question, files=tuple(files.get(domain, ())), folders=tuple(folders.get(domain, ()))),
                frozenset(apart),
            )
            for domain in {**files, **folders}
        }

    def _job(self, found: _Found) -> Callable[[], bool]:
        def go_on() -> bool:
            """Tell what is found within a while; the rest comes after what others wait for."""
            until_ns = time.monotonic_ns() + SLICE_NS
            while len(self._answers) >= MAX_WAITING and not self._closed:
                if time.monotonic_ns() > until_ns:
                    return True
                time.sleep(_WAIT_SECONDS)
            for fact in found:
                if fact is not None:
                    self._answers.append(fact)
                if self._closed:
                    return False
                if time.monotonic_ns() > until_ns or len(self._answers) >= MAX_WAITING:
                    return True
            return False

        return go_on

    def take(self, limit: int = MAX_TAKEN) -> list[FileFact]:
        """Return what was found since the last call, the first `limit` of it."""
        facts: list[FileFact] = []
        while self._answers and len(facts) < limit:
            facts.append(self._answers.popleft())
        return facts

    @property
    def waiting(self) -> bool:
        """Whether an answer is still to come, or to be taken; not from what hangs."""
        return bool(self._answers) or self._workers.waiting()

    def close(self) -> None:
        """Give up what was not answered, without waiting for it: it may hang on a file server."""
        self._closed = True
