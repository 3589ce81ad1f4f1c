"""`ckptprof agent` and users who mean it ill: nobody stops it, and nobody makes it look where it must not."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from livecommand import Ckptprof, sampler_of, wait_until
from tests.leftovers import own
from tests.patience import LIFETIME, PATIENCE_SECONDS

from ckptprof.service.sampler.entry_point import MAX_BLOCKED_LOOPS
from silentfuse import silent

PYTHON = shutil.which("python3", path="/usr/bin") or ""  # one that any user may run
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no /usr/bin/python3"),
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.xdist_group("live"),
]

_FAN_CLOEXEC, _FAN_NONBLOCK, _FAN_MARK_ADD = 0x1, 0x2, 0x1  # include/uapi/linux/fanotify.h
_FAN_OPEN = 0x20 | 1 << 27 | 1 << 30  # of the folder itself, too, and of what is in it
_EVENT = struct.Struct("=IBBHQii")
USER, OTHER = 65534, 4321
SAVE = """
import mmap, sys, time
library = open("libtorch.so", "w+b")  # what trains has one mapped: each save is told for itself, not as one of a series
library.truncate(4096)
mapped = mmap.mmap(library.fileno(), 4096)
header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (8000000,), }".ljust(117) + b"\\n"
for n in range(int(sys.argv[1])):
    time.sleep(1)
    with open(f"ckpt_{n}.npy", "wb") as file:
        file.write(b"\\x93NUMPY\\x01\\x00" + len(header).to_bytes(2, "little") + header)
        file.write(bytes(64_000_000))
time.sleep(1)
"""
JOB = (Path(__file__).resolve().parents[1] / "swapping_job.py").read_text()
HOLDING = (Path(__file__).resolve().parents[1] / "holding_job.py").read_text()
LEVELS = [pytest.param("poll"), pytest.param("trace", marks=pytest.mark.bpf)]
SAVES = {f"ckpt_{n}.npy" for n in range(3)}


@pytest.fixture
def homes() -> Iterator[dict[int, Path]]:
    """Return a folder for each of two users; not below tmp_path, which is closed to them."""
    base = Path(tempfile.mkdtemp(prefix=own("attack-"), dir="/var/tmp"))
    base.chmod(0o755)
    made = {}
    for user in (USER, OTHER):
        made[user] = base / str(user)
        made[user].mkdir()
        os.chown(made[user], user, user)
    yield made
    shutil.rmtree(base, ignore_errors=True)


def as_user(
    user: int, program: str, *arguments: str, cwd: Path, prefix: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a program in Python as a user without privileges; by its rank it looks like one that trains."""
    become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", PYTHON, "-c", program)
    environment = {"RANK": "0", "PATH": os.environ["PATH"]}
    return subprocess.Popen([*prefix, *become, *arguments], cwd=cwd, env=environment, start_new_session=True)


class Openings:
    """Who opens folders, and what is in them, from now on (fanotify(7)): other agents of this host are told apart."""

    def __init__(self, *folders: Path) -> None:
        """Watch them."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.fanotify_init(_FAN_NONBLOCK | _FAN_CLOEXEC, os.O_RDONLY | os.O_LARGEFILE | os.O_NOATIME)
        for folder in folders:
            path, mask = ctypes.c_char_p(os.fsencode(folder)), ctypes.c_uint64(_FAN_OPEN)
            assert libc.fanotify_mark(self._fd, _FAN_MARK_ADD, mask, -100, path) == 0, ctypes.get_errno()

    def by(self, pid: int) -> list[str]:
        """Return what a process has opened since the last call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while raw := os.read(self._fd, 1 << 16):
                for at in range(0, len(raw), _EVENT.size):
                    *_, fd, opener = _EVENT.unpack_from(raw, at)
                    if opener == pid:
                        found.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
                    os.close(fd)
        return found

    def close(self) -> None:
        """Watch no longer."""
        os.close(self._fd)


def watched(process: psutil.Process) -> set[int]:
    """Return the inodes that a process watches by inotify (proc_pid_fdinfo(5))."""
    found = set()
    for path in Path(f"/proc/{process.pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            found |= {int(words.split()[0], 16) for words in path.read_text().split("inotify wd:")[1:]
                      for words in words.split(" ino:")[1:]}  # fmt: skip
    return found


def switches(process: psutil.Process) -> int:
    """Return how often the main thread of a process has gone to sleep."""
    status = Path(f"/proc/{process.pid}/task/{process.pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split(None, 1)[0])


def longest_stillness(process: psutil.Process, job: subprocess.Popen[bytes]) -> float:
    """Return for how long at most the main thread of a process did nothing while a job ran, in seconds."""
    longest, last, since = 0.0, switches(process), time.monotonic()
    while job.poll() is None:
        now = time.monotonic()
        if (count := switches(process)) != last:
            last, since = count, now
        longest = max(longest, now - since)
        time.sleep(0.05)
    return longest


def shown(port: int, name: str) -> float:
    """Return a metric without labels; -1 if it is not there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as page:
        lines = page.read().decode().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"ckptprof_{name} ")), -1.0)


class Agent:
    """An agent of one level; several watch the same attack."""

    def __init__(self, ckptprof: Ckptprof, level: str) -> None:
        """Start it, and wait until it stores."""
        self._ckptprof = ckptprof
        self.database = ckptprof.database.with_name(f"{level}.db")
        self._log = self.database.with_name(f"{level}.log")
        self._log.parent.mkdir(exist_ok=True)
        options = ("--db", str(self.database), "--listen", "127.0.0.1:0", "--level", level)
        with self._log.open("wb") as log:
            self.process = ckptprof.start("agent", *options, stderr=log)
        ckptprof.await_sight(self.database)
        served = wait_until(lambda: re.search(r"metrics on http://127\.0\.0\.1:(\d+)", self.said()), self.said)
        self.port = int(served[1])
        self.sampler = sampler_of(self.process)

    @property
    def is_same(self) -> bool:
        """Whether its sampler lives still."""
        return sampler_of(self.process).pid == self.sampler.pid

    def said(self) -> str:
        """Return what it has said."""
        return self._log.read_text()

    def has_told(self, home: Path) -> bool:
        """Return whether it has told all that was saved there."""
        return set(self._ckptprof.steps(home, self.database)) >= SAVES

    def hangs(self, least: int = 1, most: float = math.inf) -> bool:
        """Return whether so many of its look-ups hang."""
        return least <= shown(self.port, "sampler_hung_lookups") < most

    def end(self) -> int:
        """End it as systemd does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.mark.bpf
@pytest.mark.fuse
def test_a_folder_swapped_for_a_mount_that_hangs_stops_nobody(
    ckptprof: Ckptprof, homes: dict[int, Path], record_property: Callable[[str, object], None]
) -> None:
    """While it hangs the sampler tells the saves of another user, and the agent ends; at both levels."""
    agents = [Agent(ckptprof, level) for level in ("poll", "trace")]
    with silent(homes[USER] / "silent", USER) as mount:
        attacker = as_user(USER, JOB, str(homes[USER]), str(mount.place / "x"), LIFETIME, cwd=homes[USER])
        try:
            for agent in agents:
                wait_until(agent.hangs)
            victim = as_user(OTHER, SAVE, "3", cwd=homes[OTHER])
            with ThreadPoolExecutor() as pool:
                still = list(pool.map(lambda agent: longest_stillness(agent.sampler, victim), agents))
            for agent in agents:
                wait_until(functools.partial(agent.has_told, homes[OTHER]))
        finally:
            os.killpg(attacker.pid, signal.SIGKILL)
        attacker.wait()
        same = [agent.is_same for agent in agents]
        ended = [agent.end() for agent in agents]
        hangs = ckptprof.call("doctor").stdout.decode()

    # What was asked in the mount's own thread, until the mount ends; samplers of other agents may hang beside it.
    for agent in agents:
        assert re.search(rf"sampler [0-9,\s]*\b{agent.sampler.pid}\b", hangs), hangs
    record_property("figure", f"a sampler beside a mount that hangs: still for {max(still):.2f} s at most")
    assert all(same)
    assert (victim.returncode, *ended) == (0, 0, 0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.fanotify
def test_a_link_leads_to_nothing_that_its_user_may_not_see(
    ckptprof: Ckptprof, homes: dict[int, Path], level: str
) -> None:
    """A folder of root that a job names, by a link or outright, is neither watched nor listed nor read; its own is."""
    secret = homes[USER].parent / "secret"
    (secret / "in").mkdir(parents=True)
    secret.chmod(0o700)
    (secret / "in" / "model.pt").write_bytes(bytes(2 << 20))
    (homes[USER] / "own").mkdir()
    (homes[USER] / "link").symlink_to(secret / "in")
    for path in (homes[USER] / "own", homes[USER] / "link"):
        os.chown(path, USER, USER, follow_symlinks=False)
    inodes = {(secret / name).stat().st_ino for name in ("", "in")}
    openings = Openings(secret, secret / "in")
    agent = ckptprof.start("agent", "--db", str(ckptprof.database), "--no-metrics", "--level", level)
    ckptprof.await_sight()
    sampler = sampler_of(agent)
    names = (f"--out={homes[USER]}/link", f"--log={homes[USER]}/link/model.pt", f"--base={secret}/in")
    job = as_user(USER, SAVE, "3", *names, cwd=homes[USER] / "own")
    found: set[int] = set()
    while job.poll() is None:
        os.utime(secret / "in" / "model.pt")  # so that it counts as new
        time.sleep(0.3)
        assert openings.by(sampler.pid) == []
        found |= watched(sampler)
    wait_until(lambda: set(ckptprof.steps(homes[USER])) >= SAVES)
    after = openings.by(sampler.pid)
    found |= watched(sampler)
    agent.send_signal(signal.SIGTERM)
    code = agent.wait(PATIENCE_SECONDS)
    openings.close()

    assert (code, job.returncode, after) == (0, 0, [])
    assert found & inodes == set()
    assert (homes[USER] / "own").stat().st_ino in found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.fanotify
@pytest.mark.namespaces
def test_what_a_job_had_in_a_namespace_of_its_own_is_not_looked_for_on_the_host(
    ckptprof: Ckptprof, homes: dict[int, Path], level: str
) -> None:
    """It has ended, and its mount with it: the files of the host that have the same names are another's."""
    place = homes[USER] / "ckpt"
    place.mkdir()
    for number in range(3):
        (place / f"ckpt_{number}.npy").write_bytes(bytes(2 << 20))
    openings = Openings(place)
    agent = ckptprof.start("agent", "--db", str(ckptprof.database), "--no-metrics", "--level", level)
    ckptprof.await_sight()
    mount = f'mount -t tmpfs -o mode=777 none {place} && cd {place} && exec "$@"'
    job = as_user(USER, SAVE, "3", cwd=homes[USER], prefix=("unshare", "--mount", "sh", "-c", mount, "sh"))
    sampler = sampler_of(agent)
    code = job.wait(PATIENCE_SECONDS)
    as_user(OTHER, SAVE, "3", cwd=homes[OTHER]).wait(PATIENCE_SECONDS)
    wait_until(lambda: set(ckptprof.steps(homes[OTHER])) >= SAVES)  # by then it knows that the first one has ended
    seen = openings.by(sampler.pid)
    agent.send_signal(signal.SIGTERM)

    assert (code, agent.wait(PATIENCE_SECONDS)) == (0, 0)
    assert seen + openings.by(sampler.pid) == []
    openings.close()
    if level == "trace":  # polling alone does not tell such short ones, there or elsewhere
        assert set(ckptprof.steps(homes[USER])) >= SAVES  # while it lived, in its own root


@pytest.mark.fuse
def test_a_sampler_that_does_not_end_is_counted_and_told(ckptprof: Ckptprof, homes: dict[int, Path]) -> None:
    """Killed while one of its threads hangs, it stays; another goes on, and it is counted until it is gone."""
    agent = Agent(ckptprof, "poll")
    sampler = agent.sampler

    with silent(homes[USER] / "silent", USER) as mount:
        job = as_user(USER, SAVE, "1", f"--out={mount.place}/x/y", cwd=homes[USER])
        job.wait(PATIENCE_SECONDS)
        wait_until(lambda: shown(agent.port, "sampler_hung_lookups") == 1)
        sampler.kill()
        wait_until(lambda: shown(agent.port, "samplers_stuck") == 1)
        children = psutil.Process(agent.process.pid).children
        wait_until(lambda: any(child.status() != psutil.STATUS_ZOMBIE for child in children()))
    wait_until(lambda: shown(agent.port, "samplers_stuck") == 0)

    assert agent.end() == 0
    said = agent.said()
    assert f"files on fuse of user {USER} (no answer" in said
    assert f"sampler {sampler.pid} does not exit" in said


@pytest.mark.alone  # whoever reads all of /proc is held, too: psutil, in tests beside this one
@pytest.mark.bpf
@pytest.mark.parametrize("how", ["exec", "mmap"])
@pytest.mark.fuse
def test_processes_that_hold_whoever_reads_of_them_stop_nobody(
    ckptprof: Ckptprof, homes: dict[int, Path], how: str
) -> None:
    """Another thread goes on without them, the saves of another user are told, and what is not looked at is said."""
    agents = [Agent(ckptprof, level) for level in ("poll", "trace")]
    with silent(homes[USER] / "held", USER, {"exec": "flush", "mmap": "write"}[how]) as mount:
        attacker = as_user(USER, HOLDING, f"{mount.place}/x", "6", how, cwd=homes[USER])
        try:
            wait_until(lambda: mount.asked >= {"exec": 3, "mmap": 1}[how])  # all wait for one page
            code = as_user(OTHER, SAVE, "3", cwd=homes[OTHER]).wait(PATIENCE_SECONDS)
            held = []
            for agent in agents:
                wait_until(functools.partial(agent.has_told, homes[OTHER]))
                wait_until(agent.hangs)
                held.append(shown(agent.port, "sampler_hung_lookups"))
        finally:
            os.killpg(attacker.pid, signal.SIGKILL)
    attacker.wait()
    assert code == 0
    for agent, most in zip(agents, held, strict=True):
        assert agent.is_same
        wait_until(functools.partial(agent.hangs, 0, most))  # another mount of this host may hang, too
        assert agent.end() == 0
        assert most < MAX_BLOCKED_LOOPS
        assert f"processes of user {USER} (reading them blocks in the kernel" in agent.said()
