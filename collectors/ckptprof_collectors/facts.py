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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ckptprof_collectors.samples import FileFact, text
from ckptprof_collectors.statx import AT_SYMLINK_NOFOLLOW, FileStatus, statx

MAX_ENTRIES = 4096  # of one folder
MAX_FACTS = 2000  # of one question
MAX_DEPTH = 3
MAX_MAGIC_READS = 256
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


@dataclass
class _Search:
    question: Question
    prefix: bytes
    facts: dict[bytes, FileFact] = field(default_factory=dict)
    seen_folders: set[bytes] = field(default_factory=set)
    magic_reads: int = 0
    on_open: Callable[[bytes], None] = lambda _: None


def answer(question: Question, on_open: Callable[[bytes], None] = lambda _: None) -> list[FileFact]:
    """Return the facts; what cannot be looked at is left out, a known file that is gone is told as missing.

    `on_open` is told of each file before it is opened for its first bytes.
    """
    prefix = question.root
    if prefix:
        try:
            os.stat(prefix + b"/")
        except OSError:
            prefix = b""  # the process has ended or may not be entered: look from our own root
    search = _Search(question, prefix, on_open=on_open)
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
    magic = None
    if not is_directory and status.size >= MAGIC_BYTES and search.magic_reads < MAX_MAGIC_READS:
        search.magic_reads += 1
        search.on_open(path)
        magic = read_magic(search.prefix + path)
    search.facts[path] = fact(question.pid, question.start_ticks, path, status, magic)


def fact(pid: int, start_ticks: int, path: bytes, status: FileStatus, magic: bytes | None) -> FileFact:
    """Return the sample for one file that was looked at."""
    return FileFact(
        pid=pid,
        start_ticks=start_ticks,
        device=status.device,
        inode=status.inode,
        path=text(path),
        size=status.size,
        is_directory=stat.S_ISDIR(status.mode),
        birth_ns=status.birth_ns,
        modified_ns=status.modified_ns,
        changed_ns=status.changed_ns,
        accessed_ns=status.accessed_ns,
        magic=magic,
    )


def read_magic(path: bytes) -> bytes | None:
    """Return the first bytes of a file, its access time left alone where that is allowed; None: not readable."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    for extra in (os.O_NOATIME, 0):  # O_NOATIME is for the owner and CAP_FOWNER only
        try:
            fd = os.open(path, flags | extra)
        except PermissionError:
            continue
        except OSError:
            return None
        try:
            return os.read(fd, MAGIC_BYTES)
        except OSError:
            return None
        finally:
            os.close(fd)
    return None


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
            self._answers.append(answer(question, self._on_open))

    def close(self) -> None:
        """End the thread after its current question, without waiting for it: it may hang on a file server."""
        if self._thread is not None:
            try:
                self._questions.put_nowait(None)
            except queue.Full:
                self.refused += 1
