"""The WSGI application: metrics by prometheus_client, status and health.

Changed series are rendered at most once in FRESH_SECONDS for all clients, outside the lock of the recorder's state.
"""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HOSTS = Path("/etc/hosts")
FRESH_SECONDS = 1.0
_OPENMETRICS = "application/openmetrics-text"
_PLAIN_NAMES = ";version=1.0.0;escaping=allow-utf-8"  # our names: checking every letter would take half the time
_TEXT = "text/plain; charset=utf-8"
_EXEMPLAR = attrgetter("exemplar")
_INDEX = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>ckptprof</title>'
    b'<h1>ckptprof</h1><p><a href="/metrics">Metrics</a></p></html>\n'
)


class HttpPage(NamedTuple):
    """An HTTP response."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


class _Format(Collector):
    """The text of all series in one format: a family whose series are those of the last page gets new values only."""

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self._changed: list[Metric] = []
        self._end = self._encode(self)
        self._known: dict[str, tuple[list[Sample], bytes, list[bytes], bytes]] = {}  # series, heading, labels, text

    def collect(self) -> Iterable[Metric]:
        return self._changed

    def page(self, families: Iterable[Metric]) -> bytes:
        return b"".join([*map(self._text, families), self._end])

    def _text(self, family: Metric) -> bytes:
        samples = family.samples
        before, heading, starts, whole = self._known.get(family.name, ([], b"", [], b""))
        if samples == before and whole:
            return whole
        if whole and [one[:2] for one in samples] == [one[:2] for one in before] and not any(map(_EXEMPLAR, samples)):
            values = [floatToGoString(one.value).encode() for one in samples]  # type: ignore[no-untyped-call]
            whole = heading + b"".join(map(b"%b %b\n".__mod__, zip(starts, values, strict=True)))
        else:  # other names or labels, or more behind a value
            self._changed = [family]
            whole = self._encode(self).removesuffix(self._end)
            *lines, _ = whole.split(b"\n")
            first = len(lines) - len(samples)
            heading = b"".join(map(b"%b\n".__mod__, lines[:first]))
            starts = [line.rpartition(b" ")[0] for line in lines[first:]]
        self._known[family.name] = samples, heading, starts, whole
        return whole


class Pages:
    """A WSGI application: GET and HEAD of /metrics, /status, / and /healthz."""

    def __init__(
        self,
        metrics: Collector,
        *,
        status: Callable[[], bytes] = lambda: b"{}",
        health: Callable[[], str] = lambda: "ok",
        in_clear: bool,
    ) -> None:
        """`status` returns the JSON of /status, `health` the text of /healthz.

        `in_clear`: plain HTTP, so requests from web sites are refused.
        """
        self._metrics = metrics
        self._status, self._health = status, health
        self._in_clear = in_clear
        self._lock = threading.Lock()
        self._formats: dict[str, _Format] = {}
        self._rendered: dict[tuple[str, str], tuple[float, HttpPage]] = {}  # by format and encoding, at most four

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Answer a request (PEP 3333)."""
        page = self._page(environ)
        start_response(page.status, [*page.headers, ("X-Content-Type-Options", "nosniff")])
        return [page.body]

    def _page(self, environ: WSGIEnvironment) -> HttpPage:
        path = environ["PATH_INFO"]
        if path not in {"/", "/metrics", "/status", "/healthz"}:
            return _plain("404 Not Found")
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return _plain("405 Method Not Allowed", ("Allow", "GET, HEAD"))
        if path == "/healthz":
            return _plain("200 OK", text=self._health())  # never another code: to be restarted would help nobody
        if path == "/":
            return HttpPage("200 OK", [("Content-Type", "text/html; charset=utf-8")], _INDEX)
        if self._in_clear and not is_local_name(environ.get("HTTP_HOST")):
            return _plain("421 Misdirected Request")
        if path == "/status":
            return HttpPage("200 OK", [("Content-Type", "application/json")], self._status())
        return self.metrics(environ.get("HTTP_ACCEPT", ""), environ.get("HTTP_ACCEPT_ENCODING", ""))

    def metrics(self, accept: str = "", encodings: str = "") -> HttpPage:
        """Return the metrics: OpenMetrics 1.0.0 where `accept` names it, else text 0.0.4."""
        form = f"{_OPENMETRICS}{_PLAIN_NAMES}" if _OPENMETRICS in accept else ""
        wanted = form, "gzip" if gzip_accepted(encodings) else ""
        with self._lock:
            at, page = self._rendered.get(wanted, (0.0, None))
            if page is None or time.monotonic() - at >= FRESH_SECONDS:
                page = self._render(*wanted)
                self._rendered[wanted] = time.monotonic(), page
            return page

    def _render(self, accept: str, encoding: str) -> HttpPage:
        form = self._formats.get(accept) or self._formats.setdefault(accept, _Format(accept))
        headers, body = [("Content-Type", form.content_type)], form.page(self._metrics.collect())
        if encoding:
            headers.append(("Content-Encoding", encoding))
            body = gzip.compress(body, 1)  # the fastest level
        return HttpPage("200 OK", [*headers, ("Vary", "Accept, Accept-Encoding")], body)


def _plain(status: str, *headers: tuple[str, str], text: str = "") -> HttpPage:
    return HttpPage(status, [("Content-Type", _TEXT), *headers], f"{text or status}\n".encode())


def is_local_name(host: str | None) -> bool:
    """Test whether this Host is an address or a local name: protection against DNS rebinding.

    In that attack a web site's name resolves to 127.0.0.1, and the visitor's browser sends the request.
    """
    if host is None:  # HTTP/1.0: not a browser
        return True
    name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return "." not in name or name == socket.gethostname().lower() or name in _named_here()
    return True


def _named_here() -> list[str]:
    """Return the names in /etc/hosts: Debian puts the full host name there, as 127.0.1.1."""
    try:
        lines = HOSTS.read_text(encoding="utf-8", errors="replace").lower().splitlines()
    except OSError:
        return []
    return [name for line in lines for name in line.partition("#")[0].split()[1:]]
