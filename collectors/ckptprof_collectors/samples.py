"""The samples of the collectors: immutable, mostly cumulative, in the kernel's units.

Every name from the machine is `str`, decoded with `backslashreplace` (see `text`): it may contain control characters
and markup, which only the output layer escapes, but never a surrogate, so that it can always be stored.
`None` always means "not observed", never zero. Times are nanoseconds; `at_ns` of a `Frame` is CLOCK_MONOTONIC.
"""

from __future__ import annotations

import os
from enum import IntFlag
from typing import Any, ClassVar, get_args

import msgspec

from ckptprof_collectors.counters import CounterField, CounterGroup, Unit


def text(raw: bytes) -> str:
    r"""Decode a name from the kernel: UTF-8, every other byte as `\xNN`; never fails, never yields a surrogate."""
    return raw.decode("utf-8", "backslashreplace")


class DeviceInfo(msgspec.Struct, frozen=True, array_like=True, tag="device"):
    """A block device and its place in the stack; sent when first seen and whenever it changes."""

    device: str  # kernel name, as in /proc/diskstats
    major: int
    minor: int
    kind: str  # disk | partition | dm | md | loop | nvme-path (one path below an NVMe multipath head) | zram | ram
    below: tuple[str, ...]  # devices with its bytes: the disk of a partition, the slaves of dm/md, paths of a head
    is_countable: bool  # on exactly one level of each stack, so that a sum over these counts no byte twice
    transport: str | None  # nvme-pcie | nvme-tcp | nvme-rdma | nvme-fc | sata | sas | usb | virtio | iscsi | fc | None
    rotational: bool | None
    size_bytes: int | None
    model: str | None  # for dm its subsystem (lvm, crypt, mpath), for md its level
    serial: str | None  # for dm its uuid
    backing: str | None  # file behind a loop device, target address of an NVMe-oF path, name of a dm device


class NvmePath(msgspec.Struct, frozen=True, array_like=True, tag="nvme-path"):
    """One path from this host to an NVMe namespace behind a fabric; sent when first seen and whenever it changes."""

    device: str  # nvme1c2n1; where the kernel does no multipathing the namespace itself
    head: str  # the block device of the namespace: nvme1n1
    transport: str  # tcp | rdma | fc
    target: str | None  # address of its port at the other end
    port: int | None
    link: str | None  # the interface or RDMA port of this host, if its address shows it
    state: str | None  # of its controller: live | connecting | resetting | dead | ...
    ana_state: str | None  # optimized | non-optimized | inaccessible | ...; None: the target has no asymmetric access


class DiskSample(msgspec.Struct, frozen=True, array_like=True, tag="disk"):
    """One line of /proc/diskstats (Documentation/admin-guide/iostats.rst); sectors are always 512 bytes."""

    device: str
    read_ios: int
    read_merges: int
    read_sectors: int
    read_ms: int
    write_ios: int
    write_merges: int
    write_sectors: int
    write_ms: int
    in_flight: int  # a gauge
    io_ms: int  # ms fields are 32-bit in the kernel and wrap
    weighted_ms: int
    discard_ios: int | None = None  # since 4.18
    discard_merges: int | None = None
    discard_sectors: int | None = None
    discard_ms: int | None = None
    flush_ios: int | None = None  # since 5.5
    flush_ms: int | None = None

    counted: ClassVar[CounterGroup] = CounterGroup(
        "disk",
        (
            CounterField("read_sectors", "disk_read_bytes_total", "Bytes read from the device.", Unit.SECTOR),
            CounterField("write_sectors", "disk_written_bytes_total", "Bytes written to the device.", Unit.SECTOR),
            CounterField("read_ios", "disk_reads_completed_total", "Reads that the device completed."),
            CounterField("write_ios", "disk_writes_completed_total", "Writes that the device completed."),
            CounterField("read_ms", "disk_read_time_seconds_total", "Time spent by all reads.", Unit.MILLISECOND),
            CounterField("write_ms", "disk_write_time_seconds_total", "Time spent by all writes.", Unit.MILLISECOND),
            CounterField(
                "io_ms", "disk_io_time_seconds_total", "Time in which the device had a request in flight.",
                Unit.MILLISECOND,
            ),
            CounterField(
                "weighted_ms", "disk_io_time_weighted_seconds_total", "Time in flight, summed over requests.",
                Unit.MILLISECOND,
            ),
            CounterField("flush_ios", "disk_flush_requests_total", "Cache flushes that the device completed."),
            CounterField(
                "flush_ms", "disk_flush_requests_time_seconds_total", "Time spent by all cache flushes.",
                Unit.MILLISECOND,
            ),
            CounterField("in_flight", gauge=True),
            *map(CounterField, ("read_merges", "write_merges")),
            *map(CounterField, ("discard_ios", "discard_merges", "discard_sectors", "discard_ms")),
        ),
        name=("device",), collector="disks", gone_entity="device", labels=("device",),
    )  # fmt: skip


class NicInfo(msgspec.Struct, frozen=True, array_like=True, tag="nic-info"):
    """A network interface; sent when first seen and whenever it changes."""

    interface: str
    speed_bits_per_second: int | None
    carrier: bool | None
    driver: str | None
    is_countable: (
        bool  # False for lo and for stacked interfaces (bond, vlan, bridge, veth) whose bytes a lower one counts
    )


class NicSample(msgspec.Struct, frozen=True, array_like=True, tag="nic"):
    """One line of /proc/net/dev."""

    interface: str
    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int

    counted: ClassVar[CounterGroup] = CounterGroup(
        "nic",
        (
            CounterField("rx_bytes", "network_receive_bytes_total", "Bytes received."),
            CounterField("tx_bytes", "network_transmit_bytes_total", "Bytes sent."),
            CounterField("rx_errors", "network_receive_errs_total", "Errors in receiving."),
            CounterField("tx_errors", "network_transmit_errs_total", "Errors in sending."),
            CounterField("rx_dropped", "network_receive_drop_total", "Packets dropped in receiving."),
            CounterField("tx_dropped", "network_transmit_drop_total", "Packets dropped in sending."),
            *map(CounterField, ("rx_packets", "tx_packets")),
        ),
        name=("interface",), collector="nics", gone_entity="interface", labels=("device",),
    )  # fmt: skip


class RdmaInfo(msgspec.Struct, frozen=True, array_like=True, tag="rdma-info"):
    """A port under /sys/class/infiniband."""

    port: str  # "mlx5_0/1"
    rate_bits_per_second: int | None
    state: str | None
    link_layer: str | None
    interface: str | None  # the netdev of the same port, if one is known


class RdmaSample(msgspec.Struct, frozen=True, array_like=True, tag="rdma"):
    """Counters of one RDMA port; the kernel's data counters are in units of 4 bytes and are multiplied here."""

    port: str
    rx_bytes: int | None
    tx_bytes: int | None
    rx_packets: int | None
    tx_packets: int | None
    tx_wait_ticks: int | None
    tx_discards: int | None = None  # packets not sent, after a timeout or without buffers at the switch
    rx_errors: int | None = None
    cnp_sent: int | None = None  # congestion notifications, for received packets with a mark
    cnp_handled: int | None = None  # received ones: the port slows down for each
    ecn_marked: int | None = None  # received packets with a mark of congestion
    out_of_sequence: int | None = None  # received packets
    sequence_errors: int | None = None  # negative acknowledgements: sent packets were lost or reordered
    ack_timeouts: int | None = None
    receiver_not_ready: int | None = None

    counted: ClassVar[CounterGroup] = CounterGroup(
        "rdma",
        (
            CounterField("rx_bytes", "infiniband_port_data_received_bytes_total", "Bytes received by the RDMA port."),
            CounterField("tx_bytes", "infiniband_port_data_transmitted_bytes_total", "Bytes sent by the RDMA port."),
            CounterField(
                "tx_wait_ticks", "infiniband_port_transmit_wait_total",
                "Ticks with data to send and no credit to send it.",
            ),
            CounterField(
                "cnp_handled", "infiniband_congestion_notifications_handled_total",
                "Congestion notifications for which the RDMA port sent more slowly.",
            ),
            *map(
                CounterField,
                ("rx_packets", "tx_packets", "tx_discards", "rx_errors", "cnp_sent", "ecn_marked", "out_of_sequence",
                 "sequence_errors", "ack_timeouts", "receiver_not_ready"),
            ),
        ),
        name=("port",), collector="rdma", gone_entity="port", labels=("device", "port"),
    )  # fmt: skip


class WireSample(msgspec.Struct, frozen=True, array_like=True, tag="wire"):
    """Wire counters of an interface (ethtool -S): include traffic that bypasses the kernel, such as RoCE and DPDK."""

    interface: str
    rx_bytes: int | None
    tx_bytes: int | None
    rx_pauses: int | None  # pause frames received from the other end, of all priorities
    tx_pauses: int | None  # pause frames sent
    rx_discards: int | None
    tx_discards: int | None


class MountInfo(msgspec.Struct, frozen=True, array_like=True, tag="mount"):
    """A mount of the agent's own namespace (/proc/self/mountinfo)."""

    mount_id: int
    major: int
    minor: int
    root: str
    mount_point: str
    fs_type: str
    source: str
    device: str | None  # kernel name of the block device under it, if there is one
    server: str | None  # host of a remote mount (NFS, Lustre, CIFS, Ceph ...), if it is one
    addresses: tuple[str, ...] = ()  # of its servers, if its source or options contain addresses

    @property
    def device_number(self) -> int:
        """The st_dev of its files."""
        return os.makedev(self.major, self.minor)


class MemorySample(msgspec.Struct, frozen=True, array_like=True, tag="memory"):
    """/proc/meminfo, /proc/vmstat and PSI of the host."""

    total_bytes: int | None
    available_bytes: int | None
    cached_bytes: int | None
    dirty_bytes: int | None
    writeback_bytes: int | None
    dirtied_bytes: int | None  # cumulative: vmstat nr_dirtied
    written_bytes: int | None  # cumulative: vmstat nr_written
    dirty_threshold_bytes: int | None
    dirty_background_threshold_bytes: int | None
    major_faults: int | None  # cumulative: vmstat pgmajfault
    psi_io_some_us: int | None  # cumulative, None where PSI is off
    psi_io_full_us: int | None
    psi_memory_some_us: int | None
    psi_memory_full_us: int | None
    psi_cpu_some_us: int | None = None
    shared_bytes: int | None = None  # tmpfs and shared memory
    locked_bytes: int | None = None  # cannot be reclaimed: mlock(2), ramfs
    oom_kills: int | None = None  # cumulative: processes killed for lack of memory, of the host or of a cgroup

    counted: ClassVar[CounterGroup] = CounterGroup(
        "memory",
        (
            CounterField("total_bytes", "memory_total_bytes", "Memory of the host.", gauge=True),
            CounterField(
                "available_bytes", "memory_available_bytes", "Memory that can be had without swapping.", gauge=True
            ),
            CounterField("cached_bytes", "memory_cached_bytes", "Page cache.", gauge=True),
            CounterField(
                "dirty_bytes", "memory_dirty_bytes", "Written by programs, not yet on its way to a device.", gauge=True
            ),
            CounterField("writeback_bytes", "memory_writeback_bytes", "On its way to a device now.", gauge=True),
            CounterField(
                "dirty_threshold_bytes", "memory_dirty_threshold_bytes", "Dirty memory at which writers are blocked.",
                gauge=True,
            ),
            CounterField(
                "dirty_background_threshold_bytes", "memory_dirty_background_threshold_bytes",
                "Dirty memory at which writeback starts by itself.", gauge=True,
            ),
            CounterField("dirtied_bytes", "memory_dirtied_bytes_total", "Page cache made dirty."),
            CounterField("written_bytes", "memory_written_bytes_total", "Page cache written back."),
            CounterField("major_faults", "memory_major_faults_total", "Page faults that had to read from a device."),
            CounterField(
                "psi_io_some_us", "pressure_io_waiting_seconds_total", "Time in which some task waited for I/O.",
                Unit.MICROSECOND,
            ),
            CounterField(
                "psi_io_full_us", "pressure_io_stalled_seconds_total",
                "Time in which no task ran for waiting on I/O.", Unit.MICROSECOND,
            ),
            CounterField(
                "psi_memory_some_us", "pressure_memory_waiting_seconds_total",
                "Time in which some task waited for memory.", Unit.MICROSECOND,
            ),
            CounterField(
                "psi_memory_full_us", "pressure_memory_stalled_seconds_total",
                "Time in which no task ran for lack of memory.", Unit.MICROSECOND,
            ),
            CounterField("psi_cpu_some_us"),
            CounterField("oom_kills"),
        ),
        collector="memory",
        excluded=("shared_bytes", "locked_bytes"),  # the measures of a checkpoint have them
    )  # fmt: skip


class ClockSample(msgspec.Struct, frozen=True, array_like=True, tag="clock"):
    """Error bound of the wall clock, by the kernel: adjtimex(2)."""

    synchronised: bool  # a time daemon has set it recently
    max_error_us: int | None  # grows by 500 a second until the next comparison; None: no estimate


class FuseSample(msgspec.Struct, frozen=True, array_like=True, tag="fuse"):
    """Unanswered requests of a FUSE connection (/sys/fs/fuse/connections/MINOR/waiting), a gauge."""

    major: int  # of the mount, as in its MountInfo
    minor: int
    waiting: int | None  # None: fusectl is not mounted or readable


class FuseDaemon(msgspec.Struct, frozen=True, array_like=True, tag="fuse-daemon"):
    """The processes behind a FUSE mount, and their usage; sent when they are found, and when it changed."""

    major: int  # of the mount, as in its MountInfo
    minor: int
    name: str
    processes: tuple[tuple[int, int], ...]  # (pid, start_ticks): its server, then helpers with network connections
    cpu_ticks: int | None = None  # of all of them, cumulative


class QdiscSample(msgspec.Struct, frozen=True, array_like=True, tag="qdisc"):
    """A queueing discipline of a network interface (tc -s qdisc), cumulative except the backlog."""

    interface: str
    kind: str  # tbf | htb | netem | fq_codel | mq | noqueue ...
    handle: int
    parent: int  # 0xFFFFFFFF: the root of its interface
    bytes: int | None  # sent through it; None: without statistics
    packets: int | None
    drops: int | None
    overlimits: int | None  # times that a packet waited for a limit
    backlog_bytes: int | None  # a gauge
    queued_packets: int | None  # a gauge
    rate_bytes_per_second: int | None = None  # its limit, for simple kinds (tbf)


class TcpSample(msgspec.Struct, frozen=True, array_like=True, tag="tcp"):
    """The TCP connections of one owner with one remote port, summed up since their first poll (tcp_info).

    A closed socket stays in the sums with its last counters. Less than 64 KiB are reported with the next traffic.
    """

    remote: str  # address; "": all further ones, beyond the limit
    port: int  # of the remote end; of accepted connections, the listening port of this host
    is_accepted: bool  # the remote end opened them
    local: str  # address of this end
    interfaces: tuple[str, ...]  # of the local address, () if unknown
    pid: int | None  # of the owner, if it is one of the selected processes
    start_ticks: int | None
    sockets: int  # open now
    bytes_acked: int
    bytes_received: int
    bytes_retrans: int | None  # since 4.19
    busy_us: int | None  # with unacknowledged data; since 4.10, as are the next two
    rwnd_limited_us: int | None  # of that, limited by the receiver's window
    sndbuf_limited_us: int | None  # of that, limited by the send buffer of this end
    rtt_us: int | None  # of the socket with most bytes since the previous poll, as are the next two
    min_rtt_us: int | None
    delivery_rate: int | None  # bytes a second
    is_new: bool = False  # first report: at the previous poll its counters were zero
    sent_ns: int | None = None  # CLOCK_MONOTONIC of the last send; None: no bytes were acknowledged
    received_ns: int | None = None  # of the last receive


class ClientOperation(msgspec.Struct, frozen=True, array_like=True):
    """Answered requests of one kind, of the client of a remote mount, cumulative; times are sums over all."""

    kind: str  # as the client calls it: WRITE and COMMIT (NFS), ost_write (Lustre)
    count: int
    total_us: int | None = None  # from the client's request to its completion
    queue_us: int | None = None  # of that, before it was sent: waiting for a slot, or for earlier requests
    server_us: int | None = None  # of that, from the send to the answer
    sent_bytes: int | None = None  # with headers, as are the received ones
    received_bytes: int | None = None
    transmissions: int | None = None  # above `count`: retransmissions
    timeouts: int | None = None
    errors: int | None = None


class ClientTarget(msgspec.Struct, frozen=True, array_like=True):
    """A server of a remote mount, or a storage target of it (an OST, an OSD); cumulative except gauges.

    Bytes are those of the data, without headers.
    """

    name: str  # OST0007, osd12; without a name its address
    address: str | None = None  # of its current server
    state: str | None = None  # as the client calls it: FULL, DISCONN
    read_bytes: int | None = None
    written_bytes: int | None = None
    operations: tuple[ClientOperation, ...] = ()
    timeouts: int | None = None
    in_flight: int | None = None  # a gauge: requests without an answer
    slots: int | None = None  # a gauge: limit of `in_flight`
    gauges: dict[str, int] = {}  # specific to this kind of client: grant_bytes


class ClientSample(msgspec.Struct, frozen=True, array_like=True, tag="client"):
    """Counters of the client of one remote mount since it was mounted; sent as a whole when any of them changed.

    Mounts of one superblock share its counters. There are three levels: bytes requested by processes, data that the
    client sent and received, and operations including headers. A missing entry of `operations`, `targets` or `counters`
    means 0.
    """

    major: int  # of the mount, as in its MountInfo
    minor: int
    client: str  # nfs 4.2, lustre 2.15.5: for display
    transport: str | None = None  # tcp | rdma | udp | local
    read_bytes: int | None = None  # requested by read calls, through the page cache
    written_bytes: int | None = None
    direct_read_bytes: int | None = None  # requested with O_DIRECT
    direct_written_bytes: int | None = None
    wire_read_bytes: int | None = None  # data received from the servers
    wire_written_bytes: int | None = None
    operations: tuple[ClientOperation, ...] = ()
    targets: tuple[ClientTarget, ...] = ()  # at most 256
    delays: int | None = None  # answers of a server to retry later
    connections: int | None = None  # a gauge
    sends: int | None = None  # requests sent over them
    backlog: int | None = None  # summed up at each of these sends: requests without a slot
    in_use: int | None = None  # summed up at each of these sends: requests without an answer
    slots: int | None = None  # a gauge: maximum of unanswered requests on one connection
    settings: dict[str, int] = {}  # gauges: wsize, sync, hybrid_io_write_threshold_bytes
    counters: dict[str, int] = {}  # specific to this kind of client: pcc_hit_bytes
    limitations: tuple[str, ...] = ()  # what this client does not count, each one clause
    file_system: str | None = None  # its name on all clients, if the mount's source has none


class ThrottleInfo(msgspec.Struct, frozen=True, array_like=True, tag="throttle"):
    """An I/O limit of a watched process on a block device; sent when first seen and whenever it changes.

    From io.max (cgroup v2) or blkio.throttle.* (v1) of the process's cgroup or one above it. All four None: it was
    lifted.
    """

    device: str  # "major:minor"
    cgroup: str
    read_bytes_per_second: int | None
    write_bytes_per_second: int | None
    read_operations_per_second: int | None
    write_operations_per_second: int | None
    name: str | None = None  # kernel name of the device, as in DeviceInfo
    pid: int | None = None  # the process for which it was read


class CgroupMemory(msgspec.Struct, frozen=True, array_like=True, tag="cgroup-memory"):
    """The cgroup of a process, or one above it, that has least memory left below its limit; sent during bursts."""

    pid: int
    start_ticks: int
    limit_bytes: int  # memory.max (cgroup v2), memory.limit_in_bytes (v1)
    used_bytes: int  # of all its processes, without the page cache of files, which can be reclaimed


class ProcessInfo(msgspec.Struct, frozen=True, array_like=True, tag="process-info"):
    """Description of a process at its first read (and again when its runtimes became known)."""

    pid: int
    start_ticks: int  # /proc/PID/stat field 22: with the pid it is an identity that is never reused
    parent_pid: int
    uid: int | None
    comm: str
    program: str  # base name of the script for an interpreter, else of the executable
    runtimes: tuple[str, ...]  # mapped or open: torch, jax, tensorflow, numpy, nvidia, ...
    environment: dict[str, str]  # the known keys only: RANK, LOCAL_RANK, WORLD_SIZE, SLURM_JOB_ID, ...
    cgroup: str | None
    is_fork: bool | None = None  # it runs its parent's program: no execve(2) since fork(2); None: unknown
    in_other_network: bool | None = None  # its network namespace is another one than ckptprof's; None: unknown


class ProcessIo(msgspec.Struct, frozen=True, array_like=True, tag="io"):
    """/proc/PID/io (Documentation/filesystems/proc.rst): all threads of the process, cumulative."""

    pid: int
    start_ticks: int
    read_chars: int
    write_chars: int
    read_syscalls: int
    write_syscalls: int
    read_bytes: int
    write_bytes: int
    cancelled_write_bytes: int

    counted: ClassVar[CounterGroup] = CounterGroup(
        "process",
        tuple(
            map(
                CounterField,
                ("read_chars", "write_chars", "read_syscalls", "write_syscalls", "read_bytes", "write_bytes",
                 "cancelled_write_bytes"),
            )
        ),
        name=("pid", "start_ticks"),
    )  # fmt: skip


class ProcessStat(msgspec.Struct, frozen=True, array_like=True, tag="stat"):
    """/proc/PID/stat and statm."""

    pid: int
    start_ticks: int
    state: str
    user_ticks: int
    system_ticks: int
    minor_faults: int
    major_faults: int
    threads: int
    rss_bytes: int | None
    rss_file_bytes: int | None  # statm "shared": pages of mapped files and shared memory; grows as an mmap is read
    child_minor_faults: int | None = None  # of reaped children: grows with each of them

    counted: ClassVar[CounterGroup] = CounterGroup(
        "process",
        (
            *map(CounterField, ("user_ticks", "system_ticks", "minor_faults", "major_faults")),
            CounterField("threads", gauge=True),
            CounterField("rss_bytes", gauge=True),
            CounterField("rss_file_bytes", gauge=True),
        ),
        name=("pid", "start_ticks"),
        excluded=("child_minor_faults",),  # only detection needs it, within seconds
    )


class PreviousRead(msgspec.Struct, frozen=True, array_like=True, tag="read-before"):
    """Time of a process's previous read, if it was not read at the previous tick: its counters changed since then."""

    pid: int
    start_ticks: int
    at_ns: int  # CLOCK_MONOTONIC


class ThreadTime(msgspec.Struct, frozen=True, array_like=True, tag="thread"):
    """/proc/PID/task/TID/schedstat of the thread that trains (Documentation/scheduler/sched-stats.rst), cumulative."""

    pid: int
    start_ticks: int
    tid: int
    on_cpu_ns: int
    waited_ns: int  # runnable, but not running
    slices: int  # how often it was put on a CPU: a thread that is held is not
    written_chars: int | None = None  # /proc/PID/task/TID/io, of this thread alone; None: not read
    read_chars: int | None = None


class ThreadSample(msgspec.Struct, frozen=True, array_like=True, tag="look"):
    """A sample of a thread of a process that transfers data: its counters, and its current call or wait.

    From /proc/PID/task/TID/{schedstat,stat,syscall,wchan}; the counters are cumulative, so that two samples bracket the
    time between. `processes.syscalls.classify` names the call or wait. Samples are not evenly spaced (threads asleep
    outside file I/O are sampled less often): weight them by the time until the next one, not by their number. If
    `on_cpu_ns` did not grow between two samples, the thread was in the same call throughout.
    """

    pid: int
    start_ticks: int  # of the process
    tid: int
    comm: str  # of the thread
    on_cpu_ns: int | None  # None where the kernel keeps no schedstat
    waited_ns: int | None  # runnable, but not running
    user_ticks: int
    system_ticks: int
    major_faults: int
    block_delay_ticks: int | None  # waiting for block I/O; None where delay accounting is off
    state: str  # one letter: R | S | D | ...
    call: int | None  # number of the call that it sleeps in; -1: running, or outside calls; None: not permitted
    wait: str | None  # the kernel function that it sleeps in; "" if it does not sleep, None: not permitted or not read
    minor_faults: int | None = None
    at_ns: int | None = None  # CLOCK_MONOTONIC of this sample: about a hundred microseconds after its frame's


class ThreadStack(msgspec.Struct, frozen=True, array_like=True):
    """The Python stack of one thread."""

    tid: int | None  # None: not seen by py-spy
    name: str | None
    active: bool  # on CPU, by py-spy
    frames: tuple[tuple[str, str, int], ...]  # (function, file, line), innermost first


class StackSample(msgspec.Struct, frozen=True, array_like=True, tag="stacks"):
    """A sample of the Python stacks of a process, taken without stopping it."""

    at_ns: int  # CLOCK_MONOTONIC, approximate time of the read
    pid: int
    start_ticks: int
    cost_ns: int  # CPU time of the sample
    threads: tuple[ThreadStack, ...]
    interval_ns: int = 0  # of a profile: between two of its samples, on average


class GpuUse(msgspec.Struct, frozen=True, array_like=True, tag="gpu"):
    """Utilisation of a GPU that a watched process uses, by its driver."""

    pid: int
    start_ticks: int
    gpu: int  # its index
    points: tuple[tuple[int, int], ...]  # (CLOCK_MONOTONIC ns, percent of the time before in which a kernel ran)
    others: int = 0  # other processes that use it
    sent_bytes: int | None = None  # by the GPU over PCIe, for all processes, since the first query; cumulative
    received_bytes: int | None = None


class ProcessExit(msgspec.Struct, frozen=True, array_like=True, tag="exit"):
    """A process has ended."""

    pid: int
    start_ticks: int


class OpenFile(msgspec.Struct, frozen=True, array_like=True):
    """One descriptor of a process on a regular file (/proc/PID/fdinfo/FD and the link beside it)."""

    fd: int
    device: int  # st_dev
    inode: int
    position: int
    flags: int  # open(2) flags
    size: int
    modified_ns: int  # wall clock
    path: str


class MappedFile(msgspec.Struct, frozen=True, array_like=True):
    """A regular data file mapped into a process (/proc/PID/maps); code, fonts etc. are left out."""

    device: int
    inode: int
    mapped_bytes: int
    writable: bool  # shared and writable: stores reach the file
    path: str


class FileScan(msgspec.Struct, frozen=True, array_like=True, tag="scan"):
    """The data files that a process had open at one instant; complete, so a file that is not in it is closed."""

    pid: int
    start_ticks: int
    files: tuple[OpenFile, ...]
    mapped: tuple[MappedFile, ...] | None  # None: the mappings were not read
    gpudirect: bool = False  # it has the driver of GPUDirect Storage open: transfers without calls are possible


class FileEvent(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """A large file in a watched folder was opened, closed or moved there, or anything was deleted; of any process."""

    at_ns: int  # CLOCK_MONOTONIC, within a wake-up of the event itself
    kind: str  # opened | closed-read | closed-written | renamed | deleted (the next three are 0)
    device: int
    inode: int
    size: int
    path: str


class FileFact(msgspec.Struct, frozen=True, array_like=True, tag="file", gc=False):
    """Status (statx(2)) and first bytes of a file or directory in or next to a checkpoint."""

    pid: int  # the process for which it was queried
    start_ticks: int
    device: int
    inode: int
    path: str
    size: int
    is_directory: bool
    birth_ns: int | None  # wall clock, as are the next two; None if the file system has none
    modified_ns: int
    changed_ns: int
    accessed_ns: int | None
    magic: bytes | None  # the first 24 bytes, None if they could not be read
    is_missing: bool = False  # the path did not exist
    unwritten_bytes: int | None = None  # dirty or under writeback in the page cache (cachestat(2)); None: unknown
    is_complete: bool | None = None  # its size is that of its format's header; None: not read, or the format has none
    free_bytes: int | None = None  # that its owner may still write on its file system; None: unknown
    folder_inode: int | None = None  # of its folder; None: unknown


class OperationKind(IntFlag):
    """Kinds of operations on a file: the bits of `FileActivity.kinds`, as the BPF programs set them."""

    READ_WRITE = 1  # read, write and their vectored variants
    POSITIONED = 2  # pread, pwrite
    AIO = 4  # io_submit
    URING = 8
    SENDFILE = 16
    SPLICE = 32
    COPY_RANGE = 64
    FAULT = 128  # pages of a mapping
    UNMAPPED = 256  # the mapping has ended, and all its touched pages are counted
    APPEND = 512  # the file was opened with O_APPEND


class FileActivity(msgspec.Struct, frozen=True, array_like=True, tag="activity", gc=False):
    """The I/O of one thread on one file in one direction, from the first operation to the close (trace).

    Cumulative within that session: a later sample with the same `session` replaces an earlier one.
    """

    session: str  # unique in a recording: thread, file, direction and the time of the first operation
    pid: int
    start_ticks: int
    tid: int
    comm: str  # of the thread
    device: int  # st_dev
    inode: int
    generation: int  # i_generation: a reused inode has another one
    writes: bool
    path: str | None  # as its process sees it; None if it could not be resolved
    size: int  # of the file, after the last operation
    operations: int
    bytes: int
    consecutive_operations: int  # start where the previous one of this thread ended; the first one counts
    consecutive_bytes: int
    sequential_operations: int  # start there or later
    sequential_bytes: int
    large_bytes: int  # in runs of consecutive operations of 1 MiB or more
    direct_bytes: int  # by a descriptor opened with O_DIRECT
    call_ns: int | None  # spent in the calls; None if they were not timed
    timed_operations: int  # operations included in `call_ns`
    first_ns: int  # CLOCK_MONOTONIC, when the first operation began
    last_ns: int  # when the last one ended
    first_offset: int
    end_offset: int  # of the last operation
    low_offset: int
    high_offset: int
    kinds: int  # bits of OperationKind
    sizes: tuple[tuple[int, int, int], ...]  # (lower bound in bytes, operations, bytes), ascending, none empty
    faulted_bytes: int = 0  # read by page faults of a mapping (whole pages)
    closed_ns: int | None = None  # when this thread closed the file; then this is the last sample of the session
    parent_pid: int | None = None  # of its process; None if unknown
    failed_operations: int = 0  # calls that returned an error
    failed_ns: int | None = None  # end of the last failed one
    error: int | None = None  # its errno


class FileLifeEvent(msgspec.Struct, frozen=True, array_like=True, tag="life", gc=False):
    """A file was created, truncated by an open, synced, closed, renamed, unlinked or mapped (trace)."""

    at_ns: int  # CLOCK_MONOTONIC, at its end
    kind: str  # created | emptied | synced | closed-written | renamed | unlinked | mapped
    pid: int
    start_ticks: int
    tid: int
    device: int | None  # None for events with names only (renamed, unlinked)
    inode: int | None
    duration_ns: int | None  # of the call; None if it was not timed
    path: str | None  # as its process sees it, absolute if it could be resolved
    new_path: str | None = None  # renamed
    error: int | None = None  # errno of a sync or a close that failed
    is_guessed: bool = False  # the folder is that of the newest file of that name which the process used


class SocketTraffic(msgspec.Struct, frozen=True, array_like=True, tag="socket-traffic", gc=False):
    """Bytes that one process sent and received over TCP with one remote port, summed up (trace).

    The sums start when the process is first watched, and include closed connections. Sent after each further 64 KiB,
    and once the traffic pauses after that. After a long pause the sums may start again at zero.
    """

    pid: int
    start_ticks: int
    remote: str  # address; "": all further connections, beyond the limit
    port: int  # of the remote end, 0 for all further ones
    local_port: int  # of the last sending connection; of an accepted one, the listening port
    sockets: int  # connections with traffic
    sent_bytes: int
    received_bytes: int
    sends: int  # calls
    receives: int
    send_start_ns: int | None  # CLOCK_MONOTONIC: the first send after the last pause of a second
    sent_ns: int | None  # of the last send
    receive_start_ns: int | None
    received_ns: int | None
    parts: int  # times that one connection sent 64 KiB or more between two receives
    parts_bytes: int
    part_bytes: int | None  # of the largest
    answers: int  # times that one connection received as much between two sends
    answers_bytes: int
    tid: int | None  # of the last sender


class DirtyPause(msgspec.Struct, frozen=True, array_like=True, tag="pause"):
    """Time that the kernel paused a process for too many dirty pages (balance_dirty_pages), cumulative (trace)."""

    pid: int
    start_ticks: int
    pauses: int
    paused_ns: int


class BlockActivity(msgspec.Struct, frozen=True, array_like=True, tag="block"):
    """Requests of one block device in one direction, cumulative since tracing started (trace)."""

    device: str
    major: int
    minor: int
    writes: bool
    requests: int  # completed
    bytes: int
    issued_bytes: int
    sequential_bytes: int  # issued, of requests that start where the previous one ended
    in_flight: int  # a gauge
    sizes: tuple[tuple[int, int], ...]  # (lower bound in bytes, requests)
    latencies: tuple[tuple[int, int], ...]  # (lower bound in nanoseconds, requests)


class TraceHealth(msgspec.Struct, frozen=True, array_like=True, tag="trace-health"):
    """Counters of the trace and its losses, cumulative; and what it cannot observe here."""

    calls: int  # operations counted
    lost_operations: int  # of files beyond the map's capacity, and of lost sessions: only number and bytes are known
    lost_bytes: int
    lost_sessions: int  # small ones, only counted because there were too many
    lost_events: int  # the ring was full, or there were too many
    untimed_operations: int
    programs: dict[str, str]  # hook -> attached variant: typed | portable | ...
    degraded: tuple[str, ...]  # each one sentence: what is not observed, and why


class EntityGone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """A reported entity no longer exists: a device unplugged, a file system unmounted."""

    entity: str  # device | interface | port | mount | qdisc (all of one interface)
    name: str  # as in the samples of that entity; for a mount its mount_id in decimal


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag="unavailable"):
    """A collector, or part of one, that cannot work on this host; sent once."""

    collector: str
    reason: str


class CollectorFault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A read of a working collector failed; it is tried again at the next tick."""

    collector: str
    reason: str


class SamplerHealth(msgspec.Struct, frozen=True, array_like=True, tag="health"):
    """Costs and faults of the sampler itself, cumulative; about once a second."""

    ticks: int
    late_ticks: int
    lateness_ns: int
    dropped_frames: int
    cpu_ns: int
    rss_bytes: int | None
    watched_processes: int
    known_processes: int
    read_ns: dict[str, int]  # per collector: time spent reading
    faults: dict[str, int]  # per collector: failed reads
    hung_lookups: int | None = None  # gauge: calls to file systems that have not returned; None: unknown
    refused_lookups: int | None = None
    starved_ns: int | None = None  # lateness of the ticks that were a quarter of a second late
    abandoned: int | None = None  # gauge: py-spy and driver queries that do not end
    left_out: dict[str, int] | None = None  # by kind of work: how often it was due, and was not done: the CPU budget
    lost_folder_events: int | None = None  # too many deletions, or a full queue of inotify


Sample = (
    DeviceInfo
    | NvmePath
    | DiskSample
    | NicInfo
    | NicSample
    | RdmaInfo
    | RdmaSample
    | WireSample
    | MountInfo
    | MemorySample
    | ClockSample
    | FuseSample
    | FuseDaemon
    | QdiscSample
    | TcpSample
    | ClientSample
    | ThrottleInfo
    | CgroupMemory
    | ProcessInfo
    | ProcessIo
    | ProcessStat
    | PreviousRead
    | ThreadTime
    | ThreadSample
    | StackSample
    | GpuUse
    | ProcessExit
    | FileScan
    | FileEvent
    | FileFact
    | FileActivity
    | FileLifeEvent
    | SocketTraffic
    | DirtyPause
    | BlockActivity
    | TraceHealth
    | EntityGone
    | Unavailable
    | CollectorFault
    | SamplerHealth
)

# Counters that are stored in the timeline, and shown on the metrics page if they have metrics.
COUNTED: tuple[Any, ...] = tuple(kind for kind in get_args(Sample) if hasattr(kind, "counted"))
# All other samples.
NOT_COUNTED: dict[type, str] = {
    **dict.fromkeys(
        (DeviceInfo, NvmePath, NicInfo, RdmaInfo, MountInfo, FuseDaemon, ThrottleInfo, ProcessInfo),
        "what an entity is: no counters",
    ),
    **dict.fromkeys(
        (ClockSample, FuseSample, QdiscSample, TcpSample, ClientSample, WireSample, SocketTraffic, BlockActivity),
        "the measures of a checkpoint have what it did meanwhile",
    ),
    **dict.fromkeys(
        (ThreadTime, ThreadSample, StackSample, GpuUse, DirtyPause, CgroupMemory),
        "only looked at around a checkpoint, for its measures",
    ),
    **dict.fromkeys(
        (FileScan, FileEvent, FileFact, FileActivity, FileLifeEvent), "of one file: the streams of a checkpoint have it"
    ),
    **dict.fromkeys((PreviousRead, ProcessExit, EntityGone, Unavailable, CollectorFault), "an event: no counters"),
    **dict.fromkeys((SamplerHealth, TraceHealth), "of ckptprof itself: only on the metrics page (export/families.py)"),
}  # fmt: skip


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """All samples of one tick. An entity without a sample in a frame that its collector read has not changed."""

    at_ns: int  # CLOCK_MONOTONIC
    wall_ns: int  # CLOCK_REALTIME at the same instant
    read: tuple[str, ...]  # names of the collectors that were read in this tick
    samples: tuple[Sample, ...]
