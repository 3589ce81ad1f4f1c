"""Causes in how a job uses its files: mapped, synced piece by piece, written twice, thousands of files."""

from __future__ import annotations

from ckptprof.diagnose.causes import AttributedTime
from ckptprof.diagnose.context import CheckpointContext, or_zero
from ckptprof.diagnose.rules.rule import (
    CauseRule,
    extra_writes,
    is_remote,
    is_restore,
    largest_of_limits,
    memory_pressure,
)
from ckptprof.diagnose.tolerances import PART
from ckptprof.units import size
from ckptprof.verdicts import Limit

_OTHERS_BYTES = 64 << 20  # twice this in addition to a checkpoint is no log or journal


def _is_fuse(context: CheckpointContext) -> bool:
    return context.fs_type.startswith("fuse")


def _is_shared(context: CheckpointContext) -> bool:
    return is_remote(context) and not _is_fuse(context)


def _waits_for_others(context: CheckpointContext) -> tuple[float, str] | None:
    written, own = or_zero(context.device_bytes), context.transferred_bytes
    synced = any(or_zero(one.sync_call_ns) for one in context.measures.threads) or any(
        (one.samples_by_state or {}).get("sync") for one in context.measures.threads
    )
    if context.is_remote or not synced or written < 2 * max(own, _OTHERS_BYTES):
        return None
    text = f"the disk wrote {size(written)}, the checkpoint only {size(own)}: the sync also waited for other data"
    return 1 - own / written, text


def _synced_own_files(context: CheckpointContext) -> bool:
    metadata = context.checkpoint.metadata
    return bool(metadata.synced) and not metadata.synced_all


def _wrote_each_byte_once(context: CheckpointContext) -> bool:
    return or_zero(context.checkpoint.unique_bytes) >= context.transferred_bytes


def _reads_back(context: CheckpointContext) -> tuple[float, str] | None:
    checkpoint = context.checkpoint
    read = sum(or_zero(one.read_bytes) for one in context.measures.threads)
    if context.is_save and read >= PART * max(1, checkpoint.bytes):
        return read / (read + context.transferred_bytes), f"{size(read)} of its own files read during the save"
    return extra_writes("rewrite")(context)


def _of_ranks(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | None:
    ranks = len({one.rank for one in context.checkpoint.writers if one.rank is not None})
    return f"{ranks} ranks: {largest_of_limits(accounts, Limit.METADATA)}" if ranks >= 2 else None


RULES: tuple[CauseRule, ...] = (
    # A restore by mmap on a network file system: each page fault is a small read over the network.
    CauseRule(
        name="mapped-far",
        limits=(Limit.PAGE_FAULT,),
        condition=is_remote,
        remedy="read with large read() calls instead of mmap; or copy to local NVMe first",
        remedies={
            "safetensors": (
                'read instead of mmap: `safetensors` `load(open(f, "rb").read())`; or copy to local NVMe first'
            ),
            "torch": "read instead of mmap: `torch.load(mmap=False)`; or copy to local NVMe first",
        },
        reference="sglang PR#37806 (29 MB/s mapped; 756 GB in 42.6 s prefetched); safetensors#562; vllm PR#24469",
        without="with read()",
    ),
    # A restore by mmap while memory is short: pages are fetched, dropped and fetched again.
    CauseRule(
        name="mapped-pressed",
        limits=(Limit.PAGE_FAULT,),
        condition=is_restore,
        words=memory_pressure,
        remedy="read() in pieces instead of mmap, and fewer ranks loading at the same time",
        reference="NVIDIA/TensorRT-LLM PR#17368",
        without="with read()",
    ),
    # A cold restore by mmap: page after page is faulted in, in the order in which tensors are touched.
    CauseRule(
        name="mapped",
        limits=(Limit.PAGE_FAULT,),
        remedy="use large read() calls, or posix_fadvise(WILLNEED) before mapping",
        remedies={
            "safetensors": (
                'use large read() calls: `safetensors` `load(open(f, "rb").read())`, or posix_fadvise(WILLNEED) before '
                "mapping"
            ),
            "torch": "use large read() calls: `torch.load(mmap=False)`, or posix_fadvise(WILLNEED) before mapping",
        },
        reference="huggingface/safetensors#562; ComfyUI#2288 (30 to 50 times)",
        without="with read()",
    ),
    # fsync on a shared file system: the server answers late, although there is little to write.
    CauseRule(
        name="sync-far",
        limits=(Limit.FLUSH,),
        condition=_is_shared,
        remedy=(
            "fsync once per file and off the critical path, with fewer and larger files; then check the commit "
            "latency of the server"
        ),
        reference="LLNL/scr#449 (16 MB in 10 to 31 s)",
    ),
    # sync() instead of fsync: it also waits for data of other processes.
    CauseRule(
        name="sync-all",
        limits=(Limit.FLUSH, Limit.DEVICE),
        saving=_waits_for_others,
        vetoes={"the trace counted syncs, each of one file": _synced_own_files},
        remedy=(
            "give the writer a path or a real file descriptor, so that it calls fsync, not os.sync(); else use syncfs"
        ),
        reference="torch.distributed.checkpoint's fallback to os.sync(); questdb#6785 (67 to 266 s)",
        without="with fsync",
    ),
    # A flush for each tensor or piece on an object store or a FUSE stream.
    CauseRule(
        name="flush-each",
        limits=(Limit.FLUSH,),
        condition=_is_fuse,
        remedy="do not flush after each item: buffer 64 MB or more, and flush once at the end of the file",
        reference="pytorch/pytorch#194034 (up to 60 % of the time)",
    ),
    # A sync after each small piece: each waits for the device, without batching.
    CauseRule(
        name="sync-pieces",
        limits=(Limit.FLUSH,),
        remedy="write the whole file, then fsync once before the rename; no O_SYNC, no O_DSYNC, no mount with `sync`",
        reference="LLNL/scr#449; pytorch/pytorch#194034",
    ),
    # Staged in a temporary directory and copied from there: everything is written twice.
    CauseRule(
        name="staging-copy",
        limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.PAGE_CACHE),
        saving=extra_writes("staging"),
        remedy="set TMPDIR to a directory on the target file system, so that a rename replaces the copy",
        reference="Lightning-AI/pytorch-lightning#21253 and #20270",
        without="written once",
    ),
    CauseRule(
        name="saved-twice",
        limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.PAGE_CACHE, Limit.SERIALIZE),
        saving=extra_writes("duplicate", "copy"),
        remedy="write it once, and create its second name as a link; write replicated state once",
        remedies={
            "lightning": 'Lightning `ModelCheckpoint(save_last="link")`; write replicated state once',
            "transformers": "upgrade transformers (ZeRO-3 saved twice); write replicated state once",
        },
        reference='huggingface/transformers#34534; Lightning save_last="link"',
        without="written once",
    ),
    # A save that reads what it wrote before to change it: zarr chunks, one for each parameter.
    CauseRule(
        name="read-modify-write",
        limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO, Limit.METADATA, Limit.SERIALIZE),
        saving=_reads_back,
        vetoes={"each byte was written once": _wrote_each_byte_once},
        remedy="write new files instead of modifying existing ones, with chunks as large as the data of one rank",
        remedies={"megatron": "save as torch_dist instead of zarr (Megatron-LM `--ckpt-format torch_dist`)"},
        reference="NVIDIA/Megatron-LM#834 (10 s became 64 s)",
        without="without reading back",
    ),
    # Directories and files made by all ranks at once: a storm of metadata.
    CauseRule(
        name="many-files-ranks",
        limits=(Limit.METADATA,),
        words=_of_ranks,
        remedy="create directories on rank 0 only, then a barrier; fewer files: one per rank",
        reference="NVIDIA-NeMo/Automodel PR#3369; KempnerForge#49",
    ),
    CauseRule(
        name="many-files",
        limits=(Limit.METADATA,),
        remedy="fewer and larger files: one per rank",
        remedies={
            "orbax": "fewer and larger files: Orbax with OCDBT (`use_ocdbt=True`)",
            "transformers": "larger shards: `save_pretrained(max_shard_size=...)`; one file per rank",
            "torch": "one file per rank: DCP `FileSystemWriter(path, single_file_per_rank=True)`",
        },
        reference="NVIDIA-NeMo/Automodel PR#3369; WEKA: file systems degrade above 100,000 files per directory",
    ),
)
