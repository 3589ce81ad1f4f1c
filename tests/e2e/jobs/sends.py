"""A trainer that sends its state to an object store without a file, or one that sends what is no state.

    python sends.py WAY --dir DIR --truth TRUTH

The store is a process of its own, which takes what it is sent, and of each object keeps how large it was. WAY is one
of SAVES, of which each save is logged, of RESTORES, in which a second run goes on from the last one, or of OTHERS,
which are to be told by nobody. Each trains on its main thread all the time.

Of RESTORES `s3fs` and `s3torch` need the packages s3fs and s3torchconnector, which no group of dependencies has (s3fs
wants another botocore): `pip install --target DIR`, PYTHONPATH=DIR. Their store is moto, which keeps what it is sent.
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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

PORT = 9000
MIB = 1 << 20
STATE_MIB = 64
SAVES = ("boto3", "boto3-tls", "put", "thread")
RESTORES = ("restores", "restores-one", "s3fs", "s3torch")  # of several saves, of a single one, by other clients
KEY, SECRET = "key-of-nobody", "secret-of-nobody"
OTHERS = ("streams", "uploads-files", "beside-files", "logs", "pictures", "gradients", "gathers")


class Store(BaseHTTPRequestHandler):
    """As much of S3 as a client needs that puts and gets objects; what it gets are zeros."""

    protocol_version = "HTTP/1.1"
    sizes: ClassVar[Counter[str]] = Counter()  # of objects, by path
    one_by_one = threading.Lock()  # parts come at a time

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _take(self) -> None:
        left = int(self.headers.get("Content-Length", 0))
        with self.one_by_one:
            self.sizes[urlsplit(self.path).path] += left
        while left > 0 and (piece := self.rfile.read(min(left, MIB))):
            left -= len(piece)

    def _answer(self, body: bytes = b"", *, status: int = 200, size: int | None = None, part: str = "") -> None:
        self.send_response(status)
        if part:
            self.send_header("Content-Range", part)
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", str(len(body) if size is None else size))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        """Take an object, or a part of one."""
        self._take()
        self._answer()

    def do_POST(self) -> None:
        """Begin an upload in parts, or end it, or take a log."""
        if self.path.endswith("?uploads"):
            self.sizes[urlsplit(self.path).path] = 0
        left = int(self.headers.get("Content-Length", 0))
        self.rfile.read(left)
        what = "Initiate" if self.path.endswith("?uploads") else "Complete"
        self._answer(f"<{what}MultipartUploadResult><UploadId>1</UploadId></{what}MultipartUploadResult>".encode())

    def do_HEAD(self) -> None:
        """Say how large an object is."""
        self._answer(size=self.sizes[urlsplit(self.path).path])

    def do_GET(self) -> None:
        """Give a range of an object, or 8 MiB."""
        if "Range" not in self.headers:
            self._answer(bytes(8 * MIB))
            return
        size = self.sizes[urlsplit(self.path).path]
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        until = min(int(last or size) + 1, size)
        self._answer(bytes(until - int(first)), status=206, part=f"bytes {first}-{until - 1}/{size}")


def serve(address: str, port: int, certificate: str) -> None:
    """Serve for ever; with a `certificate` over TLS."""
    server = ThreadingHTTPServer((address, port), Store)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", flush=True)  # noqa: T201 - to who started it
    server.serve_forever()


@contextmanager
def store(folder: Path, *, tls: bool = False, port: int = PORT, keeps: bool = False) -> Iterator[str]:
    """Give the address of a store of one's own; `keeps`: it keeps what it is sent."""
    address = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{max(2, os.getpid() & 255)}"
    certificate = folder / "both.pem"
    if tls:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={address}",
             "-keyout", str(certificate), "-out", str(folder / "certificate.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
        certificate.write_text(certificate.read_text() + (folder / "certificate.pem").read_text())
    words = [sys.executable, __file__, "serve", "--address", address, "--port", str(port)]
    words += ["--certificate", str(certificate)] if tls else []
    if keeps:
        words = [sys.executable, "-m", "moto.server", "--host", address, "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if keeps else None) as server:
        assert server.stdout is not None
        try:
            if keeps:
                make_bucket(address, port)
            else:
                server.stdout.readline()
            yield address
        finally:
            server.kill()


def make_bucket(address: str, port: int) -> None:
    """Wait for a store, and make the bucket there."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(0.2)
        with suppress(OSError):
            connection = http.client.HTTPConnection(address, port)
            connection.request("PUT", "/bucket")
            connection.getresponse().read()
            return
    raise TimeoutError("the store does not come up")


def client_of(address: str, *, tls: bool) -> Any:  # boto3 makes its classes as it runs
    """Return a client of the store."""
    import boto3  # noqa: PLC0415 - not all need it
    from botocore.config import Config  # noqa: PLC0415 - likewise

    return boto3.client(
        "s3", endpoint_url=f"http{'s' * tls}://{address}:{PORT}", region_name="us-east-1",
        aws_access_key_id=KEY, aws_secret_access_key=SECRET, verify=False,
        config=Config(request_checksum_calculation="when_required", response_checksum_validation="when_required",
                      s3={"addressing_style": "path"}),
    )  # fmt: skip


def files_of(address: str) -> Any:  # of a package that may be missing
    """Return the store as a file system of fsspec."""
    import s3fs  # noqa: PLC0415 - as above

    return s3fs.S3FileSystem(endpoint_url=f"http://{address}:{PORT}", key=KEY, secret=SECRET)


def connector_to(address: str) -> Any:  # likewise
    """Return s3torchconnector's way to checkpoints in the store."""
    from s3torchconnector import S3Checkpoint, S3ClientConfig  # noqa: PLC0415 - as above

    os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    config = S3ClientConfig(force_path_style=True)
    return S3Checkpoint(region="us-east-1", endpoint=f"http://{address}:{PORT}", s3client_config=config)


def opener(way: str, address: str) -> Callable[[str, str], Any]:
    """Return what opens an object of the store by name, to write or to read."""
    if way == "s3fs":
        files = files_of(address)
        return lambda name, mode: files.open(f"bucket/{name}", mode)
    connector = connector_to(address)
    return lambda name, mode: (connector.writer if mode == "wb" else connector.reader)(f"s3://bucket/{name}")


def sender(way: str, address: str) -> Callable[[bytes, str], None]:
    """Return what sends some bytes under a name."""
    if way.startswith("s3"):
        opened = opener(way, address)

        def write(body: bytes, name: str) -> None:
            with opened(name, "wb") as out:
                out.write(body)

        return write
    if not way.startswith(("boto3", "restores")):
        connection = http.client.HTTPConnection(address, PORT)

        def put(body: bytes, name: str) -> None:
            connection.request("PUT", f"/bucket/{name}", body)
            connection.getresponse().read()

        return put
    client = client_of(address, tls=way.endswith("tls"))
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
        log(truth, "save", len(body), start_ns)
    train(4.0)


def log(truth: Path, kind: str, size: int, start_ns: int) -> None:
    """Take note of what is over."""
    event = {"kind": kind, "bytes": size, "start_ns": start_ns, "end_ns": time.time_ns()}
    with truth.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(event) + "\n")


def restore(way: str, address: str, truth: Path, name: str) -> None:
    """Go on from what was saved; where the store keeps no more than its size, what it is is not looked at."""
    import torch  # noqa: PLC0415 - as above

    train(1.0)  # it imports, and meets the others
    start_ns = time.time_ns()
    if way.startswith("s3"):
        with opener(way, address)(name, "rb") as source:
            size = torch.load(source)["weights"].nbytes
    else:
        body = io.BytesIO()
        client_of(address, tls=False).download_fileobj("bucket", name, body)
        size = body.getbuffer().nbytes  # parts come in any order
    log(truth, "restore", size, start_ns)


def restarts(way: str, address: str, truth: Path, number: int) -> None:
    """Let one run save, and another one go on from its last save."""
    number = 1 if way.endswith("one") else number
    words = [sys.executable, __file__, way, "--address", address, "--truth", str(truth)]
    subprocess.run([*words, "--saves", str(number)], check=True)
    subprocess.run([*words, "--saves", "1", "--from", f"step_{number}.pt"], check=True)


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


def note_pid(folder: Path) -> None:
    """Write down whose sends these are: they have no path."""
    with (folder / "pids").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def collective(way: str, rank: int, folder: Path) -> None:
    """Train on two ranks that exchange gradients at each step, or send their state to the first one now and then."""
    import torch  # noqa: PLC0415 - as above
    import torch.distributed as dist  # noqa: PLC0415

    note_pid(folder)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
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
    parser.add_argument("way", choices=("serve", *SAVES, *RESTORES, *OTHERS))
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--address", default="")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--certificate", default="")
    parser.add_argument("--from", default="", dest="name")
    told = parser.parse_args()
    if told.way == "serve":
        serve(told.address, told.port, told.certificate)
        return
    if told.address:
        if told.name:
            restore(told.way, told.address, told.truth, told.name)
        saves(told.way, told.address, told.truth, told.saves)
        return
    told.dir.mkdir(parents=True, exist_ok=True)
    if told.way in {"gradients", "gathers"}:
        if os.fork() == 0:
            collective(told.way, 1, told.dir)
        else:
            collective(told.way, 0, told.dir)
            os.wait()
        return
    with store(told.dir, tls=told.way.endswith("tls"), keeps=told.way.startswith("s3")) as address:
        if told.way in SAVES:
            saves(told.way, address, told.truth, told.saves)
        elif told.way in RESTORES:
            restarts(told.way, address, told.truth, told.saves)
        else:
            others(told.way, address, told.dir)


if __name__ == "__main__":
    main()
