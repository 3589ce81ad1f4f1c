"""From the counters of connections to samples: a sum for each process and remote port, with what has closed in it."""

from __future__ import annotations

import ctypes
import heapq
import socket
import struct
import time
from collections.abc import Callable

from ckptprof_collectors.ebpf.layouts import Connection, ConnectionKey, Way
from ckptprof_collectors.ebpf.libbpf import Map
from ckptprof_collectors.samples import SocketTraffic

READ_NS = 1_000_000_000  # the times are the kernel's: reading more often would tell nothing more
TELLING_BYTES = 64 << 10
QUIET_NS = 1_000_000_000
OPEN_NS = 3_000_000_000  # what follows so soon is told however little it is: a store takes its time to answer
MAX_SUMS = 1024
SHARE = 0.002  # of a core: where more than a thousand connections move, they are read more seldom
_HEAD = struct.Struct("=Q")
_WAYS = struct.Struct("=16Q")  # sent and received
_TAIL = struct.Struct("=16s4I")
_TAIL_AT = _HEAD.size + _WAYS.size
_PROCESS_AT = ConnectionKey.process.offset
_RECEIVED = ctypes.sizeof(Way) // 8
_NOTHING = (0,) * 2 * _RECEIVED
_LAST_NS = Way.last_ns.offset // 8
_MAPPED = bytes(10) + b"\xff\xff"  # IPv4 within IPv6
assert _TAIL_AT + _TAIL.size == ctypes.sizeof(Connection)  # noqa: S101 - fails on import, not in the field
Name = tuple[int, int, str, int]  # pid, start_ticks, remote address and port


class Sum:
    """One way of all connections of a process with a remote port."""

    __slots__ = ("began_ns", "bytes", "calls", "largest_part_bytes", "last_ns", "parts", "parts_bytes")

    def __init__(self) -> None:
        self.bytes = self.calls = self.parts = self.parts_bytes = self.largest_part_bytes = 0
        self.began_ns = self.last_ns = 0

    def add(self, now: tuple[int, ...], before: tuple[int, ...]) -> None:
        """Take in what one connection has moved since it was read before; both as in `Way`."""
        moved, calls, began_ns, last_ns, _, parts, parts_bytes, largest = now
        self.bytes += moved - before[0]
        self.calls += calls - before[1]
        if parts != before[5]:
            self.parts += parts - before[5]
            self.parts_bytes += parts_bytes - before[6]
            self.largest_part_bytes = max(self.largest_part_bytes, largest)
        if began_ns > self.last_ns + QUIET_NS or last_ns + QUIET_NS >= self.began_ns > began_ns > 0:
            self.began_ns = began_ns
        self.last_ns = max(self.last_ns, last_ns)


class Traffic:
    """What one process moved from and to one remote port."""

    __slots__ = ("local_port", "name", "open_until_ns", "received", "sent", "sockets", "tid", "told_bytes")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.sent, self.received = Sum(), Sum()
        self.sockets = self.local_port = self.tid = 0
        self.told_bytes = (0, 0)
        self.open_until_ns = 0  # much was told lately: what follows until then is to be told as well

    @property
    def is_telling(self) -> bool:
        """Whether it moved enough since it was told, or anything soon after it was."""
        return self._untold_bytes >= (1 if self._last_ns <= self.open_until_ns else TELLING_BYTES)

    @property
    def _untold_bytes(self) -> int:
        return max(self.sent.bytes - self.told_bytes[0], self.received.bytes - self.told_bytes[1])

    @property
    def _last_ns(self) -> int:
        return max(self.sent.last_ns, self.received.last_ns)

    def is_quiet(self, now_ns: int) -> bool:
        return now_ns - self._last_ns >= OPEN_NS

    def tell(self) -> SocketTraffic:
        sent, received = self.sent, self.received
        if self._untold_bytes >= TELLING_BYTES:
            self.open_until_ns = self._last_ns + OPEN_NS
        self.told_bytes = (sent.bytes, received.bytes)
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
            began_ns=sent.began_ns or None,
            sent_ns=sent.last_ns or None,
            received_began_ns=received.began_ns or None,
            received_ns=received.last_ns or None,
            parts=sent.parts if is_one else 0,
            parts_bytes=sent.parts_bytes if is_one else 0,
            part_bytes=(sent.largest_part_bytes or None) if is_one else None,
            answers=received.parts if is_one else 0,
            answers_bytes=received.parts_bytes if is_one else 0,
            tid=self.tid or None,
        )


class _Entry:
    __slots__ = ("counted", "traffic", "value")

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.counted: tuple[int, ...] = _NOTHING
        self.value = b""

    @property
    def last_ns(self) -> int:
        return max(self.counted[_LAST_NS], self.counted[_LAST_NS + _RECEIVED])


class SocketReader:
    """Reads the maps of connections, and keeps the sums."""

    def __init__(
        self,
        connections: Map,
        crowds: Map,
        ticks: Callable[[int], int],
    ) -> None:
        """`ticks`: a start time as /proc/PID/stat has it."""
        self._maps = (connections, crowds)
        self._ticks = ticks
        self._known: tuple[dict[bytes, _Entry], dict[bytes, _Entry]] = ({}, {})
        self._sums: dict[Name, Traffic] = {}
        self._moving: dict[Name, Traffic] = {}  # of these, who may have something to tell
        self._calls = 0
        self._next_ns = 0

    def due(self, now_ns: int, calls: int) -> bool:
        """Test whether there is something to read; `calls`: all calls counted so far."""
        return now_ns >= self._next_ns and (calls != self._calls or bool(self._moving))

    def read(self, now_ns: int, calls: int) -> list[SocketTraffic]:
        """Sample the sums that are worth reporting; raises BpfError."""
        began = time.thread_time_ns()
        if calls != self._calls:
            self._calls = calls
            connections, crowds = self._maps
            if self._take(connections, self._known[0]) > connections.max_entries // 2 or self._known[1]:
                self._take(crowds, self._known[1])
        told = [traffic.tell() for traffic in self._moving.values() if traffic.is_telling]
        for name in [name for name, traffic in self._moving.items() if traffic.is_quiet(now_ns)]:
            del self._moving[name]
        self._next_ns = now_ns + max(READ_NS, int((time.thread_time_ns() - began) / SHARE))
        return told

    def _take(self, entries: Map, known: dict[bytes, _Entry]) -> int:
        count, keys, values = entries.lookup_batch()
        key_bytes, value_bytes = entries.key_size, entries.stride_bytes
        still = []
        for at in range(count):
            key = bytes(keys[at * key_bytes : (at + 1) * key_bytes])
            value = bytes(values[at * value_bytes : (at + 1) * value_bytes])
            entry = known.get(key)
            if entry is None:
                entry = known[key] = _Entry(self._meet(key, value))
            if entry.value != value:
                self._count(entry, value)
            else:
                still.append(key)
        for key in heapq.nsmallest(count - entries.max_entries // 2, still, key=lambda key: known[key].last_ns):
            entries.delete(key)  # closed, mostly: one that moves again begins another entry, and its sum stays
            del known[key]
        return count

    def _meet(self, key: bytes, value: bytes) -> Traffic:
        address, port, _, family, _ = _TAIL.unpack_from(value, _TAIL_AT)
        remote = _address(family, address)
        process = int.from_bytes(key[_PROCESS_AT : _PROCESS_AT + 4] or key, "little")  # of either map
        name = (process, self._ticks(_HEAD.unpack_from(value)[0]), remote, port if remote else 0)
        traffic = self._sums.get(name) or Traffic(name)
        traffic.sockets += 1
        return traffic

    def _count(self, entry: _Entry, value: bytes) -> None:
        before, entry.value = entry.counted, value
        traffic = entry.traffic = self._sums.pop(entry.traffic.name, entry.traffic)
        entry.counted = now = _WAYS.unpack_from(value, _HEAD.size)
        if now[_LAST_NS] >= traffic.sent.last_ns:
            _, _, traffic.local_port, _, traffic.tid = _TAIL.unpack_from(value, _TAIL_AT)
        traffic.sent.add(now[:_RECEIVED], before[:_RECEIVED])
        traffic.received.add(now[_RECEIVED:], before[_RECEIVED:])
        self._sums[traffic.name] = self._moving[traffic.name] = traffic  # the latest
        if len(self._sums) > MAX_SUMS:
            oldest = next(iter(self._sums))
            del self._sums[oldest]
            self._moving.pop(oldest, None)


def _address(family: int, address: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[:4])
    if family == socket.AF_INET6:
        if address.startswith(_MAPPED):
            return socket.inet_ntop(socket.AF_INET, address[-4:])
        return socket.inet_ntop(socket.AF_INET6, address)
    return ""
