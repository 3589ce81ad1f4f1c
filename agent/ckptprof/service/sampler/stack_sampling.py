"""When Python stacks of which processes are sampled: while a file is written, and once after, within a CPU allowance.

A sample costs 10 to 15 ms of CPU, nearly all of it to find the interpreter in its library, and does not stop its
target. Until a save, `py-spy record` profiles one training thread of each job in turn, which shows what it did before:
all the time at first, and of rare saves later only while one is due. The first saves of a process are sampled in full;
of frequent saves over hours only some are. Of 669 recorded saves and restores none gets another limit, mode or stall
without the samples that came within a second of the sample before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from ckptprof.service.sampler.governor import Governor
from ckptprof.service.sampler.shares import CpuAllowance
from ckptprof.service.sampler.watched_process import AWAKE_AFTER_CHANGE_NS, WatchedProcess
from ckptprof_collectors.processes.python_stacks import DUMP, NAME, StackSampler, find_program
from ckptprof_collectors.processes.stack_profile import PROFILE
from ckptprof_collectors.samples import Sample, Unavailable

SAMPLE_OFFSETS_NS = (0, 900_000_000, 2_000_000_000, 5_000_000_000, 12_000_000_000, 30_000_000_000)
LATER_INTERVAL_NS = 60_000_000_000  # after those, in a save that lasts
PAUSE_NS = 800_000_000  # between the files of one save
CALM_SAMPLE_NS = 1_300_000_000  # after the last byte: the stack outside saves, to recognise the training loop
CALM_INTERVAL_NS = 15_000_000_000  # the stack outside saves is still that of the last sample
WRITES_NS = 150_000_000  # after an observed write the process counts as writing
SHARE = 0.001  # of a core, for one process,
SAVED_NS = 300_000_000  # and for its first saves
MAX_TARGETS = 8  # processes that are sampled in turn
PROFILE_SHARE = 0.004  # of a core, for profiles of the training threads of all jobs in turn,
PROFILE_SAVED_NS = 3_000_000_000  # and for the first minutes
_DUE_SHARE = 0.7  # of the shorter of its last two times between saves: from then on a save is due,
_RARE_NS = 60_000_000_000  # where that is longer; until then a profile shows the time since a save as well
_REVIEW_NS = 1_000_000_000  # between searches for a process to profile


@dataclass
class _ProfiledThread:
    profiled_ns: int = -1  # start of its last profile
    wrote_ns: int = 0
    between_ns: deque[int] = field(default_factory=lambda: deque(maxlen=2))  # its last saves

    def record_write(self, wrote_ns: int) -> None:
        """Record its last write, of a save that goes on or of a new one."""
        if self.wrote_ns and wrote_ns - self.wrote_ns > 2 * PAUSE_NS:
            self.between_ns.append(wrote_ns - self.wrote_ns)
        self.wrote_ns = max(self.wrote_ns, wrote_ns)

    def is_due(self, now_ns: int) -> bool:
        """Whether it may save soon, by its last saves."""
        shortest_ns = min(self.between_ns) if len(self.between_ns) == 2 else 0
        return shortest_ns < _RARE_NS or now_ns - self.wrote_ns >= _DUE_SHARE * shortest_ns


class _TargetState:
    def __init__(self, watching: WatchedProcess) -> None:
        self.watching = watching
        self.allowance = CpuAllowance(SHARE, SAVED_NS)
        self.calm_ns = -CALM_INTERVAL_NS


class _SaveSchedule:
    def __init__(self) -> None:
        self.since_ns: int | None = None  # start of the writing in progress
        self.last_ns = 0
        self.rounds = 0
        self.calm_ns: int | None = None  # when to sample them outside the save
        self.targets: tuple[int, ...] = ()
        self.queue: list[int] = []
        self.missed = 0  # samples that were due and not taken

    def record_write(self, now_ns: int, targets: list[int]) -> None:
        """Record that it is writing now."""
        if self.since_ns is None:
            self.since_ns, self.rounds, self.targets = now_ns, 0, ()
        self.last_ns = now_ns
        self.calm_ns = now_ns + CALM_SAMPLE_NS
        self.targets = tuple(dict.fromkeys((*self.targets, *targets)))[:MAX_TARGETS]

    def start_round_if_due(self, now_ns: int) -> None:
        """Queue the targets again if a round is due."""
        if self.since_ns is not None and now_ns - self.last_ns >= PAUSE_NS:
            self.since_ns = None
            self._requeue(())
        if self.since_ns is not None:
            if now_ns - self.since_ns >= _offset_ns(self.rounds):
                while now_ns - self.since_ns >= _offset_ns(self.rounds):
                    self.rounds += 1
                self._requeue(self.targets)
        elif self.calm_ns is not None and now_ns >= self.calm_ns:
            self.calm_ns = None
            self._requeue(self.targets)

    def _requeue(self, targets: Sequence[int]) -> None:
        self.missed += len(self.queue)
        self.queue = list(targets)

    @property
    def has_ended(self) -> bool:
        """No sample is left to be taken."""
        return self.since_ns is None and self.calm_ns is None and not self.queue


class StackSchedule:
    """Decides which process is sampled next: writers, and their ancestors that train."""

    def __init__(self) -> None:
        self._writings: dict[int, _SaveSchedule] = {}  # by the pid of the oldest process of a job
        self._targets: dict[int, _TargetState] = {}
        self._missed = 0  # in writings that have ended

    @property
    def missed(self) -> int:
        """Samples that were due and not taken: the CPU share was used up, or there were too many."""
        return self._missed + sum(writing.missed for writing in self._writings.values())

    def due(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess]
    ) -> list[WatchedProcess]:
        """Return the processes that are due, the most important first; call `record_sample` for the one sampled."""
        families: dict[int, list[WatchedProcess]] = {}
        for watching in bursting:
            if now_ns - watching.last_write_ns <= WRITES_NS:
                line = training_ancestors(watching, watched)
                if line:
                    families.setdefault(line[-1].process.pid, []).extend(line)
        for oldest, members in families.items():
            self._writings.setdefault(oldest, _SaveSchedule()).record_write(now_ns, _sampling_order(members))
        for oldest, writing in list(self._writings.items()):
            writing.start_round_if_due(now_ns)
            writing.queue = [pid for pid in writing.queue if self._is_worthwhile(now_ns, writing, pid, watched)]
            if writing.has_ended:
                self._missed += writing.missed
                del self._writings[oldest]
        queues = (writing.queue for writing in self._writings.values())
        turns = (pid for turn in zip_longest(*queues) for pid in turn if pid is not None)
        return [watched[pid] for pid in turns if self._targets[pid].allowance.left_ns(now_ns) > 0]

    def _is_worthwhile(self, now_ns: int, writing: _SaveSchedule, pid: int, watched: dict[int, WatchedProcess]) -> bool:
        """Return True if its CPU allowance is not used up; outside saves, only if its last such sample is old."""
        watching = watched.get(pid)
        if watching is None:
            return False
        target = self._targets.get(pid)
        if target is None or target.watching is not watching:
            self._targets = {one: state for one, state in self._targets.items() if one in watched}
            target = self._targets[pid] = _TargetState(watching)
        if writing.since_ns is not None or target.allowance.left_ns(now_ns) * 2 >= SAVED_NS:
            return True
        return now_ns - target.calm_ns >= CALM_INTERVAL_NS

    def record_sample(self, now_ns: int, pid: int) -> None:
        """Record that a sample was requested."""
        for writing in self._writings.values():
            if pid in writing.queue:
                writing.queue.remove(pid)
                if writing.since_ns is None:
                    self._targets[pid].calm_ns = now_ns

    def spend(self, pid: int, spent_ns: int) -> None:
        """Record the CPU time of a sample."""
        if pid in self._targets:
            self._targets[pid].allowance.spend(spent_ns)


class StackSampling(StackSchedule):
    """Takes samples when they are due, one process at a time."""

    def __init__(self, governor: Governor) -> None:
        super().__init__()
        self._governor = governor
        self._reader, self._profiler = (StackSampler(find_program(), command) for command in (DUMP, PROFILE))
        self._profile_allowance = CpuAllowance(PROFILE_SHARE, PROFILE_SAVED_NS)
        self._trainers: list[int] = []
        self._profiled: dict[int, _ProfiledThread] = {}  # by pid
        self._profiled_pid = self._profile_cost_ns = self._review_ns = 0
        self._sampled_pid = 0  # process of the last sample, whose cost is not accounted for yet
        self._paid_ns = 0

    def sample(
        self, now_ns: int, bursting: Sequence[WatchedProcess], watched: dict[int, WatchedProcess]
    ) -> list[Sample]:
        """Request the sample that is due, and return those that arrived; never waits."""
        if (cost_ns := self._reader.cost_ns) > self._paid_ns:
            self.spend(self._sampled_pid, cost_ns - self._paid_ns)
            self._paid_ns = cost_ns
        due = self.due(now_ns, bursting, watched) if self._reader.is_available else []
        for watching in due if due and self._governor.allows("stacks") else ():
            if self._reader.request(watching.process):
                self._sampled_pid = watching.process.pid
                self.record_sample(now_ns, watching.process.pid)
                break
        samples: list[Sample] = [*self._reader.consume(), *self._profiler.consume()]
        self._profile(now_ns, watched)
        if (reason := self._reader.consume_reason()) is not None:
            samples.append(Unavailable(NAME, reason))
        return samples

    def _profile(self, now_ns: int, watched: dict[int, WatchedProcess]) -> None:
        """Profile the training thread of one job; a profile ends with a save, whose preparation it shows."""
        profiler = self._profiler
        self._profile_allowance.spend(profiler.cost_ns - self._profile_cost_ns)
        self._profile_cost_ns = profiler.cost_ns
        if now_ns >= self._review_ns:
            self._review_ns = now_ns + _REVIEW_NS
            self._trainers = training_threads(now_ns, watched)
            kept = {pid: thread for pid, thread in self._profiled.items() if pid in watched}
            self._profiled = {pid: _ProfiledThread() for pid in self._trainers} | kept
        for pid in self._profiled.keys() & watched.keys():
            last_ns = [one.last_ns for one in self._writings.values() if pid in one.targets]
            self._profiled[pid].record_write(max([watched[pid].last_wrote_ns, *last_ns]))
        if profiler.busy:
            profiled = self._profiled.get(self._profiled_pid)
            if profiled is not None and profiled.profiled_ns < profiled.wrote_ns <= now_ns - PAUSE_NS:
                profiler.stop()
            return
        if not profiler.is_available or self._profile_allowance.left_ns(now_ns) <= 0:
            return
        due = [pid for pid in self._trainers if pid in watched and self._profiled[pid].is_due(now_ns)]
        for pid in sorted(due, key=lambda pid: self._profiled[pid].profiled_ns):
            if self._governor.allows("stacks") and profiler.request(watched[pid].process):
                self._profiled[pid].profiled_ns, self._profiled_pid = now_ns, pid
                return

    def close(self) -> None:
        """End the sampling threads."""
        self._profiler.stop()
        self._profiler.close()
        self._reader.close()


def _offset_ns(count: int) -> int:
    more = count - len(SAMPLE_OFFSETS_NS) + 1
    return SAMPLE_OFFSETS_NS[count] if more <= 0 else SAMPLE_OFFSETS_NS[-1] + more * LATER_INTERVAL_NS


def training_ancestors(writer: WatchedProcess, watched: dict[int, WatchedProcess]) -> list[WatchedProcess]:
    """Return the processes that run a framework among a writer and its ancestors, the oldest last."""
    line: dict[int, WatchedProcess] = {}
    watching: WatchedProcess | None = writer
    while watching is not None and watching.process.pid not in line:
        line[watching.process.pid] = watching
        watching = watched.get(watching.process.parent_pid)
    return [watching for watching in line.values() if watching.is_training and watching.is_interpreter]


def training_threads(now_ns: int, watched: dict[int, WatchedProcess]) -> list[int]:
    """Pids of the processes that train, one of each job: its lowest rank, or its oldest process that does not wait."""
    families: dict[int, list[WatchedProcess]] = {}
    for watching in watched.values():
        is_active = now_ns - watching.changed_ns < AWAKE_AFTER_CHANGE_NS
        if is_active and (line := training_ancestors(watching, watched)) and line[0] is watching:
            families.setdefault(line[-1].process.pid, []).append(watching)
    return [_sampling_order(members)[0] for members in families.values()]


def _sampling_order(members: list[WatchedProcess]) -> list[int]:
    """Pids in sampling order: lower ranks and older processes first; where there are ranks, launchers are left out."""
    ranks = {watching.process.pid: watching.rank for watching in members}
    if any(rank is not None for rank in ranks.values()):
        members = [watching for watching in members if ranks[watching.process.pid] is not None]
    members.sort(key=lambda watching: (ranks[watching.process.pid] or 0, watching.process.start_ticks))
    return [watching.process.pid for watching in members]
