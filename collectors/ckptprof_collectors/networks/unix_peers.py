"""Peers of local sockets: unix_diag (include/uapi/linux/unix_diag.h), one socket at a time."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Collection

from ckptprof_collectors.kernelfs import UnavailableError
from ckptprof_collectors.networks.netlink import ERROR, SOCK_DIAG, Netlink, parse_attributes, parse_messages

MAX_QUERIES = 64
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = 1  # NLM_F_REQUEST
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, (1 << 64) - 1
_SHOW_PEER, _PEER = 4, 2  # UDIAG_SHOW_PEER, UNIX_DIAG_PEER
_QUERY = struct.Struct("=BBHIIIQ")  # unix_diag_req
_ANSWER_BYTES = 16  # unix_diag_msg


def find_peers(inodes: Collection[int]) -> dict[int, int]:
    """Inodes of the peers of local sockets; other sockets are left out."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError, UnavailableError), contextlib.closing(Netlink(SOCK_DIAG, "sock_diag")) as netlink:
        for inode in sorted(inodes)[:MAX_QUERIES]:
            question = _QUERY.pack(socket.AF_UNIX, 0, 0, _ANY_STATE, inode & 0xFFFFFFFF, _SHOW_PEER, _NO_COOKIE)
            netlink.request(_BY_FAMILY, question, flags=_REQUEST)
            for kind, sequence, body in parse_messages(netlink.receive()):
                if sequence == netlink.sequence and kind != ERROR:
                    peer = parse_attributes(body[_ANSWER_BYTES:]).get(_PEER, b"")
                    if len(peer) == 4:
                        found[inode] = int.from_bytes(peer, "little")
    return found
