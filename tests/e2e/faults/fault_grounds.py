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

from recorder import PATIENCE_SECONDS, wait_until
from tests.leftovers import given_back, own, own_link  # found by recorder
from tests.machine import PATH

BLKIO = Path("/sys/fs/cgroup/blkio")
_MAKE = {  # nothing is discarded: the image would lose its memory
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
IMAGE_MIB = 1700  # three saves of 400 MB and what the file system itself needs
Ground = Callable[[], AbstractContextManager[Path]]


def call(*command: str | Path, timeout: float = PATIENCE_SECONDS) -> str:
    """Run a program and return what it printed; raises RuntimeError with what it said."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, check=False, timeout=timeout)
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
def loop(kind: str = "ext4", throttle: Throttle | None = None) -> Iterator[Path]:
    """Give a new file system on a loop device."""
    place = Path(tempfile.mkdtemp(prefix=own("fault-"), dir="/mnt"))
    with contextlib.ExitStack() as stack:
        stack.callback(place.rmdir)
        image = _image()
        call(*_MAKE[kind], image)
        call("mount", "-o", "loop", image, place)  # its loop device goes with it
        stack.callback(_unmount, place)
        number = place.stat().st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        for name, usual in (("strict_limit", "0"), ("max_ratio", "100")):  # an earlier user may have lowered them
            Path(f"/sys/dev/block/{device}/bdi/{name}").write_text(usual)
        if throttle is not None:
            stack.enter_context(throttled(device, throttle))
        yield place


def _unmount(place: Path) -> None:
    try:
        until(lambda: call("umount", place))
    except AssertionError:  # somebody still looks at it
        call("umount", "--lazy", place)


@contextlib.contextmanager
def _alone_with_links() -> Iterator[None]:
    """Wait until no other checkout's tests have the addresses of links, which there are once on a host."""
    with Path(tempfile.gettempdir(), "ckptprof-links.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass
class Link:
    """A network namespace behind a router of its own."""

    name: str = field(default_factory=partial(own, "far"))
    router: str = field(default_factory=partial(own, "router"))
    near: str = field(default_factory=partial(own_link, "near"))  # the interface on this host
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
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

    def shape(self, megabits: int | None, *, here: bool = False) -> None:
        """Hold both directions to a rate: at the router, or at the interface of this host, which sees that."""
        router = ("ip", "netns", "exec", self.router)
        ends = (((), self.near), (router, "ckptr1")) if here else ((router, "ckptr1"), (router, "ckptr2"))
        for prefix, device in ends if megabits is not None else ():
            shape = ("root", "tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms")
            call(*prefix, "tc", "qdisc", "add", "dev", device, *shape)

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
        for command in (("netns", "del", self.name), ("netns", "del", self.router), ("link", "del", self.near)):
            with contextlib.suppress(RuntimeError):
                call("ip", *command)


@contextlib.contextmanager
def sshfs(megabits: int) -> Iterator[Path]:
    """Give a FUSE mount over a network that takes so much, by an SSH server of its own."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone_with_links())
        behind = stack.enter_context(loop())
        place = Path(tempfile.mkdtemp(prefix=own("remote-"), dir="/mnt"))
        stack.callback(place.rmdir)
        link = Link()
        stack.callback(link.close)
        link.open()
        options = by_ssh(stack, link.serve, "/usr/lib/openssh/sftp-server")
        until(lambda: call("sshfs", f"{link.server}:{behind}", place, "-o", options))
        stack.callback(_unmount, place)
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


@contextlib.contextmanager
def s3(
    megabits: int | None = None, *, by: str = "s3fs", server_bytes: int = 0, late_seconds: float = 0.0
) -> Iterator[Path]:
    """Give a bucket behind a network, mounted by s3fs, which sends a file when it is closed, or by rclone.

    `megabits`: what the link of this host takes. `server_bytes`: its server takes so many a second. `late_seconds`: it
    answers so late who sent it something.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_alone_with_links())
        work = Path(tempfile.mkdtemp(prefix=own("s3-")))
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        place = Path(tempfile.mkdtemp(prefix=own("remote-"), dir="/mnt"))
        stack.callback(place.rmdir)
        link = Link()
        stack.callback(link.close)
        link.open()
        link.serve(sys.executable, str(OBJECTS), "9000", str(server_bytes), str(late_seconds))
        url = f"http://{link.server}:9000"
        until(lambda: call("curl", "-sf", f"{url}/bucket"))
        call(*_MOUNTED_BY[by](work, url), place)
        stack.callback(_unmount, place)
        until(lambda: call("mountpoint", "-q", place))
        link.shape(megabits, here=True)
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
