"""An ended candidate with its context, as the signals read it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from heapq import nlargest

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_history import HistoryEvent, shape_of
from ckptprof.detect.events.grouping import LOOSE_GAP_NS
from ckptprof.detect.tolerances import AT_ONCE_NS, CONCURRENT_NS, FEW, MAX_PER_ITEM, MOST_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.frameworks import file_names
from ckptprof.frameworks.framework_table import BY_NAME


class EventContext:
    """A candidate with its context; each property is computed when first used."""

    def __init__(self, candidate: Candidate, known: Knowledge) -> None:
        """Wrap a candidate that receives no more parts."""
        self.candidate = candidate
        self.known = known
        self.world = known.world
        self.job, self.writes, self.parts = candidate.job, candidate.writes, candidate.parts
        self.start_ns, self.end_ns = candidate.start_ns, candidate.end_ns
        self.processes = candidate.processes
        self.first_processes = self.processes[:MAX_PER_ITEM]
        self.bytes = candidate.bytes
        # shared by several signals, once computed
        self.counterparts: list[Transfer] | None = None  # concurrent transfers in the other direction
        self.reads_even_pieces: bool | None = None

    def holds_for_most_bytes(self, predicate: Callable[[Transfer], object]) -> bool:
        """Return True if the predicate is true for at least half of the bytes."""
        return sum(part.bytes for part in self.parts if predicate(part)) * 2 >= self.bytes

    @cached_property
    def largest_parts(self) -> list[Transfer]:
        """The parts with most bytes."""
        return largest_parts_of(self.candidate)

    @cached_property
    def largest_paths(self) -> list[str]:
        """The paths of the first few of them."""
        return [part.path for part in self.largest_parts[:FEW]]

    @cached_property
    def shapes(self) -> frozenset[str]:
        """The shapes of these paths, shared with the saves before and after."""
        return frozenset(map(shape_of, self.largest_paths))

    @cached_property
    def series(self) -> list[HistoryEvent]:
        """Earlier events of its job in its direction with a file of the same shape, oldest first."""
        return self.known.history.series(self.job, self.shapes, writes=self.writes)

    @property
    def framework(self) -> str | None:
        """The framework of its file names."""
        return framework_of(self.candidate, self.known)

    @property
    def has_weak_name(self) -> bool:
        """Whether data sets have such names as well."""
        return is_weak_framework(self.framework)

    @cached_property
    def has_word_or_step(self) -> bool:
        """Whether a word or a step in its names distinguishes it from data."""
        return self.holds_for_most_bytes(lambda part: part.name.hint or part.name.is_certain)

    @cached_property
    def is_named_as_result(self) -> bool:
        """Whether its name is that of a model's result, not of its state."""
        return self.holds_for_most_bytes(lambda part: part.name.model_output)

    @cached_property
    def is_rotated(self) -> bool:
        """Whether its job deleted older files of these shapes."""
        return self.known.history.rotated_count(self.job, self.shapes) > 0

    @cached_property
    def has_rank(self) -> bool:
        """Whether a launcher of training jobs started one of its processes."""
        return any(self.world.jobs.rank(process) is not None for process in self.processes)

    @cached_property
    def is_training(self) -> bool:
        """Whether one of its processes has a library for training loaded, holds a GPU, or carries a rank."""
        return self.world.trains(self.producers)

    @cached_property
    def producers(self) -> list[ProcessKey]:
        """Its processes; in place of one that only carries, the one that wrote its staging files, or feeds its pipe."""
        makers = {one.process: one.staging_file.process for one in self.parts if one.staging_file is not None}
        own = [makers.get(one) or self._pipe_source(one) or one for one in self.processes] if self.writes else None
        return own or self.processes

    def _pipe_source(self, process: ProcessKey) -> ProcessKey | None:
        """Return who started a process, if it wrote as much to no file at that time, and the process read it."""
        asked, own = self.known.bytes_outside_files, {part.file for part in self.parts}
        span = self.start_ns - CONCURRENT_NS, self.end_ns + AT_ONCE_NS
        for maker in self.world.starters(process):
            piped = (asked(one, span, writes=one == maker, but=own) for one in (maker, process))
            if min(piped) >= MOST_SHARE * self.bytes:
                return maker
        return None

    @cached_property
    def own_files(self) -> set[FileKey]:
        """Its files, their staging files, and those that its processes wrote just before or during it."""
        own = {part.file for part in self.parts} | {
            part.staging_file.file for part in self.parts if part.staging_file is not None
        }
        if self.writes:
            written = self.transfers_between(self.start_ns - LOOSE_GAP_NS, self.end_ns, writes=True)
            own.update(one.file for one in written)
        return own

    def transfers_between(self, start_ns: int, end_ns: int, *, writes: bool) -> list[Transfer]:
        """Return the recent transfers of its processes in a span of time."""
        recent, processes = self.known.transfers.recent, self.first_processes
        return [one for key in processes for one in recent.transfers_between(key, start_ns, end_ns, writes=writes)]

    @cached_property
    def memory_bytes(self) -> int:
        """The anonymous memory of its processes, or of what forked them, during it; 0: not sampled."""
        usage, span = self.world.usage, (self.start_ns, self.end_ns)
        changes = (usage.memory_changes(one, *span) for one in set(map(self.world.jobs.rank_process, self.processes)))
        return sum(max((change.level_bytes for change in one), default=0) for one in changes)

    def is_made_by_others(self, path: str) -> bool:
        """Return True if other processes wrote a file: another program, or some that still run. Of a save no data."""
        author, world = self.known.history.author_of(path), self.world
        if author is None or (self.writes and author.is_rejected) or author.authors & self.history_event.authors:
            return False
        living = (one for one in author.authors if world.ended.get(one, self.start_ns) >= self.start_ns)
        is_alive = any(world.jobs.info(one) is not None for one in living)
        return is_alive or author.programs.isdisjoint(world.programs(self.processes))

    @cached_property
    def history_event(self) -> HistoryEvent:
        """Its entry in the history."""
        return HistoryEvent(
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            bytes=self.bytes,
            shapes=self.shapes,
            paths=frozenset(part.path for part in self.largest_parts),
            processes=frozenset(self.processes),
            programs=self.world.programs(self.processes),
            authors=frozenset((*self.processes, *self.producers)),
        )


def largest_parts_of(candidate: Candidate) -> list[Transfer]:
    """Return the parts with most bytes."""
    return nlargest(MAX_PER_ITEM, candidate.parts, key=lambda part: part.bytes)


def framework_of(candidate: Candidate, known: Knowledge) -> str | None:
    """Return the framework of a candidate's file names."""
    if candidate.framework is None:
        files = (
            (part.path, part.bytes, part.fact.magic if part.fact else None) for part in largest_parts_of(candidate)
        )
        candidate.framework = (file_names.identify_framework(files, known.world.programs(candidate.processes)),)
    return candidate.framework[0]


def is_weak_framework(framework: str | None) -> bool:
    """Return True if data sets have such names as well, or there is no framework."""
    return framework is None or BY_NAME[framework].weak
