"""What a parallel file system's client tells of the targets that take shares of the data: one was slow, or all alike.

The client counts the requests to each OST of Lustre and their time until the answer; several are on their way at once.
"""

from __future__ import annotations

import math
from statistics import median

from ckptprof.diagnose.accounts.clients import Told
from ckptprof.diagnose.causes import Cause
from ckptprof.diagnose.sight import MOST, MS, Sight, pace, some
from ckptprof.measures import ServerMeasure
from ckptprof.units import plural, rate, size
from ckptprof.verdicts import Limit

_SLOWER = 3.0  # times the median of the others
_ALIKE = 0.5  # of the size of its requests: those of the others
_FEW = 8  # requests: of fewer no mean is told
_FULL = 0.7  # of the requests that may be on their way at a time
_SMALL_BYTES = 16 << 10  # of a request: one to four pages
_TIMEOUT_SECONDS = 5.0  # the least that Lustre gives a request: at_est2timeout


def targets_of(sight: Sight) -> list[ServerMeasure]:
    """Return those that took or gave data, the ones that moved most first."""
    mount = sight.measures.mount
    told = mount.per_server if mount is not None else ()
    return sorted(
        (one for one in told if moved(one, writes=sight.writes)), key=lambda one: -moved(one, writes=sight.writes)
    )


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
    lost = lost_one(sight, waiting)
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
    """Return the targets of which a mean is told."""
    return [one for one in targets_of(sight) if one.seconds is not None and some(one.operations) >= _FEW]


def _beside(sight: Sight, slow: ServerMeasure) -> list[ServerMeasure]:
    """Return those that it can be compared with: small requests, as for names and markers, are answered sooner."""

    def each(one: ServerMeasure) -> float:
        return moved(one, writes=sight.writes) / some(one.operations)

    return [one for one in _timed(sight) if one is not slow and each(one) >= _ALIKE * each(slow)]


def lost_one(sight: Sight, waiting: float) -> ServerMeasure | None:
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


def told_by_targets(sight: Sight, waiting: float) -> Told | None:
    """Return what targets held up who waited for so many seconds; None: nothing was seen, or it does not decide."""
    mount, told = sight.measures.mount, targets_of(sight)
    timed = [one for one in told if one.seconds is not None and some(one.operations)]
    requests = sum(some(one.operations) for one in timed)
    if mount is None or waiting <= 0:
        return None
    lost = lost_one(sight, waiting)
    if lost is not None:
        return Told(Cause.TARGET, Limit.SERVER, _lost(lost), "", rival=Limit.NETWORK, sure=False)
    slow = slow_one(sight, waiting)
    if slow is not None:
        return Told(Cause.TARGET, Limit.SERVER, _slower(slow, _beside(sight, slow)), "")
    in_use, slots = mount.in_use_mean, mount.slots
    if requests < _FEW or in_use is None or not slots or in_use < _FULL * slots:
        return None
    each = sum(moved(one, writes=sight.writes) for one in timed) / requests
    if each < _SMALL_BYTES:
        return Told(Cause.SMALL_OPERATIONS, Limit.SMALL_IO, f"{plural(int(requests), 'request')} of {size(each)}", "")
    who = name_of(timed[0]) if len(timed) == 1 else f"all {len(timed)} targets"
    took = sum(some(one.operations) * some(one.seconds) for one in timed) / requests * MS
    text = f"{who} took {took:.1f} ms for each request, with {in_use:.1f} of {slots:.0f} on their way to each"
    speed = sight.link.speed_bytes_per_second if sight.link is not None else None
    went = pace(some(sight.link_bytes), waiting)
    if not speed or went >= MOST * speed:
        return Told(Cause.ANSWERS, Limit.SERVER, text, "")
    free = f"not the network: {rate(went)} of {rate(speed)}"
    return Told(Cause.SLOTS, Limit.SERVER, text, free, rival=Limit.NETWORK)


def _lost(one: ServerMeasure) -> str:
    """Return that a target did not answer."""
    late = f"{plural(int(some(one.timeouts)), 'request')} to {name_of(one)} had no answer in time"
    if one.is_reached:
        return late
    return (
        f"{late}, and it is in state {one.state}" if some(one.timeouts) else f"{name_of(one)} is in state {one.state}"
    )


def _slower(slow: ServerMeasure, others: list[ServerMeasure]) -> str:
    """Return how slow a target is beside the others."""
    return (
        f"{name_of(slow)} took {some(slow.seconds) * MS:.1f} ms for each of "
        f"{plural(int(some(slow.operations)), 'request')}, the other {plural(len(others), 'target')} "
        f"{median(some(one.seconds) for one in others) * MS:.1f} ms"
    )
