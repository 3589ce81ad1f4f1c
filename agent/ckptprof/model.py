"""The nouns of ckptprof (docs/architecture.md): frozen, free of I/O, the same live, on replay and from the store."""

from __future__ import annotations

from enum import Enum

import msgspec

from ckptprof.measures import Measures
from ckptprof.verdicts import Cost, Verdict


class Kind(str, Enum):
    """What a checkpoint event was."""

    SAVE = "save"
    RESTORE = "restore"
    COPY = "copy"  # checkpoint files copied, moved, packed or staged by something that does not train


CUT_AT_BEGIN = "cut-at-begin"  # evidence: the watch began in the midst of it
CUT_AT_END = "cut-at-end"  # evidence: the watch ended in the midst of it
CUT_BETWEEN = "cut-between"  # evidence: it was restarted in the midst of it, and both parts are told as one


class Status(str, Enum):
    """Whether it came to its end."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  # the writer died, the disk was full, or the commit marker never came


class Mode(str, Enum):
    """Whether the thread that trains was held while the bytes were written."""

    SYNC = "sync"
    ASYNC = "async"


class Level(str, Enum):
    """By which means it was seen."""

    TRACE = "trace"
    POLL = "poll"


class PatternClass(str, Enum):
    """How the bytes were laid out, decided by bytes (design section 5)."""

    SEQUENTIAL_LARGE = "sequential-large"
    SEQUENTIAL_SMALL = "sequential-small"
    STRIDED = "strided"
    RANDOM = "random"
    MIXED = "mixed"


class Succession(str, Enum):
    """How the operations of a stretch followed each other, by nearly all of their bytes."""

    NEXT = "next"  # each right behind the one before
    ON = "on"  # further on, with gaps
    BACK = "back"  # with steps back: all that is known is between which offsets


class Gap(msgspec.Struct, frozen=True):
    """A time in which nothing was recorded; wall clock, epoch nanoseconds."""

    start_ns: int
    end_ns: int
    reason: str


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a recorder: from its first frame to its last."""

    uid: str
    host: str
    boot_id: str
    kernel: str
    version: str
    level: str
    start_ns: int  # wall clock
    end_ns: int  # wall clock of the last stored frame
    clean: bool  # ended by itself, with everything stored
    dropped_frames: int = 0


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A process that moved bytes of a checkpoint (it reads, in a restore)."""

    pid: int
    comm: str
    bytes: int
    rank: int | None = None
    start_ns: int | None = None  # wall clock, of its first and last operation: the slowest rank is the last to end
    end_ns: int | None = None
    role: str | None = None  # trainer (the thread that trains) | thread (another of its threads) | child | daemon


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """The course of a save between its start (first create) and end; wall clock. None: not seen, or there was none."""

    first_data_ns: int | None = None
    last_data_ns: int | None = None
    synced_ns: int | None = None  # the last fsync or its like returned
    committed_ns: int | None = None  # the marker was written, or the last rename done
    cleaned_ns: int | None = None  # the last old checkpoint was deleted


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What its processes did to files beside moving data, from start to end. None: not seen."""

    created: int | None = None
    renamed: int | None = None
    unlinked: int | None = None
    synced: int | None = None
    at_least: bool = False  # more of each was done than was told
    data_call_ns: int | None = None  # spent in the calls that moved the data, of all threads together


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that were written beyond the checkpoint itself."""

    reason: str  # staging | copy | consolidation | duplicate | rewrite
    bytes: int
    text: str  # what was seen, for a person


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for or against calling a burst a checkpoint."""

    name: str  # a short stable word: format, name, commit, runtime, recurs, read-back, copies-what-it-reads ...
    weight: float  # positive speaks for, negative against
    text: str  # what was seen, for a person


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """How the bytes of one direction were laid out. Shares are 0..1 of what was seen; None is: could not be seen."""

    class_: PatternClass | None = msgspec.field(name="class")
    sequential_share_bytes: float | None = None  # bytes that follow, at once or further on, over those seen
    consecutive_share_bytes: float | None = None
    large_share_bytes: float | None = None  # bytes in runs of consecutive operations of 1 MiB or more
    sequential_share_operations: float | None = None
    consecutive_share_operations: float | None = None
    order_seen_share_bytes: float | None = None  # how much of the bytes the shares above speak for
    operations: int | None = None
    mean_operation_bytes: float | None = None
    median_operation_bytes: float | None = None  # weighted by bytes
    size_histogram: dict[str, list[int]] | None = None  # lower bound in bytes -> [operations, bytes]
    buffered_share_bytes: float | None = None
    direct_share_bytes: float | None = None
    mapped_share_bytes: float | None = None  # moved by page faults of a mapping


class Progress(msgspec.Struct, frozen=True):
    """Where in its file a stream was: in a stretch of time, of one thread (trace), or at one look (poll)."""

    start_ns: int  # wall clock, of the first operation
    end_ns: int  # of the last one; a look is one instant
    bytes: int | None  # that were moved meanwhile; None: a look
    low_offset: int  # where they begin
    high_offset: int  # and end; of a look it is the position
    order: Succession | None = None  # None: not seen
    tid: int | None = None  # of the thread; None: of several together, or a look


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """What one process did to one file in one direction."""

    pid: int
    comm: str
    path: str
    bytes: int
    size: int | None  # of the file, when it was settled
    start_ns: int  # wall clock
    end_ns: int
    class_: PatternClass | None = msgspec.field(name="class", default=None)
    seen_by: str = "fdinfo"  # fdinfo | maps | directory | counters | trace
    progress: tuple[Progress, ...] = ()  # by their start; none where no offset was seen, or it is of those left out


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of time, wall clock."""

    start_ns: int
    end_ns: int


class Point(msgspec.Struct, frozen=True, array_like=True):
    """Bytes moved by the checkpoint's processes in one interval; the timeline of `show`."""

    start_ns: int  # wall clock
    end_ns: int
    bytes: int


class DeviceShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a device under the checkpoint's files, or a NIC, did while it ran.

    Requests are seen by tracing only, of whole disks, in the checkpoint's direction, whoever made them. Latencies, from
    issue to completion, have a resolution of a factor of two: each is the geometric middle of its bucket.
    """

    device: str
    kind: str  # block | nic | rdma
    read_bytes: int
    written_bytes: int
    busy_seconds: float | None
    under: str | None  # mount point through which the checkpoint reaches it; None for a bystander
    requests: int | None = None  # completed
    mean_request_bytes: float | None = None
    sequential_share_bytes: float | None = None  # of those issued: where the request issued before ended
    latency_p50_seconds: float | None = None
    latency_p99_seconds: float | None = None
    max_in_flight: int | None = None  # the largest that was seen, once a second


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A burst recognised as a save or a restore. All times are epoch nanoseconds. None: not known, never invented."""

    id: int = 0  # given by the store; 0 before
    uid: str  # the same event always gets the same uid
    kind: Kind
    job: str
    framework: str | None
    step: int | None
    ranks: int | None
    start_ns: int
    end_ns: int
    durable_ns: int | None = None
    bytes: int
    files: int
    path: str | None  # the file, or the directory that all files share
    writers: tuple[Writer, ...]
    mode: Mode | None = None
    stall_ns: int | None = None  # how long training was held
    blocked: tuple[Interval, ...] = ()  # when, in order, `stall_ns` in all; none where only its length is known
    status: Status = Status.COMPLETE
    moments: Moments = Moments()
    metadata: Metadata = Metadata()
    written_bytes: int | None = None  # of a save: with staging and copies; `bytes` are those of its files
    unique_bytes: int | None = None  # of a save without duplicates; of a restore without what several ranks read again
    overheads: tuple[Overhead, ...] = ()  # why written_bytes is more than unique_bytes
    storage_bytes: int | None = None  # of a restore: what came from a device or the network, not the page cache
    cache: str | None = None  # of a restore: cold | warm | partly
    pattern: Pattern
    measures: Measures | None = None  # the raw material of the verdict
    verdict: Verdict | None = None
    cost: Cost | None = None
    level: Level
    blind: tuple[str, ...]  # what was out of sight, each one sentence
    evidence: tuple[Evidence, ...]
    confidence: float
    streams: tuple[Stream, ...] = ()
    progress_left_out: int = 0  # streams whose offsets were seen and are not kept: not of the slowest or the largest
    timeline: tuple[Point, ...] = ()
    devices: tuple[DeviceShare, ...] = ()
    revision: int = 0  # told again with the same uid, as more becomes known (durable, clean-up): not stored

    @property
    def cuts(self) -> frozenset[str]:
        """By what it was cut: evidence of what is only a part of it, or was seen in two parts."""
        return frozenset(one.name for one in self.evidence if one.name in (CUT_AT_BEGIN, CUT_AT_END, CUT_BETWEEN))

    @property
    def at_risk_ns(self) -> int | None:
        """How long it counted as complete before it was on stable storage; None: not known."""
        if self.kind is not Kind.SAVE or self.durable_ns is None:
            return None
        return max(0, self.durable_ns - (self.moments.committed_ns or self.end_ns))

    @property
    def durable_is_most(self) -> bool | None:
        """Whether it was durable at the latest at its time, by looks at its files; None: not known when it was."""
        return None if self.durable_ns is None else any(one.name == "durable" for one in self.evidence)


class CheckpointQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoints are asked for; wall clock bounds in epoch nanoseconds, newest `limit` of them."""

    since_ns: int | None = None
    until_ns: int | None = None
    job: str | None = None  # exact, or a shell pattern
    kind: Kind | None = None  # None: saves and restores; copies are asked for
    limit: int | None = None


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The time that was recorded within a query's bounds."""

    start_ns: int | None
    end_ns: int | None
    gaps: tuple[Gap, ...] = ()
    moved_aside: tuple[str, ...] = ()  # databases beside this one that were damaged: what they hold is not told


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ckptprof report`."""

    schema_version: int = 1
    host: str | None
    watched: Watched
    checkpoints: tuple[Checkpoint, ...]
    copies_left_out: int = 0  # copies that would fit the question, had it asked for them
