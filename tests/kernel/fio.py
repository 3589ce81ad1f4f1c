"""Jobs of fio: how they are started, and what fio itself says that it did (its JSON and its log of operations)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernel.order import Order, order_of

MIB = 1 << 20
SIZE = 8 * MIB

ENGINES: dict[str, tuple[str, ...]] = {
    "sync": ("--ioengine=sync",),
    "psync": ("--ioengine=psync",),
    "pvsync": ("--ioengine=pvsync",),
    "pvsync2": ("--ioengine=pvsync2",),
    "libaio": ("--ioengine=libaio", "--iodepth=16"),
    "posixaio": ("--ioengine=posixaio", "--iodepth=1"),
    "io_uring": ("--ioengine=io_uring", "--iodepth=16"),
    "io_uring-fixed": ("--ioengine=io_uring", "--iodepth=16", "--fixedbufs=1", "--registerfiles=1"),
    "io_uring-sqpoll": ("--ioengine=io_uring", "--iodepth=16", "--sqthread_poll=1"),
    "mmap": ("--ioengine=mmap",),
}
WAYS = ("psync", "io_uring", "mmap")  # into the kernel: a call, a ring, a mapping
# pattern -> (rw of a write, rw of a read, options)
PATTERNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "seq-1m": ("write", "read", ("--bs=1m",)),
    "seq-4k": ("write", "read", ("--bs=4k",)),
    "strided": ("write:64k", "read:64k", ("--bs=64k", f"--io_size={SIZE // 2}")),  # a gap of its own size after each
    "random-4k": ("randwrite", "randread", ("--bs=4k",)),
    "mixed-16k": ("randrw", "randrw", ("--bs=16k",)),
}


@dataclass(frozen=True)
class Job:
    """One row of the matrix."""

    engine: str
    pattern: str
    writes: bool
    direct: bool

    @property
    def directions(self) -> tuple[bool, ...]:
        """Return in which directions it moves bytes, as `writes`."""
        return (False, True) if self.pattern == "mixed-16k" else (self.writes,)

    def __str__(self) -> str:
        """Name the row."""
        way = "mixed" if len(self.directions) == 2 else "write" if self.writes else "read"
        return f"{self.engine}-{self.pattern}-{way}-{'direct' if self.direct else 'buffered'}"

    def command(self, fio: str, file: Path, log: Path) -> list[str]:
        """Return the command line: the file must be there, so that fio lays out none."""
        rw = PATTERNS[self.pattern][0 if self.writes else 1]
        return [
            fio,
            "--name=job",
            f"--filename={file}",
            f"--size={SIZE}",
            f"--rw={rw}",
            f"--direct={int(self.direct)}",
            "--fallocate=none",
            "--overwrite=1",
            "--invalidate=1",
            "--eta=never",
            "--output-format=json",
            f"--write_iolog={log}",
            *ENGINES[self.engine],
            *PATTERNS[self.pattern][2],
        ]


def patterns() -> list[Job]:
    """Return every pattern, in both directions and ways, of each way into the kernel; a mapping has no O_DIRECT."""
    rows = [
        Job(engine, pattern, writes, direct)
        for engine in WAYS
        for pattern in PATTERNS
        for writes in (True, False)
        for direct in (False, True)
    ]
    return [
        row for row in rows if not (row.direct and row.engine == "mmap") and (row.writes or len(row.directions) == 1)
    ]


def covering() -> list[Job]:
    """Return rows that take every engine once sequentially and once at random, in both directions and ways."""
    rows = []
    for number, engine in enumerate(ENGINES):
        writes = number % 2 == 0
        for direct in (False, True):
            rows += [
                Job(engine, "seq-1m", writes is not direct, direct),
                Job(engine, "random-4k", writes is direct, direct),
            ]
        rows.append(Job(engine, ("strided", "seq-4k", "mixed-16k")[number % 3], writes, direct=False))
    return [row for row in rows if not (row.direct and row.engine == "mmap")]


@dataclass(frozen=True)
class Truth:
    """What fio says of one direction."""

    operations: int
    bytes: int
    order: Order  # by its log


def truths(output: bytes, log: Path, directions: Sequence[bool]) -> dict[bool, Truth]:
    """Return fio's account for each direction, as `writes`."""
    document: dict[str, Any] = json.loads(output)
    (job,) = document["jobs"]
    logged: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for line in log.read_text().splitlines():
        words = line.split()
        if len(words) == 5 and words[2] in ("read", "write"):
            logged[words[2] == "write"].append((int(words[3]), int(words[4])))
    made = {}
    for writes in directions:
        said = job["write" if writes else "read"]
        made[writes] = Truth(said["total_ios"], said["io_bytes"], order_of(logged[writes]))
    return made
