"""The writer thread: the only one that waits for the disk.

Checkpoints are never given up while the process lives: what cannot be stored now is tried again. Timelines are dropped
and counted when the disk is too slow or full, so that memory stays bounded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ckptprof.errors import StoreError
from ckptprof.model import Checkpoint, Session

if TYPE_CHECKING:
    from ckptprof.store.timeline import Window
    from ckptprof.store.writer import StoreWriter

MAX_WINDOWS = 20_000
MAX_CHECKPOINTS = 10_000
RETRY_SECONDS = 5.0
MAINTAIN_SECONDS = 300.0


class Keeper:
    """Owns the store's writer; every method but `run` returns at once."""

    def __init__(self, writer: StoreWriter, *, complain: Callable[[str], None]) -> None:
        """Take the writer over and start; `complain` is told of each new kind of failure once."""
        self._writer = writer
        self._complain = complain
        self._wake = threading.Condition()
        self._checkpoints: deque[Checkpoint] = deque()
        self._windows: deque[Window] = deque()
        self._sessions: dict[str, Session] = {}
        self._begun: set[str] = set()
        self._stopping = False
        self._failing = ""
        self.store_errors = 0
        self.dropped_windows = 0
        self.dropped_checkpoints = 0
        self.stored: list[Checkpoint] = []
        self.keep_stored = False
        self._maintained = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def put_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Store checkpoints, as soon as possible."""
        with self._wake:
            for checkpoint in checkpoints:
                if len(self._checkpoints) >= MAX_CHECKPOINTS:
                    self._checkpoints.popleft()
                    self.dropped_checkpoints += 1
                self._checkpoints.append(checkpoint)
            self._wake.notify()

    def put_windows(self, windows: Sequence[Window]) -> None:
        """Store parts of timelines; the oldest are dropped and counted if too many wait."""
        with self._wake:
            for window in windows:
                if len(self._windows) >= MAX_WINDOWS:
                    self._windows.popleft()
                    self.dropped_windows += 1
                self._windows.append(window)
            self._wake.notify()

    def put_session(self, session: Session) -> None:
        """Store what is known of a session now."""
        with self._wake:
            self._sessions[session.uid] = session
            self._wake.notify()

    @property
    def queued(self) -> int:
        """How many things wait to be stored."""
        return len(self._checkpoints) + len(self._windows) + len(self._sessions)

    def size_bytes(self) -> int | None:
        """Return the size of the database with its log; None if it cannot be seen."""
        path = self._writer.path
        log = path.with_name(f"{path.name}-wal")
        try:
            return path.stat().st_size + (log.stat().st_size if log.exists() else 0)
        except OSError:
            return None

    @property
    def alive(self) -> bool:
        """Whether the thread is there."""
        return self._thread.is_alive()

    def close(self, patience_seconds: float) -> bool:
        """Store what is waiting and end; return whether all of it was stored."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(patience_seconds)
        return not self._thread.is_alive() and self.queued == 0 and not self.dropped_checkpoints

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self.queued and not self._stopping:
                    if not self._wake.wait(MAINTAIN_SECONDS):
                        break
                stopping = self._stopping
            if self.queued and not self._store() and not stopping:
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping, RETRY_SECONDS)
                continue
            if stopping:
                break
            self._maintain()
        try:
            self._writer.close()
        except StoreError as error:
            self._fail(error)

    def _store(self) -> bool:
        """Store what is waiting, the most important first; return whether that worked."""
        try:
            self._store_sessions()
            self._store_checkpoints()
            self._store_windows()
        except StoreError as error:
            self._fail(error)
            return False
        self._failing = ""
        return True

    def _store_sessions(self) -> None:
        with self._wake:
            sessions = list(self._sessions.values())
        for session in sessions:
            if session.uid in self._begun:
                self._writer.update_session(session)
            else:
                self._writer.begin_session(session)
                self._begun.add(session.uid)
            with self._wake:
                if self._sessions.get(session.uid) == session:
                    del self._sessions[session.uid]

    def _store_checkpoints(self) -> None:
        with self._wake:
            checkpoints = list(self._checkpoints)
        if not checkpoints:
            return
        stored = self._writer.add_checkpoints(checkpoints)
        with self._wake:
            for checkpoint in checkpoints:
                if self._checkpoints and self._checkpoints[0] is checkpoint:
                    self._checkpoints.popleft()
        if self.keep_stored:
            self.stored.extend(stored)

    def _store_windows(self) -> None:
        with self._wake:
            windows = list(self._windows)
        if not windows:
            return
        self._writer.add_windows(windows)
        with self._wake:
            for window in windows:
                if self._windows and self._windows[0] is window:  # else it was dropped meanwhile, for want of room
                    self._windows.popleft()

    def _maintain(self) -> None:
        if time.monotonic() - self._maintained < MAINTAIN_SECONDS:
            return
        self._maintained = time.monotonic()
        try:
            self._writer.maintain(time.time_ns())
        except StoreError as error:
            self._fail(error)

    def _fail(self, error: StoreError) -> None:
        self.store_errors += 1
        if self._failing != str(error):
            self._failing = str(error)
            hint = f" ({error.hint})" if error.hint else ""
            self._complain(f"not storing for now: {error}{hint}; sampling goes on")
