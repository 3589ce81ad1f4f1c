"""The data model of ckptprof (docs/architecture.md): frozen, without I/O, the same live, on replay and from the store.

A checkpoint is a tree without cycles: `gc=False` excludes it from garbage collection, which would take a third of the
time of a long report.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

from ckptprof.bounds import Amount, Count, Histogram, Nullable, Share, one_of
from ckptprof.measures import Measures
from ckptprof.verdicts import Cost, Verdict


class Kind(str, Enum):
    """The kind of a checkpoint."""

    SAVE = "save"
    RESTORE = "restore"
    COPY = "copy"  # checkpoint files copied, moved, packed or staged by a process that does not train


CUT_AT_START = "cut-at-start"  # evidence: monitoring started during it
CUT_AT_END = "cut-at-end"  # evidence: monitoring ended during it
HUNG = "hung"  # evidence: a writer stopped within it, and it has not ended
LATE = "late"  # evidence: the recorder was behind when it decided
CUT_BETWEEN = "cut-between"  # evidence: monitoring restarted during it; both parts are reported as one


class Status(str, Enum):
    """Whether the checkpoint is complete."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  # the writer died, the disk was full, or the commit marker never came


class Risk(str, Enum):
    """Why a seemingly complete checkpoint may restore wrongly; also names of evidence without a weight."""

    SHARED_PATH = "shared-path"  # several processes of the job wrote the same bytes of a file
    NOT_REPLACED = "not-replaced"  # still the placeholder copy that training was to overwrite
    DISK_FULL = "disk-full"  # no space was left for a file, or next to one without proof of completeness
    WRITE_FAILED = "write-failed"  # a write, sync or close of a file failed for another reason


class Frailty(str, Enum):
    """What a crash may damage because of how a save is written; also names of evidence without a weight."""

    MARKER_FIRST = "marker-first"  # the commit marker was written before the last byte
    COMMIT_UNSYNCED = "commit-unsynced"  # committed or renamed before its data was synced
    OVERWRITTEN = "overwritten"  # the only copy was truncated and rewritten


class Mode(str, Enum):
    """Whether the training thread was blocked while the bytes were written."""

    SYNC = "sync"
    ASYNC = "async"


LEFT_OUT = "left out to keep the CPU budget of ckptprof"  # the end of that limitation
REUSED_MEMORY = "how long it built its state in memory left from an earlier save, which looks like training"


class Level(str, Enum):
    """How I/O is observed: each call by eBPF (trace), or counters by sampling (poll)."""

    TRACE = "trace"
    POLL = "poll"


class Medium(str, Enum):
    """Where the bytes are stored."""

    FILE = "file"
    OBJECT = "object"  # object store, over the network; no file


class PatternClass(str, Enum):
    """The access pattern, weighted by bytes (design section 5)."""

    SEQUENTIAL_LARGE = "sequential-large"
    SEQUENTIAL_SMALL = "sequential-small"
    STRIDED = "strided"
    RANDOM = "random"
    MIXED = "mixed"


class Succession(str, Enum):
    """The order of operations in a stretch, by nearly all of their bytes."""

    NEXT = "next"  # each directly after the previous one
    ON = "on"  # ascending, with gaps
    BACK = "back"  # with backward steps: only the range of offsets is known


class Gap(msgspec.Struct, frozen=True):
    """A time in which nothing was recorded."""

    start_ns: int  # epoch nanoseconds
    end_ns: int  # epoch nanoseconds
    reason: str
    lost_samples: int = 0  # that many samples were lost in this time; 0: all


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a recorder, from its first frame to its last."""

    uid: str
    host: str
    boot_id: str
    kernel: str
    version: str
    level: str
    start_ns: int  # wall clock
    end_ns: int  # wall clock of the last stored frame
    clean: bool  # ended normally, with everything stored
    dropped_frames: int = 0


class Writer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A process that transferred bytes of a checkpoint (a reader, in a restore)."""

    pid: int
    comm: str
    bytes: Count
    rank: int | None = None
    start_ns: int | None = None  # wall clock, of its first operation
    end_ns: int | None = None  # wall clock, of its last operation except the commit marker: the slowest rank ends last
    role: Annotated[str, one_of("trainer", "thread", "child", "daemon")] | None = None
    # trainer: the training thread; thread: another thread of its process


class Moments(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Phases of a save, from its first create to its deletion; wall clock. None: not observed, or none."""

    first_data_ns: int | None = None
    last_data_ns: int | None = None
    synced_ns: int | None = None  # the last sync call returned
    committed_ns: int | None = None  # the marker was written, or the last rename completed
    cleaned_ns: int | None = None  # the last old checkpoint was deleted
    deleted_ns: int | None = None  # its largest file was deleted


class Metadata(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """File operations of its processes other than transfers, from start to end. None: not observed."""

    created: Count | None = None
    renamed: Count | None = None
    unlinked: Count | None = None
    synced: Count | None = None
    synced_all: Count | None = (
        None  # of these, syncs of a whole file system or of all: syncfs, sync; None: also if none
    )
    at_least: bool = False  # the counts are lower bounds
    data_call_ns: Count | None = None  # time in calls that transferred data, sum of all threads


class Overhead(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Bytes written in addition to the checkpoint itself."""

    reason: Annotated[str, one_of("staging", "copy", "consolidation", "duplicate", "rewrite")]
    bytes: Count
    text: str  # description of the observation


class Evidence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Evidence for or against classifying a burst as a checkpoint."""

    name: str  # a short stable name: format, name, commit, runtime, recurs, read-back, copies-what-it-reads ...
    weight: Nullable  # positive: a checkpoint; negative: not one
    text: str  # description of the observation


class Pattern(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The access pattern of one direction; shares are 0 to 1 of the observed bytes. None: not observed."""

    class_: PatternClass | None = msgspec.field(name="class")  # decided by bytes
    sequential_share_bytes: Share | None = None  # bytes that start at or after the end of the previous operation
    consecutive_share_bytes: Share | None = None  # bytes that start at the end of the previous operation
    large_share_bytes: Share | None = None  # bytes in runs of consecutive operations of 1 MiB or more
    sequential_share_operations: Share | None = None  # as above, by operations
    consecutive_share_operations: Share | None = None  # as above, by operations
    order_known_share_bytes: Share | None = None  # share of the bytes with an observed order
    operations: Count | None = None
    mean_operation_bytes: Amount | None = None
    median_operation_bytes: Amount | None = None  # weighted by bytes
    size_histogram: Histogram | None = None  # lower bound of the operation size in bytes -> [operations, bytes]
    buffered_share_bytes: Share | None = None  # through the page cache by read and write
    direct_share_bytes: Share | None = None  # bypassing the page cache
    mapped_share_bytes: Share | None = None  # by page faults of a mapping
    engine: Annotated[str, one_of("nvfs")] | None = None  # the driver of GPUDirect Storage, without system calls


class Progress(msgspec.Struct, frozen=True, gc=False):
    """File offsets of a stream: over an interval, of one thread (trace), or at one sample (poll)."""

    start_ns: int  # epoch nanoseconds, of the first operation
    end_ns: int  # of the last one; equal for a sample
    bytes: int | None  # transferred in it; None: a sample
    low_offset: int  # lowest offset
    high_offset: int  # highest offset; of a sample the position
    order: Succession | None = None  # None: not observed
    tid: int | None = None  # None: several threads together, or a sample


class Stream(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The transfers of one process with one file in one direction."""

    pid: int
    comm: str
    path: str
    bytes: Count
    size: int | None  # of the file at the end of the stream
    start_ns: int  # epoch nanoseconds
    end_ns: int  # epoch nanoseconds
    class_: PatternClass | None = msgspec.field(name="class", default=None)
    observed_by: str = "fdinfo"  # fdinfo | maps | directory | counters | trace
    progress: tuple[Progress, ...] = ()  # ordered by start; empty if no offset was observed or the stream was omitted


class Interval(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An interval, wall clock."""

    start_ns: int
    end_ns: int


class Point(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Bytes transferred by the checkpoint's processes in one interval; the timeline of `show`."""

    start_ns: int  # epoch nanoseconds
    end_ns: int  # epoch nanoseconds
    bytes: int


class Destination(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The remote end of connections that carried a checkpoint to or from an object store."""

    remote: str  # address
    port: int
    bytes: Count  # acknowledged or received, including protocol and encryption overhead

    @property
    def place(self) -> str:
        """Address and port, as a URL has them."""
        return f"[{self.remote}]:{self.port}" if ":" in self.remote else f"{self.remote}:{self.port}"


class Sent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The network transfer of a checkpoint without files. Object names are unknown: the traffic is encrypted."""

    destinations: tuple[Destination, ...]  # of a restore: the sources. Most bytes first
    connections: Count | None = None  # maximum observed open at once; None: only calls were counted
    parts: Count | None = None  # each sent by one connection before a reply; None: not observed
    part_bytes: Count | None = None  # average size of a part


class Run(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One execution of a job on all its nodes; a restart is another run. None: unknown."""

    key: str  # equal on all of its nodes; a later run at the same rendezvous may reuse it
    scheduler: Annotated[str, one_of("slurm", "kubernetes", "flux", "rendezvous")]  # the source
    job: str | None = None  # name used by its scheduler
    restart: Count | None = None  # number of restarts by the scheduler
    ranks: Count | None = None  # total on all nodes
    nodes: Count | None = None  # allocated to it
    node: Count | None = None  # index of this node, from 0
    conflict: str | None = None  # where the environment contradicts the cgroup, which is right
    user: str | None = None  # its owner, from Slurm's prolog (deploy/slurm), else from its environment
    account: str | None = None  # likewise
    partition: str | None = None  # likewise


class Place(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The location of a checkpoint, equal on all nodes that share the folder. None: unknown."""

    key: str  # from file system and inode: equal on all nodes that share it, different otherwise
    shared: bool | None  # other nodes can mount it; None: unknown


class Clock(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The error bound of the host's wall clock."""

    synchronised: bool
    bound_ns: Count | None  # maximum error, from the kernel (maxerror); None: not synchronised, or unknown


class DeviceShare(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A device under the checkpoint's files, or a NIC, during the checkpoint.

    Requests are observed by tracing only, for whole disks, in the checkpoint's direction, by any process. Latencies,
    from issue to completion, have a resolution of a factor of two: each is the geometric middle of its bucket.
    """

    device: str
    kind: str  # block | nic | rdma
    read_bytes: int
    written_bytes: int
    busy_seconds: float | None
    under: str | None  # mount point of the checkpoint on this device; None for unrelated devices
    requests: int | None = None  # completed by the disk, in the checkpoint's direction
    mean_request_bytes: float | None = None
    sequential_share_bytes: float | None = None  # of issued requests: those that start at the end of the previous one
    latency_p50_seconds: float | None = None  # half of the requests took at most about this from issue to completion
    latency_p99_seconds: float | None = None  # 99 % of the requests took at most about this
    max_in_flight: int | None = None  # the most observed in flight at once, sampled every second


class Hazard(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a checkpoint may restore wrongly."""

    kind: Risk
    text: str  # description of the observation


_RISKS = frozenset(risk.value for risk in Risk)


class Checkpoint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A burst recognised as a save, a restore, or a copy of checkpoint files. All times are epoch nanoseconds.

    None: unknown.
    """

    id: Count = 0  # number in the database; 0 if not stored
    uid: str  # stable identifier of the event
    kind: Kind
    job: str
    owner: int | None = None  # uid of the process that transferred most of it
    framework: str | None
    step: int | None
    ranks: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})] | None
    start_ns: int  # epoch nanoseconds of the first I/O
    end_ns: int  # epoch nanoseconds of the last I/O
    durable_ns: int | None = None  # epoch nanoseconds: the last byte was on stable storage; see durable_is_most
    bytes: Count
    files: Count
    path: str | None  # the file, or the common directory of all files; None for object stores
    sent: Sent | None = None  # transfer to or from an object store, instead of files
    run: Run | None = None  # joins it with checkpoints of other nodes; None: no common key
    place: Place | None = None  # None: object store, or the folder was not observed
    clock: Clock | None = None
    writers: tuple[Writer, ...]  # the processes that transferred the bytes; readers, in a restore
    mode: Mode | None = None
    stall_ns: Count | None = None  # time in which training did not advance because of it
    blocked: tuple[Interval, ...] = ()  # intervals of the stall, in order; their sum is stall_ns. Empty if only the
    # duration is known, or if stored by an older ckptprof
    status: Status = Status.COMPLETE
    moments: Moments = Moments()
    metadata: Metadata = Metadata()
    written_bytes: int | None = None  # of a save: including staging, copies and rewrites; `bytes`: of its files
    unique_bytes: int | None = None  # of a save without duplicates; of a restore without repeated reads of ranks
    overheads: tuple[Overhead, ...] = ()  # reasons for written_bytes above unique_bytes
    storage_bytes: int | None = None  # of a restore: read from a device or the network, not the page cache
    cache: Annotated[str, one_of("cold", "warm", "partly")] | None = None  # of a restore
    pattern: Pattern
    measures: Measures | None = None  # in `show --json` only; None: not measured, or timelines already deleted
    verdict: Verdict | None = None  # None: no diagnosis
    cost: Cost | None = None  # None: not computed
    level: Level  # level of observation
    limitations: tuple[str, ...]  # what was not observed, one sentence each
    evidence: tuple[Evidence, ...]
    confidence: float  # confidence that this is a checkpoint, 0 to 1
    streams: tuple[Stream, ...] = ()  # in `show --json` only
    progress_left_out: Count = 0  # streams without retained offsets: not among the slowest or largest
    timeline: tuple[Point, ...] = ()  # in `show --json` only
    devices: tuple[DeviceShare, ...] = ()  # in `show --json` only
    revision: int = 0  # reported again with the same uid and more details (durable, clean-up); not stored

    @property
    def medium(self) -> Medium:
        """Where its bytes are stored."""
        return Medium.FILE if self.sent is None else Medium.OBJECT

    @property
    def cuts(self) -> frozenset[str]:
        """Evidence names of checkpoints observed only in part, or in two parts."""
        return frozenset(one.name for one in self.evidence if one.name in (CUT_AT_START, CUT_AT_END, CUT_BETWEEN))

    @property
    def risks(self) -> tuple[Hazard, ...]:
        """Why it may restore wrongly although it looks complete, as far as observed."""
        return tuple(Hazard(kind=Risk(one.name), text=one.text) for one in self.evidence if one.name in _RISKS)

    @property
    def is_restorable(self) -> bool:
        """Whether it is a complete save without known risks."""
        return self.kind is Kind.SAVE and self.status is Status.COMPLETE and not self.risks

    @property
    def at_risk_ns(self) -> int | None:
        """Time between commit and stable storage of a save; None: unknown."""
        if self.kind is not Kind.SAVE or self.durable_ns is None:
            return None
        return max(0, self.durable_ns - (self.moments.committed_ns or self.end_ns))

    @property
    def durable_is_most(self) -> bool | None:
        """Whether durable_ns and at_risk_ns are upper bounds from samples of its files; False: exact, from a sync.

        None: unknown.
        """
        return None if self.durable_ns is None else any(one.name == "durable" for one in self.evidence)


class CheckpointQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of checkpoints; wall clock bounds in epoch nanoseconds, newest `limit` of them."""

    since_ns: int | None = None
    until_ns: int | None = None
    job: str | None = None  # exact, or a shell pattern
    kind: Kind | None = None  # None: saves and restores, without copies
    limit: int | None = None


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded time within a query's bounds."""

    start_ns: int | None  # epoch nanoseconds; None without records
    end_ns: int | None  # epoch nanoseconds
    gaps: tuple[Gap, ...] = ()
    set_aside: tuple[str, ...] = ()  # paths of damaged databases next to this one; not included


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ckptprof report`."""

    schema_version: int = 1
    host: str | None
    watched: Watched
    checkpoints: tuple[Checkpoint, ...]
    copies_left_out: int = 0  # matching copies that the query excluded
