"""What is behind the time asleep in reads, writes and syncs: device, network, server, small operations or flushes.

Behind a network several witnesses speak of one wait: the link, then TCP, then the client of the mount or its targets.
Each can tell causes apart that those before it cannot; `BEATS` says which it replaces. What it does not replace stays:
where a link is full or shaped, requests wait as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ckptprof.diagnose.accounts import witnesses
from ckptprof.diagnose.causes import Cause, Wait
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
_EVEN = 0.9  # of the time at one rate: something holds it there
_EACH_WAITS = frozenset({Cause.FLUSHES, Cause.SMALL_OPERATIONS})  # for a round, however short
_OPEN = frozenset({Cause.LINK_EVEN, Cause.CONGESTION, Cause.SERVER})  # what else is known decides between these
_CLIENT = _OPEN | {Cause.DAEMON}

BEATS: Mapping[Cause, frozenset[Cause]] = {
    # TCP
    Cause.WINDOW: _OPEN | _EACH_WAITS | {Cause.LINK, Cause.LINK_SHAPED},
    Cause.PATH: _OPEN,
    Cause.QUEUES: _OPEN | _EACH_WAITS,
    # The client of a mount
    Cause.RESENT: _CLIENT,
    Cause.DELAYED: _CLIENT | {Cause.WINDOW},
    Cause.SMALL_REQUESTS: _CLIENT,
    Cause.COMMITS: _CLIENT | {Cause.WINDOW},
    Cause.ONE_CONNECTION: _CLIENT | {Cause.PATH},  # as fast as its window and the way allow: more of them are faster
    Cause.ANSWERS: frozenset({Cause.SERVER}),
    # Its targets
    Cause.TARGET: _CLIENT | {Cause.WINDOW},
    Cause.SMALL_OPERATIONS: _CLIENT,
    Cause.SLOTS: _CLIENT - {Cause.CONGESTION} | {Cause.WINDOW},
}


def resolve(sight: Sight, *, data: float, sync: float, waiting: float) -> Wait:
    """Return what was waited for; `data` and `sync` are the seconds asleep in such calls, `waiting` all of them."""
    flush = _flushes(sight, data, sync)
    if not sight.remote:
        return flush or _small(sight, waiting) or _behind_fabric(sight, waiting, _device(sight, waiting))
    found = _of_network(sight, waiting, flush)
    client = witnesses.told_by_client(sight, waiting) or witnesses.told_by_targets(sight, waiting)
    if client is not None and found.cause in BEATS[client.cause]:
        free = client.excluded or (found.excluded if client.limit is found.limit else ())
        imposed = client.imposed or (client.cause is Cause.ANSWERS and found.imposed)
        found = replace(client, excluded=free, imposed=imposed)
    is_sent = sight.checkpoint.sent is not None and found.limit is Limit.SERVER
    return replace(found, words="waiting for the object store") if is_sent else found


def _flushes(sight: Sight, data: float, sync: float) -> Wait | None:
    if sync < data or not sight.writes:
        return None
    syncs = sight.syncs
    counted = "syncs"
    if syncs is None and not sight.remote:
        syncs, counted = sight.device_flushes, "device flushes"
    if syncs is None:
        return None
    bound = throttle(sight, data + sync)
    if counted != "syncs" and bound is not None and bound.bytes_per_second is not None and bound.share >= _EVEN:
        return None  # the bytes are what a limit holds, whoever flushed meanwhile
    each = sight.moved / max(1.0, syncs)
    if syncs < SYNCS or each >= SYNC_BYTES:
        return None
    return Wait(cause=Cause.FLUSHES, limit=Limit.FLUSH, words=f"in {int(syncs):,} {counted}, one for each {size(each)}")


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
        reached_bytes = pace(moved, active) / by_bytes if by_bytes else 0.0
        reached_operations = pace(operations, active) / by_operations if by_operations else 0.0
        reached = max(reached_bytes, reached_operations)
        if reached >= MOST and (best is None or reached > best.share):
            is_bytes = reached_bytes >= reached_operations
            known = by_bytes if is_bytes else None, None if is_bytes else by_operations
            best = Bound(min(reached, 1.0), *known, device.device, reached * active)
    return best


def _small(sight: Sight, waiting: float) -> Wait | None:
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
    words = f"in small operations of {size(request if request is not None else call or 0)} each"
    if sight.device_operations:
        most = _most(bound and bound.operations_per_second)
        words += f", {per_second(min(pace(sight.device_operations, waiting), most))}"
    if bound is not None and bound.operations_per_second is not None:
        words += f" of the {per_second(bound.operations_per_second)} that the device is limited to"
    free = f"bandwidth was only {rate(moved)}" + (f", of {rate(shown)} measured on this path" if shown else "")
    cause = Cause.SMALL_OPERATIONS if bound is None else Cause.SMALL_OPERATIONS_CAPPED
    rival = Limit.DEVICE if bound is None and shown is None else None  # nothing tells what larger ones would do
    return Wait(cause=cause, limit=Limit.SMALL_IO, words=words, excluded=(free,), rival=rival,
                imposed=bound is not None)  # fmt: skip


def _shown(sight: Sight, request: float | None) -> float | None:
    """Return the best that this path is known to do, unless it is shown by requests as small as these alone."""
    best = sight.device.shown_bytes_per_second if sight.device is not None else None
    each = sight.device.shown_request_bytes if sight.device is not None else None
    if each is not None and request is not None and each < _LARGER * request:
        best = None
    return max((value for value in (sight.probed, best) if value), default=None)


def _device(sight: Sight, waiting: float) -> Wait:
    busy = sight.device_busy
    bound = throttle(sight, waiting)
    moved = sight.device_bytes
    speed = ""
    if moved is not None and waiting >= _MOMENT:
        speed = f" at {rate(min(pace(moved, waiting), _most(bound and bound.bytes_per_second)))}"
    if bound is not None:
        of_bytes, of_operations = bound.bytes_per_second, bound.operations_per_second
        limit = rate(of_bytes) if of_bytes is not None else per_second(of_operations or 0.0)
        free = "not the device itself" + (f", which was {percent(busy)} busy" if busy is not None else "")
        words = f"waiting for {bound.device}{speed}, which is limited to {limit}"
        return Wait(cause=Cause.DEVICE_CAPPED, limit=Limit.DEVICE, words=words, excluded=(free,), imposed=True)
    words = f"waiting for {sight.device.device if sight.device is not None else 'the device'}{speed}"
    if busy is not None:
        words += f", which was {percent(busy)} busy"
    steadiness = some(sight.device.steadiness) if sight.device is not None else 0.0
    held = busy is not None and busy < _IDLE and steadiness >= _STEADY
    if held:
        words += f", at a constant rate ({percent(min(1.0, steadiness))} of the time): throttled before its queue"
    cause = Cause.DEVICE_PACED if held else Cause.DEVICE
    return Wait(cause=cause, limit=Limit.DEVICE, words=words, imposed=held, sure=sight.device is not None)


def _most(limit: float | None) -> float:
    """Return the limit that is set: no more went through, whatever a clock says."""
    return math.inf if limit is None else limit


def _behind_fabric(sight: Sight, waiting: float, found: Wait) -> Wait:
    """Return what is behind the wait for a device that is another host's: its target, or the way there."""
    mount = sight.measures.mount
    if found.cause is not Cause.DEVICE or mount is None or not mount.paths:
        return found
    if 0 < MOST * waiting <= some(mount.cut_off_seconds):
        text = f"no path to the disk was usable: {witnesses.trouble(sight)}"
        return Wait(cause=Cause.PATHS_LOST, limit=Limit.NETWORK, facts=(text,), rival=Limit.SERVER, imposed=True)
    busy = witnesses.asked(sight)
    if busy is not None and busy < _IDLE:
        return replace(found, excluded=(f"its target had requests for only {percent(busy)} of the time",), sure=False)
    told = _of_network(sight, waiting, None)
    if told.cause is Cause.LINK_EVEN:
        told = Wait(cause=Cause.SERVER, limit=Limit.SERVER, rival=Limit.NETWORK, sure=False)
    if told.limit is not Limit.SERVER:
        return told
    if told.cause is not Cause.WINDOW and witnesses.answers_late(sight):
        told = replace(told, rival=None, sure=True)
    return replace(told, words=witnesses.target(sight))


def _of_network(sight: Sight, waiting: float, flush: Wait | None) -> Wait:
    shown, tcp = _of_link(sight, waiting, flush), witnesses.transport(sight, waiting)
    if tcp is None:
        return shown
    if tcp.cause is Cause.SERVER:
        return _beyond_the_way(sight, waiting, shown, tcp) if tcp.sure else shown
    if shown.cause in BEATS[tcp.cause]:
        return tcp
    if shown.limit is not Limit.NETWORK:
        return shown
    return replace(shown, facts=(*shown.facts, *tcp.facts), excluded=(*shown.excluded, *tcp.excluded))


def _beyond_the_way(sight: Sight, waiting: float, shown: Wait, tcp: Wait) -> Wait:
    """Return what it is where data was seldom on its way: the server, or what serves a FUSE mount at this end."""
    excluded, mount = (*shown.excluded, *tcp.excluded), sight.measures.mount
    busy = mount.daemon_busy if mount is not None else None
    if busy is not None and busy * sight.span >= _NEAR * waiting and shown.cause not in _EACH_WAITS:
        words = f"waiting for {_daemon(mount)}, which serves the mount and used {busy:.2f} cores"
        return Wait(cause=Cause.DAEMON, limit=Limit.SERIALIZE, words=words, facts=tcp.facts, excluded=excluded,
                    imposed=True)  # fmt: skip
    if shown.limit is Limit.NETWORK or shown.cause is Cause.SERVER:
        shown = Wait(cause=Cause.SERVER, limit=Limit.SERVER, words=_at_server(mount), facts=tcp.facts)
    shown = replace(shown, excluded=excluded, rival=None)
    if busy is None or shown.limit is not Limit.SERVER:
        return shown
    used = f"{_daemon(mount)}, which serves the mount, used"
    if busy >= MOST:  # then it is as likely that it waited for that one
        return replace(shown, facts=(*shown.facts, f"{used} {busy:.2f} cores"), sure=False)
    return replace(shown, excluded=(*excluded, f"{used} only {busy:.2f} cores"), imposed=True)


def _of_link(sight: Sight, waiting: float, flush: Wait | None) -> Wait:
    link = sight.link
    if link is None:
        return flush or Wait(cause=Cause.SERVER, limit=Limit.SERVER, rival=Limit.NETWORK, sure=False)
    active = some(link.active_seconds)
    moved = pace(sight.link_bytes or 0.0, max(waiting, active))  # it moves on beside other work
    speed, shown = link.speed_bytes_per_second, link.shown_bytes_per_second
    peak = max(moved, some(link.peak_bytes_per_second))
    text = f"{link.name} transferred {rate(moved)}"
    full = Wait(cause=Cause.LINK, limit=Limit.NETWORK)
    even = Wait(cause=Cause.LINK_EVEN, limit=Limit.NETWORK, rival=Limit.SERVER, imposed=True)
    if some(link.shaped_overlimits) or some(link.backlog_bytes) > SMALL_BYTES or some(link.shaped_drops) >= SYNCS:
        held = f"{plural(link.shaped_overlimits or 0, 'packet')} delayed by its queueing discipline"
        return replace(full, cause=Cause.LINK_SHAPED, facts=(f"{text}, {held}",), imposed=True)
    # A plateau: it moved what it did at its best most of the time, whatever held its reader up in between
    is_plateau = active >= max(1.0, MOST * waiting) and (sight.link_bytes or 0.0) / active >= _STEADY * peak
    if not sight.writes and link.shaped_overlimits is not None and is_plateau:
        text += f", never more than {rate(peak)}, and this host shapes its traffic"
        return replace(even, facts=(text,), sure=False)
    if speed and peak >= _NEAR * speed and moved >= MOST * speed:
        return replace(full, facts=(f"{text} of {rate(speed)}",))
    held_up = witnesses.congestion(link, moved, waiting, writes=sight.writes)
    if held_up is not None:
        of = f" of {rate(speed)}" if speed else ""
        free = () if not speed else (f"its own link reached only {percent(min(1.0, peak / speed))} of its speed",)
        return replace(even, cause=Cause.CONGESTION, facts=(f"{text}{of}", *filter(None, held_up)), excluded=free,
                       sure=held_up[1] is None)  # fmt: skip
    most = speed or shown
    free = (f"the network carried only {rate(moved)}" + (f" of {rate(most)}" if most else ""),)
    if flush is not None:
        return replace(flush, excluded=free)
    call = sight.checkpoint.pattern.median_operation_bytes
    small = sight.remote and call is not None and call < _TINY_BYTES
    if small and (sight.direct or not sight.writes):  # the client of a mount gathers the others
        words = f"in small operations of {size(call or 0)} each"
        return Wait(cause=Cause.SMALL_OPERATIONS, limit=Limit.SMALL_IO, words=words, excluded=free, rival=Limit.SERVER)
    steadiness = min(1.0, some(link.steadiness))
    if shown and _NEAR * shown <= moved <= shown / _NEAR and steadiness >= (_STEADY if speed else MOST):
        text += f", its highest observed rate ({rate(shown)}), constant for {percent(steadiness)} of the time"
        return replace(even, facts=(text,), imposed=steadiness >= _EVEN)
    has_room = shown is not None and moved < _NEAR * shown
    if steadiness >= _EVEN and active >= MOST * waiting and not has_room:
        return replace(even, facts=(f"{text}, at a constant rate ({percent(steadiness)} of the time)",), sure=False)
    at_server = _at_server(sight.measures.mount)
    return Wait(cause=Cause.SERVER, limit=Limit.SERVER, words=at_server, excluded=free, rival=Limit.NETWORK)


def _at_server(mount: MountMeasure | None) -> str | None:
    if mount is None or mount.waiting_share is None:
        return None
    share = percent(min(1.0, mount.waiting_share))
    return f"waiting for the server of the mount (unanswered requests in {share} of the samples)"


def _daemon(mount: MountMeasure | None) -> str:
    return "the process" if mount is None or mount.daemon is None else mount.daemon
