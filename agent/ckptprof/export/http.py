"""A bounded WSGI server: no client can block it or delay the recorder, with which it shares the GIL.

A thread accepts at most MAX_PER_SECOND connections, each served by its own thread, at most MAX_CLIENTS at a time.
Beyond that the oldest is closed: a scraper sends its request immediately, so a slow client is always older. Timeouts
are set before the first byte is read, and fields are truncated to MAX_FIELD_BYTES before parsing.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from wsgiref.handlers import SimpleHandler

from ckptprof.errors import CkptprofError
from ckptprof.export.listening import DEFAULT_PORT, Tls, listen
from ckptprof_collectors.abandoned import JOIN_SECONDS

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

MAX_CLIENTS = 16
MAX_PER_SECOND = 50
CLIENT_SECONDS = 5.0  # each: for the handshake, for the request, and for the answer
LINGER_SECONDS = 1.0
MAX_HEAD_BYTES = 8192
MAX_FIELD_BYTES = 256  # longer request lines are refused, longer header fields truncated
_MAX_READS = 32  # of a request in pieces: each of them wakes a thread
_FIELDS = {"host": "HTTP_HOST", "accept": "HTTP_ACCEPT", "accept-encoding": "HTTP_ACCEPT_ENCODING"}
_END = b"\r\n\r\n"
_REFUSAL = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nBad Request\n"


class MetricsServer:
    """Serves plain HTTP, or TLS to clients with a certificate."""

    def __init__(
        self, app: WSGIApplication, *, host: str = "127.0.0.1", port: int = DEFAULT_PORT, tls: Tls | None = None,
        complain: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        """Read the TLS files; raises CkptprofError. Later errors of these files go to `complain`."""
        self._app, self._host, self.port = app, host, port  # port 0: any free one, known after `start`
        self._tls, self._context, self._complain = tls, None if tls is None else tls.context(), complain
        self._fault = ""  # of the TLS files, the last that was reported
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="ckptprof-metrics", daemon=True)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}  # the oldest first

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}/metrics"

    def start(self) -> None:
        """Listen and serve; raises CkptprofError if the address is not available."""
        self._listener = listen(self._host, self.port)
        self.port = self._listener.getsockname()[1]
        self._thread.start()

    def close(self) -> None:
        """Stop serving and release the port; a second call does nothing."""
        if self._listener is not None and not self._closing.is_set():
            self._closing.set()
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            self._thread.join(JOIN_SECONDS)
            self._listener.close()
            while self._clients:
                self._evict()

    def _serve(self) -> None:
        assert self._listener is not None  # noqa: S101 - for the type checker: only `start` starts this thread
        at = 0.0
        while not self._closing.is_set():
            with contextlib.suppress(OSError, RuntimeError):  # disconnected, or out of descriptors or threads
                self._admit(self._listener.accept()[0])
            before, at = at, time.monotonic()
            self._closing.wait(1 / MAX_PER_SECOND if at - before < 2 / MAX_PER_SECOND else 0.0)

    def _admit(self, client: socket.socket) -> None:
        client.settimeout(CLIENT_SECONDS)
        if self._tls is not None and self._context is not None:
            try:
                self._context = self._tls.context()  # renewed certificates apply to the next connection
            except CkptprofError as error:
                if str(error) != self._fault:
                    self._fault = str(error)
                    self._complain(f"{error}; keeping the current certificate")
            client = self._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        while len(self._clients) >= MAX_CLIENTS:
            self._evict()
        thread = threading.Thread(target=self._handle, args=(client,), name="ckptprof-scrape", daemon=True)
        self._clients[client] = thread
        try:
            thread.start()
        except RuntimeError:
            self._forget(client)
            raise

    def _evict(self) -> None:
        with self._lock:
            client = next(iter(self._clients), None)
            thread = self._clients.get(client) if client is not None else None
            with contextlib.suppress(OSError):
                if client is not None:
                    socket.socket.shutdown(client, socket.SHUT_RDWR)  # below TLS, where its thread may be blocked
        if thread is not None:
            thread.join(CLIENT_SECONDS)

    def _forget(self, client: socket.socket) -> None:
        with self._lock:
            del self._clients[client]
            client.close()

    def _handle(self, client: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):  # slow, disconnected, or without a certificate
                if isinstance(client, ssl.SSLSocket):
                    client.do_handshake()
                if (head := _head(client)) is not None:
                    client.settimeout(CLIENT_SECONDS)
                    client.sendall(answer(head, self._app))
            with contextlib.suppress(OSError):  # until it has the response: a reset for unread bytes would discard it
                socket.socket.shutdown(client, socket.SHUT_WR)
                client.settimeout(LINGER_SECONDS)
                socket.socket.recv(client, MAX_HEAD_BYTES)
        finally:
            self._forget(client)


def _head(client: socket.socket) -> bytes | None:
    """Return the head of a request; None if the client disconnected, is slow, or sends too many pieces."""
    deadline, head = time.monotonic() + CLIENT_SECONDS, b""
    for _ in range(_MAX_READS):
        client.settimeout(max(0.001, deadline - time.monotonic()))
        data = client.recv(MAX_HEAD_BYTES)
        head += data
        if _END in head or len(head) > MAX_HEAD_BYTES:
            return head
        if not data:
            break
    return None


def answer(head: bytes, app: WSGIApplication) -> bytes:
    """Return the complete response to a request head."""
    line, *fields = head.partition(_END)[0].split(b"\r\n")
    words = line[:MAX_FIELD_BYTES].decode("latin-1").split(" ")
    if len(line) > MAX_FIELD_BYTES or len(words) != 3 or words[2] not in {"HTTP/1.0", "HTTP/1.1"} or _END not in head:
        return _REFUSAL
    method, target, protocol = words
    environ = {"REQUEST_METHOD": method, "PATH_INFO": target.partition("?")[0], "SERVER_PROTOCOL": protocol}
    for field in fields:
        name, _, value = field[:MAX_FIELD_BYTES].decode("latin-1").partition(":")
        if (key := _FIELDS.get(name.lower())) is not None:
            environ.setdefault(key, value.strip())
    out = io.BytesIO()
    SimpleHandler(io.BytesIO(), out, io.StringIO(), environ).run(app)
    whole = out.getvalue()
    return whole[: whole.find(_END) + len(_END)] if method == "HEAD" else whole
