"""When to look at whose Python stacks: only while a file is written, and once after.

A look costs 10 to 15 ms of CPU and does not stop its target (benchmarks/stacks_cost.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ckptprof.service.watching import Watching
from ckptprof_collectors.pystacks import NAME, StackLooker, find_program
from ckptprof_collectors.samples import Sample, Unavailable

LOOKS_NS = (0, 150_000_000, 400_000_000, 900_000_000, 2_000_000_000, 5_000_000_000, 12_000_000_000, 30_000_000_000)
LATER_NS = 60_000_000_000  # after those, in a save that lasts
PAUSE_NS = 800_000_000  # between the files of one save
CALM_NS = 1_300_000_000  # after the last byte: what it does when it saves nothing, to tell its loop from a save
WRITES_NS = 150_000_000  # so long after it was seen writing it still is
MAX_PER_MINUTE = 40  # of all processes: under 1 % of a core
MAX_TARGETS = 8  # processes that are looked at in turn
_MINUTE_NS = 60_000_000_000
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JAX_PROCESS_ID")


class StackLooks:
    """Decides who is to be looked at next: those who write, and their parents, who may be those that train."""

    def __init__(self) -> None:
        """Start with nobody writing."""
        self._since_ns: int | None = None  # when the writing that goes on began
        self._last_ns = 0
        self._rounds = 0
        self._calm_ns: int | None = None  # when to look at them in peace
        self._targets: tuple[int, ...] = ()
        self._queue: list[int] = []
        self._looks: deque[int] = deque(maxlen=MAX_PER_MINUTE)

    def due(self, now_ns: int, watched: dict[int, Watching]) -> list[Watching]:
        """Return those who wait to be looked at, the most important first; take one and say `looked`."""
        writers = [watching for watching in watched.values() if now_ns - watching.wrote_ns <= WRITES_NS]
        if writers:
            self._write(now_ns, _targets(writers, watched))
        elif self._since_ns is not None and now_ns - self._last_ns >= PAUSE_NS:
            self._since_ns = None
            self._queue = []
        self._fill(now_ns)
        if not self._queue or (len(self._looks) == MAX_PER_MINUTE and now_ns - self._looks[0] < _MINUTE_NS):
            return []
        return [watched[pid] for pid in self._queue if pid in watched]

    def _write(self, now_ns: int, targets: Iterable[int]) -> None:
        if self._since_ns is None:
            self._since_ns, self._rounds, self._targets = now_ns, 0, ()
        self._last_ns = now_ns
        self._calm_ns = now_ns + CALM_NS
        self._targets = tuple(dict.fromkeys((*self._targets, *targets)))[:MAX_TARGETS]

    def _fill(self, now_ns: int) -> None:
        if self._since_ns is not None:
            if now_ns - self._since_ns >= _offset_ns(self._rounds):
                while now_ns - self._since_ns >= _offset_ns(self._rounds):
                    self._rounds += 1
                self._queue = list(self._targets)
        elif self._calm_ns is not None and now_ns >= self._calm_ns:
            self._calm_ns = None
            self._queue = list(self._targets)

    def looked(self, now_ns: int, pid: int) -> None:
        """Take note that a look was asked for."""
        self._looks.append(now_ns)
        self._queue.remove(pid)


class Stacks:
    """Looks when it is due, one process at a time."""

    def __init__(self) -> None:
        """Find py-spy."""
        self._looks = StackLooks()
        self._looker = StackLooker(find_program())

    def look(self, now_ns: int, watched: dict[int, Watching]) -> list[Sample]:
        """Ask for what is due and return what was seen; never waits."""
        for watching in self._looks.due(now_ns, watched):
            if self._looker.ask(watching.process):
                self._looks.looked(now_ns, watching.process.pid)
                break
        samples: list[Sample] = list(self._looker.take())
        if (reason := self._looker.take_reason()) is not None:
            samples.append(Unavailable(NAME, reason))
        return samples

    def close(self) -> None:
        """End the thread that looks."""
        self._looker.close()


def _offset_ns(count: int) -> int:
    more = count - len(LOOKS_NS) + 1
    return LOOKS_NS[count] if more <= 0 else LOOKS_NS[-1] + more * LATER_NS


def _targets(writers: list[Watching], watched: dict[int, Watching]) -> list[int]:
    """Return those of the writers and their forebears that run a framework, lower ranks and elder ones first."""
    found: dict[int, Watching] = {}
    for writer in writers:
        watching: Watching | None = writer
        while watching is not None and watching.process.pid not in found:
            found[watching.process.pid] = watching
            watching = watched.get(watching.process.parent_pid)
    if not any(watching.trains for watching in found.values()):  # a daemon of nobody's
        found.update(watched)
    trainers = [watching for watching in found.values() if watching.trains and watching.interpreter]
    trainers.sort(key=lambda watching: (_rank(watching), watching.process.start_ticks))
    return [watching.process.pid for watching in trainers]


def _rank(watching: Watching) -> int:
    environment = watching.info.environment if watching.info is not None else {}
    values = (environment.get(name, "") for name in _RANKS)
    return next((int(value) for value in values if value.isascii() and value.isdigit()), 0)
