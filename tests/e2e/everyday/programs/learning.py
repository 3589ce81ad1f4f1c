"""What a job with torch loaded writes beside its checkpoints: event files, traces, predictions, compiled kernels, logs.

The event files are written here record by record, as TensorBoard's writer writes them: it is not installed everywhere.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
import zlib
from pathlib import Path

import torch

MB = 1 << 20


def _record(stream: object, body: bytes) -> None:
    head = struct.pack("<Q", len(body))
    stream.write(head + struct.pack("<I", zlib.crc32(head)) + body + struct.pack("<I", zlib.crc32(body)))  # type: ignore[attr-defined] # a binary stream


def events() -> None:
    """Write scalars and then histograms and images of 50 MB, flushed every now and then."""
    Path("runs/exp1").mkdir(parents=True)
    with Path("runs/exp1/events.out.tfevents.1795251879.host.4711.0").open("ab") as stream:
        for step in range(50):
            for _ in range(100):
                _record(stream, b"scalar" + os.urandom(40))
            _record(stream, os.urandom(MB))
            stream.flush()
            time.sleep(0.03 * (step % 2))


def tracker() -> None:
    """Append to a run's own log and write media files beside, as experiment trackers do."""
    folder = Path("wandb/run-20261121-abc")
    (folder / "files/media/images").mkdir(parents=True)
    with (folder / "run-abc.wandb").open("ab") as stream:
        for step in range(20):
            stream.write(os.urandom(2 * MB))
            stream.flush()
            (folder / f"files/media/images/sample_{step}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(MB))
            time.sleep(0.05)
    (folder / "files/output.log").write_bytes(b"loss 0.1\n" * 100_000)


def traces() -> None:
    """Write a trace of 30 MB for the browser every now and then, as profilers do."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": 123456.789, "dur": 12}
    body = json.dumps(event)
    for number in range(3):
        with Path(f"trace_rank0_step{number * 100}.pt.trace.json").open("w") as stream:
            stream.write('{"traceEvents": [' + ",".join([body] * 250_000) + "]}")
        time.sleep(0.5)


def predictions() -> None:
    """Save the outputs of an evaluation, a file per batch."""
    Path("outputs").mkdir()
    for number in range(6):
        torch.save({"logits": torch.rand(3_000_000)}, f"outputs/predictions_{number:03d}.pt")
        time.sleep(0.3)


def kernels() -> None:
    """Fill a cache of compiled kernels: temporary names, then renames, hundreds of files."""
    for number in range(300):
        folder = Path(f"torchinductor_root/{number % 16:02x}")
        folder.mkdir(parents=True, exist_ok=True)
        for suffix in ("cpp", "so", "cubin", "json"):
            target = folder / f"c{number:050x}.{suffix}"
            temporary = folder / f".{os.getpid()}.{number}.tmp"
            temporary.write_bytes(os.urandom(120_000 if suffix == "so" else 20_000))
            temporary.replace(target)


def train() -> None:
    """Learn for some seconds, with a log that grows by 8 MB/s."""
    torch.set_num_threads(1)
    model, line = torch.nn.Linear(512, 512), b"step 100 loss 0.1234 lr 1e-4\n" * 2000
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    end = time.monotonic() + 3
    with Path("train.log").open("ab") as log:
        while time.monotonic() < end:
            optimizer.zero_grad()
            model(torch.rand(256, 512)).square().mean().backward()
            optimizer.step()
            log.write(line)
            time.sleep(0.007)


if __name__ == "__main__":
    known = (events, tracker, traces, predictions, kernels, train)
    {work.__name__: work for work in known}[sys.argv[1]]()
