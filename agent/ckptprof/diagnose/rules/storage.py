"""Causes in the page cache, devices, links and servers; and for a verdict without a limit."""

from __future__ import annotations

from ckptprof.diagnose.accounts.claims import is_lowered
from ckptprof.diagnose.accounts.storage_waits import throttle
from ckptprof.diagnose.causes import AttributedTime, Cause
from ckptprof.diagnose.context import CheckpointContext
from ckptprof.diagnose.rules.rule import CauseRule, is_restore, mostly, number_of
from ckptprof.diagnose.tolerances import PART
from ckptprof.measures import UsageMeasure
from ckptprof.model import Level, Mode
from ckptprof.units import seconds, size
from ckptprof.verdicts import THROTTLED, Limit

_MEASURE = "see what `ckptprof doctor` lacks, and measure the path once (`ckptprof ceiling DIR`)"


def _raise_the_throttle(context: CheckpointContext) -> str | None:
    bound, way = throttle(context, context.span), "write" if context.is_save else "read"
    where = f"io.max or blkio.throttle.* of the cgroup (`--device-{way}-bps` of a container)"
    return None if bound is None else f"raise the throttle of {bound.device}: {where}"


def _raise_its_own_limit(context: CheckpointContext) -> str | None:
    where = "strict_limit and max_ratio of the disk (/sys/class/bdi), memory.max of the cgroup"
    return None if is_lowered(context) else f"raise the limit: {where}"


def _disk_user(context: CheckpointContext) -> UsageMeasure | None:
    """Return the other processes that transferred most, if that is a third of the foreign bytes; None: not observed."""
    most = max(context.measures.others, key=lambda one: one.disk_bytes, default=None)
    return most if most is not None and most.disk_bytes >= PART * context.foreign_bytes else None


def _who_used_the_disk(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    device, user = context.device, _disk_user(context)
    if device is None or not context.is_disk_shared or throttle(context, context.span) is not None:
        return None
    if user is None:
        return f"{device.device} transferred {size(context.foreign_bytes)} for other processes"
    return f"`{user.comm}` transferred {size(user.disk_bytes)} alongside, {number_of(user)}"


def _leave_the_disk(context: CheckpointContext) -> str | None:
    user = _disk_user(context)
    if user is None:
        return None
    whose = "its own " if user.started_by_writer else ""
    return f"run {whose}`{user.comm}` at another time or on another disk, or limit it (io.max of its cgroup)"


def _faster_tier(context: CheckpointContext) -> str | None:
    is_async = context.checkpoint.mode is Mode.ASYNC
    return "use a faster tier (local NVMe), or save less often" if is_async else None


def _collect_more_remedy(context: CheckpointContext) -> str | None:
    return None if context.checkpoint.level is Level.TRACE else f"record at `--level trace`, {_MEASURE}"


def _without_a_limit(_context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | None:
    whole = sum(one.seconds for one in accounts)
    return f"{seconds(whole)} without a limit that accounts for most of it" if whole > 0 else None


def _from_the_page_cache(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    return "read from the page cache, not from storage" if context.checkpoint.cache == "warm" else None


RULES: tuple[CauseRule, ...] = (
    # Others read or write the same disk.
    CauseRule(
        name="shared-disk",
        limits=(Limit.DEVICE,),
        words=_who_used_the_disk,
        remedy="find out who uses this disk (`pidstat -d`); use another disk, or limit them (io.max of a cgroup)",
        special_remedy=_leave_the_disk,
        reference="kernel Documentation/admin-guide/cgroup-v2.rst, io.max",
        without="without the others",
    ),
    # Writers are blocked because vm.dirty_bytes is small.
    CauseRule(
        name="dirty-limits",
        limits=(Limit.PAGE_CACHE,),
        causes=(Cause.DIRTY,),
        remedy=(
            "`sysctl vm.dirty_ratio=20 vm.dirty_background_ratio=10` (it resets vm.dirty_bytes), or "
            "vm.dirty_bytes above a checkpoint's size"
        ),
        special_remedy=_raise_its_own_limit,
        reference="DDN hybrid I/O (x1.7 per thread); cockroachdb PR#20449",
        without="with the usual dirty limits",
    ),
    CauseRule(
        name="copying",
        limits=(Limit.PAGE_CACHE,),
        remedy=(
            "write in pieces of 1 MB or more, with several writers; use O_DIRECT where the disk is faster than one "
            "thread can copy"
        ),
        reference="DDN hybrid I/O (x1.7 per thread, 40 % of peak with buffered writes)",
    ),
    CauseRule(
        name=THROTTLED,
        limits=(Limit.DEVICE, Limit.SMALL_IO),
        causes=(Cause.DEVICE_CAPPED, Cause.SMALL_OPERATIONS_CAPPED, Cause.DEVICE_THROTTLED),
        remedy="raise the throttle: the volume's MB/s and IOPS, or io.max of the cgroup",
        special_remedy=_raise_the_throttle,
        reference="kernel Documentation/admin-guide/cgroup-v2.rst, io.max",
        without="without the throttle",
    ),
    CauseRule(
        name="small-io",
        limits=(Limit.SMALL_IO,),
        remedy=(
            'write in pieces of 1 MB or more: `open(path, "wb", buffering=16 << 20)`, tensors packed into one '
            "file, no O_DIRECT for small pieces"
        ),
        reference="Darshan job summary: small accesses; huggingface/diffusers#10280",
        without="in large pieces",
        remedy_of_restore=(
            'read in pieces of 1 MB or more: `open(path, "rb", buffering=16 << 20)`, whole tensors instead of slices'
        ),
    ),
    # The device is slower than observed before, or than the checkpoint needs.
    CauseRule(
        name="slow-device",
        limits=(Limit.DEVICE,),
        remedy="save to a faster tier (local NVMe) and copy in the background, or save asynchronously",
        remedies={
            "torch": (
                "save to a faster tier (local NVMe) and copy in the background, or "
                "`torch.distributed.checkpoint.async_save`"
            ),
            "orbax": (
                "save to a faster tier (local NVMe) and copy in the background, or use Orbax `AsyncCheckpointer`"
            ),
        },
        reference="NVIDIA DGX SuperPOD storage tiers",
        special_remedy=_faster_tier,
        remedy_of_restore=(
            "restore from a faster tier: keep the newest checkpoint on local NVMe too, or load only a rank's shards"
        ),
        remedies_of_restore={
            "torch": (
                "restore from a faster tier: keep the newest checkpoint on local NVMe too, or load only a rank's "
                "shards (DCP)"
            )
        },
    ),
    # The link is shaped: its queueing discipline delays packets.
    CauseRule(
        name="shaped",
        limits=(Limit.NETWORK,),
        causes=(Cause.LINK_SHAPED,),
        remedy=(
            "remove the shaping (`tc -s qdisc show dev IF`, the instance's bandwidth class), or route storage over "
            "another interface"
        ),
        reference="kernel tc-tbf(8), tc-htb(8)",
        without="without the shaping",
    ),
    CauseRule(
        name="full-link",
        limits=(Limit.NETWORK,),
        remedy=(
            "save to local NVMe first and copy in the background, or from all nodes instead of one; else use a faster "
            "link"
        ),
        reference="alpa-projects/alpa#466",
        remedy_of_restore="copy it to local NVMe before the restore, or read it once and broadcast it",
        remedies_of_restore={
            "torch": (
                "copy it to local NVMe before the restore, or read it once and broadcast it: DCP "
                "`broadcast_from_rank0=True`"
            )
        },
    ),
    CauseRule(
        name="slow-server",
        limits=(Limit.SERVER,),
        remedy=(
            "write several files at the same time, in larger pieces (NFS wsize=1048576, FUSE max_write); check the "
            "server; else save to local NVMe first"
        ),
        reference="LLNL/scr#449",
    ),
    # The training thread runs a program between two writes, or before it returns, and waits for its end.
    CauseRule(
        name="awaited-child",
        limits=(Limit.UNCLEAR,),
        words=mostly(None, Cause.CHILD),
        remedy="run that child process in the background, or after the save",
        reference="wait(2)",
    ),
    CauseRule(
        name="own-pause",
        limits=(Limit.UNCLEAR,),
        words=mostly(None, Cause.PAUSED),
        remedy="find what sleeps within the save: a hook, a retry, a rate limit, a loop that polls (`py-spy dump`)",
        reference="nanosleep(2)",
    ),
    CauseRule(
        name="file-lock",
        limits=(Limit.UNCLEAR,),
        words=mostly(None, Cause.FILE_LOCK),
        remedy="find the process that has the lock (`lslocks`), or write without it",
        reference="flock(2)",
    ),
    # The disk is not busy and the save is slow: more measurements are needed.
    CauseRule(
        name="unexplained",
        limits=(Limit.UNCLEAR,),
        words=_without_a_limit,
        remedy=_MEASURE,
        reference="pytorch/torchtitan#1301",
        special_remedy=_collect_more_remedy,
    ),
    # A restore from the page cache shows nothing about the storage.
    CauseRule(
        name="warm",
        limits=(Limit.NONE,),
        condition=is_restore,
        words=_from_the_page_cache,
        remedy=(
            "to test the storage itself drop the cache first: `echo 3 > /proc/sys/vm/drop_caches`; or restore on "
            "another node"
        ),
        reference="argonne-lcf/dlio_benchmark#277",
    ),
)
