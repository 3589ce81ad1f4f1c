"""Connections to SQLite: one that writes, and any number that only read.

SQLite opens by a path, and the owner of a folder on that path can swap the file between any check and the open. So the
path is walked one step at a time, the file is opened by a descriptor that is checked, and the file that SQLite opened
is compared with it before anything is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

from ckptprof.errors import StoreError
from ckptprof.store.location import SERVICE_DIRECTORY, file_uri, printable_path
from ckptprof.store.problems import StoreDamagedError

MAX_LINKS = 40  # include/linux/namei.h: MAXSYMLINKS
_COMPANION_SUFFIXES = ("-wal", "-shm", "-journal", ".lock")
_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # closing such a descriptor releases no lock of SQLite
_OTHER_PATH_HINT = "give another path with --db"
PRIVATE_MODE = 0o600
_MIN_DATABASE_BYTES = 512  # one page; SQLite treats a shorter file as empty and would overwrite it


def file_mode(path: Path) -> int:
    """Permissions of a database: the service's is readable by its group, any other by its owner only."""
    return 0o640 if path.parent == SERVICE_DIRECTORY else 0o600


def is_open_to_others(mode: int) -> bool:
    """Test whether permissions let others than the owner read, write or list."""
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO))


def check_file(path: Path) -> int:
    """Check by stat(2) that a file may be a database, and return its size; raises StoreError and OSError.

    It is not opened: closing any descriptor of it would release the locks that SQLite has on it in this process.
    """
    state = path.stat()
    if stat.S_ISDIR(state.st_mode):
        raise StoreError(f"{printable_path(path)} is a directory", hint="give the path of a file")
    if not stat.S_ISREG(state.st_mode):
        raise StoreError(f"{printable_path(path)} is not a database", hint="give another path with --db")
    if 0 < state.st_size < _MIN_DATABASE_BYTES:
        raise StoreDamagedError(f"{printable_path(path)} is not a database", hint="give another path with --db")
    return state.st_size


def prepare_file(path: Path) -> None:
    """Make the file and the directories above it, if they are missing; raises StoreError and OSError."""
    with contextlib.suppress(FileNotFoundError):
        check_file(path)
        os.close(_open_verified(path))
        return
    folder_mode = 0o750 if path.parent == SERVICE_DIRECTORY else 0o700
    for folder in [folder for folder in reversed(path.parents) if not folder.exists()]:
        folder.mkdir(mode=folder_mode, exist_ok=True)
    _create_file(path, PRIVATE_MODE)


def restrict_log_access(path: Path) -> None:
    """Let no other user open the log and its index: a lock on the index would block the writer.

    SQLite gives new files the permissions of the database, and does not change those of existing ones. A database that
    others may open and that has no log, a backup, is rewritten: to start a log SQLite locks the file.
    Raises OSError and sqlite3.Error.
    """
    real = path.resolve()
    state = real.stat()
    if is_open_to_others(state.st_mode):
        with contextlib.closing(sqlite3.connect(file_uri(path), uri=True)) as old:
            if old.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                _rewrite(real, old, state)
    log, index = (real.with_name(real.name + suffix) for suffix in ("-wal", "-shm"))
    with contextlib.suppress(FileNotFoundError):
        if is_open_to_others(index.stat().st_mode):
            index.unlink()  # others may have it open; it is rebuilt from the log
        log.chmod(PRIVATE_MODE)
    for file in (log, index):
        with contextlib.suppress(FileExistsError):
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE)
            os.write(fd, b"\0")
            os.close(fd)


def _rewrite(path: Path, old: Connection, state: os.stat_result) -> None:
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    _create_file(new, PRIVATE_MODE)
    with contextlib.closing(sqlite3.connect(new)) as copy:
        old.backup(copy)
    copy_ownership(new, state)
    new.replace(path)


def log_bytes(path: Path) -> int:
    """Size of the write-ahead log; 0 if there is none."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return 0


def copy_ownership(file: Path | int, state: os.stat_result) -> None:
    """Change the owner of a file created by root to that of another file; raises OSError."""
    if os.geteuid() == 0:
        os.chown(file, state.st_uid, state.st_gid)


def open_writer(path: Path, log_bytes: int) -> Connection:
    """Open an existing file for writing, with a log that shrinks to `log_bytes` when it restarts.

    Raises sqlite3.Error, StoreError for files of another user.
    """
    verified_fd = _open_verified(path)
    uri = file_uri(path, mode="rw")
    try:
        raw = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
        try:
            raw.execute("PRAGMA schema_version").fetchone()  # opens the file, and writes nothing
            _check_same_file(path, verified_fd)
            raw.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only affects a new file
            raw.execute("PRAGMA journal_mode = WAL")
            raw.execute(f"PRAGMA journal_size_limit = {log_bytes}")
            raw.execute("PRAGMA wal_autocheckpoint = 0")  # readers need to know when that happens: publication.py
            raw.execute("PRAGMA foreign_keys = ON")
            raw.execute("PRAGMA trusted_schema = OFF")
            raw.execute("PRAGMA cell_size_check = ON")
        except (sqlite3.Error, StoreError):
            raw.close()
            raise
    finally:
        os.close(verified_fd)
    return raw


def _open_verified(path: Path) -> int:
    """Open a file with O_PATH, to be closed; raises StoreError and OSError.

    Files of another user are refused: the file, or a companion, that is neither ours, nor root's, nor the folder
    owner's; and a link that is neither ours nor root's. For other users than root, links to folders may have any owner.
    """
    name, descriptors = _resolve(path)
    try:
        folder = descriptors[-2] if len(descriptors) > 1 else descriptors[-1]
        trusted = {os.geteuid(), 0, os.fstat(folder).st_uid}
        _check_owner(path, os.fstat(descriptors[-1]), trusted)
        for suffix in _COMPANION_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                _check_owner(path, os.stat(name + suffix, dir_fd=folder, follow_symlinks=False), trusted)
        return descriptors.pop()
    finally:
        _close_descriptors(descriptors, 0)


def _create_file(path: Path, mode: int) -> None:
    """Create an empty file with exactly this mode, following no link of another user; raises StoreError."""
    _, descriptors = _resolve(path.parent)
    try:
        fd = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=descriptors[-1])
        try:
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
    finally:
        _close_descriptors(descriptors, 0)


def _resolve(path: Path) -> tuple[str, list[int]]:
    """Resolve a path step by step: its last name, and O_PATH descriptors of every step, links followed."""
    descriptors, steps, links, name = [os.open("/", _PATH_FLAGS)], deque(path.parts[1:]), 0, ""
    try:
        while steps:
            name = steps.popleft()
            if name == "..":
                _close_descriptors(descriptors, max(1, len(descriptors) - 1))
                continue
            descriptors.append(os.open(name, _PATH_FLAGS, dir_fd=descriptors[-1]))
            state = os.fstat(descriptors[-1])
            if not stat.S_ISLNK(state.st_mode):
                continue
            if os.geteuid() == 0 or not steps:
                _check_owner(path, state, {os.geteuid(), 0})
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))  # noqa: TRY301 - as the kernel does
            target = Path(os.readlink("", dir_fd=descriptors[-1]))
            _close_descriptors(descriptors, 1 if target.is_absolute() else len(descriptors) - 1)
            steps.extendleft(part for part in reversed(target.parts) if part != "/")
    except BaseException:
        _close_descriptors(descriptors, 0)
        raise
    return name, descriptors


def _check_owner(path: Path, state: os.stat_result, trusted: set[int]) -> None:
    if state.st_uid not in trusted:
        raise StoreError(f"{printable_path(path)} belongs to another user (uid {state.st_uid})", hint=_OTHER_PATH_HINT)


def _close_descriptors(descriptors: list[int], remaining: int) -> None:
    while len(descriptors) > remaining:
        os.close(descriptors.pop())


def _check_same_file(path: Path, verified_fd: int) -> None:
    """Raise StoreError unless another descriptor of this process has the file open that `_open_verified` opened."""
    expected = os.fstat(verified_fd)
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing, or closed in between
            if int(entry.name) != verified_fd and os.path.samestat(os.fstat(int(entry.name)), expected):
                return
    raise StoreError(f"{printable_path(path)} was replaced while it was being opened", hint=_OTHER_PATH_HINT)


def open_reader(path: Path, *, immutable: bool) -> Connection:
    """Open for reading only, without creating files; raises sqlite3.Error."""
    raw = sqlite3.connect(file_uri(path, immutable=immutable), uri=True, isolation_level=None, timeout=2)
    try:
        raw.execute("PRAGMA trusted_schema = OFF")
        raw.execute("PRAGMA cell_size_check = ON")
        raw.execute("PRAGMA mmap_size = 0")  # a damaged disk gives an error, not SIGBUS
        raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        raw.close()
        raise
    return raw


def copy_and_close(original: Connection) -> Connection:
    """Copy a database into a temporary file, which ends with the connection; raises sqlite3.Error."""
    with contextlib.closing(original):
        copy = sqlite3.connect("", isolation_level=None)
        original.backup(copy)
    copy.executescript("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY")
    return copy


def run_to_completion(connection: Connection, statement: str) -> None:
    """Run a PRAGMA outside of any transaction until it is done; sqlite3's `execute` takes only its first step."""
    connection.rollback()
    connection.executescript(statement)


@contextmanager
def transaction(connection: Connection, *, durable: bool = False) -> Iterator[Connection]:
    """Commit all changes of the block, or none; `durable`: wait until they survive a power loss."""
    connection.rollback()  # of an earlier transaction that is still open
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    with _transaction(connection, "BEGIN IMMEDIATE"):
        yield connection


@contextmanager
def snapshot(connection: Connection) -> Iterator[Connection]:
    """Read one state of the database, independent of concurrent writes."""
    with _transaction(connection, "BEGIN"):
        yield connection


@contextmanager
def _transaction(connection: Connection, statement: str) -> Iterator[None]:
    connection.execute(statement)
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()  # nothing, where SQLite did it by itself
        raise
