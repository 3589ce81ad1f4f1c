"""A piece of everyday work that is big enough to be mistaken for a checkpoint, and the place where it is done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass(frozen=True)
class Place:
    """A task's own empty folder, and the store of what all tasks only read."""

    folder: Path
    store: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(self, *command: str | Path, stdin: bytes | None = None) -> str:
        """Run a program in the folder and return what it printed; raises CalledProcessError."""
        done = subprocess.run(  # by a shell: it is no child of a Python program, which would look like one big job
            ["sh", "-c", '"$@"; exit $?', "sh", *(str(word) for word in command)],
            cwd=self.folder,
            check=True,
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env=self.environment,
        )
        return done.stdout.decode(errors="replace")

    def shell(self, script: str) -> str:
        """Run a script by bash, which ends at the first failure; the folder is $PWD, the store $STORE."""
        return self.run("env", f"STORE={self.store}", "bash", "-euo", "pipefail", "-c", script)

    def python(self, program: str, *arguments: str | Path) -> str:
        """Run a program of `programs/`: `python("dataset.py", "shards")`."""
        return self.run(sys.executable, PROGRAMS / program, *arguments)


@dataclass(frozen=True)
class Task:
    """One kind of work and the programs that it needs."""

    name: str
    do: Callable[[Place], object]
    needs: tuple[str, ...] = ()
    optional: bool = False  # not worth installing its programs for a test run

    @property
    def missing(self) -> str:
        """Name the programs that are not installed, empty if all are."""
        return ", ".join(program for program in self.needs if shutil.which(program) is None)


def shell(name: str, script: str, *needs: str, optional: bool = False) -> Task:
    """Return a task that is a script for bash."""
    return Task(name, lambda place: place.shell(script), needs, optional)


def python(name: str, program: str, *arguments: str, needs: tuple[str, ...] = ()) -> Task:
    """Return a task that is one of the Python programs; {store} stands for the store."""
    return Task(
        name,
        lambda place: place.python(program, *(word.replace("{store}", str(place.store)) for word in arguments)),
        needs,
    )
