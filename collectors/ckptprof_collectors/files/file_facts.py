"""Facts of files after they were written: size, times, first bytes; and of other files in the same folders.

A file that existed only between two scans of open descriptors is found here by its times. Searches are bounded in
entries and depth, read attributes from cache instead of from a server, and run in a thread for each failure domain,
because a hung file server blocks its callers (see `workers`). Each file is reached from the root of the process in
question, by steps that the user of the process may take (see `process_roots`).
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ckptprof_collectors.files.cachestat import count_unwritten_bytes
from ckptprof_collectors.files.completeness import is_complete
from ckptprof_collectors.files.fact_cache import FactCache, FileContents
from ckptprof_collectors.files.process_roots import (
    HOST_PROCESS,
    OtherDomain,
    PathStep,
    ProcessKey,
    ProcessRoot,
    ProcessRoots,
    RootUnavailable,
)
from ckptprof_collectors.files.statx import AT_SYMLINK_NOFOLLOW, FileStatus, statx
from ckptprof_collectors.files.workers import WORKERS, WorkerPool
from ckptprof_collectors.mounts.failure_domains import LOCAL, MountTable
from ckptprof_collectors.samples import FileFact, text

MAX_ENTRIES = 20_000  # of one folder
MAX_OLD_ENTRIES = 4096  # of a folder without new files so far: a data set
MAX_FACTS = 20_000  # of one query
MAX_CONSUMED = 1000  # at once: each is a part of the next frame
MAX_WAITING = 4096  # answers not consumed yet, 1 KB each: then the searching threads wait
MAX_DEPTH = 3
MAX_HANDOVERS = 3  # from one domain to the next
_WAIT_SECONDS = 0.02
SLICE_NS = 500_000_000  # of one query, before the next one
MAX_MAGIC_READS = 256
MAX_PAGE_COUNTS = 256
MAGIC_BYTES = 24


@dataclass(frozen=True)
class FactQuery:
    """A query: known files by path, and all files that changed in some folders since a time."""

    pid: int
    start_ticks: int
    view: ProcessKey  # in whose root the paths are
    files: tuple[bytes, ...]
    folders: tuple[bytes, ...]
    since_ns: int  # wall clock
    read_contents: bool = True  # read the first bytes, and check completeness
    count_unwritten: bool = False  # count the bytes that are not yet on the device
    unshared_folders: tuple[bytes, ...] = ()  # further folders, skipped if all users may create files there, as in /tmp
    keys: Mapping[bytes, tuple[int, int]] = field(default_factory=dict)  # of files: device and inode, where known
    handovers: int = 0  # from one domain to another so far
    spend: Callable[[int], None] = field(default=lambda _: None, compare=False)  # called with its cost, ns of CPU


class PageCountCost:
    """CPU time of counting pages, which walks over every page of a file."""

    def __init__(self) -> None:
        self.unwritten_ns = 0
        self._lock = threading.Lock()

    def add(self, spent_ns: int) -> None:
        """Add CPU time, from any thread."""
        with self._lock:
            self.unwritten_ns += spent_ns


@dataclass
class _FactSearch:
    question: FactQuery
    domain: str = LOCAL
    visited_files: set[bytes] = field(default_factory=set)  # of the files queried by path
    reported: int = 0
    visited_folders: set[bytes] = field(default_factory=set)
    magic_reads: int = 0
    page_counts: int = 0
    on_open: Callable[[bytes], None] = lambda _: None
    cost: PageCountCost = field(default_factory=PageCountCost)
    cache: FactCache = field(default_factory=FactCache)
    is_stranger: bool = False  # the root of the process is unknown: of the host's files only its user's are read
    other_domains: dict[str, tuple[list[bytes], list[bytes]]] = field(
        default_factory=dict
    )  # files and folders, by domain

    @property
    def process(self) -> tuple[int, int]:
        return self.question.pid, self.question.start_ticks

    @property
    def counts_pages(self) -> bool:
        return self.question.count_unwritten and self.page_counts < MAX_PAGE_COUNTS

    def hand_over(self, domain: str, *, files: tuple[bytes, ...] = (), folders: tuple[bytes, ...] = ()) -> None:
        paths = self.other_domains.setdefault(domain, ([], []))
        paths[0].extend(files)
        paths[1].extend(folders)


class _FolderEntry(NamedTuple):
    """An entry of a folder: its root, its name, and its path as its process has it."""

    root: ProcessRoot
    folder: PathStep
    name: bytes
    path: bytes

    def status(self) -> FileStatus:
        return statx(self.name, dir_fd=self.folder.fd, flags=AT_SYMLINK_NOFOLLOW)

    def step(self, domain: str) -> PathStep:
        return self.root.step(self.folder, self.name, domain)


_Facts = Iterator["FileFact | None"]  # None: one more entry without a fact
HandOver = Callable[[str, FactQuery], None]


def find_facts(  # noqa: PLR0913 - query, place, receivers and caches
    question: FactQuery,
    on_open: Callable[[bytes], None] = lambda _: None,
    cost: PageCountCost | None = None,
    cache: FactCache | None = None,
    *,
    views: ProcessRoots | None = None,
    domain: str = LOCAL,
    hand_over: HandOver = lambda _domain, _question: None,
) -> _Facts:
    """Yield the facts one by one, and None for entries without any, so that the caller can pause in between.

    Unreadable files are left out; a deleted known file is reported as missing. `on_open` is called with each path
    before the file is opened for its first bytes. Files neither local nor in `domain` are not touched, but handed over.
    Facts that were reported before, by the `cache`, and need no count of pages, are left out; unchanged contents are
    not read again.
    """
    views = WORKERS.views if views is None else views
    search = _FactSearch(question, domain, on_open=on_open, cost=cost or PageCountCost(), cache=cache or FactCache())
    try:
        with views.enter(question.view) as root:
            yield from _search_root(search, root)
    except RootUnavailable:
        if not question.keys:
            return
        search.is_stranger = True
        with contextlib.suppress(RootUnavailable), views.enter(HOST_PROCESS) as root:
            yield from _search_root(search, root)
    for other, (files, folders) in search.other_domains.items():
        if question.handovers < MAX_HANDOVERS:
            rest = replace(
                question,
                files=tuple(files),
                folders=tuple(folders),
                unshared_folders=(),
                handovers=question.handovers + 1,
            )
            hand_over(other, rest)


def _search_root(search: _FactSearch, root: ProcessRoot) -> _Facts:
    yield from _named_files(search, root)
    named_folders = dict.fromkeys((*search.question.folders, *search.question.unshared_folders))
    folders = [(modified_ns, path) for path in named_folders if (modified_ns := _modified_ns(search, root, path))]
    mounts = root.mount_table() if folders else MountTable()
    for _, path in sorted(folders, reverse=True):
        folder = _folder(search, root, path)
        if folder is None:
            continue
        with contextlib.closing(folder):
            for point in mounts.points_below(path, folder.mounted.domain):
                if point[len(path.rstrip(b"/")) :].count(b"/") < MAX_DEPTH:
                    search.hand_over(mounts.domains_by_point[point], folders=(point,))
            yield from _walk(search, root, folder, path, MAX_DEPTH)


def _modified_ns(search: _FactSearch, root: ProcessRoot, path: bytes) -> int:
    """Time of a folder's last change; 0 if it is not to be searched.

    The folder is closed until its turn: dozens of folders of dozens of queries would need too many descriptors.
    """
    folder = _folder(search, root, path)
    if folder is None:
        return 0
    with contextlib.closing(folder):
        if not folder.is_folder or search.is_stranger:
            return 0
        is_shared = path not in search.question.folders and folder.status.mode & stat.S_ISVTX
        return 0 if is_shared else folder.status.modified_ns


def _folder(search: _FactSearch, root: ProcessRoot, path: bytes) -> PathStep | None:
    """Open a folder, which the caller closes; None if it does not exist, or is in another domain."""
    try:
        return root.find(path, search.domain)
    except OtherDomain as found:
        search.hand_over(found.domain, folders=(path,))
    except (OSError, ValueError):
        pass
    return None


def _named_files(search: _FactSearch, root: ProcessRoot) -> _Facts:
    """Yield the facts of files queried by path; the folder of consecutive ones is opened once."""
    at: tuple[bytes, PathStep] | None = None
    try:
        for path in search.question.files:
            if path in search.visited_files:
                continue
            above, _, name = path.rpartition(b"/")
            try:
                if at is None or at[0] != above:
                    if at is not None:
                        at[1].close()
                        at = None
                    at = (above, root.find(above, search.domain))
                fact = _read_fact(search, _FolderEntry(root, at[1], name, path))
            except OtherDomain as found:
                search.hand_over(found.domain, files=(path,))
                fact = None
            except (FileNotFoundError, NotADirectoryError):
                fact = _missing_fact(search, path)
            except (OSError, ValueError):
                fact = None
            if fact is not None:
                search.visited_files.add(path)
            yield fact
    finally:
        if at is not None:
            at[1].close()


def _walk(search: _FactSearch, root: ProcessRoot, folder: PathStep, path: bytes, depth: int) -> _Facts:
    """Yield what changed in a folder, then in those below it: the newest first, as older ones were reported before.

    Dozens of searches may be suspended in here: so none retains visited entries, and names only as one string.
    """
    base = path.rstrip(b"/") + b"/"
    if base in search.visited_folders or search.reported >= MAX_FACTS:
        return
    search.visited_folders.add(base)
    below: list[tuple[int, bytes]] = []
    fresh = 0
    for count, name in enumerate(_list_names(folder)):
        if search.reported >= MAX_FACTS or (count >= MAX_OLD_ENTRIES and not fresh):
            break
        if base + name in search.visited_files:
            continue
        place = _FolderEntry(root, folder, name, base + name)
        status = _status_if_changed(search, place)
        if status is None:
            yield None
            continue
        fresh += 1
        yield _read_if_new(search, place, status)
        if depth > 1 and stat.S_ISDIR(status.mode):
            below.append((status.modified_ns, name))
    for _, name in sorted(below, reverse=True):
        try:
            found = root.step(folder, name, search.domain)
        except (OSError, OtherDomain):
            continue
        try:
            if found.is_folder:
                yield from _walk(search, root, found, base + name, depth - 1)
        finally:
            found.close()


def _status_if_changed(search: _FactSearch, place: _FolderEntry) -> FileStatus | None:
    """Status of an entry of a folder; None if it is too old, gone, or in another domain."""
    try:
        status = place.status()
        if (
            status.device != place.folder.status.device
        ):  # another mount; if it is another domain, that has its own thread
            place.step(search.domain).close()
    except OtherDomain as apart:
        search.hand_over(apart.domain, folders=(place.path,))
        return None
    except OSError:  # deleted since its folder was listed: continue with the next
        return None
    return status if max(status.modified_ns, status.changed_ns) >= search.question.since_ns else None


def _read_if_new(search: _FactSearch, place: _FolderEntry, status: FileStatus) -> FileFact | None:
    """Read an entry that changed, unless its present state was reported and no pages are to be counted."""
    has_pages = search.counts_pages and status.size > 0 and search.cache.page_counts.is_due(status)
    if not search.cache.reported.is_new(search.process, place.path, status) and not has_pages:
        return None
    with contextlib.suppress(OSError):
        return _read_fact(search, place, status, has_pages=has_pages)
    return None


def _list_names(folder: PathStep) -> Iterator[bytes]:
    """Yield the names in a folder, listed at once: it is closed before the entries are read."""
    try:
        fd = folder.reopen(os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                names = (os.fsencode(entry.name) for _, entry in zip(range(MAX_ENTRIES), entries, strict=False))
                listed = b"".join(name + b"/" for name in names)
        finally:
            os.close(fd)
    except OSError:
        return
    at = 0
    while (end := listed.find(b"/", at)) >= 0:
        yield listed[at:end]
        at = end + 1


def _missing_fact(search: _FactSearch, path: bytes) -> FileFact | None:
    if search.reported >= MAX_FACTS or search.is_stranger:
        return None
    search.reported += 1
    return FileFact(
        pid=search.question.pid, start_ticks=search.question.start_ticks, device=0, inode=0, path=text(path), size=0,
        is_directory=False, birth_ns=None, modified_ns=0, changed_ns=0, accessed_ns=None, magic=None,
        is_missing=True,
    )  # fmt: skip


def _read_fact(
    search: _FactSearch, place: _FolderEntry, status: FileStatus | None = None, *, has_pages: bool = True
) -> FileFact | None:
    """Read the facts of one file or folder; None if there are none. Raises OSError, OtherDomain.

    `has_pages`: count its dirty pages, if the query wants that.
    """
    path, question = place.path, search.question
    if search.reported >= MAX_FACTS:
        return None
    status = status or place.status()
    if search.is_stranger and question.keys.get(path) != (status.device, status.inode):
        return None
    is_directory = stat.S_ISDIR(status.mode)
    if not is_directory and not stat.S_ISREG(status.mode):
        return None
    search.reported += 1
    inside = FileContents() if is_directory else _read_contents(search, place, status, has_pages=has_pages)
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
        is_complete=inside.is_complete,
        free_bytes=inside.free_bytes,
        folder_inode=place.folder.status.inode if place.folder.status.device == status.device else None,
    )


def _read_contents(search: _FactSearch, place: _FolderEntry, status: FileStatus, *, has_pages: bool) -> FileContents:
    """Read a file's contents, if needed and not too many files were opened for the same query."""
    cached = search.cache.contents.get(status)
    has_contents = search.question.read_contents and status.size >= MAGIC_BYTES
    contents = has_contents and cached is None and search.magic_reads < MAX_MAGIC_READS
    unwritten = has_pages and search.counts_pages and status.size > 0
    inside = cached if has_contents and cached is not None else FileContents()
    if not contents and not unwritten:
        return inside
    search.magic_reads += contents
    fd = _open_same_file(search, place, status)
    if fd is None:
        return inside
    try:
        dirty_bytes = None
        if unwritten:
            search.page_counts += 1
            started = time.thread_time_ns()
            dirty_bytes = count_unwritten_bytes(fd)
            search.cost.add(time.thread_time_ns() - started)
            search.cache.page_counts.record(status)  # also where it is not available
        if contents:
            inside = FileContents(free_bytes=_free_bytes(fd))
            with contextlib.suppress(OSError):
                magic = os.pread(fd, MAGIC_BYTES, 0)
                inside = replace(inside, magic=magic, is_complete=is_complete(fd, status.size, magic))
            search.cache.contents.put(status, inside)
        return replace(inside, unwritten_bytes=dirty_bytes)
    finally:
        os.close(fd)


def _open_same_file(search: _FactSearch, place: _FolderEntry, status: FileStatus) -> int | None:
    """Open the file with exactly this status for reading; None: not permitted, or another file has its name now."""
    try:
        found = place.step(search.domain)
    except (OSError, OtherDomain):
        return None
    try:
        if (found.status.device, found.status.inode) != (status.device, status.inode):
            return None
        search.on_open(place.path)
        return _read_only(found)
    finally:
        found.close()


def _read_only(found: PathStep) -> int | None:
    """Open for reading, without changing the access time where allowed; None: not permitted, or no regular file."""
    if not stat.S_ISREG(found.status.mode):
        return None
    try:
        return found.reopen(os.O_RDONLY | os.O_NONBLOCK | os.O_NOATIME)
    except PermissionError:  # that flag is for the owner and CAP_FOWNER only
        pass
    except OSError:
        return None
    try:
        return found.reopen(os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None


def _free_bytes(fd: int) -> int | None:
    """Bytes that the owner may still write to the file system; None: unknown."""
    try:
        system, owner = os.fstatvfs(fd), os.fstat(fd).st_uid
    except OSError:
        return None
    if system.f_blocks == 0:  # without a limit, or a FUSE server that reports none
        return None
    return (system.f_bfree if owner == 0 else system.f_bavail) * system.f_frsize


class FactFinder:
    """Answers queries in threads per failure domain; a query too many is refused and counted."""

    def __init__(self, *, workers: WorkerPool = WORKERS, on_open: Callable[[bytes], None] = lambda _: None) -> None:
        """`on_open` is called before a file is opened, in any thread."""
        self._on_open = on_open
        self._workers = workers
        self._answers: deque[FileFact] = deque()
        self._closed = False
        self.refused = 0
        self._costs: deque[tuple[FactQuery, int]] = deque()  # by threads: what a part of an answer has cost
        self._cache = FactCache()
        self.cost = PageCountCost()  # updated by the threads

    def request(self, question: FactQuery) -> None:
        """Queue a query; never waits, touches nothing that may hang."""
        self._enqueue(LOCAL, question)

    def _enqueue(self, domain: str, question: FactQuery) -> None:
        found = find_facts(
            question, self._on_open, self.cost, self._cache,
            views=self._workers.views, domain=domain, hand_over=self._enqueue,
        )  # fmt: skip
        if not self._workers.put(domain, partial(self._continue_search, question, found)):
            self.refused += 1

    def _continue_search(self, question: FactQuery, found: _Facts) -> bool:
        """Search for one time slice, and record its cost; return True if there is more to search."""
        start_ns = time.thread_time_ns()
        try:
            return self._search_slice(found)
        finally:
            self._costs.append((question, time.thread_time_ns() - start_ns))

    def _search_slice(self, found: _Facts) -> bool:
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

    def consume(self, limit: int = MAX_CONSUMED) -> list[FileFact]:
        """Consume up to `limit` facts; those who asked are charged for what their answers have cost so far."""
        while self._costs:
            question, cost_ns = self._costs.popleft()
            question.spend(cost_ns)
        facts: list[FileFact] = []
        while self._answers and len(facts) < limit:
            facts.append(self._answers.popleft())
        return facts

    @property
    def waiting(self) -> bool:
        """Answers are outstanding or not consumed yet, hung domains excepted."""
        return bool(self._answers) or self._workers.has_work()

    def close(self) -> None:
        """Abandon outstanding queries without waiting: they may hang on a file server."""
        self._closed = True
