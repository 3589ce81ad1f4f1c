"""Does everyday work under the eyes of agents, one per level, and says which work was taken for a checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from everyday.task import Place, Task
from recorder import EXAMPLES, ONE_THREAD, PATIENCE_SECONDS, Recorder, check_job, wait_until

KEPT_FOLDERS = 6  # what tasks have left stays for a while, as work does, and within 3 GB
ELSEWHERE = "elsewhere on this host"


@dataclass
class Done:
    """One task that was done, or tried."""

    task: str
    start_ns: int
    end_ns: int
    failure: str = ""


@dataclass(frozen=True)
class Finding:
    """Something that ckptprof reported, and the work that it was made of."""

    level: str
    task: str
    checkpoint: dict[str, Any]

    def __str__(self) -> str:
        """Return a line for a person."""
        seen = self.checkpoint
        reasons = " ".join(f"{reason['name']}{reason['weight']:+.2f}" for reason in seen["evidence"])
        what = f"{seen['kind']} of {seen['bytes'] / 1e6:.0f} MB by {seen['framework']}, job {seen['job']}"
        return f"{self.level}: {self.task}: {what}, {seen['path']!a} [{reasons}]"


@dataclass
class Office:
    """A folder with the store, a desk for each task, and one recorder per level."""

    root: Path
    levels: tuple[str, ...]
    done: list[Done] = field(default_factory=list)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def store(self) -> Path:
        """Return where the things are that tasks only read."""
        return self.root / "store"

    def recorder(self, level: str) -> Recorder:
        """Return the recorder of a level; its database outlives the agent."""
        folder = self.root / f"agent-{level}"
        folder.mkdir(exist_ok=True)
        return Recorder(folder, level=level)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Run an agent for each level while the block runs, and account for what they cost."""
        with contextlib.ExitStack() as stack:
            agents = {level: stack.enter_context(self.recorder(level).agent("--no-metrics")) for level in self.levels}
            began = {level: _cpu_seconds(agent.pid) for level, agent in agents.items()}
            started = time.monotonic()
            try:
                yield
            finally:
                self.seconds = time.monotonic() - started
                for level, agent in agents.items():
                    if agent.poll() is not None:
                        log = (self.root / f"agent-{level}" / "agent.log").read_text(errors="replace")
                        raise RuntimeError(f"the agent of level {level} ended by itself: {log[-2000:]}")
                    self.cpu_seconds[level] = _cpu_seconds(agent.pid) - began[level]

    def work(self, tasks: Sequence[Task], *, at_once: int, seconds: float, seed: int = 1) -> None:
        """Do all tasks in some order, and again until the time is over; each once at least. A failure is noted."""
        turns = _turns(tasks, time.monotonic() + seconds, seed)
        lock, over = threading.Lock(), threading.Event()
        folders: list[Path] = []

        def worker() -> None:
            while True:
                with lock:
                    turn = next(turns, None)
                if turn is None or over.is_set():
                    return
                number, task = turn
                folder = self.desk(task.name) / str(number)
                self._do(task, folder)
                with lock:
                    folders.append(folder)
                    old = [folders.pop(0)] if len(folders) > KEPT_FOLDERS else []
                for path in old:
                    subprocess.run(["rm", "-rf", str(path)], check=False)

        threads = [threading.Thread(target=worker, daemon=True) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            over.set()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)  # at once, unless this was interrupted
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)

    def desk(self, name: str) -> Path:
        """Return the folder of all rounds of one task."""
        return self.root / "tasks" / slug(name)

    def _do(self, task: Task, folder: Path) -> None:
        folder.mkdir(parents=True)
        note = Done(task.name, time.time_ns(), 0)
        try:
            task.do(Place(folder, self.store))
        except subprocess.CalledProcessError as error:
            note.failure = f"ended with {error.returncode}: {error.stderr.decode(errors='replace')[-300:].strip()}"
        except (OSError, subprocess.SubprocessError) as error:
            note.failure = repr(error)
        note.end_ns = time.time_ns()
        self.done.append(note)

    def settle(self) -> None:
        """Wait until each agent has told a save that is made now: what was done before is told by then, or never."""
        folder = self.root / "last"
        folder.mkdir()
        command = [sys.executable, str(EXAMPLES / "train_numpy.py"), "--dir", str(folder), "--format", "npz"]
        command += ["--size-mb", "200", "--interval", "1.5", "--saves", "3"]
        check_job(subprocess.run(command, check=False, capture_output=True, env={**os.environ, **ONE_THREAD}))
        for level in self.levels:
            wait_until(lambda level=level: any(map(self.is_of_the_last, self._told(level, None))))

    def is_of_the_last(self, checkpoint: dict[str, Any]) -> bool:
        """Tell whether it is one of the saves that `settle` makes."""
        return Path(checkpoint["path"] or "/").is_relative_to(self.root / "last")

    def findings(self, level: str, kind: str | None = None) -> list[Finding]:
        """Return what was reported; without a kind: saves and restores, which nobody made."""
        found = [one for one in self._told(level, kind) if not self.is_of_the_last(one)]
        return [Finding(level, self._task_of(checkpoint), checkpoint) for checkpoint in found]

    def _told(self, level: str, kind: str | None) -> list[dict[str, Any]]:
        arguments = ["report", "--json", "--limit", "100000", "--db", str(self.recorder(level).database)]
        result = self.recorder(level).call(*arguments, *(["--kind", kind] if kind else []))
        if result.returncode not in (0, 3):
            raise RuntimeError(result.stderr.decode(errors="replace"))
        found: list[dict[str, Any]] = json.loads(result.stdout or b'{"checkpoints": []}')["checkpoints"]
        return found

    def _task_of(self, checkpoint: dict[str, Any]) -> str:
        path = Path(checkpoint["path"] or "/")
        if path.is_relative_to(self.root / "tasks"):
            name = path.relative_to(self.root / "tasks").parts[:1]
            return next((done.task for done in self.done if (slug(done.task),) == name), str(path))
        if path.is_relative_to(self.root):
            at_ns = (checkpoint["start_ns"] + checkpoint["end_ns"]) // 2
            names = {done.task for done in self.done if done.start_ns <= at_ns <= done.end_ns}
            return " or ".join(sorted(names)) or str(path)
        return ELSEWHERE


def slug(name: str) -> str:
    """Return a task's name as that of a folder; no word in it may speak for or against a checkpoint."""
    return re.sub(r"[^a-z]+", "", name.lower().replace("checkpoint", "c").replace("model", "m"))


def _turns(tasks: Sequence[Task], end: float, seed: int) -> Iterator[tuple[int, Task]]:
    order, number = random.Random(seed), 0  # noqa: S311 - an order, no secret
    while True:
        for task in order.sample(list(tasks), len(tasks)):
            if number >= len(tasks) and time.monotonic() >= end:
                return
            yield number, task
            number += 1
        if time.monotonic() >= end:
            return


def _cpu_seconds(pid: int) -> float:
    """Return those of a process and its descendants; those that ended are in it."""
    cpu = 0.0
    agent = psutil.Process(pid)
    for process in (agent, *agent.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            cpu += times.user + times.system
    return cpu
