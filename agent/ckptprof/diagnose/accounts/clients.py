"""What the client of a remote mount tells of who held a checkpoint up: its server, the way to it, or the client itself.

Its requests wait for a slot or for those before them (queued), then for the answer (at the server, and on the way to
it). Several are on their way at a time, so that their seconds do not add up to the time that went by: shares of them
tell what they waited for, and over the time that a thread waited they tell how many were there at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ckptprof.diagnose.accounts.connections import of_storage
from ckptprof.diagnose.causes import Cause
from ckptprof.diagnose.sight import MOST, SLIGHT, Sight, some
from ckptprof.measures import MountMeasure, OperationMeasure
from ckptprof.units import latency, percent, plural, size
from ckptprof.verdicts import Limit

_WRITES = frozenset({"WRITE"})
_READS = frozenset({"READ", "READ_PLUS"})
_COMMITS = frozenset({"COMMIT"})
_FEW = 8  # requests: no mean is told of fewer, and no share that was sent again
_AGAIN = 0.01  # of the requests: each that is sent again waited for its timeout, a minute as it is set
_TIMEO_A_SECOND = 10.0  # nfs(5): `timeo` is in tenths of a second
_DELAY_SECONDS = 0.1  # a client waits at least so long before it asks again: NFS4_POLL_RETRY_MIN
_SMALL_BYTES = 64 << 10  # of a request
_OF_SIZE = 0.25  # of the size that the mount has room for
LONG = 5.0  # times a round of its connection: the server itself took it


@dataclass(frozen=True)
class Told:
    """What a client tells, as far as it decides something."""

    cause: Cause
    limit: Limit
    text: str
    excluded: str
    rival: Limit | None = None
    sure: bool = True


def told_by_client(sight: Sight, waiting: float) -> Told | None:
    """Return what held up who waited for so many seconds; None: the client tells nothing, or nothing of its own."""
    mount = sight.measures.mount
    if mount is None or waiting <= 0:
        return None
    moved = mount.wire_written_bytes if sight.writes else mount.wire_read_bytes
    data = _of(mount, _WRITES if sight.writes else _READS)
    if moved is None or moved < MOST * sight.moved or sum(one.count for one in data) < _FEW:
        return None
    commits = _of(mount, _COMMITS)
    return (
        _again(mount, waiting)
        or _delayed(mount, waiting)
        or _small(sight, mount, data, moved, waiting)
        or _committed(sight, data, commits, waiting)
        or _queued(sight, mount, data, waiting)
        or _answered(sight, data)
    )


def _of(mount: MountMeasure, kinds: frozenset[str]) -> list[OperationMeasure]:
    return [one for one in mount.operations if one.kind in kinds]


def _took(operations: Iterable[OperationMeasure]) -> float:
    """Return the seconds of all of them together."""
    return sum(one.count * some(one.seconds) for one in operations)


def _again(mount: MountMeasure, waiting: float) -> Told | None:
    count = sum(one.count for one in mount.operations)
    again = sum(some(one.retransmissions) for one in mount.operations)
    late = sum(some(one.timeouts) for one in mount.operations)
    held = late * some((mount.settings or {}).get("timeo")) / _TIMEO_A_SECOND
    if again < max(_FEW, _AGAIN * count) and held < max(1.0, SLIGHT * waiting):
        return None
    timed_out = f", {plural(int(late), 'request')} timed out" if late else ""
    text = f"of {plural(int(count), 'request')} {int(again):,} were sent again{timed_out}"
    return Told(Cause.RESENT, Limit.NETWORK, text, "", rival=Limit.SERVER, sure=False)


def _delayed(mount: MountMeasure, waiting: float) -> Told | None:
    delays = some(mount.delays)
    if delays * _DELAY_SECONDS < SLIGHT * waiting or not delays:
        return None
    text = f"it answered {plural(int(delays), 'time')} that it is to be asked again later"
    return Told(Cause.DELAYED, Limit.SERVER, text, "not the network: the server did answer")


def _small(
    sight: Sight, mount: MountMeasure, data: list[OperationMeasure], moved: float, waiting: float
) -> Told | None:
    each = moved / sum(one.count for one in data)
    room = (mount.settings or {}).get("wsize" if sight.writes else "rsize")
    if room is None or each >= min(_SMALL_BYTES, _OF_SIZE * room) or _took(data) < MOST * waiting:
        return None
    text = f"{plural(int(sum(one.count for one in data)), data[0].kind)} of {size(each)}, where {size(room)} fit"
    return Told(Cause.SMALL_REQUESTS, Limit.SMALL_IO, text, "")


def _committed(
    sight: Sight, data: list[OperationMeasure], commits: list[OperationMeasure], waiting: float
) -> Told | None:
    took, writers = _took(commits), max(1, len(sight.checkpoint.writers))
    if not sight.writes or (took < MOST * (took + _took(data)) and took < MOST * waiting * writers):
        return None
    count = sum(one.count for one in commits)
    if not count or not took:
        return None
    each = f"{latency(took / count)}{' each' if count > 1 else ''}"
    text = f"{plural(int(count), 'COMMIT')} took {each}: its stable storage"
    return Told(Cause.COMMITS, Limit.SERVER, text, f"not the network: WRITEs took {_each(data)}")


def _queued(sight: Sight, mount: MountMeasure, data: list[OperationMeasure], waiting: float) -> Told | None:
    """Return that requests waited at this end, though not all the slots were at the server: one stream is too few."""
    whole, queued = _took(data), sum(one.count * some(one.queue_seconds) for one in data)
    slots = mount.slots
    if not sight.writes or mount.connections != 1 or not slots or not whole or queued < MOST * whole:
        return None
    sent = sum(one.count * some(one.server_seconds) for one in data) / waiting
    if sent >= MOST * slots:
        return None
    behind = f" ({some(mount.backlog_mean):,.0f} more without a slot)" if some(mount.backlog_mean) >= 1 else ""
    text = (
        f"{percent(queued / whole)} of the time of its {data[0].kind}s at this end, on the one connection that the "
        f"mount has: {sent:.1f} at a time at the server, of {slots:,.0f} slots{behind}"
    )
    return Told(Cause.ONE_CONNECTION, Limit.SINGLE_WRITER, text, f"not the server: it took {_answer(data)} for each")


def _answered(sight: Sight, data: list[OperationMeasure]) -> Told | None:
    """Return that the server took long, by how long a round to it takes."""
    rounds = [value for one in of_storage(sight) if (value := one.min_rtt_seconds)]
    count = sum(one.count for one in data)
    each = sum(one.count * some(one.server_seconds) for one in data) / count
    if not rounds or each < LONG * max(rounds):
        return None
    text = f"each {data[0].kind} took {latency(each)} there, where a round takes {latency(max(rounds))}"
    return Told(Cause.ANSWERS, Limit.SERVER, text, "")


def _each(operations: list[OperationMeasure]) -> str:
    return f"{latency(_took(operations) / sum(one.count for one in operations))} each"


def _answer(data: list[OperationMeasure]) -> str:
    return latency(
        sum(some(one.count) * some(one.server_seconds) for one in data) / sum(some(one.count) for one in data)
    )
