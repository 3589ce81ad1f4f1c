"""What every way of job.py takes and gives, and the life of that job: it trains, and calls its way three times.

`--prepare` makes what is to be found before the job starts, and nothing else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from frame import MB, Life, forget, until
from numpy.typing import NDArray

STEPS = 50  # between two calls
ROUNDS = 3
PAIRS = 2  # rounds with a fault and rounds with its remedy, in turns
_TICK_NS = 20_000_000  # the times of files are that coarse
State = dict[str, NDArray[np.float32]]
Wait = Callable[[], object]  # ends when all is written; returns how much, if the files do not tell
Way = Callable[[State, Path], Wait | None]  # takes the state, and the name of the checkpoint; None: it is written

LAYOUTS: dict[str, Callable[[int], str]] = {
    "folder": lambda at: f"checkpoint-{STEPS * at}/model.pt",
    "flat": lambda at: f"ckpt_{STEPS * at:07d}.pt",
    "epoch": lambda at: f"lightning_logs/epoch={at}-step={STEPS * at}.ckpt",
    "same": lambda _: "state.pt",
    "odd": lambda at: f"net/{('monday', 'tuesday', 'wednesday')[at - 1]}.bin",
}
PACES: dict[str, Callable[[], object]] = {
    "compute": lambda: None,
    "sleep": lambda: time.sleep(0.01),  # as one that waits for data
    "spin": lambda: until(0.01, lambda: None),  # as one that waits for a GPU
}


def made(size_mb: int) -> State:
    """Return a state of four layers, which nothing compresses well."""
    noise = np.random.default_rng()
    return {f"layer{at}": noise.standard_normal(size_mb * MB // 16, dtype=np.float32) for at in range(4)}


def raw(array: NDArray[np.float32]) -> memoryview:
    """Return its bytes, uncopied."""
    return array.data.cast("B")


def named(ways: Iterable[Way]) -> dict[str, Way]:
    """Return each by its name on the command line."""
    return {way.__name__.replace("_", "-"): way for way in ways}


@dataclass(frozen=True)
class Ways:
    """What the job can do: saves; restores, with what makes their checkpoints; what is neither, with how often."""

    saves: Mapping[str, Way]
    restores: Mapping[str, tuple[Way, Way]]
    others: Mapping[str, tuple[Way, int]]
    before: Mapping[str, Callable[[Path], None]]  # what stands there before it starts

    def live(self, life: Life, state: State, train: Callable[[float], None]) -> None:
        """Train, and call the way after each round."""
        chosen = life.options
        kind = "save" if chosen.way in self.saves else "restore" if chosen.way in self.restores else "none"
        ways = {**self.saves, **{name: pair[1] for name, pair in self.restores.items()}}

        def unfinished() -> None:
            """There is none before the first."""

        for at in range(1, _rounds(chosen) + 1):
            planted = chosen.remedy is None or at % 2
            way = ways.get(chosen.way if planted else chosen.remedy)
            self._train_beside(life, state, train)
            unfinished()
            path = life.folder / LAYOUTS[chosen.layout](at)
            path.parent.mkdir(parents=True, exist_ok=True)
            start_ns = time.time_ns()
            wait = way and way(state, path)
            line = {
                "kind": kind,
                "planted": bool(planted),
                "step": STEPS * at,
                "start_ns": start_ns,
                "end_ns": time.time_ns(),
            }

            def unfinished(line: dict[str, object] = line, path: Path = path, wait: Wait | None = wait) -> None:
                """Wait until it is written, then log it: its files tell how large it is."""
                size = wait and wait()
                if life.rank == 0:
                    if not isinstance(size, int):
                        size = _found(path) if kind == "restore" else _written(life.folder, line["start_ns"])
                    life.write({**line, "bytes": size})

        train(chosen.seconds)
        unfinished()

    def _train_beside(self, life: Life, state: State, train: Callable[[float], None]) -> None:
        chosen = life.options
        if chosen.beside is None:
            train(chosen.seconds)
            return
        other, times = self.others[chosen.beside]
        aside = life.folder.parent / "aside"
        aside.mkdir(exist_ok=True)
        for _ in range(times):
            train(chosen.seconds / (times + 1))
            other(state, aside)
        train(chosen.seconds / (times + 1))

    def prepare(self, life: Life, state: State) -> None:
        """Make what the job finds, of this state; nothing of it stays in memory."""
        chosen = life.options
        if chosen.way in self.before:
            self.before[chosen.way](life.folder)
        if chosen.way in self.restores:
            for at in range(1, _rounds(chosen) + 1):
                path = life.folder / LAYOUTS[chosen.layout](at)
                path.parent.mkdir(parents=True, exist_ok=True)
                self.restores[chosen.way][0](state, path)
            for path in life.folder.rglob("*"):
                if path.is_file():
                    forget(path)


def _rounds(chosen: argparse.Namespace) -> int:
    return ROUNDS if chosen.remedy is None else 2 * PAIRS


def _found(path: Path) -> int:
    """Return the bytes of the checkpoint that begins with this name, or is alone in its folder."""
    return sum(one.stat().st_size for one in path.parent.iterdir() if one.is_file())


def _written(folder: Path, since_ns: object) -> int:
    """Return the bytes of all files below it that were written since then, each once; `best` is a copy."""
    assert isinstance(since_ns, int)
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.stem != "best")
    files = [path.stat() for path in found]
    return sum({one.st_ino: one.st_size for one in files if one.st_mtime_ns > since_ns - _TICK_NS}.values())
