"""What `ckptprof doctor` looks at: this installation, its database and the room it has, and the mounts of this host."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from ckptprof import units
from ckptprof.cli.checks import kernel, remedies, trace
from ckptprof.detect.world.host.devices import is_elsewhere
from ckptprof.errors import CkptprofError
from ckptprof.model import Session
from ckptprof.report.doctor import Check
from ckptprof.service.probing.apart import END_THE_MOUNT, NoAnswerError, Say, apart
from ckptprof.store.connection import has_wal_reset_fix, log_bytes, sqlite_version
from ckptprof.store.location import path_to_read, shown, to_path, where_to_get_data
from ckptprof.store.lock import log_readers, writer_is_alive
from ckptprof_collectors.devices.blockdevices import BlockDevices
from ckptprof_collectors.files.statx import statx
from ckptprof_collectors.gpus.nvml import Gpus
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, read_text
from ckptprof_collectors.mounts.clients import CLIENTS
from ckptprof_collectors.mounts.mountinfo import Mounts, is_fuse
from ckptprof_collectors.mounts.remotefs import program_of
from ckptprof_collectors.networks.unixpeers import peers
from ckptprof_collectors.processes.fusedaemons import FuseDaemons
from ckptprof_collectors.processes.pystacks import find_program
from ckptprof_collectors.samples import ClientSample, FuseDaemon, FuseSample, MountInfo, NvmePath

_OLDEST_PYTHON = (3, 10)
_OURS = {"Name:\tckptprof:sample": "sampler", "Name:\tpy-spy": "py-spy"}  # as much of it as the kernel keeps
_KILLED = 1 << 8  # SIGKILL, in the masks of pending signals of proc_pid_status(5)
_LARGE_LOG_BYTES = 64 << 20  # eight times what it takes when nobody holds it
_PATIENCE_SECONDS = 5.0  # with a file system, or a process, that answers nothing
MAX_MOUNTS = 16  # of which each has a line
_BLIND = "only links and connections show what limits a save there"
_LIVE = ("live", None)  # or not known
_Device = tuple[int, int]


class Recorded(NamedTuple):
    """What was found where the database is or will be."""

    stored: Check
    room: tuple[Check, ...] = ()
    newest: Session | None = None
    is_written: bool = False  # now, by an agent


def everything(fs: KernelFs, db: str | Path | None, *, run: Path, at: tuple[str, int], now_ns: int) -> list[Check]:
    """Return all checks in the order in which they are told; each looks for itself.

    `db`: None takes the one that a query takes. `at`: the address of /metrics. Raises StoreError if there is no home
    for a database.
    """
    uid = os.geteuid()
    found = recorded(db)
    tried = trace.everything(fs)
    standing = trace.ask(*at)
    watched = trace.watched(standing, found.newest, tried, is_written=found.is_written)
    checks = [
        python(sys.version_info[:3]),
        *watched,
        kernel.capabilities(fs, uid=uid),
        kernel.other_processes(fs, uid=uid),
        kernel.io_accounting(fs),
        kernel.hidepid(fs),
        kernel.block_devices(fs),
        kernel.network(fs),
        kernel.tcp(fs),
        *remote(fs),
        *paths(fs),
        kernel.pressure(fs),
        kernel.delay_accounting(fs),
        kernel.udev(run),
        kernel.ptrace_scope(fs),
        kernel.stacks(find_program()),
        kernel.gpus(fs, Gpus()),
        *kernel.gpudirect(fs),
        *trace.beside(watched, tried),
        sqlite(sqlite_version()),
        found.stored,
        *found.room,
        *abandoned(fs),
    ]
    newest_ns = None if found.newest is None else found.newest.end_ns
    return [*checks, kernel.clock(now_ns=now_ns, newest_ns=newest_ns), metrics_port(at[1], mine=standing is not None)]


def python(version: tuple[int, ...]) -> Check:
    """Judge the interpreter."""
    name = ".".join(map(str, version))
    if version >= _OLDEST_PYTHON:
        return Check("python", "ok", f"Python {name}")
    return Check("python", "fail", f"Python {name} is too old", "install Python 3.10 or newer")


def sqlite(version: tuple[int, ...]) -> Check:
    """Judge the database library."""
    name = ".".join(map(str, version))
    if has_wal_reset_fix(version):
        return Check("sqlite", "ok", f"SQLite {name}")
    text = (
        f"SQLite {name} is older than the fix of the WAL-reset bug (3.51.3), which needs two writers to happen; "
        "ckptprof has one, so let no other program write to its database"
    )
    return Check("sqlite", "note", text)


def recorded(db: str | Path | None, *, patience_seconds: float = _PATIENCE_SECONDS) -> Recorded:
    """Look where the database is or will be, in a process that is left behind if its file system does not answer.

    Raises StoreError.
    """

    def look(say: Say) -> Recorded:
        where = path_to_read() if db is None else db
        newest, stored = database(where)
        say("database")
        return Recorded(stored, tuple(room(where)), newest, _is_written(where))

    try:
        return apart(look, "the database" if db is None else str(db), patience_seconds=patience_seconds)
    except NoAnswerError as error:
        return Recorded(Check("database", "fail" if error.hangs else "note", str(error), error.hint))


def _is_written(db: str | Path) -> bool:
    try:
        path = to_path(db)
        return writer_is_alive(path) is True
    except (CkptprofError, OSError):
        return False


def database(db: str | Path) -> tuple[Session | None, Check]:
    """Open the database as a query does; returns the newest session in it too, if there is one."""
    from ckptprof.store.quarantine import moved_aside  # noqa: PLC0415 # as the next
    from ckptprof.store.reader import StoreReader  # noqa: PLC0415 # SQLAlchemy: only if it comes to that

    try:
        path = to_path(db)
        if not path.exists():
            text = f"there is no database yet at {shown(path)}"
            return None, Check("database", "note", text, where_to_get_data(path))
        size = path.stat().st_size
        reader = StoreReader(path)
        try:
            newest = max(reader.sessions(), key=lambda session: session.end_ns, default=None)
        finally:
            reader.close()
    except CkptprofError as error:
        return None, Check("database", "fail", str(error), error.hint)
    except OSError as error:
        fix = "run as its owner or root"
        return None, Check("database", "fail", f"{db}: {error.strerror or error}", fix)
    if damaged := moved_aside(path):
        text = f"{shown(path)} can be read, but one before it could not be used and is kept as {shown(damaged[-1])}"
        fix = f"take what you need with --db {shown(damaged[-1])}, which says what is wrong with it, and remove it"
        return newest, Check("database", "warn", text, fix)
    if (log := log_bytes(path)) > _LARGE_LOG_BYTES:
        text = f"{shown(path)} can be read, but its log has {units.size(log)}: a reader keeps it from beginning anew"
        return newest, Check("database", "warn", text, f"end it, or its transaction: {log_readers(path)}")
    return newest, Check("database", "ok", f"{shown(path)}, {units.size(size)}, can be read")


def room(db: str | Path) -> list[Check]:
    """Look at the file system that the database is or will be on."""
    try:
        folder = next(parent for parent in to_path(db).parents if parent.is_dir())
        usage = psutil.disk_usage(str(folder))
        birth_ns = statx(os.fsencode(folder)).birth_ns
    except (CkptprofError, OSError, StopIteration) as error:
        return [Check("disk-free", "warn", f"the database's file system cannot be seen: {error}")]
    return [
        kernel.birth_time(folder, birth_ns=birth_ns),
        kernel.disk_free(folder, free_bytes=usage.free, total_bytes=usage.total),
    ]


def abandoned(fs: KernelFs) -> list[Check]:
    """Warn of our processes that were killed and do not end: a call in the kernel holds them."""
    found = [
        f"{name} {folder.name}"
        for folder in sorted(fs.proc.glob("[0-9]*"), key=lambda one: int(one.name))
        if (name := _held(read_text(folder / "status") or "")) is not None
    ]
    if not found:
        return []
    held = f"killed, but held by a call to a file system that does not answer: {', '.join(found)}"
    fix = f"{END_THE_MOUNT}; /proc/PID/task/*/stack shows where each thread waits"
    return [Check("samplers", "warn", held, fix)]


def _held(status: str) -> str | None:
    name = next((name for head, name in _OURS.items() if status.startswith(head)), None)
    fields = dict(line.partition(":\t")[::2] for line in status.splitlines())
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    is_leaderless = fields.get("State", "").startswith("Z") and int(fields.get("Threads", "0")) > 1
    return name if is_leaderless or pending & _KILLED else None


def metrics_port(port: int, *, mine: bool = False) -> Check:
    """Look whether the port of /metrics can be had on loopback; `mine`: an agent answered there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return Check("metrics-port", "warn", f"port {port} cannot be used: {error.strerror}")
            if mine:
                return Check("metrics-port", "ok", f"the agent serves /metrics on port {port}")
            text = f"port {port} is in use by another program: an agent would serve no metrics"
            shows = remedies.first_there(f"ss -tlnp sport = :{port}", otherwise="")
            return Check("metrics-port", "note", text, f"{shows} shows by which program" if shows else None)
    return Check("metrics-port", "ok", f"port {port} is free for /metrics")


def remote(fs: KernelFs) -> list[Check]:
    """Ask the client of each remote mount for its counters, as the sampler does: no mount is touched."""
    try:
        collector = Mounts(fs)
    except UnavailableError as error:
        return [Check("mounts", "warn", f"{error}: no mount is known", "mount /proc")]
    counted = {(one.major, one.minor): one for one in collector.read() if isinstance(one, FuseSample)}
    collector.close()
    far = [one for one in collector.mounts if is_elsewhere(one)]
    daemons = _daemons(fs, far)
    checks = [
        _fuse(mount, counted, daemons) if mount.fs_type.startswith("fuse") else _told(fs, mount)
        for mount in far[:MAX_MOUNTS]
    ]
    if len(far) > MAX_MOUNTS:
        checks.append(Check("mounts", "ok", f"{len(far) - MAX_MOUNTS} more remote mounts are not told here"))
    return checks


def _daemons(fs: KernelFs, far: Sequence[MountInfo]) -> Mapping[_Device, FuseDaemon]:
    found = FuseDaemons(fs, peers)
    lacking = found.lacking(far)
    if not lacking:
        return {}

    def look(_: Say) -> list[FuseDaemon]:
        found.look(lacking, ())
        return found.read(mmap.PAGESIZE)

    with contextlib.suppress(OSError, NoAnswerError):
        return {(one.major, one.minor): one for one in apart(look, str(fs.proc), patience_seconds=_PATIENCE_SECONDS)}
    return {}


def _fuse(mount: MountInfo, counted: Mapping[_Device, FuseSample], daemons: Mapping[_Device, FuseDaemon]) -> Check:
    device = mount.major, mount.minor
    program = program_of(mount.fs_type, mount.source)
    where = f"{mount.fs_type} of {mount.server or mount.source}"
    unseen = ["the time of each request", "what is sent after close(2) has returned"]
    told = []
    if device in counted and (waiting := counted[device].waiting) is not None:
        told.append(f"how many requests have no answer ({waiting} have none now)")
    else:
        unseen.insert(0, "how many requests have no answer")
    served = "who serves it is not seen"
    if (daemon := daemons.get(device)) is not None:
        (pid, _), *others = daemon.processes
        beside = f" with {', '.join(str(other) for other, _ in others)}" if others else ""
        served = f"served by {daemon.name}, process {pid}{beside}"
        told += ["the processor time and the TCP connections of these processes"]
    else:
        unseen.insert(0, f"the processor time and the TCP connections of {program or 'its server'}")
    text = f"{where}: {served}; observed: {', '.join(told) or 'nothing'}; not observed: {', '.join(unseen)}"
    return Check(f"mount:{mount.mount_point}", "note", text)


def _told(fs: KernelFs, mount: MountInfo) -> Check:
    name, where = f"mount:{mount.mount_point}", f"{mount.fs_type} of {mount.server or mount.source}"
    make = CLIENTS.get(mount.fs_type)
    if make is None:
        more = "requests without an answer are counted, and " if is_fuse(mount.fs_type.encode()) else ""
        return Check(name, "note", f"{where}: {more}its client shows nothing that is read here: {_BLIND}")
    try:
        client = make(fs)
        try:
            found = [one for one in client.read([mount]) if (one.major, one.minor) == (mount.major, mount.minor)]
        finally:
            client.close()
    except OSError as error:
        return Check(name, "note", f"{where}: the counters of its client cannot be read ({error}): {_BLIND}")
    if not found:
        return Check(name, "note", f"{where}: the counters of its client are not told apart from another's: {_BLIND}")
    one = found[0]
    is_told = one.wire_written_bytes is not None or one.operations
    blind = "" if is_told else f"; {_BLIND}"
    return Check(name, "ok" if is_told else "note", f"{where}: {_readable(one)}{blind}")


def _readable(one: ClientSample) -> str:
    known: Sequence[tuple[str, object]] = (
        ("bytes", one.wire_written_bytes), ("operations and their times", one.operations), ("servers", one.targets),
        ("connections", one.connections), ("requests without a slot", one.backlog),
    )  # fmt: skip
    told = ", ".join(name for name, value in known if value not in (None, ()))
    over = f" over {one.transport}" if one.transport else ""
    unseen = "".join(f"; not observed: {clause}" for clause in one.unseen)
    return f"{one.client}{over} shows {told or 'nothing'}{unseen}"


def paths(fs: KernelFs) -> list[Check]:
    """Say of each disk behind a fabric how it is reached, and which of its paths cannot be used."""
    try:
        collector = BlockDevices(fs)
    except UnavailableError:  # another check tells of it
        return []
    found: dict[str, list[NvmePath]] = {}
    with contextlib.closing(collector), contextlib.suppress(OSError):
        for one in collector.read():
            if isinstance(one, NvmePath):
                found.setdefault(one.head, []).append(one)
    return [_reached(head, own) for head, own in list(found.items())[:MAX_MOUNTS]]


def _reached(head: str, own: Sequence[NvmePath]) -> Check:
    over = "/".join(sorted({one.transport for one in own}))
    text = f"{head} is reached over {over} by {units.plural(len(own), 'path')}"
    bad = [f"{one.device} to {one.target or 'its target'} is {one.state}" for one in own if one.state not in _LIVE]
    if not bad:
        return Check(f"disk:{head}", "ok", f"{text}: their states and targets are told, and the time of each request")
    return Check(f"disk:{head}", "warn", f"{text}: {', '.join(bad)}", "`nvme list-subsys` shows the state of each path")
