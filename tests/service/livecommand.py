"""The real command with a database and a home of its own, and ways to look at the processes that it starts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.patience import PATIENCE_SECONDS, wait_until

CKPTPROF = [sys.executable, str(Path(sys.executable).with_name("ckptprof"))]
__all__ = ["CKPTPROF", "PATH_FIELD", "SAVE", "Ckptprof", "fill", "sampler_of", "wait_until"]
PATH_FIELD = 8  # of `ckptprof list`
SAVE = "import numpy, sys, time; a = numpy.zeros(8_000_000)\n"
SAVE += "for n in range(int(sys.argv[1])):\n time.sleep(1); numpy.save(f'ckpt_{n}.npy', a)\n"


@dataclass
class Ckptprof:
    """ckptprof in a directory of its own; what was started and still runs in the end is killed."""

    work: Path
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def database(self) -> Path:
        """Return where everything is recorded."""
        return self.work / "state" / "ckptprof.db"

    def call(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run ckptprof to its end; what it prints is caught unless the options say where it goes."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": self.work, **options}
        return subprocess.run(
            [*CKPTPROF, *arguments], check=False, timeout=PATIENCE_SECONDS, env=self.environment, **streams
        )

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a command under `ckptprof run`."""
        return self.call("run", "--db", str(self.database), "--", *command, **options)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start ckptprof in a session of its own."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": self.work, **options}
        process = subprocess.Popen([*CKPTPROF, *arguments], env=self.environment, start_new_session=True, **streams)
        self.started.append(process)
        return process

    def steps(self, within: Path | None = None, database: Path | None = None) -> list[str]:
        """Return the file names of the checkpoints below our folder, or another; an agent sees those of other tests."""
        result = self.call("list", "--db", str(database or self.database))
        assert result.returncode in (0, 3), result.stderr
        paths = [Path(line.split("\t")[PATH_FIELD]) for line in result.stdout.decode().splitlines()]
        return [path.name for path in paths if path.is_relative_to(within or self.work)]

    def await_sight(self, database: Path | None = None) -> None:
        """Wait until an agent has stored that it watches: a busy host takes its time to start one."""

        def watches() -> bool:
            told = self.call("report", "--json", "--db", str(database or self.database)).stdout
            return bool(told) and json.loads(told)["watched"]["start_ns"] is not None

        wait_until(watches)

    def close(self) -> None:
        """End whatever still runs."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.communicate()


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process runs no more, though nobody may reap it: the first process of a container need not."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def sampler_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the sampler of a ckptprof."""

    def find() -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children():
                if "-I" in (words := child.cmdline()) or " ".join(words).startswith("ckptprof: sampler"):
                    return child
        return None

    found: psutil.Process = wait_until(find)
    return found


def fill(disk: Path) -> None:
    """Leave no room."""
    fd = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(fd, bytes(4096))
    os.close(fd)
