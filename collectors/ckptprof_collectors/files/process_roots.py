"""Files as one process sees them, reached step by step from its own root.

A path is walked one name at a time, each from a descriptor of the folder above (O_PATH, O_NOFOLLOW), and the result of
a step is checked before the next one. So no thread enters a file system that may hang unless it is the thread of that
domain, even if a folder is swapped for a link; a link is followed within the root, and only where the user of the
process has permission. It works on every kernel. openat2(2) can stop at the border of a mount, but neither continue
behind it, nor check the owners on the way (docs/adr/0011-look-ups-by-steps.md).
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

from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.files.statx import FileStatus, status_of_descriptor
from ckptprof_collectors.kernelfs import read_start_ticks
from ckptprof_collectors.mounts.failure_domains import LOCAL, MAX_AGE_NS, FailureDomains, MountFacts, MountTable

MAX_IDENTITIES = 4096
IDENTITY_MAX_AGE_NS = 500_000_000  # maximum age of a cached identity when a root is opened
MAX_DISKS = 256
MAX_LINKS = 40  # include/linux/namei.h: MAXSYMLINKS
MAX_SIBLINGS = 16
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_ACL = "system.posix_acl_access"  # include/uapi/linux/posix_acl_xattr.h: a version, then (tag, permissions, id) each
_ACL_ENTRY = struct.Struct("<HHI")
_ACL_USER, _ACL_GROUP, _ACL_MASK = 0x02, 0x08, 0x10
_SEARCH = 1


class ProcessKey(NamedTuple):
    """The process whose root is meant; `OWN_PROCESS` is this one, `HOST_PROCESS` the first one."""

    pid: int
    start_ticks: int


OWN_PROCESS = ProcessKey(0, 0)
HOST_PROCESS = ProcessKey(1, 0)  # whose root most processes share; the service itself has a private /tmp


class RootUnavailable(OSError):  # noqa: N818 - a fact, not a fault
    """The root of the process is unavailable: it has ended, and no process with the same mounts is known."""


class OtherDomain(Exception):  # noqa: N818 - as above
    """The next step leads to another failure domain, and must be done in the thread of that domain."""

    def __init__(self, domain: str) -> None:
        super().__init__(domain)
        self.domain = domain


class _Identity(NamedTuple):
    space: tuple[bytes, bytes]  # link targets of its mount namespace and its root
    uid: int
    groups: frozenset[int]
    at_ns: int = 0


class PathStep(NamedTuple):
    """The result of a step: an O_PATH descriptor, and the cached status."""

    fd: int
    status: FileStatus
    mounted: MountFacts

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

    def copy(self) -> PathStep:
        """Return a copy with its own descriptor."""
        return self._replace(fd=os.dup(self.fd))

    def close(self) -> None:
        os.close(self.fd)


class ProcessRoots:
    """The roots of processes, also of ended ones; any thread may call any method."""

    def __init__(self, proc: bytes = b"/proc") -> None:
        self._proc = proc
        self.mounts = FailureDomains()
        self._disks: dict[int, tuple[int, MountFacts]] = {}
        self._identities: dict[ProcessKey, _Identity] = {}
        self.entering: dict[int, int] = {}  # by thread: the process whose root it opens

    def record(self, pid: int, start_ticks: int) -> ProcessKey:
        """Record the root and the identity of a process, for use after its end; touches /proc only, never waits."""
        view = ProcessKey(pid, start_ticks)
        identity = self._read_identity(b"%s/%d" % (self._proc, pid))
        if identity is not None:
            self._identities.pop(view, None)
            self._identities[view] = identity
            if len(self._identities) > MAX_IDENTITIES:
                with contextlib.suppress(StopIteration, KeyError, RuntimeError):  # another thread did the same
                    del self._identities[next(iter(self._identities))]
        return view

    def _read_identity(self, folder: bytes) -> _Identity | None:
        try:
            space = os.readlink(folder + b"/ns/mnt"), os.readlink(folder + b"/root")
            with open(folder + b"/status", "rb", buffering=0) as file:
                status = file.read(4096)
            uid = int(_field(status, b"Uid")[3])  # real, effective, saved, and that of file systems
            groups = (_field(status, b"Gid")[3], *_field(status, b"Groups"))
        except (OSError, ValueError, IndexError):
            return None
        return _Identity(space, uid, frozenset(map(int, groups)), time.monotonic_ns())

    @contextlib.contextmanager
    def enter(self, view: ProcessKey, *, max_age_ns: int = IDENTITY_MAX_AGE_NS) -> Iterator[ProcessRoot]:
        """Open the root of a process, or of one with the same mounts if it has ended; raises RootUnavailable.

        The recorded identity may be `max_age_ns` old; a caller that compares device and inode may allow any age.
        """
        if view == OWN_PROCESS:
            entered = self._open_root(self._proc + b"/self", None)
        elif view == HOST_PROCESS:
            entered = self._open_root(self._proc + b"/1", None) or self._open_root(self._proc + b"/self", None)
        else:
            try:
                entered = self._open_living(view, max_age_ns) or self._open_sibling(view)
            finally:
                self.entering.pop(threading.get_ident(), None)
        if entered is None:
            raise RootUnavailable(errno.ESRCH, os.strerror(errno.ESRCH))
        try:
            yield entered
        finally:
            entered.close()

    def _open_living(self, view: ProcessKey, max_age_ns: int) -> ProcessRoot | None:
        if view.pid in BLOCKING_PROCESSES:
            return None
        self.entering[threading.get_ident()] = view.pid
        folder = b"%s/%d" % (self._proc, view.pid)
        identity = self._identities.get(view)
        if identity is None or time.monotonic_ns() - identity.at_ns > max_age_ns:
            identity = self._read_identity(folder)
        entered = None if identity is None else self._open_root(folder, identity)
        if entered is None or identity is None:
            return None
        with contextlib.suppress(OSError):
            if read_start_ticks(folder) == view.start_ticks:  # read last: the pid was its own until now, or never
                self._identities[view] = identity
                return entered
        os.close(entered.root)
        return None

    def _open_sibling(self, view: ProcessKey) -> ProcessRoot | None:
        """Open the root of a living process with the same mount namespace and the same root."""
        identity = self._identities.get(view)
        if identity is None:
            return None
        siblings = (
            other
            for other in reversed(list(self._identities))
            if self._identities.get(other, _NO_PROCESS).space == identity.space
        )
        folders = [b"self", b"1", *(b"%d" % other.pid for other, _ in zip(siblings, range(MAX_SIBLINGS), strict=False))]
        for name in folders:
            if name.isdigit() and int(name) in BLOCKING_PROCESSES:
                continue
            self.entering[threading.get_ident()] = int(name) if name.isdigit() else 0
            folder = self._proc + b"/" + name
            entered = self._open_root(folder, identity)
            if entered is None:
                continue
            current = self._read_identity(folder)  # read last: it existed until now
            if current is not None and current.space == identity.space:
                return entered
            os.close(entered.root)
        return None

    def _open_root(self, folder: bytes, identity: _Identity | None) -> ProcessRoot | None:
        try:
            fd = os.open(folder + b"/root", os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return None
        return ProcessRoot(fd, folder, self.mounts, identity, self._disks)


_NO_PROCESS = _Identity((b"", b""), -1, frozenset())


class ProcessRoot:
    """An open root, from which paths are walked."""

    def __init__(
        self,
        root: int,
        folder: bytes,
        mounts: FailureDomains,
        identity: _Identity | None,
        disks: dict[int, tuple[int, MountFacts]],
    ) -> None:
        """`root`: a descriptor of the root; `folder`: of its process in /proc; `identity` None: check no permissions.

        `disks`: cached mounts on devices, with their times: only root can change those.
        """
        self._disks = disks
        self.root = root
        self.identity = identity
        self._folder = folder
        self._mounts = mounts
        self._access = None if identity is None or identity.uid == 0 else identity
        self._start: PathStep | None = None
        self._root_domain: str | None = None
        self._parent: tuple[bytes, PathStep, _Identity | None] | None = None  # of the last result

    def find(self, path: bytes, domain: str = LOCAL) -> PathStep:
        """Walk to a path, following links; the caller closes the result.

        Raises OSError, PermissionError where its user has no access, OtherDomain for other domains than `domain`.
        """
        path = path.rstrip(b"/")
        folder, _, name = path.rpartition(b"/")
        if name in {b"", b".", b".."}:
            return self._find(path, domain)[0]
        if self._parent is None or self._parent[0] != folder:  # files of one folder are often queried in a row
            self._forget_parent()
            self._parent = (folder, *self._find(folder, domain))
        _, above, access = self._parent
        found = self._step(above, name, domain, access)
        if stat.S_ISLNK(found.status.mode):
            found.close()
            return self._find(path, domain)[0]
        if access is not None and found.is_folder:
            try:
                _check_search_permission(found, access)
            except PermissionError:
                found.close()
                raise
        return found

    def _find(self, path: bytes, domain: str) -> tuple[PathStep, _Identity | None]:
        """Walk the whole path; also return the identity that needs access to entries below it."""
        if self._start is None:
            self._start = self._open_start(domain)
        above = [self._start]
        try:
            access = self._walk(above, path, domain)
            if access is not None and above[-1].is_folder:
                _check_search_permission(above[-1], access)
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

    def _walk(self, above: list[PathStep], path: bytes, domain: str) -> _Identity | None:
        """Append each step to `above`, the last one last; return the identity that needs access there."""
        access, links = self._access, 0
        steps = deque(path.split(b"/"))
        while steps:
            name = steps.popleft()
            if name in {b"", b"."}:
                continue
            if name == b"..":
                _close_down_to(above, max(1, len(above) - 1))
                continue
            found = self._step(above[-1], name, domain, access)
            if not stat.S_ISLNK(found.status.mode):
                above.append(found)
                continue
            links += 1
            target = found.target()
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if access is None and self.identity is None and found.status.uid:
                access = _Identity(
                    (b"", b""), found.status.uid, frozenset()
                )  # the owner of the link must have access, too
            if target.startswith(b"/"):
                _close_down_to(above, 1)
            steps.extendleft(reversed(target.split(b"/")))
        return access

    def step(self, folder: PathStep, name: bytes, domain: str = LOCAL) -> PathStep:
        """Step from a folder to the entry of this name, without following a link. Raises as `find`."""
        return self._step(folder, name, domain, None)

    def mount_table(self) -> MountTable:
        """Mounts visible from this root; none if they cannot be read."""
        try:
            return self._mounts.mount_table(self._folder)
        except OSError:
            return MountTable()

    def _open_start(self, domain: str) -> PathStep:
        """Check the root itself, once: that of a container may be in another domain."""
        if self._root_domain is not None and self._root_domain != domain:
            raise OtherDomain(self._root_domain)
        try:
            return self._checked_step(self.root, None, domain)
        except OtherDomain as found:
            self._root_domain = found.domain
            raise

    def _step(self, folder: PathStep, name: bytes, domain: str, access: _Identity | None) -> PathStep:
        if access is not None:
            _check_search_permission(folder, access)
        fd = os.open(name, _STEP, dir_fd=folder.fd)
        try:
            return self._checked_step(fd, folder, domain)
        except BaseException:
            os.close(fd)
            raise

    def _checked_step(self, fd: int, folder: PathStep | None, domain: str) -> PathStep:
        """Check if a step led to another mount; raises OtherDomain if that is in another domain."""
        at_ns = time.monotonic_ns()
        status = status_of_descriptor(fd)
        if folder is not None and status.device == folder.status.device:
            return PathStep(fd, status, folder.mounted)
        cached = self._disks.get(status.device)
        if cached is not None and at_ns - cached[0] < MAX_AGE_NS:
            return PathStep(fd, status, cached[1])
        mounted = self._find_mount(fd, status.device, at_ns)
        if mounted.domain not in (LOCAL, domain):
            raise OtherDomain(mounted.domain)
        if os.major(status.device) and mounted.domain == LOCAL:
            if len(self._disks) >= MAX_DISKS:
                self._disks.clear()
            self._disks[status.device] = (at_ns, mounted)
        return PathStep(fd, status, mounted)

    def _find_mount(self, fd: int, device: int, at_ns: int) -> MountFacts:
        """Find the mount of a descriptor. Mount ids are reused, but not while a descriptor keeps the mount.

        So the mount of a file system without a device, which any user may mount in a namespace, is read from mountinfo
        after the descriptor was opened.
        """
        number = _mount_id(fd)
        for since_ns in (None, at_ns) if os.major(device) else (at_ns,):
            mounted = self._listed_mount(number, since_ns)
            if mounted is None:
                continue
            identity = self.identity
            if mounted.is_stacked and identity and identity.space[0] != os.readlink(b"/proc/self/ns/mnt"):
                return MountFacts(f"overlay of user {identity.uid}", is_fuse=False, is_stacked=True)
            return mounted
        domain = LOCAL if os.major(device) else f"{os.major(device)}:{os.minor(device)}"
        return MountFacts(domain, is_fuse=False, is_stacked=False)

    def _listed_mount(self, number: int, since_ns: int | None) -> MountFacts | None:
        """Find the mount of this id; a process in a chroot does not list the mount below its root."""
        for folder in (self._folder, b"/proc/self", b"/proc/1"):
            try:
                mounted = self._mounts.mount_table(folder, since_ns=since_ns).mounts_by_id.get(number)
            except OSError:
                continue
            if mounted is not None:
                return mounted
        return None


def _close_down_to(above: list[PathStep], length: int) -> None:
    while len(above) > length:
        above.pop().close()


def _check_search_permission(folder: PathStep, identity: _Identity) -> None:
    """Raise PermissionError unless a user may search a folder (path_resolution(7)); a FUSE server judges for itself."""
    status = folder.status
    if folder.mounted.is_fuse or identity.uid == 0 or status.mode & 0o001:
        return
    if status.uid == identity.uid:
        admitted = bool(status.mode & 0o100)
    else:
        admitted = bool(status.mode & 0o010) and (
            status.gid in identity.groups or _is_allowed_by_acl(folder.fd, identity)
        )
    if not admitted:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _is_allowed_by_acl(fd: int, identity: _Identity) -> bool:
    """Test whether an access control list admits the user, or one of the groups (acl(5))."""
    try:
        raw = os.getxattr(b"/proc/self/fd/%d" % fd, _ACL)
        entries = list(_ACL_ENTRY.iter_unpack(raw[4:]))
    except (OSError, struct.error):
        return False
    if any(tag == _ACL_MASK and not allowed & _SEARCH for tag, allowed, _ in entries):
        return False
    own = [allowed for tag, allowed, number in entries if tag == _ACL_USER and number == identity.uid]
    if own:
        return bool(own[0] & _SEARCH)
    return any(
        tag == _ACL_GROUP and number in identity.groups and allowed & _SEARCH for tag, allowed, number in entries
    )


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
