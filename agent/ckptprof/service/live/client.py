"""Listening to the socket of an agent."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from ckptprof.report.live.state import State
from ckptprof.service.live import wire

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_CHUNK = 1 << 16


class Listener:
    """One connection; it never sends anything."""

    def __init__(self, sock: socket.socket) -> None:
        """Take a connection."""
        self._socket = sock
        self._received = b""
        self.newest: State | None = None
        self.is_other = False  # an agent of another version, or none of ours

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    def take(self) -> bool:
        """Take in what has come, without waiting; return whether more may come."""
        try:
            while data := self._socket.recv(_CHUNK):
                *lines, self._received = (self._received + data).split(b"\n")
                if lines:
                    self.newest = wire.decode(lines[-1])
                    self.is_other = self.newest is None
                if self.is_other or len(self._received) > wire.MAX_LINE_BYTES:
                    return False
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def listen(database: Path) -> Listener | None:
    """Return a connection to who records to a database; None if nobody answers whom one may believe."""
    path = wire.socket_of(database)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(0)  # where too many wait already, nobody waits for one who hangs
    try:
        with wire.short(path) as name:
            sock.connect(name)
        _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if not is_believed(uid, database):
            raise PermissionError
    except OSError:
        sock.close()
        return None
    return Listener(sock)


def is_believed(uid: int, database: Path) -> bool:
    """Return whether what a user tells of the record in a database is to be shown. Raises OSError."""
    return uid in (0, os.geteuid(), database.stat().st_uid)
