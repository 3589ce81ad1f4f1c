"""Causes between the job and its storage: page cache, flushes, mapped files."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import fs_type, is_far, is_restore, pressed
from ckptprof.diagnose.sight import look, some
from ckptprof.model import Checkpoint
from ckptprof.units import size
from ckptprof.verdicts import Limit

_OTHERS_BYTES = 64 << 20  # twice that beside a checkpoint is no log or journal

# A restore by mmap on a network file system: each page fault is a small read over the network.
MAPPED_FAR = Rule(
    name="mapped-far",
    limits=(Limit.PAGE_FAULT,),
    when=is_far,
    exclusion="reads by calls, or few major faults",
    remedy="read by large calls instead of mapping; or copy to local NVMe first",
    remedies={
        "safetensors": (
            'read instead of mapping: `safetensors` `load(open(f, "rb").read())`; or copy to local NVMe first'
        ),
        "torch": "read instead of mapping: `torch.load(mmap=False)`; or copy to local NVMe first",
    },
    reference="sglang PR#37806 (29 MB/s mapped; 756 GB in 42.6 s prefetched); safetensors#562; vllm PR#24469",
    without="read by calls",
)

# A restore by mmap while memory is short: pages are fetched, dropped and fetched again.
MAPPED_PRESSED = Rule(
    name="mapped-pressed",
    limits=(Limit.PAGE_FAULT,),
    when=is_restore,
    words=pressed,
    exclusion="memory was available throughout",
    remedy="read() in pieces instead of mapping, and fewer ranks that load at a time",
    reference="NVIDIA/TensorRT-LLM PR#17368",
    without="read by calls",
)

# A cold restore by mmap: page after page is faulted in, in the order in which tensors are touched.
MAPPED = Rule(
    name="mapped",
    limits=(Limit.PAGE_FAULT,),
    exclusion="the file is in the page cache, or read by calls",
    remedy="read it by large calls, or posix_fadvise(WILLNEED) before mapping",
    remedies={
        "safetensors": (
            'read it by large calls: `safetensors` `load(open(f, "rb").read())`, or posix_fadvise(WILLNEED) before '
            "mapping"
        ),
        "torch": "read it by large calls: `torch.load(mmap=False)`, or posix_fadvise(WILLNEED) before mapping",
    },
    reference="huggingface/safetensors#562; ComfyUI#2288 (30 to 50 times)",
    without="read by calls",
)


def _is_fuse(checkpoint: Checkpoint) -> bool:
    return fs_type(checkpoint).startswith("fuse")


def _is_shared(checkpoint: Checkpoint) -> bool:
    return is_far(checkpoint) and not _is_fuse(checkpoint)


# fsync on a shared file system: the server answers late, though there is little to write.
SYNC_FAR = Rule(
    name="sync-far",
    limits=(Limit.FLUSH,),
    when=_is_shared,
    exclusion="a local device; or large data per sync",
    remedy=(
        "fsync once per file and off the critical path, into fewer and larger files; then have the server's "
        "commit latency looked at"
    ),
    reference="LLNL/scr#449 (16 MB in 10 to 31 s)",
)


def _waits_for_others(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    known = look(checkpoint)
    moved = known.device_bytes
    synced = any(some(one.sync_call_ns) for one in known.measures.threads) or any(
        (one.looks_in or {}).get("sync") for one in known.measures.threads
    )
    if known.remote or not synced or moved is None or moved < 2 * max(known.moved, _OTHERS_BYTES):
        return None
    return f"the device wrote {size(moved)} while the checkpoint has {size(known.moved)}: others' data was waited for"


# sync() instead of fsync: it waits for what others have written, too.
SYNC_ALL = Rule(
    name="sync-all",
    limits=(Limit.FLUSH, Limit.DEVICE),
    words=_waits_for_others,
    exclusion="the device wrote no more than the checkpoint",
    remedy="give the writer a path or a real file descriptor, so that it calls fsync and not os.sync(); else syncfs",
    reference="torch.distributed.checkpoint's fallback to os.sync(); questdb#6785 (67 to 266 s)",
)

# A flush for each tensor or piece on an object store or a FUSE stream.
FLUSH_EACH = Rule(
    name="flush-each",
    limits=(Limit.FLUSH,),
    when=_is_fuse,
    exclusion="one flush at the end",
    remedy="drop the flush after each item: buffer 64 MB and more, and flush once at the end of the file",
    reference="pytorch/pytorch#194034 (up to 60 % of the time)",
)

# A sync after each small piece: each waits for the device, nothing is gathered.
SYNC_PIECES = Rule(
    name="sync-pieces",
    limits=(Limit.FLUSH,),
    exclusion="one sync per file, or megabytes for each",
    remedy="write the whole file, then fsync once before the rename; no O_SYNC, no O_DSYNC, no mount with `sync`",
    reference="LLNL/scr#449; pytorch/pytorch#194034",
)

# Writers are blocked because vm.dirty_bytes is small.
DIRTY_LIMITS = Rule(
    name="dirty-limits",
    limits=(Limit.PAGE_CACHE,),
    causes=(Cause.DIRTY,),
    exclusion="the threshold was never reached",
    remedy=(
        "`sysctl vm.dirty_ratio=20 vm.dirty_background_ratio=10` (it resets vm.dirty_bytes), or "
        "vm.dirty_bytes above a checkpoint's size"
    ),
    reference="DDN hybrid I/O (x1.7 per thread); cockroachdb PR#20449",
    without="with the usual dirty limits",
)

# Copying into the page cache is slow itself.
COPYING = Rule(
    name="copying",
    limits=(Limit.PAGE_CACHE,),
    exclusion="copying goes at memory speed",
    remedy=(
        "write in pieces of 1 MB and more, with several writers; O_DIRECT where the device is faster than "
        "one thread copies"
    ),
    reference="DDN hybrid I/O (x1.7 per thread, 40 % of peak with buffered writes)",
)
