"""What one process moved of one file in one direction, from opening to closing, with bounds for what was not seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.tolerances import COMMIT_NS, EDGE_TOLERANCE_NS
from ckptprof.detect.transfers.model.movement import Movement
from ckptprof.detect.transfers.model.operations import OperationSums
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.sending import Sending
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof.frameworks.file_names import FileName, parse_name
from ckptprof.frameworks.name_words import NAMELESS
from ckptprof_collectors.samples import FileActivity, FileFact

TransferEstimate = tuple[int, int, int]  # start, end, bytes
NO_ESTIMATE: TransferEstimate = (0, 0, 0)
_NO_NAME = parse_name("")
_COUNTED_EDGE_NS = 20_000_000  # of operations that were counted: the counters are exact to a tick


class ValueBounds(NamedTuple):
    """A value that was not seen exactly: what it is at least, most likely, and at most."""

    min: int
    best: int
    max: int

    def narrow(self, value: int | None, slack: int = 0) -> ValueBounds:
        """Take an observation, which narrows the bounds to a point; one outside of them, give or take, is of others."""
        if value is None or not self.min - slack <= value <= self.max + slack:
            return self
        return ValueBounds(value, value, value)


@dataclass(slots=True, eq=False)
class Transfer:
    """One transfer, as looks at its file saw it. Times are CLOCK_MONOTONIC, those of a fact wall clock.

    What was not seen is None or empty. A `TracedTransfer` answers by its operations what it overrides here.
    `phase` has the theory of operation: who changes it, and when. Modules of `observed` record what they see; all
    others change it by its methods.
    """

    process: ProcessKey
    file: FileKey
    writes: bool
    path: str  # the last one that is known
    first_ns: int  # first seen
    last_ns: int  # last seen open
    before_ns: int  # the look before the first, at which it was not open; equal to first_ns if there was none
    closed_ns: int | None = None  # first known to be closed
    phase: Phase = Phase.OPEN
    # What is seen of it, while it is open.
    observed_by: str = "fdinfo"
    append: bool = False
    direct: bool = False
    unlinked: bool = False  # at each look it had no name, or none any more
    before_truncation: Transfer | None = (
        None  # what was written before its file was emptied, if it was not closed for that
    )
    size: int = 0  # of the file
    samples: Sequence[PositionSample] = ()
    mapped_bytes: int = 0  # how much of the file was seen in the memory of its process
    max_written_bytes: int = (
        0  # how far its process can have written it by when it was known to be closed; 0: not counted
    )
    # What is learnt of its file, up to its judgement.
    fact: FileFact | None = None
    fact_at_ns: int = 0
    earlier_path: str | None = None  # the temporary name under which it was written
    is_size_reported: bool = True  # by its file system, else it is what its process wrote meanwhile
    # What is estimated of it, anew in each round that it waits.
    name: FileName = _NO_NAME  # what its path says
    name_path: str = ""  # the path of which that was said
    start_ns: int = 0
    end_ns: int = 0
    bytes: int = 0
    temporary: bool = False  # its name is not the last one: a rename may follow
    is_open: bool = False  # it goes on: only to be waited for
    is_awaited: bool = False  # it goes on, or the reading of its stage does
    staging_file: Transfer | None = None  # the file elsewhere that it was written to first, to be copied from there
    stands_for: Sequence[Transfer] = ()  # what it stands for: the stage, and its reading
    estimate: TransferEstimate = NO_ESTIMATE  # the last one by itself
    estimate_inputs: tuple[object, ...] | None = None  # what that depended on; None: on more than is told apart

    # What is done to it.

    def mark_classified(self) -> None:
        """Take note that it was judged: what is seen of the same later is another one."""
        self.phase = Phase.CLASSIFIED

    def extend_back_to(self, earlier: Transfer) -> None:
        """Take another one as its begin."""
        self.first_ns, self.before_ns = min(self.first_ns, earlier.first_ns), min(self.before_ns, earlier.before_ns)

    def resolve_truncation(self, *, stayed_open: bool) -> None:
        """Take what was written before its file was emptied as its begin, if its process had it open all the time."""
        if stayed_open and self.before_truncation is not None:
            self.extend_back_to(self.before_truncation)
        self.before_truncation = None

    def rename(self, path: str) -> None:
        """Take the new name of its file."""
        self.earlier_path, self.path = self.path, path

    def set_fact(self, fact: FileFact, at_ns: int) -> None:
        """Take what its file system said of its file at a time."""
        self.fact, self.fact_at_ns = fact, at_ns

    def set_size(self, size: int, *, reported: bool) -> None:
        """Take how large its file is, as the file system `said`, or as its process must have written it."""
        self.size, self.is_size_reported = size, reported

    def start_round(self, *, is_open: bool) -> None:
        """Forget what was concluded in the round before of it and others together."""
        self.staging_file, self.stands_for = None, ()
        self.is_open = self.is_awaited = is_open

    def update_name(self, inputs: tuple[object, ...] | None, *, temporary: bool = False) -> None:
        """Take what its path says, and what the estimate that follows will have depended on."""
        if self.path != self.name_path:  # of its path alone, whatever else was learnt
            self.name, self.name_path = parse_name(self.path), self.path
        self.temporary = temporary
        self.estimate_inputs, self.estimate = inputs, NO_ESTIMATE

    def set_estimate(self, estimate: TransferEstimate) -> None:
        """Take the estimate of this round."""
        self.estimate = estimate
        self.start_ns, self.end_ns, self.bytes = estimate

    def begin_after(self, before: Transfer) -> None:
        """Let it begin after another one of its process and file that was over: the next round knows that bound."""
        self.start_ns = min(max(self.before_ns, before.end_ns), self.end_ns)
        if before.closed_ns is not None and self.before_ns >= self.first_ns:
            self.before_ns = min(before.closed_ns, self.first_ns - 1)

    def subtract_bytes(self, transferred: int) -> None:
        """Take away bytes that its process cannot have moved in this round's time."""
        self.bytes -= transferred

    def merge_staging(self, staging: Transfer, reading: Transfer) -> None:
        """Stand for the stage that it is copied from, and for the stage of that."""
        self.staging_file = staging
        self.stands_for = [staging, *staging.stands_for, *([] if reading.is_open else [reading])]
        self.start_ns = min(self.start_ns, staging.start_ns)
        self.is_awaited = self.is_awaited or staging.is_awaited or reading.is_open

    @property
    def span(self) -> tuple[int, int]:
        """The longest time that it can have taken: from the look before the first to when it was known to be closed."""
        return self.before_ns, max(self.last_ns, self.closed_ns or 0)

    @property
    def data_span(self) -> tuple[int, int]:
        """The longest time in which its bytes can have been moved."""
        sums = self.operations
        return self.span if sums is None else (sums.first_ns, sums.last_ns)

    @property
    def advanced_bytes(self) -> int:
        """How far the position came, backward moves not counted; the first look counts from the start of the file."""
        positions = [sample.position for sample in self.samples]
        if not positions:
            return 0
        first = 0 if self.append or self.before_ns == self.first_ns else max(0, positions[0])
        return first + sum(max(0, after - before) for before, after in pairwise(positions))

    @property
    def transferred_bounds(self) -> ValueBounds:
        """How many bytes it moved: as far as its position came, at most all that the file holds."""
        if (sums := self.operations) is not None:
            return ValueBounds(sums.bytes, sums.bytes, sums.bytes)
        advanced_bytes = self.advanced_bytes
        return ValueBounds(advanced_bytes, advanced_bytes or self.stored_size, self.stored_size)

    @property
    def folder(self) -> str:
        """Where its file is."""
        return self.path.rpartition("/")[0]

    @property
    def file_name(self) -> str:
        """How its file is called there."""
        return self.path.rpartition("/")[2]

    @property
    def stored_size(self) -> int:
        """How large the file is, as its file system says, else as far as it was seen."""
        return self.fact.size if self.fact is not None else self.size

    @property
    def size_in_use(self) -> int:
        """How large the file was when its process used it."""
        return self.size if self.operations is not None else self.stored_size

    # Of a transfer whose operations were counted.

    @property
    def operations(self) -> OperationSums | None:
        """The sums over its operations."""
        return None

    @property
    def threads(self) -> Collection[FileActivity]:
        """What each thread did of it; a thread may come more than once."""
        return ()

    @property
    def points(self) -> Sequence[Movement]:
        """When its bytes were moved, and where, until it is judged."""
        return ()

    @property
    def counted_bytes(self) -> int:
        """The bytes that its operations moved, until it is judged; pages of a mapping count up to its file's end."""
        sums = self.operations if self.threads else None
        if sums is None:
            return 0
        return sums.bytes - (max(0, sums.faulted_bytes - self.size) if self.size > 0 else 0)

    @property
    def direct_bytes(self) -> int:
        """The bytes that were moved past the page cache."""
        sums = self.operations
        return sums.direct_bytes if sums is not None else self.bytes if self.direct else 0

    @property
    def offset_range(self) -> tuple[int, int] | None:
        """The first and the last offset in its file that its operations moved."""
        sums = self.operations
        return None if sums is None else (sums.low_offset, sums.high_offset)

    @property
    def error(self) -> int | None:
        """The errno of the call that its writing broke off with, or without which what it wrote may be lost."""
        return None

    # How it came about.

    @property
    def sending(self) -> Sending | None:
        """How it went over the network, to no file; None: it is of a file."""
        return None

    @property
    def is_counted(self) -> bool:
        """Whether the trace counted its operations."""
        return self.operations is not None if self.sending is None else self.sending.is_counted

    @property
    def is_credited(self) -> bool:
        """Whether its process was not seen at the file: it wrote as much as was found in it, at that time."""
        return self.observed_by == "directory"

    @property
    def is_nameless(self) -> bool:
        """Whether its file was made without a name, or lost it before anything was in it, and none was found since."""
        return NAMELESS.fullmatch(self.file_name) is not None or (self.writes and self.unlinked and self.fact is None)

    @property
    def is_mapped(self) -> bool:
        """Whether its bytes were moved by page faults: its descriptor, if it was kept, stood still."""
        return self.mapped_bytes > 0 and len({sample.position for sample in self.samples}) <= 1

    @property
    def edges_slack_ns(self) -> int:
        """How far from the counters its best edges may be."""
        return EDGE_TOLERANCE_NS if self.operations is None else _COUNTED_EDGE_NS

    @property
    def first_data_ns(self) -> int:
        """When the first byte was moved, here or to the stage."""
        operations = (self.staging_file or self).operations
        return self.start_ns if operations is None else operations.first_ns

    def last_data_ns(self, clock: RecordingClock) -> int:
        """Return when the last byte was moved."""
        return self.end_ns if self.renamed_ns(clock) is None else self.written_ns(clock)

    def written_ns(self, clock: RecordingClock) -> int:
        """Return when its last write ended, as its file was stamped in its edges: what is synced later is durable."""
        modified_ns = clock.mono(self.fact.modified_ns) if self.fact is not None else self.end_ns
        return modified_ns if self.start_ns <= modified_ns <= self.end_ns else self.end_ns

    def renamed_ns(self, clock: RecordingClock) -> int | None:
        """Return when the file got its last name, as its file was stamped."""
        if self.earlier_path is None or self.fact is None:
            return None
        changed_ns = clock.mono(self.fact.changed_ns)
        return changed_ns if self.start_ns <= changed_ns <= self.end_ns + COMMIT_NS else None

    @property
    def synced_ns(self) -> int | None:
        """When its own process had synced it."""
        return None

    @property
    def durable_ns(self) -> int | None:
        """When everything that it wrote was on stable storage, by a sync."""
        return None

    @property
    def active_ns(self) -> int:
        """When its process was last seen to use the file."""
        return self.last_ns

    def was_inspected_after(self, ended_ns: int | None) -> bool:
        """Return whether the file was looked at after the end of a process, if that has ended."""
        return ended_ns is not None and self.fact is not None and self.fact_at_ns >= ended_ns

    def retained_its_name(self, ended_ns: int) -> bool:
        """Return whether it is sure that the file was not renamed before its writers ended."""
        return self.was_inspected_after(ended_ns)


def share_within(transferred: int, span: tuple[int, int], window: tuple[int, int]) -> int:
    """Return how many of the bytes that were moved in a span fall into a frame, at an even rate."""
    if span[1] <= span[0]:
        return transferred if window[0] <= span[0] <= window[1] else 0
    inside_ns = min(span[1], window[1]) - max(span[0], window[0])
    return transferred * max(0, inside_ns) // (span[1] - span[0])
