"""The ground that a job saves on: real file systems on real devices and over real links, with a fault or without.

Each is a context manager that gives a directory and takes everything away again. A loop device lies on a file in
memory all of which was written before, so that it is fast and steady unless it is told not to be: where the first save
is also the first to touch that memory, a sync of 100 MB takes 0.35 s here, and 0.04 s later.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from recorder import PATIENCE_SECONDS, wait_until
from tests.leftovers import given_back, own, own_link  # found by recorder
from tests.machine import PATH

BLKIO = Path("/sys/fs/cgroup/blkio")
_MAKE = {  # nothing is discarded: the image would lose its memory
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
IMAGE_MIB = 1700  # three saves of 400 MB and what the file system itself needs
_SERVER, _CLIENT = "10.213.77.2", "10.213.77.1"
Healthy = Callable[[Path], None]  # is called with the directory before the fault is planted


class Ground(Protocol):
    """Makes one."""

    def __call__(self, *, healthy: Healthy = ...) -> AbstractContextManager[Path]:
        """Make it; `healthy` is called while nothing is wrong yet."""
        ...


def _nothing(place: Path) -> None:
    """Do nothing while it is healthy."""


def call(*command: str | Path, timeout: float = PATIENCE_SECONDS, user: int | None = None) -> str:
    """Run a program, as another user if told, and return what it printed; raises RuntimeError with what it said."""
    who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, check=False, timeout=timeout, **who)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


@dataclass(frozen=True)
class Throttle:
    """What a device is held to; None: nothing."""

    write_bytes: int | None = None  # per second
    write_operations: int | None = None
    read_bytes: int | None = None
    read_operations: int | None = None

    def lines(self) -> Iterator[tuple[str, int]]:
        """Yield (file of cgroup v1, limit)."""
        names = ("write_bps", "write_iops", "read_bps", "read_iops")
        limits = (self.write_bytes, self.write_operations, self.read_bytes, self.read_operations)
        for name, limit in zip(names, limits, strict=True):
            if limit is not None:
                yield f"blkio.throttle.{name}_device", limit


@contextlib.contextmanager
def throttled(device: str, throttle: Throttle) -> Iterator[None]:
    """Hold everybody to it: the root of cgroup v1's blkio, so that the kernel's own writing back is held too."""
    with contextlib.ExitStack() as stack:
        for file, limit in throttle.lines():
            stack.enter_context(given_back(BLKIO / file, f"{device} 0"))
            (BLKIO / file).write_text(f"{device} {limit}")
        yield


@cache
def _image() -> Path:
    """Return the file that every loop device of this process lies on, one after the other; it ends with the process."""
    base = Path(tempfile.mkdtemp(prefix=own("fault-"), dir="/dev/shm"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    image = base / "image"
    zeros = bytes(8 << 20)
    with image.open("wb", buffering=0) as stream:
        while stream.tell() < IMAGE_MIB << 20:
            stream.write(zeros)
    return image


@contextlib.contextmanager
def loop(
    kind: str = "ext4",
    throttle: Throttle | None = None,
    *,
    options: str = "defaults",
    healthy: Healthy = _nothing,
) -> Iterator[Path]:
    """Give a new file system on a loop device."""
    place = Path(tempfile.mkdtemp(prefix=own("fault-"), dir="/mnt"))
    with contextlib.ExitStack() as stack:
        stack.callback(place.rmdir)
        image = _image()
        call(*_MAKE[kind], image)
        call("mount", "-o", f"loop,{options}", image, place)  # its loop device goes with it
        stack.callback(_unmount, place)
        number = place.stat().st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        for name, usual in (("strict_limit", "0"), ("max_ratio", "100")):  # an earlier user may have lowered them
            Path(f"/sys/dev/block/{device}/bdi/{name}").write_text(usual)
        healthy(place)
        if throttle is not None:
            stack.enter_context(throttled(device, throttle))
        yield place


def _unmount(place: Path) -> None:
    try:
        until(lambda: call("umount", place))
    except AssertionError:  # somebody still looks at it
        call("umount", "--lazy", place)


@contextlib.contextmanager
def _alone_with(what: str) -> Iterator[None]:
    """Wait until no other checkout's tests have what there is once on a host: the addresses of links, its limits."""
    with Path(tempfile.gettempdir(), f"ckptprof-{what}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def dirty_limits(limit_bytes: int, ground: Ground, *, healthy: Healthy = _nothing) -> Iterator[Path]:
    """Lower the host's limits of dirty memory, and restore them."""
    names = ("dirty_bytes", "dirty_background_bytes", "dirty_ratio", "dirty_background_ratio")
    folder = Path("/proc/sys/vm")
    with _alone_with("dirty-limits"), ground(healthy=healthy) as place, contextlib.ExitStack() as stack:
        for name in names:
            if (before := (folder / name).read_text().strip()) != "0":  # bytes and ratio undo each other
                stack.enter_context(given_back(folder / name, before))
        (folder / "dirty_bytes").write_text(str(limit_bytes))
        (folder / "dirty_background_bytes").write_text(str(limit_bytes // 2))
        yield place


@dataclass
class Link:
    """A network namespace behind a pair of interfaces; `shape` holds both directions to a rate."""

    name: str = field(default_factory=partial(own, "fault"))
    near: str = field(default_factory=partial(own_link, "near"))  # the interface on this host
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    server: str = _SERVER

    def open(self) -> None:
        """Make it."""
        self.close()
        call("ip", "netns", "add", self.name)
        call("ip", "link", "add", self.near, "type", "veth", "peer", "name", "ckpt1", "netns", self.name)
        call("ip", "addr", "add", f"{_CLIENT}/24", "dev", self.near)
        call("ip", "link", "set", self.near, "up")
        inside = ("ip", "netns", "exec", self.name)
        call(*inside, "ip", "addr", "add", f"{_SERVER}/24", "dev", "ckpt1")
        call(*inside, "ip", "link", "set", "ckpt1", "up")
        call(*inside, "ip", "link", "set", "lo", "up")

    def shape(self, megabits: int | None) -> None:
        """Hold both directions to a rate."""
        if megabits is not None:
            shape = ("root", "tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms")
            call("tc", "qdisc", "add", "dev", self.near, *shape)
            call("ip", "netns", "exec", self.name, "tc", "qdisc", "add", "dev", "ckpt1", *shape)

    def serve(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a server inside; it ends with the link."""
        inside = ("ip", "netns", "exec", self.name, *command)
        self.processes.append(
            subprocess.Popen(inside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        )
        return self.processes[-1]

    def end(self) -> None:
        """End what it serves."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def close(self) -> None:
        """Take everything away."""
        self.end()
        with contextlib.suppress(RuntimeError):
            call("ip", "netns", "del", self.name)
        with contextlib.suppress(RuntimeError):
            call("ip", "link", "del", self.near)


@dataclass
class RoutedLink(Link):
    """A network namespace behind a router of its own, which shapes where this host does not see it."""

    name: str = field(default_factory=partial(own, "far"))
    router: str = field(default_factory=partial(own, "router"))
    server: str = "10.213.79.2"

    def open(self) -> None:
        """Make both."""
        self.close()
        here, between, there = "10.213.80.1", "10.213.80.2", "10.213.79.1"
        for name in (self.name, self.router):
            call("ip", "netns", "add", name)
        call("ip", "link", "add", self.near, "type", "veth", "peer", "name", "ckptr1", "netns", self.router)
        inside = ("ip", "-n", self.router)
        call(*inside, "link", "add", "ckptr2", "type", "veth", "peer", "name", "ckptr3", "netns", self.name)
        call("ip", "addr", "add", f"{here}/24", "dev", self.near)
        call(*inside, "addr", "add", f"{between}/24", "dev", "ckptr1")
        call(*inside, "addr", "add", f"{there}/24", "dev", "ckptr2")
        call("ip", "-n", self.name, "addr", "add", f"{self.server}/24", "dev", "ckptr3")
        call("ip", "link", "set", self.near, "up")
        for name, device in ((self.router, "ckptr1"), (self.router, "ckptr2"), (self.name, "ckptr3")):
            call("ip", "-n", name, "link", "set", device, "up")
        call("ip", "netns", "exec", self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        call("ip", "route", "add", f"{self.server}/32", "via", between, "dev", self.near)
        call("ip", "-n", self.name, "route", "add", "default", "via", there)

    def shape(self, megabits: int | None) -> None:
        """Hold both directions to a rate, at the router."""
        for device in ("ckptr1", "ckptr2") if megabits is not None else ():
            shape = ("root", "tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms")
            call("ip", "netns", "exec", self.router, "tc", "qdisc", "add", "dev", device, *shape)

    def close(self) -> None:
        """Take everything away."""
        self.end()
        for command in (("netns", "del", self.name), ("netns", "del", self.router), ("link", "del", self.near)):
            with contextlib.suppress(RuntimeError):
                call("ip", *command)


@contextlib.contextmanager
def sshfs(
    megabits: int | None = None,
    *,
    server_bytes: int | None = None,
    routed: bool = False,
    encrypted: bool = False,
    user: int | None = None,
    healthy: Healthy = _nothing,
) -> Iterator[Path]:
    """Give a FUSE mount over a network, by SFTP; `server_bytes`: its server takes so many a second.

    `routed`: it is shaped beyond this host. `encrypted`: by an SSH server of its own. `user`: the mount is that user's.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone_with("links"))
        behind = stack.enter_context(loop())
        place = Path(tempfile.mkdtemp(prefix=own("remote-"), dir="/mnt"))
        stack.callback(place.rmdir)
        if user is not None:
            os.chown(place, user, user)
        link = RoutedLink() if routed else Link()
        stack.callback(link.close)
        link.open()
        program = "/usr/lib/openssh/sftp-server" if server_bytes is None else f"{sys.executable} {SLOW} {server_bytes}"
        options = "directport=2022"
        if encrypted:
            options = by_ssh(stack, link.serve, program)
        else:
            link.serve("socat", "TCP-LISTEN:2022,fork,reuseaddr,nodelay", f"EXEC:{program}")
        until(lambda: call("sshfs", f"{link.server}:{behind}", place, "-o", options, user=user))
        stack.callback(_unmount, place)
        if server_bytes is None:
            healthy(place)
        link.shape(megabits)
        yield place


def by_ssh(stack: contextlib.ExitStack, serve: Callable[..., object], program: str) -> str:
    """Serve an SSH server of its own, which runs a program for SFTP, and return the options by which sshfs reaches it.

    It has folders and a list of users that nobody else sees: one that is installed may never have run.
    """
    keys = Path(tempfile.mkdtemp(prefix=own("keys-")))
    stack.callback(shutil.rmtree, keys)
    for name in ("host", "mine"):
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name)
    users = keys / "passwd"
    users.write_text(f"{Path('/etc/passwd').read_text()}sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
    told = (f"Subsystem=sftp {program}", f"AuthorizedKeysFile={keys}/mine.pub", "StrictModes=no", "PidFile=none")
    options = " ".join(f"-o '{one}'" for one in told)
    server = shutil.which("sshd", path=PATH)  # it starts itself anew by its whole path
    serve(
        "sh", "-ec",
        f"mount -t tmpfs none /run; mkdir /run/sshd; mount --bind {users} /etc/passwd; "
        f"exec {server} -D -f /dev/null -p 2022 -h {keys}/host {options}",
    )  # fmt: skip
    return f"port=2022,IdentityFile={keys}/mine,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,BatchMode=yes"


SLOW = Path(__file__).with_name("slow_sftp.py")


@contextlib.contextmanager
def s3(
    megabits: int | None = None,
    *,
    by: str = "s3fs",
    server_bytes: int = 0,
    late_seconds: float = 0.0,
    routed: bool = False,
    healthy: Healthy = _nothing,
) -> Iterator[Path]:
    """Give a bucket behind a network, mounted by s3fs, which sends a file when it is closed, or by rclone.

    `server_bytes`: its server takes so many a second. `late_seconds`: it answers so late who sent it something.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone_with("links"))
        work = Path(tempfile.mkdtemp(prefix=own("s3-")))
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        place = Path(tempfile.mkdtemp(prefix=own("remote-"), dir="/mnt"))
        stack.callback(place.rmdir)
        link = RoutedLink() if routed else Link()
        stack.callback(link.close)
        link.open()
        link.serve(sys.executable, str(OBJECTS), "9000", str(server_bytes), str(late_seconds))
        url = f"http://{link.server}:9000"
        until(lambda: call("curl", "-sf", f"{url}/bucket"))
        call(*_MOUNTED_BY[by](work, url), place)
        stack.callback(_unmount, place)
        until(lambda: call("mountpoint", "-q", place))
        if not server_bytes and not late_seconds:
            healthy(place)
        link.shape(megabits)
        yield place


OBJECTS = Path(__file__).with_name("object_server.py")


def _s3fs(work: Path, url: str) -> list[str]:
    secret = work / "secret"
    secret.write_text("key:secret")
    secret.chmod(0o600)
    options = f"passwd_file={secret},url={url},use_path_request_style,use_cache=,nomultipart,retries=1"
    return ["s3fs", "bucket", "-o", options]


def _rclone(work: Path, url: str) -> list[str]:
    config = work / "rclone.conf"
    keys = "provider = Other\naccess_key_id = key\nsecret_access_key = secret\n"
    config.write_text(f"[far]\ntype = s3\n{keys}endpoint = {url}\n")
    return ["env", "-u", "AWS_CA_BUNDLE", "rclone", "mount", "--config", str(config), "--daemon", "far:bucket"]


def _cached(work: Path, url: str) -> list[str]:
    small = ("--vfs-cache-max-size", "1", "--vfs-cache-poll-interval", "200ms", "--vfs-write-back", "0s")
    return [*_rclone(work, url), "--vfs-cache-mode", "full", "--cache-dir", str(work / "cache"), *small]


_MOUNTED_BY: dict[str, Callable[[Path, str], list[str]]] = {
    "s3fs": _s3fs,
    "rclone": _rclone,
    "rclone-cached": _cached,  # in files, which it removes once nobody has them open
}


def until(step: Callable[[], object]) -> None:
    """Try until it works."""
    said = ""

    def works() -> bool:
        nonlocal said
        try:
            step()
        except RuntimeError as error:
            said = str(error)
            time.sleep(0.3)
            return False
        return True

    wait_until(works, lambda: said)
