"""From streams to candidates: the files that would be one save or one restore, if it is one at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.streams import ProcessKey, Stream
from ckptprof.frameworks.names import Name, read_name

LOOSE_GAP_NS = 1_000_000_000  # between files that only their folder joins
NUMBERED_GAP_NS = (
    150_000_000  # between files that differ in a number of unknown meaning: parts follow at once, steps do not
)
CERTAIN_GAP_NS = 10_000_000_000  # between files whose names say that they belong together: gather, barriers
ASIDE_BYTES = 64 << 10
JOIN_GAP_NS = 2_000_000_000  # between folders that were written in one go


@dataclass(slots=True)
class Part:
    """A stream with its edges, and what its name says. Times are CLOCK_MONOTONIC."""

    stream: Stream
    name: Name
    start_ns: int
    end_ns: int
    bytes: int
    temporary: bool = False  # traced, and its name is not the last one: a rename may follow
    staged: Stream | None = None  # the file elsewhere that it was written to first, to be copied from there


@dataclass(slots=True)
class Candidate:
    """What may be one checkpoint; it has at least one part before it is asked anything."""

    job: str
    writes: bool
    parts: list[Part] = field(default_factory=list)
    start_ns: int = 0  # the first edge of its parts
    end_ns: int = 0  # the last one
    steps: set[int] = field(default_factory=set)  # that its names say
    _written: set[tuple[ProcessKey, str]] = field(default_factory=set)

    def add(self, part: Part) -> None:
        """Add a part."""
        self.start_ns = min(self.start_ns, part.start_ns) if self.parts else part.start_ns
        self.end_ns = max(self.end_ns, part.end_ns) if self.parts else part.end_ns
        self.parts.append(part)
        if part.name.step is not None:
            self.steps.add(part.name.step)
        if part.stream.writes:
            self._written.add((part.stream.process, part.stream.path))

    def has(self, part: Part) -> bool:
        """Return whether the part's process wrote the part's file in it already."""
        return (part.stream.process, part.stream.path) in self._written

    @property
    def step(self) -> int | None:
        """The step that its names say, if they agree."""
        return next(iter(self.steps)) if len(self.steps) == 1 else None

    @property
    def unit(self) -> str:
        """What its files share by name."""
        return self.parts[0].name.unit

    @property
    def processes(self) -> list[ProcessKey]:
        """The processes that moved its bytes, in order of appearance."""
        return list(dict.fromkeys(part.stream.process for part in self.parts))


def group(job: str, parts: list[Part]) -> list[Candidate]:
    """Split the parts of one job and one direction into candidates."""
    made: list[Candidate] = []
    by_unit: dict[str, list[Candidate]] = {}
    for part in sorted(parts, key=lambda part: (part.start_ns, part.end_ns)):
        alike = by_unit.setdefault(part.name.unit, [])
        for candidate in reversed(alike):
            if _belongs(candidate, part):
                candidate.add(part)
                break
        else:
            begun = Candidate(job, part.stream.writes)
            begun.add(part)
            alike.append(begun)
            made.append(begun)
    return _joined(made)


def _belongs(candidate: Candidate, part: Part) -> bool:
    """Return whether a part is one of a candidate's, of the same unit."""
    if part.stream.writes and candidate.has(part):  # rewritten
        return False
    gap_ns = part.start_ns - candidate.end_ns
    steps = candidate.steps
    if part.name.step is not None and steps and part.name.step not in steps:
        return gap_ns <= NUMBERED_GAP_NS
    return gap_ns <= (CERTAIN_GAP_NS if part.name.certain else LOOSE_GAP_NS)


def _joined(candidates: list[Candidate]) -> list[Candidate]:
    """Join candidates of the same step that are one in time: several folders of one save."""
    done: list[Candidate] = []
    near: list[Candidate] = []  # of these, those that a later one may still belong to
    for candidate in sorted(candidates, key=lambda candidate: candidate.start_ns):
        if not _is_aside(candidate):
            near = [earlier for earlier in near if candidate.start_ns - earlier.end_ns <= JOIN_GAP_NS]
            for earlier in near:
                if _same_save(earlier, candidate):
                    for part in candidate.parts:
                        earlier.add(part)
                    break
            else:
                near.append(candidate)
                done.append(candidate)
        else:
            done.append(candidate)
    return done


def _same_save(earlier: Candidate, later: Candidate) -> bool:
    gap_ns = later.start_ns - earlier.end_ns
    if gap_ns > JOIN_GAP_NS or any(part.stream.writes and earlier.has(part) for part in later.parts):
        return False
    nested = _inside(later.unit, earlier.unit) or _inside(earlier.unit, later.unit)
    same_step = earlier.step is not None and earlier.step == later.step
    stepless = later.step is None or earlier.step is None
    if gap_ns <= 0 and nested and (same_step or stepless):
        return True
    return same_step and _folder(earlier) == _folder(later)


def _is_aside(candidate: Candidate) -> bool:
    """Whether it is but a small file that no framework knows: a note beside a checkpoint, not a part of it."""
    small = sum(part.bytes for part in candidate.parts) < ASIDE_BYTES
    return small and not any(part.name.commit or part.name.framework for part in candidate.parts)


def _folder(candidate: Candidate) -> str:
    return candidate.unit.partition("#")[0].rpartition("/")[0]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def name_of(stream: Stream) -> Name:
    """Return what the stream's final name says."""
    return read_name(stream.path)
