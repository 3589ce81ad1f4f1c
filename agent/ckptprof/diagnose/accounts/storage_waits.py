"""Storage waits: the cause of a thread's sleep in reads, writes and syncs.

The model. Sleep in I/O calls has one cause: many small syncs, small operations, the device, the link, the path behind
it, the server, or the process that serves a FUSE mount. `resolve` returns it as a `Wait`.

- Local storage: syncs come first (`_flushes`), if more time is spent in them than in reads and writes and each covers
  few bytes. Then small operations, if their number and not their bytes is what the device is slow at. Otherwise the
  device itself, or a limit that is set on it (`throttle`).
- Remote storage: the link gives a first answer. TCP, then the client of the mount or its targets, may replace it,
  because each can distinguish causes that the ones before cannot. `BEATS` lists which cause replaces which. A cause
  that is not replaced stays: requests also wait where a link is full or shaped.

Invariant: exactly one `Wait` is returned, also without any measurement; `sure` is false and a `rival` is named where
the choice is uncertain. The seconds are those of the caller: nothing here adds or removes time.

Example: a save to NFS sleeps 10 s in write(2). The link carried 0.1 of 3 GB/s, so the link's answer is the server. TCP
shows that data was in flight for 9 s and that the receive window was not full: the path (`Cause.PATH` replaces
`Cause.SERVER`). The NFS client shows that 80 % of the time of its requests was spent queued for its only connection:
`Cause.ONE_CONNECTION` replaces `Cause.PATH`, because more connections would be faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ckptprof.diagnose.accounts import network_evidence
from ckptprof.diagnose.causes import Cause, Wait
from ckptprof.diagnose.context import CheckpointContext, busy_share, or_zero, rate_of
from ckptprof.diagnose.tolerances import CLEARLY, LARGELY, MOST, NEARLY_ALL, PART, SMALL_BYTES, TINY_BYTES, TWICE
from ckptprof.measures import DeviceMeasure, MountMeasure
from ckptprof.units import per_second, percent, plural, rate, seconds, size
from ckptprof.verdicts import Limit

SYNC_BYTES = 4 << 20
SYNCS = 16
_PER_OPERATION = frozenset({Cause.FLUSHES, Cause.SMALL_OPERATIONS})  # each waits for a round trip, however short
_UNDECIDED = frozenset({Cause.LINK_EVEN, Cause.CONGESTION, Cause.SERVER})  # other evidence decides between these
_CLIENT_DECIDES = _UNDECIDED | {Cause.DAEMON}

BEATS: Mapping[Cause, frozenset[Cause]] = {
    # TCP
    Cause.WINDOW: _UNDECIDED | _PER_OPERATION | {Cause.LINK, Cause.LINK_SHAPED},
    Cause.PATH: _UNDECIDED,
    Cause.QUEUES: _UNDECIDED | _PER_OPERATION,
    # The client of a mount
    Cause.RETRANSMITTED: _CLIENT_DECIDES,
    Cause.SESSIONS: _CLIENT_DECIDES | {Cause.WINDOW},
    Cause.DELAYED: _CLIENT_DECIDES | {Cause.WINDOW},
    Cause.SMALL_REQUESTS: _CLIENT_DECIDES,
    Cause.COMMITS: _CLIENT_DECIDES | {Cause.WINDOW},
    Cause.ONE_CONNECTION: _CLIENT_DECIDES
    | {Cause.PATH},  # limited by its window and round trip: more connections are faster
    Cause.ANSWERS: frozenset({Cause.SERVER}),
    # Its targets
    Cause.TARGET: _CLIENT_DECIDES | {Cause.WINDOW},
    Cause.SMALL_OPERATIONS: _CLIENT_DECIDES,
    Cause.SLOTS: _CLIENT_DECIDES - {Cause.CONGESTION} | {Cause.WINDOW},
}


def resolve(context: CheckpointContext, *, data: float, sync: float, waiting: float) -> Wait:
    """Return what a thread waited for; `data` and `sync`: seconds asleep in such calls, `waiting`: in all of them."""
    flush = _flushes(context, data, sync)
    if not context.is_remote:
        return flush or _small(context, waiting) or _behind_fabric(context, waiting, _device(context, waiting))
    found = _network_wait(context, waiting, flush)
    client = network_evidence.client_wait(context, waiting) or network_evidence.target_wait(context, waiting)
    if client is not None and found.cause in BEATS[client.cause]:
        free = client.excluded or (found.excluded if client.limit is found.limit else ())
        imposed = client.imposed or (client.cause is Cause.ANSWERS and found.imposed)
        found = replace(client, excluded=free, imposed=imposed)
    is_sent = context.checkpoint.sent is not None and found.limit is Limit.SERVER
    return replace(found, words="waiting for the object store") if is_sent else found


def _flushes(context: CheckpointContext, data: float, sync: float) -> Wait | None:
    if sync < data or not context.is_save:
        return None
    syncs = context.syncs
    counted = "syncs"
    if syncs is None and not context.is_remote:
        syncs, counted = context.device_flushes, "flushes of the disk"
    if syncs is None:
        return None
    bound = throttle(context, data + sync)
    if counted != "syncs" and bound is not None and bound.bytes_per_second is not None and bound.share >= NEARLY_ALL:
        return None  # the bytes are the limit, not the flushes
    each = context.transferred_bytes / max(1.0, syncs)
    if syncs < SYNCS or each >= SYNC_BYTES:
        return None
    return Wait(cause=Cause.FLUSHES, limit=Limit.FLUSH, words=f"in {int(syncs):,} {counted}, one for each {size(each)}")


class Bound(NamedTuple):
    """A throttle of a device that was reached."""

    share: float  # of its rate that was reached, at most 1
    bytes_per_second: float | None
    operations_per_second: float | None
    device: str  # one of those below the files: a file system on a loop device has two
    least: float  # minimum seconds for the transferred bytes


def throttle(context: CheckpointContext, waiting: float) -> Bound | None:
    """Return the throttle of a device that was used most, None if none was half used."""
    best: Bound | None = None
    for device in context.measures.devices:
        active = min(device.seconds or waiting, waiting) if waiting else device.seconds
        transferred = device.written_bytes if context.is_save else device.read_bytes
        operations = device.writes if context.is_save else device.reads
        by_bytes = device.throttled_bytes_per_second
        by_operations = device.throttled_operations_per_second
        reached_bytes = rate_of(transferred, active) / by_bytes if by_bytes else 0.0
        reached_operations = rate_of(operations, active) / by_operations if by_operations else 0.0
        if by_bytes and rate_of(transferred, or_zero(device.seconds)) > CLEARLY * by_bytes:
            continue  # it was raised before
        reached = max(reached_bytes, reached_operations)
        if reached >= MOST and (best is None or reached > best.share):
            is_bytes = reached_bytes >= reached_operations
            known = by_bytes if is_bytes else None, None if is_bytes else by_operations
            best = Bound(min(reached, 1.0), *known, device.device, reached * active)
    return best


def _small(context: CheckpointContext, waiting: float) -> Wait | None:
    call = context.checkpoint.pattern.median_operation_bytes
    if call is None:
        call = context.checkpoint.pattern.mean_operation_bytes
    request = context.request_bytes
    small_calls = context.is_direct and call is not None and call < SMALL_BYTES
    small_requests = request is not None and request < SMALL_BYTES
    if not small_calls and not (small_requests and (call is None or call < SMALL_BYTES or context.is_direct)):
        return None
    if request is not None and request >= SMALL_BYTES:
        return None
    bound = throttle(context, waiting)
    if bound is not None and bound.bytes_per_second is not None:
        return None  # the bytes are limited
    bytes_per_second = context.rate_of_device(context.device) or rate_of(context.transferred_bytes, waiting)
    shown = _shown(context, request)
    if bound is None and shown is not None and bytes_per_second >= LARGELY * shown and (request or 0) >= TINY_BYTES:
        return None
    words = f"in small operations of {size(request if request is not None else call or 0)} each"
    if (operations := context.device_operations_per_second) is not None:
        most = (bound and bound.operations_per_second) or math.inf  # more is an artefact of the clock
        words += f", {per_second(min(operations, most))}"
    if bound is not None and bound.operations_per_second is not None:
        words += f"; the disk is throttled to {per_second(bound.operations_per_second)}"
    free = f"bandwidth was only {rate(bytes_per_second)}" + (
        f", of {rate(shown)} measured on this path" if shown else ""
    )
    cause = Cause.SMALL_OPERATIONS if bound is None else Cause.SMALL_OPERATIONS_CAPPED
    rival = Limit.DEVICE if bound is None and shown is None else None  # the rate of larger ones is unknown
    return Wait(cause=cause, limit=Limit.SMALL_IO, words=words, excluded=(free,), rival=rival,
                imposed=bound is not None)  # fmt: skip


def _shown(context: CheckpointContext, request: float | None) -> float | None:
    """Return the highest rate known for this path, unless only requests as small as these showed it."""
    best = context.device.shown_bytes_per_second if context.device is not None else None
    each = context.device.shown_request_bytes if context.device is not None else None
    if each is not None and request is not None and each < TWICE * request:
        best = None
    return max((value for value in (context.probed, best) if value), default=None)


def _limited_layer(context: CheckpointContext) -> DeviceMeasure | None:
    """Return the layer that requests wait for: the busiest, the lowest of several; where none is busy, a paced one."""
    lowest = context.device
    layers = [one for one in context.measures.devices if context.bytes_of(one) >= MOST * context.transferred_bytes]
    if lowest is None or not layers:
        return lowest
    busiest = max(layers, key=lambda one: or_zero(busy_share(one)))
    most = or_zero(busy_share(busiest))
    if most >= PART:
        return lowest if or_zero(busy_share(lowest)) >= LARGELY * most else busiest
    # Below a throttle all layers are as even: none of those above it is
    return next((one for one in layers if one is not lowest and or_zero(one.steadiness) >= LARGELY), lowest)


def _device(context: CheckpointContext, waiting: float) -> Wait:
    device = _limited_layer(context)
    busy, transferred_rate = context.busy_of(device), context.rate_of_device(device)
    bound = throttle(context, waiting)
    speed = ""
    if transferred_rate is not None:
        speed = f" at {rate(min(transferred_rate, (bound and bound.bytes_per_second) or math.inf))}"
    if bound is not None:
        of_bytes, of_operations = bound.bytes_per_second, bound.operations_per_second
        limit = rate(of_bytes) if of_bytes is not None else per_second(of_operations or 0.0)
        queue = None if device is None else device.mean_queue
        free = "the speed of the disk itself" + ("" if queue is None else f": {queue:.2g} requests in flight")
        words = f"waiting for {bound.device}{speed}, throttled to {limit} by a cgroup"
        return Wait(cause=Cause.DEVICE_CAPPED, limit=Limit.DEVICE, words=words, excluded=(free,), imposed=True)
    words = f"waiting for {device.device if device is not None else 'the disk'}{speed}"
    if busy is not None:
        words += f", which was {percent(busy)} busy"
    elif device is not None:
        words += f" (sampled over {seconds(device.seconds)}: its rate in this time is not known)"
    steadiness = or_zero(device.steadiness) if device is not None else 0.0
    is_paced = busy is not None and busy < PART and steadiness >= LARGELY
    if is_paced:
        words += f", at a constant rate ({percent(min(1.0, steadiness))} of the time): throttled before its queue"
    cause = Cause.DEVICE_THROTTLED if is_paced else Cause.DEVICE
    return Wait(cause=cause, limit=Limit.DEVICE, words=words, imposed=is_paced, sure=device is not None)


def request_seconds(context: CheckpointContext) -> float:
    """Return how long its disks had requests, at most; infinite if not known.

    The sum of all requests, but twice the busy time (underrated until 6.10); the kernel counts flushes in neither.
    """
    known = [
        one.seconds * min(one.mean_queue, TWICE * (math.inf if (busy := busy_share(one)) is None else busy))
        + one.flush_seconds
        for one in context.measures.devices
        if one.mean_queue is not None and one.flush_seconds is not None
    ]
    return sum(known) if known and len(known) == len(context.measures.devices) else math.inf


def _behind_fabric(context: CheckpointContext, waiting: float, found: Wait) -> Wait:
    mount = context.measures.mount
    if found.cause is not Cause.DEVICE or mount is None or not mount.paths:
        return found
    if 0 < MOST * waiting <= or_zero(mount.cut_off_seconds):
        text = f"no path to the disk was usable: {network_evidence.lost_paths(context)}"
        return Wait(cause=Cause.PATHS_LOST, limit=Limit.NETWORK, facts=(text,), rival=Limit.SERVER, imposed=True)
    if (most := request_seconds(context)) < PART * waiting:
        return replace(found, excluded=(f"its target had requests for at most {seconds(most)}",), sure=False)
    network = _network_wait(context, waiting, None)
    if network.cause is Cause.LINK_EVEN:
        network = Wait(cause=Cause.SERVER, limit=Limit.SERVER, rival=Limit.NETWORK, sure=False)
    if network.limit is not Limit.SERVER:
        return network
    if network.cause is not Cause.WINDOW and network_evidence.answers_late(context):
        network = replace(network, rival=None, sure=True)
    return replace(network, words=network_evidence.target_text(context))


def _network_wait(context: CheckpointContext, waiting: float, flush: Wait | None) -> Wait:
    shown, tcp = _link_wait(context, waiting, flush), network_evidence.transport(context, waiting)
    if tcp is None:
        return shown
    if tcp.cause is Cause.SERVER:
        return _beyond_the_way(context, waiting, shown, tcp) if tcp.sure else shown
    if shown.cause in BEATS[tcp.cause]:
        return tcp
    if shown.limit is not Limit.NETWORK:
        return shown
    return replace(shown, facts=(*shown.facts, *tcp.facts), excluded=(*shown.excluded, *tcp.excluded))


def _beyond_the_way(context: CheckpointContext, waiting: float, shown: Wait, tcp: Wait) -> Wait:
    """Return the cause where data was seldom in flight: the server, or the process that serves a FUSE mount."""
    excluded, mount = (*shown.excluded, *tcp.excluded), context.measures.mount
    busy, daemon = (mount.daemon_busy, mount.daemon or "the process") if mount is not None else (None, None)
    if busy is not None and busy * context.span >= LARGELY * waiting and shown.cause not in _PER_OPERATION:
        words = f"waiting for {daemon}, which serves the mount and used {busy:.2f} cores"
        return Wait(cause=Cause.DAEMON, limit=Limit.SERIALIZE, words=words, facts=tcp.facts, excluded=excluded,
                    imposed=True)  # fmt: skip
    if shown.limit is Limit.NETWORK or shown.cause is Cause.SERVER:
        shown = Wait(cause=Cause.SERVER, limit=Limit.SERVER, words=_at_server(mount), facts=tcp.facts)
    shown = replace(shown, excluded=excluded, rival=None)
    if busy is None or shown.limit is not Limit.SERVER:
        return shown
    used = f"{daemon}, which serves the mount, used"
    if busy >= MOST:  # then it may as well have waited for that process
        return replace(shown, facts=(*shown.facts, f"{used} {busy:.2f} cores"), sure=False)
    return replace(shown, excluded=(*excluded, f"{used} only {busy:.2f} cores"), imposed=True)


def _link_wait(context: CheckpointContext, waiting: float, flush: Wait | None) -> Wait:
    link = context.link
    if link is None:
        return flush or Wait(cause=Cause.SERVER, limit=Limit.SERVER, rival=Limit.NETWORK, sure=False)
    active = or_zero(link.active_seconds)
    bytes_per_second = rate_of(context.link_bytes or 0.0, max(waiting, active))  # it continues during other work
    speed, shown = link.speed_bytes_per_second, link.shown_bytes_per_second
    peak = max(bytes_per_second, or_zero(link.peak_bytes_per_second))
    text = f"{link.name} transferred {rate(bytes_per_second)}"
    full = Wait(cause=Cause.LINK, limit=Limit.NETWORK)
    even = Wait(cause=Cause.LINK_EVEN, limit=Limit.NETWORK, rival=Limit.SERVER, imposed=True)
    if (
        or_zero(link.shaped_overlimits)
        or or_zero(link.backlog_bytes) > SMALL_BYTES
        or or_zero(link.shaped_drops) >= SYNCS
    ):
        counts = ((link.shaped_overlimits, "delayed"), (link.shaped_drops, "dropped"))
        acted = [f"{plural(count, 'packet')} {word}" for count, word in counts if count] or ["packets queued"]
        text += f", {' and '.join(acted)} by its queueing discipline"
        return replace(full, cause=Cause.LINK_SHAPED, facts=(text,), imposed=True)
    # A plateau: it was near its peak most of the time, whatever blocked its reader in between
    is_plateau = active >= max(1.0, MOST * waiting) and (context.link_bytes or 0.0) / active >= LARGELY * peak
    if not context.is_save and link.shaped_overlimits is not None and is_plateau:
        text += f", never more than {rate(peak)}, and this host shapes its traffic"
        return replace(even, facts=(text,), sure=False)
    if speed and peak >= LARGELY * speed and bytes_per_second >= MOST * speed:
        return replace(full, facts=(f"{text} of {rate(speed)}",))
    congested = network_evidence.congestion(link, bytes_per_second, waiting, writes=context.is_save)
    if congested is not None:
        of = f" of {rate(speed)}" if speed else ""
        free = () if not speed else (f"its own link reached only {percent(min(1.0, peak / speed))} of its speed",)
        return replace(even, cause=Cause.CONGESTION, facts=(f"{text}{of}", *filter(None, congested)), excluded=free,
                       sure=congested[1] is None)  # fmt: skip
    most = speed or shown
    free = (f"the network carried only {rate(bytes_per_second)}" + (f" of {rate(most)}" if most else ""),)
    if flush is not None:
        return replace(flush, excluded=free)
    call = context.checkpoint.pattern.median_operation_bytes
    small = context.is_remote and call is not None and call < TINY_BYTES
    if small and (context.is_direct or not context.is_save):  # the client of a mount gathers the others
        words = f"in small operations of {size(call or 0)} each"
        return Wait(cause=Cause.SMALL_OPERATIONS, limit=Limit.SMALL_IO, words=words, excluded=free, rival=Limit.SERVER)
    steadiness = min(1.0, or_zero(link.steadiness))
    if shown and LARGELY * shown <= bytes_per_second <= shown / LARGELY and steadiness >= (LARGELY if speed else MOST):
        text += f", its highest observed rate ({rate(shown)}), constant for {percent(steadiness)} of the time"
        return replace(even, facts=(text,), imposed=steadiness >= NEARLY_ALL)
    has_capacity = shown is not None and bytes_per_second < LARGELY * shown
    if steadiness >= NEARLY_ALL and active >= MOST * waiting and not has_capacity:
        return replace(even, facts=(f"{text}, at a constant rate ({percent(steadiness)} of the time)",), sure=False)
    at_server = _at_server(context.measures.mount)
    return Wait(cause=Cause.SERVER, limit=Limit.SERVER, words=at_server, excluded=free, rival=Limit.NETWORK)


def _at_server(mount: MountMeasure | None) -> str | None:
    if mount is None or mount.waiting_share is None:
        return None
    share = percent(min(1.0, mount.waiting_share))
    return f"waiting for the server of the mount (unanswered requests in {share} of the samples)"
