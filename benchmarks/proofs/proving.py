"""What every proof needs: an agent that is started again and again, a job whose saves are logged, a row of the page."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from livecommand import CKPTPROF, Ckptprof, sampler_of
from tests.leftovers import own

from contenders import free_port, logging_lines, proving

PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable  # one that any user may run
READY_SECONDS = 90.0
# Saves of SIZE bytes in SECONDS, each PAUSE after the last, until it is told to end; a line for each in `truth`.
SAVING_JOB = """
import json, os, signal, sys, time
size, seconds, pause = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
shape = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}".ljust(117).encode() + b"\\n"
header = b"\\x93NUMPY\\x01\\x00" + len(shape).to_bytes(2, "little") + shape
chunk = bytes(1 << 20)
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
number = 0
with open("truth", "a") as truth:
    while not over:
        time.sleep(pause)
        path = os.path.abspath(f"ckpt_{number}.npy")
        began, start, left = time.time_ns(), time.monotonic(), size
        with open(path, "wb") as file:
            file.write(header)
            while left:
                left -= os.write(file.fileno(), chunk[:left]) if not file.flush() else 0
                time.sleep(max(0.0, start + seconds * (1 - left / size) - time.monotonic()))
        end = time.time_ns()
        print(json.dumps({"path": path, "step": number, "bytes": size + len(header), "start_ns": began,
            "end_ns": end}), file=truth, flush=True)
        number += 1
        if number > 4:
            os.unlink(f"ckpt_{number - 5}.npy")
"""


@dataclass(frozen=True)
class Row:
    """One line of the page: what was done, what was promised, what was seen, and whether that is what was promised."""

    proof: str
    done: str
    promised: str
    seen: str
    holds: bool


def say(text: str) -> None:
    """Tell how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def place(base: str = "/var/tmp") -> Iterator[Path]:  # noqa: S108 - a folder of its own is made there
    """Return a folder that other users may pass into; it is gone afterwards."""
    made = Path(tempfile.mkdtemp(prefix=own("proof-"), dir=base))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@dataclass
class Live:
    """An agent that is started again and again on the same database."""

    work: Path
    level: str = "trace"
    prefix: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    database: Path = Path()
    jobs: Path | None = None  # whose saves are asked for; None: those below `work`
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        """Nothing is started yet."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("CKPTPROF", "NOTIFY"))}
        self.environment = {**outside, "HOME": str(self.work), "PYTHONUNBUFFERED": "1", **self.environment}
        if self.database == Path():
            self.database = self.work / "state" / "ckptprof.db"
        self.port = free_port()
        self._notify: socket.socket | None = None

    @property
    def pid(self) -> int:
        """Return that of the recorder; 0 before it is started."""
        return 0 if self.process is None else self.process.pid

    @property
    def log(self) -> Path:
        """Return where it says what it has to say."""
        return self.work / "agent.log"

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it tells systemd that it is ready; raises RuntimeError if it ends before."""
        address = self.work / "notify"
        address.unlink(missing_ok=True)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(address))
        self._notify.settimeout(0.2)
        arguments = ("--db", str(self.database), "--level", self.level, "--listen", f"127.0.0.1:{self.port}")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *CKPTPROF, "agent", *arguments], stderr=log, stdout=log, cwd=self.work,
                env={**self.environment, "NOTIFY_SOCKET": str(address)}, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + READY_SECONDS
        while ready:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in self._notify.recv(4096):
                    break
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the agent is not ready: {self.said()[-2000:]}")
        self._notify.close()

    def sampler(self) -> psutil.Process:
        """Return the sampler of now."""
        assert self.process is not None
        return sampler_of(self.process)

    def end(self) -> int:
        """End it as systemd does, and return its code; -9 if it has not ended after 40 s, as long as systemd waits."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.close()
            return self.process.returncode

    def close(self) -> None:
        """End it in any case, and whatever it has started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        """Return what it has said in all its lives."""
        return self.log.read_text(errors="replace")

    def call(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run ckptprof to its end."""
        return Ckptprof(self.work, self.environment).call(*arguments)

    def report(self) -> dict[str, Any]:
        """Return the document of `ckptprof report --json`, its checkpoints those of `jobs`."""
        done = self.call("report", "--json", "--db", str(self.database))
        if done.returncode not in (0, 3):
            raise RuntimeError(done.stderr.decode(errors="replace"))
        document: dict[str, Any] = json.loads(done.stdout)
        mine = [one for one in document["checkpoints"] if (one["path"] or "").startswith(f"{self.jobs or self.work}/")]
        document["checkpoints"] = mine
        return document

    def saves(self) -> list[dict[str, Any]]:
        """Return the saves below this folder that are reported."""
        return [one for one in self.report()["checkpoints"] if one["kind"] == "save"]

    def scrape(self) -> str:
        """Return the metrics; raises OSError if they cannot be had within ten seconds."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            text: str = page.read().decode()
        return text

    def metric(self, name: str) -> float:
        """Return the sum of the series of a name; 0 without one."""
        rows = [line.rpartition(" ") for line in self.scrape().splitlines()]
        return sum(float(value) for series, _, value in rows if series.partition("{")[0] == f"ckptprof_{name}")


@contextlib.contextmanager
def live(work: Path, **settings: Any) -> Iterator[Live]:
    """Return an agent that is not started yet, and is ended in any case."""
    made = Live(work, **settings)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def saving(work: Path, size: int, seconds: float, pause: float) -> Iterator[Path]:
    """Save in a folder `job` below this one all the while; return the file of the truth.

    Raises StoppedError at the end if it ended before, or logged less than a third of the saves that were due.
    """
    home = work / "job"
    home.mkdir(exist_ok=True)
    job = subprocess.Popen(
        [PYTHON, "-c", SAVING_JOB, str(size), str(seconds), str(pause)],
        cwd=home,
        env={"RANK": "0", "PATH": os.environ["PATH"]},
    )
    try:
        with proving("the job", (job,), logging_lines(home / "truth", 1 / (3 * (seconds + pause)))):
            yield home / "truth"
    finally:
        job.terminate()
        job.wait()


def logged(truth: Path) -> list[dict[str, Any]]:
    """Return the saves that a job has logged by now."""
    lines = truth.read_text().splitlines(keepends=True) if truth.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
