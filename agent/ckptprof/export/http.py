"""A server for a few pages, /metrics above all, that a hostile neighbour can neither stop nor make grow.

One thread, at most MAX_CONNECTIONS, one request each, READ_SECONDS for all of it. When every place is taken the oldest
connection goes: a scraper asks at once and is served in a millisecond, who drips bytes is always older.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError
from typing import TYPE_CHECKING

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.export.request import END_OF_HEAD, MAX_HEAD_BYTES, Request, answer, is_local_name, parse, refuse
from ckptprof_collectors.abandoned import JOIN_SECONDS

if TYPE_CHECKING:
    from ckptprof.export.guard import Guard

# Every port from 9100 to 9999 is given away in the Prometheus wiki's "Default port allocations", which went on past
# 10000. 12578 is CKPT on the keys of a telephone (2578) above that, below the kernel's ephemeral ports (32768), and
# not in Debian's /etc/services.
DEFAULT_PORT = 12578
MAX_CONNECTIONS = 16
READ_SECONDS = 5.0
WRITE_SECONDS = 5.0
DRAIN_SECONDS = 1.0  # after an error, so that the answer is not lost to a reset
_ACCEPTS_PER_TURN = 8  # fewer than the places, so that who comes in has one turn to be read
_PAUSE_SECONDS = 0.02
_CHUNK = 16384

_INDEX = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>ckptprof</title>'
    b'<h1>ckptprof</h1><p><a href="/metrics">Metrics</a></p></html>\n'
)


class _Connection:
    __slots__ = ("deadline", "draining", "failed", "out", "received", "socket")

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.socket = sock
        self.received = bytearray()
        self.out: memoryview | None = None  # set once the answer is known
        self.failed = False  # the answer is an error: the client may still be sending
        self.draining = False  # after an error: what still comes is thrown away
        self.deadline = now + READ_SECONDS


class MetricsServer:
    """Serves GET and HEAD of /metrics, /status, / and /healthz."""

    def __init__(
        self,
        render: Callable[[str], tuple[bytes, str]],
        *,
        status: Callable[[], bytes] = lambda: b"{}",
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        guard: Guard | None = None,
    ) -> None:
        """Take what renders the page for an Accept header, and its type; port 0 is any free one.

        `status` returns the JSON document of /status. Without a guard everybody may ask, in the clear. Nothing listens
        before `start`.
        """
        self._guard = guard
        self._render = render
        self._status = status
        self._host = host
        self._port = port
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._connections: dict[socket.socket, _Connection] = {}

    @property
    def port(self) -> int:
        """The port that is listened on; before `start` the one that was asked for."""
        return self._port

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "http" if self._guard is None else self._guard.scheme
        return f"{scheme}://{host}:{self._port}/metrics"

    def start(self) -> None:
        """Listen and serve in a thread; raises CkptprofError if the address cannot be had."""
        self._listener = _listen(self._host, self._port)
        self._port = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="ckptprof-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and give the port back; a second call does nothing."""
        if self._thread is not None:
            self._wake.send(b"x")
            self._thread.join(JOIN_SECONDS)
            self._thread = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _serve(self) -> None:
        while True:
            now = time.monotonic()
            self._expire(now)
            nearest = min((connection.deadline for connection in self._connections.values()), default=None)
            ready = self._selector.select(None if nearest is None else max(0.0, nearest - now))
            accept = False
            for key, _ in ready:
                if key.fileobj is self._woken:
                    for connection in list(self._connections.values()):
                        self._drop(connection)
                    return
                if key.fileobj is self._listener:
                    accept = True
                else:
                    self._advance(key.data)
            if accept:  # last: whoever is here already goes first
                self._accept()

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101 - for the type checker: only `start` makes this thread
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # the client is gone again, or descriptors ran out: then the next turn would come at once
                time.sleep(_PAUSE_SECONDS)
                return
            sock.settimeout(0)
            try:
                sock = sock if self._guard is None else self._guard.wrap(sock)
            except OSError:  # it is gone again
                sock.close()
                continue
            if len(self._connections) >= MAX_CONNECTIONS:
                self._drop(min(self._connections.values(), key=lambda connection: connection.deadline))
            connection = _Connection(sock, time.monotonic())
            self._connections[sock] = connection
            self._selector.register(sock, selectors.EVENT_READ, connection)
            self._advance(connection)  # most have asked by now: to wait for it would be another wake-up

    def _advance(self, connection: _Connection) -> None:
        """Do what the connection is ready for; one that fails is dropped, the others never notice."""
        try:
            if connection.out is not None and not connection.draining:
                self._write(connection)
            else:
                self._read(connection)
        except BlockingIOError:
            return
        except SSLWantReadError:  # whatever we do, TLS has to hear first
            self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        except SSLWantWriteError:
            self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        except OSError:
            self._drop(connection)

    def _read(self, connection: _Connection) -> None:
        data = connection.socket.recv(_CHUNK)
        if not data:
            self._drop(connection)
            return
        if connection.draining:
            return
        connection.received += data
        end = connection.received.find(END_OF_HEAD)
        if end > MAX_HEAD_BYTES or (end < 0 and len(connection.received) > MAX_HEAD_BYTES):
            self._reply(connection, refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        elif end >= 0:
            local = _is_loopback(connection.socket)
            self._reply(connection, self._answer(parse(bytes(connection.received[:end])), local=local))

    def _answer(self, request: Request | None, *, local: bool) -> bytes:
        if request is None:
            return refuse(HTTPStatus.BAD_REQUEST)
        try:
            return self._page(request, local=local)
        except Exception:  # noqa: BLE001 - a fault in one scrape must not end this thread and with it all further ones
            return refuse(HTTPStatus.INTERNAL_SERVER_ERROR, request)

    def _page(self, request: Request, *, local: bool) -> bytes:
        if self._guard is not None and (refusal := self._guard.refusal(request)) is not None:
            return refusal
        if request.path not in {"/", "/metrics", "/status", "/healthz"}:
            return refuse(HTTPStatus.NOT_FOUND, request)
        if request.method not in {"GET", "HEAD"}:
            return refuse(HTTPStatus.METHOD_NOT_ALLOWED, request, extra="Allow: GET, HEAD")
        if request.path == "/":
            return answer(HTTPStatus.OK, _INDEX, request=request, content_type="text/html; charset=utf-8")
        if request.path == "/healthz":
            return answer(HTTPStatus.OK, b"ok\n", request=request)
        if local and not is_local_name(request.host):
            return refuse(HTTPStatus.MISDIRECTED_REQUEST, request)
        if request.path == "/status":
            body, content_type = self._status(), "application/json"
        else:
            body, content_type = self._render(request.accept)
        return answer(HTTPStatus.OK, body, request=request, content_type=content_type)

    def _reply(self, connection: _Connection, response: bytes) -> None:
        connection.received = bytearray()
        connection.out = memoryview(response)
        connection.failed = not response.startswith(b"HTTP/1.1 2")
        connection.deadline = time.monotonic() + WRITE_SECONDS
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        assert connection.out is not None  # noqa: S101 - for the type checker: `_reply` has set it
        try:
            while connection.out:
                connection.out = connection.out[connection.socket.send(connection.out) :]
        except BlockingIOError:
            return
        if connection.failed:
            connection.socket.shutdown(socket.SHUT_WR)
            connection.draining = True
            connection.deadline = time.monotonic() + DRAIN_SECONDS
            self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        else:
            if isinstance(connection.socket, SSLSocket):
                with contextlib.suppress(OSError):  # the client need not answer to the end of TLS
                    connection.socket.unwrap()
            self._drop(connection)

    def _expire(self, now: float) -> None:
        for connection in [each for each in self._connections.values() if each.deadline <= now]:
            if connection.out is None:
                try:
                    self._reply(connection, refuse(HTTPStatus.REQUEST_TIMEOUT))
                except OSError:
                    self._drop(connection)
            else:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if self._connections.pop(connection.socket, None) is not None:
            self._selector.unregister(connection.socket)
            connection.socket.close()


def _is_loopback(sock: socket.socket) -> bool:
    """Return whether it came in by loopback, wherever we listen: a browser on this host may have been led there."""
    address = ip_address(sock.getsockname()[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise CkptprofError(f"cannot serve metrics on {host} port {port}: a port is a number from 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=64)
    except (OSError, UnicodeError) as error:
        message = f"cannot serve metrics on {host} port {port}: {getattr(error, 'strerror', None) or error}"
        code = error.errno if isinstance(error, OSError) else None
        if code == errno.EADDRINUSE:
            hint = f"`ss -ltnp 'sport = :{port}'` says who has it; choose another port, or 0 for any free one"
            raise CkptprofError(message, hint=hint) from error
        if code in {errno.EACCES, errno.EPERM}:
            raise PermissionDeniedError(message, hint="ports under 1024 are root's; choose a higher one") from error
        raise CkptprofError(message, hint="give an address of this host, such as 127.0.0.1 or ::1") from error
    listener.settimeout(0)
    return listener
