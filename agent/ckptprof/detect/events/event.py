"""An ended candidate with its context, as the signals read it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from heapq import nlargest

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.grouping import LOOSE_GAP_NS
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import PastEvent, shape_of
from ckptprof.detect.tolerances import BESIDE_NS, FEW, MAX_EACH, MOST_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.frameworks import names
from ckptprof.frameworks.table import BY_NAME


class Event:
    """A candidate with its context; each property is computed when first used."""

    def __init__(self, candidate: Candidate, known: Knowledge) -> None:
        """Wrap a candidate that receives no more parts."""
        self.candidate = candidate
        self.known = known
        self.world = known.world
        self.job, self.writes, self.parts = candidate.job, candidate.writes, candidate.parts
        self.start_ns, self.end_ns = candidate.start_ns, candidate.end_ns
        self.processes = candidate.processes
        self.first_processes = self.processes[:MAX_EACH]
        self.bytes = candidate.bytes
        # shared by several signals, once computed
        self.counterparts: list[Transfer] | None = None  # concurrent transfers in the other direction
        self.reads_even_pieces: bool | None = None

    def mostly(self, is_such: Callable[[Transfer], object]) -> bool:
        """Return whether a predicate is true for at least half of the bytes."""
        return sum(part.bytes for part in self.parts if is_such(part)) * 2 >= self.bytes

    @cached_property
    def largest(self) -> list[Transfer]:
        """The parts with most bytes."""
        return largest(self.candidate)

    @cached_property
    def biggest(self) -> list[str]:
        """The paths of the first few of them."""
        return [part.path for part in self.largest[:FEW]]

    @cached_property
    def shapes(self) -> frozenset[str]:
        """The shapes of these paths, shared with the saves before and after."""
        return frozenset(map(shape_of, self.biggest))

    @cached_property
    def series(self) -> list[PastEvent]:
        """Earlier events of its job in its direction with a file of the same shape, oldest first."""
        return self.known.past.series(self.job, self.shapes, writes=self.writes)

    @property
    def framework(self) -> str | None:
        """The framework of its file names."""
        return framework_of(self.candidate, self.known)

    @property
    def is_weak(self) -> bool:
        """Whether data sets have such names as well."""
        return is_weak(self.framework)

    @cached_property
    def is_called(self) -> bool:
        """Whether a word or a step in its names distinguishes it from data."""
        return self.mostly(lambda part: part.name.hint or part.name.certain)

    @cached_property
    def is_yielded(self) -> bool:
        """Whether its name is that of a model's result, not of its state."""
        return self.mostly(lambda part: part.name.yielded)

    @cached_property
    def is_rotated(self) -> bool:
        """Whether its job deleted older files of these shapes."""
        return self.known.past.rotated(self.job, self.shapes) > 0

    @cached_property
    def has_rank(self) -> bool:
        """Whether a launcher of training jobs started one of its processes."""
        return any(self.world.jobs.rank(process) is not None for process in self.processes)

    @cached_property
    def trains(self) -> bool:
        """Whether one of its processes has a library for training loaded, holds a GPU, or carries a rank."""
        return self.world.trains(self.processes)

    @cached_property
    def makers(self) -> list[ProcessKey]:
        """Its processes; in place of a tool that only passes on its standard input, the process that feeds the pipe."""
        return [self._fed_by(process) or process for process in self.processes] if self.writes else self.processes

    def _fed_by(self, process: ProcessKey) -> ProcessKey | None:
        """Return the parent of a tool, if it wrote as much to no file meanwhile, and the tool read none."""
        jobs, known = self.world.jobs, self.known.transfers.recent
        parent = jobs.parent(process)
        if parent is None or not jobs.is_mover(process) or not self.world.saves_itself(parent):
            return None
        span = self.start_ns - BESIDE_NS, self.end_ns
        given = sum(one.written_bytes for one in self.world.histories[parent].between(*span))
        given -= sum(one.used_size for one in known.moved(parent, *span, writes=True))
        read = sum(one.used_size for one in known.moved(process, *span, writes=False))
        return parent if given - read >= MOST_SHARE * self.bytes else None

    @cached_property
    def own_files(self) -> set[FileKey]:
        """Its files, their staging files, and those that its processes wrote just before or during it."""
        own = {part.file for part in self.parts} | {part.staged.file for part in self.parts if part.staged is not None}
        if self.writes:
            for process in self.first_processes:
                lately = self.known.transfers.recent.moved(
                    process, self.start_ns - LOOSE_GAP_NS, self.end_ns, writes=True
                )
                own.update(move.file for move in lately)
        return own

    @cached_property
    def remembered(self) -> PastEvent:
        """Its entry in the history."""
        return PastEvent(
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            bytes=self.bytes,
            shapes=self.shapes,
            paths=frozenset(part.path for part in self.largest),
            processes=frozenset(self.processes),
            programs=self.world.programs(self.processes),
        )


def largest(candidate: Candidate) -> list[Transfer]:
    """Return the parts with most bytes."""
    return nlargest(MAX_EACH, candidate.parts, key=lambda part: part.bytes)


def framework_of(candidate: Candidate, known: Knowledge) -> str | None:
    """Return the framework of a candidate's file names."""
    if candidate.framework is None:
        files = ((part.path, part.bytes, part.fact.magic if part.fact else None) for part in largest(candidate))
        candidate.framework = (names.framework_of(files, known.world.programs(candidate.processes)),)
    return candidate.framework[0]


def is_weak(framework: str | None) -> bool:
    """Return whether data sets have such names as well; no framework is weak too."""
    return framework is None or BY_NAME[framework].weak
