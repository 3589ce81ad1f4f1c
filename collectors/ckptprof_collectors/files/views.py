"""Files as one process sees them, reached step by step from its own root.

A path is walked one name at a time, each from a descriptor of the folder above (O_PATH, O_NOFOLLOW), and what a step
leads to is known before the next one is taken. So nothing that may hang is entered in a thread that was not meant for
it, however quickly a folder is swapped for a link; a link is followed within the root, and only to where the user of
the process may go himself. It is the same on each kernel. openat2(2) can stop at the border of a mount, but neither go
on behind it, nor ask whose folder it passes (docs/adr/0011-look-ups-by-steps.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ckptprof_collectors.files.statx import FileStatus, status_of
from ckptprof_collectors.holders import HOLDERS
from ckptprof_collectors.kernelfs import start_ticks_of
from ckptprof_collectors.mounts.failuredomains import FRESH_NS, LOCAL, FailureDomains, Mounted, MountTable

MAX_NOTED = 4096
NOTED_NS = 500_000_000  # who a process is, and where, may be as old when it is looked for
MAX_DISKS = 256
MAX_LINKS = 40  # include/linux/namei.h: MAXSYMLINKS
MAX_KIN = 16
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ACL = "system.posix_acl_access"  # include/uapi/linux/posix_acl_xattr.h: a version, then (tag, permissions, id) each
_ACL_ENTRY = struct.Struct("<HHI")
_ACL_USER, _ACL_GROUP, _ACL_MASK = 0x02, 0x08, 0x10
_SEARCH = 1


class View(NamedTuple):
    """The process whose files are meant; `HERE` is this one, `HOST` the first one."""

    pid: int
    start_ticks: int


HERE = View(0, 0)
HOST = View(1, 0)  # where most processes are; the service itself has a /tmp of its own


class NotSeen(OSError):  # noqa: N818 - a fact, not a fault
    """The root of the process cannot be had: it has ended, and nobody who shares its mounts is known."""


class Elsewhere(Exception):  # noqa: N818 - as above
    """The next step leads to what is apart; it is to be taken in the thread of that domain."""

    def __init__(self, domain: str) -> None:
        super().__init__(domain)
        self.domain = domain


class _Noted(NamedTuple):
    space: tuple[bytes, bytes]  # its mount namespace and its root, as links name them
    uid: int
    groups: frozenset[int]
    at_ns: int = 0


class Found(NamedTuple):
    """What a step led to: a descriptor without access to its contents, and its status as it was cached."""

    fd: int
    status: FileStatus
    mounted: Mounted

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.mode)

    def reopen(self, flags: int) -> int:
        """Open the same file for reading; raises OSError."""
        return os.open(b"/proc/self/fd/%d" % self.fd, flags | os.O_CLOEXEC)

    def target(self) -> bytes:
        """Read the target of a link, and close its descriptor; raises OSError."""
        try:
            return os.readlink(b"", dir_fd=self.fd)
        finally:
            self.close()

    def copy(self) -> Found:
        """Duplicate it, with a descriptor of its own."""
        return self._replace(fd=os.dup(self.fd))

    def close(self) -> None:
        os.close(self.fd)


class Views:
    """Knows which root each process has or had; every method may be called by any thread."""

    def __init__(self, proc: bytes = b"/proc") -> None:
        self._proc = proc
        self.mounts = FailureDomains()
        self._disks: dict[int, tuple[int, Mounted]] = {}
        self._noted: dict[View, _Noted] = {}
        self.entering: dict[int, int] = {}  # by thread: the process whose root it looks for

    def note(self, pid: int, start_ticks: int) -> View:
        """Keep in mind where a process is and who it is, for when it has ended; touches /proc only, and never waits."""
        view = View(pid, start_ticks)
        noted = self._read(b"%s/%d" % (self._proc, pid))
        if noted is not None:
            self._noted.pop(view, None)
            self._noted[view] = noted
            if len(self._noted) > MAX_NOTED:
                with contextlib.suppress(StopIteration, KeyError, RuntimeError):  # another thread was here, too
                    del self._noted[next(iter(self._noted))]
        return view

    def _read(self, folder: bytes) -> _Noted | None:
        try:
            space = os.readlink(folder + b"/ns/mnt"), os.readlink(folder + b"/root")
            with open(folder + b"/status", "rb", buffering=0) as file:
                status = file.read(4096)
            uid = int(_field(status, b"Uid")[3])  # real, effective, saved, and that of file systems
            groups = (_field(status, b"Gid")[3], *_field(status, b"Groups"))
        except (OSError, ValueError, IndexError):
            return None
        return _Noted(space, uid, frozenset(map(int, groups)), time.monotonic_ns())

    @contextlib.contextmanager
    def enter(self, view: View, *, noted_ns: int = NOTED_NS) -> Iterator[Entered]:
        """Stand at the root of a process, or of one that shares its mounts if it has ended; raises NotSeen.

        Who it is may have been noted so long ago; who compares device and inode of what he finds need not know.
        """
        if view == HERE:
            entered = self._at(self._proc + b"/self", None)
        elif view == HOST:
            entered = self._at(self._proc + b"/1", None) or self._at(self._proc + b"/self", None)
        else:
            try:
                entered = self._of_living(view, noted_ns) or self._of_kin(view)
            finally:
                self.entering.pop(threading.get_ident(), None)
        if entered is None:
            raise NotSeen(errno.ESRCH, os.strerror(errno.ESRCH))
        try:
            yield entered
        finally:
            entered.close()

    def _of_living(self, view: View, noted_ns: int) -> Entered | None:
        if view.pid in HOLDERS:
            return None
        self.entering[threading.get_ident()] = view.pid
        folder = b"%s/%d" % (self._proc, view.pid)
        noted = self._noted.get(view)
        if noted is None or time.monotonic_ns() - noted.at_ns > noted_ns:
            noted = self._read(folder)
        entered = None if noted is None else self._at(folder, noted)
        if entered is None or noted is None:
            return None
        with contextlib.suppress(OSError):
            if start_ticks_of(folder) == view.start_ticks:  # asked last: the pid was its own until now, or never
                self._noted[view] = noted
                return entered
        os.close(entered.root)
        return None

    def _of_kin(self, view: View) -> Entered | None:
        """Open the root of a living process with the same mount namespace and the same root."""
        noted = self._noted.get(view)
        if noted is None:
            return None
        kin = (other for other in reversed(list(self._noted)) if self._noted.get(other, _NOBODY).space == noted.space)
        folders = [b"self", b"1", *(b"%d" % other.pid for other, _ in zip(kin, range(MAX_KIN), strict=False))]
        for name in folders:
            if name.isdigit() and int(name) in HOLDERS:
                continue
            self.entering[threading.get_ident()] = int(name) if name.isdigit() else 0
            folder = self._proc + b"/" + name
            entered = self._at(folder, noted)
            if entered is None:
                continue
            there = self._read(folder)  # asked last: it was there until now
            if there is not None and there.space == noted.space:
                return entered
            os.close(entered.root)
        return None

    def _at(self, folder: bytes, noted: _Noted | None) -> Entered | None:
        try:
            fd = os.open(folder + b"/root", os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return None
        return Entered(fd, folder, self.mounts, noted, self._disks)


_NOBODY = _Noted((b"", b""), -1, frozenset())


class Entered:
    """A root, and how to go on from there."""

    def __init__(
        self,
        root: int,
        folder: bytes,
        mounts: FailureDomains,
        noted: _Noted | None,
        disks: dict[int, tuple[int, Mounted]],
    ) -> None:
        """Take a descriptor of the root, and the folder in /proc of who has it; `noted` None: whoever asks may go.

        `disks` is what was found of mounts on devices, and when: only root can change what those are.
        """
        self._disks = disks
        self.root = root
        self.noted = noted
        self._folder = folder
        self._mounts = mounts
        self._access = None if noted is None or noted.uid == 0 else noted
        self._start: Found | None = None
        self._apart: str | None = None
        self._parent: tuple[bytes, Found, _Noted | None] | None = None  # of what was found last

    def find(self, path: bytes, domain: str = LOCAL) -> Found:
        """Walk to a path, links followed; the result is to be closed.

        Raises OSError, PermissionError where its user may not go, Elsewhere for what neither is local nor in `domain`.
        """
        path = path.rstrip(b"/")
        folder, _, name = path.rpartition(b"/")
        if name in {b"", b".", b".."}:
            return self._find(path, domain)[0]
        if self._parent is None or self._parent[0] != folder:  # neighbours are often asked for one after the other
            self._forget_parent()
            self._parent = (folder, *self._find(folder, domain))
        _, above, access = self._parent
        found = self._step(above, name, domain, access)
        if stat.S_ISLNK(found.status.mode):
            found.close()
            return self._find(path, domain)[0]
        if access is not None and found.is_folder:
            try:
                _admit(found, access)
            except PermissionError:
                found.close()
                raise
        return found

    def _find(self, path: bytes, domain: str) -> tuple[Found, _Noted | None]:
        """Walk all of a path; return who has to be admitted to what comes below, too."""
        if self._start is None:
            self._start = self._begin(domain)
        above = [self._start]
        try:
            access = self._walk(above, path, domain)
            if access is not None and above[-1].is_folder:
                _admit(above[-1], access)
            return above.pop() if len(above) > 1 else self._start.copy(), access
        finally:
            for passed in above[1:]:
                passed.close()

    def _forget_parent(self) -> None:
        if self._parent is not None:
            self._parent[1].close()
            self._parent = None

    def close(self) -> None:
        self._forget_parent()
        os.close(self.root)

    def _walk(self, above: list[Found], path: bytes, domain: str) -> _Noted | None:
        """Append each step to `above`, the last one last; return who has to be admitted there."""
        access, links = self._access, 0
        steps = deque(path.split(b"/"))
        while steps:
            name = steps.popleft()
            if name in {b"", b"."}:
                continue
            if name == b"..":
                _back(above, max(1, len(above) - 1))
                continue
            found = self._step(above[-1], name, domain, access)
            if not stat.S_ISLNK(found.status.mode):
                above.append(found)
                continue
            links += 1
            target = found.target()
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if access is None and self.noted is None and found.status.uid:
                access = _Noted((b"", b""), found.status.uid, frozenset())  # who leads there must be able to go
            if target.startswith(b"/"):
                _back(above, 1)
            steps.extendleft(reversed(target.split(b"/")))
        return access

    def step(self, folder: Found, name: bytes, domain: str = LOCAL) -> Found:
        """Go on from a folder to what has this name in it; a link is not followed. Raises as `find`."""
        return self._step(folder, name, domain, None)

    def table(self) -> MountTable:
        """Mounts visible from this root; none if they cannot be read."""
        try:
            return self._mounts.of(self._folder)
        except OSError:
            return MountTable()

    def _begin(self, domain: str) -> Found:
        """Judge the root itself, once: that of a container may be apart."""
        if self._apart is not None and self._apart != domain:
            raise Elsewhere(self._apart)
        try:
            return self._judged(self.root, None, domain)
        except Elsewhere as found:
            self._apart = found.domain
            raise

    def _step(self, folder: Found, name: bytes, domain: str, access: _Noted | None) -> Found:
        if access is not None:
            _admit(folder, access)
        fd = os.open(name, _STEP, dir_fd=folder.fd)
        try:
            return self._judged(fd, folder, domain)
        except BaseException:
            os.close(fd)
            raise

    def _judged(self, fd: int, folder: Found | None, domain: str) -> Found:
        """Look whether a step led to another mount; raises Elsewhere if that is apart."""
        at_ns = time.monotonic_ns()
        status = status_of(fd)
        if folder is not None and status.device == folder.status.device:
            return Found(fd, status, folder.mounted)
        known = self._disks.get(status.device)
        if known is not None and at_ns - known[0] < FRESH_NS:
            return Found(fd, status, known[1])
        mounted = self._mounted(fd, status.device, at_ns)
        if mounted.domain not in (LOCAL, domain):
            raise Elsewhere(mounted.domain)
        if os.major(status.device) and mounted.domain == LOCAL:
            if len(self._disks) >= MAX_DISKS:
                self._disks.clear()
            self._disks[status.device] = (at_ns, mounted)
        return Found(fd, status, mounted)

    def _mounted(self, fd: int, device: int, at_ns: int) -> Mounted:
        """Find the mount of a descriptor. Mount ids are reused, but not while a descriptor keeps the mount.

        So of file systems without a device, which any user may mount in a namespace of his own, it is looked up in
        what mountinfo says after the descriptor was opened.
        """
        number = _mount_id(fd)
        for since_ns in (None, at_ns) if os.major(device) else (at_ns,):
            mounted = self._told_of(number, since_ns)
            if mounted is None:
                continue
            noted = self.noted
            if mounted.is_stacked and noted and noted.space[0] != os.readlink(b"/proc/self/ns/mnt"):
                return Mounted(f"overlay of user {noted.uid}", is_fuse=False, is_stacked=True)
            return mounted
        domain = LOCAL if os.major(device) else f"{os.major(device)}:{os.minor(device)}"
        return Mounted(domain, is_fuse=False, is_stacked=False)

    def _told_of(self, number: int, since_ns: int | None) -> Mounted | None:
        """Find the mount of this id; a process in a chroot does not list the mount below its root."""
        for folder in (self._folder, b"/proc/self", b"/proc/1"):
            try:
                mounted = self._mounts.of(folder, since_ns=since_ns).by_id.get(number)
            except OSError:
                continue
            if mounted is not None:
                return mounted
        return None


def _back(above: list[Found], length: int) -> None:
    while len(above) > length:
        above.pop().close()


def _admit(folder: Found, who: _Noted) -> None:
    """Raise PermissionError unless a user may search a folder (path_resolution(7)); a FUSE server judges for itself."""
    status = folder.status
    if folder.mounted.is_fuse or who.uid == 0 or status.mode & 0o001:
        return
    if status.uid == who.uid:
        admitted = bool(status.mode & 0o100)
    else:
        admitted = bool(status.mode & 0o010) and (status.gid in who.groups or _is_listed(folder.fd, who))
    if not admitted:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _is_listed(fd: int, who: _Noted) -> bool:
    """Test whether an access control list admits the user, or one of the groups (acl(5))."""
    try:
        raw = os.getxattr(b"/proc/self/fd/%d" % fd, _ACL)
        entries = list(_ACL_ENTRY.iter_unpack(raw[4:]))
    except (OSError, struct.error):
        return False
    if any(tag == _ACL_MASK and not allowed & _SEARCH for tag, allowed, _ in entries):
        return False
    own = [allowed for tag, allowed, number in entries if tag == _ACL_USER and number == who.uid]
    if own:
        return bool(own[0] & _SEARCH)
    return any(tag == _ACL_GROUP and number in who.groups and allowed & _SEARCH for tag, allowed, number in entries)


def _mount_id(fd: int) -> int:
    """Mount id of a descriptor (proc_pid_fdinfo(5)); -1 if the kernel does not show it."""
    try:
        with open(b"/proc/self/fdinfo/%d" % fd, "rb", buffering=0) as file:
            return int(_field(file.read(512), b"mnt_id")[0])
    except (OSError, ValueError, IndexError):
        return -1


def _field(raw: bytes, name: bytes) -> list[bytes]:
    _, found, rest = (b"\n" + raw).partition(b"\n" + name + b":")
    return rest.partition(b"\n")[0].split() if found else []
