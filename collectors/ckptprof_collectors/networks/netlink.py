"""Netlink: the kernel's lists of interfaces, queues and sockets, requested as dumps (RFC 3549; netlink(7)).

Own parsing of headers and attributes, since a library for all of netlink takes longer to import than the sampler to
start.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from ckptprof_collectors.kernelfs import UnavailableError

ROUTE, SOCK_DIAG = 0, 4  # NETLINK_*
ERROR, DONE = 2, 3  # NLMSG_*
HEADER = struct.Struct("=IHHII")  # nlmsghdr
MAX_PARTS = 4096  # of one answer, about 32 KiB each: an endless answer cannot block the caller
DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_ATTRIBUTE = struct.Struct("=HH")
_TYPE = 0x3FFF  # without the flags of nested attributes
_PART_BYTES = 1 << 16
_SECONDS = 1.0  # timeout: the kernel normally answers at once


class Netlink:
    """One socket in the agent's own network namespace."""

    def __init__(self, family: int, family_name: str) -> None:
        """Open it; `family_name` is for messages. Raises UnavailableError."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
            self._socket.settimeout(_SECONDS)
        except OSError as error:
            raise UnavailableError(f"{family_name}: {error.strerror}") from error
        self._family_name = family_name
        self.sequence = 0  # of the last request: other numbers belong to an aborted dump

    def request(self, kind: int, message: bytes, *, flags: int = DUMP) -> None:
        """Send a request, by default for all entries; raises OSError."""
        self.sequence = (self.sequence + 1) & 0xFFFFFFFF
        self._socket.send(HEADER.pack(HEADER.size + len(message), kind, flags, self.sequence, 0) + message)

    def receive(self) -> bytes:
        """Receive the next part of the answer, some messages; raises OSError."""
        return self._socket.recv(_PART_BYTES)

    def ends_answer(self, kind: int, body: bytes) -> bool:
        """Test whether a message ends the answer; raises OSError for a refusal."""
        if kind not in (ERROR, DONE):
            return False
        number = -int.from_bytes(body[:4], "little", signed=True)
        if number > 0 or kind == ERROR:
            raise OSError(number, f"{self._family_name} refused the request")
        return True

    def dump(self, kind: int, message: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (type, body) of each message of the answer; raises OSError."""
        self.request(kind, message)
        for _ in range(MAX_PARTS):
            for message_type, sequence, body in parse_messages(self.receive()):
                if sequence == self.sequence:
                    if self.ends_answer(message_type, body):
                        return
                    yield message_type, body

    def close(self) -> None:
        self._socket.close()


def parse_messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (type, sequence, body) of each message, up to the first malformed one."""
    at = 0
    while at + HEADER.size <= len(data):
        size, kind, _, sequence, _ = HEADER.unpack_from(data, at)
        if size < HEADER.size or at + size > len(data):
            return
        yield kind, sequence, data[at + HEADER.size : at + size]
        at += (size + 3) & ~3


def parse_attributes(data: bytes) -> dict[int, bytes]:
    """Attributes by type, up to the first malformed one."""
    found = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size or at + size > len(data):
            break
        found[kind & _TYPE] = data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found
