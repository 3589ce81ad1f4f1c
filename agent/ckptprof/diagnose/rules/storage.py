"""Causes in the storage: devices, networks, servers, small operations, many files, bytes moved twice."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule, spent
from ckptprof.diagnose.rules.seen import MUCH, fs_type, is_restore, written_beyond
from ckptprof.diagnose.sight import NS, look, some
from ckptprof.model import Checkpoint
from ckptprof.units import seconds, size
from ckptprof.verdicts import Limit

_AGAIN = 1.5  # times what there is: several read the same
_PAUSED = 0.2  # of the path

# Staged in a temporary directory and copied from there: everything is written twice.
STAGING_COPY = Rule(
    name="staging-copy",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.PAGE_CACHE, Limit.SERIALIZE),
    words=written_beyond("staging", "consolidation"),
    exclusion="as many bytes written as the checkpoint has",
    remedy="set TMPDIR to a directory on the target file system, so that a rename takes the place of the copy",
    reference="Lightning-AI/pytorch-lightning#21253 and #20270",
    without="written once",
)

# The same data is saved twice.
SAVED_TWICE = Rule(
    name="saved-twice",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.PAGE_CACHE, Limit.SERIALIZE),
    words=written_beyond("duplicate", "copy"),
    exclusion="all bytes are different",
    remedy="write it once, and give it its second name by a link; write replicated state once",
    remedies={
        "lightning": 'Lightning `ModelCheckpoint(save_last="link")`; write replicated state once',
        "transformers": "upgrade transformers (ZeRO-3 saved twice); write replicated state once",
    },
    reference='huggingface/transformers#34534; Lightning save_last="link"',
    without="written once",
)


def _read_again(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    read = sum(some(one.read_bytes) for one in look(checkpoint).measures.threads)
    if not is_restore(checkpoint) and read >= MUCH * max(1, checkpoint.bytes):
        return f"{size(read)} of its own files were read during the save"
    return written_beyond("rewrite")(checkpoint, accounts)


# A save that reads what it wrote before to change it: zarr chunks, one for each parameter.
READ_MODIFY_WRITE = Rule(
    name="read-modify-write",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO, Limit.METADATA, Limit.SERIALIZE),
    words=_read_again,
    exclusion="nothing is read during the save",
    remedy="write new files instead of changing those that are there; chunks as large as what one rank writes",
    remedies={
        "megatron": "save as torch_dist instead of zarr (Megatron-LM `--ckpt-format torch_dist`)",
    },
    reference="NVIDIA/Megatron-LM#834 (10 s became 64 s)",
    without="without reading back",
)

# The fabric is congested: its ports are told to send more slowly, are paused, or lose packets.
CONGESTED = Rule(
    name="congested-fabric",
    limits=(Limit.NETWORK,),
    causes=(Cause.CONGESTION,),
    exclusion="no notifications, pauses or losses",
    remedy=(
        "fewer ranks that write at a time, or storage on other ports or priorities than the collectives; have PFC and "
        "ECN of the switches looked at"
    ),
    reference="Meta, RDMA over Ethernet for distributed AI training at scale (SIGCOMM 2024)",
    without="on a fabric that is not congested",
)

# The way to the server is slow, beyond this host's own link.
SLOW_PATH = Rule(
    name="slow-path",
    limits=(Limit.NETWORK,),
    causes=(Cause.PATH,),
    exclusion="data is seldom on its way, or the receiver's window lets no more out",
    remedy=(
        "have the way to the server looked at (`mtr ADDRESS`, switches, limits of a node or a connection); more "
        "connections if each is limited; else local NVMe first"
    ),
    reference="kernel 05b055e89121 (tcp: instrument tcp sender limits chronographs)",
    without="on a path that does not limit it",
)


def _read_by_several(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    unique, whole = some(checkpoint.unique_bytes), some(checkpoint.bytes)
    if not unique or whole < _AGAIN * unique:
        return None
    return f"{size(whole)} were read of {size(unique)}: several ranks read the same"


# Every rank reads the whole file.
READ_BY_ALL = Rule(
    name="read-by-all",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER),
    when=is_restore,
    words=_read_by_several,
    exclusion="each byte is read once",
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
)


def _one_mount(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    mount = look(checkpoint).measures.mount
    if not fs_type(checkpoint).startswith("nfs") or len(checkpoint.writers) > 2:
        return None
    if mount is not None and mount.connections is not None:  # then it is known whether requests wait for one another
        return None
    return f"{len(checkpoint.writers)} of its processes used one mount: {spent(accounts, Limit.SERVER, Limit.NETWORK)}"


# One connection to an NFS or EFS server.
SINGLE_STREAM = Rule(
    name="single-stream",
    limits=(Limit.SERVER, Limit.NETWORK),
    words=_one_mount,
    exclusion="several clients and mounts",
    remedy="mount with `nconnect=8,rsize=1048576,wsize=1048576`, and write several files at a time",
    reference="alpa-projects/alpa#466 (0.53 Gbit/s)",
    without="over more connections",
)


def _of_ranks(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    ranks = len({one.rank for one in checkpoint.writers if one.rank is not None})
    return f"{ranks} ranks: {spent(accounts, Limit.METADATA)}" if ranks >= 2 else None


# Directories and files made by all ranks at once: a storm of metadata.
MANY_FILES_RANKS = Rule(
    name="many-files-ranks",
    limits=(Limit.METADATA,),
    words=_of_ranks,
    exclusion="one rank makes them",
    remedy="create directories on rank 0 only, then a barrier; fewer files: one for each rank",
    reference="NVIDIA-NeMo/Automodel PR#3369; KempnerForge#49",
)

# Tens of thousands of small files.
MANY_FILES = Rule(
    name="many-files",
    limits=(Limit.METADATA,),
    exclusion="few files",
    remedy="fewer and larger files: one for each rank",
    remedies={
        "orbax": "fewer and larger files: Orbax with OCDBT (`use_ocdbt=True`)",
        "transformers": "larger shards: `save_pretrained(max_shard_size=...)`; one file for each rank",
        "torch": "one file for each rank: DCP `FileSystemWriter(path, single_file_per_rank=True)`",
    },
    reference="NVIDIA-NeMo/Automodel PR#3369; WEKA: file systems degrade above 100,000 files per directory",
)


def _paused(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    paused = sum(some(one.dirty_pause_ns) for one in look(checkpoint).measures.processes) / NS
    whole = sum(one.seconds for one in accounts)
    return (
        f"writers were blocked for {seconds(paused)} because too much was dirty" if paused > _PAUSED * whole else None
    )


# Buffered writes run into the dirty limits: a writer goes at the speed of writeback.
BUFFERED = Rule(
    name="buffered",
    limits=(Limit.DEVICE,),
    words=_paused,
    exclusion="no dirty pauses",
    remedy=(
        "a faster tier, or async saves: the device is what it waits for in the end; more vm.dirty_bytes only "
        "moves the wait"
    ),
    reference="DDN hybrid I/O; cockroachdb PR#20449",
)

# A limit set for the cgroup or the volume slows the device.
THROTTLED = Rule(
    name="throttled",
    limits=(Limit.DEVICE, Limit.SMALL_IO),
    causes=(Cause.DEVICE_CAPPED, Cause.SMALL_OPERATIONS_CAPPED, Cause.DEVICE_PACED),
    exclusion="no limit is set, and the device is busy",
    remedy=(
        "raise the limit: io.max or blkio.throttle.* of the cgroup, the container's --device-write-bps, the "
        "volume's provisioned IOPS and MB/s"
    ),
    reference="kernel Documentation/admin-guide/cgroup-v2.rst, io.max",
    without="without that limit",
)

# Small or random operations straight to the device.
SMALL_IO = Rule(
    name="small-io",
    limits=(Limit.SMALL_IO,),
    exclusion="large requests at the device",
    remedy=(
        'write in pieces of 1 MB and more: `open(path, "wb", buffering=16 << 20)`, tensors packed into one '
        "file, no O_DIRECT for small pieces"
    ),
    reference="Darshan job summary: small accesses; huggingface/diffusers#10280",
    without="in large pieces",
    remedy_of_restore=(
        'read in pieces of 1 MB and more: `open(path, "rb", buffering=16 << 20)`, whole tensors instead of slices'
    ),
)

# The device is slower than it has shown to be, or than the checkpoint needs.
SLOW_DEVICE = Rule(
    name="slow-device",
    limits=(Limit.DEVICE,),
    exclusion="the device idles",
    remedy="save to a faster tier (local NVMe) and copy on in the background, or save asynchronously",
    remedies={
        "torch": (
            "save to a faster tier (local NVMe) and copy on in the background, or "
            "`torch.distributed.checkpoint.async_save`"
        ),
        "orbax": "save to a faster tier (local NVMe) and copy on in the background, or by Orbax `AsyncCheckpointer`",
    },
    reference="NVIDIA DGX SuperPOD storage tiers",
    remedy_of_restore=(
        "restore from a faster tier: keep the newest checkpoint on local NVMe too, or load only a rank's shards"
    ),
    remedies_of_restore={
        "torch": (
            "restore from a faster tier: keep the newest checkpoint on local NVMe too, or load only a rank's shards "
            "(DCP)"
        ),
    },
)

# The link is shaped: its queueing discipline delays packets.
SHAPED = Rule(
    name="shaped",
    limits=(Limit.NETWORK,),
    causes=(Cause.LINK_SHAPED,),
    exclusion="no packets are delayed",
    remedy=(
        "lift the shaping (`tc -s qdisc show dev IF`, the instance's bandwidth class), or route storage over "
        "another interface"
    ),
    reference="kernel tc-tbf(8), tc-htb(8)",
    without="without the shaping",
)

# The network link is full.
FULL_LINK = Rule(
    name="full-link",
    limits=(Limit.NETWORK,),
    exclusion="the link has room",
    remedy=(
        "save to local NVMe first and copy on in the background, or from all nodes instead of one; else a faster link"
    ),
    reference="alpa-projects/alpa#466",
    remedy_of_restore="bring it to local NVMe before the restore, or read it once and send it on",
    remedies_of_restore={
        "torch": (
            "bring it to local NVMe before the restore, or read it once and send it on: DCP `broadcast_from_rank0=True`"
        ),
    },
)


def _daemon_first(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return the time in which what serves the mount was at work, if the job itself was for less."""
    most = spent(accounts, Limit.SERIALIZE)
    return most if most is not None and most.cause is Cause.DAEMON else None


# What serves a FUSE mount here computes: it encrypts, compresses, sums up, copies.
BUSY_DAEMON = Rule(
    name="busy-daemon",
    limits=(Limit.SERIALIZE,),
    words=_daemon_first,
    exclusion="what serves the mount rests while it is waited for",
    remedy=(
        "let what serves the mount do less for each byte: no compression, cheaper ciphers (`sshfs -o "
        "compression=no,Ciphers=aes128-gcm@openssh.com`), larger requests"
    ),
    reference="sshfs(1), rclone-mount(1)",
    without="with a client of the mount that keeps up",
)

# The server answers late.
SLOW_SERVER = Rule(
    name="slow-server",
    limits=(Limit.SERVER,),
    exclusion="the link is full",
    remedy=(
        "several files at a time, in larger pieces (NFS wsize=1048576, FUSE max_write); have the server "
        "looked at; else local NVMe first"
    ),
    reference="LLNL/scr#449",
)
