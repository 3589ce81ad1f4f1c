"""When to look at whose Python stacks: only while a file is written, and once after, within an allowance of CPU time.

A look costs 10 to 15 ms of CPU, nearly all of it to find the interpreter in its library, and does not stop its target.
The first saves of a process are looked at in full; of one that saves every few seconds for hours not every save. Of 669
recorded saves and restores none has another limit, mode or stall without the looks that came within a second of the
look before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from ckptprof.service.sampler.shares import Allowance
from ckptprof.service.sampler.watching import Watching
from ckptprof_collectors.processes.pystacks import NAME, StackLooker, find_program
from ckptprof_collectors.samples import Sample, Unavailable

LOOKS_NS = (0, 900_000_000, 2_000_000_000, 5_000_000_000, 12_000_000_000, 30_000_000_000)
LATER_NS = 60_000_000_000  # after those, in a save that lasts
PAUSE_NS = 800_000_000  # between the files of one save
CALM_NS = 1_300_000_000  # after the last byte: what it does when it saves nothing, to tell its loop from a save
CALM_AGAIN_NS = 15_000_000_000  # it does the same as after the save before
WRITES_NS = 150_000_000  # so long after it was seen writing it still is
SHARE = 0.001  # of a core, for one process,
SAVED_NS = 300_000_000  # and for its first saves
HOST_SHARE = 0.004
HOST_SAVED_NS = 600_000_000
MAX_TARGETS = 8  # processes that are looked at in turn
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JAX_PROCESS_ID")


class _Sight:
    def __init__(self, watching: Watching) -> None:
        self.watching = watching
        self.allowance = Allowance(SHARE, SAVED_NS)
        self.calm_ns = -CALM_AGAIN_NS


class _Writing:
    def __init__(self) -> None:
        self.since_ns: int | None = None  # when the writing that goes on began
        self.last_ns = 0
        self.rounds = 0
        self.calm_ns: int | None = None  # when to look at them in peace
        self.targets: tuple[int, ...] = ()
        self.queue: list[int] = []
        self.missed = 0  # looks that were due and not taken

    def writes(self, now_ns: int, targets: list[int]) -> None:
        """Take note that it is writing."""
        if self.since_ns is None:
            self.since_ns, self.rounds, self.targets = now_ns, 0, ()
        self.last_ns = now_ns
        self.calm_ns = now_ns + CALM_NS
        self.targets = tuple(dict.fromkeys((*self.targets, *targets)))[:MAX_TARGETS]

    def fill(self, now_ns: int) -> None:
        """Begin a round if one is due."""
        if self.since_ns is not None and now_ns - self.last_ns >= PAUSE_NS:
            self.since_ns = None
            self._renew(())
        if self.since_ns is not None:
            if now_ns - self.since_ns >= _offset_ns(self.rounds):
                while now_ns - self.since_ns >= _offset_ns(self.rounds):
                    self.rounds += 1
                self._renew(self.targets)
        elif self.calm_ns is not None and now_ns >= self.calm_ns:
            self.calm_ns = None
            self._renew(self.targets)

    def _renew(self, targets: Sequence[int]) -> None:
        self.missed += len(self.queue)
        self.queue = list(targets)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be looked at."""
        return self.since_ns is None and self.calm_ns is None and not self.queue


class StackLooks:
    """Decides who is to be looked at next: those who write, and their parents, who may be those that train."""

    def __init__(self) -> None:
        self._writings: dict[int, _Writing] = {}  # by the pid of the oldest process of a job
        self._sights: dict[int, _Sight] = {}
        self._allowance = Allowance(HOST_SHARE, HOST_SAVED_NS)
        self._missed = 0  # in writings that are over

    @property
    def missed(self) -> int:
        """How many looks were due, and were not taken: they had cost their share already, or there were too many."""
        return self._missed + sum(writing.missed for writing in self._writings.values())

    def due(self, now_ns: int, bursting: Sequence[Watching], watched: dict[int, Watching]) -> list[Watching]:
        """Return those who wait to be looked at, the most important first; take one and say `looked`."""
        families: dict[int, list[Watching]] = {}
        for watching in bursting:
            if now_ns - watching.wrote_ns <= WRITES_NS:
                line = line_of(watching, watched)
                if line:
                    families.setdefault(line[-1].process.pid, []).extend(line)
        for oldest, members in families.items():
            self._writings.setdefault(oldest, _Writing()).writes(now_ns, _in_order(members))
        for oldest, writing in list(self._writings.items()):
            writing.fill(now_ns)
            writing.queue = [pid for pid in writing.queue if self._is_of_use(now_ns, writing, pid, watched)]
            if writing.is_over:
                self._missed += writing.missed
                del self._writings[oldest]
        if not self._writings or self._allowance.left_ns(now_ns) <= 0:
            return []
        queues = (writing.queue for writing in self._writings.values())
        turns = (pid for turn in zip_longest(*queues) for pid in turn if pid is not None)
        return [watched[pid] for pid in turns if self._sights[pid].allowance.left_ns(now_ns) > 0]

    def _is_of_use(self, now_ns: int, writing: _Writing, pid: int, watched: dict[int, Watching]) -> bool:
        """Return whether a look at one that waits for it is worth its price: in peace it does what it did just now."""
        watching = watched.get(pid)
        if watching is None:
            return False
        sight = self._sights.get(pid)
        if sight is None or sight.watching is not watching:
            self._sights = {one: kept for one, kept in self._sights.items() if one in watched}
            sight = self._sights[pid] = _Sight(watching)
        if writing.since_ns is not None or sight.allowance.left_ns(now_ns) * 2 >= SAVED_NS:
            return True
        return now_ns - sight.calm_ns >= CALM_AGAIN_NS

    def looked(self, now_ns: int, pid: int) -> None:
        """Take note that a look was asked for."""
        for writing in self._writings.values():
            if pid in writing.queue:
                writing.queue.remove(pid)
                if writing.since_ns is None:
                    self._sights[pid].calm_ns = now_ns

    def spend(self, pid: int, spent_ns: int) -> None:
        """Take note of the CPU time that a look at a process has cost."""
        self._allowance.spend(spent_ns)
        if pid in self._sights:
            self._sights[pid].allowance.spend(spent_ns)


class Stacks(StackLooks):
    """Looks when it is due, one process at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._looker = StackLooker(find_program())
        self._looked_at = 0  # whose look the cost is of that is not accounted for yet
        self._paid_ns = 0

    def look(self, now_ns: int, bursting: Sequence[Watching], watched: dict[int, Watching]) -> list[Sample]:
        """Ask for what is due and return what was seen; never waits."""
        if (cost_ns := self._looker.cost_ns) > self._paid_ns:
            self.spend(self._looked_at, cost_ns - self._paid_ns)
            self._paid_ns = cost_ns
        due = self.due(now_ns, bursting, watched) if self._looker.can_look else []
        for watching in due:
            if self._looker.ask(watching.process):
                self._looked_at = watching.process.pid
                self.looked(now_ns, watching.process.pid)
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


def line_of(writer: Watching, watched: dict[int, Watching]) -> list[Watching]:
    """Return the processes that run a framework among a writer and its ancestors, the oldest last."""
    found: dict[int, Watching] = {}
    watching: Watching | None = writer
    while watching is not None and watching.process.pid not in found:
        found[watching.process.pid] = watching
        watching = watched.get(watching.process.parent_pid)
    return [watching for watching in found.values() if watching.trains and watching.interpreter]


def _in_order(members: list[Watching]) -> list[int]:
    """Return their pids, lower ranks and elder ones first; where there are ranks, whoever has none but launches."""
    ranks = {watching.process.pid: rank_of(watching) for watching in members}
    if any(rank is not None for rank in ranks.values()):
        members = [watching for watching in members if ranks[watching.process.pid] is not None]
    members.sort(key=lambda watching: (ranks[watching.process.pid] or 0, watching.process.start_ticks))
    return [watching.process.pid for watching in members]


def rank_of(watching: Watching) -> int | None:
    """Return the rank that its environment gives it."""
    environment = watching.info.environment if watching.info is not None else {}
    values = (environment.get(name, "") for name in _RANKS)
    return next((int(value) for value in values if value.isascii() and value.isdigit()), None)
