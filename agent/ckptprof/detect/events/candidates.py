"""Candidates for checkpoints: their parts, and what these show together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ckptprof.detect.tolerances import FEW, HEADER_BYTES, LITTLE_SHARE, WHOLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey

_AMENDMENT_FACTOR = 16  # a second write this much smaller completes the file: a header, an index at its end


@dataclass(slots=True)
class Candidate:
    """Parts that may be one checkpoint. It has at least one part before it is used."""

    job: str
    writes: bool
    parts: list[Transfer] = field(default_factory=list)
    start_ns: int = 0  # the first edge of its parts
    end_ns: int = 0  # the last one
    bytes: int = 0
    steps: set[int] = field(default_factory=set)  # in its names
    is_certain: bool = False  # one of its names is certainly a checkpoint's
    is_alias: bool = True  # all its names are reused for every save
    committed_ns: int | None = None  # when its marker was complete
    open_parts: int = 0
    patience_ns: int = 0  # how long after its last sign more may follow
    due_ns: int = 0  # it ends then at the earliest, once it is quiet
    framework: tuple[str | None] | None = None  # of its file names, once computed
    hang: tuple[str | None] | None = None  # the writer that it waits for, once looked for
    _first_part_by_path: dict[str, Transfer] = field(default_factory=dict)  # by path, its first part
    # of each repeated path, the parts of each process
    _repeated_parts: dict[str, dict[ProcessKey, list[Transfer]]] = field(default_factory=dict)
    _processes: dict[ProcessKey, None] = field(default_factory=dict)

    def add(self, part: Transfer) -> None:
        """Add a part."""
        self.start_ns = min(self.start_ns, part.start_ns) if self.parts else part.start_ns
        self.end_ns = max(self.end_ns, part.end_ns) if self.parts else part.end_ns
        self.parts.append(part)
        self.bytes += part.bytes
        self.framework = None
        self.open_parts += part.is_awaited
        self.is_certain |= part.name.is_certain
        self.is_alias &= part.name.alias
        if part.name.step is not None:
            self.steps.add(part.name.step)
        if part.name.commit and not part.is_open and not part.temporary:
            self.committed_ns = max(self.committed_ns or 0, part.end_ns)
        first = self._first_part_by_path.setdefault(part.path, part)
        if first is not part:
            repeated = self._repeated_parts.setdefault(part.path, {first.process: [first]})
            repeated.setdefault(part.process, []).append(part)
        self._processes[part.process] = None

    def repeats(self, part: Transfer) -> bool:
        """Return True if the part repeats one of the candidate: the same file, by the same process or after another."""
        first = self._first_part_by_path.get(part.path)
        if first is None:
            return False
        earlier_parts = self._repeated_parts.get(part.path) or {first.process: [first]}
        if not part.writes:
            return _is_reread(earlier_parts.get(part.process, [])[-FEW:], part)
        for process, parts in earlier_parts.items():
            earlier = parts[-1]
            # ranks that fill one file in turn start further on
            from_start = part.offset_range is None or part.offset_range[0] == 0
            if process == part.process or (earlier.end_ns <= part.start_ns and from_start):
                in_step = part.name.is_certain and part.name.step is not None
                is_manifest = in_step and max(earlier.bytes, part.bytes) <= HEADER_BYTES  # rewritten as others arrive
                return part.bytes * _AMENDMENT_FACTOR > earlier.bytes and not is_manifest
        return False

    @property
    def step(self) -> int | None:
        """The training step in its names; None if they disagree."""
        return next(iter(self.steps)) if len(self.steps) == 1 else None

    @property
    def is_unnamed(self) -> bool:
        """A large file of it has a temporary name."""
        return any(part.temporary and part.bytes >= LITTLE_SHARE * self.bytes for part in self.parts)

    @property
    def is_sent(self) -> bool:
        """It was transferred over the network, not to or from files."""
        return self.parts[0].sending is not None

    @property
    def directory(self) -> str:
        """The directory that its names share."""
        return self.parts[0].name.directory

    @property
    def processes(self) -> list[ProcessKey]:
        """The processes that transferred its bytes, in order of appearance."""
        return list(self._processes)

    def ended_transfers(self) -> Iterator[Transfer]:
        """Yield the ended transfers, including those that a part stands for."""
        for part in self.parts:
            if not part.is_open:
                yield part
            yield from part.stands_for


def _is_reread(parts: list[Transfer], later: Transfer) -> bool:
    """Any byte counts as read again after the process has read the whole file."""
    size = max((later.size, later.mapped_bytes, *(one.size for one in parts)))
    if 0 < size * WHOLE_SHARE <= sum(one.bytes for one in parts):
        return True
    return any(_overlaps_earlier(one, later) for one in parts)


def _overlaps_earlier(earlier: Transfer, later: Transfer) -> bool:
    if earlier.bytes * _AMENDMENT_FACTOR <= later.bytes or later.bytes * _AMENDMENT_FACTOR <= earlier.bytes:
        return False  # only the header was read
    one, other = earlier.offset_range, later.offset_range
    return one is None or other is None or (one[1] > other[0] and other[1] > one[0])
