"""Causes behind a network: the way there, a disk behind a fabric, the clients of NFS, BeeGFS and Lustre."""

from __future__ import annotations

import math

from ckptprof.diagnose.accounts import witnesses
from ckptprof.diagnose.accounts.witnesses import moved, name_of
from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule, is_restore, spent, spent_in
from ckptprof.diagnose.sight import MOST, Sight, some
from ckptprof.measures import ServerMeasure
from ckptprof.units import percent, plural, seconds, size
from ckptprof.verdicts import Limit

_HELD_BACK = 0.7  # of the data: it went to the server after all of it had been written to the page cache
_LONG = 0.3  # of the save, until then
_AGAIN = 1.5  # times what there is: several read the same
_TOLD = 4  # names of servers
_OF_THE_LINK = frozenset({Cause.LINK, Cause.LINK_EVEN, Cause.LINK_SHAPED, Cause.CONGESTION, Cause.PATH, Cause.QUEUES})
_ONE = 0.9  # of the bytes: all but what names and markers are
_REQUEST_BYTES = 4 << 20  # the largest request of a client: with less grant it is written piece by piece, synchronously
_LEAST_BYTES = 1 << 20  # of a threshold that is advised: smaller pieces do not gain by it
_NEAR = 1.1  # times the size of a call: polling knows it as the mean of some
_UNSWITCHED = (
    "write with O_DIRECT in aligned pieces of 1 MiB or more: data from pipes, splice or sendfile is never switched, "
    "and nothing is where the servers do not support unaligned direct I/O"
)


def _lost(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    return witnesses.trouble(sight)


def _detour(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    found = witnesses.detours(sight)
    if not found:
        return None
    told = ", ".join(f"{one.device} to {witnesses.place(one)} ({one.ana_state} for its target)" for one in found)
    return f"I/O used {told}"


def _held_back(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    mount = sight.measures.mount
    late = mount.late_share if mount is not None else None
    asked = mount.asked_seconds if mount is not None else None
    if late is None or asked is None or late < _HELD_BACK or asked < _LONG * sight.span:
        return None
    return f"{percent(min(1.0, late))} of it was sent only after all writes, which took {seconds(asked)}"


def _read_by_several(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    unique, whole = some(sight.checkpoint.unique_bytes), sight.checkpoint.bytes
    if not unique or whole < _AGAIN * unique:
        return None
    return f"{size(whole)} read, of {size(unique)} distinct: several ranks read the same data"


def _connections(one: ServerMeasure, kind: str) -> int:
    return max(0, (one.gauges or {}).get(f"{kind}_connections", 0))


def _fell_back(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    mount = sight.measures.mount
    if mount is None:
        return None
    settings = mount.settings or {}
    over_rdma = any(_connections(one, "rdma") for one in mount.per_server)
    if settings.get("connUseRDMA") != 1 or not (over_rdma or settings.get("rdma_interfaces", 0) > 0):
        return None
    found = [one for one in mount.per_server if _connections(one, "tcp") and not _connections(one, "rdma")]
    if not found:
        return None
    servers = ", ".join(one.name for one in found[:_TOLD]) + ("" if len(found) <= _TOLD else ", ...")
    return f"{plural(len(found), 'storage server')} reached over TCP, although this client has RDMA: {servers}"


def _is_lustre(sight: Sight) -> bool:
    return sight.fs_type == "lustre"


def _keep_off(sight: Sight) -> str | None:
    slow = witnesses.slow_one(sight, 0.0)
    if slow is None or not _is_lustre(sight):
        return None
    return (
        f"check {name_of(slow)} (there: `lctl get_param obdfilter.*-{slow.name}.brw_stats`, RAID rebuild, "
        f"disks); until then no new files there: on the MDS `lctl set_param osp.*-{slow.name}-*.max_create_count=0`"
    )


def _on_one(sight: Sight, accounts: tuple[Spent, ...]) -> str | Spent | None:
    """Say that nearly all went to one of several; where nobody counted that, the account."""
    held = spent(accounts, Limit.SERVER, Limit.NETWORK)
    told = witnesses.targets_of(sight)
    if not told or held is None:
        return held
    mount = sight.measures.mount
    there = (mount.settings or {}).get("osts", len(told)) if mount is not None else len(told)
    whole, first = sum(moved(one, writes=sight.writes) for one in told), moved(told[0], writes=sight.writes)
    if there < 2 or first < _ONE * whole or held.cause in _OF_THE_LINK:
        return None
    way = "went to" if sight.writes else "came from"
    return f"{percent(first / whole)} of the bytes {way} one of {there} OSTs, {name_of(told[0])}"


def _grant(one: ServerMeasure) -> float:
    """Return the space that a target has promised; endless where it is not known.

    What dirty pages take of it is no longer available, and comes back with the answers to their requests.
    """
    gauges = one.gauges or {}
    if not gauges.keys() >= {"grant_bytes", "dirty_bytes"}:
        return math.inf
    return gauges["grant_bytes"] + gauges["dirty_bytes"]


def _without_grant(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    short = [one for one in witnesses.targets_of(sight) if _grant(one) < _REQUEST_BYTES]
    if not short or not sight.writes:
        return None
    least = min(short, key=_grant)
    left = f"{name_of(least)} granted {size(_grant(least))} of space in advance at the last sample"
    return f"{left}, less than one request: each write waits for the server"


def _one_mount(sight: Sight, accounts: tuple[Spent, ...]) -> str | None:
    mount = sight.measures.mount
    if not sight.fs_type.startswith("nfs") or len(sight.checkpoint.writers) > 2:
        return None
    if mount is not None and mount.connections is not None:  # then it is known whether requests wait for one another
        return None
    account = spent(accounts, Limit.SERVER, Limit.NETWORK)
    return f"{len(sight.checkpoint.writers)} of its processes used one mount: {account}"


def _not_switched(sight: Sight, accounts: tuple[Spent, ...]) -> str | None:
    """Say that the pieces that were written went through the page cache, though the client could pass it by."""
    known = witnesses.hybrid(sight)
    if known is None or known.switched >= MOST or spent_in(accounts, Cause.COPYING, Cause.DIRTY) is None:
        return None
    if not known.on:
        return "hybrid I/O is off: all writes went through the page cache"
    text = f"hybrid I/O on, {percent(known.switched)} of the bytes switched"
    if known.piece_bytes and known.threshold_bytes and known.piece_bytes < known.threshold_bytes:
        text += f": the median write is {size(known.piece_bytes)}, the threshold {size(known.threshold_bytes)}"
    return text


def _switch(sight: Sight) -> str | None:
    known = witnesses.hybrid(sight)
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


def _is_behind_fabric(sight: Sight) -> bool:
    return bool(sight.paths)


def _in_pcc(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    return "read from PCC, on a disk of this host, not over the network" if witnesses.was_in_pcc(sight) else None


RULES: tuple[Rule, ...] = (
    # A path left `live` during the save: its requests wait until it comes back, or another one takes them.
    Rule(
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
    # The target gives access over another of its nodes, and says that this is not its best.
    Rule(
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
    # The fabric is congested: its ports are told to send more slowly, are paused, or lose packets.
    Rule(
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
    # The way to the server is slow, beyond this host's own link.
    Rule(
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
    # The server has to bring everything to stable storage before it answers a COMMIT.
    Rule(
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
    # The server asks the client to come back later.
    Rule(
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
    # Requests are sent again.
    Rule(
        name="nfs-retransmission",
        limits=(Limit.NETWORK,),
        causes=(Cause.RESENT,),
        remedy=(
            "check the path to the server (`nfsstat -rc`, `ss -ti`, drops of interfaces and switches), then the "
            "server; mount with `proto=tcp`, and do not change `timeo`"
        ),
        reference="nfs(5), timeo and retrans; kernel net/sunrpc/clnt.c",
        without="without retransmissions",
    ),
    # Each request carries far less than it could.
    Rule(
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
    # The client keeps what is written until it is closed or synced, and sends it then. Only that of NFS tells when:
    # others do not count what was asked for, or not what of it was direct.
    Rule(
        name="sent-at-the-end",
        limits=(Limit.SERVER, Limit.NETWORK),
        words=_held_back,
        remedy=(
            "let the client send during the save: a lower vm.dirty_background_bytes (64 MB), "
            "`sync_file_range` or `os.posix_fadvise` after each part, or O_DIRECT"
        ),
        reference="nfs(5), DATA AND METADATA COHERENCE: close-to-open; kernel Documentation/admin-guide/sysctl/vm.rst",
        without="sent during the writes",
    ),
    # Every rank reads the whole file.
    Rule(
        name="read-by-all",
        limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER),
        when=is_restore,
        words=_read_by_several,
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
    # RDMA was there, and the client went on over TCP.
    Rule(
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
    # One of several targets is slow: whoever has a stripe there waits for it.
    Rule(
        name="slow-target",
        limits=(Limit.SERVER,),
        causes=(Cause.TARGET,),
        remedy="check that target and its server, and place new files elsewhere until then",
        reference="hpc/ior#371 (an OST that is failed over has half of its speed)",
        without="with equally fast targets",
        instead=_keep_off,
    ),
    # A large file on one Lustre target.
    Rule(
        name="stripes",
        limits=(Limit.SERVER, Limit.NETWORK),
        when=_is_lustre,
        words=_on_one,
        remedy="stripe the directory before the first save: `lfs setstripe -c -1 -S 16M DIR`",
        reference="ornladios/ADIOS2#4621; E3SM#4280; darshan#444",
        without="over more targets",
    ),
    # A target that is nearly full promises no space: nothing may stay in the client's cache.
    Rule(
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
    Rule(
        name="single-stream",
        limits=(Limit.SERVER, Limit.NETWORK),
        words=_one_mount,
        remedy="mount with `nconnect=8,rsize=1048576,wsize=1048576`, and write several files at the same time",
        reference="alpa-projects/alpa#466 (0.53 Gbit/s)",
        without="over more connections",
    ),
    # The client could write large pieces past its page cache, and does not.
    Rule(
        name="hybrid-io",
        limits=(Limit.PAGE_CACHE,),
        words=_not_switched,
        remedy="switch it on: `lctl set_param llite.*.hybrid_io=1`, or write with O_DIRECT",
        reference="Lustre LU-13802 (2.16); DDN hybrid I/O (x1.7 per thread)",
        without="past the page cache",
        instead=_switch,
    ),
    # The target answers late, or does not take the bytes.
    Rule(
        name="nvme-target",
        limits=(Limit.SERVER,),
        when=_is_behind_fabric,
        remedy=(
            "check the target: its drives, its CPUs, the load of other hosts, a limit of the volume; use more "
            "`--nr-io-queues` if it has capacity; else save to local NVMe first"
        ),
        reference="nvme-connect(1); kernel Documentation/admin-guide/iostats.rst",
    ),
    # A restore from the persistent client cache says nothing of the servers.
    Rule(
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
