"""As much of S3 as programs need that mount a bucket: `python object_server.py PORT [BYTES [SECONDS [ADDRESS]]]`.

It keeps what it is told of objects, and of their bytes the number: what is read is zeros. It takes no more than BYTES a
second (0: as fast as they come), and answers who sent an object, or a part of one, SECONDS later.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PIECE = 64 << 10
NEVER = "2026-01-01T00:00:00.000Z"


@dataclass
class Thing:
    """An object: how long it is, and what its headers say of it."""

    size: int
    headers: dict[str, str]
    tag: str
    at: float = field(default_factory=time.time)


class Bucket:
    """What is stored, and how fast that goes."""

    things: ClassVar[dict[str, Thing]] = {}
    parts: ClassVar[dict[str, dict[int, int]]] = {}  # of uploads that are not complete
    rate = 0
    late_seconds = 0.0
    due = 0.0
    lock = threading.Lock()


class Store(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    @property
    def key(self) -> str:
        """Return the name of the object, empty of the bucket."""
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    @property
    def asked(self) -> dict[str, str]:
        """Return what stands behind the question mark."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def take(self) -> tuple[int, str]:
        """Take what is sent; return how much, and its sum."""
        left = whole = int(self.headers.get("Content-Length") or 0)
        found = None if "uploadId" in self.asked else hashlib.md5(usedforsecurity=False)  # nobody sums parts up
        while left > 0 and (piece := self.rfile.read(min(left, PIECE))):
            left -= len(piece)
            if found is not None:
                found.update(piece)
            if Bucket.rate:
                with Bucket.lock:
                    Bucket.due = max(Bucket.due, time.monotonic() - 0.05) + len(piece) / Bucket.rate
                    wait = Bucket.due - time.monotonic()
                time.sleep(max(0.0, wait))
        return whole, "0" if found is None else found.hexdigest()

    def answer(self, body: str = "", status: int = 200, **headers: str) -> None:
        """Answer, with a body or none."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def described(self, one: Thing) -> dict[str, str]:
        """Return the headers of an object."""
        return {"ETag": f'"{one.tag}"', "Last_Modified": formatdate(one.at, usegmt=True), **one.headers}

    def do_HEAD(self) -> None:
        """Tell of an object, or that there is a bucket."""
        one = Bucket.things.get(self.key)
        if one is not None:
            self.answer(Content_Length=str(one.size), **self.described(one))
        else:
            self.answer(status=404 if self.key else 200)

    def do_GET(self) -> None:
        """Give zeros, or the list of objects."""
        one = Bucket.things.get(self.key)
        if one is None:
            self.answer(self.listed(), status=404 if self.key else 200, Content_Type="application/xml")
            return
        first, last = 0, one.size - 1
        if (wanted := self.headers.get("Range", "")).startswith("bytes="):
            begin, _, end = wanted[6:].partition("-")
            first, last = int(begin), min(last, int(end or last))
        headers = {**self.described(one), "Content_Range": f"bytes {first}-{last}/{one.size}"}
        self.answer(status=206 if wanted else 200, Content_Length=str(last - first + 1), **headers)
        for begin in range(first, last + 1, PIECE):
            self.wfile.write(bytes(min(PIECE, last + 1 - begin)))

    def listed(self) -> str:
        """Return the objects whose names begin so, and the folders."""
        prefix, delimiter = self.asked.get("prefix", ""), self.asked.get("delimiter", "")
        lines, folders = [], set()
        for name, one in sorted(Bucket.things.items()):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            lines.append(
                f"<Contents><Key>{escape(name)}</Key><Size>{one.size}</Size><ETag>&quot;{one.tag}&quot;</ETag>"
                f"<LastModified>{NEVER}</LastModified></Contents>"
            )
        lines += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)]
        kept = f"<Name>bucket</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(lines)}</KeyCount>"
        return f"<ListBucketResult>{kept}<IsTruncated>false</IsTruncated>{''.join(lines)}</ListBucketResult>"

    def do_PUT(self) -> None:
        """Store an object, a part of one, or a copy of one under another name."""
        size, tag = self.take()
        headers = {name.replace("-", "_"): value for name, value in self.headers.items()
                   if name.lower().startswith("x-amz-meta-") or name == "Content-Type"}  # fmt: skip
        if "uploadId" in self.asked:
            Bucket.parts[self.asked["uploadId"]][int(self.asked["partNumber"])] = size
        elif source := unquote(self.headers.get("x-amz-copy-source", "")).lstrip("/").partition("/")[2]:
            one = Bucket.things[source]
            Bucket.things[self.key] = Thing(one.size, headers or one.headers, one.tag)
            self.answer(f'<CopyObjectResult><ETag>"{one.tag}"</ETag></CopyObjectResult>')
            return
        elif self.key:
            Bucket.things[self.key] = Thing(size, headers, tag)
        if size:
            time.sleep(Bucket.late_seconds)
        self.answer(ETag=f'"{tag}"')

    def do_POST(self) -> None:
        """Begin an upload in parts, or end it."""
        self.take()
        headers = {name.replace("-", "_"): value for name, value in self.headers.items()
                   if name.lower().startswith("x-amz-meta-")}  # fmt: skip
        if "uploads" in self.asked:
            name = f"{len(Bucket.parts)}"
            Bucket.parts[name] = {}
            Bucket.things[f"\0{name}"] = Thing(0, headers, "")
            self.answer(f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>")
            return
        name = self.asked["uploadId"]
        headers = Bucket.things.pop(f"\0{name}").headers
        parts = Bucket.parts.pop(name)
        Bucket.things[self.key] = Thing(sum(parts.values()), headers, f"{name}-{len(parts)}")
        self.answer(f'<CompleteMultipartUploadResult><ETag>"{name}"</ETag></CompleteMultipartUploadResult>')

    def do_DELETE(self) -> None:
        """Take an object away."""
        Bucket.things.pop(self.key, None)
        self.answer(status=204)


def main() -> None:
    """Serve for ever."""
    port, *more = sys.argv[1:]
    Bucket.rate = int(more[0]) if more else 0
    Bucket.late_seconds = float(more[1]) if len(more) > 1 else 0.0
    address = more[2] if len(more) > 2 else "0.0.0.0"  # noqa: S104 - in a namespace of its own
    ThreadingHTTPServer((address, int(port)), Store).serve_forever()


if __name__ == "__main__":
    main()
