"""The only writing connection. Not for concurrent use by threads; it may be created in one and used in another."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from types import MappingProxyType
from typing import TypeVar

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Session
from ckptprof.store import quarantine, retention
from ckptprof.store.checkpoint_rows import get_pending, put_checkpoint, put_pending, put_session
from ckptprof.store.connection import log_bytes, open_writer, prepare_file, restrict_log_access, transaction
from ckptprof.store.deletions import put_deletions
from ckptprof.store.location import path_of_database, printable_path
from ckptprof.store.lock import WriterLock, describe_log_readers
from ckptprof.store.migrations import migrate
from ckptprof.store.problems import StoreDamagedError, StoreFullError, translated_errors
from ckptprof.store.publication import Publication
from ckptprof.store.series import strips
from ckptprof.store.series.blocks import BlockError, encode
from ckptprof.store.series.strips import MINUTE_NS, Strip, block_id
from ckptprof.store.sql import compiled
from ckptprof.store.timeline import Window
from ckptprof.units import MS, NS

__all__ = ["Retention", "StoreDamagedError", "StoreFullError", "StoreWriter"]

Retention = retention.Retention
_DEFAULT_RETENTION = Retention()
_BALLAST_BYTES = 8 << 20
_MAX_LOG_BYTES = 8 << 20  # of the log when it restarts; included in the limit of the database
_FAST_COMPRESSION = 1  # zlib's level for minutes: they are recompressed after their hour
_SHARE_DROPPED_WHEN_FULL = 0.05

_Result = TypeVar("_Result")


class StoreWriter:
    """Opens or creates the database and migrates it to the latest schema.

    Every method raises StoreError with one clear line; `StoreFullError` if the disk is full, after which nothing of
    the call is stored, all before it is, and the same call may succeed later.
    """

    def __init__(
        self, path: str | Path, *, retention: Retention = _DEFAULT_RETENTION, ballast_bytes: int = _BALLAST_BYTES
    ) -> None:
        """Open it; a damaged database of ckptprof is set aside, other files are refused and never touched."""
        self.path = path_of_database(path)
        self.set_aside_path: Path | None = None  # new path of a damaged database
        self.set_aside_reason = f"{printable_path(self.path)} was damaged"
        self.damaged_blocks = 0
        self._retention = retention
        self._log_bytes = min(_MAX_LOG_BYTES, retention.max_bytes // 8)
        self._catalogue = strips.EntityCatalogue()
        self._session_uid: str | None = None
        self.is_published = True  # readers of the group have all events; the newest timelines may be missing
        self._ballast_bytes = ballast_bytes
        self._ballast = _DiskBallast(self.path, ballast_bytes)
        with translated_errors(self.path), contextlib.ExitStack() as undo:
            try:
                prepare_file(self.path)
            except StoreDamagedError:  # truncated
                if not quarantine.is_own_database(self.path):
                    raise
            self._lock = WriterLock(self.path)
            undo.callback(self._lock.close)
            try:
                self._connection = self._open()
            except StoreDamagedError as error:
                if not quarantine.is_own_database(self.path):
                    raise
                self.set_aside_reason = str(error)
                self.set_aside_path = quarantine.set_aside(self.path)
                self._connection = self._open()
                _continue_change_numbers(self._connection)
            undo.pop_all()

    def _open(self) -> Connection:
        with translated_errors(self.path):
            prepare_file(self.path)
            restrict_log_access(self.path)
            connection = open_writer(self.path, self._log_bytes)
            try:
                with translated_errors(self.path):
                    migrate(connection, printable_path(self.path))
                    self._publication = Publication(self.path, connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def publish(self) -> None:
        """Publish the stored data to readers of the group; only a part while a reader pins the log."""
        try:
            with translated_errors(self.path):
                self._publication.renew()
        except StoreFullError:
            if not self._ballast.release():
                raise
            with translated_errors(self.path):
                self._publication.renew()
        self.is_published = True

    def start_session(self, session: Session) -> None:
        """Store a session; later windows extend its end."""
        self._run(lambda connection: put_session(connection, session), durable=True)
        self.is_published = False
        self._session_uid = session.uid

    def update_session(self, session: Session) -> None:
        """Store the changed session."""
        self._run(lambda connection: put_session(connection, session), durable=session.clean)
        self.is_published = False

    def add_checkpoints(
        self,
        checkpoints: Sequence[Checkpoint],
        pending: Mapping[str, bytes] = MappingProxyType({}),
        no_longer_pending: Collection[str] = (),
    ) -> list[Checkpoint]:
        """Store checkpoints, each replacing an earlier one with its uid, and return them with their ids.

        They are on disk when this returns. The same transaction replaces and removes pending ones; a power loss, but
        not the death of this process, may lose the newest of those.
        """
        if not checkpoints and not pending and not no_longer_pending:
            return []

        def put(connection: Connection) -> list[Checkpoint]:
            put_pending(connection, pending, no_longer_pending)
            return [put_checkpoint(connection, one) for one in checkpoints]

        self.is_published = False
        return self._run(put, durable=bool(checkpoints))

    def add_deletions(self, deleted: Mapping[str, int]) -> None:
        """Record which of the newest saves were deleted; `deleted`: path of a file or folder to epoch nanoseconds."""
        self._run(lambda connection: put_deletions(connection, deleted), durable=False)
        self.is_published = False

    def pending(self) -> set[str]:
        """Uids of checkpoints that are not reported yet."""
        return self._run(lambda connection: set(get_pending(connection)), durable=False)

    def add_windows(self, windows: Sequence[Window]) -> None:
        """Store windows; power loss, but not the death of this process, may lose the newest.

        While a reader keeps the log from restarting, none are stored beyond the limit: that raises StoreFullError.
        """
        if self._publication.is_log_pinned:
            self.publish()
            self._check_log()
        if windows:
            self._run(lambda connection: self._put_windows(connection, windows), durable=False)

    def maintain(self, now_wall_ns: int, is_interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Compact, expire and shrink; cheap if there is nothing to do, to be called every few minutes.

        Soon after `is_interrupted` returns True it stops and returns False; the next call continues.
        """
        with translated_errors(self.path):
            try:
                compacted = retention.compact(self._connection, self._catalogue, now_wall_ns, is_interrupted)
                self.damaged_blocks += compacted.damaged_blocks
                if not compacted.is_complete:
                    return False
                retention.expire(self._connection, self._retention, now_wall_ns)
                self._publication.renew()
                if not self._publication.is_log_pinned:  # deleting would only make the log longer
                    retention.shrink(self._connection, self._retention.max_bytes - self._log_bytes)
                    retention.release_pages(self._connection)
                    self._publication.renew()
            finally:
                self._catalogue.forget()  # entities may be gone, or an insertion of them rolled back
            if retention.used_bytes(self._connection) > self._ballast_bytes:
                self._ballast.ensure()
        return True

    def abandon(self) -> bool:
        """Close a damaged database, and set it aside if ckptprof wrote it; return False if it is not ours."""
        try:
            with contextlib.suppress(StoreError), translated_errors(self.path):
                self._publication.close()
                self._connection.close()
            if not quarantine.is_own_database(self.path):
                return False
            with translated_errors(self.path):
                self.set_aside_path = quarantine.set_aside(self.path)
            return True
        finally:
            self._lock.close()

    def close(self) -> None:
        """Close the database and release its lock; a second call does nothing."""
        try:
            with translated_errors(self.path):
                with contextlib.suppress(sqlite3.Error, OSError):  # the next start does it
                    self._publication.renew()
                self.is_published = True
                self._publication.close()
                self._connection.close()
        finally:
            self._lock.close()

    def _check_log(self) -> None:
        used = retention.used_bytes(self._connection) + log_bytes(self.path)
        if self._publication.is_log_pinned and used > self._retention.max_bytes:
            text = f"{printable_path(self.path)} and its log have {used} bytes: a reader keeps the log from being reset"
            raise StoreFullError(f"{text} ({describe_log_readers(self.path)})", hint="end it, or its transaction")

    def _run(self, work: Callable[[Connection], _Result], *, durable: bool) -> _Result:
        try:
            done = self._run_once(work, durable=durable)
        except StoreFullError:
            if not self._free_space():
                raise
            done = self._run_once(work, durable=durable)
        if log_bytes(self.path) > self._log_bytes:
            self.publish()
        return done

    def _run_once(self, work: Callable[[Connection], _Result], *, durable: bool) -> _Result:
        with translated_errors(self.path):
            try:
                with transaction(self._connection, durable=durable) as connection:
                    return work(connection)
            except BaseException:
                self._catalogue.forget()
                raise

    def _free_space(self) -> bool:
        """Drop the ballast and the oldest timelines, whose pages are reused then; return False if nothing was freed."""
        dropped = self._ballast.release()
        try:
            with translated_errors(self.path):
                self._publication.renew()
                used = retention.used_bytes(self._connection)
                pruned = retention.shrink_timelines(self._connection, int(used * (1 - _SHARE_DROPPED_WHEN_FULL)))
                self._publication.renew()
        except StoreError:
            return dropped
        return dropped or pruned

    def _put_windows(self, connection: Connection, windows: Sequence[Window]) -> None:
        newest_ns = max((window.times_ns[-1] for window in windows if window.times_ns), default=0)
        numbers = self._catalogue.entities(connection, {window.entity for window in windows}, newest_ns)
        grouped: dict[int, list[Window]] = {}
        for window in windows:
            grouped.setdefault(block_id(window.start_ns // MINUTE_NS, numbers[window.entity]), []).append(window)
        stored = {block[0]: block for block in strips.fetch_blocks(connection, "minutes", grouped)}
        blocks = []
        for identity, group in grouped.items():
            fields, times, columns = group[0].fields, group[0].times_ns, group[0].columns
            if len(group) > 1 or identity in stored:  # a new start within the minute, or the clock was set back
                found = self._stored_strips(connection, stored.get(identity))
                for one in group:
                    own = dict(zip(one.fields, map(list, one.columns), strict=True))
                    found.append(Strip(list(one.times_ns), own))
                strip = strips.join(found)
                fields, times, columns = tuple(strip.columns), strip.times_ns, tuple(strip.columns.values())
            data = encode(times, columns, time_unit_ns=strips.TIME_UNIT_NS, compression=_FAST_COMPRESSION)
            blocks.append((identity, self._catalogue.layout(connection, fields), data))
        strips.put_blocks(connection, "minutes", blocks)
        if self._session_uid is not None:
            connection.execute(compiled.EXTEND_SESSION, {"session": self._session_uid, "newest_ns": newest_ns})

    def _stored_strips(self, connection: Connection, block: tuple[int, int, bytes] | None) -> list[Strip]:
        if block is None:
            return []
        try:
            return [strips.decode_strip(block[1], block[2], strips.read_layouts(connection))]
        except BlockError:
            self.damaged_blocks += 1
            return []


class _DiskBallast:
    """Reserves `size_bytes` on disk in a file next to the database, if there is plenty of free space; 0: none.

    On a full disk SQLite cannot even delete (measured: DELETE and a WAL checkpoint fail with SQLITE_FULL), so the
    deletion needs reserved space.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path.with_name(path.name + ".ballast")
        self._size_bytes = size_bytes

    def ensure(self) -> None:
        """Make the file unless it is there; does nothing while less than four times its size is free."""
        if not self._size_bytes or os.path.lexists(self._path):
            return
        state = os.statvfs(self._path.parent)
        if state.f_bavail * state.f_frsize < 4 * self._size_bytes:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._size_bytes)
        except OSError:
            self.release()
        finally:
            os.close(fd)

    def release(self) -> bool:
        """Free the reserved space; return False if there was none."""
        with contextlib.suppress(OSError):
            self._path.unlink()
            return True
        return False


def _continue_change_numbers(connection: Connection) -> None:
    """Start change numbers at the current time: above those of the damaged database, which may have been shipped."""
    with transaction(connection):
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
        newest = time.time_ns() * MS // NS
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', ?)", (newest,))
