"""What shows who held up a thread that waited for storage behind a network: TCP, fabric, paths, client, targets.

- TCP counts for how long data of a connection was on its way and not acknowledged, and for how long of that the window
  of the receiver let no more out (tcp_info: busy_time, rwnd_limited). Of reads only the sender knows it.
- The fabric: an RDMA port sends more slowly for each congestion notification that it is sent (CNP, DCQCN), an Ethernet
  port not at all while it is paused (PFC), and an InfiniBand port waits for credit. Ports are shared with collectives:
  what a port moved before the checkpoint, too, is not the checkpoint's.
- The client of a mount: requests wait for a slot or for those before them (queued), then for the answer (at the server,
  and on the way to it). Several are on their way at a time, so that their seconds do not add up to the time that went
  by: shares of them show what they waited for, and over the time that a thread waited how many were there at a time.
- Targets: the client of a parallel file system counts the requests to each, as to each OST of Lustre, and their time.
- Paths of NVMe behind a fabric: the kernel counts how long each request took, on its way and at its target.

Which of them goes before which is in `storage.BEATS`.
"""

from __future__ import annotations

import math
from statistics import median
from typing import NamedTuple

from ckptprof.diagnose.causes import Cause, Wait
from ckptprof.diagnose.sight import MOST, MS, SLIGHT, Sight, pace, some
from ckptprof.measures import ConnectionMeasure, LinkMeasure, MountMeasure, PathMeasure, ServerMeasure
from ckptprof.model import Level
from ckptprof.units import latency, percent, plural, rate, seconds, size
from ckptprof.verdicts import Limit

_FEW = 8  # requests: no mean is told of fewer, and no share that was sent again
# TCP
_LEAST_SECONDS = 0.5  # data on its way: the window of a fast connection is full for milliseconds, which tells nothing
_HELD = 0.3  # of that time, by the window of the receiver
_ON_ITS_WAY = 0.7  # of the waiting
_SENDS = 0.05  # of what the one that sent most did: with eight connections of one mount each counts
_QUEUED = 2.0  # times the shortest round
# The fabric
_A_SECOND = 100.0  # of notifications or pauses: a few are how a healthy fabric keeps its queues short
_LOST_A_SECOND = 10.0  # each costs a round, and often much that has to be sent again
_WAITED = 0.3  # of the ticks of a port
# Clients
_AGAIN = 0.01  # of the requests: each that is sent again waited for its timeout, a minute as it is set
_TIMEO_A_SECOND = 10.0  # nfs(5): `timeo` is in tenths of a second
_DELAY_SECONDS = 0.1  # a client waits at least so long before it asks again: NFS4_POLL_RETRY_MIN
_SMALL_BYTES = 64 << 10  # of a request
_OF_SIZE = 0.25  # of the size that the mount has room for
LONG = 5.0  # times a round of its connection: the server itself took it
# Targets
_SLOWER = 3.0  # times the median of the others
_ALIKE = 0.5  # of the size of its requests: those of the others
_FULL = 0.7  # of the requests that may be on their way at a time
_TINY_BYTES = 16 << 10  # of a request: one to four pages
_TIMEOUT_SECONDS = 5.0  # the least that Lustre gives a request: at_est2timeout


def transport(sight: Sight, waiting: float) -> Wait | None:
    """Return what TCP shows of `waiting` seconds; None: nothing was seen, or it does not decide.

    The receiver by its window, the path to it, or (`Cause.SERVER`) neither of the two: data was seldom on its way.
    """
    theirs = of_storage(sight)
    most = max((one.sent_bytes for one in theirs), default=0)
    theirs = [one for one in theirs if one.sent_bytes >= _SENDS * most]  # not another port, nor one that is stuck
    busy = sum(some(one.busy_seconds) for one in theirs)
    if not sight.writes or not theirs or any(one.busy_seconds is None for one in theirs) or waiting <= 0:
        return None
    if sum(one.sent_bytes for one in theirs) < MOST * sight.moved:
        return None
    sure = all(one.relation != "bytes" for one in theirs)
    main = max(theirs, key=lambda one: one.sent_bytes)
    name = f"[{main.remote}]:{main.port}" if ":" in main.remote else f"{main.remote}:{main.port}"
    on_its_way = min(1.0, busy / waiting)
    if on_its_way < MOST:
        idle = f"data was in flight to {name} for only {seconds(busy)} of it"
        free = f"no data was in flight for {percent(1 - on_its_way)} of the wait"
        found = Wait(cause=Cause.SERVER, limit=Limit.SERVER, facts=(idle,), excluded=(free,), sure=sure)
        return found if waiting >= _LEAST_SECONDS else None
    if busy < _LEAST_SECONDS:
        return None
    held = sum(some(one.rwnd_share) * some(one.busy_seconds) for one in theirs)
    if held >= _HELD * busy:
        window = f"the receive window of {name} was full for {percent(held / busy)} of the {seconds(busy)}"
        return Wait(cause=Cause.WINDOW, limit=Limit.SERVER, facts=(f"{window} in which data was in flight",),
                    rival=None if sure else Limit.NETWORK, imposed=sure, sure=sure)  # fmt: skip
    stays_here = all(one.links == ("lo",) for one in theirs)  # then there is no path to be slow
    if held >= SLIGHT * busy or on_its_way < _ON_ITS_WAY or stays_here:
        return None
    queues = _queues(main, theirs)
    way = f"data was in flight to {name} for {percent(on_its_way)} of it{queues}"
    free = f"the server's receive window was full for only {percent(held / busy)} of that time"
    return Wait(cause=Cause.QUEUES if queues else Cause.PATH, limit=Limit.NETWORK, facts=(way,), excluded=(free,),
                rival=None if sure else Limit.SERVER, imposed=sure, sure=sure)  # fmt: skip


def of_storage(sight: Sight) -> list[ConnectionMeasure]:
    """Return the connections with the storage behind the mount, those that are known to be it before those that may."""
    return sight.connections or [one for one in sight.measures.connections if one.relation == "bytes"]


def _queues(main: ConnectionMeasure, theirs: list[ConnectionMeasure]) -> str:
    """Return how long a round took where queues made it longer, and what was lost; "" where neither was seen."""
    usual, least, text = main.rtt_seconds, main.min_rtt_seconds, ""
    if usual and least and usual >= _QUEUED * least:
        text = f", with a round trip of {usual * MS:.1f} ms, {least * MS:.2f} ms without queues"
    lost = sum(some(one.retransmitted_bytes) for one in theirs)
    return f"{text}, and {size(lost)} retransmitted" if lost else text


def congestion(link: LinkMeasure, moved: float, waiting: float, *, writes: bool) -> tuple[str, str | None] | None:
    """Return what the fabric held up while a thread waited so many seconds, at `moved` bytes a second; None: not it.

    And with what else the port was shared, if it was.
    """
    told = []
    for count, least, noun in (
        (link.congestion_notifications, _A_SECOND, "congestion notification"),
        (link.pauses_received if writes else None, _A_SECOND, "received pause frame"),
        (link.out_of_sequence, _LOST_A_SECOND, "sequence error"),
        (link.ack_timeouts, _LOST_A_SECOND, "acknowledgement timeout"),
    ):
        if some(count) >= least * max(waiting, 1.0):
            told.append(plural(count or 0, noun))
    if writes and some(link.wait_share) >= _WAITED:
        told.append(f"no credit to send for {percent(some(link.wait_share))} of the time")
    if not told:
        return None
    if link.marked_packets and not writes:
        told.append(f"{plural(link.marked_packets, 'packet')} marked in transit")
    before = some(link.before_bytes_per_second)
    shared = f"the port is shared: it already transferred {rate(before)} before this, for example for collectives"
    return f"{link.name} had {', '.join(told)}", shared if before >= SLIGHT * moved else None


class _Requests(NamedTuple):
    """Those of one purpose, and the seconds of all of them together."""

    kind: str
    total: int
    took: float
    queued: float
    answered: float

    @property
    def answer(self) -> float:
        return self.answered / self.total


def _requests(mount: MountMeasure, *kinds: str) -> _Requests:
    found = [one for one in mount.operations if one.kind in kinds]
    return _Requests(
        next((one.kind for one in found), ""),
        sum(one.count for one in found),
        sum(one.count * some(one.seconds) for one in found),
        sum(one.count * some(one.queue_seconds) for one in found),
        sum(one.count * some(one.server_seconds) for one in found),
    )


def told_by_client(sight: Sight, waiting: float) -> Wait | None:
    """Return what held up who waited for so many seconds; None: the client shows nothing, or nothing of its own."""
    mount = sight.measures.mount
    if mount is None or waiting <= 0:
        return None
    moved = mount.wire_written_bytes if sight.writes else mount.wire_read_bytes
    data = _requests(mount, "WRITE") if sight.writes else _requests(mount, "READ", "READ_PLUS")
    if moved is None or moved < MOST * sight.moved or data.total < _FEW:
        return None
    return (
        _again(mount, waiting)
        or _delayed(mount, waiting)
        or _small(sight, mount, data, moved / data.total, waiting)
        or _committed(sight, mount, data, waiting)
        or _queued(sight, mount, data, waiting)
        or _answered(sight, data)
    )


def _again(mount: MountMeasure, waiting: float) -> Wait | None:
    count = sum(one.count for one in mount.operations)
    again = sum(some(one.retransmissions) for one in mount.operations)
    late = sum(some(one.timeouts) for one in mount.operations)
    held = late * (mount.settings or {}).get("timeo", 0) / _TIMEO_A_SECOND
    if again < max(_FEW, _AGAIN * count) and held < max(1.0, SLIGHT * waiting):
        return None
    timed_out = f", {int(late):,} timed out" if late else ""
    text = f"{int(again):,} of {plural(count, 'request')} retransmitted{timed_out}"
    return Wait(cause=Cause.RESENT, limit=Limit.NETWORK, facts=(text,), rival=Limit.SERVER, sure=False)


def _delayed(mount: MountMeasure, waiting: float) -> Wait | None:
    delays = mount.delays or 0
    if delays * _DELAY_SECONDS < SLIGHT * waiting or not delays:
        return None
    text = f"it replied {plural(delays, 'time')} that the client should retry later"
    free = "not the network: the server replied"
    return Wait(cause=Cause.DELAYED, limit=Limit.SERVER, facts=(text,), excluded=(free,), imposed=True)


def _small(sight: Sight, mount: MountMeasure, data: _Requests, each: float, waiting: float) -> Wait | None:
    room = (mount.settings or {}).get("wsize" if sight.writes else "rsize")
    if room is None or each >= min(_SMALL_BYTES, _OF_SIZE * room) or data.took < MOST * waiting:
        return None
    text = f"{plural(data.total, data.kind)} of {size(each)} each, where {size(room)} would fit"
    return Wait(cause=Cause.SMALL_REQUESTS, limit=Limit.SMALL_IO, facts=(text,))


def _committed(sight: Sight, mount: MountMeasure, data: _Requests, waiting: float) -> Wait | None:
    commits, writers = _requests(mount, "COMMIT"), max(1, len(sight.checkpoint.writers))
    took, count = commits.took, commits.total
    if not sight.writes or (took < MOST * (took + data.took) and took < MOST * waiting * writers) or not took:
        return None
    each = latency(took / count) + " each" * (count > 1)
    text = f"{plural(count, 'COMMIT')} took {each}: the server's stable storage"
    free = f"not the network: WRITEs took only {latency(data.took / data.total)} each"
    return Wait(cause=Cause.COMMITS, limit=Limit.SERVER, facts=(text,), excluded=(free,), imposed=True)


def _queued(sight: Sight, mount: MountMeasure, data: _Requests, waiting: float) -> Wait | None:
    """Return that requests waited at this end, though not all the slots were at the server: one stream is too few."""
    slots = mount.slots
    if not sight.writes or mount.connections != 1 or not slots or not data.took or data.queued < MOST * data.took:
        return None
    sent = data.answered / waiting
    if sent >= MOST * slots:
        return None
    behind = f" ({some(mount.backlog_mean):,.0f} more waiting for a slot)" if some(mount.backlog_mean) >= 1 else ""
    text = (
        f"its {data.kind}s spent {percent(data.queued / data.took)} of their time queued on this host, for the only "
        f"connection of the mount: {sent:.1f} of {slots:,.0f} slots in use at the server{behind}"
    )
    free = f"the server took only {latency(data.answer)} for each"
    return Wait(cause=Cause.ONE_CONNECTION, limit=Limit.SINGLE_WRITER, facts=(text,), excluded=(free,))


def _answered(sight: Sight, data: _Requests) -> Wait | None:
    round_ = max((value for one in of_storage(sight) if (value := one.min_rtt_seconds)), default=math.inf)
    if data.answer < LONG * round_:
        return None
    text = f"each {data.kind} took {latency(data.answer)} at the server, with a round trip of {latency(round_)}"
    return Wait(cause=Cause.ANSWERS, limit=Limit.SERVER, facts=(text,))


def targets_of(sight: Sight) -> list[ServerMeasure]:
    """Return the targets that took or gave data, the ones that moved most first."""
    told = sight.measures.mount.per_server if sight.measures.mount is not None else ()
    found = [one for one in told if moved(one, writes=sight.writes)]
    return sorted(found, key=lambda one: -moved(one, writes=sight.writes))


def moved(one: ServerMeasure, *, writes: bool) -> float:
    """Return the data that a target took or gave."""
    return some(one.written_bytes if writes else one.read_bytes)


def name_of(one: ServerMeasure) -> str:
    """Return the name of a target, with the server that it is on."""
    return f"{one.name} on {one.address}" if one.address is not None else one.name


def slow_one(sight: Sight, waiting: float) -> ServerMeasure | None:
    """Return the target that a thread waited for, so many seconds: far slower than the others, or without an answer.

    Requests on their way to it fill at least half of that time; a slow one that was asked little holds nobody up.
    """
    lost = _lost_one(sight, waiting)
    if lost is not None:
        return lost
    slow = max(_timed(sight), key=lambda one: some(one.seconds), default=None)
    others = _beside(sight, slow) if slow is not None else []
    if slow is None or not others:
        return None
    usual = median(some(one.seconds) for one in others)
    held = some(slow.seconds) * some(slow.operations)
    return slow if some(slow.seconds) >= _SLOWER * usual and held >= MOST * waiting else None


def _timed(sight: Sight) -> list[ServerMeasure]:
    return [one for one in targets_of(sight) if one.seconds is not None and some(one.operations) >= _FEW]


def _beside(sight: Sight, slow: ServerMeasure) -> list[ServerMeasure]:
    """Return those that it can be compared with: small requests, as for names and markers, are answered sooner."""

    def each(one: ServerMeasure) -> float:
        return moved(one, writes=sight.writes) / some(one.operations)

    return [one for one in _timed(sight) if one is not slow and each(one) >= _ALIKE * each(slow)]


def _lost_one(sight: Sight, waiting: float) -> ServerMeasure | None:
    """Return the target that had not answered: one that data went to, or any of them where data is missing.

    A request that ran into its timeout in a checkpoint that is shorter than that was on its way before it; and
    requests that did so fill at least half of the time that a thread waited, if each took no longer than the least.
    """
    told, mount = targets_of(sight), sight.measures.mount
    if mount is not None and sum(moved(one, writes=sight.writes) for one in told) < MOST * sight.moved:
        told = [one for one in mount.per_server if one.written_bytes is not None]
    least = MOST * waiting / _TIMEOUT_SECONDS if sight.span >= _TIMEOUT_SECONDS else math.inf
    lost = [one for one in told if some(one.timeouts) >= max(1, least) or not one.is_reached]
    return max(lost, key=lambda one: some(one.timeouts), default=None)


def told_by_targets(sight: Sight, waiting: float) -> Wait | None:
    """Return what targets held up who waited for so many seconds; None: nothing was seen, or it does not decide."""
    mount = sight.measures.mount
    if mount is None or waiting <= 0:
        return None
    slow = slow_one(sight, waiting)
    if slow is not None:
        lost = slow is _lost_one(sight, waiting)
        return Wait(cause=Cause.TARGET, limit=Limit.SERVER, facts=(_lost(slow) if lost else _slower(sight, slow),),
                    rival=Limit.NETWORK if lost else None, imposed=True, sure=not lost)  # fmt: skip
    timed = [one for one in targets_of(sight) if one.seconds is not None and one.operations]
    requests = sum(some(one.operations) for one in timed)
    in_use, slots = mount.in_use_mean, mount.slots
    if requests < _FEW or in_use is None or not slots or in_use < _FULL * slots:
        return None
    each = sum(moved(one, writes=sight.writes) for one in timed) / requests
    if each < _TINY_BYTES:
        text = f"{plural(int(requests), 'request')} of {size(each)} each"
        return Wait(cause=Cause.SMALL_OPERATIONS, limit=Limit.SMALL_IO, facts=(text,))
    who = name_of(timed[0]) if len(timed) == 1 else f"all {len(timed)} targets"
    took = sum(some(one.operations) * some(one.seconds) for one in timed) / requests * MS
    text = f"{who} took {took:.1f} ms for each request, with {in_use:.1f} of at most {slots:.0f} in flight to each"
    speed = sight.link.speed_bytes_per_second if sight.link is not None else None
    went = pace(some(sight.link_bytes), waiting)
    if not speed or went >= MOST * speed:
        return Wait(cause=Cause.ANSWERS, limit=Limit.SERVER, facts=(text,))
    free = f"the network carried only {rate(went)} of {rate(speed)}"
    return Wait(cause=Cause.SLOTS, limit=Limit.SERVER, facts=(text,), excluded=(free,), rival=Limit.NETWORK)


def _lost(one: ServerMeasure) -> str:
    late = f"{plural(one.timeouts or 0, 'request')} to {name_of(one)} timed out"
    if one.is_reached:
        return late
    return f"{late}, and it is in state {one.state}" if one.timeouts else f"{name_of(one)} is in state {one.state}"


def _slower(sight: Sight, slow: ServerMeasure) -> str:
    others = _beside(sight, slow)
    return (
        f"{name_of(slow)} took {some(slow.seconds) * MS:.1f} ms for each of "
        f"{plural(slow.operations or 0, 'request')}, the other {plural(len(others), 'target')} "
        f"{median(some(one.seconds) for one in others) * MS:.1f} ms"
    )


def detours(sight: Sight) -> list[PathMeasure]:
    """Return those that took a part of it, though the target says that they are not its best."""
    devices = {one.device: one.written_bytes if sight.writes else one.read_bytes for one in sight.measures.devices}
    whole = sum(devices.get(one.device, 0) for one in sight.paths)
    others = [one for one in sight.paths if one.ana_state not in (None, "optimized") and devices.get(one.device)]
    return [one for one in others if devices[one.device] >= SLIGHT * whole]


def asked(sight: Sight) -> float | None:
    """Return the share of the time in which a request was on its way, of the path where it was most; None: not seen."""
    shares = [
        one.busy_seconds / one.seconds for one in sight.measures.devices if one.busy_seconds is not None and one.seconds
    ]
    return min(1.0, max(shares)) if shares else None


def trouble(sight: Sight) -> str | None:
    """Say which paths could not be used for a while that matters, and for how long; None: all could."""
    found = [one for one in sight.paths if some(one.lost_seconds) > SLIGHT * sight.span]
    told = ", ".join(f"{one.device} to {place(one)} was {one.state} for {seconds(one.lost_seconds)}" for one in found)
    return f"{told} (of {plural(len(sight.paths), 'path')})" if found else None


def place(one: PathMeasure) -> str:
    """Return where a path leads."""
    if one.target is None:
        return f"NVMe over {one.transport}"
    return one.target if one.port is None else f"{f'[{one.target}]' if ':' in one.target else one.target}:{one.port}"


def target(sight: Sight) -> str:
    """Return the words for a wait for it, with how long a request took where a round is known."""
    places = list(dict.fromkeys(map(place, sight.paths)))
    over = "/".join(sorted({one.transport for one in sight.paths}))
    who = f"the NVMe target {places[0]}" if len(places) == 1 else f"its {len(places)} NVMe targets"
    wait, round_ = _wait_and_round(sight)
    way = "" if round_ is None else f", a round trip {latency(round_)}"
    took = "" if wait is None else f" (a request took {latency(wait)}{way})"
    return f"waiting for {who} over {over}{took}"


def answers_late(sight: Sight) -> bool:
    """Return whether writes take so much longer than a round to the target that the target itself takes it.

    A round that is measured here waits in the queues on the way there, not in those that what is read comes through.
    """
    wait, round_ = _wait_and_round(sight)
    return sight.writes and wait is not None and round_ is not None and wait >= LONG * round_


def _wait_and_round(sight: Sight) -> tuple[float | None, float | None]:
    """Return how long a request took, on its way and at the target; and a round, with the queues on the way."""
    wait = None
    if sight.device is not None:
        wait = sight.device.write_wait_seconds if sight.writes else sight.device.read_wait_seconds
    return wait, max((value for one in of_storage(sight) if (value := one.rtt_seconds)), default=None)


class Hybrid(NamedTuple):
    """What hybrid I/O (Lustre 2.16) did of a save: large pieces of buffered writes are switched to direct I/O."""

    on: bool
    switched: float  # share of the bytes
    threshold_bytes: float | None  # smaller pieces are not switched
    piece_bytes: float | None  # of the save, the median
    piece_is_exact: bool  # calls were seen one by one: their size is no mean of some


def hybrid(sight: Sight) -> Hybrid | None:
    """Return what it did of a save; None: this client has none, or that was not seen.

    The client counts the calls that it switched, and since 2.17 their bytes.
    """
    mount = sight.measures.mount
    settings = (mount.settings or {}) if mount is not None else {}
    if mount is None or "hybrid_io" not in settings or not sight.writes:
        return None
    counters, asked_ = mount.counters or {}, some(mount.written_bytes)
    calls = counters.get("writes", 0)
    share = counters.get("hybrid_writesize_switch", 0) / calls if calls else 0.0
    if "hybrid_write_bytes" in counters and asked_:
        share = counters["hybrid_write_bytes"] / asked_
    piece = sight.checkpoint.pattern.median_operation_bytes
    exact = piece is not None and sight.checkpoint.level is Level.TRACE
    if piece is None:
        piece = asked_ / calls if asked_ and calls else sight.checkpoint.pattern.mean_operation_bytes
    threshold = settings.get("hybrid_io_write_threshold_bytes")
    return Hybrid(bool(settings["hybrid_io"]), min(1.0, share), threshold, piece, exact)


def was_in_pcc(sight: Sight) -> bool:
    """Return whether most of a restore came from Lustre's persistent client cache, on a disk of this host."""
    mount = sight.measures.mount
    hit = ((mount.counters or {}) if mount is not None else {}).get("pcc_hit_bytes", 0)
    return not sight.writes and 0 < MOST * sight.checkpoint.bytes <= hit


def could_pass_the_cache(sight: Sight) -> bool:
    """Return whether a save was copied into the page cache, though its client could pass it by to idle servers."""
    known, mount = hybrid(sight), sight.measures.mount
    if known is None or known.switched >= SLIGHT or mount is None:
        return False
    return mount.in_use_mean is not None and bool(mount.slots) and mount.in_use_mean < MOST * (mount.slots or 0)
