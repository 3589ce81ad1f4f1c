"""What is behind the time asleep in reads, writes and syncs: device, network, server, small operations or flushes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from ckptprof.diagnose.accounts import nvme_paths
from ckptprof.diagnose.accounts.clients import Told, told_by_client
from ckptprof.diagnose.accounts.congestion import congestion
from ckptprof.diagnose.accounts.connections import Transport, transport
from ckptprof.diagnose.accounts.targets import told_by_targets
from ckptprof.diagnose.causes import Cause
from ckptprof.diagnose.sight import MOST, Sight, pace, some
from ckptprof.measures import MountMeasure
from ckptprof.units import per_second, percent, plural, rate, size
from ckptprof.verdicts import Limit

SMALL_BYTES = 64 << 10  # of a request, or of a call that bypasses the page cache
SMALL_REQUEST_BYTES = 128 << 10
SYNC_BYTES = 4 << 20
_TINY_BYTES = 16 << 10  # of a call or a request: no device and no server is at its best with these
SYNCS = 16
_LARGER = 2.0  # times a request: what was shown with such tells what larger requests would do
_NEAR = 0.7  # of a limit that was set, of a speed, of what was shown
_MOMENT = 0.02  # seconds; of what is shorter no rate is told
_STEADY = 0.8
_IDLE = 0.3  # of the time: a device that has so little to do does not hold its writers up
_AT_SERVER = "asleep waiting for the server of the mount"
_AT_STORE = "asleep waiting for the object store"
_ASLEEP = {
    Limit.SERVER: _AT_SERVER,
    Limit.NETWORK: "asleep waiting for the network",
    Limit.SMALL_IO: "asleep in small operations",
    Limit.SINGLE_WRITER: "asleep waiting for what was written to be sent",
}
_EVEN = 0.9  # of the time at one rate: something holds it there


@dataclass(frozen=True)
class Storage:
    """What the waiting was for."""

    cause: Cause
    limit: Limit
    text: str
    excluded: tuple[str, ...] = ()
    rival: Limit | None = None  # what it may be as well
    imposed: bool = False  # by a limit that somebody set, or that the kernel has measured
    sure: bool = True


def resolve(sight: Sight, *, data: float, sync: float, waiting: float) -> Storage:
    """Return what was waited for; `data` and `sync` are the seconds asleep in such calls, `waiting` all of them."""
    flush = _flushes(sight, data, sync)
    if sight.remote:
        found = _remote(sight, waiting, flush)
        is_sent = sight.checkpoint.sent is not None
        return replace(found, text=found.text.replace(_AT_SERVER, _AT_STORE)) if is_sent else found
    return flush or _small(sight, waiting) or _behind_fabric(sight, waiting, _device(sight, waiting))


def _flushes(sight: Sight, data: float, sync: float) -> Storage | None:
    if sync < data or not sight.writes:
        return None
    syncs = sight.syncs
    counted = "syncs"
    if syncs is None and not sight.remote:
        syncs, counted = sight.device_flushes, "flushes of the device"
    if syncs is None:
        return None
    bound = throttle(sight, data + sync)
    if counted != "syncs" and bound is not None and bound.bytes_per_second is not None and bound.share >= _EVEN:
        return None  # the bytes are what a limit holds, whoever flushed meanwhile
    each = sight.moved / max(1.0, syncs)
    if syncs >= SYNCS and each < SYNC_BYTES:
        return Storage(Cause.FLUSHES, Limit.FLUSH, f"asleep in {int(syncs):,} {counted}, {size(each)} for each")
    return None


class Bound(NamedTuple):
    """A limit that somebody set on a device, and that was hit."""

    share: float  # of the limit that was reached, at most 1
    bytes_per_second: float | None
    operations_per_second: float | None
    device: str  # one of those below the files: a file system on a loop device has two
    least: float  # seconds that it needs for what was moved


def throttle(sight: Sight, waiting: float) -> Bound | None:
    """Return the limit that was hit the most."""
    best: Bound | None = None
    for device in sight.measures.devices:
        active = min(device.seconds or waiting, waiting) if waiting else device.seconds
        moved = device.written_bytes if sight.writes else device.read_bytes
        operations = device.writes if sight.writes else device.reads
        by_bytes = device.throttled_bytes_per_second
        by_operations = device.throttled_operations_per_second
        reached_bytes = pace(max(moved, 0.0), active) / by_bytes if by_bytes else 0.0
        reached_operations = pace(operations, active) / by_operations if by_operations else 0.0
        reached = max(reached_bytes, reached_operations)
        if reached >= MOST and (best is None or reached > best.share):
            is_bytes = reached_bytes >= reached_operations
            known = by_bytes if is_bytes else None, None if is_bytes else by_operations
            best = Bound(min(reached, 1.0), *known, device.device, reached * active)
    return best


def _small(sight: Sight, waiting: float) -> Storage | None:
    """Return small operations, if they and not the bytes are what the device is slow by."""
    call = sight.checkpoint.pattern.median_operation_bytes
    if call is None:
        call = sight.checkpoint.pattern.mean_operation_bytes
    request = sight.request_bytes
    small_calls = sight.direct and call is not None and call < SMALL_BYTES
    small_requests = request is not None and request < SMALL_REQUEST_BYTES
    if not small_calls and not (small_requests and (call is None or call < SMALL_BYTES or sight.direct)):
        return None
    if request is not None and request >= SMALL_REQUEST_BYTES:
        return None
    bound = throttle(sight, waiting)
    if bound is not None and bound.bytes_per_second is not None:
        return None  # the bytes are what a limit holds
    moved = pace(sight.device_bytes or sight.moved, waiting)
    shown = _shown(sight, request)
    if bound is None and shown is not None and moved >= _NEAR * shown and (request or 0) >= _TINY_BYTES:
        return None
    text = f"asleep in small operations, {size(request if request is not None else call or 0)} each"
    if sight.device_operations:
        most = _most(bound and bound.operations_per_second)
        text += f", {per_second(min(pace(sight.device_operations, waiting), most))}"
    if bound is not None and bound.operations_per_second is not None:
        text += f" of the {per_second(bound.operations_per_second)} that the device is limited to"
    excluded = [f"not by bytes: {rate(moved)}" + (f", it has shown {rate(shown)}" if shown else "")]
    cause = Cause.SMALL_OPERATIONS if bound is None else Cause.SMALL_OPERATIONS_CAPPED
    rival = Limit.DEVICE if bound is None and shown is None else None  # nothing tells what larger ones would do
    return Storage(cause, Limit.SMALL_IO, text, tuple(excluded), rival, imposed=bound is not None)


def _shown(sight: Sight, request: float | None) -> float | None:
    """Return the best that this path is known to do, unless it is shown by requests as small as these alone."""
    best = sight.device.shown_bytes_per_second if sight.device is not None else None
    each = sight.device.shown_request_bytes if sight.device is not None else None
    if each is not None and request is not None and each < _LARGER * request:
        best = None
    return max((value for value in (sight.probed, best) if value), default=None)


def _device(sight: Sight, waiting: float) -> Storage:
    name = sight.device.device if sight.device is not None else "the device"
    busy = sight.device_busy
    bound = throttle(sight, waiting)
    moved = sight.device_bytes
    speed = ""
    if moved is not None and waiting >= _MOMENT:
        speed = f" at {rate(min(pace(moved, waiting), _most(bound and bound.bytes_per_second)))}"
    if bound is not None:
        of_bytes, of_operations = bound.bytes_per_second, bound.operations_per_second
        limit = rate(of_bytes) if of_bytes is not None else per_second(of_operations or 0.0)
        text = f"asleep waiting for {bound.device}{speed}, which is limited to {limit}"
        return Storage(Cause.DEVICE_CAPPED, Limit.DEVICE, text, (_off_cpu(busy),), imposed=True)
    text = f"asleep waiting for {name}{speed}"
    if busy is not None:
        text += f", which was {percent(busy)} busy"
    steadiness = sight.device.steadiness if sight.device is not None else None
    held = busy is not None and busy < _IDLE and steadiness is not None and steadiness >= _STEADY
    if held:
        text += f", at an even rate ({percent(min(1.0, steadiness or 0.0))} of the time): slowed before its queue"
    cause = Cause.DEVICE_PACED if held else Cause.DEVICE
    return Storage(cause, Limit.DEVICE, text, imposed=held, sure=sight.device is not None)


def _most(limit: float | None) -> float:
    """Return the limit that is set: no more went through, whatever a clock says."""
    return math.inf if limit is None else limit


def _off_cpu(busy: float | None) -> str:
    return "not the device itself" + (f": {percent(busy)} busy" if busy is not None else "")


def _behind_fabric(sight: Sight, waiting: float, found: Storage) -> Storage:
    """Return what is behind the wait for a device that is another host's: its target, or the way there."""
    if found.cause is not Cause.DEVICE or not nvme_paths.paths_of(sight):
        return found
    if nvme_paths.is_cut_off(sight, waiting):
        text = f"{_ASLEEP[Limit.NETWORK]}: no path to its disk could be used, {nvme_paths.trouble(sight)}"
        return Storage(Cause.PATHS_LOST, Limit.NETWORK, text, rival=Limit.SERVER, imposed=True)
    busy = nvme_paths.asked(sight)
    if busy is not None and busy < _IDLE:
        return replace(found, excluded=(f"not its target: it had requests in {percent(busy)} of the time",), sure=False)
    told = _of_network(sight, waiting, None, transport(sight, waiting))
    if told.cause is Cause.LINK and told.rival is Limit.SERVER:  # by an even rate alone, which a target has, too
        told = Storage(Cause.SERVER, Limit.SERVER, _AT_SERVER, rival=Limit.NETWORK, sure=False)
    if told.limit is Limit.SERVER and told.cause is not Cause.WINDOW and nvme_paths.answers_late(sight):
        told = replace(told, rival=None, sure=True)
    return replace(told, text=told.text.replace(_AT_SERVER, nvme_paths.target(sight)))


def _remote(sight: Sight, waiting: float, flush: Storage | None) -> Storage:
    """Return what the network tells of it, unless the client of the mount knows better."""
    tcp = transport(sight, waiting)
    found = _of_network(sight, waiting, flush, tcp)
    client = told_by_client(sight, waiting) or told_by_targets(sight, waiting)
    if client is None or not _knows_better(client, found, tcp):
        return found
    free = found.excluded if client.limit is found.limit else ()
    free = (client.excluded,) if client.excluded else free
    imposed = client.cause in (Cause.COMMITS, Cause.DELAYED, Cause.TARGET) or (
        client.cause is Cause.ANSWERS and found.imposed
    )
    return Storage(client.cause, client.limit, f"{_ASLEEP[client.limit]}: {client.text}", free, client.rival,
                   imposed=imposed, sure=client.sure)  # fmt: skip


def _knows_better(client: Told, found: Storage, tcp: Transport | None) -> bool:
    """Return whether what a client tells goes before what its network shows: a full link has requests wait, too."""
    if found.cause in (Cause.FLUSHES, Cause.SMALL_OPERATIONS):
        return False
    if client.cause is Cause.ANSWERS:
        return found.limit is Limit.SERVER and found.cause is not Cause.WINDOW
    if client.cause is Cause.SLOTS and found.cause is Cause.CONGESTION:
        return False
    if found.cause is Cause.WINDOW:
        return client.limit is Limit.SERVER
    if found.cause is Cause.PATH:  # one connection is as fast as its window and the way allow: more of them are faster
        return client.cause is Cause.ONE_CONNECTION and tcp is not None and not tcp.queued
    return found.limit is not Limit.NETWORK or found.rival is not None


def _of_network(sight: Sight, waiting: float, flush: Storage | None, told: Transport | None) -> Storage:
    """Return what TCP tells of it, with what the link does; where it tells nothing, the link alone."""
    shown = _of_link(sight, waiting, flush)
    if told is None:
        return shown
    rival = Limit.SERVER if told.limit is Limit.NETWORK else Limit.NETWORK
    if told.limit is Limit.SERVER:
        text = f"{_AT_SERVER}: {told.text}"
        other = None if told.sure else rival
        return Storage(Cause.WINDOW, told.limit, text, rival=other, imposed=told.sure, sure=told.sure)
    if told.limit is Limit.NETWORK:
        if shown.limit is Limit.NETWORK and shown.rival is None:
            return replace(shown, text=f"{shown.text}; {told.text}", excluded=(*shown.excluded, told.excluded))
        if shown.cause in (Cause.FLUSHES, Cause.SMALL_OPERATIONS) and not told.queued:
            return shown  # each waits for a round, however short
        text = f"asleep waiting for the network: {told.text}"
        other = None if told.sure else rival
        return Storage(Cause.PATH, told.limit, text, (told.excluded,), other, imposed=told.sure, sure=told.sure)
    return _beyond_the_way(sight, waiting, shown, told) if told.sure else shown


def _beyond_the_way(sight: Sight, waiting: float, shown: Storage, told: Transport) -> Storage:
    """Return what it is where data was seldom on its way: the server, or what serves a FUSE mount at this end."""
    excluded = (*shown.excluded, told.excluded)
    mount = sight.measures.mount
    busy = mount.daemon_busy if mount is not None else None
    each_waits = shown.cause in (Cause.FLUSHES, Cause.SMALL_OPERATIONS)
    if busy is not None and busy * sight.span >= _NEAR * waiting and not each_waits:
        text = f"asleep waiting for {_daemon(mount)} on CPU ({busy:.2f} cores): {told.text}"
        return Storage(Cause.DAEMON, Limit.SERIALIZE, text, excluded, imposed=True)
    if shown.limit is Limit.NETWORK or shown.cause is Cause.SERVER:
        shown = Storage(Cause.SERVER, Limit.SERVER, f"{_at_server(sight)}: {told.text}")
    if busy is None or shown.limit is not Limit.SERVER:
        return replace(shown, excluded=excluded, rival=None)
    used = f"{_daemon(mount)} used {busy:.2f} cores"
    if busy >= MOST:  # then it is as likely that it waited for that one
        return replace(shown, text=f"{shown.text}; {used}", excluded=excluded, rival=None, sure=False)
    return replace(shown, excluded=(*excluded, f"not this end: {used}"), rival=None, imposed=True)


def _of_link(sight: Sight, waiting: float, flush: Storage | None) -> Storage:
    link = sight.link
    if link is None:
        return flush or Storage(Cause.SERVER, Limit.SERVER, _AT_SERVER, rival=Limit.NETWORK, sure=False)
    moved = pace(sight.link_bytes or 0.0, max(waiting, some(link.active_seconds)))  # it moves on beside other work
    speed, shown = link.speed_bytes_per_second, link.shown_bytes_per_second
    peak = max(moved, some(link.peak_bytes_per_second))
    text = f"asleep waiting for the network: {link.name} moved {rate(moved)}"
    if some(link.shaped_overlimits) or some(link.backlog_bytes) > SMALL_BYTES or some(link.shaped_drops) >= SYNCS:
        held = f"{plural(int(some(link.shaped_overlimits)), 'packet')} delayed by its queueing discipline"
        return Storage(Cause.LINK_SHAPED, Limit.NETWORK, f"{text}, {held}", imposed=True)
    if not sight.writes and link.shaped_overlimits is not None and _is_plateau(sight, waiting, peak):
        text += f", never more than {rate(peak)}, and it is shaped at this end"
        return Storage(Cause.LINK, Limit.NETWORK, text, rival=Limit.SERVER, imposed=True, sure=False)
    if speed and peak >= _NEAR * speed and moved >= MOST * speed:
        return Storage(Cause.LINK, Limit.NETWORK, f"{text} of {rate(speed)}")
    held_up = congestion(link, moved, waiting, writes=sight.writes)
    if held_up is not None:
        text = f"{text}{_of_speed(speed)}; {held_up.text}" + (f"; {held_up.shared}" if held_up.shared else "")
        free = () if not speed else (f"not its own link: {percent(min(1.0, peak / speed))} of its speed at best",)
        return Storage(Cause.CONGESTION, Limit.NETWORK, text, free, Limit.SERVER, imposed=True, sure=not held_up.shared)
    if flush is not None:
        return Storage(flush.cause, flush.limit, flush.text, (_link_free(moved, speed or shown),))
    small = _small_calls(sight)
    if small is not None:
        free = (_link_free(moved, speed or shown),)
        return Storage(Cause.SMALL_OPERATIONS, Limit.SMALL_IO, small, free, rival=Limit.SERVER)
    steadiness = min(1.0, some(link.steadiness))
    if shown and _NEAR * shown <= moved <= shown / _NEAR and steadiness >= (_STEADY if speed else MOST):
        text += f", as fast as it was ever seen ({rate(shown)}), evenly {percent(steadiness)} of the time"
        return Storage(Cause.LINK, Limit.NETWORK, text, rival=Limit.SERVER, imposed=steadiness >= _EVEN)
    if steadiness >= _EVEN and some(link.active_seconds) >= MOST * waiting and not _has_room(moved, shown):
        text += f", at an even rate ({percent(steadiness)} of the time)"
        return Storage(Cause.LINK, Limit.NETWORK, text, rival=Limit.SERVER, imposed=True, sure=False)
    free = (_link_free(moved, speed or shown),)
    return Storage(Cause.SERVER, Limit.SERVER, _at_server(sight), free, rival=Limit.NETWORK)


def _at_server(sight: Sight) -> str:
    mount = sight.measures.mount
    answers = mount.waiting_share if mount is not None else None
    if answers is None:
        return _AT_SERVER
    return f"{_AT_SERVER} (requests without an answer in {percent(min(1.0, answers))} of the looks)"


def _daemon(mount: MountMeasure | None) -> str:
    """Return who serves a FUSE mount here."""
    if mount is None or mount.daemon is None:
        return "what serves the mount here"
    return f"{mount.daemon}, which serves the mount here,"


def _of_speed(speed: float | None) -> str:
    return f" of {rate(speed)}" if speed else ""


def _is_plateau(sight: Sight, waiting: float, peak: float) -> bool:
    """Return whether a link moved what it did at its best most of the time, whatever held its reader up in between."""
    active = some(sight.link.active_seconds) if sight.link is not None else 0.0
    return active >= max(1.0, MOST * waiting) and (sight.link_bytes or 0.0) / active >= _STEADY * peak


def _has_room(moved: float, shown: float | None) -> bool:
    """Return whether the link was seen to be much faster."""
    return shown is not None and moved < _NEAR * shown


def _link_free(moved: float, most: float | None) -> str:
    return f"not the network: {rate(moved)}" + (f" of {rate(most)}" if most else "")


def _small_calls(sight: Sight) -> str | None:
    """Return small calls at a mount whose client does not gather them: reads, and writes past the page cache."""
    call = sight.checkpoint.pattern.median_operation_bytes
    if not sight.remote or call is None or call >= _TINY_BYTES or (sight.writes and not sight.direct):
        return None
    return f"asleep in small operations, {size(call)} each"
