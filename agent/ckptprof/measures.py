"""Measurements around one checkpoint: the input of its diagnosis, stored with it.

Every value is a plain number, or None for not observed. Points in time are nanoseconds of the wall clock, other times
are durations. Conclusions are drawn in `diagnose`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ckptprof.bounds import one_of


class ThreadMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The activity of one participating thread, from its first to its last operation for the checkpoint.

    Times in calls do not overlap. The rest of the span is user code (`user_ns`), waiting for a CPU (`runqueue_ns`), or
    sleep for a reason not observed.
    """

    pid: int
    tid: int
    comm: str
    rank: int | None = None
    role: str | None = None  # of its process: trainer | thread | child | daemon
    is_main: bool = False  # the training thread, as far as known
    start_ns: int  # wall clock: its first operation
    end_ns: int
    bytes: int = 0  # transferred in the direction of the checkpoint
    operations: int | None = None
    files: int | None = None
    read_bytes: int | None = None  # of data files, by a save: read back, or read to be modified
    on_cpu_ns: int | None = None  # /proc/PID/task/TID/schedstat
    user_ns: int | None = None  # of on_cpu_ns, in user mode; resolution of a clock tick (10 ms)
    system_ns: int | None = None
    runqueue_ns: int | None = None  # runnable, waiting for a CPU
    block_delay_ns: int | None = None  # waiting for block I/O (delay accounting); None without delay accounting
    data_call_ns: int | None = None  # in the calls that transferred data
    sync_call_ns: int | None = None  # fsync, fdatasync, sync_file_range ...
    close_call_ns: int | None = None  # close of written files: NFS and FUSE flush there
    create_call_ns: int | None = None  # including slow truncating opens of existing files
    rename_call_ns: int | None = None
    unlink_call_ns: int | None = None
    syncs: int | None = None
    closes: int | None = None
    creates: int | None = None
    renames: int | None = None
    unlinks: int | None = None
    samples: int | None = None  # number of samples during its activity (polling)
    samples_by_state: dict[str, int] | None = None  # of these, by state: data | sync | close | create | rename |
    # unlink | metadata | fault | network | lock | file-lock | child | sleep | running | stopped | other; an estimate


class ProcessMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The activity of one process of the job from the checkpoint's start to its end, with or without transfers."""

    pid: int
    comm: str
    rank: int | None = None
    bytes: int = 0  # transferred for the checkpoint
    first_ns: int | None = None  # wall clock: first transfer
    last_ns: int | None = None
    busy: float | None = None  # cores used on average
    dirty_pause_ns: int | None = None  # blocked in balance_dirty_pages, sum of all threads
    dirty_pauses: int | None = None
    major_faults: int | None = None
    minor_faults: int | None = None
    faulted_bytes: int | None = None  # of mappings
    fetched_bytes: int | None = None  # read from a device or the network
    grown_bytes: int | None = None  # of anonymous memory
    stacks: dict[str, int] | None = None  # samples of Python stacks of the writing thread by activity: pickle | crc |
    # compress | copy | gather | write | sync | wait | other


class UsageMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """Processes of one name that are not in `Measures.processes` and used CPUs or disks from start to end."""

    comm: str
    count: int
    busy: float  # cores used on average, by all of them
    started_by_writer: bool  # descendants of a process that transferred bytes
    disk_bytes: int = 0  # read from or written to disks, by all of them


class DeviceMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A block device under the files, from start to end (to `durable` if the device continued to write)."""

    device: str
    countable: bool  # the level of its stack at which bytes are counted
    transport: str | None = None
    rotational: bool | None = None
    seconds: float  # of the observed time: of a short checkpoint longer, from the sample before it to the one after
    read_bytes: int
    written_bytes: int
    reads: int
    writes: int
    flushes: int | None = None
    flush_seconds: float | None = None  # in all of them; neither busy nor in flight by the counters of the kernel
    discards: int | None = None
    busy_seconds: float | None = None
    mean_queue: float | None = None  # requests in flight on average
    read_wait_seconds: float | None = None  # per request
    write_wait_seconds: float | None = None
    peak_bytes_per_second: float | None = None  # the fastest second within, in this direction
    shown_bytes_per_second: float | None = None  # the fastest second ever observed, in this direction
    shown_operations_per_second: float | None = None
    shown_request_bytes: float | None = None  # the mean request in the second of shown_bytes_per_second
    steadiness: float | None = None  # 0..1: share of the active time with a rate within 20 % of the median
    throttled_bytes_per_second: int | None = None  # a limit of the job's cgroup or of the host: io.max, blkio.throttle
    throttled_operations_per_second: int | None = None


class PathMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A fabric path to the NVMe namespace under the files, from start to end."""

    device: str  # its bytes are those of the device with this name
    transport: str  # tcp | rdma | fc
    target: str | None = None  # address of the target
    port: int | None = None
    link: str | None = None  # the interface or RDMA port of the path, if its address shows it
    state: str | None = None  # of its controller: live, or the longest other state: connecting, gone
    lost_seconds: float | None = None  # time not live
    ana_state: str | None = None  # the longest access state reported by the target: optimized


class LinkMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A NIC or RDMA port, from start to end."""

    name: str
    kind: str  # nic | rdma | loopback
    countable: bool
    speed_bytes_per_second: float | None = None  # of the link, as the driver reports it
    received_bytes: int
    sent_bytes: int
    peak_bytes_per_second: float | None = None  # the fastest second within, in the direction of the checkpoint
    shown_bytes_per_second: float | None = None  # the fastest rate ever observed outside of this checkpoint
    steadiness: float | None = None  # as of a device
    active_seconds: float | None = None  # time with more than minimal traffic
    shaped_drops: int | None = None  # packets dropped or delayed by its queueing discipline (tc -s qdisc)
    shaped_overlimits: int | None = None
    backlog_bytes: int | None = None  # the largest observed
    wire_received_bytes: int | None = None  # as the driver counts them, including kernel bypass (ethtool)
    wire_sent_bytes: int | None = None
    pauses_received: int | None = None  # pause frames from the other end
    pauses_sent: int | None = None
    discards: int | None = None  # packets not sent
    wait_share: float | None = None  # of an RDMA port's ticks: data to send, but no credit
    congestion_notifications: int | None = None  # received (CNP): each slows down sending
    marked_packets: int | None = None  # received with a congestion mark (ECN)
    out_of_sequence: int | None = None  # packets received or acknowledged out of order
    ack_timeouts: int | None = None
    before_bytes_per_second: float | None = None  # in the ten seconds before it, in its direction, by any process
    interface: str | None = None  # of an RDMA port: the network interface of the same port


class ConnectionMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The TCP connections with one remote port, from start to end (`tcp_info` of the kernel)."""

    remote: str  # address
    port: int  # of the remote end; if it opened the connections, the accepting port of this host
    accepted: bool = False  # the remote end opened them
    links: tuple[str, ...] = ()  # the interfaces that carry their bytes, empty if unknown
    processes: tuple[int, ...] | None = None  # that own them; None: unknown, or the kernel itself
    relation: Annotated[str, one_of("server", "process", "daemon", "bytes")]
    # why they are listed: with the server of the mount, of a process of the job, of the daemon of the mount, or only by
    # their bytes
    sockets: int  # maximum open at once
    sent_bytes: int  # acknowledged
    received_bytes: int
    retransmitted_bytes: int | None = None
    seconds: float  # from start to end
    busy_seconds: float | None = None  # of each connection: time with unacknowledged data
    rwnd_share: float | None = None  # of that, limited by the receiver's window
    sndbuf_share: float | None = None  # of that, limited by the send buffer
    rtt_seconds: float | None = None  # round-trip time, average of the samples
    min_rtt_seconds: float | None = None  # recent minimum: round-trip time without queues


class UploadMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """An upload of a save's files to an object store, after reading them back."""

    remote: str  # address
    port: int
    bytes: int  # acknowledged, including protocol and encryption overhead
    start_ns: int  # wall clock, as the next
    end_ns: int  # the last byte was sent
    processes: tuple[int, ...]  # that sent it


class OperationMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one kind that the client of a remote mount completed from start to end, by any process.

    Seconds are averages per request; requests overlap, so that sums exceed the elapsed time.
    """

    kind: str  # name used by the client: WRITE, COMMIT
    count: int
    seconds: float | None = None  # from queueing to completion
    queue_seconds: float | None = None  # of that, before sending
    server_seconds: float | None = None  # of that, from sending to the reply
    sent_bytes: int | None = None  # including headers, as the received ones
    received_bytes: int | None = None
    retransmissions: int | None = None
    timeouts: int | None = None
    errors: int | None = None


class ServerMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A server or storage target of a remote mount, from start to end."""

    name: str
    address: str | None = None
    state: str | None = None  # state name used by the client
    read_bytes: int | None = None
    written_bytes: int | None = None
    operations: int | None = None
    seconds: float | None = None  # of an operation, from sending to the reply, on average
    timeouts: int | None = None
    in_flight: int | None = None  # maximum pending requests
    slots: int | None = None  # maximum allowed at a time
    gauges: dict[str, int] | None = None  # values specific to this kind of client

    @property
    def is_reached(self) -> bool:
        """Whether the client is connected or connecting; True if unknown."""
        return self.state in (None, "FULL", "IDLE", "NEW", "CONNECTING")


class MountMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The mount of the files, and its client's counters from start to end, for all processes of this host.

    Three layers are separate: bytes requested by processes, data exchanged with servers, and operations with headers.
    """

    mount_point: str
    fs_type: str
    source: str
    remote: bool  # has a server: NFS, Lustre, FUSE over a network
    server: str | None = None
    waiting_share: float | None = None  # share of samples in which FUSE had pending requests
    waiting_mean: float | None = None
    daemon: str | None = None  # the server process of a FUSE mount
    daemon_pid: int | None = None
    daemon_busy: float | None = None  # cores used by it, its children and its network helpers, on average
    client: str | None = None  # source of the counters below: nfs 4.2; for FUSE, without counters, the program: sshfs
    transport: str | None = None  # tcp | rdma | udp
    read_bytes: int | None = None  # requested by read calls through the page cache
    written_bytes: int | None = None
    direct_read_bytes: int | None = None  # requested with O_DIRECT
    direct_written_bytes: int | None = None
    wire_read_bytes: int | None = None  # data received from the servers
    wire_written_bytes: int | None = None
    requested_seconds: float | None = None  # from the start until nine tenths of the written bytes had been requested
    late_share: float | None = None  # share of the data sent to the servers after that
    operations: tuple[OperationMeasure, ...] = ()  # the most time first; at most 16
    delays: int | None = None  # replies that asked the client to retry later
    connections: int | None = None
    slots: int | None = None  # maximum requests in flight over one connection
    backlog_mean: float | None = None  # requests waiting for a slot, at each send
    in_use_mean: float | None = None  # pending requests, at each send
    servers: int | None = None  # or storage targets; None: the client does not distinguish them
    per_server: tuple[ServerMeasure, ...] = ()  # at most 16, unresponsive ones first, then the busiest
    settings: dict[str, int] | None = None  # of the mount and its client: wsize
    counters: dict[str, int] | None = None  # counters specific to this kind of client, from start to end
    paths: tuple[PathMeasure, ...] = ()  # fabric paths to the NVMe namespace under it; at most 16
    cut_off_seconds: float | None = None  # time without any live path


class MemoryMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The host's memory from start to end."""

    total_bytes: int | None = None
    available_min_bytes: int | None = None
    dirty_max_bytes: int | None = None  # including pages under writeback
    dirty_threshold_bytes: int | None = None  # the lowest in effect
    dirty_background_bytes: int | None = None
    io_some_share: float | None = None  # PSI
    io_full_share: float | None = None
    memory_some_share: float | None = None
    memory_full_share: float | None = None
    shared_before_bytes: int | None = None  # tmpfs and shared memory
    shared_peak_bytes: int | None = None
    locked_peak_bytes: int | None = None  # cannot be reclaimed: mlock, ramfs


class JobMemoryMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the job around a save, and how near it came to the limit at which the kernel kills."""

    before_bytes: int | None = None  # anonymous, of its processes: the least in the minute before training stopped
    peak_bytes: int | None = None  # until the end of the save
    after_bytes: int | None = None  # the least in the seconds after; null: all processes ended
    limit_bytes: int | None = None  # of a cgroup of the job or of the host: of the one that had least left
    is_of_cgroup: bool | None = None
    used_peak_bytes: int | None = None  # of this limit, without page cache, which the kernel reclaims


class BeforeMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The job's activity between the stop of training and the first byte of a save."""

    blocked_ns: int  # time for which training was blocked before the first byte
    busy: float | None = None  # cores used by the writing process
    runnable_share: float | None = None  # of the time in which its main thread ran or waited for a CPU
    helpers_busy: float | None = None  # by children that returned the written data to it
    received_bytes: int | None = None  # by the busiest interface, loopback included, or the writer's sockets if more
    grown_bytes: int | None = None  # memory of the writing processes
    growing_ns: int | None = None  # the part of the time in which it grew


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements. Lists are bounded; omitted items are included only in the sums of `Checkpoint`."""

    threads: tuple[ThreadMeasure, ...] = ()  # the most bytes and the latest ends first; at most 64
    processes: tuple[ProcessMeasure, ...] = ()  # at most 64
    others: tuple[UsageMeasure, ...] = ()  # the busiest first; at most 64; empty unless CPUs or disks were short
    devices: tuple[DeviceMeasure, ...] = ()
    links: tuple[LinkMeasure, ...] = ()
    mount: MountMeasure | None = None
    memory: MemoryMeasure | None = None
    job_memory: JobMemoryMeasure | None = None  # of a save
    before: BeforeMeasure | None = None
    clean_up_ns: int | None = None  # deletion of old checkpoints by the writing processes, while training waits
    clean_up_files: int | None = None
    clean_up_after_ns: int | None = None  # of it after the end: the training thread continued with deletions
    awaited: str | None = None  # the child process that ran longest while a writing main thread waited for one
    packed_ns: int | None = None  # wait of the training thread after the end for children that read the save
    packing_busy: float | None = None  # cores used during it by the busiest child
    cores: int | None = None  # processors of the host
    lost_share: float | None = None  # of the samples from start to end: the recorder was too slow for them
    connections: tuple[ConnectionMeasure, ...] = ()  # possibly relevant ones; at most 16
    gpu_sent_bytes: int | None = None  # by the GPUs of its job over PCIe: of a synchronous save from the stall, or
    # its start, to its end; between the enclosing samples, by any process
    uploads: tuple[UploadMeasure, ...] = ()  # of a save: copies of its files to another tier; at most 4
    unwritten_ns: int | None = None  # wall clock: the last sample with data not yet on stable storage
    written_back_bytes: int | None = None  # by the device under the files from start until a save was durable, if
    # later than its end
    written_back_ns: int | None = None  # of that time, with requests at the device
