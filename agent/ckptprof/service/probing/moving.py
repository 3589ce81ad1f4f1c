"""Moving bytes and timing it: the loops of the probe, which do little else than the system call."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from errno import EDQUOT, EFBIG, ENOSPC
from time import perf_counter_ns

from ckptprof.diagnose.ceilings import FULL, SIZE, STOPPED, TIME

IS_FULL = frozenset((ENOSPC, EDQUOT, EFBIG))  # EFBIG: RLIMIT_FSIZE
STEP = 1 << 20  # bytes of an operation
_BLOCK_WORDS = 512  # of 8 bytes: 4 KiB, of which storage that finds duplicates looks at each
_NS = 1_000_000_000
_WORST_FIRST = (STOPPED, FULL, TIME, SIZE)


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


@dataclass
class Tally:
    """What was done, from `begin_ns` to `end_ns` of the monotonic clock."""

    begin_ns: int
    end_ns: int = 0
    moved_bytes: int = 0
    ended: str = SIZE

    @property
    def spent_ns(self) -> int:
        """How long it took."""
        return max(1, self.end_ns - self.begin_ns)


def repeat(step: Callable[[int], int], offsets: Iterable[int], limits: Limits) -> Tally:
    """Call `step` with one offset after the other until a limit is met; it returns the bytes that it moved.

    Raises OSError, but a full file system ends what has begun.
    """
    tally = Tally(perf_counter_ns())
    deadline = tally.begin_ns + round(limits.seconds * _NS)
    try:
        for offset in offsets:
            if tally.moved_bytes > limits.most_bytes - STEP:
                break
            done = step(offset)
            tally.moved_bytes += done
            if limits.halt.is_set() or perf_counter_ns() >= deadline:
                tally.ended = STOPPED if limits.halt.is_set() else TIME
                break
            if done < STEP:  # nobody interrupts a regular file's: it is about to be full, or at its end
                tally.ended = FULL
                break
    except OSError as error:
        if error.errno not in IS_FULL or not tally.moved_bytes:
            raise
        tally.ended = FULL
    tally.end_ns = perf_counter_ns()
    return tally


def write(fd: int, limits: Limits) -> Tally:
    """Write in order, and fsync; raises OSError."""
    data = Data(STEP)

    def step(offset: int) -> int:
        data.renew()
        return os.pwrite(fd, data.view, offset)

    tally = repeat(step, itertools.count(0, STEP), limits)
    os.fsync(fd)
    tally.end_ns = perf_counter_ns()
    return tally


def read(fd: int, offsets: Iterable[int], limits: Limits) -> Tally:
    """Read one operation after the other; raises OSError."""
    into = (memoryview(mmap.mmap(-1, STEP)),)
    return repeat(lambda offset: os.preadv(fd, into, offset), offsets, limits)


def side_by_side(works: list[Callable[[], Tally]]) -> Tally:
    """Do all of it at once, a thread each, and return the sum from the first begin to the last end; raises OSError."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], Tally]) -> Tally:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works), thread_name_prefix="probe") as pool:
        tallies = [future.result() for future in [pool.submit(begin, work) for work in works]]
    return Tally(
        min(tally.begin_ns for tally in tallies),
        max(tally.end_ns for tally in tallies),
        sum(tally.moved_bytes for tally in tallies),
        min((tally.ended for tally in tallies), key=_WORST_FIRST.index),
    )
