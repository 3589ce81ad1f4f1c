"""Failure domains: mounts that hang together with one file server or FUSE process, by mountinfo.

A file system that may hang is never touched: only its line in mountinfo is read.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass, field
from typing import TypeVar

from ckptprof_collectors.mounts.mountinfo import RawMount, is_fuse, parse
from ckptprof_collectors.mounts.remote_servers import parse_server
from ckptprof_collectors.samples import text

LOCAL = ""
MAX_TABLES = 16
MAX_AGE_NS = 1_000_000_000
# Local file systems without a device number. Unknown ones get a domain of their own.
_LOCAL_FILE_SYSTEMS = frozenset((
    b"aufs", b"bcachefs", b"binfmt_misc", b"bpf", b"btrfs", b"cgroup", b"cgroup2", b"configfs", b"debugfs", b"devpts",
    b"devtmpfs", b"efivarfs", b"fusectl", b"hugetlbfs", b"mqueue", b"overlay", b"proc", b"pstore", b"ramfs", b"rootfs",
    b"securityfs", b"sysfs", b"tmpfs", b"tracefs", b"zfs",
))  # fmt: skip
_Value = TypeVar("_Value")
_FUSE_USER = re.compile(rb"(?:^|[ ,])user_id=([0-9]{1,10})(?:,|$)")


def mount_domain(mount: RawMount) -> str:
    """Domain of a mount: one for all local ones, one for each file server, one for each FUSE mount of root.

    All FUSE mounts of one user are one domain: any number of hung ones blocks one thread only.
    """
    if is_fuse(mount.fs_type):
        user = _FUSE_USER.search(mount.options)
        if user is not None and int(user[1]):
            return f"fuse of user {int(user[1])}"
        return f"{mount.major}:{mount.minor}"
    if mount.major or mount.fs_type in _LOCAL_FILE_SYSTEMS:
        return LOCAL
    server = parse_server(text(mount.fs_type), text(mount.source), text(mount.options))
    return f"{text(mount.fs_type)} {server}" if server else f"{mount.major}:{mount.minor}"


@dataclass(frozen=True)
class MountFacts:
    """One mount: its domain, and what must be known before its files are accessed."""

    domain: str
    is_fuse: bool  # its server checks permissions, instead of file modes
    is_stacked: bool  # an overlay is as slow as its layers, which mountinfo does not show reliably


@dataclass(frozen=True)
class MountTable:
    """The mounts of one namespace, as they were at `read_ns`."""

    read_ns: int = 0
    mounts_by_id: dict[int, MountFacts] = field(default_factory=dict)
    domains_by_point: dict[bytes, str] = field(default_factory=dict)  # from a mount point to its domain

    def points_below(self, folder: bytes, domain: str) -> list[bytes]:
        """Mount points below a folder of this domain that belong to another one and are not local."""
        start = folder.rstrip(b"/") + b"/"
        return [
            point
            for point, other in self.domains_by_point.items()
            if other not in (LOCAL, domain) and point.startswith(start)
        ]


class FailureDomains:
    """Reads the mounts of a process; those of a namespace are cached for a second."""

    def __init__(self) -> None:
        self._tables: dict[bytes, MountTable] = {}
        self._parsed: dict[bytes, tuple[dict[int, MountFacts], dict[bytes, str]]] = {}

    def mount_table(self, folder: bytes, *, since_ns: int | None = None) -> MountTable:
        """Mounts of a process, by its folder in /proc, read at `since_ns` or later; raises OSError.

        Empty if it has ended. By default they may be a second old.
        """
        key = b" ".join(os.readlink(folder + link) for link in (b"/ns/mnt", b"/root"))
        cached = self._tables.get(key)
        now_ns = time.monotonic_ns()
        if cached is not None and cached.read_ns >= (now_ns - MAX_AGE_NS if since_ns is None else since_ns):
            return cached
        with open(folder + b"/mountinfo", "rb") as file:
            data = file.read()
        parsed = self._parsed.get(data)
        if parsed is None:
            mounts = parse(data)
            mounted = [
                MountFacts(mount_domain(mount), is_fuse(mount.fs_type), mount.fs_type == b"overlay") for mount in mounts
            ]
            parsed = (
                {mount.mount_id: one for mount, one in zip(mounts, mounted, strict=True)},
                {mount.mount_point: one.domain for mount, one in zip(mounts, mounted, strict=True)},
            )
            _limit_tables(self._parsed)
            self._parsed[data] = parsed
        table = MountTable(now_ns, *parsed)
        _limit_tables(self._tables)
        self._tables[key] = table
        return table


def _limit_tables(tables: dict[bytes, _Value]) -> None:
    if len(tables) >= MAX_TABLES:
        with contextlib.suppress(StopIteration, KeyError, RuntimeError):  # another thread did the same
            del tables[next(iter(tables))]
