"""A Debian whose PID 1 is systemd, in a container of systemd-nspawn: made once, copied, booted, ended without a trace.

It has a network, a name and a cgroup of its own, so that nothing on this host holds its ports, and neither an agent on
this host nor the machine of another checkout's tests is met.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tests.leftovers import own
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.tries import JobBrokeError

REPOSITORY = Path(__file__).resolve().parents[2]
TREES = REPOSITORY / ".build" / "systemd-trees"  # kept: making one takes a minute
RELEASE = platform.freedesktop_os_release()["VERSION_CODENAME"]  # this host's
PROGRAM = "/opt/ckptprof/bin/ckptprof"
STATE = "/var/lib/ckptprof"
DATABASE = f"{STATE}/ckptprof.db"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TREE_VERSION = 2  # change it with what `tree` makes
_OMITTED = ("man", "doc", "locale")
_NUMBERS = count(1)  # of the machines of this process
_INTO_CGROUPS = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'

Result = TypeVar("Result")


def until(what: str, ask: Callable[[], Result | None]) -> Result:
    """Ask again and again; return the first answer that is true. Raises AssertionError when the patience is over."""

    def asked() -> Result | None:
        if not (answer := ask()):
            time.sleep(0.1)  # each question starts a process
        return answer

    answer: Result = wait_until(asked, f"never came: {what}")
    return answer


def quietly(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """Run a command of this host and return what it printed; raises JobBrokeError, with what it said, if it failed."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode != 0:
        raise JobBrokeError(f"{command[0]} exited with {done.returncode}: {done.stdout[-4000:]}")
    return done.stdout


def python_of(root: Path) -> str:
    """Return the version of the Python in a tree, as 3.11."""
    return next(path.name.removeprefix("python") for path in root.glob("usr/bin/python3.*") if path.name[-1].isdigit())


def fetch(root: Path, *wanted: str | Path) -> None:
    """Put wheels and those that they need into /wheels of a tree, for the Python that is there."""
    options = ("--only-binary=:all:", "--implementation=cp", f"--python-version={python_of(root)}")
    quietly(sys.executable, "-m", "pip", "download", "--quiet", *options, "--dest", root / "wheels", *wanted)


def inside(root: Path, script: str) -> None:
    """Run a script in a tree that is not booted."""
    quietly("chroot", root, "env", "-i", f"PATH={PATH}", "HOME=/root", "sh", "-euc", script)


def tree(release: str) -> Path:
    """Return a minimal tree of a release, with numpy in /opt/train and the users `trainer` and `reader`."""
    made = TREES / f"{release}-{_TREE_VERSION}"
    TREES.mkdir(parents=True, exist_ok=True)
    with (TREES / "lock").open("w") as lock:  # other workers wait for the one that makes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.is_dir():
            return made
        with tempfile.TemporaryDirectory(dir=TREES) as directory:
            root = Path(directory) / "root"
            omitted = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _OMITTED]
            packages = "--include=systemd,python3-venv,passwd,libbpf1,libstdc++6"  # the last for numpy
            unsafe = "--dpkgopt=force-unsafe-io"  # it is thrown away if this host goes down
            quietly("mmdebstrap", "--quiet", "--variant=essential", packages, unsafe, *omitted, release, root)
            if (root / "proc").is_mount():  # left behind on a crowded host: a copy of it would never end
                quietly("umount", root / "proc")
            fetch(root, "numpy", "safetensors")
            inside(root, "python3 -m venv /opt/train")
            inside(root, "/opt/train/bin/pip install --quiet --no-index --find-links=/wheels numpy safetensors")
            inside(root, "rm -r /wheels; useradd -m trainer; useradd -m reader")
            root.rename(made)
    return made


def copy_of_tree(work: Path, release: str = RELEASE) -> Path:
    """Return a copy of the tree that holds the wheel of this checkout with what it needs, and the examples."""
    root = work / "root"
    quietly("cp", "--archive", "--reflink=auto", tree(release), root)
    shutil.copytree(REPOSITORY / "examples", root / "opt/examples")
    quietly(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", work, REPOSITORY)
    fetch(root, next(work.glob("ckptprof-*.whl")))
    return root


class Machine:
    """One boot of a tree."""

    def __init__(self, root: Path, *, ebpf: bool = True) -> None:
        """Nothing is started yet; `ebpf`: it has the capabilities and system calls for that, if this host has them."""
        self.root = root
        self._allowed = ["--system-call-filter=adjtimex"]  # as on a host; CAP_SYS_TIME it has not
        if ebpf:
            self._allowed += ["--capability=CAP_BPF,CAP_PERFMON", "--system-call-filter=bpf perf_event_open"]
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._init = 0
        self.name = own(f"{os.getpid()}-{next(_NUMBERS)}")

    def boot(self) -> None:
        """Boot, and wait until systemd has started everything; raises JobBrokeError if it never has."""
        log = self.root.with_name("console.log")
        setting = ("--private-network", "--link-journal=no", f"--machine={self.name}", f"--directory={self.root}")
        nspawn = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", *setting, *self._allowed)
        ends_with_us = ("setpriv", "--pdeathsig=TERM")  # should pytest be killed, the machine ends too
        groups = self._groups()
        for group in groups:
            group.mkdir()
        with log.open("wb") as console:
            self._nspawn = subprocess.Popen(
                [
                    *("sh", "-euc", _INTO_CGROUPS, "sh", *groups, "--"),
                    *(*ends_with_us, *nspawn, "--console=pipe", "--boot"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        try:
            self._init = until("a PID 1", self._first_process)
            until("a booted system", self._is_up)
        except AssertionError as error:
            raise JobBrokeError(f"{error}; the console says: {log.read_text(errors='replace')}") from None

    def _is_up(self) -> bool:
        """Wait for the end of the boot; whether a unit failed by it ("degraded") is for a test to ask."""
        told = self.call("systemctl", "is-system-running", "--wait").stdout
        return told in ("running\n", "degraded\n")

    def _first_process(self) -> int:
        if self._nspawn is None or self._nspawn.poll() is not None:
            raise AssertionError("systemd-nspawn ended")
        pid = self._nspawn.pid
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                status = Path(f"/proc/{child}/status").read_text()
                # nspawn's own helpers come first; and before systemd is executed, PID 1 is still nspawn
                if re.search(r"^NSpid:.*\t1$", status, re.MULTILINE) and status.startswith("Name:\tsystemd\n"):
                    return int(child)
        return 0

    def end(self) -> None:
        """Shut it down, and leave nothing on this host."""
        if self._nspawn is not None:
            self._nspawn.terminate()  # an orderly shutdown
            try:
                self._nspawn.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                if self._init:
                    os.kill(self._init, signal.SIGKILL)  # all of it ends with PID 1
                self._nspawn.kill()
                self._nspawn.wait()
        until("no cgroup and no folder of it", self._removed)

    @property
    def network(self) -> tuple[str, ...]:
        """The command by which a program of this host has the machine's network, and nothing else of it."""
        return "nsenter", f"--target={self._init}", "--net", "--"

    def filters_addresses(self) -> bool:
        """Return whether systemd can hold a unit to some addresses: by eBPF, in cgroups of version 2, or it warns."""
        self.run("journalctl", "--sync")
        return "firewalling" not in self.run("journalctl", "--boot", "--output=cat", "--no-pager")

    def call(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as root or as somebody else, and return whatever came of it."""
        someone = ("runuser", "-u", user, "--") if user else ()
        return subprocess.run(
            [
                "nsenter",
                f"--target={self._init}",
                "--all",
                "env",
                "-i",
                f"PATH={PATH}",
                "TERM=dumb",
                *someone,
                *command,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, *command: str, user: str | None = None) -> str:
        """Run a command that has to succeed, and return what it printed."""
        done = self.call(*command, user=user)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def property(self, name: str) -> str:
        """Return what systemd says of the service."""
        return self.run("systemctl", "show", "--property", name, "--value", "ckptprof").strip()

    def pids(self) -> tuple[int, int]:
        """Return the pids of recorder and sampler, as they are in it; 0 for one that is not there."""
        recorder = int(self.property("MainPID"))
        children = self.call("cat", f"/proc/{recorder}/task/{recorder}/children").stdout.split() if recorder else []
        return recorder, int(children[0]) if children else 0

    def journal(self) -> str:
        """Return what the service and systemd have said of it since the machine was booted."""
        return self.run("journalctl", "--boot", "--unit=ckptprof", "--output=cat", "--no-pager")

    def restart_with(self, settings: str) -> None:
        """Put settings into a drop-in of the service and start it again with them."""
        self.drop_in(settings)
        self.run("systemctl", "daemon-reload")
        self.run("systemctl", "restart", "ckptprof")

    def drop_in(self, settings: str) -> None:
        """Put settings into a drop-in of the service."""
        path = self.root / "etc/systemd/system/ckptprof.service.d/50-test.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"[Service]\n{settings}\n", encoding="utf-8")

    def train(self, *arguments: str, wait: bool) -> None:
        """Train as another user, in a unit of its own, to the end or in the background."""
        job = ["/opt/train/bin/python", "/opt/examples/train_numpy.py", "--format=safetensors", "--size-mb=120"]
        where = ["--dir=/home/trainer/job", "--truth=/home/trainer/truth"]
        unit = ["--quiet", "--collect", "--unit=train", "--uid=trainer", "--property=Type=oneshot"]
        self.run("systemd-run", *unit, *([] if wait else ["--no-block"]), *job, *where, *arguments)

    def truth(self) -> list[dict[str, Any]]:
        """Return the saves that the job has logged by now."""
        with contextlib.suppress(FileNotFoundError):
            text = (self.root / "home/trainer/truth").read_text(encoding="utf-8")
            return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return []

    def report(self) -> dict[str, Any]:
        """Return the document of `ckptprof report --json`, empty if there is no database yet."""
        done = self.call(PROGRAM, "report", "--json", "--db", DATABASE)
        assert done.returncode in (0, 3), done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def steps(self) -> list[int]:
        """Return the steps of the saves that are reported."""
        return [one["step"] for one in self.report()["checkpoints"] if one["kind"] == "save"]

    def capabilities(self, pid: int) -> dict[str, str]:
        """Return the sets of a process of it, as hexadecimal masks: Inh, Prm, Eff, Bnd and Amb."""
        status = self.run("cat", f"/proc/{pid}/status")
        return dict(re.findall(r"^Cap(\w+):\t(\w+)$", status, re.MULTILINE))

    def _groups(self) -> list[Path]:
        """Return where its own cgroup is, below that of the tests, in each hierarchy in which systemd has one."""
        roots = {"": ("", "unified"), "name=systemd": ("systemd",)}
        found = []
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, hierarchy, group = line.split(":", 2)
            tests = [Path("/sys/fs/cgroup", root, group.strip("/")) for root in roots.get(hierarchy, ())]
            found += [place / self.name for place in tests if (place / "cgroup.procs").exists()]
        return found

    def leftovers(self) -> list[Path]:
        """Return what it leaves on a host, not being registered: cgroups and a folder, the innermost first."""
        found = [Path(path) for top in self._groups() for path, _, _ in os.walk(top, topdown=False)]
        folder = Path("/run/systemd/nspawn/propagate") / self.name
        return [*found, folder] if folder.is_dir() else found

    def _removed(self) -> bool:
        """Remove what it leaves; return whether all is gone: a cgroup is busy until its last process is reaped."""
        for left in self.leftovers():
            with contextlib.suppress(FileNotFoundError):
                try:
                    left.rmdir()
                except OSError as error:
                    if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                        raise
        return not self.leftovers()


@contextlib.contextmanager
def booted(root: Path, *, ebpf: bool = True) -> Iterator[Machine]:
    """Boot a tree that has forgotten what was recorded, trained, logged and set in its last life."""
    for path in ("var/lib/ckptprof", "home/trainer/job", "etc/systemd/system/ckptprof.service.d", "var/log/journal"):
        shutil.rmtree(root / path, ignore_errors=True)
    (root / "home/trainer/truth").unlink(missing_ok=True)
    machine = Machine(root, ebpf=ebpf)
    try:
        machine.boot()
        yield machine
    finally:
        machine.end()


def install(root: Path) -> str:
    """Run the commands of systemd/README.md in a tree, as they stand there, and return what they printed."""
    readme = (REPOSITORY / "systemd/README.md").read_text(encoding="utf-8")
    block = re.search(r"## Install\n\n```sh\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    with booted(root) as machine:
        commands = block[1].replace("/path/to/checkout", "ckptprof")  # whose wheel is there already
        printed = machine.run("env", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "sh", "-euc", commands)
        machine.run("usermod", "-aG", "ckptprof", "reader")
    return printed
