"""The TCP sockets of a network namespace, with their kernel counters: inet_diag (`ss -tin`), unprivileged.

Own parsing of one message (include/uapi/linux/{inet_diag,tcp}.h). The request has the older form, which covers IPv4 and
IPv6 together: the kernel walks its whole table of connections for each request, and on a large host the table has half
a million slots (measured: 0.15 to 2.5 ms for 262,144). An idle socket costs one comparison.

A socket is identified by its cookie, which the kernel never reuses (net/core/sock_diag.c). The table changes between
two parts of an answer: a socket that is missing in one is not forgotten at once. Sockets that close between two polls
are reported by the kernel's own messages, if subscribed.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from ckptprof_collectors.kernelfs import UnavailableError
from ckptprof_collectors.networks.netlink import DONE, ERROR, HEADER, MAX_PARTS, SOCK_DIAG, Netlink

MAX_SOCKETS = 8192
MAX_ABSENT_DUMPS = 16  # a socket is forgotten when it is missing in so many answers in a row
_GET_SOCKETS = 18  # TCPDIAG_GETSOCK, inet_diag_rcv_msg_compat() in net/ipv4/inet_diag.c
_INFO = 2  # INET_DIAG_INFO
_ESTABLISHED, _CLOSE_WAIT, _STATE_LISTEN = 1, 8, 10
_CLOSED_HERE = (4, 5, 9, 11)  # FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING
_STATES = sum(1 << state for state in (_ESTABLISHED, _CLOSE_WAIT, _STATE_LISTEN, *_CLOSED_HERE))
_REQUEST = struct.pack("=BBBB48sII", 0, 0, 0, 1 << (_INFO - 1), bytes(48), _STATES, 0)  # inet_diag_req
_HEAD = struct.Struct("=IHxxI")  # of nlmsghdr: size, type, sequence
_STATE_AT = HEADER.size + 1
_PORTS = struct.Struct("!HH")
_PORTS_AT, _SOURCE_AT, _TARGET_AT, _COOKIE_AT = (HEADER.size + at for at in (4, 8, 24, 44))
_OWNER = struct.Struct("=II")  # uid, inode
_OWNER_AT = HEADER.size + 64
_ATTRIBUTES_AT = HEADER.size + 72
_ATTRIBUTE = struct.Struct("=HH")
_GAUGE = struct.Struct("=I")
_AGO = struct.Struct("=I4xI")  # ms since the last send, and the last receive
_AGO_AT, _RTT_AT = 4 + 44, 4 + 68  # in the attribute with tcp_info; us
_COUNTED_FROM, _COUNTED_TO = 4 + 120, 4 + 216
# acked, received, segments x2, not sent, min_rtt, segments x2, delivery rate, busy, rwnd, sndbuf, delivered x2, sent,
# retransmitted; kernels before 4.19 lack the last two, before 4.10 all from `busy` on
_COUNTED = struct.Struct("=QQ12xI8xQQQQ8x8xQ")
_LEAST_LENGTH, _LIMITS_LENGTH = 16, 72
_JIFFY_NS = 10_000_000  # the longest: ages are in whole jiffies
_NEVER = 0xFFFFFFFF  # min_rtt before the first
_MAPPED = bytes(10) + b"\xff\xff"  # IPv4 within IPv6
_MAX_COUNTER = 1 << 63

DESTROYED = 20  # SOCK_DIAG_BY_FAMILY, as in a request
_GROUPS = 1 << 0 | 1 << 2  # SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY
_MAX_CLOSED_MESSAGES = 1024  # at once: the kernel buffers some hundreds
_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")  # sock_filter
_HALF, _WORD, _IS, _END = 0x28, 0x20, 0x15, 0x06  # BPF_LD | BPF_H | BPF_ABS, BPF_LD | BPF_W | BPF_ABS, BPF_JMP, BPF_RET
# tcpi_bytes_acked and tcpi_bytes_received, behind nlmsghdr, inet_diag_msg, the protocol and the head of tcp_info
_ACKED_AT, _RECEIVED_AT = 220, 228
# All but the lowest sixteen bits of one of them: below 64 KiB there is no evidence, and most connections transfer less.
_FILTER = b"".join(
    _INSTRUCTION.pack(*one)
    for one in (
        (_HALF, 0, 0, _ACKED_AT + 2), (_IS, 0, 6, 0),
        (_WORD, 0, 0, _ACKED_AT + 4), (_IS, 0, 4, 0),
        (_HALF, 0, 0, _RECEIVED_AT + 2), (_IS, 0, 2, 0),
        (_WORD, 0, 0, _RECEIVED_AT + 4), (_IS, 1, 0, 0),
        (_END, 0, 0, 0xFFFF),
        (_END, 0, 0, 0),
    )
)  # fmt: skip


class ClosedSockets(Netlink):
    """A subscription to TCP sockets that close, with their final counters (`ss -E`).

    Unprivileged (net/core/sock_diag.c, since Linux 4.2). A program that opens connections for one save, as
    s3torchconnector does, has closed most of them before the next poll.
    """

    def __init__(self) -> None:
        """Subscribe; raises UnavailableError."""
        super().__init__(SOCK_DIAG, "sockets that close")
        program = ctypes.create_string_buffer(_FILTER)
        head = struct.pack("HP", len(_FILTER) // _INSTRUCTION.size, ctypes.addressof(program))  # sock_fprog
        try:
            self._socket.settimeout(0)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
            self._socket.bind((0, _GROUPS))
        except OSError as error:
            self.close()
            raise UnavailableError(f"sockets that close: {error.strerror}") from error

    def read_messages(self) -> Iterator[bytes]:
        """Yield the new messages, one for each socket; raises OSError if some were lost."""
        with suppress(BlockingIOError):
            for _ in range(_MAX_CLOSED_MESSAGES):
                yield self.receive()


class TcpCounters(NamedTuple):
    """Counters of one socket; None: not in this kernel."""

    bytes_acked: int
    bytes_received: int
    busy_us: int | None
    rwnd_limited_us: int | None
    sndbuf_limited_us: int | None
    bytes_retrans: int | None
    min_rtt_us: int | None  # a gauge, as is the next
    delivery_rate: int | None  # bytes a second


class TcpSocket:
    """One connection at its last observed change."""

    __slots__ = (
        "counters", "inode", "is_closed_here", "local", "local_port", "observed_turn", "received_ns", "remote",
        "remote_port", "rtt_us", "sent_ns", "uid",
    )  # fmt: skip

    def __init__(self, data: bytes, at: int) -> None:
        version = 4 if data[at + HEADER.size] == socket.AF_INET else 16
        self.local = _unmapped(data[at + _SOURCE_AT : at + _SOURCE_AT + version])
        self.remote = _unmapped(data[at + _TARGET_AT : at + _TARGET_AT + version])
        self.local_port, self.remote_port = _PORTS.unpack_from(data, at + _PORTS_AT)
        self.uid, self.inode = _OWNER.unpack_from(data, at + _OWNER_AT)
        self.counters = b""
        self.is_closed_here = False  # closed by its process; the kernel may still send buffered data
        self.rtt_us = 0
        self.sent_ns = self.received_ns = 0  # CLOCK_MONOTONIC of the last send and receive, to some milliseconds
        self.observed_turn = 0

    def counts(self) -> TcpCounters:
        """Unpack the counters; an impossible value is None or 0."""
        raw = self.counters
        length = len(raw)
        acked, received, min_rtt, rate, busy, rwnd, sndbuf, retransmitted = _COUNTED.unpack(
            raw if length == _COUNTED.size else raw.ljust(_COUNTED.size, b"\0")
        )
        limits = (busy, rwnd, sndbuf)
        if length < _LIMITS_LENGTH or busy >= _MAX_COUNTER or rwnd >= _MAX_COUNTER or sndbuf >= _MAX_COUNTER:
            limits = (None, None, None)
        return TcpCounters(
            acked if acked < _MAX_COUNTER else 0,
            received if received < _MAX_COUNTER else 0,
            limits[0],
            limits[1],
            limits[2],
            retransmitted if length == _COUNTED.size and retransmitted < _MAX_COUNTER else None,
            min_rtt if min_rtt != _NEVER else None,
            rate if 0 < rate < _MAX_COUNTER else None,
        )


S = TypeVar("S", bound=TcpSocket)


class TcpTable(Generic[S]):
    """All connections, compared from one poll to the next."""

    def __init__(self, kind: type[S]) -> None:
        """Poll once, as a test; sockets are made as objects of `kind`. Raises UnavailableError."""
        self._kind = kind
        self._netlink = Netlink(SOCK_DIAG, "sock_diag")
        self._closings: ClosedSockets | None = None
        self.listening: frozenset[int] = frozenset()  # ports on which this host accepts connections
        self.omitted = 0  # sockets beyond the limit at the last poll
        self._sockets: dict[bytes, S] = {}
        self._turn = 0
        self._polled_ns = 0  # start of the last poll
        self._usual_layout = _message_layout(_ATTRIBUTES_AT, 0)  # layout of the previous message,
        self._info = b""  # and the head of its attribute with tcp_info
        try:
            self.poll()
        except OSError as error:
            self.close()
            reason = error.strerror
            if error.errno == errno.ENOENT:
                reason = "this kernel has no tcp_diag (CONFIG_INET_TCP_DIAG)"
            raise UnavailableError(f"TCP sockets: {reason}") from error

    def follow_closed(self) -> None:
        """Subscribe to closing sockets; where that is not possible, the last poll counts."""
        if self._closings is None:
            with suppress(UnavailableError):
                self._closings = ClosedSockets()

    def forget(self) -> None:
        """Drop all sockets and the subscription: the next poll finds all of them again."""
        self._sockets.clear()
        if self._closings is not None:
            self._closings.close()
            self._closings = None

    def open_sockets(self) -> Iterator[S]:
        """Yield the sockets of the last poll."""
        return (one for one in self._sockets.values() if self.is_open(one))

    def is_open(self, one: S) -> bool:
        return one.observed_turn == self._turn

    def poll(self) -> tuple[list[S], list[S]]:
        """Poll the sockets: those that changed or are new, and those that are gone; raises OSError."""
        self._turn += 1
        before_ns, self._polled_ns = self._polled_ns, time.monotonic_ns()
        self.omitted = 0
        changed: list[S] = []
        ports: set[int] = set()
        self._netlink.request(_GET_SOCKETS, _REQUEST)
        for _ in range(MAX_PARTS):
            if self._ingest_part(self._netlink.receive(), changed, ports):
                break
        self.listening = frozenset(ports)
        if self._closings is not None:
            with suppress(OSError):  # messages were lost: too many sockets closed
                for data in self._closings.read_messages():
                    self._ingest_closed(data, changed, before_ns)
        return changed, self._forget_absent()

    def _ingest_closed(self, message: bytes, changed: list[S], before_ns: int) -> None:
        """Ingest the final counters of a closed socket; one that no poll has found is new and gone at once.

        A socket that was reset is in no answer until its process closes it, which may be long after it was forgotten:
        it has transferred nothing since the previous poll, unlike a socket that existed only between two polls.
        """
        size, kind, _ = _HEAD.unpack_from(message.ljust(_HEAD.size, b"\0"))
        if kind != DESTROYED or not _ATTRIBUTES_AT < size <= len(message) or self.omitted:
            return  # a socket beyond the limit may have counted long before
        info, _ = self._find_info(message)
        is_new = message[_COOKIE_AT : _COOKIE_AT + 8] not in self._sockets
        if info and is_new:
            idle_ns = min(_AGO.unpack_from(message, info + _AGO_AT)) * 1_000_000
            if idle_ns > time.monotonic_ns() - before_ns + _JIFFY_NS:
                return
        if info and (one := self._find_socket(message, 0)) is not None:
            self._update(one, message, info, changed)
            if is_new:
                one.observed_turn = self._turn - 1

    def _forget_absent(self) -> list[S]:
        turn = self._turn
        absent = [(cookie, one) for cookie, one in self._sockets.items() if one.observed_turn != turn]
        for cookie, one in absent:
            if one.observed_turn <= turn - MAX_ABSENT_DUMPS:
                del self._sockets[cookie]
        return [one for _, one in absent if one.observed_turn == turn - 1]

    def _ingest_part(self, data: bytes, changed: list[S], ports: set[int]) -> bool:
        """Ingest one part of the answer; return True if it was the last. Raises OSError.

        Most messages have the layout of the previous one, and are of idle sockets: the loop is short for these.
        """
        sockets, turn, sequence = self._sockets, self._turn, self._netlink.sequence
        at, end = 0, len(data)
        while at + HEADER.size <= end:
            layout = self._usual_layout
            if at + layout.size <= end:
                size, message_sequence, cookie, info, counters = layout.unpack_from(data, at)
                one = sockets.get(cookie)
                if (
                    one is not None
                    and (one.counters == counters and info == self._info)
                    and (message_sequence == sequence and layout.size <= size <= end - at)
                ):
                    one.observed_turn = turn
                    at += (size + 3) & ~3
                    continue
            step = self._ingest_message(data, at, changed, ports)
            if not step:
                return True
            at += step
        return False

    def _ingest_message(self, data: bytes, at: int, changed: list[S], ports: set[int]) -> int:
        """Ingest any message; return the distance to the next one, 0 if it ends the answer. Raises OSError."""
        size: int
        size, kind, message_sequence = _HEAD.unpack_from(data, at)
        if size < HEADER.size or at + size > len(data):
            raise OSError(errno.EBADMSG, "malformed answer of sock_diag")
        if message_sequence != self._netlink.sequence:
            pass  # of an aborted answer
        elif kind in (ERROR, DONE) and self._netlink.ends_answer(kind, data[at + HEADER.size : at + size]):
            return 0
        elif kind == _GET_SOCKETS and size > _ATTRIBUTES_AT:
            if data[at + _STATE_AT] == _STATE_LISTEN:
                ports.add(_PORTS.unpack_from(data, at + _PORTS_AT)[0])
            else:
                self._ingest_open(data[at : at + size], changed)
        return (size + 3) & ~3

    def _ingest_open(self, message: bytes, changed: list[S]) -> None:
        info, length = self._find_info(message)
        if info and (one := self._find_socket(message, 0)) is not None:
            self._info = message[info : info + _ATTRIBUTE.size]
            self._usual_layout = _message_layout(info, min(length, _COUNTED_TO) - _COUNTED_FROM)
            self._update(one, message, info, changed)
            one.observed_turn = self._turn

    @staticmethod
    def _update(one: S, message: bytes, info: int, changed: list[S]) -> None:
        """Update a socket by a message, if it changed; `info`: offset of the tcp_info attribute."""
        counters = message[info + _COUNTED_FROM : info + _COUNTED_TO]
        if one.counters == counters:
            return
        one.counters = counters
        one.is_closed_here = message[_STATE_AT] in _CLOSED_HERE
        one.rtt_us = _GAUGE.unpack_from(message, info + _RTT_AT)[0]
        sent_ago_ms, received_ago_ms = _AGO.unpack_from(message, info + _AGO_AT)
        now_ns = time.monotonic_ns()
        one.sent_ns = now_ns - sent_ago_ms * 1_000_000
        one.received_ns = now_ns - received_ago_ms * 1_000_000
        changed.append(one)

    def _find_socket(self, data: bytes, at: int) -> S | None:
        """Find the socket of a message; None if it is new and the table is full."""
        cookie = data[at + _COOKIE_AT : at + _COOKIE_AT + 8]
        one = self._sockets.get(cookie)
        if one is None:
            if len(self._sockets) >= MAX_SOCKETS:
                self.omitted += 1
                return None
            one = self._sockets[cookie] = self._kind(data, at)
        return one

    @staticmethod
    def _find_info(message: bytes) -> tuple[int, int]:
        """Find the attribute with tcp_info: offset and length; zeros if it is missing or too short."""
        at, end = _ATTRIBUTES_AT, len(message)
        while at + _ATTRIBUTE.size <= end:
            length, kind = _ATTRIBUTE.unpack_from(message, at)
            if length < _ATTRIBUTE.size or at + length > end:
                break
            if kind == _INFO and length >= _COUNTED_FROM + _LEAST_LENGTH:
                return at, length
            at += (length + 3) & ~3
        return 0, 0

    def close(self) -> None:
        self.forget()
        self._netlink.close()


def _unmapped(address: bytes) -> bytes:
    return address[12:] if address.startswith(_MAPPED) else address


@functools.lru_cache(8)
def _message_layout(info_at: int, counters: int) -> struct.Struct:
    """Layout of a message: (size, sequence, cookie, head of the attribute with tcp_info, counters)."""
    to_cookie, to_info = _COOKIE_AT - 12, info_at - _COOKIE_AT - 8
    return struct.Struct(f"=I4xI{to_cookie}x8s{to_info}x4s{_COUNTED_FROM - 4}x{counters}s")
