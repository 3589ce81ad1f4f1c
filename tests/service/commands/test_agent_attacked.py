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
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from livecommand import Ckptprof, sampler_of, wait_until

from ckptprof.service.sampler.relay import MAX_RELIEVED
from silentfuse import silent

PYTHON = shutil.which("python3", path="/usr/bin") or ""  # one that any user may run
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no /usr/bin/python3"),
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.xdist_group("live"),
    pytest.mark.timeout(180),
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
    base = Path(tempfile.mkdtemp(prefix="ckptprof-attack-", dir="/var/tmp"))
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


def longest_stillness(process: psutil.Process, seconds: float) -> float:
    """Return for how long at most the main thread of a process did nothing within a while, in seconds."""
    longest, last, since = 0.0, switches(process), time.monotonic()
    until = since + seconds
    while (now := time.monotonic()) < until:
        if (count := switches(process)) != last:
            last, since = count, now
        longest = max(longest, now - since)
        time.sleep(0.05)
    return longest


def free_port() -> int:
    """Return one that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def shown(port: int, name: str) -> float:
    """Return a metric without labels; -1 if it is not there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"ckptprof_{name} ")), -1.0)


class Agent:
    """An agent of one level; several watch the same attack."""

    def __init__(self, ckptprof: Ckptprof, level: str) -> None:
        """Start it, and wait until it stores."""
        self._ckptprof = ckptprof
        self.database = ckptprof.database.with_name(f"{level}.db")
        self.port = free_port()
        metrics = ("--listen", f"127.0.0.1:{self.port}")
        self.process = ckptprof.start(
            "agent", "--db", str(self.database), *metrics, "--level", level, stderr=subprocess.PIPE
        )
        wait_until(self.database.exists)
        self.sampler = sampler_of(self.process)

    @property
    def is_same(self) -> bool:
        """Whether its sampler lives still."""
        return sampler_of(self.process).pid == self.sampler.pid

    def has_told(self, home: Path) -> bool:
        """Return whether it has told all that was saved there."""
        return set(self._ckptprof.steps(home, self.database)) >= SAVES

    def hangs(self, least: int = 1, most: float = math.inf) -> bool:
        """Return whether so many of its look-ups hang."""
        return least <= shown(self.port, "sampler_hung_lookups") < most

    def end(self) -> tuple[int, float, str]:
        """End it as systemd does; return its exit code, how long that took, and what it has said."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[1].decode()
        return self.process.returncode, time.monotonic() - began, said


@pytest.mark.bpf
@pytest.mark.fuse
def test_a_folder_swapped_for_a_mount_that_hangs_stops_nobody(ckptprof: Ckptprof, homes: dict[int, Path]) -> None:
    """The sampler ticks on, the save of another user is seen whole, and the agent ends in its time; at both levels."""
    agents = [Agent(ckptprof, level) for level in ("poll", "trace")]
    with silent(homes[USER] / "silent", USER) as mount:
        attacker = as_user(USER, JOB, str(homes[USER]), str(mount.place / "x"), "20", cwd=homes[USER])
        time.sleep(5)
        victim = as_user(OTHER, SAVE, "3", cwd=homes[OTHER])
        with ThreadPoolExecutor() as pool:
            still = list(pool.map(lambda agent: longest_stillness(agent.sampler, 16), agents))
        assert (victim.wait(60), attacker.wait(60)) == (0, 0)
        same = [agent.is_same for agent in agents]
        time.sleep(2)
        ended = [agent.end() for agent in agents]
        hangs = ckptprof.call("doctor").stdout.decode()

    # What was asked in the mount's own thread, until the mount ends; samplers of other agents may hang beside it.
    for agent in agents:
        assert re.search(rf"sampler [0-9,\s]*\b{agent.sampler.pid}\b", hangs), hangs
        assert agent.has_told(homes[OTHER])
    assert max(still) < 1.5
    assert all(same)
    assert [(code, seconds < 15) for code, seconds, _ in ended] == [(0, True)] * 2


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
    wait_until(ckptprof.database.exists)
    sampler = sampler_of(agent)
    names = (f"--out={homes[USER]}/link", f"--log={homes[USER]}/link/model.pt", f"--base={secret}/in")
    job = as_user(USER, SAVE, "3", *names, cwd=homes[USER] / "own")
    found: set[int] = set()
    while job.poll() is None:
        os.utime(secret / "in" / "model.pt")  # so that it counts as new
        time.sleep(0.3)
        assert openings.by(sampler.pid) == []
        found |= watched(sampler)
    time.sleep(2)
    after = openings.by(sampler.pid)
    found |= watched(sampler)
    agent.send_signal(signal.SIGTERM)
    code = agent.wait(60)
    openings.close()

    assert (code, job.returncode, after) == (0, 0, [])
    assert found & inodes == set()
    assert (homes[USER] / "own").stat().st_ino in found
    assert set(ckptprof.steps(homes[USER])) >= SAVES


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
    wait_until(ckptprof.database.exists)
    mount = f'mount -t tmpfs -o mode=777 none {place} && cd {place} && exec "$@"'
    job = as_user(USER, SAVE, "3", cwd=homes[USER], prefix=("unshare", "--mount", "sh", "-c", mount, "sh"))
    sampler = sampler_of(agent)
    code = job.wait(60)
    time.sleep(4)
    seen = openings.by(sampler.pid)
    agent.send_signal(signal.SIGTERM)

    assert (code, agent.wait(60)) == (0, 0)
    assert seen + openings.by(sampler.pid) == []
    openings.close()
    if level == "trace":  # polling alone does not tell such short ones, there or elsewhere
        assert set(ckptprof.steps(homes[USER])) >= SAVES  # while it lived, in its own root


@pytest.mark.fuse
def test_a_sampler_that_does_not_end_is_counted_and_told(ckptprof: Ckptprof, homes: dict[int, Path]) -> None:
    """Killed while one of its threads hangs, it stays; another goes on, and it is counted until it is gone."""
    port = free_port()
    arguments = ("agent", "--db", str(ckptprof.database), "--listen", f"127.0.0.1:{port}", "--level", "poll")
    agent = ckptprof.start(*arguments, stderr=subprocess.PIPE)
    wait_until(ckptprof.database.exists)
    sampler = sampler_of(agent)

    with silent(homes[USER] / "silent", USER) as mount:
        job = as_user(USER, SAVE, "1", f"--out={mount.place}/x/y", cwd=homes[USER])
        job.wait(60)
        wait_until(lambda: shown(port, "sampler_hung_lookups") == 1)
        sampler.kill()
        wait_until(lambda: shown(port, "samplers_stuck") == 1)
        children = psutil.Process(agent.pid).children
        wait_until(lambda: any(child.status() != psutil.STATUS_ZOMBIE for child in children()))
    wait_until(lambda: shown(port, "samplers_stuck") == 0)
    agent.send_signal(signal.SIGTERM)
    said = agent.communicate(timeout=60)[1].decode()

    assert agent.returncode == 0
    assert f"files on fuse of user {USER}: no answer" in said
    assert f"the sampler {sampler.pid} does not end" in said


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
            code = as_user(OTHER, SAVE, "3", cwd=homes[OTHER]).wait(60)
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
        ended, _, said = agent.end()
        assert ended == 0
        assert most < MAX_RELIEVED
        assert f"processes of user {USER}: they hold whoever looks at them" in said
