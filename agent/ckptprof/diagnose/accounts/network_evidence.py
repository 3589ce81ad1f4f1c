"""Evidence of what blocked a thread that waited for storage behind a network: TCP, fabric, paths, client, targets.

- TCP counts how long data of a connection was in flight (sent and not acknowledged), and for how long of that the
  receive window was full (tcp_info: busy_time, rwnd_limited). For reads only the sender knows it.
- The fabric: an RDMA port sends more slowly for each congestion notification that it receives (CNP, DCQCN), an Ethernet
  port stops while it is paused (PFC), and an InfiniBand port waits for credit. Ports are shared with collectives:
  traffic that a port already had before the checkpoint is not the checkpoint's.
- The client of a mount: requests wait for a slot or for earlier ones (queued), then for the reply (at the server, in
  flight). Several at a time: the shares of their seconds show what they waited for, their sum over the wait how many.
- Targets: the client of a parallel file system counts the requests to each target (an OST of Lustre) and their time.
- Paths of NVMe over fabrics: the kernel counts the time of each request, in flight and at its target.

`storage.BEATS` lists which of them takes precedence.
"""

from __future__ import annotations

import math
from statistics import median
from typing import NamedTuple

from ckptprof.diagnose.causes import Cause, Wait
from ckptprof.diagnose.context import CheckpointContext, or_zero, rate_of
from ckptprof.diagnose.tolerances import (
    FEW,
    HARDLY_ANY,
    LARGELY,
    MOMENT_SECONDS,
    MOST,
    PART,
    SLIGHT,
    SMALL_BYTES,
    TINY_BYTES,
    TWICE,
)
from ckptprof.measures import ConnectionMeasure, LinkMeasure, MountMeasure, PathMeasure, ServerMeasure
from ckptprof.model import Level
from ckptprof.units import MS, latency, percent, plural, rate, seconds, size
from ckptprof.verdicts import Limit

# The fabric
_A_SECOND = 100.0  # notifications or pauses per second: a healthy fabric has fewer, which keep its queues short
_LOST_A_SECOND = 10.0  # packets per second; each costs a round trip, and often many retransmissions
# Clients
_RETRANSMITTED_SHARE = 0.01  # of the requests: each retransmission waited for its timeout, by default a minute
_TIMEO_A_SECOND = 10.0  # nfs(5): `timeo` is in tenths of a second
_DELAY_SECONDS = 0.1  # a client waits at least this long before it retries: NFS4_POLL_RETRY_MIN
LONG = 5.0  # times a round trip: then the server itself is slow
# Targets
_SLOWER = 3.0  # times the median of the others
_TIMEOUT_SECONDS = 5.0  # minimum timeout of a Lustre request: at_est2timeout


def transport(context: CheckpointContext, waiting: float) -> Wait | None:
    """Return what TCP shows for `waiting` seconds; None: not observed, or not decisive.

    The receiver by its window, the path to it, or neither (`Cause.SERVER`) where data was seldom in flight.
    """
    theirs = of_storage(context)
    most = max((one.sent_bytes for one in theirs), default=0)
    theirs = [one for one in theirs if one.sent_bytes >= HARDLY_ANY * most]  # not another port, nor a stuck connection
    busy = sum(or_zero(one.busy_seconds) for one in theirs)
    if not context.is_save or not theirs or any(one.busy_seconds is None for one in theirs) or waiting <= 0:
        return None
    if sum(one.sent_bytes for one in theirs) < MOST * context.transferred_bytes:
        return None
    sure = all(one.relation != "bytes" for one in theirs)
    main = max(theirs, key=lambda one: one.sent_bytes)
    name = f"[{main.remote}]:{main.port}" if ":" in main.remote else f"{main.remote}:{main.port}"
    on_its_way = min(1.0, busy / waiting)
    if on_its_way < MOST:
        idle = f"data was in flight to {name} for only {seconds(busy)} of it"
        free = f"no data was in flight for {percent(1 - on_its_way)} of the wait"
        found = Wait(cause=Cause.SERVER, limit=Limit.SERVER, facts=(idle,), excluded=(free,), sure=sure)
        return found if waiting >= MOMENT_SECONDS else None
    if busy < MOMENT_SECONDS:
        return None
    window_seconds = sum(or_zero(one.rwnd_share) * or_zero(one.busy_seconds) for one in theirs)
    if window_seconds >= PART * busy:
        window = f"the receive window of {name} was full for {percent(window_seconds / busy)} of the {seconds(busy)}"
        return Wait(cause=Cause.WINDOW, limit=Limit.SERVER, facts=(f"{window} in which data was in flight",),
                    rival=None if sure else Limit.NETWORK, imposed=sure, sure=sure)  # fmt: skip
    stays_here = all(one.links == ("lo",) for one in theirs)  # then there is no network path
    if window_seconds >= SLIGHT * busy or on_its_way < LARGELY or stays_here:
        return None
    queues = _queues(main, theirs)
    way = f"data was in flight to {name} for {percent(on_its_way)} of it{queues}"
    free = f"the server's receive window was full for only {percent(window_seconds / busy)} of that time"
    return Wait(cause=Cause.QUEUES if queues else Cause.PATH, limit=Limit.NETWORK, facts=(way,), excluded=(free,),
                rival=None if sure else Limit.SERVER, imposed=sure, sure=sure)  # fmt: skip


def of_storage(context: CheckpointContext) -> list[ConnectionMeasure]:
    """Return the connections to the storage of the mount; if none is certain, those with matching bytes."""
    return context.connections or [one for one in context.measures.connections if one.relation == "bytes"]


def _queues(main: ConnectionMeasure, theirs: list[ConnectionMeasure]) -> str:
    usual, least, text = main.rtt_seconds, main.min_rtt_seconds, ""
    if usual and least and usual >= TWICE * least:
        text = f", with a round trip of {usual * MS:.1f} ms, {least * MS:.2f} ms without queues"
    lost = sum(or_zero(one.retransmitted_bytes) for one in theirs)
    return f"{text}, and {size(lost)} retransmitted" if lost else text


def congestion(
    link: LinkMeasure, bytes_per_second: float, waiting: float, *, writes: bool
) -> tuple[str, str | None] | None:
    """Return (what congested the fabric, how the port is shared or None); None: it was not congested.

    `bytes_per_second`: of the link; `waiting`: seconds that a thread waited.
    """
    counts = []
    for count, least, noun in (
        (link.congestion_notifications, _A_SECOND, "congestion notification"),
        (link.pauses_received if writes else None, _A_SECOND, "received pause frame"),
        (link.out_of_sequence, _LOST_A_SECOND, "sequence error"),
        (link.ack_timeouts, _LOST_A_SECOND, "acknowledgement timeout"),
    ):
        if or_zero(count) >= least * max(waiting, 1.0):
            counts.append(plural(count or 0, noun))
    if writes and or_zero(link.wait_share) >= PART:
        counts.append(f"no credit to send for {percent(or_zero(link.wait_share))} of the time")
    if not counts:
        return None
    if link.marked_packets and not writes:
        counts.append(f"{plural(link.marked_packets, 'packet')} marked in transit")
    before = or_zero(link.before_bytes_per_second)
    shared = f"the port is shared: it already transferred {rate(before)} before this, for example for collectives"
    return f"{link.name} had {', '.join(counts)}", shared if before >= SLIGHT * bytes_per_second else None


class _Requests(NamedTuple):
    """Requests of one kind, with the sums of their times in seconds."""

    kind: str
    total: int
    total_seconds: float
    queued_seconds: float
    server_seconds: float


def _requests(mount: MountMeasure, *kinds: str) -> _Requests:
    found = [one for one in mount.operations if one.kind in kinds]
    return _Requests(
        next((one.kind for one in found), ""),
        sum(one.count for one in found),
        sum(one.count * or_zero(one.seconds) for one in found),
        sum(one.count * or_zero(one.queue_seconds) for one in found),
        sum(one.count * or_zero(one.server_seconds) for one in found),
    )


def client_wait(context: CheckpointContext, waiting: float) -> Wait | None:
    """Return what the client of the mount shows for `waiting` seconds; None: nothing, or not decisive."""
    mount = context.measures.mount
    if mount is None or waiting <= 0:
        return None
    transferred = mount.wire_written_bytes if context.is_save else mount.wire_read_bytes
    data = _requests(mount, "WRITE") if context.is_save else _requests(mount, "READ", "READ_PLUS")
    if transferred is None or transferred < MOST * context.transferred_bytes or data.total < FEW:
        return None
    return (
        _lost_sessions(mount, data)
        or _retransmitted(mount, waiting)
        or _delayed(mount, waiting)
        or _small(context, mount, data, transferred / data.total, waiting)
        or _committed(context, mount, data, waiting)
        or _queued(context, mount, data, waiting)
        or _answered(context, data)
    )


def _lost_sessions(mount: MountMeasure, data: _Requests) -> Wait | None:
    failed = sum(or_zero(one.errors) for one in mount.operations if one.kind == data.kind)
    sessions = _requests(mount, "CREATE_SESSION").total
    if sessions < FEW or failed < PART * data.total:
        return None
    text = f"{failed:,.0f} of {plural(data.total, data.kind)} failed, and the client asked for {sessions:,.0f} sessions"
    return Wait(cause=Cause.SESSIONS, limit=Limit.SERVER, facts=(text,), imposed=True)


def _retransmitted(mount: MountMeasure, waiting: float) -> Wait | None:
    count = sum(one.count for one in mount.operations)
    again = sum(or_zero(one.retransmissions) for one in mount.operations)
    late = sum(or_zero(one.timeouts) for one in mount.operations)
    timeout_seconds = late * (mount.settings or {}).get("timeo", 0) / _TIMEO_A_SECOND
    if again < max(FEW, _RETRANSMITTED_SHARE * count) and timeout_seconds < max(1.0, SLIGHT * waiting):
        return None
    timed_out = f", {int(late):,} timed out" if late else ""
    text = f"{int(again):,} of {plural(count, 'request')} retransmitted{timed_out}"
    return Wait(cause=Cause.RETRANSMITTED, limit=Limit.NETWORK, facts=(text,), rival=Limit.SERVER, sure=False)


def _delayed(mount: MountMeasure, waiting: float) -> Wait | None:
    delays = mount.delays or 0
    if delays * _DELAY_SECONDS < SLIGHT * waiting or not delays:
        return None
    text = f"it replied {plural(delays, 'time')} that the client should retry later"
    free = "not the network: the server replied"
    return Wait(cause=Cause.DELAYED, limit=Limit.SERVER, facts=(text,), excluded=(free,), imposed=True)


def _small(
    context: CheckpointContext, mount: MountMeasure, data: _Requests, each: float, waiting: float
) -> Wait | None:
    max_bytes = (mount.settings or {}).get("wsize" if context.is_save else "rsize")
    if max_bytes is None or each >= min(SMALL_BYTES, PART * max_bytes) or data.total_seconds < MOST * waiting:
        return None
    text = f"{plural(data.total, data.kind)} of {size(each)} each, where {size(max_bytes)} would fit"
    return Wait(cause=Cause.SMALL_REQUESTS, limit=Limit.SMALL_IO, facts=(text,))


def _committed(context: CheckpointContext, mount: MountMeasure, data: _Requests, waiting: float) -> Wait | None:
    commits, writers = _requests(mount, "COMMIT"), max(1, len(context.checkpoint.writers))
    single = _requests(mount, *{one.kind for one in mount.operations} - {"WRITE", "READ", "READ_PLUS"})  # in turn
    commit_seconds, count = commits.total_seconds, commits.total
    is_most = commit_seconds >= MOST * (commit_seconds + data.total_seconds)
    if not (context.is_save and commit_seconds and (is_most or single.server_seconds >= MOST * waiting * writers)):
        return None
    each = latency(commit_seconds / count) + " each" * (count > 1)
    rest = single.server_seconds - commits.server_seconds
    beside = f", requests such as OPEN and RENAME {latency(rest)}" if rest >= SLIGHT * waiting else ""
    text = f"{plural(count, 'COMMIT')} took {each}{beside}: the server's stable storage"
    free = f"not the network: WRITEs took only {latency(data.total_seconds / data.total)} each"
    return Wait(cause=Cause.COMMITS, limit=Limit.SERVER, facts=(text,), excluded=(free,), imposed=True)


def _queued(context: CheckpointContext, mount: MountMeasure, data: _Requests, waiting: float) -> Wait | None:
    slots = mount.slots
    if (
        not context.is_save
        or mount.connections != 1
        or not slots
        or (context.link is not None and context.link.kind == "loopback")  # its server is this host
        or not data.total_seconds
        or data.queued_seconds < MOST * data.total_seconds
    ):
        return None
    sent = data.server_seconds / waiting
    if sent >= MOST * slots:
        return None
    behind = (
        f" ({or_zero(mount.backlog_mean):,.0f} more waiting for a slot)" if or_zero(mount.backlog_mean) >= 1 else ""
    )
    text = (
        f"its {data.kind}s spent {percent(data.queued_seconds / data.total_seconds)} of their time "
        "queued on this host, for the only "
        f"connection of the mount: {sent:.1f} of {slots:,.0f} slots in use at the server{behind}"
    )
    free = f"the server took only {latency(data.server_seconds / data.total)} for each"
    limit = Limit.SINGLE_WRITER if context.ranks > 1 else Limit.NETWORK
    return Wait(cause=Cause.ONE_CONNECTION, limit=limit, facts=(text,), excluded=(free,))


def _answered(context: CheckpointContext, data: _Requests) -> Wait | None:
    round_ = max((value for one in of_storage(context) if (value := one.min_rtt_seconds)), default=math.inf)
    answer = data.server_seconds / data.total
    if answer < LONG * round_:
        return None
    text = f"each {data.kind} took {latency(answer)} at the server, with a round trip of {latency(round_)}"
    return Wait(cause=Cause.ANSWERS, limit=Limit.SERVER, facts=(text,))


def targets_of(context: CheckpointContext) -> list[ServerMeasure]:
    """Return the targets that transferred data, by bytes in descending order."""
    targets = context.measures.mount.per_server if context.measures.mount is not None else ()
    found = [one for one in targets if transferred_bytes(one, writes=context.is_save)]
    return sorted(found, key=lambda one: -transferred_bytes(one, writes=context.is_save))


def transferred_bytes(one: ServerMeasure, *, writes: bool) -> float:
    """Return the bytes that a target received or sent."""
    return or_zero(one.written_bytes if writes else one.read_bytes)


def target_name(one: ServerMeasure) -> str:
    """Return the name of a target with its server."""
    return f"{one.name} on {one.address}" if one.address is not None else one.name


def slowest_target(context: CheckpointContext, waiting: float) -> ServerMeasure | None:
    """Return the target that a thread waited for, far slower than the others or unreachable; None if there is none.

    Its requests cover at least half of the waiting time: a slow target with few requests blocks nothing.
    """
    lost = _unreachable_target(context, waiting)
    if lost is not None:
        return lost
    slow = max(_timed(context), key=lambda one: or_zero(one.seconds), default=None)
    others = _comparable_targets(context, slow) if slow is not None else []
    if slow is None or not others:
        return None
    usual = median(or_zero(one.seconds) for one in others)
    busy_seconds = or_zero(slow.seconds) * or_zero(slow.operations)
    return slow if or_zero(slow.seconds) >= _SLOWER * usual and busy_seconds >= MOST * waiting else None


def _timed(context: CheckpointContext) -> list[ServerMeasure]:
    return [one for one in targets_of(context) if one.seconds is not None and or_zero(one.operations) >= FEW]


def _comparable_targets(context: CheckpointContext, slow: ServerMeasure) -> list[ServerMeasure]:
    """Return comparable targets: small requests, as for names and markers, are answered faster."""

    def each(one: ServerMeasure) -> float:
        return transferred_bytes(one, writes=context.is_save) / or_zero(one.operations)

    return [one for one in _timed(context) if one is not slow and each(one) >= MOST * each(slow)]


def _unreachable_target(context: CheckpointContext, waiting: float) -> ServerMeasure | None:
    """Return the target that did not reply: one with data, or any if data is missing.

    In a checkpoint shorter than the timeout, a request that timed out was sent before it. Requests that timed out must
    cover at least half of the waiting time, at the minimum timeout each.
    """
    targets, mount = targets_of(context), context.measures.mount
    if (
        mount is not None
        and sum(transferred_bytes(one, writes=context.is_save) for one in targets) < MOST * context.transferred_bytes
    ):
        targets = [one for one in mount.per_server if one.written_bytes is not None]
    least = MOST * waiting / _TIMEOUT_SECONDS if context.span >= _TIMEOUT_SECONDS else math.inf
    lost = [one for one in targets if or_zero(one.timeouts) >= max(1, least) or not one.is_reached]
    return max(lost, key=lambda one: or_zero(one.timeouts), default=None)


def target_wait(context: CheckpointContext, waiting: float) -> Wait | None:
    """Explain `waiting` seconds by the storage targets: slow or lost, small requests, few slots; None: none of them."""
    mount = context.measures.mount
    if mount is None or waiting <= 0:
        return None
    slow = slowest_target(context, waiting)
    if slow is not None:
        lost = slow is _unreachable_target(context, waiting)
        return Wait(cause=Cause.TARGET, limit=Limit.SERVER, facts=(_lost(slow) if lost else _slower(context, slow),),
                    rival=Limit.NETWORK if lost else None, imposed=True, sure=not lost)  # fmt: skip
    timed = [one for one in targets_of(context) if one.seconds is not None and one.operations]
    requests = sum(or_zero(one.operations) for one in timed)
    in_use, slots = mount.in_use_mean, mount.slots
    if requests < FEW or in_use is None or not slots or in_use < LARGELY * slots:
        return None
    each = sum(transferred_bytes(one, writes=context.is_save) for one in timed) / requests
    if each < TINY_BYTES:
        text = f"{plural(int(requests), 'request')} of {size(each)} each"
        return Wait(cause=Cause.SMALL_OPERATIONS, limit=Limit.SMALL_IO, facts=(text,))
    name = target_name(timed[0]) if len(timed) == 1 else f"all {len(timed)} targets"
    milliseconds = sum(or_zero(one.operations) * or_zero(one.seconds) for one in timed) / requests * MS
    text = (
        f"{name} took {milliseconds:.1f} ms for each request, with {in_use:.1f} of at most "
        f"{slots:.0f} in flight to each"
    )
    speed = context.link.speed_bytes_per_second if context.link is not None else None
    went = rate_of(or_zero(context.link_bytes), waiting)
    if not speed or went >= MOST * speed:
        return Wait(cause=Cause.ANSWERS, limit=Limit.SERVER, facts=(text,))
    free = f"the network carried only {rate(went)} of {rate(speed)}"
    return Wait(cause=Cause.SLOTS, limit=Limit.SERVER, facts=(text,), excluded=(free,), rival=Limit.NETWORK)


def _lost(one: ServerMeasure) -> str:
    late = f"{plural(one.timeouts or 0, 'request')} to {target_name(one)} timed out"
    if one.is_reached:
        return late
    return f"{late}, and it is in state {one.state}" if one.timeouts else f"{target_name(one)} is in state {one.state}"


def _slower(context: CheckpointContext, slow: ServerMeasure) -> str:
    others = _comparable_targets(context, slow)
    return (
        f"{target_name(slow)} took {or_zero(slow.seconds) * MS:.1f} ms for each of "
        f"{plural(slow.operations or 0, 'request')}, the other {plural(len(others), 'target')} "
        f"{median(or_zero(one.seconds) for one in others) * MS:.1f} ms"
    )


def detours(context: CheckpointContext) -> list[PathMeasure]:
    """Return the paths that carried data although their target reports them as not optimized."""
    devices = {one.device: one.written_bytes if context.is_save else one.read_bytes for one in context.measures.devices}
    whole = sum(devices.get(one.device, 0) for one in context.paths)
    others = [one for one in context.paths if one.ana_state not in (None, "optimized") and devices.get(one.device)]
    return [one for one in others if devices[one.device] >= SLIGHT * whole]


def lost_paths(context: CheckpointContext) -> str | None:
    """Describe the paths that were unusable for a tenth of the time or more; None: all were usable."""
    found = [one for one in context.paths if or_zero(one.lost_seconds) > SLIGHT * context.span]
    texts = ", ".join(
        f"{one.device} to {path_address(one)} was {one.state} for {seconds(one.lost_seconds)}" for one in found
    )
    return f"{texts} (of {plural(len(context.paths), 'path')})" if found else None


def path_address(one: PathMeasure) -> str:
    """Return the address that a path leads to."""
    if one.target is None:
        return f"NVMe over {one.transport}"
    return one.target if one.port is None else f"{f'[{one.target}]' if ':' in one.target else one.target}:{one.port}"


def target_text(context: CheckpointContext) -> str:
    """Describe the wait for the NVMe targets, with the time of a request and of a round trip if known."""
    places = list(dict.fromkeys(map(path_address, context.paths)))
    transports = "/".join(sorted({one.transport for one in context.paths}))
    name = f"the NVMe target {places[0]}" if len(places) == 1 else f"its {len(places)} NVMe targets"
    wait, round_ = _wait_and_round(context)
    way = "" if round_ is None else f", a round trip {latency(round_)}"
    latency_text = "" if wait is None else f" (a request took {latency(wait)}{way})"
    return f"waiting for {name} over {transports}{latency_text}"


def answers_late(context: CheckpointContext) -> bool:
    """Return True if writes take so much longer than a round trip that the target itself is slow.

    The round trip includes queues on the path to the target, not those on the path back.
    """
    wait, round_ = _wait_and_round(context)
    return context.is_save and wait is not None and round_ is not None and wait >= LONG * round_


def _wait_and_round(context: CheckpointContext) -> tuple[float | None, float | None]:
    """Return (seconds of a request in flight and at the target, seconds of a round trip including queues)."""
    wait = None
    if context.device is not None:
        wait = context.device.write_wait_seconds if context.is_save else context.device.read_wait_seconds
    return wait, max((value for one in of_storage(context) if (value := one.rtt_seconds)), default=None)


class Hybrid(NamedTuple):
    """The effect of hybrid I/O (Lustre 2.16) on a save: large buffered writes are switched to direct I/O."""

    on: bool
    switched: float  # share of the bytes
    threshold_bytes: float | None  # smaller pieces are not switched
    piece_bytes: float | None  # of the save, the median
    piece_is_exact: bool  # from traced calls, not a mean


def hybrid(context: CheckpointContext) -> Hybrid | None:
    """Return the effect of hybrid I/O on a save; None: not supported by this client, or not observed.

    The client counts the calls that it switched, and since 2.17 their bytes.
    """
    mount = context.measures.mount
    settings = (mount.settings or {}) if mount is not None else {}
    if mount is None or "hybrid_io" not in settings or not context.is_save:
        return None
    counters, requested = mount.counters or {}, or_zero(mount.written_bytes)
    calls = counters.get("writes", 0)
    share = counters.get("hybrid_writesize_switch", 0) / calls if calls else 0.0
    if "hybrid_write_bytes" in counters and requested:
        share = counters["hybrid_write_bytes"] / requested
    piece = context.checkpoint.pattern.median_operation_bytes
    exact = piece is not None and context.checkpoint.level is Level.TRACE
    if piece is None:
        piece = requested / calls if requested and calls else context.checkpoint.pattern.mean_operation_bytes
    threshold = settings.get("hybrid_io_write_threshold_bytes")
    return Hybrid(bool(settings["hybrid_io"]), min(1.0, share), threshold, piece, exact)


def was_in_pcc(context: CheckpointContext) -> bool:
    """Return True if most of a restore came from Lustre's persistent client cache, on a disk of this host."""
    mount = context.measures.mount
    hit = ((mount.counters or {}) if mount is not None else {}).get("pcc_hit_bytes", 0)
    return not context.is_save and 0 < MOST * context.checkpoint.bytes <= hit


def could_bypass_cache(context: CheckpointContext) -> bool:
    """Return True if a save used the page cache although its client could bypass it and servers were idle."""
    known, mount = hybrid(context), context.measures.mount
    if known is None or known.switched >= SLIGHT or mount is None:
        return False
    return mount.in_use_mean is not None and bool(mount.slots) and mount.in_use_mean < MOST * (mount.slots or 0)
