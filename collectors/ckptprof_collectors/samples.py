"""The raw facts that collectors report: cumulative, immutable, as the kernel gives them.

Every name that comes from the machine is `str`, decoded with `backslashreplace` (see `text`): it may hold control
characters and markup, which only the output layer escapes, but never a surrogate, so that it can always be stored.
`None` always means "could not be seen", never zero. Times are nanoseconds; `at_ns` of a `Frame` is CLOCK_MONOTONIC.
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
    below: tuple[str, ...]  # that carry its bytes: the disk of a partition, the slaves of dm/md, paths of a head
    is_countable: bool  # on exactly one level of each stack, so that a sum over these counts no byte twice
    transport: str | None  # nvme-pcie | nvme-tcp | nvme-rdma | nvme-fc | sata | sas | usb | virtio | iscsi | fc | None
    rotational: bool | None
    size_bytes: int | None
    model: str | None  # for dm what made it (lvm, crypt, mpath), for md its level
    serial: str | None  # for dm its uuid
    backing: str | None  # file behind a loop device, target address of an NVMe-oF path, name of a dm device


class NvmePath(msgspec.Struct, frozen=True, array_like=True, tag="nvme-path"):
    """One way from this host to an NVMe namespace behind a fabric; sent when first seen and whenever it changes."""

    device: str  # nvme1c2n1; where the kernel does no multipathing the namespace itself
    head: str  # the block device of the namespace: nvme1n1
    transport: str  # tcp | rdma | fc
    target: str | None  # address of its port at the other end
    port: int | None
    link: str | None  # the interface or RDMA port of this host that it goes through, where its address says so
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
    tx_discards: int | None = None  # could not be sent, for a timeout or a switch that did not take them
    rx_errors: int | None = None
    cnp_sent: int | None = None  # congestion notifications, of what came in with a mark
    cnp_handled: int | None = None  # that came in: the port sends more slowly for each
    ecn_marked: int | None = None  # packets that came in with a mark of congestion
    out_of_sequence: int | None = None  # packets that came in
    sequence_errors: int | None = None  # answers that some of what was sent did not come in, or not in order
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
    """What an interface counts at its wire (ethtool -S): also what goes past the kernel, as RoCE and DPDK do."""

    interface: str
    rx_bytes: int | None
    tx_bytes: int | None
    rx_pauses: int | None  # frames by which the other end held this one up, of all priorities
    tx_pauses: int | None  # by which this one held the other end up
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
    addresses: tuple[str, ...] = ()  # of its servers, as far as its source and its options name addresses

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
        ),
        collector="memory",
    )  # fmt: skip


class ClockSample(msgspec.Struct, frozen=True, array_like=True, tag="clock"):
    """How far the wall clock may be off, as the kernel says: adjtimex(2)."""

    synchronised: bool  # something keeps it, and has done so lately
    max_error_us: int | None  # the kernel adds 500 each second until clocks are compared; None: nobody estimates it


class FuseSample(msgspec.Struct, frozen=True, array_like=True, tag="fuse"):
    """How many requests of a FUSE connection have no answer yet (/sys/fs/fuse/connections/MINOR/waiting), a gauge."""

    major: int  # of the mount, as in its MountInfo
    minor: int
    waiting: int | None  # None: there is no fusectl to be read


class FuseDaemon(msgspec.Struct, frozen=True, array_like=True, tag="fuse-daemon"):
    """The processes behind a FUSE mount, and what they use; sent when they are found, and when that changed."""

    major: int  # of the mount, as in its MountInfo
    minor: int
    name: str
    processes: tuple[tuple[int, int], ...]  # (pid, start_ticks): its server, then who speaks to the network for it
    cpu_ticks: int | None = None  # of all of them, cumulative


class QdiscSample(msgspec.Struct, frozen=True, array_like=True, tag="qdisc"):
    """A queueing discipline of a network interface (tc -s qdisc), cumulative but for the backlog."""

    interface: str
    kind: str  # tbf | htb | netem | fq_codel | mq | noqueue ...
    handle: int
    parent: int  # 0xFFFFFFFF: the root of its interface
    bytes: int | None  # sent through it; None: the kernel told no statistics
    packets: int | None
    drops: int | None
    overlimits: int | None  # how often something had to wait for a limit
    backlog_bytes: int | None  # a gauge
    queued_packets: int | None  # a gauge
    rate_bytes_per_second: int | None = None  # what it is limited to, of those that say so in a simple way (tbf)


class TcpSample(msgspec.Struct, frozen=True, array_like=True, tag="tcp"):
    """The TCP connections of one owner with one remote port, summed up since they were looked at first (tcp_info).

    A socket that has closed stays in the sums with its last look. What moved less than 64 KiB is told with what follows
    it.
    """

    remote: str  # address; "": of all further ones, for which there is no room
    port: int  # of the remote end; of connections that it opened, the port of this host that took them
    is_accepted: bool  # the remote end opened them
    local: str  # address of this end
    interfaces: tuple[str, ...]  # that carry the bytes of the local address, () if they are not known
    pid: int | None  # of the process that has them, if it is one of those that are looked at
    start_ticks: int | None
    sockets: int  # that are open now
    bytes_acked: int
    bytes_received: int
    bytes_retrans: int | None  # since 4.19
    busy_us: int | None  # data was on its way and not acknowledged; since 4.10, as are the next two
    rwnd_limited_us: int | None  # of that, held up by the receiver's window
    sndbuf_limited_us: int | None  # of that, held up by the send buffer of this end
    rtt_us: int | None  # of the socket that moved most since the look before, as are the next two
    min_rtt_us: int | None
    delivery_rate: int | None  # bytes a second
    is_new: bool = False  # not told before: when the sockets were looked at before, it stood at zero
    sent_ns: int | None = None  # CLOCK_MONOTONIC, when one of them sent last; None: nothing of it was acknowledged
    received_ns: int | None = None  # when one of them received last


class ClientOperation(msgspec.Struct, frozen=True, array_like=True):
    """The requests of one kind that the client of a remote mount had answered, cumulative; times of all together."""

    kind: str  # as the client calls it: WRITE and COMMIT (NFS), ost_write (Lustre)
    count: int
    total_us: int | None = None  # from the moment when the client wanted it until it was done
    queue_us: int | None = None  # of that, before it was sent: it had no slot, or waited for those before it
    server_us: int | None = None  # of that, from when it was sent to the answer
    sent_bytes: int | None = None  # with headers, as are the received ones
    received_bytes: int | None = None
    transmissions: int | None = None  # more than `count`: it was sent again
    timeouts: int | None = None
    errors: int | None = None


class ClientTarget(msgspec.Struct, frozen=True, array_like=True):
    """A server of a remote mount, or what takes a share of its data there (an OST, an OSD); cumulative but for gauges.

    Bytes are those of the data, without headers.
    """

    name: str  # OST0007, osd12; of what has no name its address
    address: str | None = None  # of the server that it is on now
    state: str | None = None  # as the client calls it, where it says so: FULL, DISCONN
    read_bytes: int | None = None
    written_bytes: int | None = None
    operations: tuple[ClientOperation, ...] = ()
    timeouts: int | None = None
    in_flight: int | None = None  # a gauge: requests without an answer
    slots: int | None = None  # a gauge: at most so many at a time
    gauges: dict[str, int] = {}  # what only this kind of client has: grant_bytes


class ClientSample(msgspec.Struct, frozen=True, array_like=True, tag="client"):
    """What the client of one remote mount counted since it was mounted; told whole, when anything of it changed.

    Mounts of one superblock share its counters. Three heights are kept apart: what processes asked for, what the client
    sent and received as data, and what operations were with their headers. What was not counted yet is left out of
    `operations`, `targets` and `counters`, and was 0.
    """

    major: int  # of the mount, as in its MountInfo
    minor: int
    client: str  # nfs 4.2, lustre 2.15.5: for a person
    transport: str | None = None  # tcp | rdma | udp | local
    read_bytes: int | None = None  # asked for by read calls, through the page cache
    written_bytes: int | None = None
    direct_read_bytes: int | None = None  # asked for with O_DIRECT
    direct_written_bytes: int | None = None
    wire_read_bytes: int | None = None  # data that came from the servers
    wire_written_bytes: int | None = None
    operations: tuple[ClientOperation, ...] = ()
    targets: tuple[ClientTarget, ...] = ()  # at most 256
    delays: int | None = None  # answers by which a server said: later
    connections: int | None = None  # a gauge
    sends: int | None = None  # requests that went out over them, as is the sum below
    backlog: int | None = None  # summed up at each of these sends: requests that had no slot
    in_use: int | None = None  # summed up at each of these sends: requests without an answer
    slots: int | None = None  # a gauge: at most so many requests at a time were on their way over one connection
    settings: dict[str, int] = {}  # gauges: wsize, sync, hybrid_io_write_threshold_bytes
    counters: dict[str, int] = {}  # what only this kind of client has: pcc_hit_bytes
    limitations: tuple[str, ...] = ()  # what this client does not tell, each one clause
    file_system: str | None = None  # as all of its clients call it, where the mount's source does not say that


class ThrottleInfo(msgspec.Struct, frozen=True, array_like=True, tag="throttle"):
    """A limit on a block device that holds a watched process; sent when first seen and whenever it changes.

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
    pid: int | None = None  # a process that it holds: the one for whose sake it was looked at


class ProcessInfo(msgspec.Struct, frozen=True, array_like=True, tag="process-info"):
    """A process as it was when first looked at (and again when its runtimes became known)."""

    pid: int
    start_ticks: int  # /proc/PID/stat field 22: with the pid it is an identity that is never reused
    parent_pid: int
    uid: int | None
    comm: str
    program: str  # base name of the script for an interpreter, else of the executable
    runtimes: tuple[str, ...]  # what it has mapped or open of: torch, jax, tensorflow, numpy, nvidia, ...
    environment: dict[str, str]  # the known keys only: RANK, LOCAL_RANK, WORLD_SIZE, SLURM_JOB_ID, ...
    cgroup: str | None
    is_fork: bool | None = None  # it runs its parent's program: no execve(2) since fork(2); None: not told
    in_other_network: bool | None = None  # its network namespace is another one than ckptprof's; None: not told


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
    child_minor_faults: int | None = None  # of children that it has waited for: grows with each of them

    counted: ClassVar[CounterGroup] = CounterGroup(
        "process",
        (
            *map(CounterField, ("user_ticks", "system_ticks", "minor_faults", "major_faults")),
            CounterField("threads", gauge=True),
            CounterField("rss_bytes", gauge=True),
            CounterField("rss_file_bytes", gauge=True),
        ),
        name=("pid", "start_ticks"),
        excluded=("child_minor_faults",),  # only detection asks for it, within seconds
    )


class PreviousRead(msgspec.Struct, frozen=True, array_like=True, tag="read-before"):
    """When a process was read last, if not at the read before: what its frame tells of it has changed since then."""

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
    written_chars: int | None = None  # /proc/PID/task/TID/io, of this thread alone; None: not looked at
    read_chars: int | None = None


class ThreadSample(msgspec.Struct, frozen=True, array_like=True, tag="look"):
    """One look at a thread of a process that moves data: what it has used so far, and what it is in right now.

    From /proc/PID/task/TID/{schedstat,stat,syscall,wchan}; the counters are cumulative, so that two looks bracket what
    lies between them. `processes.syscalls.doing` has a word for what it is in. Looks are not evenly spaced (who
    sleeps, but not over a file, is looked at more seldom): weigh them by the time until the next one, not by their
    number. If `on_cpu_ns` did not grow between two looks, it was in the same call throughout.
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
    call: int | None  # number of the system call that it sleeps in; -1: running, or in none; None: not permitted
    wait: str | None  # the kernel function that it sleeps in; "" if it does not sleep, None: not permitted or not read
    minor_faults: int | None = None
    at_ns: int | None = None  # CLOCK_MONOTONIC of this look: some hundred microseconds after its frame's


class ThreadStack(msgspec.Struct, frozen=True, array_like=True):
    """The Python stack of one thread."""

    tid: int | None  # None: not seen by py-spy
    name: str | None
    active: bool  # on CPU, as far as py-spy can tell
    frames: tuple[tuple[str, str, int], ...]  # (function, file, line), innermost first


class StackSample(msgspec.Struct, frozen=True, array_like=True, tag="stacks"):
    """One look at the Python stacks of a process, taken without stopping it."""

    at_ns: int  # CLOCK_MONOTONIC, when it was read, about
    pid: int
    start_ticks: int
    cost_ns: int  # CPU time that the look took
    threads: tuple[ThreadStack, ...]


class GpuUse(msgspec.Struct, frozen=True, array_like=True, tag="gpu"):
    """How busy a GPU was on which a process computes, as its driver keeps it."""

    pid: int
    start_ticks: int
    gpu: int  # its index
    points: tuple[tuple[int, int], ...]  # (CLOCK_MONOTONIC ns, percent of the time before in which a kernel ran)
    others: int = 0  # processes that compute on it besides those that were asked for
    sent_bytes: int | None = None  # by the GPU over PCIe, whoever's, since it was first asked for; cumulative
    received_bytes: int | None = None


class GpuDirectSample(msgspec.Struct, frozen=True, array_like=True, tag="gpudirect"):
    """What the driver of GPUDirect Storage counted on this host, cumulative; None: it counts that not."""

    driver: str | None  # its version; None: it is not loaded
    counts: bool  # what it moves; else only its errors
    peer_memory: bool  # memory of a GPU is registered for peer-to-peer DMA: cuFile can do without the driver
    reads: int | None
    read_bytes: int | None  # in whole MiB, as are the written ones
    writes: int | None
    written_bytes: int | None
    errors: int | None
    cached: int | None  # times that a write met pages of its file in the page cache


class ProcessExit(msgspec.Struct, frozen=True, array_like=True, tag="exit"):
    """The process was gone when it was looked at."""

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
    """A regular data file mapped into a process (/proc/PID/maps); code and fonts and the like are left out."""

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
    mapped: tuple[MappedFile, ...] | None  # None: the mappings were not looked at
    gpudirect: bool = False  # it has the driver of GPUDirect Storage open, and may move data by no call


class FileEvent(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """A large file in a watched folder was opened or closed, or came there; by whom is not said (inotify)."""

    at_ns: int  # CLOCK_MONOTONIC, within a wake-up of the event itself
    kind: str  # opened | closed-read | closed-written | renamed
    device: int
    inode: int
    size: int
    path: str


class FileFact(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    """What statx(2) says of a file or directory in or beside a checkpoint, and how the file begins."""

    pid: int  # the process for whose sake it was looked at
    start_ticks: int
    device: int
    inode: int
    path: str
    size: int
    is_directory: bool
    birth_ns: int | None  # wall clock, as are the next two; None where the file system keeps none
    modified_ns: int
    changed_ns: int
    accessed_ns: int | None
    magic: bytes | None  # the first 24 bytes, None if they could not be read
    is_missing: bool = False  # the path was gone when looked at
    unwritten_bytes: int | None = None  # dirty or under writeback in the page cache (cachestat(2)); None: not seen
    is_complete: bool | None = (
        None  # whether it is as long as its format says; None: not looked, or the format does not tell
    )
    free_bytes: int | None = None  # that its owner may still write on its file system; None: not seen
    folder_inode: int | None = None  # of the folder that it is in; None: not told


class OperationKind(IntFlag):
    """By which calls a file was used: the bits of `FileActivity.kinds`, as the BPF programs set them."""

    READ_WRITE = 1  # read, write and their vectored variants
    POSITIONED = 2  # pread, pwrite
    AIO = 4  # io_submit
    URING = 8
    SENDFILE = 16
    SPLICE = 32
    COPY_RANGE = 64
    FAULT = 128  # pages of a mapping
    UNMAPPED = 256  # the mapping has ended, and all of its pages that were touched are counted
    APPEND = 512  # the file was opened with O_APPEND


class FileActivity(msgspec.Struct, frozen=True, array_like=True, tag="activity", gc=False):
    """What one thread did to one file in one direction, from its first operation until it closed the file (trace).

    Cumulative within that session: a later sample with the same `session` takes the place of an earlier one.
    """

    session: str  # unique in a recording: thread, file, direction and the time of the first operation
    pid: int
    start_ticks: int
    tid: int
    comm: str  # of the thread
    device: int  # st_dev
    inode: int
    generation: int  # i_generation: an inode that is used again has another one
    writes: bool
    path: str | None  # as its process sees it; None if it could not be resolved
    size: int  # of the file, after the last operation
    operations: int
    bytes: int
    consecutive_operations: int  # begin where the previous one of this thread ended; the first one counts
    consecutive_bytes: int
    sequential_operations: int  # begin there or later
    sequential_bytes: int
    large_bytes: int  # in runs of consecutive operations of 1 MiB or more
    direct_bytes: int  # of a descriptor that was opened with O_DIRECT
    call_ns: int | None  # spent in the calls; None if they were not timed
    timed_operations: int  # how many operations `call_ns` speaks for
    first_ns: int  # CLOCK_MONOTONIC, when the first operation began
    last_ns: int  # when the last one ended
    first_offset: int
    end_offset: int  # of the last operation
    low_offset: int
    high_offset: int
    kinds: int  # bits of OperationKind
    sizes: tuple[tuple[int, int, int], ...]  # (lower bound in bytes, operations, bytes), ascending, none empty
    faulted_bytes: int = 0  # moved by page faults of a mapping (pages, not what was touched of them)
    closed_ns: int | None = None  # when this thread closed the file; then this is the last sample of the session
    parent_pid: int | None = None  # of its process; None if it was not seen
    failed_operations: int = 0  # calls that moved nothing and returned an error
    failed_ns: int | None = None  # when the last of them ended
    error: int | None = None  # errno of it


class FileLifeEvent(msgspec.Struct, frozen=True, array_like=True, tag="life", gc=False):
    """A file was created, emptied by its opening, synced, closed, renamed or unlinked, or mapped (trace)."""

    at_ns: int  # CLOCK_MONOTONIC, at its end
    kind: str  # created | emptied | synced | closed-written | renamed | unlinked | mapped
    pid: int
    start_ticks: int
    tid: int
    device: int | None  # None where only names are seen (renamed, unlinked)
    inode: int | None
    duration_ns: int | None  # of the call; None if it was not timed
    path: str | None  # as its process sees it, absolute if that could be found out
    new_path: str | None = None  # renamed
    error: int | None = None  # errno of a sync or a close that failed


class SocketTraffic(msgspec.Struct, frozen=True, array_like=True, tag="socket-traffic", gc=False):
    """What the calls of one process sent and received over TCP to one remote port, summed up (trace).

    It begins when the process is first watched; connections that have closed stay in it. Told when 64 KiB more have
    moved, and once it has come to rest after that. One that has not moved for long may begin again at zero.
    """

    pid: int
    start_ticks: int
    remote: str  # address; "": of all further connections, for which there is no room
    port: int  # of the remote end, 0 of all further ones
    local_port: int  # of the connection that sent last: of one that the remote end opened, the port that listens
    sockets: int  # connections that moved something
    sent_bytes: int
    received_bytes: int
    sends: int  # calls
    receives: int
    send_start_ns: int | None  # CLOCK_MONOTONIC: the first send after the last silence of a second in sending
    sent_ns: int | None  # the last
    receive_start_ns: int | None
    received_ns: int | None
    parts: int  # how often one connection sent 64 KiB or more between two receives
    parts_bytes: int
    part_bytes: int | None  # of the largest
    answers: int  # how often one connection received as much between two sends
    answers_bytes: int
    tid: int | None  # thread that sent last


class DirtyPause(msgspec.Struct, frozen=True, array_like=True, tag="pause"):
    """How long the kernel made a process wait because too much was dirty (balance_dirty_pages), cumulative (trace)."""

    pid: int
    start_ticks: int
    pauses: int
    paused_ns: int


class BlockActivity(msgspec.Struct, frozen=True, array_like=True, tag="block"):
    """Requests of one block device in one direction, cumulative since tracing began (trace)."""

    device: str
    major: int
    minor: int
    writes: bool
    requests: int  # completed
    bytes: int
    issued_bytes: int
    sequential_bytes: int  # issued, of requests that begin where the one issued before ended
    in_flight: int  # a gauge
    sizes: tuple[tuple[int, int], ...]  # (lower bound in bytes, requests)
    latencies: tuple[tuple[int, int], ...]  # (lower bound in nanoseconds, requests)


class TraceHealth(msgspec.Struct, frozen=True, array_like=True, tag="trace-health"):
    """What the trace itself saw and lost, cumulative; and what it cannot see here."""

    calls: int  # operations counted
    lost_operations: int  # of files for which no room was left, and of lost sessions: only number and bytes are known
    lost_bytes: int
    lost_sessions: int  # small ones that were only counted, because there were too many of them
    lost_events: int  # for which the ring had no room, or of which there were too many
    untimed_operations: int
    programs: dict[str, str]  # hook -> variant that is attached: typed | portable | ...
    degraded: tuple[str, ...]  # each one sentence: what is out of sight, and why


class EntityGone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """An entity that was reported is no longer there: a device unplugged, a file system unmounted."""

    entity: str  # device | interface | port | mount | qdisc (all of one interface)
    name: str  # as in the samples of that entity; for a mount its mount_id in decimal


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag="unavailable"):
    """A collector that cannot work on this host, or a part of one; sent once."""

    collector: str
    reason: str


class CollectorFault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A read of a working collector failed; it is tried again at the next tick."""

    collector: str
    reason: str


class SamplerHealth(msgspec.Struct, frozen=True, array_like=True, tag="health"):
    """The sampler's account of itself, cumulative; about once a second."""

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
    hung_lookups: int | None = None  # gauge: calls to file systems that have not come back; None: not told
    refused_lookups: int | None = None
    starved_ns: int | None = None  # lateness of the ticks that came a quarter of a second late; told in their frame
    abandoned: int | None = None  # gauge: py-spy and questions to drivers that do not end


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
    | ProcessInfo
    | ProcessIo
    | ProcessStat
    | PreviousRead
    | ThreadTime
    | ThreadSample
    | StackSample
    | GpuUse
    | GpuDirectSample
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

# What is kept in the timeline, and on the metrics page if it has metrics.
COUNTED: tuple[Any, ...] = tuple(kind for kind in get_args(Sample) if hasattr(kind, "counted"))
# The others, and where their counters go.
NOT_COUNTED: dict[type, str] = {
    **dict.fromkeys(
        (DeviceInfo, NvmePath, NicInfo, RdmaInfo, MountInfo, FuseDaemon, ThrottleInfo, ProcessInfo),
        "what an entity is: no counters",
    ),
    **dict.fromkeys(
        (
            ClockSample,
            FuseSample,
            QdiscSample,
            TcpSample,
            ClientSample,
            WireSample,
            SocketTraffic,
            BlockActivity,
            GpuDirectSample,
        ),
        "the measures of a checkpoint have what it did meanwhile",
    ),
    **dict.fromkeys(
        (ThreadTime, ThreadSample, StackSample, GpuUse, DirtyPause),
        "only looked at around a checkpoint, for its measures",
    ),
    **dict.fromkeys(
        (FileScan, FileEvent, FileFact, FileActivity, FileLifeEvent), "of one file: the streams of a checkpoint have it"
    ),
    **dict.fromkeys((PreviousRead, ProcessExit, EntityGone, Unavailable, CollectorFault), "an event: no counters"),
    **dict.fromkeys((SamplerHealth, TraceHealth), "of ckptprof itself: only on the metrics page (export/families.py)"),
}


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """All samples of one tick. An entity without a sample in a frame that its collector read has not changed."""

    at_ns: int  # CLOCK_MONOTONIC
    wall_ns: int  # CLOCK_REALTIME at the same instant
    read: tuple[str, ...]  # names of the collectors that were read in this tick
    samples: tuple[Sample, ...]
