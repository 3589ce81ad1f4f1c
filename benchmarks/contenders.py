"""Programs that are measured side by side: each in an accounting group of its own, so that its children count too.

CPU is `cpuacct.usage` (cgroup v1, nanoseconds, the dead included) where a group can be made, else the user and system
time of the process tree with what it has reaped (/proc/PID/stat, ticks of 10 ms). Memory is RSS and PSS of the tree.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
from tests.leftovers import own  # noqa: E402 - found by the line above

GROUPS = Path("/sys/fs/cgroup/cpuacct")
_JOIN = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_MAPPING = re.compile(  # of smaps: the range's offset, device, inode and path, and what is resident of it
    r"^[0-9a-f]+-[0-9a-f]+ .{4} (?P<name>.*)\n(?:[A-Z].*\n)*?Rss: +(?P<rss>\d+) kB\n(?:[A-Z].*\n)*?"
    r"Anonymous: +(?P<anonymous>\d+) kB\n",
    re.MULTILINE,
)
_INSIDE = "CKPTPROF_BENCH_INSIDE"
_CPU_CLOCK_OF_PROCESS = 2  # CPUCLOCK_SCHED, include/linux/posix-timers.h


def ckptprof(*arguments: str, tree: Path | None = None) -> list[str]:
    """Return a command line of the ckptprof that is installed beside this Python, or in the .venv of another tree."""
    python = Path(sys.executable) if tree is None else tree / ".venv/bin/python"
    return [str(python), str(python.with_name("ckptprof")), *arguments]


def isolate() -> None:
    """Start this program again in a PID namespace of its own, if that is allowed; returns only if it is not."""
    if os.environ.get(_INSIDE) or os.geteuid() != 0:
        return
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
        inside = subprocess.run([*command, sys.executable, *sys.argv], check=False, env={**os.environ, _INSIDE: "1"})
        raise SystemExit(inside.returncode)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class StoppedError(SystemExit, RuntimeError):
    """What a benchmark measures beside did not go on: there are no figures, and the exit code is 1."""


class Count(NamedTuple):
    """What shows that a program goes on: what is counted, how many there are now, and the least growth per second."""

    of: str
    now: Callable[[], float]
    least: float = 0.0


@contextlib.contextmanager
def proving(
    name: str, processes: Sequence[subprocess.Popen[Any]], *counts: Count, log: Path | None = None
) -> Iterator[None]:
    """Raise StoppedError at the end of the block if a process has ended or a count has not grown enough.

    The message has the last words of `log`. A count that grows by less than one in the block may stand still.
    """
    began, before = time.monotonic(), [count.now() for count in counts]
    yield
    seconds = time.monotonic() - began
    words = "" if log is None else f": {log.read_text(errors='replace')[-500:]}"
    for process in processes:
        if process.poll() is not None:
            raise StoppedError(f"{name} ended by itself with {process.returncode}{words}")
    for count, start in zip(counts, before, strict=True):
        if (grown := count.now() - start) < int(count.least * seconds):
            raise StoppedError(f"{name}: {count.of} grew by {grown:g} in {seconds:.0f} s{words}")


def computing(processes: Sequence[subprocess.Popen[Any]], share: float = 0.02) -> Count:
    """Count the CPU time of processes and their descendants; the least is a share of a core, of none nothing."""

    def used_ns() -> int:
        used = 0
        for one in (pid for process in processes for pid in tree(process.pid)):
            with contextlib.suppress(OSError):
                used += cpu_ns(one)
        return used

    return Count("ns of CPU", used_ns, share * 1e9 if processes else 0.0)


def logging_lines(path: Path, least: float) -> Count:
    """Count the lines of a log."""
    return Count("lines of its log", lambda: len(path.read_bytes().splitlines()) if path.exists() else 0, least)


class Contender:
    """One running program; its group and processes are gone when the block ends."""

    def __init__(self, name: str, command: Sequence[str], *, url: str | None = None) -> None:
        """Start it; `url` is scraped once before the block begins, as the sign that it serves."""
        self.name = name
        self.url = url
        self._group: Path | None = GROUPS / own(f"bench-{os.getpid()}-{name}")
        try:
            self._group.mkdir()
        except OSError:
            self._group = None
        joining = [] if self._group is None else ["sh", "-c", _JOIN, str(self._group)]
        self.process = subprocess.Popen(
            [*joining, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
        )

    def __enter__(self) -> Self:
        """Wait until it serves."""
        deadline = time.monotonic() + 20
        while self.url is not None and not _answers(self.url):
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.__exit__(None, None, None)
                raise SystemExit(f"{self.name} does not serve {self.url}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, as politely as it allows; raises SystemExit if it has ended by itself."""
        ended = self.process.poll()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._group is not None:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    self._group.rmdir()
                    break
                time.sleep(0.1)
        if ended is not None and kind is None:
            raise StoppedError(f"{self.name} ended by itself with {ended}: its figures are none")

    def cpu_ns(self) -> int:
        """Return the CPU time it and its children have used so far."""
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text())
        return sum(_ticks(pid) for pid in tree(self.process.pid)) * _TICK_NS

    def cpu_by_process(self) -> dict[int, tuple[str, int]]:
        """Return the name of each of its processes and the CPU time that it has used so far, by pid."""
        found = {}
        for pid in tree(self.process.pid):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                found[pid] = name, cpu_ns(pid)
        return found

    @property
    def least_ns(self) -> int:
        """Return the least CPU time that is told: where that is a tick, a short window may show none of it."""
        return 1 if self._group is not None else _TICK_NS

    def alone_bytes(self) -> int:
        """Return the PSS that all its processes would have if nobody else mapped what they map; a ring counts once."""
        own, files = 0, {}
        for pid in tree(self.process.pid):
            with contextlib.suppress(OSError):
                for found in _MAPPING.finditer(Path(f"/proc/{pid}/smaps").read_text()):
                    name, resident, anonymous = found["name"], int(found["rss"]), int(found["anonymous"])
                    own += anonymous
                    files[name] = max(files.get(name, 0), (resident - anonymous) // (1 + name.endswith("bpf-map")))
        return (own + sum(files.values())) << 10


def tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_ns(pid: int) -> int:
    """Return the CPU time of all threads of a process so far; raises OSError if it has ended."""
    return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK_OF_PROCESS)


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15])


def scrape(url: str) -> bytes:
    """Read a metrics page as Prometheus does."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - loopback
        body: bytes = response.read()
        return body


def _answers(url: str) -> bool:
    try:
        scrape(url)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def scraping(urls: Sequence[str], every_seconds: float = 1.0) -> Iterator[None]:
    """Scrape all of these pages again and again, in a thread of its own, while the block runs.

    Raises StoppedError at its end if not one in three scrapes succeeded.
    """
    over, done = threading.Event(), []

    def go_on() -> None:
        due = time.monotonic() + every_seconds
        while not over.wait(max(0.0, due - time.monotonic())):
            due += every_seconds
            for url in urls:
                with contextlib.suppress(OSError):
                    scrape(url)
                    done.append(1)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        with proving("scraping", (), Count("answers", done.__len__, 1 / (3 * every_seconds) if urls else 0.0)):
            yield
    finally:
        over.set()
        thread.join()


def node_exporter(name: str = "node_exporter") -> Contender:
    """Return Debian's node_exporter with its default collectors."""
    port = free_port()
    command = ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"]
    return Contender(name, command, url=f"http://127.0.0.1:{port}/metrics")


def agent(database: Path, *arguments: str, name: str = "agent", of: Path | None = None) -> Contender:
    """Return `ckptprof agent` with its store and its metrics; `of`: that of another tree."""
    port = free_port()
    command = ckptprof("agent", "--db", str(database), "--listen", f"127.0.0.1:{port}", *arguments, tree=of)
    return Contender(name, command, url=f"http://127.0.0.1:{port}/metrics")


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """Have so many more idle processes while the block runs; yields their pids."""
    script = "i=0; while [ $i -lt $0 ]; do sleep 1000000 & echo $!; i=$((i+1)); done; exec >&-; wait"
    shell = subprocess.Popen(
        ["sh", "-c", script, str(count)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert shell.stdout is not None
    try:
        pids = [int(shell.stdout.readline()) for _ in range(count)]
        with proving("the idle processes", (shell,), Count("processes", lambda: len(tree(shell.pid)))):
            yield pids
    finally:
        os.killpg(shell.pid, 15)
        shell.wait()
        shell.stdout.close()
