"""Jobs that save in ways which make it hard: `python badjobs.py WHAT FOLDER TRUTH`, with torch loaded.

The truth is JSON lines as of examples/truth.py.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples"))

import torch

from truth import TruthLog

WRITERS, FILES = int(os.environ.get("BAD_WRITERS", "5000")), int(os.environ.get("BAD_FILES", "100000"))
MB = 1 << 20


def short_lived_writers(folder: Path, log: TruthLog) -> None:
    """Save a step by thousands of children, each of which writes one file of 20 to 200 KB and ends."""
    step = folder / "step_100"
    step.mkdir()
    body = os.urandom(200_000)
    with log.event("save", step=100, path=step, format_="torch"):
        alive = 0
        for number in range(WRITERS):
            if os.fork() == 0:
                size = 20_000 + number * 7919 % 180_000
                descriptor = os.open(step / f"shard_{number:05d}.bin", os.O_WRONLY | os.O_CREAT, 0o644)
                os.write(descriptor, body[:size])
                os._exit(0)
            alive += 1
            if alive == 16:
                os.wait()
                alive -= 1
        for _ in range(alive):
            os.wait()


def many_files(folder: Path, log: TruthLog) -> None:
    """Save a step as a hundred thousand files, each under a temporary name first."""
    step = folder / "checkpoint-200"
    step.mkdir()
    body = os.urandom(2000)
    with log.event("save", step=200, path=step, format_="torch"):
        for number in range(FILES):
            temporary = f"{step}/{number:06d}.tmp"
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(descriptor, body)
            os.close(descriptor)
            os.rename(temporary, f"{step}/{number:06d}.bin")  # noqa: PTH104 - a hundred thousand times


class Fatal:
    """A stream that kills its writer after so many bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        self._stream, self._left = path.open("wb"), limit

    def write(self, data: bytes) -> int:
        """Write, or die as by the out-of-memory killer."""
        self._left -= len(data)
        if self._left < 0:
            self._stream.flush()
            os.kill(os.getpid(), 9)
        time.sleep(len(data) / (120 * MB))  # half a second for all: how short a save may be is not what this asks
        return self._stream.write(data)

    def flush(self) -> None:
        """Flush."""
        self._stream.flush()


def dies(folder: Path, log: TruthLog) -> None:
    """Save once well, then die in the middle of the next save."""
    state = {f"layer{number}": torch.rand(1 << 20) for number in range(30)}
    with log.event("save", step=1, path=folder / "ckpt_0001.pt", format_="torch"):
        torch.save(state, folder / "ckpt_0001.pt")
    time.sleep(3)
    with log.event("save", step=2, path=folder / "ckpt_0002.pt", format_="torch"):
        torch.save(state, Fatal(folder / "ckpt_0002.pt", 60 * MB))  # type: ignore[arg-type] # it writes, and that is all


def late_rank(folder: Path, log: TruthLog) -> None:
    """Save by two ranks, the second of which begins when the first has ended, three seconds later."""
    step = folder / "step_300"
    step.mkdir()
    with log.event("save", step=300, path=step, format_="dcp"):
        for rank in range(2):
            child = os.fork()
            if child == 0:
                one_rank(step, rank)
                os._exit(0)
            os.waitpid(child, 0)
            time.sleep(3 * (1 - rank))
        (step / ".metadata").write_bytes(os.urandom(20_000))


def one_rank(step: Path, rank: int) -> None:
    """Write what a rank writes."""
    body = os.urandom(2 * MB)
    with (step / f"__{rank}_0.distcp").open("wb", buffering=0) as stream:
        for _ in range(40):
            stream.write(body)


def main(what: str, folder: Path, truth: str) -> None:
    """Do one of them."""
    jobs: dict[str, Callable[[Path, TruthLog], None]] = {
        "short-lived-writers": short_lived_writers,
        "many-files": many_files,
        "dies": dies,
        "late-rank": late_rank,
    }
    torch.rand(10)
    folder.mkdir(parents=True, exist_ok=True)
    time.sleep(3)  # trains
    jobs[what](folder, TruthLog(Path(truth)))
    time.sleep(2)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
