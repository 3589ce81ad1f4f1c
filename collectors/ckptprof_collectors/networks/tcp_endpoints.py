"""TCP connections by remote address, port and owner: bytes, and what limited the sender (tcp_info).

Nothing is read while no process needs it, nor while no segment is sent or received. The sums start at zero with the
first poll, since the earlier traffic of a connection is no evidence; new connections are counted from their start.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, list_names, read_limited
from ckptprof_collectors.networks.inet_diag import TcpCounters, TcpSocket, TcpTable
from ckptprof_collectors.networks.netlink import ROUTE, Netlink, parse_attributes
from ckptprof_collectors.samples import Sample, TcpSample, text

MAX_ENDPOINTS = 256
REPORT_BYTES = 64 << 10  # less traffic is not reported yet,
REPORT_BUSY_US = 50_000  # nor a shorter busy time,
FOLLOW_UP_SECONDS = 3.0  # except so long after large traffic: a store may answer late
MAX_CPU_SHARE = 0.01  # of a core: tens of thousands of sockets are polled less often
_ZERO_COUNTERS = TcpCounters(0, 0, 0, 0, 0, 0, None, None)
_MAX_SUM = (1 << 63) - 1  # largest integer of a frame: absurd counters must not end the sampler
_SUMMED = 6  # the first counters are sums, the others gauges

REREAD_SECONDS = 10.0  # between reads because of an unknown address, which may be new
LOOPBACK = "lo"
_RTM_GETADDR, _RTM_NEWADDR = 22, 20
_MESSAGE = struct.Struct("=BBBBI")  # ifaddrmsg: family, length of the prefix, flags, scope, index
_ADDRESS, _LOCAL = 1, 2  # IFA_*; on a point-to-point link the first is the peer's
_MAX_LOWER = 64
_MAX_DEPTH = 4


class LocalAddresses:
    """The interfaces of each address of this host: RTM_GETADDR (include/uapi/linux/if_addr.h).

    An address of a bond, a VLAN or a bridge is on the interfaces that carry its bytes. A connection from this host to
    itself goes through `lo`, whatever its addresses are.
    """

    def __init__(self, fs: KernelFs) -> None:
        """Open a socket; raises UnavailableError."""
        self._net = fs.sys / "class" / "net"
        self._netlink = Netlink(ROUTE, "rtnetlink")
        self._interfaces: dict[bytes, tuple[str, ...]] = {}
        self._next_read = time.monotonic()

    def interfaces_of(self, local: bytes, remote: bytes) -> tuple[str, ...]:
        """Interfaces of a connection; none if they are unknown. Raises OSError."""
        if local not in self._interfaces and time.monotonic() >= self._next_read:
            self._next_read = time.monotonic() + REREAD_SECONDS
            self._interfaces = self._read()
        if is_loopback(local) or remote == local or remote in self._interfaces:
            return (LOOPBACK,)
        return self._interfaces.get(local, ())

    def _read(self) -> dict[bytes, tuple[str, ...]]:
        found: dict[bytes, tuple[str, ...]] = {}
        carriers: dict[int, tuple[str, ...]] = {}
        for kind, body in self._netlink.dump(_RTM_GETADDR, _MESSAGE.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
            if kind != _RTM_NEWADDR or len(body) < _MESSAGE.size:
                continue
            index = _MESSAGE.unpack_from(body)[4]
            address_attributes = parse_attributes(body[_MESSAGE.size :])
            address = address_attributes.get(_LOCAL) or address_attributes.get(_ADDRESS)
            if address:
                if index not in carriers:
                    carriers[index] = self._carriers(index)
                found[address] = carriers[index]
        return found

    def _carriers(self, index: int) -> tuple[str, ...]:
        try:
            name = socket.if_indextoname(index)
        except OSError:
            return ()  # removed in between
        return tuple(text(os.fsencode(one)) for one in lowest_interfaces(self._net, name))

    def close(self) -> None:
        self._netlink.close()


def is_loopback(address: bytes) -> bool:
    """Test whether a connection from this address never leaves the host."""
    return address[:1] == b"\x7f" if len(address) == 4 else address == bytes(15) + b"\x01"


def lowest_interfaces(net: Path, name: str, depth: int = _MAX_DEPTH) -> list[str]:
    """Lowest interfaces of one: itself, or those below a bond, a VLAN or a bridge."""
    lower = [entry[6:] for entry in list_names(net / name) if entry.startswith("lower_")]
    if not lower or depth == 0:
        return [name]
    found: dict[str, None] = {}
    for one in lower[:_MAX_LOWER]:
        found.update(dict.fromkeys(lowest_interfaces(net, one, depth - 1)))
    return sorted(found)[:_MAX_LOWER]


class ConnectionOwners(Protocol):
    """The processes whose connections are collected, and the owners of sockets."""

    turn: int
    users: frozenset[int]

    def __len__(self) -> int: ...

    def __contains__(self, owner: tuple[int, int]) -> bool:
        """Test whether (pid, start_ticks) is one of them."""
        ...

    def find(self, inodes: Collection[int]) -> Mapping[int, tuple[int, int]] | None:
        """Find (pid, start_ticks) of sockets; None: too early."""
        ...


class AllConnections:
    """All processes' connections are collected, without owners."""

    turn = 0
    users: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return 1

    def __contains__(self, owner: tuple[int, int]) -> bool:
        return False

    def find(self, inodes: Collection[int]) -> Mapping[int, tuple[int, int]]:  # noqa: ARG002 - of the protocol
        return {}


_Key = tuple[bytes, bytes, int, bool, "tuple[int, int] | None"]  # remote, local, port, accepted, owner
_OTHERS: _Key = (b"", b"", 0, False, None)


class _OwnedSocket(TcpSocket):
    __slots__ = ("counted", "key", "queried_turn", "reported_at")

    def __init__(self, data: bytes, at: int) -> None:
        super().__init__(data, at)
        self.counted = _ZERO_COUNTERS
        self.key: _Key | None = None  # of its endpoint at the last count
        self.reported_at = -math.inf  # its last large traffic
        self.queried_turn = -1  # `SocketOwners.turn` of the last search for its owner


class _Endpoint:
    __slots__ = (
        "_counts", "_interfaces", "_is_reported", "_key", "_max_transferred", "_received_ns", "_rtt_us",
        "_sent_ns", "_sums", "_unobserved", "has_strangers", "sockets",
    )  # fmt: skip

    def __init__(self, key: _Key, interfaces: tuple[str, ...]) -> None:
        self._key, self._interfaces = key, interfaces
        self._sums = [0] * _SUMMED
        self._unobserved = [False] * _SUMMED  # counters missing in this kernel
        self._max_transferred = self._rtt_us = 0  # of the socket with most bytes in this poll
        self._counts = _ZERO_COUNTERS
        self._sent_ns = self._received_ns = 0
        self._is_reported = False
        self.has_strangers = False  # open sockets of other processes
        self.sockets = 0  # open ones

    def start_sample(self) -> None:
        self._max_transferred = 0
        self.sockets = 0

    def add(self, one: _OwnedSocket, counts: TcpCounters) -> None:
        """Add a socket's new bytes; a counter that decreased adds nothing."""
        for i in range(_SUMMED):
            new, old = counts[i], one.counted[i] or 0
            if new is None:
                self._unobserved[i] = True
            elif new > old:
                self._sums[i] = min(self._sums[i] + new - old, _MAX_SUM)
        if counts.bytes_acked > one.counted.bytes_acked:
            self._sent_ns = max(self._sent_ns, one.sent_ns)
        if counts.bytes_received > one.counted.bytes_received:
            self._received_ns = max(self._received_ns, one.received_ns)
        transferred = _transferred_bytes(counts, one.counted)
        if transferred >= self._max_transferred:
            self._max_transferred, self._counts, self._rtt_us = transferred, counts, one.rtt_us

    def sample(self) -> TcpSample:
        is_new, self._is_reported = not self._is_reported, True
        remote, local, port, accepted, owner = self._key
        observed = [
            None if is_unobserved else value for value, is_unobserved in zip(self._sums, self._unobserved, strict=True)
        ]
        return TcpSample(
            remote=_text(remote),
            port=port,
            is_accepted=accepted,
            local=_text(local),
            interfaces=self._interfaces,
            pid=owner[0] if owner is not None else None,
            start_ticks=owner[1] if owner is not None else None,
            sockets=self.sockets,
            bytes_acked=self._sums[0],
            bytes_received=self._sums[1],
            busy_us=observed[2],
            rwnd_limited_us=observed[3],
            sndbuf_limited_us=observed[4],
            bytes_retrans=observed[5],
            rtt_us=self._rtt_us or None,
            min_rtt_us=self._counts.min_rtt_us,
            delivery_rate=self._counts.delivery_rate,
            is_new=is_new,
            sent_ns=self._sent_ns or None,
            received_ns=self._received_ns or None,
        )


class TcpEndpoints:
    """Reports the totals of each endpoint whose connections transferred bytes."""

    name = "tcp"

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the sockets of the agent's own network namespace; raises UnavailableError."""
        if not fs.is_live:
            raise UnavailableError("TCP sockets are read by netlink, not from files")
        self._table = TcpTable(_OwnedSocket)
        self._addresses = LocalAddresses(fs)
        self._clock = clock
        self._next = 0.0
        self._snmp = fs.proc / "net/snmp"
        self.owners: ConnectionOwners = AllConnections()
        self._reset()

    def _reset(self) -> None:
        self._table.forget()
        self._waiting: list[_OwnedSocket] = []  # whose owner could not be searched for yet
        self._endpoints: OrderedDict[_Key, _Endpoint] = OrderedDict()  # the last active one last
        self._others = _Endpoint(_OTHERS, ())
        self._is_new, self._calm_segments = True, b""  # no poll so far; counters before a poll that found no change

    def read(self) -> Sequence[Sample] | None:
        """Sample what changed since the last call; None: nothing was polled. Raises OSError."""
        if not len(self.owners):
            if not self._is_new:
                self._reset()
            return None
        now = self._clock()
        if now < self._next:
            return None
        start_cpu_seconds = time.thread_time()
        segments = self._read_segments()
        if segments and segments == self._calm_segments:
            return []
        self._table.follow_closed()
        changed, closed = self._table.poll()
        if self._is_new:
            for one in changed:
                if one.counted is _ZERO_COUNTERS:
                    one.counted = one.counts()
        self._is_new = self._table.omitted > 0  # sockets beyond the limit have counted before they are first included
        touched = self._count(dict.fromkeys([*self._waiting, *changed, *closed]), set(closed))
        self._calm_segments = b"" if changed or closed or self._waiting else segments
        self._next = now + (time.thread_time() - start_cpu_seconds) / MAX_CPU_SHARE
        return [endpoint.sample() for endpoint in touched.values()]

    def _read_segments(self) -> bytes:
        """Read what all connections have sent and received, in a hundredth of a poll; b"" if /proc hides it."""
        with contextlib.suppress(OSError):
            return read_limited(self._snmp).rpartition(b"\nTcp:")[2].partition(b"\n")[0]
        return b""

    def _count(self, sockets: Collection[_OwnedSocket], closed: set[_OwnedSocket]) -> dict[_Key, _Endpoint]:
        follow_up_since = self._clock() - FOLLOW_UP_SECONDS
        reportable = {
            one: counts
            for one in sockets
            if _is_reportable(
                one, counts := one.counts(), any_change=one in closed or one.reported_at >= follow_up_since
            )
        }
        owners = self._find_owners(reportable)
        waiting = set(self._waiting) - closed
        touched: dict[_Key, _Endpoint] = {}
        for one, counts in reportable.items():
            if one not in waiting:
                self._add(one, counts, owners.get(one.inode), touched)
        for one in self._table.open_sockets():
            if one.key in touched:
                touched[one.key].sockets += 1
        return touched

    def _find_owners(self, reportable: Collection[_OwnedSocket]) -> Mapping[int, tuple[int, int]]:
        """Find unknown owners, by inode; while that is too early, their sockets wait."""
        owners = self.owners
        unknown = [
            one for one in reportable if one.queried_turn != owners.turn and one.inode and one.uid in owners.users
        ]
        found = owners.find({one.inode for one in unknown}) if unknown else {}
        self._waiting = unknown if found is None else []
        if found is not None:
            for one in unknown:
                one.queried_turn = owners.turn
        return found or {}

    def _add(
        self, one: _OwnedSocket, counts: TcpCounters, owner: tuple[int, int] | None, touched: dict[_Key, _Endpoint]
    ) -> None:
        had_no_owner = one.key is not None and one.key[4] is None
        if one.key is None:
            accepted = one.local_port in self._table.listening
            if not (one.inode or accepted):
                owner = self._only_owner_at_remote(one)
            one.key = one.remote, one.local, one.local_port if accepted else one.remote_port, accepted, owner
        elif owner is not None and one.key[4] is None:
            if (before := self._endpoints.get(one.key)) is not None:
                before.has_strangers = False  # its owner is known now
            one.key = *one.key[:4], owner
        endpoint = touched.get(one.key) or self._endpoint(one.key, touched)
        endpoint.add(one, counts)
        if one.key[4] is None and self._is_of_other_process(one, had_no_owner=had_no_owner):
            endpoint.has_strangers = True
        if _transferred_bytes(counts, one.counted) >= REPORT_BYTES:
            one.reported_at = self._clock()
        one.counted = counts

    def _is_of_other_process(self, one: _OwnedSocket, *, had_no_owner: bool) -> bool:
        """Test whether a socket certainly belongs to another process, and did not just close before the search."""
        if not one.inode:
            return False
        return one.uid not in self.owners.users or (had_no_owner and self._table.is_open(one))

    def _only_owner_at_remote(self, one: _OwnedSocket) -> tuple[int, int] | None:
        """Owner of a socket that closed before its inode was read: the only process that connected to that remote port.

        With others beside it, which may have connected for as short a time, it must still be connected.
        """
        there = {
            key[4]: key
            for key, endpoint in self._endpoints.items()
            if (key[0], key[2], key[3]) == (one.remote, one.remote_port, False)
            and (endpoint.has_strangers if key[4] is None else key[4] in self.owners)
        }
        is_sure = len(self.owners) == 1 or any(other.key in there.values() for other in self._table.open_sockets())
        return next(iter(there)) if len(there) == 1 and is_sure else None

    def _endpoint(self, key: _Key, touched: dict[_Key, _Endpoint]) -> _Endpoint:
        """Find or add an endpoint; the shared one for all others if none can be evicted."""
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            if _OTHERS in touched:
                return self._others
            if len(self._endpoints) >= MAX_ENDPOINTS:
                if next(iter(self._endpoints)) in touched:
                    self._others.start_sample()
                    touched[_OTHERS] = self._others
                    return self._others
                self._endpoints.popitem(last=False)
            endpoint = self._endpoints[key] = _Endpoint(key, self._addresses.interfaces_of(key[1], key[0]))
        self._endpoints.move_to_end(key)
        endpoint.start_sample()
        touched[key] = endpoint
        return endpoint

    def close(self) -> None:
        self._table.close()
        self._addresses.close()


def _is_reportable(one: _OwnedSocket, counts: TcpCounters, *, any_change: bool) -> bool:
    """Test whether a socket transferred enough since the last count; `any_change`: any byte is enough."""
    transferred = _transferred_bytes(counts, one.counted)
    if not transferred and one.is_closed_here:
        return False  # its close is retried for minutes, as the peer does not answer
    busy = (counts.busy_us or 0) - (one.counted.busy_us or 0)
    return transferred >= REPORT_BYTES or busy >= REPORT_BUSY_US or (any_change and (transferred > 0 or busy > 0))


def _transferred_bytes(counts: TcpCounters, counted: TcpCounters) -> int:
    return max(0, counts.bytes_acked - counted.bytes_acked) + max(0, counts.bytes_received - counted.bytes_received)


def _text(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address) if address else ""
