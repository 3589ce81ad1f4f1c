"""Paths of sessions, by session, by file, and by the recent files of a process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ckptprof_collectors.ebpf.layouts import SessionKey

_FILE_KEY_BYTES = SessionKey.tid.offset  # the part of a key that is the file's
_MAX_SESSIONS = 8192  # the capacity of the kernel's map; 300 bytes each
_MAX_RECENT = 256  # processes, and sessions that have just ended: their close follows at once
_PATHS_PER_PROCESS = 32


class SessionPaths:
    """A bounded cache of paths; the oldest are dropped."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, str] = {}
        self._files: dict[bytes, str] = {}
        self._ended: dict[bytes, str] = {}
        self._recent: dict[int, deque[str]] = {}

    def record(self, key: bytes, path: str | None) -> None:
        """Record the path of a file that a thread started to use; sessions of other threads may have no path."""
        if path is None:
            return
        for paths, entry in ((self._sessions, key), (self._files, key[:_FILE_KEY_BYTES])):
            if len(paths) >= _MAX_SESSIONS:
                paths.pop(next(iter(paths)))
            paths[entry] = path

    def record_use(self, process: int, path: str | None) -> None:
        """Record a recent file of a process: a relative name may be one of them."""
        if path is None:
            return
        recent = self._recent.get(process)
        if recent is None:
            if len(self._recent) >= _MAX_RECENT:
                self._recent.pop(next(iter(self._recent)))
            recent = self._recent[process] = deque(maxlen=_PATHS_PER_PROCESS)
        recent.append(path)

    def find(self, key: bytes) -> str | None:
        return self._sessions.get(key) or self._files.get(key[:_FILE_KEY_BYTES])

    def forget(self, key: bytes, path: str | None = None) -> None:
        """Forget a session whose file is being closed; its path stays for a while."""
        self._sessions.pop(key, None)
        if path is not None and key[SessionKey.tail.offset] & 1:  # closes of what was read have no event
            if len(self._ended) >= _MAX_RECENT:
                self._ended.pop(next(iter(self._ended)))
            self._ended[key] = path

    def pop_closed(self, key: bytes) -> str | None:
        """Path of a session that has just ended, if known; its next one has a record of its own."""
        return self._ended.pop(key, None) or self._sessions.pop(key, None) or self.find(key)

    def recent(self, process: int) -> Sequence[str]:
        """Files that a process used, newest last."""
        return self._recent.get(process, ())
