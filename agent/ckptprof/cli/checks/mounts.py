"""What `ckptprof doctor` says of each remote mount: what its client tells of it, and what stays out of sight."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from ckptprof.detect.world.host.devices import is_elsewhere
from ckptprof.report.doctor import Check
from ckptprof.service.probing.apart import NoAnswerError, Say, apart
from ckptprof.service.sampler.population import page_bytes
from ckptprof.units import plural
from ckptprof_collectors.devices.blockdevices import BlockDevices
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts.clients import CLIENTS
from ckptprof_collectors.mounts.fuseconnections import is_fuse
from ckptprof_collectors.mounts.mountinfo import Mounts
from ckptprof_collectors.mounts.remotefs import program_of
from ckptprof_collectors.networks.unixpeers import peers
from ckptprof_collectors.processes.fusedaemons import FuseDaemons
from ckptprof_collectors.samples import ClientSample, FuseDaemon, FuseSample, MountInfo, NvmePath

MAX_MOUNTS = 16  # of which each has a line
PATIENCE_SECONDS = 5.0  # with processes that hold whoever reads of them
_BLIND = "what limits a save there is told by links and connections alone"
_LIVE = ("live", None)  # or not known
_Device = tuple[int, int]


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
    """Return who serves the FUSE mounts among these, as far as this user may see it and no process holds who asks."""
    found = FuseDaemons(fs, peers)
    lacking = found.lacking(far)
    if not lacking:
        return {}

    def look(_: Say) -> list[FuseDaemon]:
        found.look(lacking, ())
        return found.read(page_bytes())

    with contextlib.suppress(OSError, NoAnswerError):
        return {(one.major, one.minor): one for one in apart(look, str(fs.proc), patience_seconds=PATIENCE_SECONDS)}
    return {}


def _fuse(mount: MountInfo, counted: Mapping[_Device, FuseSample], daemons: Mapping[_Device, FuseDaemon]) -> Check:
    """Say who serves a FUSE mount, what tells of it, and what nothing does."""
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
    text = f"{where}: {served}; told: {', '.join(told) or 'nothing'}; out of sight: {', '.join(unseen)}"
    return Check(f"mount:{mount.mount_point}", "note", text)


def _told(fs: KernelFs, mount: MountInfo) -> Check:
    name, where = f"mount:{mount.mount_point}", f"{mount.fs_type} of {mount.server or mount.source}"
    make = CLIENTS.get(mount.fs_type)
    if make is None:
        more = "requests without an answer are counted, and " if is_fuse(mount.fs_type.encode()) else ""
        return Check(name, "note", f"{where}: {more}its client tells nothing that is read here: {_BLIND}")
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
    unseen = "".join(f"; out of sight: {clause}" for clause in one.unseen)
    return f"{one.client}{over} tells {told or 'nothing'}{unseen}"


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
    text = f"{head} is reached over {over} by {plural(len(own), 'path')}"
    bad = [f"{one.device} to {one.target or 'its target'} is {one.state}" for one in own if one.state not in _LIVE]
    if not bad:
        return Check(f"disk:{head}", "ok", f"{text}: their states and targets are told, and the time of each request")
    return Check(f"disk:{head}", "warn", f"{text}: {', '.join(bad)}", "`nvme list-subsys` shows the state of each path")
