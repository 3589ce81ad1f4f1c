"""On which interfaces a local address is: RTM_GETADDR (include/uapi/linux/if_addr.h), and what is below them in sysfs.

An address of a bond, a VLAN or a bridge is on the interfaces that carry its bytes. A connection from this host to
itself goes through `lo`, whatever its addresses are.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.networks.netlink import ROUTE, Netlink, attributes
from ckptprof_collectors.samples import text

AGAIN_SECONDS = 10.0  # after an address that is not known: it may have come meanwhile
LOOPBACK = "lo"
_RTM_GETADDR, _RTM_NEWADDR = 22, 20
_MESSAGE = struct.Struct("=BBBBI")  # ifaddrmsg: family, length of the prefix, flags, scope, index
_ADDRESS, _LOCAL = 1, 2  # IFA_*; of a point-to-point link the first is the other end's
_MAX_LOWER = 64
_MAX_DEPTH = 4


class LocalAddresses:
    """The interfaces of each address of this host."""

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open a socket; raises UnavailableError."""
        self._net = fs.sys / "class" / "net"
        self._netlink = Netlink(ROUTE, "rtnetlink")
        self._clock = clock
        self._interfaces: dict[bytes, tuple[str, ...]] = {}
        self._again = clock()

    def of(self, local: bytes, remote: bytes) -> tuple[str, ...]:
        """Return the interfaces of a connection, none if they are not known; raises OSError."""
        if local not in self._interfaces and self._clock() >= self._again:
            self._again = self._clock() + AGAIN_SECONDS
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
            told = attributes(body[_MESSAGE.size :])
            address = told.get(_LOCAL) or told.get(_ADDRESS)
            if address:
                if index not in carriers:
                    carriers[index] = self._carriers(index)
                found[address] = carriers[index]
        return found

    def _carriers(self, index: int) -> tuple[str, ...]:
        try:
            name = socket.if_indextoname(index)
        except OSError:
            return ()  # gone meanwhile
        return tuple(text(os.fsencode(one)) for one in bottoms(self._net, name))

    def close(self) -> None:
        """Give the socket back."""
        self._netlink.close()


def is_loopback(address: bytes) -> bool:
    """Return whether a connection from this address never leaves the host."""
    return address[:1] == b"\x7f" if len(address) == 4 else address == bytes(15) + b"\x01"


def bottoms(net: os.PathLike[str], name: str, depth: int = _MAX_DEPTH) -> list[str]:
    """Return the interfaces at the bottom of one: itself, or what carries a bond, a VLAN or a bridge."""
    try:
        lower = sorted(entry[6:] for entry in os.listdir(os.path.join(net, name)) if entry.startswith("lower_"))
    except OSError:
        return [name]
    if not lower or depth == 0:
        return [name]
    found: dict[str, None] = {}
    for one in lower[:_MAX_LOWER]:
        found.update(dict.fromkeys(bottoms(net, one, depth - 1)))
    return sorted(found)[:_MAX_LOWER]
