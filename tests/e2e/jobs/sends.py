"""A trainer that sends its state to an object store without a file, or one that receives what is no state.

    python sends.py WAY --dir DIR --truth TRUTH

The store is faults/object_server.py, a process of its own. WAY is `saves`, of which each save is logged, `restores`, in
which a second run goes on from the last one, or `streams`, which fetches a data set. Each trains on its main thread.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import torch
from botocore.config import Config

PORT = 9000
MIB = 1 << 20
STATE_MIB = 64
SERVER = Path(__file__).resolve().parents[1] / "faults" / "object_server.py"


@contextmanager
def store() -> Iterator[str]:
    """Give the address of a store of one's own."""
    address = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{max(2, os.getpid() & 255)}"
    with subprocess.Popen([sys.executable, SERVER, str(PORT), "0", "0", address]) as server:
        try:
            while True:
                try:
                    client_of(address).put_object(Bucket="bucket", Key="shard", Body=bytes(8 * MIB))
                    break
                except botocore.exceptions.EndpointConnectionError:
                    time.sleep(0.2)
            yield address
        finally:
            server.kill()


def client_of(address: str) -> Any:  # boto3 makes its classes as it runs
    """Return a client of the store."""
    return boto3.client(
        "s3", endpoint_url=f"http://{address}:{PORT}", region_name="us-east-1",
        aws_access_key_id="key-of-nobody", aws_secret_access_key="secret-of-nobody",  # noqa: S106 - no secret
        config=Config(request_checksum_calculation="when_required", response_checksum_validation="when_required",
                      s3={"addressing_style": "path"}),
    )  # fmt: skip


def train(seconds: float) -> None:
    """Multiply matrices."""
    weights = torch.rand(256, 256)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        weights = torch.tanh(weights @ weights)
        time.sleep(0.002)


def state() -> bytes:
    """Return the state of a training as torch.save writes it."""
    written = io.BytesIO()
    torch.save({"weights": torch.rand(STATE_MIB << 18)}, written)
    return written.getvalue()


def saves(client: Any, truth: Path, number: int) -> None:
    """Train and save; log each save."""
    for step in range(1, number + 1):
        train(6.0)
        body = state()
        start_ns = time.time_ns()
        client.upload_fileobj(io.BytesIO(body), "bucket", f"step_{step}.pt")
        log(truth, "save", len(body), start_ns)
    train(4.0)


def log(truth: Path, kind: str, size: int, start_ns: int) -> None:
    """Record what has ended now."""
    event = {"kind": kind, "bytes": size, "start_ns": start_ns, "end_ns": time.time_ns()}
    with truth.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(event) + "\n")


def restore(client: Any, truth: Path, name: str) -> None:
    """Fetch what was saved; the store keeps no more than its size, so it is not loaded.

    The client keeps its connections: polled, nothing shows whose those were that opened and closed between two samples.
    """
    train(1.0)  # it imports, and meets the others
    body, start_ns = io.BytesIO(), time.time_ns()
    client.download_fileobj("bucket", name, body)
    log(truth, "restore", body.getbuffer().nbytes, start_ns)


def restarts(address: str, truth: Path, number: int) -> None:
    """Let one run save, and another one go on from its last save."""
    words = [sys.executable, __file__, "saves", "--address", address, "--truth", str(truth)]
    subprocess.run([*words, "--saves", str(number)], check=True)
    subprocess.run([*words, "--saves", "1", "--from", f"step_{number}.pt"], check=True)


def streams(address: str) -> None:
    """Fetch a data set of 480 MiB while it trains."""
    client = client_of(address)
    for _ in range(60):
        client.get_object(Bucket="bucket", Key="shard")["Body"].read()
        train(0.2)


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("saves", "restores", "streams"))
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--address", default="")
    parser.add_argument("--from", default="", dest="name")
    told = parser.parse_args()
    if told.address:
        client = client_of(told.address)
        if told.name:
            restore(client, told.truth, told.name)
        saves(client, told.truth, told.saves)
        return
    with store() as address:
        if told.way == "saves":
            saves(client_of(address), told.truth, told.saves)
        elif told.way == "restores":
            restarts(address, told.truth, told.saves)
        else:
            streams(address)


if __name__ == "__main__":
    main()
