"""Causes behind a network: the path, a disk behind a fabric, the clients of NFS, BeeGFS and Lustre."""

from __future__ import annotations

import math

from ckptprof.diagnose.accounts import network_evidence
from ckptprof.diagnose.accounts.network_evidence import target_name, transferred_bytes
from ckptprof.diagnose.causes import AttributedTime, Cause
from ckptprof.diagnose.context import CheckpointContext, or_zero
from ckptprof.diagnose.rules.rule import CauseRule, is_restore, largest_of_causes, largest_of_limits
from ckptprof.diagnose.tolerances import CLEARLY, LARGELY, MOST, NEARLY_ALL, PART
from ckptprof.measures import ServerMeasure
from ckptprof.units import percent, plural, seconds, size
from ckptprof.verdicts import Limit

_MAX_NAMES = 4  # names of servers
_OF_THE_LINK = frozenset({Cause.LINK, Cause.LINK_EVEN, Cause.LINK_SHAPED, Cause.CONGESTION, Cause.PATH, Cause.QUEUES})
_REQUEST_BYTES = 4 << 20  # the largest request of a client: with less grant it is written piece by piece, synchronously
_LEAST_BYTES = 1 << 20  # smallest advised threshold: smaller pieces do not gain
_NEAR = 1.1  # times the size of a call, of which polling has only the mean
_UNSWITCHED = (
    "write with O_DIRECT in aligned pieces of 1 MiB or more: data from pipes, splice or sendfile is never switched, "
    "and nothing is where the servers do not support unaligned direct I/O"
)


def _lost(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    return network_evidence.lost_paths(context)


def _detour(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    found = network_evidence.detours(context)
    if not found:
        return None
    paths = (f"{one.device} to {network_evidence.path_address(one)} ({one.ana_state} for its target)" for one in found)
    return f"I/O used {', '.join(paths)}"


def _sent_late(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    mount = context.measures.mount
    late = mount.late_share if mount is not None else None
    requested = mount.requested_seconds if mount is not None else None
    if late is None or requested is None or late < LARGELY or requested < PART * context.span:
        return None
    return f"{percent(min(1.0, late))} of it was sent only after all writes, which took {seconds(requested)}"


def _read_by_several(context: CheckpointContext) -> tuple[float, str] | None:
    unique, whole = or_zero(context.checkpoint.unique_bytes), context.checkpoint.bytes
    if not unique or whole < CLEARLY * unique:
        return None
    return 1 - unique / whole, f"{size(whole)} read, of {size(unique)} distinct: several ranks read the same data"


def _connections(one: ServerMeasure, kind: str) -> int:
    return max(0, (one.gauges or {}).get(f"{kind}_connections", 0))


def _fell_back(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    mount = context.measures.mount
    if mount is None:
        return None
    settings = mount.settings or {}
    uses_rdma = any(_connections(one, "rdma") for one in mount.per_server)
    if settings.get("connUseRDMA") != 1 or not (uses_rdma or settings.get("rdma_interfaces", 0) > 0):
        return None
    found = [one for one in mount.per_server if _connections(one, "tcp") and not _connections(one, "rdma")]
    if not found:
        return None
    servers = ", ".join(one.name for one in found[:_MAX_NAMES]) + ("" if len(found) <= _MAX_NAMES else ", ...")
    return f"{plural(len(found), 'storage server')} reached over TCP, although this client has RDMA: {servers}"


def _is_lustre(context: CheckpointContext) -> bool:
    return context.fs_type == "lustre"


def _avoid_target(context: CheckpointContext) -> str | None:
    slow = network_evidence.slowest_target(context, 0.0)
    if slow is None or not _is_lustre(context):
        return None
    return (
        f"check {target_name(slow)} (there: `lctl get_param obdfilter.*-{slow.name}.brw_stats`, RAID rebuild, "
        f"disks); until then no new files there: on the MDS `lctl set_param osp.*-{slow.name}-*.max_create_count=0`"
    )


def _on_one_target(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | AttributedTime | None:
    """Describe that nearly all bytes went to one of several targets; where that was not counted, return the account."""
    account = largest_of_limits(accounts, Limit.SERVER, Limit.NETWORK)
    targets = network_evidence.targets_of(context)
    if not targets or account is None:
        return account
    mount = context.measures.mount
    there = (mount.settings or {}).get("osts", len(targets)) if mount is not None else len(targets)
    whole = sum(transferred_bytes(one, writes=context.is_save) for one in targets)
    first = transferred_bytes(targets[0], writes=context.is_save)
    if there < 2 or first < NEARLY_ALL * whole or account.cause in _OF_THE_LINK:
        return None
    way = "went to" if context.is_save else "came from"
    return f"{percent(first / whole)} of the bytes {way} one of {there} OSTs, {target_name(targets[0])}"


def _grant(one: ServerMeasure) -> float:
    """Return the space that a target has granted, infinity if not known.

    Dirty pages use up a grant, which returns with the replies to their requests.
    """
    gauges = one.gauges or {}
    if not gauges.keys() >= {"grant_bytes", "dirty_bytes"}:
        return math.inf
    return gauges["grant_bytes"] + gauges["dirty_bytes"]


def _without_grant(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    short = [one for one in network_evidence.targets_of(context) if _grant(one) < _REQUEST_BYTES]
    if not short or not context.is_save:
        return None
    least = min(short, key=_grant)
    left = f"{target_name(least)} granted {size(_grant(least))} of space in advance at the last sample"
    return f"{left}, less than one request: each write waits for the server"


def _one_mount(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | None:
    mount = context.measures.mount
    if not context.fs_type.startswith("nfs") or len(context.checkpoint.writers) > 2:
        return None
    if mount is not None and mount.connections is not None:  # then it is known whether requests wait for one another
        return None
    account = largest_of_limits(accounts, Limit.SERVER, Limit.NETWORK)
    return f"{len(context.checkpoint.writers)} of its processes used one mount: {account}"


def _not_switched(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | None:
    known = network_evidence.hybrid(context)
    if known is None or known.switched >= MOST or largest_of_causes(accounts, Cause.COPYING, Cause.DIRTY) is None:
        return None
    if not known.on:
        return "hybrid I/O is off: all writes went through the page cache"
    text = f"hybrid I/O on, {percent(known.switched)} of the bytes switched"
    if known.piece_bytes and known.threshold_bytes and known.piece_bytes < known.threshold_bytes:
        text += f": the median write is {size(known.piece_bytes)}, the threshold {size(known.threshold_bytes)}"
    return text


def _hybrid_remedy(context: CheckpointContext) -> str | None:
    known = network_evidence.hybrid(context)
    if known is None:
        return None
    piece, most = known.piece_bytes or 0.0, known.threshold_bytes or 0.0
    near = 1.0 if known.piece_is_exact else _NEAR
    lower = 1 << max(1, int(near * piece)).bit_length() - 1
    steps = [] if known.on else ["`lctl set_param llite.*.hybrid_io=1`"]
    if _LEAST_BYTES <= lower < most:
        steps.append(f"`lctl set_param llite.*.hybrid_io_write_threshold_bytes={lower}`")
    elif lower < most:
        steps.append(f"write in pieces of {size(most)} or more (`buffering=`, packed tensors)")
    return " and ".join(steps) or _UNSWITCHED


def _is_behind_fabric(context: CheckpointContext) -> bool:
    return bool(context.paths)


def _in_pcc(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    text = "read from PCC, on a disk of this host, not over the network"
    return text if network_evidence.was_in_pcc(context) else None


RULES: tuple[CauseRule, ...] = (
    # A path was not `live` during the save: its requests wait until it returns, or another one serves them.
    CauseRule(
        name="nvme-path-lost",
        limits=(Limit.NETWORK, Limit.SERVER),
        words=_lost,
        remedy=(
            "check that path (`nvme list-subsys`): its port, switch and target; add a second path; in "
            "`nvme connect` use a shorter `--keep-alive-tmo`, `--reconnect-delay`"
        ),
        reference="nvme-connect(1); kernel drivers/nvme/host/multipath.c",
        without="with its paths live",
    ),
    # The target gives access through another of its nodes, and reports this path as not optimized.
    CauseRule(
        name="nvme-not-optimized",
        limits=(Limit.NETWORK, Limit.SERVER),
        words=_detour,
        remedy=(
            "restore an optimized path (`nvme list-subsys`, `nvme ana-log`), or have the volume moved to the target "
            "node that this host reaches"
        ),
        reference="NVM Express Base Specification, Asymmetric Namespace Access; kernel drivers/nvme/host/multipath.c",
        without="over an optimized path",
    ),
    # The fabric is congested: its ports are throttled or paused, or lose packets.
    CauseRule(
        name="congested-fabric",
        limits=(Limit.NETWORK,),
        causes=(Cause.CONGESTION,),
        remedy=(
            "fewer ranks writing at the same time, or storage on other ports or priorities than the collectives; check "
            "PFC and ECN of the switches"
        ),
        reference="Meta, RDMA over Ethernet for distributed AI training at scale (SIGCOMM 2024)",
        without="on an uncongested fabric",
    ),
    # The path to the server is slow, beyond this host's own link.
    CauseRule(
        name="slow-path",
        limits=(Limit.NETWORK,),
        causes=(Cause.PATH, Cause.QUEUES),
        remedy=(
            "check the path to the server (`mtr ADDRESS`, switches, limits per node or connection); use more "
            "connections if each is limited; else save to local NVMe first"
        ),
        reference="kernel 05b055e89121 (tcp: instrument tcp sender limits chronographs)",
        without="on a fast enough path",
    ),
    # The server has to write everything to stable storage before it answers a COMMIT.
    CauseRule(
        name="nfs-commit",
        limits=(Limit.SERVER,),
        causes=(Cause.COMMITS,),
        remedy=(
            "check the stable storage of the server (a log on flash or NVRAM, such as a ZFS SLOG); one fsync per file; "
            "else save to local NVMe first"
        ),
        reference="RFC 8881, section 18.3 (COMMIT); kernel fs/nfs/write.c",
        without="with fast enough stable storage",
    ),
    # Two clients of one name end each other's sessions, as those of cloned machines and of network namespaces do.
    CauseRule(
        name="nfs-sessions",
        limits=(Limit.SERVER,),
        causes=(Cause.SESSIONS,),
        remedy=(
            "give each NFS client a name of its own: the host's name, `nfs.nfs4_unique_id`, or in a network namespace "
            "/sys/fs/nfs/net/nfs_client/identifier"
        ),
        reference="kernel Documentation/filesystems/nfs/client-identifier.rst",
        without="with sessions that last",
    ),
    # The server asks the client to retry later.
    CauseRule(
        name="nfs-delay",
        limits=(Limit.SERVER,),
        causes=(Cause.DELAYED,),
        remedy=(
            "check the server: it may recall files from a slower tier or delegations of other clients, or lack threads "
            "or memory"
        ),
        reference="RFC 8881, section 15.1.1.3 (NFS4ERR_DELAY); NFS3ERR_JUKEBOX in RFC 1813",
        without="without these delays",
    ),
    CauseRule(
        name="nfs-retransmission",
        limits=(Limit.NETWORK,),
        causes=(Cause.RETRANSMITTED,),
        remedy=(
            "check the path to the server (`nfsstat -rc`, `ss -ti`, drops of interfaces and switches), then the "
            "server; mount with `proto=tcp`, and do not change `timeo`"
        ),
        reference="nfs(5), timeo and retrans; kernel net/sunrpc/clnt.c",
        without="without retransmissions",
    ),
    # Each request has far less data than possible.
    CauseRule(
        name="nfs-small-requests",
        limits=(Limit.SMALL_IO,),
        causes=(Cause.SMALL_REQUESTS,),
        remedy=(
            "mount without `sync`, open without O_SYNC, write in pieces of 1 MB or more, and align direct writes to "
            "pages: then the client merges them"
        ),
        reference="nfs(5), sync mount option and wsize",
        without="in large requests",
        remedy_of_restore=(
            'read in pieces of 1 MB or more, in order: `open(path, "rb", buffering=16 << 20)`; mount with '
            "`rsize=1048576`"
        ),
    ),
    # The client buffers written data until a close or sync, and sends it then. Only NFS clients show when:
    # others do not count requested bytes, or not which of them were direct.
    CauseRule(
        name="sent-at-the-end",
        limits=(Limit.SERVER, Limit.NETWORK),
        words=_sent_late,
        remedy=(
            "let the client send during the save: a lower vm.dirty_background_bytes (64 MB), "
            "`sync_file_range` or `os.posix_fadvise` after each part, or O_DIRECT"
        ),
        reference="nfs(5), DATA AND METADATA COHERENCE: close-to-open; kernel Documentation/admin-guide/sysctl/vm.rst",
        without="sent during the writes",
    ),
    CauseRule(
        name="read-by-all",
        limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER),
        condition=is_restore,
        saving=_read_by_several,
        remedy="read once and broadcast; or load shards",
        remedies={
            "torch": (
                "read once and broadcast: DCP `StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)`; or "
                "load shards"
            ),
            "orbax": "read once and broadcast: Orbax `SingleReplicaArrayHandler`; or load shards",
        },
        reference="Lightning-AI/pytorch-lightning#21017 (20 min with 8 GPUs)",
        without="read once",
    ),
    # RDMA was available, and the client used TCP.
    CauseRule(
        name="rdma-fallback",
        limits=(Limit.NETWORK, Limit.SERVER),
        words=_fell_back,
        remedy=(
            "check RDMA to these servers (`ibstat`, `rping`), and `connRDMAInterfacesFile` on both sides; with "
            "`connTCPFallbackEnabled = false` it fails instead of being slow"
        ),
        reference="BeeGFS documentation, RDMA support: connTCPFallbackEnabled",
        without="over RDMA",
    ),
    # One of several targets is slow: every writer with a stripe there waits for it.
    CauseRule(
        name="slow-target",
        limits=(Limit.SERVER,),
        causes=(Cause.TARGET,),
        remedy="check that target and its server, and place new files elsewhere until then",
        reference="hpc/ior#371 (an OST that is failed over has half of its speed)",
        without="with equally fast targets",
        special_remedy=_avoid_target,
    ),
    # A large file on one Lustre target.
    CauseRule(
        name="stripes",
        limits=(Limit.SERVER, Limit.NETWORK),
        condition=_is_lustre,
        words=_on_one_target,
        remedy="stripe the directory before the first save: `lfs setstripe -c -1 -S 16M DIR`",
        reference="ornladios/ADIOS2#4621; E3SM#4280; darshan#444",
        without="over more targets",
    ),
    # A target that is nearly full grants no space: nothing may stay in the client's cache.
    CauseRule(
        name="grant",
        limits=(Limit.SERVER,),
        words=_without_grant,
        remedy=(
            "look for OSTs that are nearly full (`lfs df -h`) and free space or place files elsewhere; on clients "
            "`lctl set_param osc.*.grant_shrink=0`"
        ),
        reference="Lustre LU-13131 (do not wait for grants for too long)",
        without="with grant",
    ),
    # One connection to an NFS or EFS server.
    CauseRule(
        name="single-stream",
        limits=(Limit.SERVER, Limit.NETWORK),
        words=_one_mount,
        remedy="mount with `nconnect=8,rsize=1048576,wsize=1048576`, and write several files at the same time",
        reference="alpa-projects/alpa#466 (0.53 Gbit/s)",
        without="over more connections",
    ),
    # The client could write large pieces bypassing its page cache, and does not.
    CauseRule(
        name="hybrid-io",
        limits=(Limit.PAGE_CACHE,),
        words=_not_switched,
        remedy="switch it on: `lctl set_param llite.*.hybrid_io=1`, or write with O_DIRECT",
        reference="Lustre LU-13802 (2.16); DDN hybrid I/O (x1.7 per thread)",
        without="past the page cache",
        special_remedy=_hybrid_remedy,
    ),
    # The target replies late, or does not accept the bytes.
    CauseRule(
        name="nvme-target",
        limits=(Limit.SERVER,),
        condition=_is_behind_fabric,
        remedy=(
            "check the target: its drives, its CPUs, the load of other hosts, a limit of the volume; use more "
            "`--nr-io-queues` if it has capacity; else save to local NVMe first"
        ),
        reference="nvme-connect(1); kernel Documentation/admin-guide/iostats.rst",
    ),
    # A restore from the persistent client cache shows nothing about the servers.
    CauseRule(
        name="warm-pcc",
        limits=(Limit.NONE,),
        words=_in_pcc,
        remedy=(
            "to test the servers themselves remove the files from PCC first: `lfs pcc detach FILE`; or restore on "
            "another node"
        ),
        reference="Lustre LU-10092 (persistent client cache)",
    ),
)
