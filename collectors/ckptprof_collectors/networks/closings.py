"""TCP sockets that close, as the kernel tells of each with what it had counted in the end (`ss -E`), unprivileged.

Own parsing of nothing: a message is as that of inet_diag (net/core/sock_diag.c, since Linux 4.2). Who opens connections
for one save, as s3torchconnector does, has closed most of them before anybody looks.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from ckptprof_collectors.kernelfs import UnavailableError
from ckptprof_collectors.networks.netlink import SOCK_DIAG, Netlink

DESTROYED = 20  # SOCK_DIAG_BY_FAMILY, as of a question to it
_GROUPS = 1 << 0 | 1 << 2  # SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY
_MOST = 1024  # at once: the kernel has room for some hundreds
_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")  # sock_filter
_HALF, _WORD, _IS, _END = 0x28, 0x20, 0x15, 0x06  # BPF_LD | BPF_H | BPF_ABS, BPF_LD | BPF_W | BPF_ABS, BPF_JMP, BPF_RET
# tcpi_bytes_acked and tcpi_bytes_received, behind nlmsghdr, inet_diag_msg, the protocol and the head of tcp_info
_ACKED_AT, _RECEIVED_AT = 220, 228
# All but the lowest sixteen bits of one of them: less than 64 KiB tell nothing, and most connections move less.
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


class Closings(Netlink):
    """One socket to which the kernel tells of those that close, from now on."""

    def __init__(self) -> None:
        """Listen; raises UnavailableError."""
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

    def told(self) -> Iterator[bytes]:
        """Yield what was told since, a message for each; raises OSError if some were lost."""
        with suppress(BlockingIOError):
            for _ in range(_MOST):
                yield self.part()
