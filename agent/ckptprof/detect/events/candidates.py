"""What may be a checkpoint: the parts of which a candidate is made, and what they say together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ckptprof.detect.transfers.part import Part, traced_bytes
from ckptprof.detect.transfers.streams import Stream
from ckptprof.detect.world.keys import ProcessKey

_AMENDED = 16  # what is written so much less of again completes the file: a header, an index at its end
_MANIFEST_BYTES = 64 << 10
_WHOLE = 0.9  # of a file that was read as a whole
_MAX_READINGS = 16  # of one file by one process that a further one is held against


@dataclass(slots=True)
class Candidate:
    """What may be one checkpoint; it has at least one part before it is asked anything."""

    job: str
    writes: bool
    parts: list[Part] = field(default_factory=list)
    start_ns: int = 0  # the first edge of its parts
    end_ns: int = 0  # the last one
    steps: set[int] = field(default_factory=set)  # that its names say
    committed_ns: int | None = None  # when its marker was complete
    open_parts: int = 0
    framework: tuple[str | None] | None = None  # whose names its files bear, once that was asked for
    _moved: dict[str, dict[ProcessKey, Part]] = field(default_factory=dict)  # by path, the last part of each process
    _read: dict[tuple[str, ProcessKey], list[Part]] = field(default_factory=dict)
    _processes: dict[ProcessKey, None] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """Add a part."""
        self.start_ns = min(self.start_ns, part.start_ns) if self.parts else part.start_ns
        self.end_ns = max(self.end_ns, part.end_ns) if self.parts else part.end_ns
        self.parts.append(part)
        self.framework = None
        self.open_parts += part.is_open
        if part.name.step is not None:
            self.steps.add(part.name.step)
        if part.name.commit and not part.is_open and not part.temporary:
            self.committed_ns = max(self.committed_ns or 0, part.end_ns)
        self._moved.setdefault(part.stream.path, {})[part.stream.process] = part
        if not part.stream.writes:
            self._read.setdefault((part.stream.path, part.stream.process), []).append(part)
        self._processes[part.stream.process] = None

    def has(self, part: Part) -> bool:
        """Return whether the part moves a file anew that was moved in it already, by the same process or before it."""
        if not part.stream.writes:
            return self._reads_again(part)
        for process, earlier in self._moved.get(part.stream.path, {}).items():
            own = process == part.stream.process
            if own or (earlier.end_ns <= part.start_ns and _begins_at_once(part)):
                return part.bytes * _AMENDED > earlier.bytes and not _is_kept_up(earlier, part)
        return False

    def _reads_again(self, part: Part) -> bool:
        """Return whether its process reads bytes of a file again that it has read: any, if it had read all of it."""
        earlier = self._read.get((part.stream.path, part.stream.process), [])[-_MAX_READINGS:]
        size = max((part.stream.size, part.stream.mapped_bytes, *(one.stream.size for one in earlier)))
        whole = 0 < size * _WHOLE <= sum(one.bytes for one in earlier)
        return any(_is_again(one, part, whole=whole) for one in earlier)

    def moved(self, path: str) -> bool:
        """Return whether any process moved the file in it."""
        return path in self._moved

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
        return list(self._processes)

    def streams(self) -> Iterator[Stream]:
        """Yield the streams that are over, those that its parts stand for among them."""
        for part in self.parts:
            if not part.is_open:
                yield part.stream
            yield from part.carried


def _is_again(earlier: Part, later: Part, *, whole: bool) -> bool:
    """Return whether a part reads what an earlier one has; `whole`: all of the file had been read by then."""
    if whole:
        return True
    if earlier.bytes * _AMENDED <= later.bytes or later.bytes * _AMENDED <= earlier.bytes:
        return False  # a look at the header
    return not _goes_on(earlier, later)


def _goes_on(earlier: Part, later: Part) -> bool:
    """Return whether a part is seen to read another stretch of the file than the part before it."""
    before, after = earlier.stream.trace, later.stream.trace
    if before is None or after is None or not before.sessions or not after.sessions:
        return False
    one, other = before.totals, after.totals
    return one.high_offset <= other.low_offset or other.high_offset <= one.low_offset


def _is_kept_up(earlier: Part, later: Part) -> bool:
    """Return whether it is a small file in a step's folder: a manifest is written anew as the others come."""
    in_step = later.name.certain and later.name.step is not None
    return in_step and max(earlier.bytes, later.bytes) <= _MANIFEST_BYTES


def _begins_at_once(part: Part) -> bool:
    """Return whether it writes its file from the start: ranks that fill one file in turn begin further on."""
    trace = part.stream.trace
    return trace is None or not trace.sessions or trace.totals.low_offset == 0


TRACED_SHARE = 0.95  # of the bytes that were not moved by mappings makes the level of the whole


def is_traced(candidate: Candidate) -> bool:
    """Return whether nearly all that was not moved by mappings was traced."""
    exact = traced_bytes(candidate.parts)
    others = sum(part.bytes for part in candidate.parts if part.stream.trace is None and not part.stream.is_mapping)
    return exact > 0 and exact >= TRACED_SHARE * (exact + others)
