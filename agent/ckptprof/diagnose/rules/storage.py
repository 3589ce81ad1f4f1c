"""Causes in the page cache, devices, links and servers; and for a verdict without a limit."""

from __future__ import annotations

from ckptprof.diagnose.accounts.storage_waits import throttle
from ckptprof.diagnose.causes import AttributedTime, Cause
from ckptprof.diagnose.context import CheckpointContext, or_zero
from ckptprof.diagnose.rules.rule import CauseRule, is_restore
from ckptprof.diagnose.tolerances import LITTLE
from ckptprof.model import Level, Mode
from ckptprof.units import NS, seconds
from ckptprof.verdicts import THROTTLED, Limit

_TIMEOUT_SECONDS = 600  # default of NCCL's collectives (torch.distributed)
_MEASURE = "measure the path once (`ckptprof ceiling DIR`)"


def _paused(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | None:
    paused = sum(or_zero(one.dirty_pause_ns) for one in context.measures.processes) / NS
    whole = sum(one.seconds for one in accounts)
    text = f"writers were blocked for {seconds(paused)} by the limit on dirty pages"
    return text if paused > LITTLE * whole else None


def _raise_the_throttle(context: CheckpointContext) -> str | None:
    bound, way = throttle(context, context.span), "write" if context.is_save else "read"
    where = f"io.max or blkio.throttle.* of the cgroup (`--device-{way}-bps` of a container)"
    return None if bound is None else f"raise the throttle of {bound.device}: {where}"


def _faster_tier(context: CheckpointContext) -> str | None:
    is_async = context.checkpoint.mode is Mode.ASYNC
    return "use a faster tier (local NVMe), or save less often" if is_async else None


def _exceeds_nccl_timeout(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    if or_zero(context.checkpoint.ranks) < 2 or context.span < _TIMEOUT_SECONDS:
        return None
    return f"it took {seconds(context.span)}, and NCCL times out after {_TIMEOUT_SECONDS} s"


def _collect_more_remedy(context: CheckpointContext) -> str:
    processes = context.measures.processes
    steps = [] if context.checkpoint.level is Level.TRACE else ["record at --level trace"]
    steps += [] if any(one.stacks for one in processes) else ["install py-spy"]
    return f"collect more data: {', '.join([*steps, _MEASURE])}"


def _without_a_limit(_context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | None:
    whole = sum(one.seconds for one in accounts)
    return f"{seconds(whole)} without a limit that accounts for most of it" if whole > 0 else None


def _from_the_page_cache(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    return "read from the page cache, not from storage" if context.checkpoint.cache == "warm" else None


RULES: tuple[CauseRule, ...] = (
    # Writers are blocked because vm.dirty_bytes is small.
    CauseRule(
        name="dirty-limits",
        limits=(Limit.PAGE_CACHE,),
        causes=(Cause.DIRTY,),
        remedy=(
            "`sysctl vm.dirty_ratio=20 vm.dirty_background_ratio=10` (it resets vm.dirty_bytes), or "
            "vm.dirty_bytes above a checkpoint's size"
        ),
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
    # Buffered writes reach the dirty limits: a writer is slowed to the speed of writeback.
    CauseRule(
        name="buffered",
        limits=(Limit.DEVICE,),
        words=_paused,
        remedy=(
            "use a faster tier, or async saves: the save waits for the disk in the end; a higher vm.dirty_bytes only "
            "moves the wait"
        ),
        reference="DDN hybrid I/O; cockroachdb PR#20449",
        special_remedy=_faster_tier,
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
    # A save longer than the collective timeout kills the ranks that wait for it.
    CauseRule(
        name="timeout",
        limits=(Limit.UNCLEAR,),
        words=_exceeds_nccl_timeout,
        remedy="raise the timeout of the collectives until the cause is found",
        remedies={
            "torch": "raise the timeout (`init_process_group(timeout=timedelta(hours=2))`) until the cause is found"
        },
        reference="DeepSpeed#7533; torchtune#2093; accelerate#2912; ai2cm/ace#851",
    ),
    # The disk is not busy and the save is slow: more measurements are needed.
    CauseRule(
        name="unexplained",
        limits=(Limit.UNCLEAR,),
        words=_without_a_limit,
        remedy=f"collect more data: record at --level trace, install py-spy, {_MEASURE}",
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
