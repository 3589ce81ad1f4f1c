"""Leave nothing behind: tests/tries.py works in a process of its own, and what is left when that ends is taken away.

What loses its parent becomes ours, whichever session it made for itself, and is killed. What is mounted is seen by
nobody else, and goes with the last process that sees it, as its loop device and the network namespaces do. Folders,
cgroups and interfaces are found by the name of the run; `given_back` writes down what a host has once.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

RUN = "CKPTPROF_TEST_RUN"  # the name of the run, which those that it starts inherit
TO_END_SECONDS = 60.0  # after which it says what cannot be ended
CGROUPS = Path("/sys/fs/cgroup")
# Where tests make folders outside of pytest's own, or programs leave something by the name that they were given
PLACES = ("/mnt", "/dev/shm", "/var/tmp", "/run/netns", "/run/systemd/nspawn/propagate")
_HEARD = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, include/uapi/linux/prctl.h
_OWN_MOUNTS = 0x20000  # CLONE_NEWNS
_HEARS_OF_OTHERS = 0x84000  # MS_REC | MS_SLAVE: what the host unmounts is not held


def own(what: str) -> str:
    """Return a name for something outside of pytest's folders that no other run has, and that is found at the end."""
    return f"ckptprof-{_run()}-{what}"


def own_link(what: str) -> str:
    """Return such a name of an interface, which has 15 bytes at most: `what` has six of them."""
    return f"ckp{_run()}{what}"


def _run() -> str:
    return os.environ.setdefault(RUN, secrets.token_hex(3))


@contextlib.contextmanager
def given_back(file: Path, text: str) -> Iterator[None]:
    """Write this into a file of the kernel's afterwards, even if this process is killed meanwhile."""
    debts = _debts()
    debt = debts / secrets.token_hex(8)
    if debts.is_dir():
        debt.write_text(json.dumps([str(file), text]), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")
        debt.unlink(missing_ok=True)


def _debts() -> Path:
    return Path(tempfile.gettempdir(), own("debts"))


def leave_none() -> None:
    """Return in a child, which does the work; the caller ends as that does, when nothing is left of it.

    An interrupt, or another signal to end, is handed on as an interrupt to pytest and its workers.
    """
    os.environ[RUN] = secrets.token_hex(3)
    _debts().mkdir()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    heard = {number for number in _HEARD if signal.getsignal(number) is not signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    child = os.fork()
    if child == 0:
        _see_mounts_alone()
        if signal.SIGINT in heard:
            signal.signal(signal.SIGINT, _let_others_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
        return
    code = _end_of(child, heard)
    stuck = _end_descendants()
    _remove_what_bears_our_name()
    if stuck:
        sys.stderr.write(f"cannot be ended: {', '.join(stuck)}\n")
    sys.exit(code if code >= 0 else 128 - code)


def _see_mounts_alone() -> None:
    """Where that is allowed, which it is wherever tests may mount."""
    libc = ctypes.CDLL(None)
    if libc.unshare(_OWN_MOUNTS) == 0:
        libc.mount(b"none", b"/", None, _HEARS_OF_OTHERS, None)


def _let_others_end(*_: object) -> None:
    """Go on waiting for what has been interrupted too, and sums up."""
    if not psutil.Process().children():
        raise KeyboardInterrupt


def _end_of(child: int, heard: set[signal.Signals]) -> int:
    """Reap all who end until the child does; return its exit code."""
    while True:
        if (told := signal.sigwait(heard)) is not signal.SIGCHLD:
            _interrupt(psutil.Process(child), unheard=told in (signal.SIGTERM, signal.SIGHUP))
        for pid, status in _reaped():
            if pid == child:
                return os.waitstatus_to_exitcode(status)


def _interrupt(child: psutil.Process, *, unheard: bool) -> None:
    """Interrupt it, pytest below it, and pytest's workers; who is in our session has heard what the terminal says."""
    pytests = child.children()
    for process in (child, *pytests, *(worker for one in pytests for worker in one.children())):
        with contextlib.suppress(OSError):
            if unheard or os.getsid(process.pid) != os.getsid(0):
                os.kill(process.pid, signal.SIGINT)


def _reaped() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def _end_descendants() -> list[str]:
    """Kill them until there are none; return those that cannot be killed."""
    deadline = time.monotonic() + TO_END_SECONDS
    while True:
        list(_reaped())
        left = psutil.Process().children(recursive=True)
        _give_back()  # what is held to a slow device ends sooner
        if not left or time.monotonic() > deadline:
            return [str(process) for process in left]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def _give_back() -> None:
    for debt in _debts().iterdir():
        file, text = json.loads(debt.read_text(encoding="utf-8"))
        with contextlib.suppress(OSError):
            Path(file).write_text(text, encoding="utf-8")


def _remove_what_bears_our_name() -> None:
    for group in (group for top in CGROUPS.rglob(own("*")) for group, _, _ in os.walk(top, topdown=False)):
        with contextlib.suppress(OSError):
            Path(group).rmdir()
    for link in Path("/sys/class/net").glob(own_link("*")):
        subprocess.run(["ip", "link", "delete", link.name], check=False, capture_output=True)  # or its other end was
    for mount in reversed(psutil.disk_partitions(all=True)):  # if it might mount, but see no mounts alone
        if own("") in mount.mountpoint:
            subprocess.run(["umount", "--lazy", mount.mountpoint], check=False)
    for left in (left for place in (*PLACES, tempfile.gettempdir()) for left in Path(place).glob(own("*"))):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
