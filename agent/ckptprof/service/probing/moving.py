"""Moving bytes and timing it: the loops of the probe, which do little else than the system call."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from errno import EDQUOT, EFBIG, ENOSPC
from time import perf_counter_ns

from ckptprof.diagnose.ceilings import Ended

FULL = frozenset((ENOSPC, EDQUOT, EFBIG))  # EFBIG: RLIMIT_FSIZE
_BLOCK_WORDS = 512  # of 8 bytes: 4 KiB, of which storage that finds duplicates looks at each
_STEADY_WINDOWS, _STEADY_SPREAD = 10, 0.03
_WINDOWS = 20  # in the time of one measure
_NS = 1_000_000_000


class Data:
    """A page-aligned buffer of random bytes, none of whose 4 KiB blocks is ever written twice: nothing to save on."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size)
        self._memory.write(os.urandom(size))
        self.view = memoryview(self._memory)
        self._marks = self.view.cast("Q")[::_BLOCK_WORDS]
        self._blocks = len(self._marks)
        self._number = int.from_bytes(os.urandom(7), "little")

    def renew(self) -> None:
        """Make every block differ from all before."""
        self._number += 1
        self._marks[:] = memoryview(array("Q", (self._number,)) * self._blocks)


@dataclass
class Limits:
    """When to stop."""

    seconds: float
    most_bytes: int
    halt: threading.Event
    steady: bool = True  # also as soon as the rate does not change any more


@dataclass
class Tally:
    """What was done, from `begin_ns` to `end_ns` of the monotonic clock."""

    begin_ns: int
    end_ns: int = 0
    moved_bytes: int = 0
    operations: int = 0
    ended: Ended = Ended.SIZE
    laps_ns: array[int] = field(default_factory=lambda: array("q"))

    @property
    def spent_ns(self) -> int:
        """Return how long it took."""
        return max(1, self.end_ns - self.begin_ns)


class _Steadiness:
    """Tells when the rates of the last windows lie close together."""

    def __init__(self, seconds: float, begin_ns: int) -> None:
        self._window_ns = round(seconds * _NS / _WINDOWS)
        self._since_ns, self._moved = begin_ns, 0
        self.due_ns = begin_ns + self._window_ns
        self._rates: list[float] = []

    def reached(self, now_ns: int, moved: int) -> bool:
        self._rates.append((moved - self._moved) / (now_ns - self._since_ns))
        self._since_ns, self._moved = now_ns, moved
        self.due_ns = now_ns + self._window_ns
        last = self._rates[-_STEADY_WINDOWS:]
        return len(last) == _STEADY_WINDOWS and max(last) - min(last) <= _STEADY_SPREAD * max(last)


def repeat(step: Callable[[int], int], offsets: Iterable[int], operation_bytes: int, limits: Limits) -> Tally:
    """Call `step` with one offset after the other until a limit is met; it returns the bytes that it moved.

    Raises OSError, but a full file system ends what has begun.
    """
    begin = at = perf_counter_ns()
    tally = Tally(begin)
    deadline = begin + round(limits.seconds * _NS)
    steadiness = _Steadiness(limits.seconds, begin)
    window_ns = steadiness.due_ns if limits.steady else deadline + 1
    moved, most, is_set, note = 0, limits.most_bytes - operation_bytes, limits.halt.is_set, tally.laps_ns.append
    try:
        for offset in offsets:
            if moved > most:
                break
            done = step(offset)
            now = perf_counter_ns()
            note(now - at)
            at = now
            moved += done
            if now >= window_ns:
                if steadiness.reached(now, moved):
                    tally.ended = Ended.STEADY
                    break
                window_ns = steadiness.due_ns
            if now >= deadline or is_set():
                tally.ended = Ended.STOPPED if is_set() else Ended.TIME
                break
            if done < operation_bytes:  # nobody interrupts a regular file's: it is about to be full, or at its end
                tally.ended = Ended.FULL
                break
    except OSError as error:
        if error.errno not in FULL or not moved:
            raise
        tally.ended = Ended.FULL
    tally.end_ns, tally.moved_bytes, tally.operations = perf_counter_ns(), moved, len(tally.laps_ns)
    return tally


def write(fd: int, operation_bytes: int, limits: Limits, offsets: Iterable[int] | None = None) -> Tally:
    """Write one operation after the other, in order unless offsets are given, and fsync; raises OSError."""
    data = Data(operation_bytes)
    view, renew, pwrite = data.view, data.renew, os.pwrite

    def step(offset: int) -> int:
        renew()
        return pwrite(fd, view, offset)

    in_order = itertools.count(0, operation_bytes)
    tally = repeat(step, in_order if offsets is None else offsets, operation_bytes, limits)
    os.fsync(fd)
    tally.end_ns = perf_counter_ns()
    return tally


def write_and_sync(fd: int, operation_bytes: int, limits: Limits) -> Tally:
    """Append one operation after the other, with an fsync after each; raises OSError."""
    data = Data(operation_bytes)

    def step(offset: int) -> int:
        data.renew()
        done = os.pwrite(fd, data.view, offset)
        os.fsync(fd)
        return done

    return repeat(step, itertools.count(0, operation_bytes), operation_bytes, limits)


def read(fd: int, operation_bytes: int, offsets: Iterable[int], limits: Limits) -> Tally:
    """Read one operation after the other; raises OSError."""
    into = (memoryview(mmap.mmap(-1, operation_bytes)),)
    preadv = os.preadv
    return repeat(lambda offset: preadv(fd, into, offset), offsets, operation_bytes, limits)


def read_mapped(fd: int, size: int, operation_bytes: int, limits: Limits) -> Tally:
    """Copy out of a mapping of the file, so that each page comes in by a fault; raises OSError."""
    into = memoryview(mmap.mmap(-1, operation_bytes))
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapping, memoryview(mapping) as pages:

        def step(offset: int) -> int:
            with pages[offset : offset + operation_bytes] as part:
                into[: len(part)] = part
                return len(part)

        return repeat(step, range(0, size - operation_bytes + 1, operation_bytes), operation_bytes, limits)


def side_by_side(works: list[Callable[[], Tally]]) -> Tally:
    """Do all of it at once, a thread each, and return the sum from the first begin to the last end; raises OSError."""
    if len(works) == 1:
        return works[0]()
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], Tally]) -> Tally:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works), thread_name_prefix="probe") as pool:
        tallies = [future.result() for future in [pool.submit(begin, work) for work in works]]
    endings = {tally.ended for tally in tallies}
    whole = Tally(min(tally.begin_ns for tally in tallies), max(tally.end_ns for tally in tallies))
    whole.ended = next(ending for ending in reversed(Ended) if ending in endings)  # the worst
    for tally in tallies:
        whole.moved_bytes += tally.moved_bytes
        whole.operations += tally.operations
        whole.laps_ns.extend(tally.laps_ns)
    return whole
