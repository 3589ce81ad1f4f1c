"""The nouns of ckptprof (docs/architecture.md): frozen, free of I/O, the same live, on replay and from the store.

What a checkpoint is made of is a tree, which holds no cycle: `gc=False` spares the collector walks through all of it,
again and again while it is read (a third of the time of a report of many).
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

from ckptprof.bounds import Amount, Count, Histogram, Nullable, Share, one_of
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


class Risk(str, Enum):
    """Why a checkpoint may restore wrongly, whole as it looks; evidence without a weight goes by these names."""

    SHARED_PATH = "shared-path"  # several processes of the job wrote the same bytes of a file
    NOT_REPLACED = "not-replaced"  # it is still the copy that stood in for what training was to write there
    DISK_FULL = "disk-full"  # no room was left for a file, or beside one of which nothing says that it is whole
    WRITE_FAILED = "write-failed"  # a write, sync or close of a file failed for another reason


class Frailty(str, Enum):
    """What a crash may cost by the way a save is written; evidence without a weight goes by these names."""

    MARKER_FIRST = "marker-first"  # what completes it was there before its last byte
    COMMIT_UNSYNCED = "commit-unsynced"  # it was completed, or got its name, before its data was synced
    OVERWRITTEN = "overwritten"  # the only copy was emptied to be written anew


class Mode(str, Enum):
    """Whether the thread that trains was held while the bytes were written."""

    SYNC = "sync"
    ASYNC = "async"


class Level(str, Enum):
    """By which means it was seen."""

    TRACE = "trace"
    POLL = "poll"


class Medium(str, Enum):
    """What its bytes went to."""

    FILE = "file"
    OBJECT = "object"  # over the network, as a request to an object store: there is no file


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
    """A time in which nothing was recorded."""

    start_ns: int  # epoch nanoseconds
    end_ns: int  # epoch nanoseconds
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


class Writer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A process that moved bytes of a checkpoint (it reads, in a restore)."""

    pid: int
    comm: str
    bytes: Count
    rank: int | None = None
    start_ns: int | None = None  # wall clock, of its first operation
    end_ns: int | None = None  # wall clock, of its last but for a marker of all: the slowest rank ends last
    role: Annotated[str, one_of("trainer", "thread", "child", "daemon")] | None = None
    # trainer: the thread that trains; thread: another of its threads


class Moments(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The course of a save between its start (first create) and end; wall clock. None: not seen, or there was none."""

    first_data_ns: int | None = None
    last_data_ns: int | None = None
    synced_ns: int | None = None  # the last fsync or its like returned
    committed_ns: int | None = None  # the marker was written, or the last rename done
    cleaned_ns: int | None = None  # the last old checkpoint was deleted


class Metadata(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What its processes did to files beside moving data, from start to end. None: not seen."""

    created: Count | None = None
    renamed: Count | None = None
    unlinked: Count | None = None
    synced: Count | None = None
    at_least: bool = False  # more of each was done than was told
    data_call_ns: Count | None = None  # spent in the calls that moved the data, of all threads together


class Overhead(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Bytes that were written beyond the checkpoint itself."""

    reason: Annotated[str, one_of("staging", "copy", "consolidation", "duplicate", "rewrite")]
    bytes: Count
    text: str  # what was seen, for a person


class Evidence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One reason for or against calling a burst a checkpoint."""

    name: str  # a short stable word: format, name, commit, runtime, recurs, read-back, copies-what-it-reads ...
    weight: Nullable  # positive speaks for a checkpoint, negative against
    text: str  # what was seen, for a person


class Pattern(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How the bytes of one direction were laid out; shares are 0 to 1 of what was seen. None: could not be seen."""

    class_: PatternClass | None = msgspec.field(name="class")  # decided by bytes
    sequential_share_bytes: Share | None = None  # bytes that begin where the previous operation ended or later
    consecutive_share_bytes: Share | None = None  # bytes that begin where the previous operation ended
    large_share_bytes: Share | None = None  # bytes in runs of consecutive operations of 1 MiB or more
    sequential_share_operations: Share | None = None  # as above, by operations
    consecutive_share_operations: Share | None = None  # as above, by operations
    order_seen_share_bytes: Share | None = None  # how much of the bytes the shares speak for
    operations: Count | None = None
    mean_operation_bytes: Amount | None = None
    median_operation_bytes: Amount | None = None  # weighted by bytes
    size_histogram: Histogram | None = None  # lower bound of the operation size in bytes -> [operations, bytes]
    buffered_share_bytes: Share | None = None  # through the page cache by read and write
    direct_share_bytes: Share | None = None  # past the page cache
    mapped_share_bytes: Share | None = None  # by page faults of a mapping
    engine: Annotated[str, one_of("nvfs", "p2pdma", "compat")] | None = None
    # by which cuFile moved it between GPU and storage: its driver, past all calls; direct calls on memory of the GPU;
    # or calls on memory of the host. None: nothing shows that it was cuFile


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Where in its file a stream was: in a stretch of time, of one thread (trace), or at one look (poll)."""

    start_ns: int  # epoch nanoseconds, of the first operation
    end_ns: int  # of the last one; a look is one instant
    bytes: int | None  # that were moved meanwhile; None: a look
    low_offset: int  # where they begin
    high_offset: int  # and end; of a look it is the position
    order: Succession | None = None  # None: not seen
    tid: int | None = None  # of the thread; None: of several together, or a look


class Stream(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one process did to one file in one direction."""

    pid: int
    comm: str
    path: str
    bytes: Count
    size: int | None  # of the file, when it was settled
    start_ns: int  # epoch nanoseconds
    end_ns: int  # epoch nanoseconds
    class_: PatternClass | None = msgspec.field(name="class", default=None)
    seen_by: str = "fdinfo"  # fdinfo | maps | directory | counters | trace
    progress: tuple[Progress, ...] = ()  # by their start; none where no offset was seen, or it is of those left out


class Interval(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stretch of time, wall clock."""

    start_ns: int
    end_ns: int


class Point(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Bytes moved by the checkpoint's processes in one interval; the timeline of `show`."""

    start_ns: int  # epoch nanoseconds
    end_ns: int  # epoch nanoseconds
    bytes: int


class Destination(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The end of a connection over which a checkpoint was sent to an object store, or came from one."""

    remote: str  # address
    port: int
    bytes: Count  # that were acknowledged, or received, with what the protocol and its encryption add

    @property
    def place(self) -> str:
        """Address and port, as a URL has them."""
        return f"[{self.remote}]:{self.port}" if ":" in self.remote else f"{self.remote}:{self.port}"


class Sent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How a checkpoint without a file went over the network. Its objects have no names here: they are encrypted."""

    destinations: tuple[Destination, ...]  # of a restore: where it came from. The one with most first, so many at most
    connections: Count | None = None  # as many as were seen to be open at once; None: only its calls were counted
    parts: Count | None = None  # each moved by one connection before anything went the other way; None: not seen
    part_bytes: Count | None = None  # of a part, in the mean


class Run(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One execution of a job on all its nodes; a restart is another one. None: not told."""

    key: str  # each of its nodes makes the same one; a later run at the same meeting place may have it again
    scheduler: Annotated[str, one_of("slurm", "kubernetes", "flux", "rendezvous")]  # who tells
    job: str | None = None  # as its scheduler calls it
    restart: Count | None = None  # how often the scheduler has started it again
    ranks: Count | None = None  # that it has on all of its nodes
    nodes: Count | None = None  # that it was given
    node: Count | None = None  # which of them this is, from 0
    conflict: str | None = None  # what the environment says otherwise than the cgroup, which is right
    user: str | None = None  # whose it is, as Slurm's prolog says (deploy/slurm), else as its environment claims
    account: str | None = None  # likewise
    partition: str | None = None  # likewise


class Place(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where a checkpoint lies, so that other nodes which see the same folder say the same. None: not known."""

    key: str  # made of file system and inode: equal on each node of a site that has the same one, else another one
    shared: bool | None  # other nodes can have it mounted; None: nobody can tell


class Clock(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How far the wall clock of the host may have been off."""

    synchronised: bool
    bound_ns: Count | None  # at most, as its kernel says (maxerror); None: not synchronised, or nobody has estimated it


class DeviceShare(msgspec.Struct, frozen=True, gc=False, kw_only=True):
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
    requests: int | None = None  # that the disk completed, in the checkpoint's direction
    mean_request_bytes: float | None = None
    sequential_share_bytes: float | None = None  # of those issued: that begin where the request issued before ended
    latency_p50_seconds: float | None = None  # half of the requests took at most about this from issue to completion
    latency_p99_seconds: float | None = None  # 99 % of the requests took at most about this
    max_in_flight: int | None = None  # the most that were seen under way at once, looking once a second


class Hazard(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a checkpoint may restore wrongly."""

    kind: Risk
    text: str  # what was seen, for a person


_RISKS = frozenset(risk.value for risk in Risk)


class Checkpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A burst recognised as a save or a restore, or a copy of checkpoint files. All times are epoch nanoseconds.

    None: not known, never invented.
    """

    id: Count = 0  # number in the database; 0 if it was never stored
    uid: str  # the same event always has the same uid
    kind: Kind
    job: str
    owner: int | None = None  # the user, by number, of the process that moved most of it
    framework: str | None
    step: int | None
    ranks: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})] | None
    start_ns: int  # epoch nanoseconds of the first I/O
    end_ns: int  # epoch nanoseconds of the last I/O
    durable_ns: int | None = None  # epoch nanoseconds: the last byte was on stable storage; see durable_is_most
    bytes: Count
    files: Count
    path: str | None  # the file, or the directory that all files share; None of what went to, or came from, a store
    sent: Sent | None = None  # of what went to an object store, or came from one, and not to or from a file
    run: Run | None = None  # what joins it with those of other nodes; None: nothing that they would see, too
    place: Place | None = None  # None: of what went to an object store, and where its folder was not seen
    clock: Clock | None = None
    writers: tuple[Writer, ...]  # the processes that moved the bytes; they read, in a restore
    mode: Mode | None = None
    stall_ns: Count | None = None  # time in which training did not advance because of it
    blocked: tuple[Interval, ...] = ()  # when that was, in order: stall_ns in all. Empty where only its length is
    # known, and for what was stored by an older ckptprof
    status: Status = Status.COMPLETE
    moments: Moments = Moments()
    metadata: Metadata = Metadata()
    written_bytes: int | None = None  # of a save: with staging, copies and rewriting; `bytes` are those of its files
    unique_bytes: int | None = None  # of a save without duplicates; of a restore without what several ranks read again
    overheads: tuple[Overhead, ...] = ()  # why written_bytes is more than unique_bytes
    storage_bytes: int | None = None  # of a restore: what came from a device or the network, not the page cache
    cache: Annotated[str, one_of("cold", "warm", "partly")] | None = None  # of a restore
    pattern: Pattern
    measures: Measures | None = None  # in `show --json` only; None: not measured, or older than timelines are kept
    verdict: Verdict | None = None  # None: no diagnosis was made
    cost: Cost | None = None  # None: not worked out
    level: Level  # by which means it was seen
    blind: tuple[str, ...]  # what was out of sight, each one sentence
    evidence: tuple[Evidence, ...]
    confidence: float  # how sure it is that this is a checkpoint, 0 to 1
    streams: tuple[Stream, ...] = ()  # in `show --json` only
    progress_left_out: Count = 0  # streams whose offsets were seen and are not kept: not of the slowest or the largest
    timeline: tuple[Point, ...] = ()  # in `show --json` only
    devices: tuple[DeviceShare, ...] = ()  # in `show --json` only
    revision: int = 0  # told again with the same uid, as more becomes known (durable, clean-up): not stored

    @property
    def medium(self) -> Medium:
        """What its bytes went to."""
        return Medium.FILE if self.sent is None else Medium.OBJECT

    @property
    def cuts(self) -> frozenset[str]:
        """By what it was cut: evidence of what is only a part of it, or was seen in two parts."""
        return frozenset(one.name for one in self.evidence if one.name in (CUT_AT_BEGIN, CUT_AT_END, CUT_BETWEEN))

    @property
    def risks(self) -> tuple[Hazard, ...]:
        """Why it may restore wrongly, whole as it looks, as far as that was seen."""
        return tuple(Hazard(kind=Risk(one.name), text=one.text) for one in self.evidence if one.name in _RISKS)

    @property
    def is_restorable(self) -> bool:
        """Whether it is a save that is whole, as far as that was seen."""
        return self.kind is Kind.SAVE and self.status is Status.COMPLETE and not self.risks

    @property
    def at_risk_ns(self) -> int | None:
        """How long a save counted as complete before it was on stable storage; None: not known."""
        if self.kind is not Kind.SAVE or self.durable_ns is None:
            return None
        return max(0, self.durable_ns - (self.moments.committed_ns or self.end_ns))

    @property
    def durable_is_most(self) -> bool | None:
        """Whether durable_ns and at_risk_ns are upper bounds, by looks at its files; False: a sync tells the time.

        None: it is not known.
        """
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

    start_ns: int | None  # epoch nanoseconds; None if nothing was recorded
    end_ns: int | None  # epoch nanoseconds
    gaps: tuple[Gap, ...] = ()
    moved_aside: tuple[str, ...] = ()  # paths of databases beside this one that were damaged, and are not told


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ckptprof report`."""

    schema_version: int = 1
    host: str | None
    watched: Watched
    checkpoints: tuple[Checkpoint, ...]
    copies_left_out: int = 0  # copies that would fit the question, had it asked for them
