"""The writer thread: the only one that waits for the disk.

Checkpoints are never dropped while the process lives: they are retried, one by one if a batch fails, so that one which
the database rejects does not block the others. Timelines are dropped and counted when the disk is too slow or full, so
that memory stays bounded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Session
from ckptprof.service.recorder.pending import encode
from ckptprof.service.recorder.recorder_database import RecorderDatabase
from ckptprof.store.connection import log_bytes
from ckptprof.store.timeline import Window
from ckptprof.store.writer import StoreDamagedError, StoreFullError, StoreWriter
from ckptprof_collectors import heap

_Item = TypeVar("_Item")

MAX_WINDOWS = 20_000
MAX_CHECKPOINTS = 10_000
RETRY_SECONDS = 5.0
PUBLISH_SECONDS = 5.0  # at most, until readers without write access see an event
MAINTAIN_SECONDS = 300.0
ONE_BY_ONE_SECONDS = 2.0


class WriterThread:
    """Owns the database; every method but `close` returns at once."""

    def __init__(self, database: RecorderDatabase, *, complain: Callable[[str], None]) -> None:
        self._database = database
        self._writer: StoreWriter | None = None  # `_started_sessions` has its sessions
        self._complain = complain
        self._wake = threading.Condition()
        self._checkpoints: deque[Checkpoint] = deque()
        self._windows: deque[Window] = deque()
        self._sessions: dict[str, Session] = {}
        self._deletions: dict[str, int] = {}
        self._pending: dict[str, PendingEvent] | None = None  # to be stored
        self._stored_pending: Mapping[str, PendingEvent | None] | None = (
            None  # as stored; None: of an earlier process, only the uid
        )
        self._started_sessions: set[str] = set()
        self._stopping = False
        self._last_error = ""
        self.store_errors = 0
        self.dropped_windows = 0
        self.damaged_databases = 0
        self.dropped_checkpoints = 0
        self.stored_checkpoints: list[Checkpoint] = []
        self.retains_stored = False
        self._maintained = self._published = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def put_checkpoints(self, checkpoints: Sequence[Checkpoint], pending: Sequence[PendingEvent] | None = None) -> None:
        """Store checkpoints as soon as possible, and in the same transaction replace the unreported events."""
        with self._wake:
            if pending is not None:
                self._pending = {one.checkpoint.uid: one for one in pending}
            self.dropped_checkpoints += self._enqueue(self._checkpoints, checkpoints, MAX_CHECKPOINTS)

    def put_windows(self, windows: Sequence[Window]) -> None:
        """Store parts of timelines; the oldest are dropped and counted if too many wait."""
        self.dropped_windows += self._enqueue(self._windows, windows, MAX_WINDOWS)

    def _enqueue(self, waiting: deque[_Item], new_items: Sequence[_Item], max_items: int) -> int:
        with self._wake:
            waiting.extend(new_items)
            too_many = max(0, len(waiting) - max_items)
            for _ in range(too_many):
                waiting.popleft()
            self._wake.notify()
        return too_many

    def put_session(self, session: Session) -> None:
        """Store the current state of a session."""
        with self._wake:
            self._sessions[session.uid] = session
            self._wake.notify()

    def put_deletions(self, deleted: Mapping[str, int]) -> None:
        """Store when saves were deleted, after the checkpoints that wait; `deleted`: path to epoch nanoseconds."""
        with self._wake:
            self._deletions = (
                {**self._deletions, **deleted} if len(self._deletions) < MAX_CHECKPOINTS else dict(deleted)
            )
            self._wake.notify()

    @property
    def queued(self) -> int:
        """Number of items to be stored."""
        items = len(self._checkpoints) + len(self._windows) + len(self._sessions) + len(self._deletions)
        return items + (self._pending is not None)

    def size_bytes(self) -> int | None:
        """Size of the database with its log; None if it cannot be read."""
        try:
            return self._database.path.stat().st_size + self.log_bytes()
        except OSError:
            return None

    def log_bytes(self) -> int:
        """Size of the log alone."""
        return log_bytes(self._database.path)

    def close(self, patience_seconds: float, *, hurried: Callable[[], bool] = lambda: False) -> bool:
        """Store the queue and end, sooner once `hurried` is true; return whether everything was stored."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        deadline = time.monotonic() + patience_seconds
        while self._thread.is_alive() and time.monotonic() < deadline and not hurried():
            self._thread.join(0.1)
        return not self._thread.is_alive() and self.queued == 0 and not self.dropped_checkpoints

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self.queued or self._stopping, self._patience_seconds())
                stopping = self._stopping
            done = self._store_waiting()
            if stopping:
                break
            if not done:
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping, RETRY_SECONDS)
        try:
            self._database.close()
        except StoreError as error:
            self._fail(error)

    def _patience_seconds(self) -> float:
        if self._writer is None or self._writer.is_published:
            return MAINTAIN_SECONDS
        return max(0.0, self._published + PUBLISH_SECONDS - time.monotonic())

    def _store_waiting(self) -> bool:
        """Store the queue, the most important items first; return whether that worked."""
        errors = self._attempt(lambda: self._store_all(self._database.writer()))
        was_replaced = self._replace_damaged(errors)
        errors += self._attempt(self._database.release)
        self.damaged_databases = self._database.damaged_count
        if errors:
            self._fail(errors[-1])
            return was_replaced
        self._last_error = ""
        return True

    @staticmethod
    def _attempt(work: Callable[[], list[StoreError] | None]) -> list[StoreError]:
        try:
            return work() or []
        except StoreError as error:
            return [error]
        except Exception as error:  # noqa: BLE001 - a fault must not end this thread, and so all storing
            return [StoreError(f"{type(error).__name__}: {error}")]

    def _replace_damaged(self, failures: Sequence[StoreError]) -> bool:
        """Set a damaged database aside; return whether that was done: the queue then goes into a new one at once."""
        if not any(isinstance(failure, StoreDamagedError) for failure in failures):
            return False
        try:
            return self._database.set_aside_damaged()
        except StoreError as error:
            self._fail(error)
            return False

    def _store_all(self, writer: StoreWriter) -> list[StoreError]:
        if writer is not self._writer:
            self._writer = writer
            self._started_sessions.clear()
            self._stored_pending = None
        self._store_sessions(writer)
        failures = [*self._store_checkpoints(writer), *self._attempt(lambda: self._store_deletions(writer))]
        failures += self._attempt(lambda: self._publish(writer))
        failures += self._store_windows(writer)
        self._maintain(writer)
        return failures

    def _store_sessions(self, writer: StoreWriter) -> None:
        with self._wake:
            sessions = list(self._sessions.values())
        for session in sessions:
            if session.uid in self._started_sessions:
                writer.update_session(session)
            else:
                writer.start_session(session)
                self._started_sessions.add(session.uid)
            with self._wake:
                if self._sessions.get(session.uid) == session:
                    del self._sessions[session.uid]

    def _store_checkpoints(self, writer: StoreWriter) -> list[StoreError]:
        with self._wake:
            checkpoints, pending = list(self._checkpoints), self._pending

        def store(some: Sequence[Checkpoint]) -> None:
            changed = self._pending_changes(writer, pending) if pending is not None else ({}, ())
            stored = writer.add_checkpoints(some, *changed)
            self._remove_stored(self._checkpoints, some)
            self._stored_pending = pending if pending is not None else self._stored_pending
            if self.retains_stored:
                self.stored_checkpoints = latest_revisions([*self.stored_checkpoints, *stored])

        failures = _store(checkpoints, store)[1]
        if pending is not None and not failures:  # a failed checkpoint may be one that is no longer pending
            if not checkpoints:
                store(())
            with self._wake:
                self._pending = None if self._pending is pending else self._pending
        return failures

    def _store_deletions(self, writer: StoreWriter) -> None:
        with self._wake:
            deleted = self._deletions
        if deleted:
            writer.add_deletions(deleted)
        with self._wake:
            self._deletions = {path: at_ns for path, at_ns in self._deletions.items() if path not in deleted}

    def _pending_changes(
        self, writer: StoreWriter, pending: dict[str, PendingEvent]
    ) -> tuple[dict[str, bytes], list[str]]:
        stored = self._stored_pending if self._stored_pending is not None else dict.fromkeys(writer.pending())
        changed = {uid: encode(one) for uid, one in pending.items() if stored.get(uid) is not one}
        return changed, [uid for uid in stored if uid not in pending]

    def _store_windows(self, writer: StoreWriter) -> list[StoreError]:
        with self._wake:
            windows = list(self._windows)

        def store(some: Sequence[Window]) -> None:
            writer.add_windows(some)
            self._remove_stored(self._windows, some)

        refused, failures = _store(windows, store)
        if len(refused) < len(windows):  # the database is fine, these are not
            self._remove_stored(self._windows, refused)
            self.dropped_windows += len(refused)
        return failures

    def _remove_stored(self, queue: deque[_Item], done: Sequence[_Item]) -> None:
        """Remove stored items; the oldest may have been dropped since, as the queue was full."""
        known = set(map(id, done))
        with self._wake:
            remaining = [item for item in queue if id(item) not in known]
            queue.clear()
            queue.extend(remaining)

    def _publish(self, writer: StoreWriter) -> None:
        now = time.monotonic()
        if not writer.is_published and now - self._published >= PUBLISH_SECONDS:
            self._published = now  # also if it fails
            writer.publish()

    def _maintain(self, writer: StoreWriter) -> None:
        """Run due maintenance, interrupted if an item has to be stored: the next turn continues it."""
        before, now = self._maintained, time.monotonic()
        if now - before >= MAINTAIN_SECONDS:
            self._maintained = now  # also if it fails
            if writer.maintain(time.time_ns(), self._has_work):
                heap.release_free()  # memory of a burst, or of compacted hours
            else:
                self._maintained = before

    def _has_work(self) -> bool:
        return self._stopping or self.queued > 0

    def _fail(self, error: StoreError) -> None:
        self.store_errors += 1
        if self._last_error != str(error):
            self._last_error = str(error)
            hint = f" ({error.hint})" if error.hint else ""
            self._complain(f"not storing for now: {error}{hint}; sampling continues")


def _store(items: Sequence[_Item], store: Callable[[Sequence[_Item]], None]) -> tuple[list[_Item], list[StoreError]]:
    """Store them together, or one by one if that fails; return the rejected ones, and the errors."""
    if not items:
        return [], []
    try:
        store(items)
    except StoreFullError:
        raise  # the next one would fail as well, after the same long search for space
    except StoreError as error:
        if len(items) == 1:
            return list(items), [error]
    else:
        return [], []
    refused: list[_Item] = []
    failures: list[StoreError] = []
    started = time.monotonic()
    for number, item in enumerate(items):
        if len(refused) == number and time.monotonic() - started > ONE_BY_ONE_SECONDS:
            return list(items), failures  # the cause is the database or its disk, not the items
        try:
            store([item])
        except StoreError as error:
            refused.append(item)
            failures.append(error)
    return refused, failures
