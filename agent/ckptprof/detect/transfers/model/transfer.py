"""Transfer: the I/O of one process on one file in one direction, from open to close, with bounds for its values."""

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
_COUNTED_EDGE_NS = 20_000_000  # of traced operations: process counters are exact to a tick


class ValueBounds(NamedTuple):
    """A value that was not observed exactly: its minimum, best estimate, and maximum."""

    min: int
    best: int
    max: int

    def narrow(self, value: int | None, slack: int = 0) -> ValueBounds:
        """Narrow the bounds to an observed value; one outside of them by more than `slack` is ignored."""
        if value is None or not self.min - slack <= value <= self.max + slack:
            return self
        return ValueBounds(value, value, value)


@dataclass(slots=True, eq=False)
class Transfer:
    """One transfer, by samples of its file. Times are CLOCK_MONOTONIC, those of a fact wall clock.

    Values that were not observed are None or empty. A `TracedTransfer` overrides methods to use its operations.
    `phase` has the theory of operation: which module changes it, and when. Modules of `observed` set its fields; all
    others change it by its methods.
    """

    process: ProcessKey
    file: FileKey
    writes: bool
    path: str  # the last known one
    first_ns: int  # first sample
    last_ns: int  # last sample with the file open
    before_ns: int  # the sample before the first, with the file not open; equal to first_ns if there was none
    closed_ns: int | None = None  # first known to be closed
    phase: Phase = Phase.OPEN
    # Observed while it is open.
    observed_by: str = "fdinfo"
    append: bool = False
    direct: bool = False
    unlinked: bool = False  # it had no name in any sample, or lost it
    before_truncation: Transfer | None = None  # the part before its file was truncated, if it was not closed for that
    size: int = 0  # of the file
    samples: Sequence[PositionSample] = ()
    mapped_bytes: int = 0  # resident in the memory of its process
    max_written_bytes: int = 0  # maximum that its process can have written until the observed close; 0: not counted
    # Learnt about its file, until it is classified.
    fact: FileFact | None = None
    fact_at_ns: int = 0
    earlier_path: str | None = None  # the temporary name under which it was written
    name_given_ns: int | None = None  # when its file got its last name, by an event
    is_size_reported: bool = True  # by its file system, else the bytes that its process wrote in that time
    # Estimated, again in each round that it waits.
    name: FileName = _NO_NAME  # parsed from its path
    name_path: str = ""  # the path that was parsed
    start_ns: int = 0
    end_ns: int = 0
    bytes: int = 0
    temporary: bool = False  # its name is temporary: a rename may follow
    is_open: bool = False  # not ended: to be waited for
    is_awaited: bool = False  # it, or the read of its staging file, has not ended
    staging_file: Transfer | None = None  # the file that was written first, and copied to this one
    stands_for: Sequence[Transfer] = ()  # the staging file and the read of it, which this one includes
    estimate: TransferEstimate = NO_ESTIMATE  # the last one before comparison with other transfers
    estimate_inputs: int | None = None  # hash of its inputs; None: they may change in each round

    # Changes.

    def mark_classified(self) -> None:
        """Mark it as classified: later I/O on the same file is another transfer."""
        self.phase = Phase.CLASSIFIED

    def extend_back_to(self, earlier: Transfer) -> None:
        """Include an earlier transfer as its start."""
        self.first_ns, self.before_ns = min(self.first_ns, earlier.first_ns), min(self.before_ns, earlier.before_ns)

    def resolve_truncation(self, *, stayed_open: bool) -> None:
        """Include the part before the truncation as its start, if the file stayed open all the time."""
        if stayed_open and self.before_truncation is not None:
            self.extend_back_to(self.before_truncation)
        self.before_truncation = None

    def rename(self, path: str, at_ns: int | None = None) -> None:
        """Set the new name of its file; `at_ns`: when it got that, by an event."""
        self.earlier_path, self.path, self.name_given_ns = self.path, path, at_ns

    def set_closing(self, at_ns: int, size: int) -> None:
        """Set when its file was closed and how large it was then, unless known: a file may be deleted since."""
        self.closed_ns = at_ns if self.closed_ns is None else self.closed_ns
        self.size = max(self.size, size) if self.fact is None else self.size

    def set_fact(self, fact: FileFact, at_ns: int) -> None:
        """Set the fact of its file, as of `at_ns`."""
        self.fact, self.fact_at_ns = fact, at_ns
        if self.operations is None and fact.path == self.path:
            self.name_given_ns = None  # stamps are more exact than an event

    def set_size(self, size: int, *, reported: bool) -> None:
        """Set the size of its file; `reported`: by the file system, else inferred from what its process wrote."""
        self.size, self.is_size_reported = size, reported

    def start_round(self, *, is_open: bool) -> None:
        """Reset the conclusions of the previous round."""
        self.staging_file, self.stands_for = None, ()
        self.is_open = self.is_awaited = is_open

    def update_name(self, inputs: int | None, *, in_temporary: bool = False) -> None:
        """Parse its path; `inputs`: of the estimate that follows; `in_temporary`: in a temporary folder."""
        if self.path != self.name_path:  # parsed once per path
            self.name, self.name_path = parse_name(self.path), self.path
        self.temporary = in_temporary or self.name.temporary
        self.estimate_inputs, self.estimate = inputs, NO_ESTIMATE

    def set_estimate(self, estimate: TransferEstimate) -> None:
        """Set the estimate of this round."""
        self.estimate = estimate
        self.start_ns, self.end_ns, self.bytes = estimate

    def begin_after(self, before: Transfer) -> None:
        """Start it after an earlier transfer of its process and file; the bound stays for the next rounds."""
        self.start_ns = min(max(self.before_ns, before.end_ns), self.end_ns)
        if before.closed_ns is not None and self.before_ns >= self.first_ns:
            self.before_ns = min(before.closed_ns, self.first_ns - 1)

    def subtract_bytes(self, transferred: int) -> None:
        """Subtract bytes that its process cannot have transferred in this round's time."""
        self.bytes -= transferred

    def merge_staging(self, staging: Transfer, reading: Transfer) -> None:
        """Include the staging file that it is copied from, and the staging file of that."""
        self.staging_file = staging
        self.stands_for = [staging, *staging.stands_for, *([] if reading.is_open else [reading])]
        self.start_ns = min(self.start_ns, staging.start_ns)
        self.is_awaited = self.is_awaited or staging.is_awaited or reading.is_open

    @property
    def span(self) -> tuple[int, int]:
        """The longest time that it can have lasted: from the sample before the first to the observed close."""
        return self.before_ns, max(self.last_ns, self.closed_ns or 0)

    @property
    def data_span(self) -> tuple[int, int]:
        """The longest time in which its bytes can have been transferred."""
        sums = self.operations
        return self.span if sums is None else (sums.first_ns, sums.last_ns)

    @property
    def advanced_bytes(self) -> int:
        """Sum of the forward moves of the position; the first sample counts from the start of the file."""
        positions = [sample.position for sample in self.samples]
        if not positions:
            return 0
        first = 0 if self.append or self.before_ns == self.first_ns else max(0, positions[0])
        return first + sum(max(0, after - before) for before, after in pairwise(positions))

    @property
    def transferred_bounds(self) -> ValueBounds:
        """Bounds of its bytes, by its position and by the size of its file."""
        if (sums := self.operations) is not None:
            return ValueBounds(sums.bytes, sums.bytes, sums.bytes)
        advanced_bytes = self.advanced_bytes
        return ValueBounds(advanced_bytes, advanced_bytes or self.stored_size, self.stored_size)

    @property
    def folder(self) -> str:
        """The folder of its file."""
        return self.path.rpartition("/")[0]

    @property
    def file_name(self) -> str:
        """The name of its file in the folder."""
        return self.path.rpartition("/")[2]

    @property
    def stored_size(self) -> int:
        """The size of the file, by its file system, else by the samples."""
        return self.fact.size if self.fact is not None else self.size

    @property
    def size_in_use(self) -> int:
        """The size of the file when its process used it; of one without a size, what was mapped."""
        return self.size if self.operations is not None else max(self.stored_size, self.mapped_bytes)

    # For a traced transfer.

    @property
    def operations(self) -> OperationSums | None:
        """The sums over its operations."""
        return None

    @property
    def threads(self) -> Collection[FileActivity]:
        """The sessions of its threads; a thread may have several."""
        return ()

    @property
    def points(self) -> Sequence[Movement]:
        """Times and offsets of its bytes, until it is classified."""
        return ()

    @property
    def counted_bytes(self) -> int:
        """The bytes of its operations, until it is classified; pages of a mapping count up to its file's end."""
        sums = self.operations
        if sums is None or self.phase is Phase.CLASSIFIED:
            return 0
        return sums.bytes if self.size <= 0 else min(sums.bytes, sums.bytes - sums.faulted_bytes + self.size)

    @property
    def direct_bytes(self) -> int:
        """The bytes transferred by direct I/O, bypassing the page cache."""
        sums = self.operations
        return sums.direct_bytes if sums is not None else self.bytes if self.direct else 0

    @property
    def offset_range(self) -> tuple[int, int] | None:
        """The lowest and the highest offset of its operations."""
        sums = self.operations
        return None if sums is None else (sums.low_offset, sums.high_offset)

    @property
    def error(self) -> int | None:
        """The errno of the call that ended its writing, or of a failed sync or close after which data may be lost."""
        return None

    # How it was observed.

    @property
    def sending(self) -> Sending | None:
        """Its connections, if it went over TCP; None: it is of a file."""
        return None

    @property
    def is_counted(self) -> bool:
        """The trace counted its operations."""
        return self.operations is not None if self.sending is None else self.sending.is_counted

    @property
    def is_credited(self) -> bool:
        """Its process was not observed with the file open, but wrote as much at that time."""
        return self.observed_by == "directory"

    @property
    def is_nameless(self) -> bool:
        """Its file was created without a name, or lost it while empty, and got none since."""
        return NAMELESS.fullmatch(self.file_name) is not None or (self.writes and self.unlinked and self.fact is None)

    @property
    def is_mapped(self) -> bool:
        """Its bytes were transferred by page faults: the position of its descriptor did not change."""
        return self.mapped_bytes > 0 and len({sample.position for sample in self.samples}) <= 1

    @property
    def edges_slack_ns(self) -> int:
        """Tolerance between its edges and the process counters."""
        return EDGE_TOLERANCE_NS if self.operations is None else _COUNTED_EDGE_NS

    @property
    def first_data_ns(self) -> int:
        """When the first byte was transferred, here or to the staging file."""
        operations = (self.staging_file or self).operations
        return self.start_ns if operations is None else operations.first_ns

    def last_data_ns(self, clock: RecordingClock) -> int:
        """Return when the last byte was transferred."""
        return self.end_ns if self.renamed_ns(clock) is None else self.written_ns(clock)

    def written_ns(self, clock: RecordingClock) -> int:
        """Return the end of its last write: the file's modification time if within the transfer, else its end."""
        modified_ns = clock.mono(self.fact.modified_ns) if self.fact is not None else self.end_ns
        return modified_ns if self.start_ns <= modified_ns <= self.end_ns else self.end_ns

    def renamed_ns(self, clock: RecordingClock) -> int | None:
        """Return when the file got its last name, by an event, else, polled, by its stamps."""
        fact = self.fact if self.operations is None else None
        named_ns = self.name_given_ns or (0 if fact is None else clock.mono(fact.changed_ns))
        is_known = self.earlier_path is not None and self.start_ns <= named_ns <= self.end_ns + COMMIT_NS
        return named_ns if is_known else None

    @property
    def synced_ns(self) -> int | None:
        """When its own process had synced it."""
        return None

    @property
    def durable_ns(self) -> int | None:
        """When all its data was on stable storage, by a sync."""
        return None

    @property
    def active_ns(self) -> int:
        """When its process was last observed using the file."""
        return self.last_ns

    def was_inspected_after(self, ended_ns: int | None) -> bool:
        """Return True if the file was inspected at `ended_ns` or later; None: the process has not ended."""
        return ended_ns is not None and self.fact is not None and self.fact_at_ns >= ended_ns


def share_within(transferred: int, span: tuple[int, int], window: tuple[int, int]) -> int:
    """Return how many bytes of a span fall into a window, at an even rate."""
    if span[1] <= span[0]:
        return transferred if window[0] <= span[0] <= window[1] else 0
    inside_ns = min(span[1], window[1]) - max(span[0], window[0])
    return transferred * max(0, inside_ns) // (span[1] - span[0])
