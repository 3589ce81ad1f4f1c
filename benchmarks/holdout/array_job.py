"""A job of the hold-out that is plain Python: `python array_job.py --way WAY --dir DIR ...`, without any library."""

from __future__ import annotations

import array
import math
import os
import pickle
import time
from pathlib import Path

from files import MB, Wait, nothing, write
from rounds import PACES, Ways, live, options_of

Numbers = dict[str, "array.array[float]"]


def to_file(state: Numbers, path: Path) -> Wait:
    """Write each array as it stands in memory."""
    with path.open("wb") as stream:
        for numbers in state.values():
            numbers.tofile(stream)
    return nothing


def in_lines(state: Numbers, path: Path) -> Wait:
    """Write a sixteenth of the numbers as text."""
    with path.with_suffix(".txt").open("w") as stream:
        for numbers in state.values():
            stream.writelines(f"{number!r}\n" for number in numbers[: len(numbers) // 16])
    return nothing


def renamed_pickle(state: Numbers, path: Path) -> Wait:
    """Pickle beside, sync, and rename."""
    part = path.with_suffix(".part")
    with part.open("wb") as stream:
        pickle.dump(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    part.rename(path)
    return nothing


def forked(state: Numbers, path: Path) -> Wait:
    """Let a child write, and go on."""
    child = os.fork()
    if child == 0:
        for name, numbers in state.items():
            time.sleep(0.3)
            write(path.with_name(f"{path.stem}.{name}"), memoryview(numbers).cast("B"))
        os._exit(0)
    return lambda: os.waitpid(child, 0)


WAYS = Ways({"to-file": to_file, "in-lines": in_lines, "renamed-pickle": renamed_pickle, "forked": forked})


def made(size_mb: int) -> Numbers:
    """Return four layers."""
    return {f"layer{at}": array.array("d", os.urandom(MB) * (size_mb // 4)) for at in range(4)}


def main() -> None:
    """Train, and save three times."""
    options = options_of(__doc__, WAYS)
    pace, weights = PACES[options.pace], [0.1] * 500

    def train(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                weights[:] = [math.tanh(weight * 1.01) for weight in weights]
            pace()

    live(options, WAYS, made(options.size_mb), train)


if __name__ == "__main__":
    main()
