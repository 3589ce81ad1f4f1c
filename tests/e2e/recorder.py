"""The real command on real jobs: how the end-to-end tests start ckptprof, jobs and whole agents."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # benchmarks take this module, too
from tests.patience import PATIENCE_SECONDS, wait_until  # noqa: E402 - found by the line above
from tests.tries import JobBrokeError  # noqa: E402

__all__ = [
    "EXAMPLES", "FORGET", "ONE_THREAD", "PATIENCE_SECONDS", "JobBrokeError", "Recorder", "check_job",
    "ckptprof_command", "wait_until",
]  # fmt: skip
EXAMPLES = ROOT / "examples"
FORGET = (
    "import os,sys,pathlib\n"
    "for p in pathlib.Path(sys.argv[1]).rglob('*'):\n"
    "    if p.is_file():\n"
    "        f = os.open(p, os.O_RDONLY); os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\n"
)
# A trainer of one thread: more of them only spin on the CPUs of those who watch
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def ckptprof_command() -> list[str]:
    """Return the installed command, started by this very Python."""
    return [sys.executable, str(Path(sys.executable).with_name("ckptprof"))]


def check_job(result: subprocess.CompletedProcess[bytes]) -> None:
    """Raise JobBrokeError if a job, whose exit code `ckptprof run` hands through, has failed."""
    if result.returncode != 0:
        raise JobBrokeError(f"exit code {result.returncode}: {result.stderr.decode(errors='replace')[-4000:]}")


@dataclass
class Recorder:
    """ckptprof with a database of its own, and the jobs that are run under it."""

    work: Path
    prefix: list[str] = field(default_factory=list)  # setpriv ..., to be someone else
    command: list[str] = field(default_factory=ckptprof_command)
    environment: dict[str, str] = field(default_factory=lambda: {**os.environ, **ONE_THREAD, "PYTHONUNBUFFERED": "1"})
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    keyboard: int = -1
    level: str = "auto"
    name: str = "ckptprof.db"

    @property
    def database(self) -> Path:
        """Return where everything is recorded."""
        return self.work / self.name

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of `run` and `agent`: where to record, and how to look."""
        return ("--db", str(self.database), "--level", self.level)

    def ckptprof(self, *arguments: str) -> list[str]:
        """Return a command line of ckptprof."""
        return [*self.prefix, *self.command, *arguments]

    def call(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run ckptprof, and the job that it is given, to their end: beside much else a job takes minutes."""
        return subprocess.run(
            self.ckptprof(*arguments), capture_output=True, check=False, env=self.environment, cwd=self.work
        )

    def run(self, *job: str) -> subprocess.CompletedProcess[bytes]:
        """Run a job under `ckptprof run`."""
        return self.call("run", *self.options, "--", *job)

    def run_with(self, others: Sequence[Recorder], *job: str) -> subprocess.CompletedProcess[bytes]:
        """Run a job under this recorder's `ckptprof run` and, within it, under those of others."""
        for one in others:
            job = (*one.ckptprof("run", *one.options, "--"), *job)
        return self.run(*job)

    def at(self, level: str) -> Recorder:
        """Return a recorder of the same job that looks at this level, with a database of its own."""
        return replace(self, level=level, name=f"{level}.db")

    def alone(self, *job: str) -> subprocess.CompletedProcess[bytes]:
        """Run a job that ckptprof did not start."""
        return subprocess.run(job, capture_output=True, check=False, env=self.environment, cwd=self.work)

    def start(self, *job: str) -> subprocess.Popen[bytes]:
        """Start a job under `ckptprof run`, in the foreground of a terminal of its own."""
        self.keyboard, terminal = os.openpty()
        process = subprocess.Popen(
            ["setsid", "--ctty", *self.ckptprof("run", *self.options, "--", *job)],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self.work,
        )
        os.close(terminal)
        self.started.append(process)
        return process

    def press_ctrl_c(self) -> None:
        """Type it: the terminal interrupts the whole foreground group, as no `kill` would."""
        os.write(self.keyboard, b"\x03")

    def close(self) -> None:
        """End whatever a failed test left running."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        if self.keyboard >= 0:
            os.close(self.keyboard)

    def checkpoints(self) -> list[dict[str, Any]]:
        """Return what `ckptprof report --json` lists; exit code 3, nothing found, is an empty list.

        An agent sees the whole host: what others save elsewhere on it meanwhile is left out.
        """
        result = self.call("report", "--json", "--db", str(self.database))
        assert result.returncode in (0, 3), result.stderr.decode(errors="replace")
        found: list[dict[str, Any]] = json.loads(result.stdout or b'{"checkpoints": []}')["checkpoints"]
        return [one for one in found if one["path"] is None or Path(one["path"]).is_relative_to(self.work)]

    def example(self, script: str, *arguments: str) -> list[str]:
        """Return the command line of a script in examples/ that works below this recorder's directory."""
        return [sys.executable, str(EXAMPLES / script), "--dir", str(self.work / "job"), *arguments]

    def _await_ready(self, agent: subprocess.Popen[bytes], notify: socket.socket) -> None:
        def said() -> str:
            return (self.work / "agent.log").read_text(errors="replace")[-6000:]

        def ready() -> bool:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in notify.recv(4096):
                    return True
            assert agent.poll() is None, said()
            return False

        wait_until(ready, said)

    @contextlib.contextmanager
    def agent(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Watch the whole host; ready, by systemd's own protocol, when the block begins, ended by SIGTERM."""
        address = self.work / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(address))
            notify.settimeout(0.2)
            with (self.work / "agent.log").open("ab") as log:
                agent = subprocess.Popen(
                    self.ckptprof("agent", *self.options, *arguments),
                    stdout=log,
                    stderr=log,
                    env={**self.environment, "NOTIFY_SOCKET": str(address), "PYTHONFAULTHANDLER": "1"},
                    cwd=self.work,
                )
            try:
                self._await_ready(agent, notify)
                yield agent
            finally:
                address.unlink()
                if agent.poll() is None:
                    agent.send_signal(signal.SIGTERM)
                try:
                    agent.wait(timeout=PATIENCE_SECONDS)
                except subprocess.TimeoutExpired as error:
                    agent.send_signal(signal.SIGABRT)  # it leaves word of where it hangs
                    agent.wait()
                    said = (self.work / "agent.log").read_text(errors="replace")
                    raise RuntimeError(f"the agent did not end: {said[-6000:]}") from error

    def restarted(self, first: Sequence[str], second: Sequence[str]) -> list[str]:
        """Return a shell's command line: a job, and it again on a node that has lost its files from the page cache."""
        forget = [first[0], "-c", FORGET, str(self.work / "job")]
        return ["sh", "-c", " && ".join(shlex.join(one) for one in (first, forget, second))]
