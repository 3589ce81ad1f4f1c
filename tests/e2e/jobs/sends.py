"""A trainer that sends its state to an object store without a file, or one that sends what is no state.

    python sends.py WAY --dir DIR --truth TRUTH

The store is a process of its own, which takes what it is sent and keeps none of it. WAY is one of SAVES, of which each
save is logged, or of OTHERS, which are to be told by nobody. Each trains on its main thread all the time.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT = 9000
MIB = 1 << 20
STATE_MIB = 64
SAVES = ("boto3", "boto3-tls", "put", "thread")
OTHERS = ("streams", "uploads-files", "beside-files", "logs", "pictures", "gradients", "gathers")


class Store(BaseHTTPRequestHandler):
    """As much of S3 as a client needs that puts and gets objects; what it gets are zeros."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _take(self) -> None:
        left = int(self.headers.get("Content-Length", 0))
        while left > 0 and (piece := self.rfile.read(min(left, MIB))):
            left -= len(piece)

    def _answer(self, body: bytes = b"") -> None:
        self.send_response(200)
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        """Take an object, or a part of one."""
        self._take()
        self._answer()

    def do_POST(self) -> None:
        """Begin an upload in parts, or end it, or take a log."""
        self._take()
        what = "Initiate" if self.path.endswith("?uploads") else "Complete"
        self._answer(f"<{what}MultipartUploadResult><UploadId>1</UploadId></{what}MultipartUploadResult>".encode())

    def do_GET(self) -> None:
        """Give 8 MiB."""
        self._answer(bytes(8 * MIB))


def serve(address: str, certificate: str) -> None:
    """Serve for ever; with a `certificate` over TLS."""
    server = ThreadingHTTPServer((address, PORT), Store)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", flush=True)  # noqa: T201 - to who started it
    server.serve_forever()


@contextmanager
def store(folder: Path, *, tls: bool) -> Iterator[str]:
    """Give the address of a store of one's own."""
    address = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{max(2, os.getpid() & 255)}"
    certificate = folder / "both.pem"
    if tls:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={address}",
             "-keyout", str(certificate), "-out", str(folder / "certificate.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
        certificate.write_text(certificate.read_text() + (folder / "certificate.pem").read_text())
    words = [sys.executable, __file__, "serve", "--address", address, "--certificate", str(certificate) * tls]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield address
        finally:
            server.kill()


def sender(way: str, address: str) -> Callable[[bytes, str], None]:
    """Return what sends some bytes under a name."""
    if not way.startswith("boto3"):
        connection = http.client.HTTPConnection(address, PORT)

        def put(body: bytes, name: str) -> None:
            connection.request("PUT", f"/bucket/{name}", body)
            connection.getresponse().read()

        return put
    import boto3  # noqa: PLC0415 - the others need none
    from botocore.config import Config  # noqa: PLC0415

    client = boto3.client(
        "s3", endpoint_url=f"http{'s' * way.endswith('tls')}://{address}:{PORT}", region_name="us-east-1",
        aws_access_key_id="key", aws_secret_access_key="secret", verify=False,  # noqa: S106 - of nothing
        config=Config(request_checksum_calculation="when_required", s3={"addressing_style": "path"}),
    )  # fmt: skip
    return lambda body, name: client.upload_fileobj(io.BytesIO(body), "bucket", name)


def train(seconds: float) -> None:
    """Multiply matrices."""
    import torch  # noqa: PLC0415 - the store needs none

    weights = torch.rand(256, 256)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        weights = torch.tanh(weights @ weights)
        time.sleep(0.002)


def state() -> bytes:
    """Return the state of a training as torch.save writes it."""
    import torch  # noqa: PLC0415 - as above

    written = io.BytesIO()
    torch.save({"weights": torch.rand(STATE_MIB << 18)}, written)
    return written.getvalue()


def saves(way: str, address: str, truth: Path, number: int) -> None:
    """Train and save; log each save."""
    send = sender(way, address)
    for step in range(1, number + 1):
        train(6.0)
        body, threads = state(), []
        start_ns = time.time_ns()
        if way == "thread":
            threads = [threading.Thread(target=send, args=(body, f"step_{step}.pt"))]
            threads[0].start()
            train(0.5)
            threads[0].join()
        else:
            send(body, f"step_{step}.pt")
        event = {"kind": "save", "bytes": len(body), "start_ns": start_ns, "end_ns": time.time_ns()}
        with truth.open("a", encoding="utf-8") as log:
            log.write(json.dumps(event) + "\n")
    train(4.0)


def others(way: str, address: str, folder: Path) -> None:
    """Train, and send what is no state, or receive."""
    send = sender("boto3" if way == "uploads-files" else "put", address)
    body = state()
    if way == "streams":
        connection = http.client.HTTPConnection(address, PORT)
        for _ in range(60):
            connection.request("GET", "/bucket/shard")
            connection.getresponse().read()
            train(0.2)
        return
    sizes = {"logs": (200_000, 0.2, 60), "pictures": (2 * MIB, 2.0, 6)}
    size, pause, times = sizes.get(way, (len(body), 3.0, 4))
    for number in range(times):
        train(pause)
        path = folder / f"data_{number}.bin"
        if way in {"uploads-files", "beside-files"}:
            path.write_bytes(body)
        if way == "uploads-files":
            send(path.read_bytes(), path.name)
        else:
            send(body[:size], "object")
    train(4.0)


def collective(way: str, rank: int, meeting: str) -> None:
    """Train on two ranks that exchange gradients at each step, or send their state to the first one now and then."""
    import torch  # noqa: PLC0415 - as above
    import torch.distributed as dist  # noqa: PLC0415

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    own = torch.rand(STATE_MIB << 18)
    for _ in range(6 if way == "gathers" else 15):
        train(2.0 if way == "gathers" else 0.5)
        if way == "gradients":
            dist.all_reduce(own)
        else:
            dist.gather(own, [torch.empty_like(own) for _ in range(2)] if rank == 0 else None)
    dist.destroy_process_group()
    train(4.0)


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("serve", *SAVES, *OTHERS))
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--address", default="")
    parser.add_argument("--certificate", default="")
    told = parser.parse_args()
    if told.way == "serve":
        serve(told.address, told.certificate)
        return
    told.dir.mkdir(parents=True, exist_ok=True)
    if told.way in {"gradients", "gathers"}:
        if os.fork() == 0:
            collective(told.way, 1, str(told.dir / "meeting"))
        else:
            collective(told.way, 0, str(told.dir / "meeting"))
            os.wait()
        return
    with store(told.dir, tls=told.way.endswith("tls")) as address:
        if told.way in SAVES:
            saves(told.way, address, told.truth, told.saves)
        else:
            others(told.way, address, told.dir)


if __name__ == "__main__":
    main()
