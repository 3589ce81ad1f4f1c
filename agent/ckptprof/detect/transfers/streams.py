"""What one process did to one file in one direction, from opening to closing."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.transfers.traced import Traced
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof_collectors.samples import FileFact


@dataclass(slots=True)
class Look:
    """Where in the file the process was at one instant."""

    at_ns: int
    position: int
    size: int


@dataclass(slots=True)
class Stream:
    """What one process did to one file in one direction. Times are CLOCK_MONOTONIC, those of a fact wall clock."""

    process: ProcessKey
    file: FileKey
    writes: bool
    path: str
    first_ns: int  # first seen
    last_ns: int  # last seen open
    before_ns: int  # the look before the first, at which it was not open; equal to first_ns if there was none
    closed_ns: int | None = None  # the first look at which it was no longer open
    looks: list[Look] = field(default_factory=list)
    direct: bool = False
    append: bool = False
    mapped_bytes: int = 0
    fact: FileFact | None = None
    fact_at_ns: int = 0
    earlier_path: str | None = None  # the temporary name under which it was written
    seen_by: str = "fdinfo"
    size: int = 0
    is_size_said: bool = True  # by its file system, else it is what its process wrote meanwhile
    lost_looks: int = 0
    trace: Traced | None = None  # the exact part, of a stream that was traced
    mapping: Stream | None = None  # of a traced stream of page faults: the mapping as polling saw it

    @property
    def advanced_bytes(self) -> int:
        """How far the position came, backward moves not counted; the first look counts from the start of the file."""
        if not self.looks:
            return 0
        first = self.looks[0]
        total = 0 if self.append or self.before_ns == self.first_ns else max(0, first.position)
        previous = first
        for look in self.looks[1:]:
            total += max(0, look.position - previous.position)
            previous = look
        return total

    @property
    def is_mapping(self) -> bool:
        """Whether it was used through a mapping: its descriptor, if it was kept, stood still."""
        return self.mapped_bytes > 0 and len({look.position for look in self.looks}) <= 1

    @property
    def may_begin_ns(self) -> int:
        """The earliest time at which it can have begun: the look before the first."""
        return min(self.before_ns, self.first_ns)

    @property
    def may_end_ns(self) -> int:
        """The latest time at which it can have ended: the look after the last."""
        return max(self.last_ns, self.closed_ns or 0)

    def evenly(self, moved: int, start_ns: int, end_ns: int) -> int:
        """Return how many of the bytes that it moved fall into a time, if it moved them at an even rate."""
        first_ns = self.may_begin_ns
        last_ns = max(self.may_end_ns, first_ns + 1)
        inside_ns = min(last_ns, end_ns) - max(first_ns, start_ns)
        return moved * max(0, inside_ns) // (last_ns - first_ns)
