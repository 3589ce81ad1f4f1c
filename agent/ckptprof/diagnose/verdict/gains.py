"""The gain: the duration with a remedy, at least what the next limit or a ceiling allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.accounts.path import cpu_share
from ckptprof.diagnose.accounts.storage_waits import throttle
from ckptprof.diagnose.causes import AttributedTime, Cause
from ckptprof.diagnose.context import CheckpointContext, busy_share, or_zero, rate_of
from ckptprof.diagnose.rules.rule import CauseRule
from ckptprof.diagnose.tolerances import CLEARLY, MEMORY_RATE, PART, SLIGHT, SMALL_BYTES, TICK_SECONDS
from ckptprof.units import rate
from ckptprof.verdicts import Limit

_SAME_STORAGE = (Limit.SMALL_IO, Limit.FLUSH, Limit.PAGE_FAULT)  # their remedies change the operations only
_COPIED = (Limit.METADATA, Limit.PAGE_CACHE)  # without them the bytes still have to be copied
UNKNOWN_RATE = "the storage, whose rate in large requests, for one alone, was not measured (`ckptprof ceiling` does)"


class Gain(NamedTuple):
    """An estimate of the duration with a remedy."""

    expected_seconds: float | None  # of the path; None: the rate that the same storage reaches with it is not known
    capped_by: str | None  # the next limit, or the minimum for the same work; None: nothing known


def gain(found: Accounting, limit: Limit, rule: CauseRule | None) -> Gain:
    """Estimate the path with the remedy of a limit, and what bounds it then: the largest remaining part, if a third."""
    whole = found.seconds
    mine = [one for one in found.accounts if one.limit is limit]
    if limit is Limit.SERIALIZE and mine and mine[0].cause is Cause.LOCK:  # its own work remains in any case
        mine = [one for one in mine if one.cause is Cause.LOCK]
    own = sum(one.seconds for one in mine) if limit is not Limit.CPU else found.runnable
    saving = rule.saving(found.context) if rule is not None and rule.saving is not None else None
    floor, name = _floor(found, limit, own) if saving is None else (own * (1 - saving[0]), None)
    if floor is None:
        return Gain(None, name)
    expected = whole - own + floor + (_waits_left(found, mine, floor) if limit is not Limit.CPU else 0.0)
    context, waits = found.context, found.waiting > SLIGHT * whole
    waits = context.is_save and not context.is_remote and (context.is_direct or (context.syncs or 0) > 0 or waits)
    if limit in (Limit.SERIALIZE, Limit.PAGE_CACHE, Limit.SINGLE_WRITER) and waits:  # until its bytes are on the device
        best = _best_rate(context)
        least = ((context.device_bytes or 0.0) / best if best else 0.0) + found.of(Limit.NONE)
        if least > expected:
            return Gain(min(whole, least), "the disk, which has to receive all of it")
    left = {name: floor}
    for one in found.accounts:
        if one not in mine:
            bound = None if one.limit in (None, Limit.NONE) else one.limit.word
            left[bound] = left.get(bound, 0.0) + one.seconds - (one.runnable if limit is Limit.CPU else 0.0)
    most = max(left, key=lambda one: left[one])
    expected = min(whole, max(0.0, expected))
    return Gain(expected, most if left[most] >= PART * expected else None)


def _waits_left(found: Accounting, mine: Sequence[AttributedTime], floor: float) -> float:
    """Estimate for how much longer the remaining work waits for a CPU: at least in the same share of its time."""
    rest = [one for one in found.accounts if one not in mine]
    work = floor if mine and mine[0].limit in _COPIED else 0.0
    work += sum(one.seconds - one.runnable for one in rest if one.cause in (Cause.COPYING, Cause.OWN_CODE))
    share, waits = cpu_share(found.path.thread), sum(one.runnable for one in rest)
    return max(0.0, work * (1 / share - 1) - waits) if share else 0.0


def _floor(found: Accounting, limit: Limit, own: float) -> tuple[float | None, str | None]:
    if limit in (Limit.DEVICE, Limit.NETWORK, Limit.SERVER, *_SAME_STORAGE) or found.waited_for(limit) is not None:
        return _storage_floor(found, limit)
    if limit in _COPIED:
        copying = max(0.0, found.context.transferred_bytes / MEMORY_RATE - (found.seconds - own))
        return copying, f"copying {'into' if found.context.is_save else 'out of'} the page cache"
    if limit is Limit.SINGLE_WRITER and found.single_writer is not None:
        few = ", one for each CPU" if found.single_writer.workers < found.single_writer.ranks else ""
        return own / found.single_writer.workers, f"{found.single_writer.workers} concurrent writers{few}"
    if limit is Limit.STRAGGLER and found.straggler is not None:
        return found.straggler.contention_seconds, None
    return 0.0, None


def busy_rate(context: CheckpointContext) -> float | None:
    """Return the bytes per second of the time in which the device had requests, of large ones; None if not known."""
    busy = 0.0 if context.device is None else or_zero(busy_share(context.device)) * context.device.seconds
    is_known = busy >= TICK_SECONDS and not _has_small_requests(context)
    return (context.device_bytes or 0.0) / busy if is_known else None


def _best_rate(context: CheckpointContext, throttled: float | None = None) -> float | None:
    """Return the highest known rate of the device in this direction: probed, observed, or of earlier saves in whole.

    `throttled`: the rate of its throttle; what was observed clearly above it counts more than its busy time. Small
    requests show no rate of large ones.
    """
    known, device = [context.probed, *(_rates_of_saves(context) if context.is_save else ())], context.device
    if device is not None:
        is_small = _has_small_requests(context) and (device.shown_request_bytes or math.inf) < SMALL_BYTES
        known += [] if is_small else [context.fastest_second]
    observed = max((value for value in known if value), default=0.0)
    is_unthrottled = throttled is not None and observed > CLEARLY * throttled
    return (observed if is_unthrottled else max(observed, or_zero(busy_rate(context)))) or None


def _rates_of_saves(context: CheckpointContext) -> list[float | None]:
    """Return the rates of earlier saves of the job that returned after all was on the stable storage of this mount."""
    mount = context.measures.mount
    return [
        one.cost.durable_bytes_per_second
        for one in context.history
        if one.cost is not None and one.cost.durable_on_return and one.measures is not None
        if mount and one.measures.mount and one.measures.mount.mount_point == mount.mount_point
    ]


def _storage_floor(found: Accounting, limit: Limit) -> tuple[float | None, str | None]:
    """Return (minimum seconds for the same bytes, what bounds them) where something is known to be faster.

    Other storage may be as fast as it likes. The same storage with other operations has a rate: None if not known.
    """
    context = found.context
    on_device = None if context.is_remote else context.device_bytes
    transferred = context.checkpoint.storage_bytes or on_device or context.transferred_bytes
    spent = found.of(limit) if limit is Limit.PAGE_FAULT else found.waiting
    now = rate_of(transferred, spent)
    if context.is_remote:
        link = context.link
        speeds = (link.speed_bytes_per_second, link.shown_bytes_per_second) if link is not None else ()
        imposed = found.storage is not None and found.storage.imposed
        known = [value for value in (*speeds, context.probed) if value and value > CLEARLY * now]
        best = min(known, default=None) if imposed else max(known, default=None)
        name = "the link" if best is None else f"the link at {rate(best)}"
    else:
        bound, name = throttle(context, spent), "the disk"
        best = _best_rate(context, None if bound is None else bound.bytes_per_second)
        if limit is Limit.FLUSH and bound is not None and bound.bytes_per_second is not None:
            best = bound.bytes_per_second
        elif best is not None and best <= CLEARLY * max(now, or_zero(bound and bound.bytes_per_second)):
            best = None
        if best is None and bound is not None and bound.bytes_per_second is not None:
            return None, "the disk, whose rate without the throttle is not known"
    floor = 0.0 if limit is Limit.SMALL_IO else min(found.cpu_in_calls, spent)  # large pieces take hardly any CPU
    if best is not None:
        return max(floor, transferred / best), name
    return (None, UNKNOWN_RATE) if limit in _SAME_STORAGE or context.is_disk_shared else (floor, None)


def _has_small_requests(context: CheckpointContext) -> bool:
    return context.request_bytes is not None and context.request_bytes < SMALL_BYTES
