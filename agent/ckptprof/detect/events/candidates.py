"""What may be a checkpoint: the parts of which a candidate is made, and what they say together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ckptprof.detect.tolerances import FEW, HEADER_BYTES, WHOLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey

_AMENDED = 16  # what is written so much less of again completes the file: a header, an index at its end


@dataclass(slots=True)
class Candidate:
    """What may be one checkpoint; it has at least one part before it is asked anything."""

    job: str
    writes: bool
    parts: list[Transfer] = field(default_factory=list)
    start_ns: int = 0  # the first edge of its parts
    end_ns: int = 0  # the last one
    bytes: int = 0
    steps: set[int] = field(default_factory=set)  # that its names say
    is_certain: bool = False  # one of its names is beyond doubt
    is_alias: bool = True  # all its names are used anew for every save
    committed_ns: int | None = None  # when its marker was complete
    open_parts: int = 0
    patience_ns: int = 0  # how long after its last sign more of it may follow
    framework: tuple[str | None] | None = None  # whose names its files bear, once that was asked for
    _moved: dict[str, Transfer] = field(default_factory=dict)  # by path, the first part of it
    # of each path that came again, the parts of each process
    _again: dict[str, dict[ProcessKey, list[Transfer]]] = field(default_factory=dict)
    _processes: dict[ProcessKey, None] = field(default_factory=dict)

    def add(self, part: Transfer) -> None:
        """Add a part."""
        self.start_ns = min(self.start_ns, part.start_ns) if self.parts else part.start_ns
        self.end_ns = max(self.end_ns, part.end_ns) if self.parts else part.end_ns
        self.parts.append(part)
        self.bytes += part.bytes
        self.framework = None
        self.open_parts += part.is_awaited
        self.is_certain |= part.name.certain
        self.is_alias &= part.name.alias
        if part.name.step is not None:
            self.steps.add(part.name.step)
        if part.name.commit and not part.is_open and not part.temporary:
            self.committed_ns = max(self.committed_ns or 0, part.end_ns)
        first = self._moved.setdefault(part.path, part)
        if first is not part:
            again = self._again.setdefault(part.path, {first.process: [first]})
            again.setdefault(part.process, []).append(part)
        self._processes[part.process] = None

    def has(self, part: Transfer) -> bool:
        """Return whether the part moves a file anew that was moved in it already, by the same process or before it."""
        first = self._moved.get(part.path)
        if first is None:
            return False
        moved = self._again.get(part.path) or {first.process: [first]}
        if not part.writes:
            return _is_read_again(moved.get(part.process, [])[-FEW:], part)
        for process, parts in moved.items():
            earlier = parts[-1]
            # ranks that fill one file in turn begin further on
            from_start = part.stretch is None or part.stretch[0] == 0
            if process == part.process or (earlier.end_ns <= part.start_ns and from_start):
                return part.bytes * _AMENDED > earlier.bytes and not _is_kept_up(earlier, part)
        return False

    @property
    def step(self) -> int | None:
        """The step that its names say, if they agree."""
        return next(iter(self.steps)) if len(self.steps) == 1 else None

    @property
    def is_sent(self) -> bool:
        """Whether it went over the network, to no file."""
        return self.parts[0].sending is not None

    @property
    def directory(self) -> str:
        """What its files share by name."""
        return self.parts[0].name.directory

    @property
    def processes(self) -> list[ProcessKey]:
        """The processes that moved its bytes, in order of appearance."""
        return list(self._processes)

    def over(self) -> Iterator[Transfer]:
        """Yield the transfers that are over, those that its parts stand for among them."""
        for part in self.parts:
            if not part.is_open:
                yield part
            yield from part.copied_from


def _is_read_again(parts: list[Transfer], later: Transfer) -> bool:
    """Return whether a process reads bytes of a file again that it has read: any, if it had read all of it."""
    size = max((later.size, later.mapped_bytes, *(one.size for one in parts)))
    if 0 < size * WHOLE_SHARE <= sum(one.bytes for one in parts):
        return True
    return any(_is_again(one, later) for one in parts)


def _is_again(earlier: Transfer, later: Transfer) -> bool:
    """Return whether a part reads what an earlier one has, and not another stretch of the file."""
    if earlier.bytes * _AMENDED <= later.bytes or later.bytes * _AMENDED <= earlier.bytes:
        return False  # a look at the header
    one, other = earlier.stretch, later.stretch
    return one is None or other is None or (one[1] > other[0] and other[1] > one[0])


def _is_kept_up(earlier: Transfer, later: Transfer) -> bool:
    """Return whether it is a small file in a step's folder: a manifest is written anew as the others come."""
    in_step = later.name.certain and later.name.step is not None
    return in_step and max(earlier.bytes, later.bytes) <= HEADER_BYTES
