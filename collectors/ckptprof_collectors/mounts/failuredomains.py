"""Failure domains of paths: what hangs together with a file server or the process behind a FUSE mount, by mountinfo.

Nothing is touched on a file system that may hang: of a mount that is apart only its name is compared.
"""

from __future__ import annotations

import os
import time
from collections import deque

from ckptprof_collectors.mounts.fuseconnections import is_fuse
from ckptprof_collectors.mounts.mountinfo import RawMount, parse
from ckptprof_collectors.mounts.remotefs import server_of
from ckptprof_collectors.samples import text

LOCAL = ""
MAX_TABLES = 16
MAX_PATHS = 4096
MAX_LINKS = 40  # include/linux/namei.h: MAXSYMLINKS
_FRESH_NS = 1_000_000_000
# File systems without a device number that wait for nobody but the machine itself. Whatever is not known is apart.
_ON_THE_MACHINE = frozenset((
    b"aufs", b"bcachefs", b"binfmt_misc", b"bpf", b"btrfs", b"cgroup", b"cgroup2", b"configfs", b"debugfs", b"devpts",
    b"devtmpfs", b"efivarfs", b"fusectl", b"hugetlbfs", b"mqueue", b"overlay", b"proc", b"pstore", b"ramfs", b"rootfs",
    b"securityfs", b"sysfs", b"tmpfs", b"tracefs", b"zfs",
))  # fmt: skip

_Points = dict[bytes, str]  # from a mount point to its domain


def domain_of_mount(mount: RawMount) -> str:
    """Return the domain of a mount: one for all that are local, one for each file server, one for each FUSE mount."""
    if is_fuse(mount.fs_type):
        return f"{mount.major}:{mount.minor}"
    if mount.major or mount.fs_type in _ON_THE_MACHINE:
        return LOCAL
    server = server_of(text(mount.fs_type), text(mount.source), text(mount.options))
    return f"{text(mount.fs_type)} {server}" if server else f"{mount.major}:{mount.minor}"


def longest(points: _Points, path: bytes) -> str:
    """Return the domain of the deepest mount point at or above an absolute path."""
    while path:
        if (domain := points.get(path)) is not None:
            return domain
        path = path.rpartition(b"/")[0]
    return points.get(b"/", LOCAL)


class FailureDomains:
    """Finds the domain of a folder as a process sees it; mountinfo is read again when a second has passed."""

    def __init__(self, proc: bytes = b"/proc") -> None:
        """Read nothing yet."""
        self._proc = proc
        self._tables: dict[tuple[bytes, bytes], tuple[int, _Points]] = {}  # by mount namespace and root
        self._parsed: dict[bytes, _Points] = {}
        self._domains: dict[tuple[int, bytes, bytes], str] = {}

    def points(self, root: bytes) -> _Points:
        """Return the mounts seen from `root`, /proc/PID/root or empty for our own; empty if they cannot be read."""
        folder = os.path.dirname(root) or self._proc + b"/self"
        key = (_link(folder + b"/ns/mnt") or folder, _link(folder + b"/root") or folder)
        now_ns = time.monotonic_ns()
        known = self._tables.get(key)
        if known is not None and now_ns - known[0] < _FRESH_NS:
            return known[1]
        points = self._read(folder)
        self._domains.clear()  # its links may lead elsewhere by now
        if len(self._tables) >= MAX_TABLES:
            self._tables.pop(next(iter(self._tables)))
        self._tables[key] = (now_ns, points)
        return points

    def _read(self, folder: bytes) -> _Points:
        try:
            with open(folder + b"/mountinfo", "rb") as file:
                data = file.read()
        except OSError:
            data = b""
        if not data:
            return {} if folder == self._proc + b"/self" else self.points(b"")  # ended: it will be looked for from here
        points = self._parsed.get(data)
        if points is None:
            points = {mount.mount_point: domain_of_mount(mount) for mount in parse(data)}
            if len(self._parsed) >= MAX_TABLES:
                self._parsed.pop(next(iter(self._parsed)))
            self._parsed[data] = points
        return points

    def domain_of(self, root: bytes, folder: bytes) -> str:
        """Return the domain of a folder, its symlinks followed as far as they lie on local file systems."""
        points = self.points(root)
        if all(domain == LOCAL for domain in points.values()):
            return LOCAL
        key = (id(points), root, folder)
        domain = self._domains.get(key)
        if domain is None:
            domain = self._follow(points, root, folder)
            if len(self._domains) >= MAX_PATHS:
                self._domains.clear()
            self._domains[key] = domain
        return domain

    def _follow(self, points: _Points, root: bytes, folder: bytes) -> str:
        parts = deque(folder.split(b"/"))
        at, links = b"", 0
        while parts:
            part = parts.popleft()
            if part in {b"", b"."}:
                continue
            if part == b"..":
                at = at.rpartition(b"/")[0]
                continue
            at += b"/" + part
            target = _link(root + at) if longest(points, at) == LOCAL else None
            if target is None:
                continue
            links += 1
            if links > MAX_LINKS:
                break
            at = at.rpartition(b"/")[0]
            if target.startswith(b"/"):  # the kernel follows it from our root, whatever led to it
                at, root, points = b"", b"", self.points(b"")
            parts.extendleft(reversed(target.split(b"/")))
        return longest(points, at)

    def below(self, root: bytes, folder: bytes) -> dict[bytes, str]:
        """Return the mount points below a folder that are apart from it, with their domains."""
        points = self.points(root)
        start = folder.rstrip(b"/") + b"/"
        own = self.domain_of(root, folder)
        return {
            point: domain for point, domain in points.items() if domain not in (LOCAL, own) and point.startswith(start)
        }


def _link(path: bytes) -> bytes | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
