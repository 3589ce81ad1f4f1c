"""Trace samples summed up: of each watched process (bytes, written and open files), and of all unwatched ones."""

from __future__ import annotations

from ckptprof_collectors.processes.open_files import is_data_path
from ckptprof_collectors.samples import FileActivity, SocketTraffic

LARGE_FILE_BYTES = 1 << 20  # an open file with so many bytes written keeps a burst going
MAX_SESSIONS = 4096
MAX_LARGE = 512
MAX_MOVERS = 256
MAX_CONNECTIONS = 256

FileKey = tuple[int, int]
MAX_PROCESSES = 4096  # between two calls of `consume`
ProcessKey = tuple[int, int]  # pid, start in ticks


class TracedActivity:
    """Activity of one process between two ticks."""

    def __init__(self) -> None:
        self.transferred_bytes = 0  # since the last tick, by any call and through mappings
        self.written_bytes = 0  # of these
        self._bytes: dict[str, int] = {}  # of the open sessions
        self._open_files: set[str] = set()
        self._written: list[tuple[FileKey, bytes, bool]] = []
        self._large: dict[bytes, FileKey] = {}
        self.movers: dict[int, int] = {}  # thread -> time of its last file operation or send, the latest last
        self._connections: dict[tuple[str, int], tuple[int, int]] = {}  # by remote address and port: sent, received

    def ingest(self, activity: FileActivity) -> None:
        """Take in one sample."""
        before = self._bytes.pop(activity.session, 0)
        transferred = max(0, activity.bytes - before)
        self.transferred_bytes += transferred
        self.written_bytes += transferred if activity.writes else 0
        closed = activity.closed_ns is not None
        self.record_thread(activity.tid, activity.closed_ns or activity.last_ns)
        if not closed and len(self._bytes) < MAX_SESSIONS:
            self._bytes[activity.session] = activity.bytes
        large = activity.writes and activity.bytes >= LARGE_FILE_BYTES
        if large and not closed and len(self._open_files) < MAX_SESSIONS:
            self._open_files.add(activity.session)
        else:
            self._open_files.discard(activity.session)
        path = b"" if activity.path is None else activity.path.encode()
        if activity.writes and activity.bytes and is_data_path(path) and not path.endswith(b" (deleted)"):
            key = (activity.device, activity.inode)
            self._written.append((key, path, large))
            if large:
                self._remember(path, key)

    def ingest_traffic(self, traffic: SocketTraffic) -> tuple[int, int]:
        """Ingest counters of connections; return the bytes sent and received since the last such sample."""
        place = traffic.remote, traffic.port
        sent, received = self._connections.pop(place, (0, 0))
        self._connections[place] = traffic.sent_bytes, traffic.received_bytes
        if len(self._connections) > MAX_CONNECTIONS:
            del self._connections[next(iter(self._connections))]
        if traffic.tid is not None and traffic.sent_ns is not None:
            self.record_thread(traffic.tid, traffic.sent_ns)
        return max(0, traffic.sent_bytes - sent), max(0, traffic.received_bytes - received)

    def record_thread(self, tid: int, at_ns: int) -> None:
        """Record a file operation of a thread."""
        self.movers[tid] = max(at_ns, self.movers.pop(tid, 0))
        if len(self.movers) > MAX_MOVERS:
            self.movers.pop(next(iter(self.movers)))

    def _remember(self, path: bytes, key: FileKey) -> None:
        self._large.pop(path, None)
        self._large[path] = key
        if len(self._large) > MAX_LARGE:
            self._large.pop(next(iter(self._large)))

    @property
    def has_written_file_open(self) -> bool:
        """A file with at least `LARGE_FILE_BYTES` written is still open."""
        return bool(self._open_files)

    def consume_written(self) -> list[tuple[FileKey, bytes, bool]]:
        """Return key, path and "is large" of files written since the last call; a new tick starts."""
        written, self._written = self._written, []
        self.transferred_bytes = self.written_bytes = 0
        return written

    def rename(self, old: bytes, new: bytes) -> list[tuple[FileKey, bytes]]:
        """Return the new paths of large files after `old`, the file or a folder above it, was renamed."""
        old_paths = [(path, key) for path, key in self._large.items() if path == old or path.startswith(old + b"/")]
        renamed = [(key, new + path[len(old) :]) for path, key in old_paths]
        for path, _ in old_paths:
            del self._large[path]
        for key, path in renamed:
            self._remember(path, key)
        return renamed

    def forget_open_files(self) -> None:
        """Forget open files: the burst has ended, and another thread may have closed them."""
        self._open_files.clear()


class UnwatchedBytes:
    """Sums the bytes that each unwatched process transferred from and to files."""

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}  # bytes of open sessions at their last sample
        self._transferred: dict[ProcessKey, int] = {}

    def ingest(self, activity: FileActivity) -> None:
        """Take in one sample."""
        transferred = activity.bytes - self._sessions.pop(activity.session, 0)
        if activity.closed_ns is None:
            self._sessions[activity.session] = activity.bytes
            if len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        process = activity.pid, activity.start_ticks
        if process in self._transferred or len(self._transferred) < MAX_PROCESSES:
            self._transferred[process] = self._transferred.get(process, 0) + transferred

    def consume(self) -> dict[ProcessKey, int]:
        """Return the bytes transferred since the last call."""
        transferred, self._transferred = self._transferred, {}
        return transferred
