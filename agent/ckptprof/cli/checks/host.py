"""Checks of `ckptprof doctor`: this installation, its database and free space, and the mounts of this host."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from ckptprof import units
from ckptprof.cli.checks import kernel, remedies, trace_checks
from ckptprof.detect.world.host.devices import is_network_mount
from ckptprof.errors import CkptprofError
from ckptprof.model import Session
from ckptprof.report.doctor import Check
from ckptprof.service.probing.isolated import END_THE_MOUNT, NoAnswerError, OnReport, run_isolated
from ckptprof.store.connection import log_bytes
from ckptprof.store.location import missing_data_hint, path_of_database, path_to_read, printable_path
from ckptprof.store.lock import describe_log_readers, is_writer_alive
from ckptprof_collectors.devices.block_devices import BlockDevices
from ckptprof_collectors.gpus.nvml import NvmlGpus
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, read_text
from ckptprof_collectors.mounts.client_counters import CLIENTS
from ckptprof_collectors.mounts.mountinfo import MountReader, is_fuse
from ckptprof_collectors.mounts.remote_servers import fuse_program
from ckptprof_collectors.networks.unix_peers import find_peers
from ckptprof_collectors.processes.fuse_daemons import FuseDaemons
from ckptprof_collectors.processes.python_stacks import find_program
from ckptprof_collectors.samples import ClientSample, FuseDaemon, FuseSample, MountInfo, NvmePath

_OURS = {"Name:\tckptprof:sample": "sampler", "Name:\tpy-spy": "py-spy"}  # as truncated by the kernel
_KILLED = 1 << 8  # SIGKILL, in the masks of pending signals of proc_pid_status(5)
_LARGE_LOG_BYTES = 64 << 20  # eight times its usual size without a blocking reader
_PATIENCE_SECONDS = 5.0  # for a file system or process that does not respond
MAX_MOUNTS = 16  # listed one by one
_LINKS_ONLY = "only links and connections show what limits a save there"
_LIVE = ("live", None)  # None: unknown
_Device = tuple[int, int]


class DatabaseFindings(NamedTuple):
    """Results of the checks of the database's location."""

    database: Check
    capacity: tuple[Check, ...] = ()
    newest: Session | None = None
    is_written: bool = False  # an agent is writing to it now


def run_checks(fs: KernelFs, db: str | Path | None, *, at: tuple[str, int], now_ns: int) -> list[Check]:
    """Run all checks, and return them in the order of the output.

    `db`: None for the default of queries. `at`: the address of /metrics. Raises StoreError without a home directory.
    """
    uid = os.geteuid()
    found = inspect_database(db)
    tried = trace_checks.run_checks(fs)
    standing = trace_checks.query_agent(*at)
    watched = trace_checks.check_recorder(standing, found.newest, tried, is_written=found.is_written)
    checks = [
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
        kernel.ptrace_scope(fs),
        kernel.stacks(find_program()),
        kernel.gpus(fs, NvmlGpus()),
        *trace_checks.qualify_own_trace(watched, tried),
        found.database,
        *found.capacity,
        *check_killed_samplers(fs),
    ]
    newest_ns = None if found.newest is None else found.newest.end_ns
    return [*checks, kernel.clock(now_ns=now_ns, newest_ns=newest_ns), metrics_port(at[1], mine=standing is not None)]


def inspect_database(db: str | Path | None, *, patience_seconds: float = _PATIENCE_SECONDS) -> DatabaseFindings:
    """Check the database's location in a child process, which is abandoned if the file system does not respond.

    Raises StoreError.
    """

    def inspect(say: OnReport) -> DatabaseFindings:
        where = path_to_read() if db is None else db
        newest, stored = database(where)
        say("database")
        return DatabaseFindings(stored, tuple(check_capacity(where)), newest, _has_writer(where))

    try:
        return run_isolated(inspect, "the database" if db is None else str(db), patience_seconds=patience_seconds)
    except NoAnswerError as error:
        return DatabaseFindings(Check("database", "fail" if error.hangs else "note", str(error), error.hint))


def _has_writer(db: str | Path) -> bool:
    try:
        path = path_of_database(db)
        return is_writer_alive(path) is True
    except (CkptprofError, OSError):
        return False


def database(db: str | Path) -> tuple[Session | None, Check]:
    """Open the database as a query does; also return its newest session, None if there is none."""
    from ckptprof.store.quarantine import list_set_aside  # noqa: PLC0415 # as the next
    from ckptprof.store.reader import StoreReader  # noqa: PLC0415 # SQLAlchemy: only if needed

    try:
        path = path_of_database(db)
        if not path.exists():
            text = f"there is no database yet at {printable_path(path)}"
            return None, Check("database", "note", text, missing_data_hint(path))
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
    if damaged := list_set_aside(path):
        text = (
            f"{printable_path(path)} is readable; an earlier, damaged database was set aside as "
            f"{printable_path(damaged[-1])}"
        )
        fix = f"read what you need with --db {printable_path(damaged[-1])}, then delete it"
        return newest, Check("database", "warn", text, fix)
    if (log := log_bytes(path)) > _LARGE_LOG_BYTES:
        text = f"{printable_path(path)} is readable, but its log has {units.size(log)}: a reader prevents its reset"
        return newest, Check("database", "warn", text, f"end it, or its transaction: {describe_log_readers(path)}")
    return newest, Check("database", "ok", f"{printable_path(path)}, {units.size(size)}, is readable")


def check_capacity(db: str | Path) -> list[Check]:
    """Check the file system of the database."""
    try:
        folder = next(parent for parent in path_of_database(db).parents if parent.is_dir())
        usage = psutil.disk_usage(str(folder))
    except (CkptprofError, OSError, StopIteration) as error:
        return [Check("disk-free", "warn", f"the database's file system cannot be read: {error}")]
    return [kernel.disk_free(folder, free_bytes=usage.free, total_bytes=usage.total)]


def check_killed_samplers(fs: KernelFs) -> list[Check]:
    """Check for our processes that were killed but do not end, blocked in a system call."""
    found = [
        f"{name} {folder.name}"
        for folder in sorted(fs.proc.glob("[0-9]*"), key=lambda one: int(one.name))
        if (name := _blocked_program(read_text(folder / "status") or "")) is not None
    ]
    if not found:
        return []
    text = f"killed, but blocked in a call to a file system that does not respond: {', '.join(found)}"
    fix = f"{END_THE_MOUNT}; /proc/PID/task/*/stack shows where each thread waits"
    return [Check("samplers", "warn", text, fix)]


def _blocked_program(status: str) -> str | None:
    name = next((name for head, name in _OURS.items() if status.startswith(head)), None)
    fields = dict(line.partition(":\t")[::2] for line in status.splitlines())
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    is_leaderless = fields.get("State", "").startswith("Z") and int(fields.get("Threads", "0")) > 1
    return name if is_leaderless or pending & _KILLED else None


def metrics_port(port: int, *, mine: bool = False) -> Check:
    """Check that the port of /metrics is free on loopback; `mine`: an agent answered there."""
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
            shows = remedies.first_available(f"ss -tlnp sport = :{port}", otherwise="")
            return Check("metrics-port", "note", text, f"{shows} shows which program" if shows else None)
    return Check("metrics-port", "ok", f"port {port} is free for /metrics")


def remote(fs: KernelFs) -> list[Check]:
    """Read the client counters of each remote mount, as the sampler does, without touching the mount."""
    try:
        collector = MountReader(fs)
    except UnavailableError as error:
        return [Check("mounts", "warn", f"{error}: mounts are unknown", "mount /proc")]
    counted = {(one.major, one.minor): one for one in collector.read() if isinstance(one, FuseSample)}
    collector.close()
    far = [one for one in collector.mounts if is_network_mount(one)]
    daemons = _daemons(fs, far)
    checks = [
        _check_fuse(mount, counted, daemons) if mount.fs_type.startswith("fuse") else _check_client(fs, mount)
        for mount in far[:MAX_MOUNTS]
    ]
    if len(far) > MAX_MOUNTS:
        checks.append(Check("mounts", "ok", f"{len(far) - MAX_MOUNTS} more remote mounts are not listed"))
    return checks


def _daemons(fs: KernelFs, far: Sequence[MountInfo]) -> Mapping[_Device, FuseDaemon]:
    found = FuseDaemons(fs, find_peers)
    lacking = found.mounts_without_daemon(far)
    if not lacking:
        return {}

    def poll(_: OnReport) -> list[FuseDaemon]:
        found.find(lacking, ())
        return found.read(mmap.PAGESIZE)

    with contextlib.suppress(OSError, NoAnswerError):
        return {
            (one.major, one.minor): one for one in run_isolated(poll, str(fs.proc), patience_seconds=_PATIENCE_SECONDS)
        }
    return {}


def _check_fuse(
    mount: MountInfo, counted: Mapping[_Device, FuseSample], daemons: Mapping[_Device, FuseDaemon]
) -> Check:
    device = mount.major, mount.minor
    program = fuse_program(mount.fs_type, mount.source)
    where = f"{mount.fs_type} of {mount.server or mount.source}"
    not_monitored = ["the time of each request", "data sent after close(2) returned"]
    monitored = []
    if device in counted and (waiting := counted[device].waiting) is not None:
        monitored.append(f"the number of pending requests ({waiting} now)")
    else:
        not_monitored.insert(0, "the number of pending requests")
    served = "its server process is not visible"
    if (daemon := daemons.get(device)) is not None:
        (pid, _), *others = daemon.processes
        others_text = f" with {', '.join(str(other) for other, _ in others)}" if others else ""
        served = f"served by {daemon.name}, process {pid}{others_text}"
        monitored += ["the processor time and the TCP connections of these processes"]
    else:
        not_monitored.insert(0, f"the processor time and the TCP connections of {program or 'its server'}")
    text = f"{where}: {served}; observed: {', '.join(monitored) or 'nothing'}; not observed: {', '.join(not_monitored)}"
    return Check(f"mount:{mount.mount_point}", "note", text)


def _check_client(fs: KernelFs, mount: MountInfo) -> Check:
    name, where = f"mount:{mount.mount_point}", f"{mount.fs_type} of {mount.server or mount.source}"
    make = CLIENTS.get(mount.fs_type)
    if make is None:
        requests_text = "pending requests are counted, but " if is_fuse(mount.fs_type.encode()) else ""
        return Check(
            name, "note", f"{where}: {requests_text}its client has no counters that ckptprof reads: {_LINKS_ONLY}"
        )
    try:
        client = make(fs)
        try:
            found = [one for one in client.read([mount]) if (one.major, one.minor) == (mount.major, mount.minor)]
        finally:
            client.close()
    except OSError as error:
        return Check(name, "note", f"{where}: the counters of its client cannot be read ({error}): {_LINKS_ONLY}")
    if not found:
        return Check(
            name, "note", f"{where}: its client's counters cannot be separated from another mount's: {_LINKS_ONLY}"
        )
    one = found[0]
    has_counters = one.wire_written_bytes is not None or one.operations
    limitation = "" if has_counters else f"; {_LINKS_ONLY}"
    return Check(name, "ok" if has_counters else "note", f"{where}: {_describe_counters(one)}{limitation}")


def _describe_counters(one: ClientSample) -> str:
    counters: Sequence[tuple[str, object]] = (
        ("bytes", one.wire_written_bytes), ("operations and their times", one.operations), ("servers", one.targets),
        ("connections", one.connections), ("requests without a slot", one.backlog),
    )  # fmt: skip
    observed = ", ".join(name for name, value in counters if value not in (None, ()))
    transport = f" over {one.transport}" if one.transport else ""
    not_monitored = "".join(f"; not observed: {clause}" for clause in one.limitations)
    return f"{one.client}{transport} shows {observed or 'nothing'}{not_monitored}"


def paths(fs: KernelFs) -> list[Check]:
    """Check the paths of each disk behind a fabric."""
    try:
        collector = BlockDevices(fs)
    except UnavailableError:  # reported by another check
        return []
    found: dict[str, list[NvmePath]] = {}
    with contextlib.closing(collector), contextlib.suppress(OSError):
        for one in collector.read():
            if isinstance(one, NvmePath):
                found.setdefault(one.head, []).append(one)
    return [_check_nvme(head, own) for head, own in list(found.items())[:MAX_MOUNTS]]


def _check_nvme(head: str, own: Sequence[NvmePath]) -> Check:
    transports = "/".join(sorted({one.transport for one in own}))
    text = f"{head} is reached over {transports} through {units.plural(len(own), 'path')}"
    bad = [f"{one.device} to {one.target or 'its target'} is {one.state}" for one in own if one.state not in _LIVE]
    if not bad:
        return Check(f"disk:{head}", "ok", f"{text}: path states, targets and the time of each request are observed")
    return Check(f"disk:{head}", "warn", f"{text}: {', '.join(bad)}", "`nvme list-subsys` shows the state of each path")
