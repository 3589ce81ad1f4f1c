"""What `ckptprof doctor` says of each remote mount: what its client tells of it, and what stays out of sight."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.detect.world.host.devices import is_elsewhere
from ckptprof.report.doctor import Check
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.mounts.clients import CLIENTS
from ckptprof_collectors.mounts.fuseconnections import is_fuse
from ckptprof_collectors.mounts.mountinfo import Mounts
from ckptprof_collectors.samples import ClientSample, MountInfo

MAX_MOUNTS = 16  # of which each has a line
_BLIND = "what limits a save there is told by links and connections alone"


def remote(fs: KernelFs) -> list[Check]:
    """Ask the client of each remote mount for its counters, as the sampler does: no mount is touched."""
    try:
        collector = Mounts(fs)
    except UnavailableError as error:
        return [Check("mounts", "warn", f"{error}: no mount is known", "mount /proc")]
    collector.read()
    collector.close()
    far = [one for one in collector.mounts if is_elsewhere(one)]
    checks = [_told(fs, mount) for mount in far[:MAX_MOUNTS]]
    if len(far) > MAX_MOUNTS:
        checks.append(Check("mounts", "ok", f"{len(far) - MAX_MOUNTS} more remote mounts are not told here"))
    return checks


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
