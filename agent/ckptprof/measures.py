"""What was measured around one checkpoint: the raw material of its diagnosis, stored with it.

Everything is a plain number or None, which means that it could not be seen. Times are nanoseconds of the wall clock
where they are moments, and nanoseconds of duration elsewhere. Nothing here is a judgement: that is `diagnose`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ckptprof.bounds import one_of


class ThreadMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What one thread that took part did within its span: from its first act for the checkpoint to its last one.

    The times in calls do not overlap, being those of one thread; what is left of the span it spent in its own code
    (`user_ns`), waiting for a processor (`runqueue_ns`), or asleep for a reason that no call of ours tells.
    """

    pid: int
    tid: int
    comm: str
    rank: int | None = None
    role: str | None = None  # of its process: trainer | thread | child | daemon
    is_main: bool = False  # the thread that trains, as far as is known
    start_ns: int  # wall clock: its first act
    end_ns: int
    bytes: int = 0  # moved by it in the direction of the checkpoint
    operations: int | None = None
    files: int | None = None
    read_bytes: int | None = None  # of data files, by a save: what was read back or read to be changed
    on_cpu_ns: int | None = None  # /proc/PID/task/TID/schedstat
    user_ns: int | None = None  # of that outside the kernel; resolution of a clock tick (10 ms)
    system_ns: int | None = None
    runqueue_ns: int | None = None  # runnable, but not running
    block_delay_ns: int | None = None  # waiting for block I/O (delay accounting); None where the kernel keeps none
    data_call_ns: int | None = None  # in the calls that moved the data
    sync_call_ns: int | None = None  # fsync, fdatasync, sync_file_range ...
    close_call_ns: int | None = None  # close of files that it wrote: NFS and FUSE flush there
    create_call_ns: int | None = None  # with the openings that took long to empty a file that was there
    rename_call_ns: int | None = None
    unlink_call_ns: int | None = None
    syncs: int | None = None
    closes: int | None = None
    creates: int | None = None
    renames: int | None = None
    unlinks: int | None = None
    looks: int | None = None  # how often it was looked at while it was at it (polling)
    looks_in: dict[str, int] | None = None  # of these by what it was in: data | sync | close | create | rename |
    # unlink | metadata | fault | network | lock | sleep | running | other; an estimate of where its time went


class ProcessMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of the job did from the checkpoint's start to its end, whether it moved data or not."""

    pid: int
    comm: str
    rank: int | None = None
    bytes: int = 0  # moved for the checkpoint
    first_ns: int | None = None  # wall clock: of its data
    last_ns: int | None = None
    busy: float | None = None  # cores used, in the mean
    dirty_pause_ns: int | None = None  # held by balance_dirty_pages, all its threads together
    dirty_pauses: int | None = None
    major_faults: int | None = None
    minor_faults: int | None = None
    faulted_bytes: int | None = None  # of mappings
    fetched_bytes: int | None = None  # came from a device or the network
    grown_bytes: int | None = None  # of anonymous memory
    stacks: dict[str, int] | None = None  # looks at Python stacks of the writing thread by what it did: pickle | crc |
    # compress | copy | gather | write | sync | wait | other


class DeviceMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What a block device under the files did from start to end (to `durable`, where the device wrote on after it)."""

    device: str
    countable: bool  # the level of its stack at which bytes are counted
    transport: str | None = None
    rotational: bool | None = None
    seconds: float  # of the time that was looked at
    read_bytes: int
    written_bytes: int
    reads: int
    writes: int
    flushes: int | None = None
    discards: int | None = None
    busy_seconds: float | None = None
    mean_queue: float | None = None  # requests in flight, in the mean
    read_wait_seconds: float | None = None  # per request
    write_wait_seconds: float | None = None
    peak_bytes_per_second: float | None = None  # the best second within, both directions together
    shown_bytes_per_second: float | None = None  # the best second that it was ever seen to have, direction of this one
    shown_operations_per_second: float | None = None
    shown_request_bytes: float | None = None  # the mean request in the second of shown_bytes_per_second
    steadiness: float | None = None  # 0..1: share of the active time in which its rate lay within 20 % of the median
    throttled_bytes_per_second: int | None = None  # a limit of the job's cgroup or the whole: io.max, blkio.throttle
    throttled_operations_per_second: int | None = None


class PathMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A path to the NVMe namespace under the files, behind a fabric, from start to end."""

    device: str  # its bytes are those of the device of this name
    transport: str  # tcp | rdma | fc
    target: str | None = None  # address of its other end
    port: int | None = None
    link: str | None = None  # the interface or RDMA port that it goes through, where its address says so
    state: str | None = None  # of its controller: live, or what it was longest beside that: connecting, gone
    lost_seconds: float | None = None  # in which it was not live
    ana_state: str | None = None  # the access that the target gave over it for most of the time: optimized


class LinkMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What a NIC or RDMA port did from start to end."""

    name: str
    kind: str  # nic | rdma | loopback
    countable: bool
    speed_bytes_per_second: float | None = None  # of the link, as it says itself
    received_bytes: int
    sent_bytes: int
    peak_bytes_per_second: float | None = None  # the best second within, in the direction of the checkpoint
    shown_bytes_per_second: float | None = None  # the best that it was ever seen to have, outside of this checkpoint
    steadiness: float | None = None  # as of a device
    active_seconds: float | None = None  # in which it moved more than a trickle
    shaped_drops: int | None = None  # packets that its queueing discipline dropped or held back (tc -s qdisc)
    shaped_overlimits: int | None = None
    backlog_bytes: int | None = None  # the largest that was seen
    wire_received_bytes: int | None = None  # as its driver counts them, with what goes past the kernel (ethtool)
    wire_sent_bytes: int | None = None
    pauses_received: int | None = None  # frames by which the other end held this one up
    pauses_sent: int | None = None
    discards: int | None = None  # packets that it could not send
    wait_share: float | None = None  # of an RDMA port's ticks: it had data to send, and no credit to send it
    congestion_notifications: int | None = None  # that came in (CNP): it sends more slowly for each
    marked_packets: int | None = None  # that came in with a mark of congestion (ECN)
    out_of_sequence: int | None = None  # packets that came in, or were answered, in another order than they were sent
    ack_timeouts: int | None = None
    before_bytes_per_second: float | None = None  # in the ten seconds before it, in its direction: of others, too
    interface: str | None = None  # of an RDMA port: the network interface of the same port


class ConnectionMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What the TCP connections with one remote port did from start to end (`tcp_info` of the kernel)."""

    remote: str  # address
    port: int  # of the remote end; of connections that it opened, the port of this host that took them
    accepted: bool = False  # the remote end opened them
    links: tuple[str, ...] = ()  # the interfaces that carry their bytes, none if they are not known
    processes: tuple[int, ...] | None = None  # that have them; None: not known, or the kernel itself
    relation: Annotated[str, one_of("server", "process", "daemon", "bytes")]
    # why they are told: with the server of the mount, of a process of the job, of what serves the mount, or by their
    # bytes alone
    sockets: int  # at most open at once
    sent_bytes: int  # and acknowledged
    received_bytes: int
    retransmitted_bytes: int | None = None
    seconds: float  # from start to end
    busy_seconds: float | None = None  # of each connection: data was on its way and not acknowledged
    rwnd_share: float | None = None  # of that, held up by the window of the receiver
    sndbuf_share: float | None = None  # of that, held up by the send buffer of this end
    rtt_seconds: float | None = None  # a round, in the mean of the looks
    min_rtt_seconds: float | None = None  # the shortest round lately: what it is without queues


class UploadMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A save whose files were read back and sent to an object store: from its end on it is there, too."""

    remote: str  # address
    port: int
    bytes: int  # that were acknowledged, with what the protocol and its encryption add
    start_ns: int  # wall clock, as is the next
    end_ns: int  # the last of it was sent
    processes: tuple[int, ...]  # that sent it


class OperationMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one kind that the client of a remote mount had answered from start to end, of whoever made them.

    Several are on their way at a time: their seconds are means, and do not add up to the time that went by.
    """

    kind: str  # as the client calls it: WRITE, COMMIT
    count: int
    seconds: float | None = None  # from the moment when the client wanted it until it was done
    queue_seconds: float | None = None  # of that, before it was sent
    server_seconds: float | None = None  # of that, from when it was sent to the answer
    sent_bytes: int | None = None  # with headers, as are the received ones
    received_bytes: int | None = None
    retransmissions: int | None = None
    timeouts: int | None = None
    errors: int | None = None


class ServerMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A server of a remote mount, or what takes a share of its data there, from start to end."""

    name: str
    address: str | None = None
    state: str | None = None  # as the client calls it
    read_bytes: int | None = None
    written_bytes: int | None = None
    operations: int | None = None
    seconds: float | None = None  # of an operation, from when it was sent, in the mean
    timeouts: int | None = None
    in_flight: int | None = None  # at most, without an answer
    slots: int | None = None  # at most so many at a time may be
    gauges: dict[str, int] | None = None  # what only this kind of client tells

    @property
    def is_reached(self) -> bool:
        """Whether its client is connected with it, or about to be; also where the client does not say."""
        return self.state in (None, "FULL", "IDLE", "NEW", "CONNECTING")


class MountMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The mount that the files are on, and what its client did from start to end: for everybody on this host.

    Three heights are kept apart: what processes asked for, the data that went to and came from servers, and operations
    with their headers.
    """

    mount_point: str
    fs_type: str
    source: str
    remote: bool  # a server is behind it: NFS, Lustre, FUSE over a network
    server: str | None = None
    waiting_share: float | None = None  # of the looks in which FUSE had requests without an answer
    waiting_mean: float | None = None
    daemon: str | None = None  # the process that serves a FUSE mount
    daemon_pid: int | None = None
    daemon_busy: float | None = None  # cores used by it, its children and who speaks to the network for it, in the mean
    client: str | None = None  # that counts what follows: nfs 4.2; of FUSE, which counts nothing, the program: sshfs
    transport: str | None = None  # tcp | rdma | udp
    read_bytes: int | None = None  # asked for by read calls, through the page cache
    written_bytes: int | None = None
    direct_read_bytes: int | None = None  # asked for with O_DIRECT
    direct_written_bytes: int | None = None
    wire_read_bytes: int | None = None  # data that came from the servers
    wire_written_bytes: int | None = None
    asked_seconds: float | None = None  # from the start until nine tenths of what was written had been asked for
    late_share: float | None = None  # of the data that went to the servers, after that
    operations: tuple[OperationMeasure, ...] = ()  # those that took the most time first; at most 16
    delays: int | None = None  # answers by which a server said: later
    connections: int | None = None
    slots: int | None = None  # requests that were ever on their way at a time over one connection
    backlog_mean: float | None = None  # requests without a slot, as each one was sent
    in_use_mean: float | None = None  # requests without an answer, as each one was sent
    servers: int | None = None  # or what takes a share of the data there; None: the client does not tell them apart
    per_server: tuple[ServerMeasure, ...] = ()  # at most 16, those that do not answer first, then the busiest
    settings: dict[str, int] | None = None  # of the mount and its client: wsize
    counters: dict[str, int] | None = None  # what only this kind of client counts, from start to end
    paths: tuple[PathMeasure, ...] = ()  # to the NVMe namespace under it, behind a fabric; at most 16
    cut_off_seconds: float | None = None  # in which none of all its paths was live


class MemoryMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """The host's memory from start to end."""

    total_bytes: int | None = None
    available_min_bytes: int | None = None
    dirty_max_bytes: int | None = None  # with what is under writeback
    dirty_threshold_bytes: int | None = None  # the lowest that was in force
    dirty_background_bytes: int | None = None
    io_some_share: float | None = None  # PSI
    io_full_share: float | None = None
    memory_some_share: float | None = None
    memory_full_share: float | None = None


class GpuDirectMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver of GPUDirect Storage (nvidia-fs) counted from start to end, of whoever used it on this host."""

    reads: int | None = None  # None: its statistics are not enabled, as for all but the last two
    read_bytes: int | None = None  # in whole MiB, as are the written ones
    writes: int | None = None
    written_bytes: int | None = None
    errors: int | None = None
    cached: int | None = None  # times that a write met pages of its file in the page cache


class BeforeMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """What the job did between the moment when training stood still and the first byte of a save."""

    held_ns: int  # training stood still for so long before the first byte
    busy: float | None = None  # cores used by the process that wrote
    helpers_busy: float | None = None  # by children of its that gave back to it what it wrote
    received_bytes: int | None = None  # by the busiest interface, loopback included; more by sockets of the one writer
    grown_bytes: int | None = None  # memory of the processes that wrote
    growing_ns: int | None = None  # the part in which it grew


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Lists are bounded; what was left out is only in the sums of `Checkpoint`."""

    threads: tuple[ThreadMeasure, ...] = ()  # those with the most bytes and the latest ends first; at most 64
    processes: tuple[ProcessMeasure, ...] = ()  # at most 64
    devices: tuple[DeviceMeasure, ...] = ()
    links: tuple[LinkMeasure, ...] = ()
    mount: MountMeasure | None = None
    memory: MemoryMeasure | None = None
    before: BeforeMeasure | None = None
    clean_up_ns: int | None = None  # deleting old checkpoints by the processes that wrote, in line
    clean_up_files: int | None = None
    clean_up_after_ns: int | None = None  # of it after the end: the thread that trains went straight on to delete
    packed_ns: int | None = None  # after the end the thread that trains waited so long for children that read the save
    packing_busy: float | None = None  # cores used meanwhile by the busiest of its children
    cores: int | None = None  # processors of the host
    connections: tuple[ConnectionMeasure, ...] = ()  # that may matter for it; at most 16
    gpudirect: GpuDirectMeasure | None = None  # None: its driver is not there
    gpu_sent_bytes: int | None = None  # by the GPUs of its job over PCIe: of a save (none that is async) from where
    # training was held for it, or its start, to its end; from the look before to the look after, and whoever's
    uploads: tuple[UploadMeasure, ...] = ()  # of a save: when its files were on another tier as well; at most 4
    unwritten_ns: int | None = None  # wall clock: the last look at which some of it was not on stable storage yet
    written_back_bytes: int | None = None  # by the device under the files from start until a save was durable, if
    # that was after its end
    written_back_ns: int | None = None  # of that time, in which the device had work
