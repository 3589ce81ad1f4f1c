"""From the counters of connections to samples: sums by process and remote port, including closed connections."""

from __future__ import annotations

import ctypes
import heapq
import socket
import struct
import time
from collections.abc import Callable

from ckptprof_collectors.ebpf.layouts import ConnectionDirection, ConnectionKey, TcpConnection
from ckptprof_collectors.ebpf.libbpf import BpfMap
from ckptprof_collectors.samples import SocketTraffic

READ_INTERVAL_NS = 1_000_000_000  # the times are the kernel's: more frequent reads would add nothing
REPORT_BYTES = 64 << 10
QUIET_NS = 1_000_000_000
FOLLOW_UP_NS = 3_000_000_000  # small traffic is reported so long after large: a store may answer late
MAX_SUMS = 1024
MAX_CPU_SHARE = 0.002  # of a core: more than a thousand active connections are read less often
_HEAD = struct.Struct("=Q")
_WAYS = struct.Struct("=16Q")  # sent and received
_TAIL = struct.Struct("=16s4I")
_TAIL_AT = _HEAD.size + _WAYS.size
_PROCESS_AT = ConnectionKey.process.offset
_RECEIVED = ctypes.sizeof(ConnectionDirection) // 8
_NOTHING = (0,) * 2 * _RECEIVED
_LAST_NS = ConnectionDirection.last_ns.offset // 8
_MAPPED = bytes(10) + b"\xff\xff"  # IPv4 within IPv6
assert _TAIL_AT + _TAIL.size == ctypes.sizeof(TcpConnection)  # noqa: S101 - fails on import, not in the field
TrafficKey = tuple[int, int, str, int]  # pid, start_ticks, remote address and port


class DirectionSum:
    """One direction of all connections of a process with a remote port."""

    __slots__ = ("bytes", "calls", "largest_part_bytes", "last_ns", "parts", "parts_bytes", "start_ns")

    def __init__(self) -> None:
        self.bytes = self.calls = self.parts = self.parts_bytes = self.largest_part_bytes = 0
        self.start_ns = self.last_ns = 0

    def add(self, now: tuple[int, ...], before: tuple[int, ...]) -> None:
        """Add the bytes of one connection since the last read; both as in `ConnectionDirection`."""
        transferred_bytes, calls, start_ns, last_ns, _, parts, parts_bytes, largest = now
        self.bytes += transferred_bytes - before[0]
        self.calls += calls - before[1]
        if parts != before[5]:
            self.parts += parts - before[5]
            self.parts_bytes += parts_bytes - before[6]
            self.largest_part_bytes = max(self.largest_part_bytes, largest)
        if start_ns > self.last_ns + QUIET_NS or last_ns + QUIET_NS >= self.start_ns > start_ns > 0:
            self.start_ns = start_ns
        self.last_ns = max(self.last_ns, last_ns)


class PortTraffic:
    """Traffic of one process with one remote port."""

    __slots__ = ("follow_up_until_ns", "local_port", "name", "received", "reported_bytes", "sent", "sockets", "tid")

    def __init__(self, name: TrafficKey) -> None:
        self.name = name
        self.sent, self.received = DirectionSum(), DirectionSum()
        self.sockets = self.local_port = self.tid = 0
        self.reported_bytes = (0, 0)
        self.follow_up_until_ns = 0  # after large traffic: until then small traffic is reported as well

    @property
    def is_reportable(self) -> bool:
        """Its traffic since the last report is large, or not empty and soon after it."""
        return self._unreported_bytes >= (1 if self._last_ns <= self.follow_up_until_ns else REPORT_BYTES)

    @property
    def _unreported_bytes(self) -> int:
        return max(self.sent.bytes - self.reported_bytes[0], self.received.bytes - self.reported_bytes[1])

    @property
    def _last_ns(self) -> int:
        return max(self.sent.last_ns, self.received.last_ns)

    def is_quiet(self, now_ns: int) -> bool:
        return now_ns - self._last_ns >= FOLLOW_UP_NS

    def report(self) -> SocketTraffic:
        sent, received = self.sent, self.received
        if self._unreported_bytes >= REPORT_BYTES:
            self.follow_up_until_ns = self._last_ns + FOLLOW_UP_NS
        self.reported_bytes = (sent.bytes, received.bytes)
        pid, start_ticks, remote, port = self.name
        is_one = bool(remote)
        return SocketTraffic(
            pid=pid,
            start_ticks=start_ticks,
            remote=remote,
            port=port,
            local_port=self.local_port,
            sockets=self.sockets,
            sent_bytes=sent.bytes,
            received_bytes=received.bytes,
            sends=sent.calls,
            receives=received.calls,
            send_start_ns=sent.start_ns or None,
            sent_ns=sent.last_ns or None,
            receive_start_ns=received.start_ns or None,
            received_ns=received.last_ns or None,
            parts=sent.parts if is_one else 0,
            parts_bytes=sent.parts_bytes if is_one else 0,
            part_bytes=(sent.largest_part_bytes or None) if is_one else None,
            answers=received.parts if is_one else 0,
            answers_bytes=received.parts_bytes if is_one else 0,
            tid=self.tid or None,
        )


class _ConnectionEntry:
    __slots__ = ("counted", "traffic", "value")

    def __init__(self, traffic: PortTraffic) -> None:
        self.traffic = traffic
        self.counted: tuple[int, ...] = _NOTHING
        self.value = b""

    @property
    def last_ns(self) -> int:
        return max(self.counted[_LAST_NS], self.counted[_LAST_NS + _RECEIVED])


class SocketReader:
    """Reads the maps of connections, and sums them up."""

    def __init__(
        self,
        connections: BpfMap,
        overflow: BpfMap,
        ticks: Callable[[int], int],
    ) -> None:
        """`ticks` converts a start time to that of /proc/PID/stat."""
        self._maps = (connections, overflow)
        self._ticks = ticks
        self._connections: tuple[dict[bytes, _ConnectionEntry], dict[bytes, _ConnectionEntry]] = ({}, {})
        self._sums: dict[TrafficKey, PortTraffic] = {}
        self._active: dict[TrafficKey, PortTraffic] = {}  # those with traffic to report
        self._calls = 0
        self._next_ns = 0

    def is_due(self, now_ns: int, calls: int) -> bool:
        """Test whether there is something to read; `calls`: all calls counted so far."""
        return now_ns >= self._next_ns and (calls != self._calls or bool(self._active))

    def read(self, now_ns: int, calls: int) -> list[SocketTraffic]:
        """Sample the sums that are worth reporting; raises BpfError."""
        start_cpu_ns = time.thread_time_ns()
        if calls != self._calls:
            self._calls = calls
            connections, overflow = self._maps
            if self._ingest(connections, self._connections[0]) > connections.max_entries // 2 or self._connections[1]:
                self._ingest(overflow, self._connections[1])
        reports = [traffic.report() for traffic in self._active.values() if traffic.is_reportable]
        for name in [name for name, traffic in self._active.items() if traffic.is_quiet(now_ns)]:
            del self._active[name]
        self._next_ns = now_ns + max(READ_INTERVAL_NS, int((time.thread_time_ns() - start_cpu_ns) / MAX_CPU_SHARE))
        return reports

    def _ingest(self, entries: BpfMap, connections: dict[bytes, _ConnectionEntry]) -> int:
        count, keys, values = entries.lookup_batch()
        key_bytes, value_bytes = entries.key_size, entries.stride_bytes
        unchanged = []
        for at in range(count):
            key = bytes(keys[at * key_bytes : (at + 1) * key_bytes])
            value = bytes(values[at * value_bytes : (at + 1) * value_bytes])
            entry = connections.get(key)
            if entry is None:
                entry = connections[key] = _ConnectionEntry(self._register(key, value))
            if entry.value != value:
                self._add_counts(entry, value)
            else:
                unchanged.append(key)
        for key in heapq.nsmallest(
            count - entries.max_entries // 2, unchanged, key=lambda key: connections[key].last_ns
        ):
            entries.delete(key)  # mostly closed: if it is used again it gets a new entry, and its sum stays
            del connections[key]
        return count

    def _register(self, key: bytes, value: bytes) -> PortTraffic:
        address, port, _, family, _ = _TAIL.unpack_from(value, _TAIL_AT)
        remote = _address(family, address)
        process = int.from_bytes(key[_PROCESS_AT : _PROCESS_AT + 4] or key, "little")  # of either map
        name = (process, self._ticks(_HEAD.unpack_from(value)[0]), remote, port if remote else 0)
        traffic = self._sums.get(name) or PortTraffic(name)
        traffic.sockets += 1
        return traffic

    def _add_counts(self, entry: _ConnectionEntry, value: bytes) -> None:
        before, entry.value = entry.counted, value
        traffic = entry.traffic = self._sums.pop(entry.traffic.name, entry.traffic)
        entry.counted = now = _WAYS.unpack_from(value, _HEAD.size)
        if now[_LAST_NS] >= traffic.sent.last_ns:
            _, _, traffic.local_port, _, traffic.tid = _TAIL.unpack_from(value, _TAIL_AT)
        traffic.sent.add(now[:_RECEIVED], before[:_RECEIVED])
        traffic.received.add(now[_RECEIVED:], before[_RECEIVED:])
        self._sums[traffic.name] = self._active[traffic.name] = traffic  # the latest
        if len(self._sums) > MAX_SUMS:
            oldest = next(iter(self._sums))
            del self._sums[oldest]
            self._active.pop(oldest, None)


def _address(family: int, address: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[:4])
    if family == socket.AF_INET6:
        if address.startswith(_MAPPED):
            return socket.inet_ntop(socket.AF_INET, address[-4:])
        return socket.inet_ntop(socket.AF_INET6, address)
    return ""
