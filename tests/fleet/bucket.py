"""A bucket on loopback: what pyarrow asks of S3, in memory, with a policy for each access key."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_LIST = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>{}</ListBucketResult>'
_ERROR = "<Error><Code>{}</Code><Message>{}</Message></Error>"


class Policy(NamedTuple):
    """What an access key may do: as the statements of an S3 policy, by prefix of the object."""

    put: str
    read: str  # and list and delete


class Bucket:
    """Objects by their key, and what was asked."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.policies: dict[str, Policy] = {}
        self.asked: list[tuple[str, str]] = []  # method and key
        self.url = ""

    def allows(self, access_key: str, method: str, key: str) -> bool:
        """Test a request against the policy of its key."""
        policy = self.policies.get(access_key)
        prefix = None if policy is None else policy.put if method == "PUT" else policy.read
        return prefix is not None and key.startswith(prefix)

    def answer(self, method: str, key: str, prefix: str, body: bytes, wanted: str) -> tuple[int, bytes] | tuple[int]:
        """Return status and body of an answer to a request that is allowed."""
        if method == "PUT":
            self.objects[key] = body
            return (200,)
        if method == "DELETE":
            self.objects.pop(key, None)
            return (204,)
        if not key:
            items = "".join(
                f"<Contents><Key>{escape(one)}</Key><Size>{len(data)}</Size>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
                for one, data in sorted(self.objects.items())
                if one.startswith(prefix)
            )
            return 200, _LIST.format(items).encode()
        if key not in self.objects:
            return 404, _ERROR.format("NoSuchKey", "none").encode()
        data, span = self.objects[key], re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
        return (200, data) if span is None else (206, data[int(span[1]) : int(span[2] or len(data)) + 1])


@contextmanager
def served() -> Iterator[Bucket]:
    """Serve a bucket `fleet`; its URL has the endpoint, without a key."""
    bucket = Bucket()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            name, _, key = unquote(parts.path).lstrip("/").partition("/")
            query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            body = self._body()
            method = self.command
            found = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
            target = query.get("prefix", "") if method == "GET" and not key else key
            bucket.asked.append(("LIST" if method == "GET" and not key else method, target))
            if name != "fleet" or found is None or not bucket.allows(found[1], method, target):
                self._answer(403, _ERROR.format("AccessDenied", "Access Denied").encode())
            else:
                self._answer(*bucket.answer(method, key, query.get("prefix", ""), body, self.headers.get("Range", "")))

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                if len(body) < size:
                    raise ConnectionAbortedError("half a body")  # of a client that was killed: no object
                return body
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return _unchunked(body) if "aws-chunked" in self.headers.get("Content-Encoding", "") else body

        do_GET = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815 # as the server calls them

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("ETag", '"x"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # of clients that were killed
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1%3A{server.server_address[1]}"
        bucket.url = f"s3://fleet/site?scheme=http&region=us-east-1&endpoint_override={address}"
        yield bucket
        server.shutdown()
        thread.join()


def _unchunked(body: bytes) -> bytes:
    """Return what the chunks of an upload by an SDK have in them, without its trailer."""
    data = b""
    while body:
        head, _, body = body.partition(b"\r\n")
        size = int(head.partition(b";")[0], 16)
        data, body = data + body[:size], body[size + 2 :]
        if not size:
            break
    return data
