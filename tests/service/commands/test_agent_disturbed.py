"""`ckptprof agent` when something goes wrong: it says so, goes on where it can, and ends with a clear code."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from livecommand import CKPTPROF, SAVE, Ckptprof, fill, sampler_of, wait_until
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


class Watching:
    """A running agent, and systemd's end of the notify socket."""

    def __init__(self, ckptprof: Ckptprof, arguments: tuple[str, ...], prefix: tuple[str, ...], name: str) -> None:
        self.log = ckptprof.work / f"{name}.log"
        address = str(ckptprof.work / f"{name}.notify")
        database = ckptprof.database if name == "agent" else ckptprof.database.with_name(f"{name}.db")
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(address)
        self._notify.settimeout(0)
        environment = {**ckptprof.environment, "NOTIFY_SOCKET": address}
        environment["WATCHDOG_USEC"] = "300000"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, *CKPTPROF, "agent", "--db", str(database), *(arguments or ("--no-metrics",))],
                stderr=log, env=environment, cwd=ckptprof.work, start_new_session=True,
            )  # fmt: skip
        ckptprof.started.append(self.process)

    def heard(self) -> list[bytes]:
        """Return what was told to systemd since the last call."""
        heard = []
        with contextlib.suppress(BlockingIOError):
            while True:
                heard.append(self._notify.recv(4096))
        return heard

    def until(self, message: bytes) -> None:
        """Wait until systemd is told this; an agent that has ended tells nothing more."""

        def told() -> bool:
            ended = self.process.poll() is not None
            heard = any(message in heard for heard in self.heard())
            assert heard or not ended, self.said()
            return heard

        wait_until(told)

    def said(self) -> str:
        """Return what it has said."""
        return self.log.read_text()

    def end(self) -> int:
        """End it as systemd does."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        """Hear nothing any more."""
        self._notify.close()


Watch = Callable[..., Watching]


@pytest.fixture
def watch(ckptprof: Ckptprof) -> Iterator[Watch]:
    """Return what starts an agent and notes what it tells systemd."""
    made: list[Watching] = []

    def start(*arguments: str, prefix: tuple[str, ...] = (), name: str = "agent") -> Watching:
        made.append(Watching(ckptprof, arguments, prefix, name))
        return made[-1]

    yield start
    for watching in made:
        watching.close()


def save_thrice(ckptprof: Ckptprof) -> None:
    """Save beside the agent, and give it the time to recognise it."""
    subprocess.run([sys.executable, "-c", f"{SAVE}time.sleep(1)", "3"], check=True, cwd=ckptprof.work)


def stored(ckptprof: Ckptprof) -> bool:
    """Return whether a save of ours is in the database: which of three is seen is not what is tested here."""
    return not {"ckpt_0.npy", "ckpt_1.npy", "ckpt_2.npy"}.isdisjoint(ckptprof.steps())


def test_ready_is_told_once_when_frames_come_and_the_store_is_open(ckptprof: Ckptprof, watch: Watch) -> None:
    """Systemd starts what depends on us: by then the database is there, and we see."""
    watching = watch()
    heard: list[bytes] = []

    def ready() -> bool:
        heard.extend(watching.heard())
        return any(b"READY=1" in message for message in heard)

    wait_until(ready)
    there = ckptprof.database.exists()

    def fed_after_that() -> bool:
        heard.extend(watching.heard())
        return sum(b"WATCHDOG=1" in message for message in heard) >= 4

    wait_until(fed_after_that)
    code = watching.end()
    heard += watching.heard()

    assert there
    assert sum(b"READY=1" in message for message in heard) == 1
    assert b"STOPPING=1" in heard[-1]
    assert code == 0


def test_a_lost_sampler_is_replaced_and_the_gap_is_told(ckptprof: Ckptprof, watch: Watch) -> None:
    """Kill -9 of the sampler: another one, a line, and a gap in the report; the watchdog is fed all the while."""
    watching = watch()
    watching.until(b"READY=1")
    first = sampler_of(watching.process)

    first.kill()
    wait_until(lambda: sampler_of(watching.process).pid != first.pid)
    watching.heard()
    watching.until(b"WATCHDOG=1")
    watching.until(b"WATCHDOG=1")
    wait_until(lambda: b'"reason"' in ckptprof.call("report", "--json", "--db", str(ckptprof.database)).stdout)
    code = watching.end()

    assert code == 0
    assert "restarting the sampler" in watching.said()


def test_a_starved_sampler_is_said_of_each_save_that_it_touched(ckptprof: Ckptprof, watch: Watch) -> None:
    """One that comes to its turn every other half second, as on a crowded host."""
    watching = watch()
    watching.until(b"READY=1")
    sampler = sampler_of(watching.process)
    job = subprocess.Popen([sys.executable, "-c", f"{SAVE}time.sleep(1)", "12"], cwd=ckptprof.work)

    def told() -> bool:
        for _ in range(4):
            sampler.suspend()
            time.sleep(0.6)
            sampler.resume()
            time.sleep(0.2)
        listed = ckptprof.call("list", "--json", "--db", str(ckptprof.database)).stdout
        found = json.loads(listed or b'{"checkpoints": []}')["checkpoints"]
        ours = [one for one in found if str(ckptprof.work) in str(one["path"])]
        return any("the sampler was late" in sentence for one in ours for sentence in one["limitations"])

    try:
        wait_until(told)
    finally:
        job.kill()
        job.wait()
    assert watching.end() == 0


def test_a_second_signal_ends_it_at_once(
    ckptprof: Ckptprof, watch: Watch, record_property: Callable[[str, object], None]
) -> None:
    """The first waits for the sampler, which hangs here; the second does not."""
    watching = watch()
    watching.until(b"READY=1")
    sampler = sampler_of(watching.process)
    sampler.suspend()

    began = time.monotonic()
    watching.process.send_signal(signal.SIGINT)
    time.sleep(1)
    watching.process.send_signal(signal.SIGINT)
    watching.process.wait(timeout=PATIENCE_SECONDS)

    record_property("figure", f"ended {time.monotonic() - began:.1f} s after the first of two signals")
    assert psutil.wait_procs([sampler], timeout=PATIENCE_SECONDS)[1] == []


@pytest.mark.xdist_group("live")
def test_a_removed_database_is_begun_anew(ckptprof: Ckptprof, watch: Watch) -> None:
    """Who deletes it while we run loses what was in it, and nothing after that."""
    watching = watch()
    watching.until(b"READY=1")
    for path in ckptprof.database.parent.iterdir():
        path.unlink()

    save_thrice(ckptprof)
    code = watching.end()

    assert code == 0
    assert "was removed" in watching.said()
    assert stored(ckptprof)


@pytest.mark.xdist_group("live")
@pytest.mark.root
def test_after_a_full_disk_every_event_is_stored(ckptprof: Ckptprof, watch: Watch, small_disk: Path) -> None:
    """It says so once, goes on watching, and stores what it kept as soon as there is room."""
    watching = watch()
    watching.until(b"READY=1")
    fill(small_disk)

    save_thrice(ckptprof)
    wait_until(lambda: "not storing for now" in watching.said())
    wait_until(lambda: "ckpt_2.npy" in watching.said() or "ckpt_1.npy" in watching.said())
    (small_disk / "filler").unlink()
    wait_until(lambda: stored(ckptprof))
    code = watching.end()

    assert watching.said().count("not storing for now") == 1
    assert code == 0


@pytest.mark.root
@pytest.mark.parametrize("level", ["auto", "poll"])
def test_with_few_descriptors_it_polls_and_sees_saves(ckptprof: Ckptprof, watch: Watch, level: str) -> None:
    """With 64 of them there are none for the trace, which is told; it looks at all processes."""
    watching = watch("--no-metrics", "--level", level, prefix=("prlimit", "--nofile=64:64"))
    watching.until(b"READY=1")
    save_thrice(ckptprof)
    wait_until(lambda: stored(ckptprof))
    held = sampler_of(watching.process).num_fds()
    code = watching.end()

    assert code == 0
    assert held < 64
    assert not [word for word in ("restarting", "Traceback", "Too many open files") if word in watching.said()]
    assert ("of at most 64 open files" in watching.said()) == (level == "auto")


@pytest.mark.root
def test_a_trace_for_which_there_are_too_few_descriptors_is_refused(ckptprof: Ckptprof) -> None:
    """Who wants nothing but the trace is told what is missing."""
    command = ["prlimit", "--nofile=64:64", *CKPTPROF, "agent", "--level", "trace", "--no-metrics", "--db"]
    result = subprocess.run(
        [*command, str(ckptprof.database)], capture_output=True, check=False, timeout=PATIENCE_SECONDS
    )

    assert result.returncode == 1
    assert b"of at most 64 open files" in result.stderr


@pytest.mark.parametrize("explicit", [False, True])
def test_a_port_that_is_taken(ckptprof: Ckptprof, watch: Watch, *, explicit: bool) -> None:
    """The default one is given up with a warning; one that was asked for is an error."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # this test of another checkout takes it, too
        if explicit:
            taken.bind(("127.0.0.1", 0))
        else:
            with contextlib.suppress(OSError):  # another agent has it: as good
                taken.bind(("127.0.0.1", 12578))
        with contextlib.suppress(OSError):
            taken.listen()
        port = taken.getsockname()[1]
        if explicit:
            result = ckptprof.call("agent", "--db", str(ckptprof.database), "--listen", f"127.0.0.1:{port}")
            assert result.returncode == 1
            assert str(port).encode() in result.stderr
        else:
            watching = watch("--rate", "10")
            watching.until(b"READY=1")
            assert watching.end() == 0
            assert "no metrics are served" in watching.said()


@pytest.mark.parametrize("listen", ["nonsense", "1.2.3.4", ":99999", "foo:bar", "host:", "", "x\x1b[31m:y"])
def test_an_address_that_is_none_is_a_usage_error(ckptprof: Ckptprof, listen: str) -> None:
    """Exit code 2, one clean line and a hint."""
    result = ckptprof.call("agent", "--db", str(ckptprof.database), "--listen", listen)

    assert result.returncode == 2
    assert b"\x1b" not in result.stderr
    assert len(result.stderr.splitlines()) == 2


def test_a_rate_that_is_no_number_is_a_usage_error(ckptprof: Ckptprof) -> None:
    """`nan` passes every comparison."""
    assert ckptprof.call("agent", "--db", str(ckptprof.database), "--rate", "nan").returncode == 2


CHURN = """
import pathlib, subprocess, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    subprocess.run([sys.executable, "-S", "-c", "open('churned.pt', 'wb').write(bytes(3 << 20))"])
"""


@pytest.mark.xdist_group("live")
@pytest.mark.root
@pytest.mark.bpf
def test_thousands_of_processes_leave_nothing_behind(
    ckptprof: Ckptprof, watch: Watch, record_property: Callable[[str, object], None]
) -> None:
    """Descriptors and threads of an agent's processes do not grow with a crowd of short interpreters."""
    levels = ("poll", "trace")
    agents = {level: watch("--no-metrics", "--level", level, name=level) for level in levels}
    for watching in agents.values():
        watching.until(b"READY=1")
    processes = {level: (psutil.Process(one.process.pid), sampler_of(one.process)) for level, one in agents.items()}
    churn = [sys.executable, "-c", CHURN]
    subprocess.run([*churn, "5"], check=True, cwd=ckptprof.work)
    before = {level: [footprint(process) for process in processes[level]] for level in levels}
    subprocess.run([*churn, "20"], check=True, cwd=ckptprof.work)

    def settled() -> bool:
        known = sum(1 for _ in psutil.process_iter())
        of_trace = {"poll": 0, "trace": 64}  # its maps, programs and links: the same from first to last
        return all(
            recorder.num_fds() < 32 and sampler.num_fds() < of_trace[level] + 32 + 3 * known
            for level, (recorder, sampler) in processes.items()
        )

    wait_until(settled)
    after = {level: [footprint(process) for process in processes[level]] for level in levels}
    assert [watching.end() for watching in agents.values()] == [0, 0]
    # Of memory: a trace sees every file of every one of them, and what ended is kept for two minutes: for who writes on
    for level in levels:
        pairs = list(zip(before[level], after[level], strict=True))
        # Two of the sampler begin when they are first needed (facts of files, Python stacks): never one a process
        assert all(late <= early + 2 for (early, _), (late, _) in pairs), (level, pairs)
        grown_mb = max(late - early for (_, early), (_, late) in pairs) / 1e6
        record_property("figure", f"{level}: {grown_mb:.1f} MB more after 20 s of short interpreters")


def footprint(process: psutil.Process) -> tuple[int, int]:
    """Return the threads and the resident bytes of a process."""
    return process.num_threads(), process.memory_info().rss
