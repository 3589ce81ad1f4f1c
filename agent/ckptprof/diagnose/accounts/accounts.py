"""The account of time: each second of a checkpoint's critical path in one account of the closed list.

The path begins when training stood still for it and ends when it was complete, deletion of old ones in line and parsing
of what was read included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ckptprof.diagnose.accounts import before, cleaning, parsing, ranks
from ckptprof.diagnose.accounts.locks import locked
from ckptprof.diagnose.accounts.pages import Pauses, pauses
from ckptprof.diagnose.accounts.path import CriticalPath, critical, had_cpu
from ckptprof.diagnose.accounts.storage import Storage, resolve, throttle
from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.diagnose.sight import Sight, look, number, some
from ckptprof.model import Checkpoint
from ckptprof.units import percent, plural, rate, size
from ckptprof.verdicts import Limit

MEMORY_SPEED = 200e6  # bytes per second and thread; no slower on a healthy host, whose own host gives it the pages
_QUEUED = "ready to go on in the kernel, but without a CPU: other threads had them, or its quota was used up"
_STARVED = "ready to run, but without a CPU: other threads had them, or its quota was used up"
MANY_FILES = 200
_ROUNDING_SECONDS = 1e-6  # what the rounding of sums leaves is no time; Python 3.12 adds up otherwise than 3.11
_COUNTED = 0.5  # of the files were seen to be created: the rest of the time in the kernel is of the others
SMALL_FILE_BYTES = 128 << 10
_EACH_WAITS = (Limit.FLUSH, Limit.SMALL_IO)  # operation by operation
_STORED = ("data", "sync", "close")
_NAMES = ("create", "rename", "metadata")
_TOUCHED = 1e9  # bytes per second that a copy may take of unexplained kernel time, where files are many


@dataclass(frozen=True)
class Accounting:
    """The accounts, and what they were made from."""

    accounts: tuple[Spent, ...]  # largest first
    sight: Sight
    path: CriticalPath
    storage: Storage | None
    held: Pauses
    straggler: ranks.Straggler | None
    alone: ranks.Alone | None
    waiting: float  # seconds asleep in reads, writes, syncs and closes, without dirty pauses
    cpu_in_calls: float  # of that on CPU, past the page cache

    @property
    def seconds(self) -> float:
        """The length of the critical path."""
        return sum(one.seconds for one in self.accounts)

    @property
    def quiet_seconds(self) -> float:
        """The path without the waits for a processor: what they made longer would have been longest without them."""
        return self.seconds - self.of(Limit.CPU)

    def share_of(self, limit: Limit | None) -> float:
        """Return the share of a limit: of the quiet path, unless it is the wait for a processor itself."""
        whole = self.seconds if limit is Limit.CPU else self.quiet_seconds
        return self.of(limit) / whole if whole > 0 else 0.0

    def of(self, limit: Limit | None) -> float:
        """Return the seconds of a limit."""
        return sum(one.seconds for one in self.accounts if one.limit is limit)


def accounts(
    checkpoint: Checkpoint, history: Sequence[Checkpoint] = (), ceilings: Sequence[Ceilings] | None = None
) -> tuple[Spent, ...]:
    """Return the accounts of a checkpoint, largest first; they add up to the seconds of its critical path."""
    return account(look(checkpoint, history, ceilings)).accounts


def account(sight: Sight) -> Accounting:
    """Return the account of time of what is known."""
    path = critical(sight)
    parts = dict(path.parts.seconds)
    found: list[Spent] = before.explain(sight, before.blocked_before(sight), had_cpu(path.thread))
    found += parsing.explain(sight, had_cpu(path.thread))
    inside, after = cleaning.deletion(sight)
    inside = max(inside, parts.get("unlink", 0.0))
    taken = _take(parts, inside, ("unlink", "rest", "lock", "sleep"))
    spare, found = _from_before(found, inside - taken)
    if taken + spare + after > 0:
        found.append(Spent(Cause.DELETION, Limit.CLEAN_UP, taken + spare + after, cleaning.text(sight)))
    asleep = sum(parts.get(name, 0.0) for name in _STORED)
    late = ranks.straggler(sight, asleep / sight.span if sight.span else 0.0)
    if late is not None:
        late = replace(late, seconds=_shrink(parts, late.seconds))
        found.append(Spent(Cause.LATE_RANK, Limit.STRAGGLER, late.seconds, late.text))
    held = pauses(sight, path)
    direct = parts.get("copy", 0.0) + parts.get("kernel", 0.0) if sight.direct else 0.0
    main, storage, waiting = _main(sight, path, parts, held)
    only = ranks.alone(sight)
    if only is not None:
        main = [_shared(one, only, storage) for one in main]
    counted = [one for one in (*found, *main) if number(one.seconds)]
    largest = tuple(sorted(counted, key=lambda one: -one.seconds))
    return Accounting(largest, sight, path, storage, held, late, only, waiting, direct)


def _take(parts: dict[str, float], wanted: float, names: Sequence[str]) -> float:
    """Take seconds out of parts, in this order; return how many there were."""
    left = wanted
    for name in names:
        piece = min(left, parts.get(name, 0.0))
        if piece > 0:
            parts[name] -= piece
            left -= piece
    return wanted - left


def _from_before(found: list[Spent], wanted: float) -> tuple[float, list[Spent]]:
    """Take seconds of deletion out of the unexplained time before the start: old ones may go first."""
    kept, taken = [], 0.0
    for one in found:
        piece = min(wanted - taken, one.seconds) if one.limit is None else 0.0
        taken += piece
        if one.seconds > piece:
            kept.append(replace(one, seconds=one.seconds - piece))
    return taken, kept


def _shrink(parts: dict[str, float], wanted: float) -> float:
    """Take seconds out of waiting first, then out of all parts alike; return how many there were."""
    taken = _take(parts, wanted, ("rest", "lock", "sleep"))
    whole = sum(parts.values())
    left = min(wanted - taken, whole)
    if left > 0 and whole > 0:
        for name in parts:
            parts[name] *= 1 - left / whole
    return taken + left


def _main(
    sight: Sight, path: CriticalPath, parts: dict[str, float], held: Pauses
) -> tuple[list[Spent], Storage | None, float]:
    """Return the accounts of the parts, what the storage was waited for, and for how long."""
    computed = parts.get("kernel", 0.0)
    _sort_kernel(sight, path, parts)
    found = _of_files(sight, parts)
    paused = min(held.seconds, parts.get("data", 0.0))
    if sight.direct:  # what a call past the page cache does on CPU is part of its operation
        parts["data"] = parts.get("data", 0.0) + parts.pop("copy", 0.0)
    parts["data"] = parts.get("data", 0.0) - paused
    if held.lowered and paused:
        paused += _paced(sight, parts, paused)
        found.append(Spent(Cause.DIRTY, Limit.PAGE_CACHE, paused, held.text))
    else:
        parts["data"] += paused + _paced(sight, parts, sum(parts.get(name, 0.0) for name in _STORED))
    if sight.mapped and not sight.writes:
        found += [] if _fetched(sight, parts, computed) else _faults(sight, parts)
    _unknown_wait(sight, path, parts)
    data, sync = parts.pop("data", 0.0), parts.pop("sync", 0.0)
    waiting = data + sync + parts.pop("close", 0.0)
    storage = resolve(sight, data=data, sync=sync, waiting=waiting) if waiting > 0 else None
    if storage is not None:
        waiting += _woken(parts, waiting) if storage.limit in _EACH_WAITS else 0.0
        found.append(Spent(storage.cause, storage.limit, waiting, storage.text))
    found += _queued(parts)
    found += _copying(sight, parts)
    found += _own(sight, path, parts)
    found += _waiting(sight, parts)
    held_up = locked(sight, path, parts.get("lock", 0.0))
    if held_up is not None:
        found.append(held_up)
        parts.pop("lock")
    left = sum(max(0.0, value) for value in parts.values())
    if left >= _ROUNDING_SECONDS:
        found.append(Spent(Cause.UNEXPLAINED, None, left, "nothing that was looked at explains it"))
    return found, storage, waiting


def _paced(sight: Sight, parts: dict[str, float], waiting: float) -> float:
    """Take of the wait for a CPU what a limit on the device would have taken anyway: it goes on meanwhile."""
    bound = throttle(sight, waiting + parts.get("queued", 0.0)) if waiting > 0 else None
    return 0.0 if bound is None else _take(parts, min(bound.least, sight.span) - waiting, ("queued",))


def _woken(parts: dict[str, float], asleep: float) -> float:
    """Take the waits for a CPU of a thread that woke from one of many small waits: without these it had none."""
    at_work = parts.get("copy", 0.0) + parts.get("kernel", 0.0)
    return _take(parts, parts.get("queued", 0.0) * asleep / (asleep + at_work), ("queued",))


def _sort_kernel(sight: Sight, path: CriticalPath, parts: dict[str, float]) -> None:
    """Tell of the time in the kernel what was copying; without call times, by what there was to do."""
    kernel = parts.pop("kernel", 0.0)
    if sight.mapped and not sight.writes:
        parts["fault"] = parts.get("fault", 0.0) + kernel
        return
    files = _files(sight)
    if path.parts.exact and not _is_uncounted(sight, files):
        parts["copy"] = parts.get("copy", 0.0) + kernel
        return
    names = 0.0
    if files >= MANY_FILES and sight.moved / files < SMALL_FILE_BYTES:
        names = max(0.0, kernel - sight.moved / _TOUCHED)
        parts["create"] = parts.get("create", 0.0) + names
    parts["copy"] = parts.get("copy", 0.0) + kernel - names


def _is_uncounted(sight: Sight, files: float) -> bool:
    """Return whether the trace was told of a part of the new files only: of ten thousand a second it drops the rest."""
    told = [some(one.creates) for one in sight.measures.threads if one.creates]
    return bool(told) and sum(told) < _COUNTED * files


def _files(sight: Sight) -> float:
    return max(some(sight.checkpoint.files), some(sight.checkpoint.metadata.created))


def _of_files(sight: Sight, parts: dict[str, float]) -> list[Spent]:
    """Return the time that names took; where files are many and small, all that is paid for each of them."""
    names = sum(parts.get(name, 0.0) for name in _NAMES)
    files = _files(sight)
    whole = sum(parts.values()) - parts.get("queued", 0.0) - parts.get("starved", 0.0)
    if names <= 0:
        return []
    taken = [*_NAMES]
    if files >= MANY_FILES and sight.moved / files < SMALL_FILE_BYTES and names >= 0.15 * whole:
        taken += ["close", "data", "copy", "user", "starved", "queued"]
    spent = sum(parts.pop(name, 0.0) for name in taken)
    text = "in creating and renaming" if sight.writes else "in opening"
    if sight.writes and parts.get("metadata", 0.0) > 0.5 * names:
        text = "in looking up"
    if files >= MANY_FILES:
        text += f" {plural(int(files), 'file')}, {size(sight.moved / files)} each"
    elif text != "in creating and renaming":
        text += " files"
    return [Spent(Cause.NAMES, Limit.METADATA, spent, text)]


def _fetched(sight: Sight, parts: dict[str, float], computed: float) -> bool:
    """Put page faults of a remote file to the storage if the network was at its limit: a read would wait alike.

    `computed`: the seconds on CPU that are among those of the faults.
    """
    asleep = sum(parts.get(name, 0.0) for name in ("fault", "rest", "data")) - computed
    if asleep <= 0 or not sight.remote:
        return False
    if resolve(sight, data=asleep, sync=0.0, waiting=asleep).limit is not Limit.NETWORK:
        return False
    parts["data"] = asleep
    parts["copy"] = parts.get("copy", 0.0) + computed
    parts["fault"] = parts["rest"] = 0.0
    return True


def _faults(sight: Sight, parts: dict[str, float]) -> list[Spent]:
    """Return the time in page faults of a mapped restore: what a mapping waits for stands in no call."""
    major = sum(some(one.major_faults) for one in sight.measures.processes)
    if not major and sight.checkpoint.cache == "warm":
        return []
    spent = sum(parts.pop(name, 0.0) for name in ("fault", "rest", "data", "copy"))
    if spent <= 0:
        return []
    spent += _woken(parts, spent)
    text = f"in {plural(int(major), 'major page fault')} of a mapping" if major else "in page faults of a mapping"
    return [Spent(Cause.FAULTS, Limit.PAGE_FAULT, spent, text)]


def _unknown_wait(sight: Sight, path: CriticalPath, parts: dict[str, float]) -> None:
    """Put sleep that nobody looked at to storage where the storage was at its limit meanwhile."""
    rest = parts.get("rest", 0.0)
    if path.parts.calls_known or rest <= 0 or not sight.device_bytes:
        return

    busy = sight.device_busy or 0.0
    bound = throttle(sight, rest)
    if (bound is not None or busy >= 0.7) and sight.device_bytes >= 0.5 * sight.moved:
        parts["data"] = parts.get("data", 0.0) + rest
        parts["rest"] = 0.0


def _queued(parts: dict[str, float]) -> list[Spent]:
    """Return the time without a CPU in the kernel."""
    spent = parts.pop("queued", 0.0)
    return [Spent(Cause.QUEUED, Limit.CPU, spent, _QUEUED)] if spent > 0 else []


def _copying(sight: Sight, parts: dict[str, float]) -> list[Spent]:
    """Return the time on CPU that moving the data took: no limit at the speed of memory."""
    spent = parts.pop("copy", 0.0) + (parts.pop("fault", 0.0) if not sight.mapped else 0.0)
    if spent <= 0:
        return []
    speed = sight.moved / max(1, int(some(sight.checkpoint.ranks))) / spent if spent else 0.0
    thread = max((some(one.bytes) for one in sight.measures.threads), default=0.0)
    speed = max(speed, thread / spent)
    way = "into" if sight.writes else "out of"
    text = f"copying {way} the page cache at {rate(speed)}"
    slow = speed < MEMORY_SPEED and sight.writes
    return [Spent(Cause.COPYING, Limit.PAGE_CACHE if slow else Limit.NONE, spent, text)]


def _own(sight: Sight, path: CriticalPath, parts: dict[str, float]) -> list[Spent]:
    """Return the time in the thread's own code, and waiting for a processor to run it."""
    user, starved = parts.pop("user", 0.0), parts.pop("starved", 0.0)
    found = []
    if user > 0:
        found.append(Spent(Cause.OWN_CODE, Limit.SERIALIZE, user, f"on CPU {_in_what(sight, path.pid)}"))
    if starved > 0:
        found.append(Spent(Cause.STARVED, Limit.CPU, starved, _STARVED))
    return found


def _in_what(sight: Sight, pid: int | None) -> str:
    stacks = sight.stacks(pid) or sight.stacks()
    own = {name: stacks[name] for name in ("crc", "compress", "pickle", "gather") if stacks.get(name)}
    if not own:
        return "in its own code (pickling, checksums, compression)" if sight.writes else "in its own code (unpickling)"
    name = max(own, key=lambda one: own[one])
    words = {
        "crc": "in zip CRC32" if sight.writes else "in checksums",
        "compress": "compressing" if sight.writes else "decompressing",
        "pickle": "pickling" if sight.writes else "unpickling",
        "gather": "gathering state",
    }
    return f"{words[name]} ({percent(own[name])} of the looks at its stack)"


def _waiting(sight: Sight, parts: dict[str, float]) -> list[Spent]:
    """Return the time asleep outside of file calls, where something tells why: state that came in over the network."""
    asleep = sum(parts.get(name, 0.0) for name in ("network", "lock", "sleep", "rest"))
    came = max((some(one.received_bytes) for one in sight.measures.links), default=0.0)
    if not asleep or not sight.writes:
        return []
    looked = parts.get("network", 0.0)
    slight = asleep < 0.1 * sight.span or ranks.number_of_ranks(sight) == 1  # then nobody sent it
    if slight or sight.remote or came < 0.5 * some(sight.checkpoint.bytes) or not came:
        if looked <= 0:
            return []
        parts.pop("network")
        return [Spent(Cause.MESSAGES, Limit.GATHER, looked, "asleep in sends and receives")]
    for name in ("network", "lock", "sleep", "rest"):
        parts.pop(name, None)
    text = f"asleep outside of file calls, while {size(came)} came in over the network"
    return [Spent(Cause.CAME_IN_MEANWHILE, Limit.GATHER, asleep, text)]


def _shared(one: Spent, only: ranks.Alone, storage: Storage | None) -> Spent:
    """Return an account as one of the single writer, if more writers would have shared it out."""
    slow_copy = one.limit is Limit.PAGE_CACHE and one.cause is Cause.COPYING
    if one.limit not in ranks.SHARED_OUT and not slow_copy:
        return one
    if storage is not None and storage.imposed and one.limit is storage.limit:
        return one
    return replace(one, limit=Limit.SINGLE_WRITER, text=f"{only.text}: {one.text}", alone=True)
