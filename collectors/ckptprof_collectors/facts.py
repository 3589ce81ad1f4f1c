"""What the file system says of files after they were written: size, times, first bytes; and what lies beside them.

A file that lived between two looks at the open descriptors is found here by its times. All of it is bounded in entries
and depth, reads file attributes from cache where a server would have to be asked, and runs in a thread of its own,
because a hung file server hangs whoever asks it.
"""

from __future__ import annotations

import os
import queue
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ckptprof_collectors.cachestat import unwritten_bytes
from ckptprof_collectors.samples import FileFact, text
from ckptprof_collectors.statx import AT_SYMLINK_NOFOLLOW, statx
from ckptprof_collectors.wholeness import is_whole

MAX_ENTRIES = 4096  # of one folder
MAX_FACTS = 2000  # of one question
MAX_DEPTH = 3
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

    unwritten_ns = 0


@dataclass
class _Search:
    question: Question
    prefix: bytes
    facts: dict[bytes, FileFact] = field(default_factory=dict)
    seen_folders: set[bytes] = field(default_factory=set)
    magic_reads: int = 0
    page_counts: int = 0
    on_open: Callable[[bytes], None] = lambda _: None
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class _Inside:
    """What only an open file tells."""

    magic: bytes | None = None
    whole: bool | None = None
    unwritten_bytes: int | None = None
    free_bytes: int | None = None


def answer(
    question: Question, on_open: Callable[[bytes], None] = lambda _: None, spent: Spent | None = None
) -> list[FileFact]:
    """Return the facts; what cannot be looked at is left out, a known file that is gone is told as missing.

    `on_open` is told of each file before it is opened for its first bytes.
    """
    prefix = question.root
    if prefix:
        try:
            os.stat(prefix + b"/")
        except OSError:
            prefix = b""  # the process has ended or may not be entered: look from our own root
    search = _Search(question, prefix, on_open=on_open, spent=spent or Spent())
    for path in question.files:
        _look(search, path, known=True)
    for folder in question.folders:
        _walk(search, folder, MAX_DEPTH)
    return list(search.facts.values())


def _walk(search: _Search, folder: bytes, depth: int) -> None:
    if folder in search.seen_folders or len(search.facts) >= MAX_FACTS:
        return
    search.seen_folders.add(folder)
    since_ns = search.question.since_ns
    try:
        with os.scandir(search.prefix + folder) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_ENTRIES or len(search.facts) >= MAX_FACTS:
                    return
                path = folder.rstrip(b"/") + b"/" + entry.name
                if path in search.facts:
                    continue
                status = _status(entry)
                if status is None or max(status.st_mtime_ns, status.st_ctime_ns) < since_ns:
                    continue
                if stat.S_ISREG(status.st_mode):
                    _look(search, path, known=False)
                elif stat.S_ISDIR(status.st_mode):
                    _look(search, path, known=False)
                    if depth > 1:
                        _walk(search, path, depth - 1)
    except OSError:
        return


def _status(entry: os.DirEntry[bytes]) -> os.stat_result | None:
    """Return the status of an entry; None if it went since its folder was listed: no reason to miss its neighbours."""
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _look(search: _Search, path: bytes, *, known: bool) -> None:
    if path in search.facts or len(search.facts) >= MAX_FACTS:
        return
    question = search.question
    try:
        status = statx(search.prefix + path, flags=AT_SYMLINK_NOFOLLOW)
    except OSError:
        if known:
            search.facts[path] = FileFact(
                pid=question.pid, start_ticks=question.start_ticks, device=0, inode=0, path=text(path), size=0,
                is_directory=False, birth_ns=None, modified_ns=0, changed_ns=0, accessed_ns=None, magic=None,
                missing=True,
            )  # fmt: skip
        return
    is_directory = stat.S_ISDIR(status.mode)
    if not is_directory and not stat.S_ISREG(status.mode):
        return
    inside = _Inside() if is_directory else _look_inside(search, path, status.size)
    search.facts[path] = FileFact(
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


def _look_inside(search: _Search, path: bytes, size: int) -> _Inside:
    """Open a file, if there is anything to be learnt from that and not too many were opened for the same question."""
    question = search.question
    contents = question.contents and size >= MAGIC_BYTES and search.magic_reads < MAX_MAGIC_READS
    unwritten = question.unwritten and size > 0 and search.page_counts < MAX_PAGE_COUNTS
    if not contents and not unwritten:
        return _Inside()
    search.on_open(path)
    search.magic_reads += contents
    fd = _open(search.prefix + path)
    if fd is None:
        return _Inside()
    try:
        dirty_bytes = _unwritten(search, fd) if unwritten else None
        if not contents:
            return _Inside(unwritten_bytes=dirty_bytes)
        magic = _first_bytes(fd)
        whole = is_whole(fd, size, magic) if magic is not None else None
        return _Inside(magic, whole, dirty_bytes, _free_bytes(fd))
    finally:
        os.close(fd)


def _unwritten(search: _Search, fd: int) -> int | None:
    search.page_counts += 1
    started = time.thread_time_ns()
    counted = unwritten_bytes(fd)
    search.spent.unwritten_ns += time.thread_time_ns() - started
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
    """Answers questions in a thread of its own; a question too many is refused and counted."""

    def __init__(self, *, limit: int = 64, on_open: Callable[[bytes], None] = lambda _: None) -> None:
        """Make it; the thread starts with the first question, and calls `on_open` before it opens a file."""
        self._on_open = on_open
        self._questions: queue.Queue[Question | None] = queue.Queue(limit)
        self._answers: deque[list[FileFact]] = deque()
        self._pending = 0
        self._thread: threading.Thread | None = None
        self.refused = 0
        self.spent = Spent()  # written by the thread, read by others

    def ask(self, question: Question) -> None:
        """Put a question; never waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="facts", daemon=True)
            self._thread.start()
        try:
            self._questions.put_nowait(question)
            self._pending += 1
        except queue.Full:
            self.refused += 1

    def take(self) -> list[FileFact]:
        """Return what was answered since the last call."""
        facts: list[FileFact] = []
        while self._answers:
            facts.extend(self._answers.popleft())
            self._pending -= 1
        return facts

    @property
    def waiting(self) -> bool:
        """Whether an answer is still to come."""
        return self._pending > len(self._answers)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            self._answers.append(answer(question, self._on_open, self.spent))

    def close(self) -> None:
        """End the thread after its current question, without waiting for it: it may hang on a file server."""
        if self._thread is not None:
            try:
                self._questions.put_nowait(None)
            except queue.Full:
                self.refused += 1
