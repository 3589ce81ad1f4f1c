"""The few words of HTTP that a scrape needs: pure functions from bytes to bytes."""

from __future__ import annotations

import re
import socket
import zlib
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

MAX_HEAD_BYTES = 8192
END_OF_HEAD = b"\r\n\r\n"
HOSTS = Path("/etc/hosts")
CHALLENGE = 'Basic realm="metrics"'
TEXT = "text/plain; charset=utf-8"
_COMPRESS_FROM_BYTES = 1024

# RFC 9112: method, one space, target, one space, version. Anything else is refused, never guessed at.
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,2048}) HTTP/1\.([01])")
_ADDRESS = re.compile(r"[0-9.]+|\[[0-9a-f:.]+\]")
_GZIP = re.compile(r"(?:^|[,\s])(?:gzip|\*)\s*(?:;\s*q=([0-9.]{1,5}))?\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class Request:
    """The part of a request that is looked at; everything else of it is ignored."""

    method: str
    path: str  # without a query, which Prometheus may append
    host: str | None  # with its port
    accept: str
    accepts_gzip: bool
    authorization: str = ""


def parse(head: bytes) -> Request | None:
    """Return what a complete head (without the empty line) asks for, or None if it is no HTTP/1 request."""
    line, _, fields = head.partition(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        return None
    method, target, _version = match.groups()
    return Request(
        method=method.decode(),
        path=target.partition(b"?")[0].decode(),
        host=_field(fields, "host"),
        accept=_field(fields, "accept") or "",
        accepts_gzip=_accepts_gzip(_field(fields, "accept-encoding") or ""),
        authorization=_field(fields, "authorization") or "",
    )


def _field(fields: bytes, wanted: str) -> str | None:
    """Return the value of the first field of this name."""
    for field in fields.decode("latin-1").split("\r\n"):
        name, _, value = field.partition(":")
        if name.lower() == wanted:
            return value.strip()
    return None


def _accepts_gzip(encodings: str) -> bool:
    found = _GZIP.search(encodings.lower())
    return found is not None and (found[1] is None or found[1].strip("0.") != "")


def is_local_name(host: str | None) -> bool:
    """Say whether a page of another site cannot have asked by this name: it would need a name with a dot.

    Such a site lets its own name point at 127.0.0.1 and has the reader's browser ask (DNS rebinding).
    """
    if host is None:  # HTTP/1.0: no browser
        return True
    name = host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()
    own = "." not in name or name == socket.gethostname().lower() or _ADDRESS.fullmatch(name) is not None
    return own or name in _named_here()


def _named_here() -> list[str]:
    """Return the names that root gave to addresses on this host: Debian's full name of a host is 127.0.1.1."""
    try:
        lines = HOSTS.read_text(encoding="utf-8", errors="replace").lower().splitlines()
    except OSError:
        return []
    return [name for line in lines for name in line.partition("#")[0].split()[1:]]


def answer(
    status: HTTPStatus, body: bytes, *, request: Request | None = None, content_type: str = TEXT, extra: str = ""
) -> bytes:
    """Return a whole response, compressed if that was asked for and pays; it names no program and no version."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Type: {content_type}"]
    if request is not None and request.accepts_gzip and len(body) >= _COMPRESS_FROM_BYTES:
        # Level 1: level 9 costs fifteen times the CPU for a sixth fewer bytes, and the scrape is mostly loopback.
        packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        body = packer.compress(body) + packer.flush()
        lines.append("Content-Encoding: gzip")
    lines += [f"Content-Length: {len(body)}", "Vary: Accept, Accept-Encoding", "X-Content-Type-Options: nosniff"]
    lines += [extra] if extra else []
    head = "\r\n".join([*lines, "Cache-Control: no-store", "Connection: close", "", ""]).encode()
    return head if request is not None and request.method == "HEAD" else head + body


def refuse(status: HTTPStatus, request: Request | None = None, *, extra: str = "") -> bytes:
    """Return an error in one plain line."""
    return answer(status, f"{status.value} {status.phrase}\n".encode(), request=request, extra=extra)
