"""The life of a job of the hold-out: it trains, calls its way once a round, and logs for how long that held training.

A line of the log is {"kind", "step", "start_ns", "end_ns", "bytes"}; `kind` is save, restore or none, and `bytes` is
what the checkpoint has on disk. `--prepare` makes what is to be found before the job starts, and nothing else.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from files import Wait, nothing, sync

STEPS = 50  # between two calls
ROUNDS = 3
_TICK_NS = 20_000_000  # the times of files are that coarse

LAYOUTS: dict[str, Callable[[int], str]] = {
    "folder": lambda at: f"checkpoint-{STEPS * at}/model.pt",
    "flat": lambda at: f"ckpt_{STEPS * at:07d}.pt",
    "epoch": lambda at: f"lightning_logs/epoch={at}-step={STEPS * at}.ckpt",
    "same": lambda _: "state.pt",
    "odd": lambda at: f"net/{('monday', 'tuesday', 'wednesday')[at - 1]}.bin",
}
Way = Callable[[Any, Path], Wait]  # takes the state, and the name of the checkpoint

PACES: dict[str, Callable[[], None]] = {
    "compute": nothing,
    "sleep": lambda: time.sleep(0.01),  # as one that waits for data
    "spin": lambda: _spin(0.01),  # as one that waits for a GPU
}


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@dataclass(frozen=True)
class Ways:
    """What a job can do: saves; restores, with what makes their checkpoints; what is neither, with how often."""

    saves: Mapping[str, Way]
    restores: Mapping[str, tuple[Way, Way]] = field(default_factory=dict)
    others: Mapping[str, tuple[Way, int]] = field(default_factory=dict)
    before: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)  # what stands there before it starts

    def kind(self, name: str) -> str:
        """Return what a call of this name is."""
        return "save" if name in self.saves else "restore" if name in self.restores else "none"

    def way(self, name: str) -> Way:
        """Return what to call; raises KeyError."""
        if name == "none":
            return lambda _state, _path: nothing
        return self.saves[name] if name in self.saves else self.restores[name][1]


def options_of(description: str | None, ways: Ways) -> argparse.Namespace:
    """Return the command line of a job."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--way", choices=["none", *ways.saves, *ways.restores], required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--size-mb", type=int, default=96)
    parser.add_argument("--layout", choices=list(LAYOUTS), default="folder")
    parser.add_argument("--pace", choices=list(PACES), default="compute")
    parser.add_argument("--seconds", type=float, default=3.0, help="of training between two calls")
    parser.add_argument("--beside", choices=list(ways.others), help="what it does between two calls, which is neither")
    parser.add_argument("--prepare", action="store_true")
    return parser.parse_args()


def live(options: argparse.Namespace, ways: Ways, state: object, train: Callable[[float], None], rank: int = 0) -> None:
    """Train, and call the way after each round; the log is that of rank 0."""
    kind, way = ways.kind(options.way), ways.way(options.way)
    unfinished: Callable[[], None] = nothing
    for at in range(1, ROUNDS + 1):
        _train_beside(options, ways, state, train)
        unfinished()
        path = options.dir / LAYOUTS[options.layout](at)
        path.parent.mkdir(parents=True, exist_ok=True)
        start_ns = time.time_ns()
        wait = way(state, path)
        line = {"kind": kind, "step": STEPS * at, "start_ns": start_ns, "end_ns": time.time_ns()}
        unfinished = functools.partial(_finish, options, line, path, wait, rank)
    train(options.seconds)
    unfinished()


def _finish(options: argparse.Namespace, line: dict[str, Any], path: Path, wait: Wait, rank: int) -> None:
    """Wait until it is written, then log it: its files tell how large it is."""
    size = wait()
    if rank == 0:
        if not isinstance(size, int):
            size = _found(path) if line["kind"] == "restore" else _written(options.dir, line["start_ns"])
        with options.truth.open("a") as truth:
            truth.write(json.dumps({**line, "bytes": size}) + "\n")


def _train_beside(options: argparse.Namespace, ways: Ways, state: object, train: Callable[[float], None]) -> None:
    if options.beside is None:
        train(options.seconds)
        return
    other, times = ways.others[options.beside]
    aside = options.dir.parent / "aside"
    aside.mkdir(exist_ok=True)
    for _ in range(times):
        train(options.seconds / (times + 1))
        other(state, aside)()
    train(options.seconds / (times + 1))


def prepare(options: argparse.Namespace, ways: Ways, state: object) -> None:
    """Make what the job finds, of this state; nothing of it stays in memory."""
    options.dir.mkdir(parents=True, exist_ok=True)
    if options.way in ways.before:
        ways.before[options.way](options.dir)
    if options.way in ways.restores:
        for at in range(1, ROUNDS + 1):
            path = options.dir / LAYOUTS[options.layout](at)
            path.parent.mkdir(parents=True, exist_ok=True)
            ways.restores[options.way][0](state, path)()
        for path in options.dir.rglob("*"):
            if path.is_file():
                _forget(path)


def _forget(path: Path) -> None:
    sync(path)
    opened = os.open(path, os.O_RDONLY)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(opened)


def _found(path: Path) -> int:
    """Return the bytes of the checkpoint that begins with this name, or is alone in its folder."""
    return sum(one.stat().st_size for one in path.parent.iterdir() if one.is_file())


def _written(folder: Path, since_ns: int) -> int:
    """Return the bytes of all files below it that were written since then, each once; `best` is a copy."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.stem != "best")
    files = [path.stat() for path in found]
    return sum({one.st_ino: one.st_size for one in files if one.st_mtime_ns > since_ns - _TICK_NS}.values())
