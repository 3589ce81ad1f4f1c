"""Answers of sock_diag, made by hand: what a kernel may say, and what none should."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ckptprof_collectors.networks import inet_diag, netlink

ESTABLISHED, CLOSE, LISTEN = 1, 7, 10
NEVER = 0xFFFFFFFF


def info(
    acked: int = 0,
    received: int = 0,
    limits: tuple[int, int, int] = (0, 0, 0),
    retransmitted: int = 0,
    *,
    rtt: int = 500,
    min_rtt: int = 40,
    rate: int = 0,
    size: int = 280,
    sent_ago_ms: int = 0,
    received_ago_ms: int = 0,
) -> bytes:
    """Return a tcp_info, as long as this kernel has it."""
    raw = bytearray(max(size, 280))
    struct.pack_into("=I4xI", raw, 44, sent_ago_ms, received_ago_ms)
    struct.pack_into("=I", raw, 68, rtt)
    struct.pack_into("=QQ", raw, 120, acked, received)
    struct.pack_into("=I", raw, 148, min_rtt)
    struct.pack_into("=QQQQ", raw, 160, rate, *limits)
    struct.pack_into("=Q", raw, 208, retransmitted)
    return bytes(raw[:size])


def attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute, padded."""
    return struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def message(
    cookie: int,
    told: bytes | None = None,
    *,
    local: tuple[str, int] = ("10.0.0.2", 40000),
    remote: tuple[str, int] = ("10.0.0.9", 443),
    state: int = ESTABLISHED,
    inode: int = 77,
    uid: int = 1000,
    extra: bytes = b"",
) -> bytes:
    """Return the message about one socket but for its header."""
    family = socket.AF_INET6 if ":" in remote[0] else socket.AF_INET
    source, target = (socket.inet_pton(family, one).ljust(16, b"\0") for one in (local[0], remote[0]))
    ports = struct.pack("!HH", local[1], remote[1])
    head = struct.pack("=BBBB", family, state, 0, 0) + ports + source + target
    head += struct.pack("=IQ", 0, cookie) + struct.pack("=IIIII", 0, 0, 0, uid, inode)
    return head + attribute(8, b"\0") + extra + (attribute(2, told) if told is not None else b"")


def packed(body: bytes, sequence: int, kind: int = 18) -> bytes:
    """Return a message with its header, padded."""
    return netlink.HEADER.pack(16 + len(body), kind, 2, sequence, 0) + body + bytes(-len(body) % 4)


def closed(cookie: int, told: bytes, **more: Any) -> bytes:
    """Return what the kernel tells of a socket that closed: neither whose it was nor its inode."""
    return packed(message(cookie, told, state=CLOSE, inode=0, uid=0, **more), 0, inet_diag.DESTROYED)


def done(sequence: int, error: int = 0) -> bytes:
    """Return the end of an answer."""
    return packed(struct.pack("=i", -error), sequence, netlink.DONE)


class FakeClosings:
    """A kernel that tells of prepared sockets that closed, since it was asked last."""

    def __init__(self) -> None:
        """Nothing has closed yet."""
        self.messages: list[bytes] = []
        self.is_open = True

    def read_messages(self) -> Iterator[bytes]:
        """Yield what was told since; raises OSError where some were lost."""
        while self.messages:
            message = self.messages.pop(0)
            if not message:
                raise OSError(errno.ENOBUFS, "no room")
            yield message

    def close(self) -> None:
        """Hear nothing more."""
        self.is_open = False


class FakeNetlink(netlink.Netlink):
    """A kernel that gives prepared answers, one for each question: parts, each of messages or of any bytes."""

    def __init__(self, *_: Any) -> None:
        """Give nothing yet."""
        self.sequence = 0
        self._family_name = "sock_diag"
        self.answers: list[Sequence[Sequence[bytes] | Callable[[int], bytes]]] = []
        self._parts: list[bytes] = []

    def request(self, kind: int, message: bytes) -> None:  # noqa: ARG002 - as the real one
        """Take the next answer."""
        self.sequence += 1
        self._parts = []
        for part in self.answers.pop(0) if self.answers else []:
            whole = part(self.sequence) if callable(part) else b"".join(packed(one, self.sequence) for one in part)
            self._parts.append(whole)
        self._parts.append(done(self.sequence))

    def receive(self) -> bytes:
        """Return the next part; raises TimeoutError where a kernel would keep silent."""
        if not self._parts:
            raise TimeoutError
        return self._parts.pop(0)

    def close(self) -> None:
        """Nothing is open."""
