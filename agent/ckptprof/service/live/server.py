"""The socket of `ckptprof live`: a thread that hands each line to all who listen, and hears nobody.

What a client sends is never read: its way in is shut when it comes. Who does not take a line at once has not taken many
before it, for the kernel keeps them for him; he is let go, so that one who hangs is in nobody's way.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ckptprof.errors import CkptprofError
from ckptprof.report.live.state import State
from ckptprof.service.live import wire
from ckptprof.store.location import to_path
from ckptprof_collectors.abandoned import JOIN_SECONDS

MAX_CLIENTS = 4
_PAUSE_SECONDS = 0.02
_WAITING = 16  # to be accepted


class LiveServer:
    """Serves what it is given, once a second; `put` returns at once."""

    def __init__(self, path: Path) -> None:
        """Nothing listens before `start`."""
        self.path = path
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._pair: tuple[socket.socket, socket.socket] | None = None  # one wakes the thread by the other
        self._state: State | None = None  # to be handed out; replaced as a whole
        self._stopping = False
        self._clients: list[socket.socket] = []

    @property
    def is_wanted(self) -> bool:
        """Whether somebody listens."""
        return bool(self._clients)

    def start(self) -> None:
        """Listen and serve in a thread; raises CkptprofError if there can be no socket."""
        try:
            self._listener = _listen(self.path)
        except OSError as error:
            raise CkptprofError(f"`ckptprof live` gets no socket {self.path}: {error.strerror or error}") from error
        wake, woken = self._pair = socket.socketpair()
        wake.settimeout(0)
        self._thread = threading.Thread(
            target=self._serve, args=(self._listener, woken), name="ckptprof-live", daemon=True
        )
        self._thread.start()

    def put(self, state: State) -> None:
        """Hand a state to all who listen."""
        self._state = state
        self._turn()

    def close(self) -> None:
        """Stop serving and remove the socket; a second call does nothing."""
        self._stopping = True
        self._turn()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)
            self._thread = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                self.path.unlink()
        for end in self._pair or ():
            end.close()
        self._pair = None

    def _turn(self) -> None:
        if self._pair is not None:
            with contextlib.suppress(BlockingIOError):  # it is awake already
                self._pair[0].send(b"x")

    def _serve(self, listener: socket.socket, woken: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not self._stopping:
                ready = {key.fileobj for key, _ in selector.select()}
                if woken in ready:
                    woken.recv(4096)
                    self._hand_out()
                if listener in ready:
                    self._accept(listener)
        for client in self._clients:
            client.close()
        self._clients = []

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:  # it is gone again, or descriptors ran out: then the next turn would come at once
            time.sleep(_PAUSE_SECONDS)
            return
        self._let_go([one for one in self._clients if _is_gone(one)])
        if len(self._clients) >= MAX_CLIENTS:
            client.close()
            return
        try:
            client.settimeout(0)
            client.shutdown(socket.SHUT_RD)
        except OSError:
            client.close()
            return
        self._clients = [*self._clients, client]

    def _hand_out(self) -> None:
        state, self._state = self._state, None
        if state is None:
            return
        line = wire.encode(state)
        self._let_go([client for client in self._clients if not _sent(client, line)])

    def _let_go(self, clients: list[socket.socket]) -> None:
        for client in clients:
            client.close()
        self._clients = [client for client in self._clients if client not in clients]


def serve_beside(database: str | Path, complain: Callable[[str], None]) -> LiveServer | None:
    """Return what serves those who watch the record of a database; None if there can be no socket, which is told."""
    try:
        server = LiveServer(wire.socket_of(to_path(database)))
        server.start()
    except CkptprofError as error:
        complain(str(error))
        return None
    return server


def _is_gone(client: socket.socket) -> bool:
    """Return whether its other end is closed."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))


def _sent(client: socket.socket, line: bytes) -> bool:
    try:
        return client.send(line, socket.MSG_NOSIGNAL) == len(line)
    except OSError:  # it went away, or its buffer is full
        return False


def _listen(path: Path) -> socket.socket:
    """Return a socket at `path` that only those may reach who may read the record; one that nobody serves is replaced.

    Raises OSError.
    """
    mode, group = wire.mode_of(path)
    with wire.short(path) as name:
        _remove_stale(name)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), 0o600)  # what it is made with
            listener.bind(name)
            if group is not None:
                if os.stat(name).st_gid != group:  # noqa: PTH116 # it is its own of the service, to whom chown is denied
                    os.chown(name, -1, group)
                os.chmod(name, mode)  # noqa: PTH101 # by the name that is short
            listener.listen(_WAITING)
            listener.settimeout(0)
        except BaseException:
            listener.close()
            raise
    return listener


def _remove_stale(name: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(name)
        except ConnectionRefusedError:
            os.unlink(name)  # noqa: PTH108 # as above
        except OSError:
            return
