"""Numbers that speak for a limit, and those that exclude its neighbours."""

from __future__ import annotations

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.sight import MS, pace
from ckptprof.units import per_second, percent, rate, seconds, size
from ckptprof.verdicts import Limit

_WAITS = frozenset({Limit.FLUSH, Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO})
_SMALL = 0.2  # of the path: an account that is excluded by its size
_MOST = 6  # of what a person reads
_NAMED = {
    Limit.SERIALIZE: "not serialisation",
    Limit.METADATA: "not the number of files",
    Limit.CLEAN_UP: "not deletion",
    Limit.PAGE_CACHE: "not the page cache",
    Limit.GATHER: "not gathering",
    Limit.STRAGGLER: "not one late rank",
    Limit.NONE: "not copying",
}


def evidence(found: Accounting, limit: Limit, why: str | None, shown: Spent | str | None = None) -> tuple[str, ...]:
    """Return what speaks for it, with numbers; `shown`: what a rule adds, unless it is an account that is told here."""
    first = [why] if why else []
    speaking = [one for one in found.accounts if _speaks(one, limit)][: _MOST - len(first)]
    told = first + [_with_share(one, found.seconds) for one in speaking]
    if limit in _WAITS:
        told += _of_storage(found)
    return (*told[:_MOST], *([str(shown)] if shown is not None and shown not in speaking else ()))


def _speaks(one: Spent, limit: Limit) -> bool:
    beside = limit is Limit.PREVIOUS_SAVE and one.limit is not Limit.NONE  # what makes each of them slow
    return one.limit is limit or beside or limit in (Limit.NONE, Limit.UNCLEAR)


def _with_share(one: Spent, whole: float) -> str:
    return f"{seconds(one.seconds)} ({percent(one.seconds / whole) if whole else '0 %'}) {one.text}"


def _of_storage(found: Accounting) -> list[str]:
    sight = found.sight
    told = []
    device = sight.device
    if device is not None and not sight.remote:
        if sight.request_bytes is not None and sight.device_operations is not None:
            requests = per_second(pace(sight.device_operations, device.seconds))
            told.append(f"{device.device} did {requests} requests of {size(sight.request_bytes)}")
        wait = device.write_wait_seconds if sight.writes else device.read_wait_seconds
        if wait is not None:
            told.append(f"each took {wait * MS:.1f} ms")
        shown = device.shown_bytes_per_second
        if shown:
            told.append(f"the best that it has shown is {rate(shown)}")
    if sight.probed:
        told.append(f"`ckptprof ceiling` measured {rate(sight.probed)} on this path")
    return told


def excluded(found: Accounting, limit: Limit) -> tuple[str, ...]:
    """Return what it was not, with numbers."""
    told = list(found.storage.excluded) if found.storage is not None and found.storage.limit is limit else []
    if found.seconds > 0:
        for other, words in _NAMED.items():
            spent = found.of(other)
            if other is not limit and (spent > 0 or other is Limit.SERIALIZE) and spent < _SMALL * found.seconds:
                if other is Limit.SERIALIZE and not found.path.time.cpu_known:
                    continue
                told.append(f"{words}: {seconds(spent)}")
        if limit not in _WAITS and found.path.time.calls_known and found.waiting < _SMALL * found.seconds:
            told.append(f"not storage: {seconds(found.waiting)} asleep in reads, writes and syncs{_room(found)}")
    return tuple(told[:_MOST])


def _room(found: Accounting) -> str:
    busy = found.sight.device_busy
    return f", device {percent(busy)} busy" if busy is not None and not found.sight.remote else ""
