"""Causes in the job itself: gathering, staging, serializing, one writer for all, what it did before."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule, spent
from ckptprof.diagnose.rules.seen import MUCH, in_background, is_far, is_restore, is_save, pressed, stacks_in
from ckptprof.diagnose.sight import MOST, NS, look, some
from ckptprof.model import Checkpoint
from ckptprof.units import seconds, size
from ckptprof.verdicts import Limit


def _little_came_in(checkpoint: Checkpoint) -> bool:
    before = look(checkpoint).measures.before
    return before is not None and some(before.received_bytes) < MUCH * max(1, checkpoint.bytes)


# Planning collectives: ranks agree on who writes what before the first byte.
PLANNING = Rule(
    name="planning",
    limits=(Limit.GATHER,),
    when=_little_came_in,
    exclusion="as much as the checkpoint came in over the network",
    remedy="plan once, and keep the plan while the state has the same structure",
    remedies={
        "megatron": "cache the plan: Megatron `--ckpt-assume-constant-structure`",
        "torch": "cache the plan: DCP `DefaultSavePlanner(enable_plan_caching=True)`",
    },
    reference="accelerate#4099; meta-pytorch/tnt PR#989; NVIDIA/Megatron-LM PR#2864",
    without="with a cached plan",
)

# The full state is gathered on one rank before it is written.
GATHERED = Rule(
    name="gathered",
    limits=(Limit.GATHER,),
    exclusion="no traffic and no CPU before the first byte",
    remedy="save shards from every rank, instead of the whole state from one",
    remedies={
        "accelerate": "save shards from every rank: accelerate `fsdp_state_dict_type: SHARDED_STATE_DICT`",
        "torch-dcp": "save shards: `get_state_dict` without DCP's `StateDictOptions(full_state_dict=True)`",
        "torch": "save shards from every rank: `torch.distributed.checkpoint.save`",
    },
    reference="huggingface/accelerate#4099 (62 min at 16 ranks), PR#4105; dlrover#985",
    without="saved in shards",
)

# One rank ends long after the others.
STRAGGLER = Rule(
    name="straggler",
    limits=(Limit.STRAGGLER,),
    exclusion="the ranks end together",
    remedy="balance what the ranks write; if they write alike, look at that rank's CPU, disk and link",
    remedies={
        "torch": (
            "balance what the ranks write (DCP: dedup_save_to_lowest_rank=False); if they write alike, look at that "
            "rank's CPU, disk and link"
        ),
    },
    reference="verl-project/verl#2860 (rank 0 an hour after the other 15); marin#8534",
    without="with all ranks alike",
    remedy_of_restore="balance what the ranks read; if they read alike, look at that rank's CPU, disk and link",
)

# One writer, and one connection, to a server that could take more.
SINGLE_WRITER_FAR = Rule(
    name="single-writer-far",
    limits=(Limit.SINGLE_WRITER,),
    when=is_far,
    exclusion="several ranks write",
    remedy="let every rank write its shard; mount NFS with `nconnect=8`",
    remedies={
        "torch-dcp": (
            "shard the state, or spread its copies: DCP `DefaultSavePlanner()` as it is by default; "
            "mount NFS with `nconnect=8`"
        ),
        "torch": "let every rank write its shard (`torch.distributed.checkpoint.save`); mount NFS with `nconnect=8`",
    },
    reference="alpa-projects/alpa#466 (0.53 Gbit/s)",
    without="with all ranks writing",
)

# One rank serialises everything while the others wait.
SINGLE_WRITER = Rule(
    name="single-writer",
    limits=(Limit.SINGLE_WRITER,),
    exclusion="the ranks write alike, or the device is at its limit",
    remedy="let every rank write its part",
    remedies={
        "deepspeed": (
            'let every rank write its part: DeepSpeed `"checkpoint": {"parallel_write": {"pipeline_stage": true}}`'
        ),
        "torch-dcp": "shard the state, or spread its copies: DCP `DefaultSavePlanner()` as it is by default",
        "torch": "let every rank write its part: `torch.distributed.checkpoint.save`",
    },
    reference="ServiceNow/Fast-LLM#26; microsoft/DeepSpeed PR#1419",
    without="with all ranks writing",
)


def _lock(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    largest = spent(accounts, Limit.SERIALIZE)
    if is_restore(checkpoint):
        return None
    if largest is not None and largest.cause is Cause.LOCK:
        return "one core for all threads of a process is what Python's interpreter lock (GIL) allows"
    if not in_background(checkpoint, "thread"):
        return None
    return f"a thread of the trainer's own process wrote: {largest}"


# A writing thread, and others of its process that run Python: they fight for the interpreter's lock.
GIL = Rule(
    name="gil",
    limits=(Limit.SERIALIZE,),
    words=_lock,
    exclusion="another process writes",
    remedy="write in another process: a thread of the trainer shares Python's interpreter lock with it",
    remedies={
        "torch": (
            "write in a process: "
            "`torch.distributed.checkpoint.async_save(async_checkpointer_type=AsyncCheckpointerType.PROCESS)`"
        ),
    },
    reference="pytorch/pytorch PR#147039; pytorch/torchtitan PR#3393",
)


def _packed(_: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    largest = spent(accounts, Limit.SERIALIZE)
    return largest if largest is not None and largest.cause is Cause.PACKED else None


# After its last byte the trainer waits for tar, zstd or the like, which it runs over what it saved.
PACKED = Rule(
    name="packed",
    limits=(Limit.SERIALIZE,),
    words=_packed,
    exclusion="it trains while its programs read the save",
    remedy="let what packs the save run beside training, and wait for it before the next save at the earliest",
    reference="tar(1), zstd(1)",
    without="packed beside training",
)

# torch.save computes a CRC32 of each record on the writing thread.
CRC = Rule(
    name="crc",
    limits=(Limit.SERIALIZE,),
    when=is_save,
    words=stacks_in("crc"),
    exclusion="the stack is in pickle or in compression",
    remedy="write no zip: one thread computes its CRC32 over all bytes",
    remedies={
        "torch": "torch.serialization.set_crc32_options(False) before torch.save",
        "numpy": "write each array by `np.save`: one thread computes the CRC32 of the zip that `np.savez` writes",
    },
    reference="pytorch torch.serialization.set_crc32_options; ServiceNow/Fast-LLM#26",
    without="with CRC off",
)

# The writing thread compresses.
COMPRESSION = Rule(
    name="compression",
    limits=(Limit.SERIALIZE,),
    words=stacks_in("compress"),
    exclusion="the stack is elsewhere",
    remedy="write uncompressed (weights hardly compress), or zstd at level 1 with several threads",
    remedies={
        "numpy": "`np.savez` in place of `np.savez_compressed`: weights hardly compress",
    },
    reference="ServiceNow/Fast-LLM#26",
    without="uncompressed",
)

# The writing thread pickles many small objects.
OBJECTS = Rule(
    name="objects",
    limits=(Limit.SERIALIZE,),
    words=stacks_in("pickle"),
    exclusion="the stack is in a checksum or in compression",
    remedy="pack small Python objects of the state into one tensor or array, and save data loader state apart",
    reference="ServiceNow/Fast-LLM#26",
    without="as tensors",
)


def _copied(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Say how often it was met copying, and what its GPUs sent."""
    told = stacks_in("copy")(checkpoint, accounts)
    sent = some(look(checkpoint).measures.gpu_sent_bytes)
    if told is None or sent < MUCH * max(1, checkpoint.bytes):
        return told
    return f"{told}; its GPUs sent {size(sent)} over PCIe since the look before"


# torch.save copies each tensor from the GPU when it comes to write it, into memory that is not pinned.
COPIES = Rule(
    name="copies",
    limits=(Limit.SERIALIZE,),
    when=is_save,
    words=_copied,
    exclusion="the stack is in pickle, in a checksum or in compression",
    remedy="copy the state at once, into pinned memory that is kept between saves, and write it in the background",
    remedies={
        "torch": (
            "copy it at once into pinned memory, and write it in the background: "
            "`torch.distributed.checkpoint.async_save` with `DefaultStager(StagingOptions(use_pinned_memory=True))`"
        ),
    },
    reference="pytorch/pytorch PR#147039",
    without="copied before",
)


def _of_whom(checkpoint: Checkpoint) -> str | None:
    """Return what to do where the job itself is not known to have had most of the processors; None if it had."""
    used = look(checkpoint).used_share
    if used is not None and used >= MOST:
        return None
    others = "run fewer jobs beside it, reserve cores for it (Slurm `--cpus-per-task`, `cpuset.cpus`), raise `cpu.max`"
    if used is not None:
        return f"other jobs of this host, or a quota, had the CPUs: {others}"
    own = "start data loader workers after the restore" if is_restore(checkpoint) else "fewer data loader workers"
    return f"who had the CPUs was not seen: if its own threads, {own}; if other jobs or a quota, {others}"


# The writing thread was ready to run, but had no processor.
STARVED = Rule(
    name="starved",
    limits=(Limit.CPU,),
    exclusion="the thread ran",
    remedy=(
        "leave the writer a core: fewer data loader workers, OMP_NUM_THREADS below the cores, more CPUs for "
        "the job (Slurm `--cpus-per-task`, a higher `cpu.max`)"
    ),
    reference="proc_pid_schedstat, sched(7)",
    without="with a CPU free",
    remedy_of_restore=(
        "leave the reader a core: start data loader workers after the restore, OMP_NUM_THREADS below "
        "the cores, more CPUs"
    ),
    instead=_of_whom,
)

# A restore that unpickles on one thread.
UNPICKLING = Rule(
    name="unpickling",
    limits=(Limit.SERIALIZE,),
    when=is_restore,
    exclusion="the thread waits for data",
    remedy="keep arrays as raw data, a shard for each rank, and load only that; small objects packed into arrays",
    remedies={
        "torch": "keep tensors in DCP shards, and load one shard for each rank; small objects packed into tensors",
    },
    reference="pytorch: torch.load",
    without="without unpickling",
)

# One thread serialises: it is at 100 % of a core while the device idles.
SINGLE_THREAD = Rule(
    name="single-thread",
    limits=(Limit.SERIALIZE,),
    exclusion="the device is busy, or several threads write",
    remedy=(
        "write parts of it with several threads or processes; leave out checksums and compression that nobody needs"
    ),
    remedies={
        "torch-dcp": "write with more threads: DCP `FileSystemWriter(path, thread_count=8)`",
        "torch": (
            "`torch.serialization.set_crc32_options(False)` before torch.save; or with more threads: DCP "
            "`FileSystemWriter(path, thread_count=8)`"
        ),
        "numpy": (
            "write parts of it with several threads or processes; `np.save` for each array: a zip (`np.savez`) has a "
            "CRC32 to compute"
        ),
    },
    reference="ServiceNow/Fast-LLM#26; microsoft/DeepSpeed PR#1419",
)

# Staging fills the host's memory.
STAGING_MEMORY = Rule(
    name="staging-memory",
    limits=(Limit.STAGING,),
    words=pressed,
    exclusion="memory was available throughout",
    remedy="stage in waves: smaller buckets, one checkpoint in flight at a time; pinned buffers that are kept",
    reference="radixark/Megatron-LM PR#61; marin#6774 (26 GB per host and save); NeMo Speech#14965",
    without="staged in waves",
)


def _is_by_another_process(checkpoint: Checkpoint) -> bool:
    return in_background(checkpoint, "child", "daemon")


# Staging for a writer process copies everything through shared memory.
SHARED_MEMORY = Rule(
    name="shared-memory",
    limits=(Limit.STAGING,),
    when=_is_by_another_process,
    exclusion="a thread writes",
    remedy="keep the buffers in shared memory between saves; pack small arrays",
    remedies={
        "torch": (
            "keep the buffers between saves: DCP `DefaultStager(StagingOptions(use_shared_memory=True, "
            "use_pinned_memory=True))`; pack small tensors"
        ),
    },
    reference="InternLM/xtuner PR#1859",
    without="with buffers that are kept",
)

# The state is copied to host memory before the first byte.
STAGING = Rule(
    name="staging",
    limits=(Limit.STAGING,),
    exclusion="memory did not grow",
    remedy="pinned buffers, kept between saves; and save shards",
    remedies={
        "torch": (
            "pinned buffers, kept between saves: DCP `DefaultStager(StagingOptions(use_pinned_memory=True))`; and "
            "save shards"
        ),
    },
    reference="pytorch/pytorch PR#147039",
    without="with pinned buffers",
)

# Old checkpoints are deleted in line.
CLEAN_UP = Rule(
    name="clean-up",
    limits=(Limit.CLEAN_UP,),
    exclusion="nothing is deleted while the save is waited for",
    remedy="delete in the background: rename the old directory away, and remove it in a thread or from cron",
    reference="NVIDIA/Megatron-Bridge#332; prime-rl PR#1763",
    without="with deletion in the background",
)


def _took(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str:
    return f"a save took {seconds(max(0, checkpoint.end_ns - checkpoint.start_ns) / NS)}, and the next was due"


# The save before has not ended when the next is due.
PREVIOUS = Rule(
    name="previous",
    limits=(Limit.PREVIOUS_SAVE,),
    words=_took,
    exclusion="a pause between two saves",
    remedy="save less often than a save takes: `ckptprof plan` names the interval; or make the save itself faster",
    reference="Orbax blocking_wait_prev_duration_secs; google/orbax#392",
)
