"""Saves that are built in memory before their one write, and a restore that is parsed after its one read.

`text`: trees become text, which is kept until the next save. `buffer`: PyTorch saves into memory, which is kept.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SAVES = 3
TRAIN_SECONDS = 2.5


@contextmanager
def logged(truth: Path, kind: str, step: int, path: Path) -> Iterator[None]:
    """Log what is done within as one save or restore, all of which blocks training."""
    start_ns = time.time_ns()
    yield
    end_ns = time.time_ns()
    event = {"kind": kind, "step": step, "path": str(path), "bytes": path.stat().st_size}
    event |= {"mode": "sync"} if kind == "save" else {}
    with truth.open("a", encoding="utf-8") as log:
        log.write(json.dumps({**event, "start_ns": start_ns, "end_ns": end_ns, "stall_ns": end_ns - start_ns}) + "\n")


def run(told: argparse.Namespace, name: str, step: Callable[[], None], *, build: Callable[[], bytes | memoryview],
        parse: Callable[[bytes], None]) -> None:  # fmt: skip
    """Train, save several times, and restore the last one."""

    def train() -> None:
        end_s = time.monotonic() + TRAIN_SECONDS
        while time.monotonic() < end_s:
            step()

    train()
    for number in range(1, SAVES + 1):
        path = told.dir / name.format(number)
        with logged(told.truth, "save", number, path):
            body = build()
            with path.open("wb", buffering=0) as stream:
                stream.write(body)
        train()
    with path.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with logged(told.truth, "restore", SAVES, path):
        parse(path.read_bytes())
    train()
    del body


def text(told: argparse.Namespace) -> None:
    """Boost: the trees are a few numbers, their text is ten times as long."""
    import numpy as np  # noqa: PLC0415 - the other kind needs none

    random = np.random.default_rng(7)
    values = random.random((20_000, 60), dtype=np.float32)
    trees: list[np.ndarray] = []

    def step() -> None:
        np.histogram(values[:, len(trees) % 60], bins=255, weights=random.standard_normal(len(values)))

    def build() -> bytes:
        trees.extend(random.random((1200, 500)))
        return "\n".join(" ".join(map("{:.17g}".format, tree.tolist())) for tree in trees).encode()

    def parse(body: bytes) -> None:
        trees[:] = [np.array(line.split(), dtype="f8") for line in body.decode().splitlines()]

    run(told, "model.txt.snapshot_iter_{}", step, build=build, parse=parse)


def buffer(told: argparse.Namespace) -> None:
    """Train a network whose memory rises and falls in each step; its state goes through memory of its own."""
    import torch  # noqa: PLC0415 - the other kind needs none

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000) for _ in range(6)])
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(64, 1000)).square().mean().backward()
        optimizer.step()

    def build() -> memoryview:
        whole = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, whole)
        return whole.getbuffer()

    def parse(body: bytes) -> None:
        state = torch.load(io.BytesIO(body))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    run(told, "ckpt_{}.pt", step, build=build, parse=parse)


def main() -> None:
    """Do one kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("text", "buffer"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("truth", type=Path)
    told = parser.parse_args()
    told.dir.mkdir(parents=True, exist_ok=True)
    {"text": text, "buffer": buffer}[told.kind](told)


if __name__ == "__main__":
    main()
