"""What would be gained: the duration without a limit, never below what the next one or a ceiling allows."""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.accounts.storage import throttle
from ckptprof.diagnose.causes import Cause
from ckptprof.diagnose.sight import SLIGHT, Sight, pace, some
from ckptprof.units import rate
from ckptprof.verdicts import Limit

_BINDS = 1 / 3  # of what is left: what holds less does not bound it
_MORE = 1.3  # a rate that is not above this one's tells nothing of what is possible without the limit
_TICK = 0.02  # seconds; the kernel counts busy time in ticks
_ALIKE = 0.25  # of a checkpoint's bytes: a best second that differs by less may be no more than all of it
_MAPPED = 4e9  # bytes per second, of page faults without a disk: more is not promised
_MEMORY = 1e9  # bytes per second, of copying to or from the page cache: less is not promised


class Gain(NamedTuple):
    """A promise."""

    expected_seconds: float  # of the path
    capped_by: str | None  # the next limit, or what the same work takes at least; None: nothing that is known


def gain(found: Accounting, limit: Limit) -> Gain:
    """Return the path if this limit went, and what bounds it then: the largest part that is left, if it is a third."""
    whole = found.seconds
    mine = [one for one in found.accounts if one.limit is limit]
    if limit is Limit.SERIALIZE and mine and mine[0].cause is Cause.LOCK:  # it has its own part to do in any case
        mine = [one for one in mine if one.cause is Cause.LOCK]
    own = sum(one.seconds for one in mine)
    floor, name = _floor(found, limit, own)
    expected = whole - own + floor
    sight, waits = found.sight, found.waiting > SLIGHT * whole
    waits = sight.writes and not sight.remote and (sight.direct or (sight.syncs or 0) > 0 or waits)
    if limit in (Limit.SERIALIZE, Limit.PAGE_CACHE, Limit.SINGLE_WRITER) and waits:  # until its bytes are on the device
        best = _best(sight)
        least = ((sight.device_bytes or 0.0) / best if best else 0.0) + found.of(Limit.NONE)
        if least > expected:
            return Gain(min(whole, least), "the device, which has to receive all of it")
    left: dict[str | None, float] = {name: floor}
    for one in found.accounts:
        if one.limit is not limit:
            bound = None if one.limit in (None, Limit.NONE) else one.limit.value
            left[bound] = left.get(bound, 0.0) + one.seconds
    most = max(left, key=lambda one: left[one])
    expected = min(whole, max(0.0, expected))
    return Gain(expected, most if left[most] >= _BINDS * expected else None)


def _floor(found: Accounting, limit: Limit, own: float) -> tuple[float, str | None]:
    """Return (seconds that are spent of a limit's own at least, in what)."""
    waits = (Limit.DEVICE, Limit.SMALL_IO, Limit.NETWORK, Limit.SERVER, Limit.FLUSH)
    if limit in waits or found.waited_for(limit) is not None:
        return _storage_floor(found, limit)
    if limit is Limit.PAGE_FAULT:
        return _read_floor(found)
    if limit is Limit.METADATA:
        copying = max(0.0, found.sight.moved / _MEMORY - (found.seconds - own))
        return copying, f"copying {'into' if found.sight.writes else 'out of'} the page cache"
    if limit is Limit.SINGLE_WRITER and found.alone is not None:
        few = ", one for each CPU" if found.alone.workers < found.alone.ranks else ""
        return own / found.alone.workers, f"{found.alone.workers} concurrent writers{few}"
    if limit is Limit.STRAGGLER and found.straggler is not None:
        return found.straggler.crowding, None
    return 0.0, None


def _best(sight: Sight) -> float | None:
    """Return the best bandwidth of the device that is known of, in this direction.

    While it is held back, its bytes over the time in which it had work tell what it could do.
    """
    known, device = [sight.probed], sight.device
    if device is not None:
        best = (device.shown_bytes_per_second, device.peak_bytes_per_second)
        # A best second may be no more than a whole checkpoint that took less than one
        known += [one for one in best if one and abs(one - sight.moved) > _ALIKE * sight.moved]
        if device.busy_seconds is not None and device.busy_seconds >= _TICK:
            known.append((sight.device_bytes or 0.0) / device.busy_seconds)
    return max((value for value in known if value), default=None)


def _storage_floor(found: Accounting, limit: Limit) -> tuple[float, str | None]:
    """Return (seconds that the same bytes take at best, by what) where something has shown to be faster than this."""
    sight = found.sight
    moved = (sight.device_bytes or sight.moved) if not sight.remote else sight.moved
    now = pace(moved, found.waiting)
    if sight.remote:
        link = sight.link
        speeds = (link.speed_bytes_per_second, link.shown_bytes_per_second) if link is not None else ()
        imposed = found.storage is not None and found.storage.imposed
        known = [value for value in (*speeds, sight.probed) if value and value > _MORE * now]
        best = min(known, default=None) if imposed else max(known, default=None)
        name = "the link"
    else:
        best, name = _best(sight), "the device"
        bound = throttle(sight, found.waiting)
        if limit is Limit.FLUSH and bound is not None and bound.bytes_per_second is not None:
            best = bound.bytes_per_second
        elif best is not None and best <= _MORE * max(now, some(bound.bytes_per_second) if bound is not None else 0.0):
            best = None
    floor = min(found.cpu_in_calls, found.waiting)
    if best is None:
        return floor, None
    return max(floor, moved / best), f"{name} at {rate(best)}"


def _read_floor(found: Accounting) -> tuple[float, str | None]:
    sight = found.sight
    moved = some(sight.checkpoint.storage_bytes) or sight.device_bytes or sight.moved
    now = pace(moved, found.of(Limit.PAGE_FAULT))
    best = _best(sight)
    if best is not None and best > _MORE * now:
        return moved / min(best, _MAPPED), f"the device at {rate(best)}"
    return min(found.of(Limit.PAGE_FAULT), moved / _MEMORY), "copying out of the page cache"
