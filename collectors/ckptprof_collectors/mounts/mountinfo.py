"""Mounts of the host, else of the agent's own namespace: mountinfo (proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterable, Sequence
from pathlib import Path

from ckptprof_collectors.kernelfs import KernelFile, KernelFs, UnavailableError, has_host_pids, parse_counter
from ckptprof_collectors.mounts.remote_servers import parse_addresses, parse_server
from ckptprof_collectors.samples import EntityGone, FuseSample, MountInfo, Sample, text

# Their superblocks have an anonymous device (major 0) although they are on a block device. FUSE is not among them: any
# user may mount one with a source of his choice (a real fuseblk has a real device number).
ANONYMOUS_ON_DISK = {b"btrfs", b"bcachefs"}
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_UPPER_DIRECTORY = re.compile(rb"(?:^|,)upperdir=((?:\\.|[^,\\])*)", re.DOTALL)

MAX_CONNECTIONS = 256
_MINOR_BITS = 20  # include/linux/kdev_t.h: a connection is named by its device number


def is_fuse(fs_type: bytes) -> bool:
    """Test whether a file system of this type has a FUSE connection."""
    return fs_type in {b"fuse", b"fuseblk", b"virtiofs"} or fs_type.startswith((b"fuse.", b"fuseblk."))


class FuseConnections:
    """Unanswered requests of each FUSE mount (Documentation/filesystems/fuse.rst: fusectl).

    `waiting` counts requests passed to the file system's process, or queued for it, without an answer: a gauge of its
    load. The control file system is mounted by systemd on most hosts; where it is not, `waiting` is None.
    """

    def __init__(self, fs: KernelFs) -> None:
        self._folder = fs.sys / "fs" / "fuse" / "connections"
        self._files: dict[tuple[int, int], KernelFile | None] = {}
        self._previous: dict[tuple[int, int], FuseSample] = {}

    def set_devices(self, devices: Iterable[tuple[int, int]]) -> None:
        """Set the (major, minor) of the present FUSE mounts."""
        followed = set(sorted(set(devices))[:MAX_CONNECTIONS])
        for device in [device for device in self._files if device not in followed or self._files[device] is None]:
            self._drop(device)  # a file that was missing may exist now
        for device in followed - self._files.keys():
            major, minor = device
            try:
                self._files[device] = KernelFile(self._folder / str(major << _MINOR_BITS | minor) / "waiting", chunk=64)
            except OSError:
                self._files[device] = None
        self._previous = {device: sample for device, sample in self._previous.items() if device in followed}

    def read(self) -> list[FuseSample]:
        samples = []
        for device, file in self._files.items():
            current = FuseSample(*device, None if file is None else _read_number(file))
            if current != self._previous.get(device):
                self._previous[device] = current
                samples.append(current)
        return samples

    def _drop(self, device: tuple[int, int]) -> None:
        file = self._files.pop(device)
        if file is not None:
            file.close()

    def close(self) -> None:
        for device in list(self._files):
            self._drop(device)


def _read_number(file: KernelFile) -> int | None:
    try:
        return parse_counter(file.read().strip())
    except OSError:  # the connection has been aborted
        return None


class RawMount:
    """One line of mountinfo, with the kernel's escapes undone."""

    __slots__ = ("fs_type", "major", "minor", "mount_id", "mount_point", "options", "root", "source")

    def __init__(self, line: bytes) -> None:
        """Parse a line without its newline; raises ValueError if it is malformed."""
        fields = line.split(b" ")
        dash = fields.index(b"-", 6)  # after any number of optional fields
        major, _, minor = fields[2].partition(b":")
        self.mount_id, self.major, self.minor = int(fields[0]), int(major), int(minor)
        self.root, self.mount_point = unescape(fields[3]), unescape(fields[4])
        if len(fields) < dash + 3:
            raise ValueError("no source")
        self.fs_type, self.source = unescape(fields[dash + 1]), unescape(fields[dash + 2])
        self.options = b" ".join(fields[dash + 3 :])


def unescape(field: bytes) -> bytes:
    r"""Undo the kernel's escapes (space, tab, newline and backslash as `\040`, `\011`, `\012`, `\134`)."""
    if b"\\" not in field:
        return field
    return _OCTAL.sub(lambda match: bytes((int(match[1], 8),)), field)


def parse(data: bytes) -> list[RawMount]:
    """Parse mounts in the kernel's order; malformed lines are skipped."""
    return [mount for line in data.split(b"\n") if (mount := _raw_mount(line)) is not None]


def _raw_mount(line: bytes) -> RawMount | None:
    try:
        return RawMount(line)
    except ValueError:
        return None


def find_mount(mounts: Sequence[RawMount], path: bytes) -> RawMount | None:
    """Find the mount of an absolute path without symlinks; of mounts on one place the last hides the others.

    The file system itself is not touched: a dead NFS server cannot block the caller.
    """
    deepest: RawMount | None = None
    for mount in mounts:
        point = mount.mount_point.rstrip(b"/")
        if (path == point or path.startswith(point + b"/")) and (
            deepest is None or len(mount.mount_point) >= len(deepest.mount_point)
        ):
            deepest = mount
    return deepest


def find_device(fs: KernelFs, mount: RawMount, mounts: Sequence[RawMount] = ()) -> str | None:
    """Kernel name of the block device of a mount, through the upper directory of an overlay."""
    if mount.major:
        try:
            link = os.readlink(fs.sys / "dev" / "block" / f"{mount.major}:{mount.minor}")
        except OSError:
            return None
        return link.rpartition("/")[2].replace("!", "/")
    if mount.fs_type in ANONYMOUS_ON_DISK:
        return device_of_node(fs, mount.source.partition(b":/")[0])  # bcachefs lists its members: /dev/sda:/dev/sdb
    if mount.fs_type == b"overlay" and (upper := _UPPER_DIRECTORY.search(mount.options)):
        path = re.sub(rb"\\(.)", rb"\1", unescape(upper[1]), flags=re.DOTALL)  # overlayfs itself escapes commas
        below = find_mount(mounts, path)
        if below is not None and below.fs_type != b"overlay":
            return find_device(fs, below)
    return None


def device_of_node(fs: KernelFs, path: bytes) -> str | None:
    """Kernel name of a path below /dev; None if it is no block device."""
    if not path.startswith(b"/dev/"):
        return None
    name = os.path.realpath(fs.dev / os.fsdecode(path[5:])).rpartition("/")[2]
    if not name or name in {".", ".."} or not os.path.lexists(fs.sys / "class" / "block" / name):
        return None
    return text(os.fsencode(name)).replace("!", "/")


def host_mounts(fs: KernelFs) -> Path:
    """Folder in /proc of a process with the host's mounts: init in a container that has the host's pids.

    A container has another root. A service has its own mounts, too, but the host's root: then its own are used.
    """
    own, init = fs.proc / "self", fs.proc / "1"
    if not has_host_pids(fs):
        return own
    try:
        roots = [_root(parse((folder / "mountinfo").read_bytes())) for folder in (own, init)]
    except OSError:
        return own
    return own if roots[1] is None or roots[0] == roots[1] else init


def _root(mounts: Sequence[RawMount]) -> tuple[int, int, bytes] | None:
    found = [(one.major, one.minor, one.root) for one in mounts if one.mount_point == b"/"]
    return found[-1] if found else None


class MountReader:
    """Reports each mount when first seen and whenever it changes, and its end."""

    name = "mounts"

    def __init__(self, fs: KernelFs) -> None:
        """Open mountinfo; raises UnavailableError."""
        self._fs = fs
        try:
            self._file = KernelFile(host_mounts(fs) / "mountinfo")
        except OSError as error:
            raise UnavailableError(f"/proc/self/mountinfo: {error.strerror}") from error
        self._infos: dict[int, MountInfo] = {}
        self.mounts: Sequence[MountInfo] = ()  # present ones: a new sequence object after each change
        self._data: bytes | None = None
        self._fuse = FuseConnections(fs)
        self._poll: select.poll | None = None
        if fs.is_live:  # the kernel raises POLLPRI and POLLERR when the namespace changed since the last poll
            self._poll = select.poll()
            self._poll.register(self._file.fd, select.POLLPRI)

    def read(self) -> Sequence[Sample]:
        """Sample new, changed and removed mounts, and waiting FUSE requests; raises OSError."""
        return [*self._changes(), *self._fuse.read()]

    def _changes(self) -> list[Sample]:
        if self._poll is not None and not self._poll.poll(0) and self._data is not None:
            return []
        data = self._file.read()
        if data == self._data:
            return []
        self._data = data
        mounts = parse(data)
        now = {mount.mount_id: self._info(mount, mounts) for mount in mounts}
        self._fuse.set_devices((mount.major, mount.minor) for mount in mounts if is_fuse(mount.fs_type))
        before, self._infos = self._infos, now
        self.mounts = tuple(now.values())
        samples: list[Sample] = [EntityGone("mount", str(mount_id)) for mount_id in before if mount_id not in now]
        samples += [info for mount_id, info in now.items() if info != before.get(mount_id)]
        return samples

    def _info(self, mount: RawMount, mounts: Sequence[RawMount]) -> MountInfo:
        remote = text(mount.fs_type), text(mount.source), text(mount.options)
        return MountInfo(
            mount_id=mount.mount_id,
            major=mount.major,
            minor=mount.minor,
            root=text(mount.root),
            mount_point=text(mount.mount_point),
            fs_type=remote[0],
            source=remote[1],
            device=find_device(self._fs, mount, mounts),
            server=parse_server(*remote),
            addresses=parse_addresses(*remote),
        )

    def close(self) -> None:
        self._file.close()
        self._fuse.close()
