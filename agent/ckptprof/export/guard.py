"""Stands before the metrics page: TLS and passwords by a `web.yml`, which is read again when it changes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from ckptprof.errors import CkptprofError
from ckptprof.export import web_config
from ckptprof.export.passwords import Access, Passwords
from ckptprof.export.request import CHALLENGE, Request, refuse
from ckptprof_collectors.privileges import RAISED

_REFUSALS = {
    Access.REFUSED: (HTTPStatus.UNAUTHORIZED, f"WWW-Authenticate: {CHALLENGE}"),
    Access.LATER: (HTTPStatus.TOO_MANY_REQUESTS, "Retry-After: 1"),
}


class Guard:
    """Used by the one thread that serves."""

    def __init__(self, path: Path, complain: Callable[[str], None]) -> None:
        """Read the file; raises CkptprofError. Later faults of it are told to `complain`, and what was read stays."""
        self._path = path
        self._complain = complain
        self._passwords = Passwords()
        with RAISED:  # a key may be root's alone
            self._config = web_config.load(path)
            self._state = web_config.state(self._config.files)

    @property
    def scheme(self) -> str:
        """The scheme of the page's address."""
        return "http" if self._config.tls is None else "https"

    def wrap(self, sock: socket.socket) -> socket.socket:
        """Return what to speak through with a client that has connected; the first read makes the handshake."""
        self._refresh()
        if self._config.tls is None:
            return sock
        return self._config.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def refusal(self, request: Request) -> bytes | None:
        """Return the answer to who may not ask, None to who may."""
        if not self._config.users:
            return None
        access = self._passwords.check(self._config.users, request.authorization)
        if access is Access.GRANTED:
            return None
        status, extra = _REFUSALS[access]
        return refuse(status, request, extra=extra)

    def _refresh(self) -> None:
        with RAISED:
            now = web_config.state(self._config.files)
            if now == self._state:
                return
            self._state = now
            try:
                self._config = web_config.load(self._path)
            except CkptprofError as error:
                self._complain(f"{error}; what was read before stays in force")
                return
            self._state = web_config.state(self._config.files)
