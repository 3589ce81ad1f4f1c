"""A transfer as looks at open files and mappings saw it, or what a folder told: its bounds are those looks."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.transfers.model.tolerances import COMMIT_NS
from ckptprof.detect.transfers.model.transfer import Bounds, Transfer
from ckptprof.detect.world.clock import Clock


@dataclass(slots=True)
class Look:
    """Where in the file the process was at one instant."""

    at_ns: int
    position: int
    size: int


@dataclass(slots=True, eq=False)
class PolledTransfer(Transfer):
    """A transfer between two looks, with all looks in between."""

    looks: list[Look] = field(default_factory=list)
    mapped_bytes: int = 0

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
    def moved(self) -> Bounds:
        """How many bytes it moved: as far as its position came, at most all that the file holds."""
        advanced = self.advanced_bytes
        return Bounds(advanced, advanced or self.stored_size, self.stored_size)

    @property
    def extent_bytes(self) -> int:
        """How large the file is at least."""
        return self.fact.size if self.fact is not None else max(self.size, self.mapped_bytes)

    @property
    def is_mapped(self) -> bool:
        """Whether it was used through a mapping: its descriptor, if it was kept, stood still."""
        return self.mapped_bytes > 0 and len({look.position for look in self.looks}) <= 1

    def last_data_ns(self, clock: Clock) -> int:
        """Return when the last byte was moved."""
        if self.fact is None or self.renamed_ns(clock) is None:
            return self.end_ns
        return Bounds(self.start_ns, self.end_ns, self.end_ns).narrowed(clock.mono(self.fact.modified_ns)).best

    def written_ns(self, clock: Clock) -> int:
        """Return when its last write ended: as its file was stamped, within its edges."""
        modified_ns = clock.mono(self.fact.modified_ns) if self.fact is not None else self.end_ns
        return min(self.end_ns, max(self.start_ns, modified_ns))

    def renamed_ns(self, clock: Clock) -> int | None:
        """Return when the file got its last name, as its file was stamped."""
        if self.earlier_path is None or self.fact is None:
            return None
        changed_ns = clock.mono(self.fact.changed_ns)
        return changed_ns if self.start_ns <= changed_ns <= self.end_ns + COMMIT_NS else None
