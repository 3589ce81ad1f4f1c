"""Very many processes, files and forks beside a job that saves: what it costs, and whether every save is told."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from proofs.proving import PYTHON, Live, Row, live, logged, place, saving, say

LEVELS = ("trace", "poll")
SIZE, SAVE_SECONDS, PAUSE_SECONDS = 64 << 20, 0.5, 1.5
NEAR = 0.02  # of the bytes
TOLD_SECONDS = 30.0  # after the last of them at the latest
LATE_SECONDS = 0.1  # in the mean of all ticks
_MIB = 1 << 20
IDLE = """
import os, signal, sys
for _ in range(int(sys.argv[1])):
    if not os.fork():
        signal.pause()
print("ready", flush=True)
signal.pause()
"""
FILES = """
import os, sys, time
count = int(sys.argv[1])
for n in range(3):
    time.sleep(1)
    os.mkdir(f"step_{n}")
    for i in range(count if n == 1 else 10):
        with open(f"step_{n}/part_{i}.npy", "wb") as file:
            file.write(b"\\x93NUMPY\\x01\\x00\\x76\\x00")
            file.write(b"{'descr': '|u1', 'fortran_order': False, 'shape': (4096,), }".ljust(117) + b"\\n")
            file.write(bytes(4096))
print("ready", flush=True)
time.sleep(10)
"""
FORKS = """
import os, sys, time
rate, until, number, first, wrapped = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0, 0, 0
began = time.monotonic()
while time.monotonic() < until:
    number += 1
    child = os.fork()
    if not child:
        if len(sys.argv) > 3:
            fd = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT)
            os.write(fd, bytes(4096))
        os._exit(0)
    wrapped += child < first
    first = child
    os.waitpid(child, 0)
    time.sleep(max(0.0, began + number / rate - time.monotonic()))
print(number, wrapped, number / (time.monotonic() - began), flush=True)
"""


@contextlib.contextmanager
def crowd(work: Path, program: str, *arguments: str, ready: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Run a program with all that it starts, as another user; all of it is killed in the end."""
    home = work / "crowd"
    home.mkdir(exist_ok=True)
    os.chown(home, 65534, 65534)
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, "-c", program, *arguments)
    with subprocess.Popen(become, cwd=home, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            if ready and process.stdout.readline() != "ready\n":
                raise RuntimeError("the crowd did not come")
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@dataclass
class Watch:
    """What an agent used and was late within a while, and what it told of the saves of a job."""

    agent: Live
    began: float = field(default_factory=time.monotonic)
    most_bytes: int = 0

    def __post_init__(self) -> None:
        """Begin."""
        self._cpu_seconds = self._used()
        self._ticks, self._late = (
            self.agent.metric(f"sampler_{name}") for name in ("ticks_total", "lateness_seconds_total")
        )

    def _processes(self) -> list[psutil.Process]:
        assert self.agent.process is not None
        return [psutil.Process(self.agent.process.pid), self.agent.sampler()]

    def _used(self) -> list[float]:
        return [sum(one.cpu_times()[:2]) for one in self._processes()]

    def look(self) -> None:
        """Note how much memory they have now."""
        self.most_bytes = max(self.most_bytes, sum(one.memory_info().rss for one in self._processes()))

    def shares(self) -> list[float]:
        """Return how many percent of a core the recorder and the sampler used."""
        seconds = time.monotonic() - self.began
        return [100 * (now - before) / seconds for now, before in zip(self._used(), self._cpu_seconds, strict=True)]

    def lateness(self) -> float:
        """Return by how many seconds a tick was late in the mean."""
        ticks = self.agent.metric("sampler_ticks_total") - self._ticks
        return (self.agent.metric("sampler_lateness_seconds_total") - self._late) / max(1.0, ticks)


def watched(agent: Live, seconds: float) -> Watch:
    """Watch an agent for so long."""
    made = Watch(agent)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.5)
        made.look()
    return made


def told(agent: Live, truth: Path, since_ns: int) -> tuple[int, int, int, int]:
    """Return how many saves a job made from then on, of those told, told twice, and told with other bytes."""
    saves = {one["path"]: one for one in logged(truth) if one["start_ns"] >= since_ns}
    until = time.monotonic() + TOLD_SECONDS
    found: dict[str, list[int]] = {}
    while len(found) < len(saves) and time.monotonic() < until:
        time.sleep(3)
        found = {}
        for one in agent.saves():
            if one["path"] in saves:
                found.setdefault(one["path"], []).append(one["bytes"])
    near = [abs(sizes[0] / saves[path]["bytes"] - 1) <= NEAR for path, sizes in found.items()]
    return len(saves), len(found), sum(len(sizes) > 1 for sizes in found.values()), near.count(False)


def _sentence(watch: Watch, counts: tuple[int, int, int, int], late: float) -> str:
    made, seen, twice, wrong = counts
    recorder, sampler = watch.shares()
    return (
        f"{seen} of {made} saves told, {twice} twice, {wrong} with other bytes; {recorder + sampler:.1f} % of a core "
        f"({sampler:.1f} the sampler), "
        f"{watch.most_bytes / _MIB:.0f} MiB in both processes, ticks {1000 * late:.0f} ms late in the mean"
    )


def _fine(counts: tuple[int, int, int, int], late: float, agent: Live) -> bool:
    made, seen, twice, wrong = counts
    assert agent.process is not None
    alive = agent.process.poll() is None and "starting another" not in agent.said()
    return seen == made > 0 and not twice and not wrong and late < LATE_SECONDS and alive


PROMISED = f"every save of another user is told, once and whole; ticks less than {LATE_SECONDS:g} s late in the mean"


def processes(counts: Sequence[int], seconds: float) -> list[Row]:
    """Let so many interpreters sleep beside a job that saves."""
    rows = []
    for level in LEVELS:
        for count in counts:
            with place() as work, live(work, level=level) as agent:
                agent.start()
                with saving(work, SIZE, SAVE_SECONDS, PAUSE_SECONDS) as truth, crowd(work, IDLE, str(count)):
                    time.sleep(12)  # until all are known, and until the job is
                    since_ns = time.time_ns()
                    watch = watched(agent, seconds)
                    late = watch.lateness()
                    sentence = _sentence(watch, found := told(agent, truth, since_ns), late)
                rows.append(
                    Row(f"processes: {level}", f"{count} idle interpreters of one user", PROMISED, sentence,
                        _fine(found, late, agent))
                )  # fmt: skip
                agent.end()
            say(f"processes: {level}, {count}: {sentence}")
    return rows


def files(count: int) -> list[Row]:
    """Let a job of another user save so many files at once."""
    rows = []
    for level in LEVELS:
        with place() as work, live(work, level=level) as agent:
            agent.start()
            with saving(work, SIZE, SAVE_SECONDS, PAUSE_SECONDS) as truth:
                time.sleep(8)
                since_ns = time.time_ns()
                watch = Watch(agent)
                with crowd(work, FILES, str(count), ready=False) as job:
                    while not job.stdout or not _line(job):
                        watch.look()
                    for _ in range(16):
                        time.sleep(0.5)
                        watch.look()
                late = watch.lateness()
                sentence = _sentence(watch, found := told(agent, truth, since_ns), late)
                large = [one for one in agent.saves() if one["files"] > count / 2]
                sentence += f"; the {count} files are told as {len(large)} save"
                sentence += f" of {large[0]['files']} files" if large else ""
            rows.append(Row(f"files: {level}", f"{count} files of 4 kB written as one save by another user",
                            PROMISED, sentence, _fine(found, late, agent)))  # fmt: skip
            agent.end()
        say(f"files: {level}: {sentence}")
    return rows


def _line(process: subprocess.Popen[str]) -> bool:
    return bool(select.select([process.stdout], [], [], 0.5)[0])


def forks(rate: int, seconds: float) -> list[Row]:
    """Fork so often for so long that pids are used again; and for a quarter of that with each fork writing one file."""
    return [*_forks(rate, seconds), *_forks(rate, seconds / 4, "small")]


def _forks(rate: int, seconds: float, *file: str) -> list[Row]:
    """Watch forks at both levels at once; all of them write that file, if there is one."""
    with place() as work, contextlib.ExitStack() as stack:
        agents: dict[str, Live] = {}
        for level in LEVELS:
            (work / level).mkdir()
            agents[level] = agent = stack.enter_context(live(work / level, level=level, jobs=work))
            agent.start()
        truth = stack.enter_context(saving(work, SIZE, SAVE_SECONDS, PAUSE_SECONDS))
        time.sleep(8)
        since_ns = time.time_ns()
        watches = {level: Watch(agent) for level, agent in agents.items()}
        with crowd(work, FORKS, str(rate), str(seconds), *file, ready=False) as job:
            while not _line(job):
                for watch in watches.values():
                    watch.look()
            assert job.stdout is not None
            number, wrapped, real = job.stdout.readline().split()
        rows = []
        for level, agent in agents.items():
            late = watches[level].lateness()
            sentence = _sentence(watches[level], found := told(agent, truth, since_ns), late)
            jobs = {one["job"] for one in agent.saves()}
            sentence += f"; {len(jobs)} job"
            done = (
                f"{number} forks in {seconds:.0f} s ({float(real):.0f} a second); the pids began anew {wrapped} times"
            )
            done += "; all of them write one file" if file else ""
            holds = _fine(found, late, agent) and len(jobs) == 1
            code = agent.end()
            sentence += f"; exit code {code}"
            rows.append(Row(f"forks: {level}", done, f"{PROMISED}; by one job", sentence, holds and code == 0))
    return rows
