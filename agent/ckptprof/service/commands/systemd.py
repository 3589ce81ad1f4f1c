"""systemd's notify protocol (sd_notify(3), sd_watchdog_enabled(3)), by hand: it is one datagram.

Without NOTIFY_SOCKET every method does nothing, so that the agent runs the same in a terminal.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping

MAX_STATUS_CHARS = 512


class Notifier:
    """Tells the service manager how the service is."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; nothing is opened before the first message."""
        environ = os.environ if environ is None else environ
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_seconds = _watchdog_seconds(environ) if self._address is not None else None
        self._next_beat = 0.0
        self._status: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        """True if a service manager listens."""
        return self._address is not None

    def ready(self, status: str = "") -> bool:
        """Say that the service has started; True if it was heard."""
        return self._send("READY=1", *self._status_line(status))

    def status(self, text: str) -> bool:
        """Show one line in `systemctl status`; the same line is sent once."""
        line = self._status_line(text)
        if not line or line == self._status:
            return False
        heard = self._send(*line)
        self._status = line if heard else ()
        return heard

    def stopping(self, status: str = "") -> bool:
        """Say that the service ends by itself."""
        return self._send("STOPPING=1", *self._status_line(status))

    def watchdog(self) -> bool:
        """Show that the loop is alive; to be called on every turn, sent when a third of the limit has passed."""
        if self.watchdog_seconds is None:
            return False
        now = time.monotonic()
        if now < self._next_beat:
            return False
        self._next_beat = now + self.watchdog_seconds / 3
        return self._send("WATCHDOG=1")

    def give_up(self) -> bool:
        """Ask to be treated as if the watchdog had not been fed in time."""
        return self._send("WATCHDOG=trigger")

    @staticmethod
    def _status_line(text: str) -> tuple[str, ...]:
        # A newline would begin a new assignment: a process's name in a status must not be able to say MAINPID=1.
        line = "".join(char if char.isprintable() else " " for char in text[:MAX_STATUS_CHARS])
        return (f"STATUS={line}",) if line else ()

    def _send(self, *assignments: str) -> bool:
        if self._address is None:
            return False
        message = "\n".join(assignments).encode("utf-8", "replace")
        try:
            # One socket per message: a service manager that was re-executed has a new one at the same address.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(1)
                sock.sendto(message, self._address)
        except OSError:  # nobody listens any more: the service goes on without
            return False
        return True


def _address(text: str) -> str | bytes | None:
    if text.startswith("@"):  # abstract: the kernel wants a NUL in its place
        return b"\0" + os.fsencode(text[1:])
    return text if text.startswith("/") else None  # vsock: and others are for virtual machines


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the limit if it is meant for this process, not for its parent."""
    pid = environ.get("WATCHDOG_PID", "")
    limit = environ.get("WATCHDOG_USEC", "")
    if re.fullmatch(r"0*[1-9][0-9]{0,17}", limit) is None or (pid and pid != str(os.getpid())):
        return None
    return int(limit) * 1e-6
