"""From the counters of connections to samples: a sum for each process and remote port, with what has closed in it."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

from ckptprof_collectors.ebpf.layouts import Connection, ConnectionKey, Way
from ckptprof_collectors.ebpf.libbpf import Map
from ckptprof_collectors.samples import SocketTraffic

READ_NS = 200_000_000  # the times are the kernel's: reading more often tells nothing more
TELLING_BYTES = 64 << 10
QUIET_NS = 1_000_000_000
MAX_SUMS = 1024
CROWDED = 0.5  # of the room for connections: who stands still gives way
IDLE_NS = 60_000_000_000
_WAY = struct.Struct("=8Q")
_HEAD = struct.Struct("=Q")
_TAIL = struct.Struct("=16s4I")
_TAIL_AT = _HEAD.size + 2 * _WAY.size
_PROCESS_AT = ConnectionKey.process.offset
_MAPPED = bytes(10) + b"\xff\xff"  # IPv4 within IPv6
assert _WAY.size == ctypes.sizeof(Way)  # noqa: S101 - fails on import, not in the field
assert _TAIL_AT + _TAIL.size == ctypes.sizeof(Connection)  # noqa: S101


class Counted(NamedTuple):
    """One way of one connection, as the kernel has it."""

    bytes: int = 0
    calls: int = 0
    began_ns: int = 0
    last_ns: int = 0
    run_from: int = 0
    parts: int = 0
    parts_bytes: int = 0
    largest_part_bytes: int = 0


NOTHING = Counted()
Name = tuple[int, int, str, int]  # pid, start_ticks, remote address and port


class Sum:
    """One way of all connections of a process with a remote port."""

    __slots__ = ("began_ns", "bytes", "calls", "largest_part_bytes", "last_ns", "parts", "parts_bytes")

    def __init__(self) -> None:
        """Start at zero."""
        self.bytes = self.calls = self.parts = self.parts_bytes = self.largest_part_bytes = 0
        self.began_ns = self.last_ns = 0

    def add(self, now: Counted, before: Counted) -> None:
        """Take in what one connection has moved since it was read before."""
        if now == before:
            return
        if now.bytes < before.bytes:  # it gave way, and came back
            before = NOTHING
        self.bytes += now.bytes - before.bytes
        self.calls += now.calls - before.calls
        self.parts += now.parts - before.parts
        self.parts_bytes += now.parts_bytes - before.parts_bytes
        self.largest_part_bytes = max(self.largest_part_bytes, now.largest_part_bytes)
        if now.began_ns > self.last_ns + QUIET_NS:
            self.began_ns = now.began_ns
        elif now.last_ns + QUIET_NS >= self.began_ns:
            self.began_ns = min(self.began_ns, now.began_ns)
        self.last_ns = max(self.last_ns, now.last_ns)


class Traffic:
    """What one process moved from and to one remote port."""

    __slots__ = ("is_open", "local_port", "received", "sent", "sent_ns", "sockets", "tid", "told_bytes")

    def __init__(self) -> None:
        """Start at zero."""
        self.sent, self.received = Sum(), Sum()
        self.sockets = self.local_port = self.tid = self.sent_ns = 0
        self.told_bytes = (0, 0)
        self.is_open = False  # told, and what follows within a second is to be told as well

    def is_telling(self, now_ns: int, *, last: bool) -> bool:
        """Return whether it moved enough since it was told, or has come to rest after it was."""
        sent, received = self.sent.bytes - self.told_bytes[0], self.received.bytes - self.told_bytes[1]
        if sent >= TELLING_BYTES or received >= TELLING_BYTES:
            return True
        return self.is_open and (last or self.is_quiet(now_ns)) and sent + received > 0

    def is_quiet(self, now_ns: int) -> bool:
        """Return whether nothing has moved for a while."""
        return now_ns - max(self.sent.last_ns, self.received.last_ns) >= QUIET_NS

    def tell(self, name: Name) -> SocketTraffic:
        """Return its sample."""
        sent, received = self.sent, self.received
        self.told_bytes = (sent.bytes, received.bytes)
        self.is_open = True
        pid, start_ticks, remote, port = name
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


class SocketReader:
    """Reads the maps of connections, and keeps the sums."""

    def __init__(
        self,
        connections: Map,
        crowds: Map,
        ticks: Callable[[int], int],
        gone: Callable[[list[int]], frozenset[int]],
    ) -> None:
        """`ticks`: a start time as /proc/PID/stat has it; `gone`: who of these processes has ended."""
        self._maps = (connections, crowds)
        self._ticks = ticks
        self._gone = gone
        self._known: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        self._sums: dict[Name, Traffic] = {}
        self._moving: dict[Name, Traffic] = {}  # of these, who may have something to tell
        self._calls = 0
        self._read_ns = 0

    def due(self, now_ns: int, calls: int) -> bool:
        """Return whether there is something to read: `calls` were counted so far."""
        if now_ns - self._read_ns < READ_NS:
            return False
        return calls != self._calls or bool(self._moving)

    def read(self, now_ns: int, calls: int, *, last: bool = False) -> list[SocketTraffic]:
        """Return the sums that are worth telling; raises BpfError."""
        self._read_ns = now_ns
        if calls != self._calls:
            self._calls = calls
            connections, crowds = self._maps
            count = self._take(connections, self._known[0], now_ns)
            if count >= CROWDED * connections.max_entries or self._known[1]:
                self._take(crowds, self._known[1], now_ns)
        told = [traffic.tell(name) for name, traffic in self._moving.items() if traffic.is_telling(now_ns, last=last)]
        for name in [name for name, traffic in self._moving.items() if traffic.is_quiet(now_ns)]:
            self._moving.pop(name).is_open = False
        return told

    def _take(self, entries: Map, known: dict[bytes, bytes], now_ns: int) -> int:
        count, keys, values = entries.lookup_batch()
        key_bytes, value_bytes = entries.key_size, entries.stride_bytes
        crowded = count > CROWDED * entries.max_entries
        still = []
        for at in range(count):
            value = bytes(values[at * value_bytes : (at + 1) * value_bytes])
            key = bytes(keys[at * key_bytes : (at + 1) * key_bytes])
            before = known.get(key)
            if before != value:
                known[key] = value
                self._count(key, value, before)
            elif crowded:
                still.append(key)
        if crowded:
            self._give_room(entries, known, still, now_ns)
        return count

    def _count(self, key: bytes, value: bytes, before: bytes | None) -> None:
        sent, received = _ways(value)
        sent_before, received_before = _ways(before) if before is not None else (NOTHING, NOTHING)
        address, port, local_port, family, tid = _TAIL.unpack_from(value, _TAIL_AT)
        remote = _address(family, address)
        name = (_process(key), self._ticks(_HEAD.unpack_from(value)[0]), remote, port if remote else 0)
        traffic = self._sums.pop(name, None)
        if traffic is None:
            traffic = Traffic()
            if len(self._sums) >= MAX_SUMS:
                oldest = next(iter(self._sums))
                del self._sums[oldest]
                self._moving.pop(oldest, None)
        self._sums[name] = self._moving[name] = traffic  # the latest
        traffic.sockets += before is None
        traffic.sent.add(sent, sent_before)
        traffic.received.add(received, received_before)
        if sent.last_ns > traffic.sent_ns or not traffic.local_port:
            traffic.sent_ns, traffic.local_port, traffic.tid = sent.last_ns, local_port, tid

    def _give_room(self, entries: Map, known: dict[bytes, bytes], still: list[bytes], now_ns: int) -> None:
        """Forget those that moved nothing for long, or whose process has ended; the sums stay."""
        gone = self._gone([_process(key) for key in still])
        for key in still:
            sent, received = _ways(known[key])
            if now_ns - max(sent.last_ns, received.last_ns) > IDLE_NS or _process(key) in gone:
                entries.delete(key)
                del known[key]


def _process(key: bytes) -> int:
    """Return whose entry it is, of either map."""
    return int.from_bytes(key[_PROCESS_AT : _PROCESS_AT + 4] or key, "little")


def _ways(value: bytes) -> tuple[Counted, Counted]:
    return (
        Counted(*_WAY.unpack_from(value, _HEAD.size)),
        Counted(*_WAY.unpack_from(value, _HEAD.size + _WAY.size)),
    )


def _address(family: int, address: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[:4])
    if family == socket.AF_INET6:
        if address.startswith(_MAPPED):
            return socket.inet_ntop(socket.AF_INET, address[-4:])
        return socket.inet_ntop(socket.AF_INET6, address)
    return ""
