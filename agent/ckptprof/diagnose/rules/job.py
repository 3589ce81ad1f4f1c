"""Causes in the job itself: gathering, staging, serialising, a single writer, work before the save."""

from __future__ import annotations

from ckptprof.diagnose.causes import AttributedTime, Cause
from ckptprof.diagnose.context import CheckpointContext, or_zero
from ckptprof.diagnose.rules.rule import (
    CauseRule,
    extra_writes,
    in_background,
    is_restore,
    is_save,
    largest_of_limits,
    memory_pressure,
    mostly,
    number_of,
    stack_share_in,
)
from ckptprof.diagnose.tolerances import MOST, PART
from ckptprof.frameworks.file_formats import COMPRESSIONS
from ckptprof.measures import UsageMeasure
from ckptprof.units import seconds, size
from ckptprof.verdicts import Limit


def _received_little(context: CheckpointContext) -> bool:
    before = context.measures.before
    return before is not None and or_zero(before.received_bytes) < PART * max(1, context.checkpoint.bytes)


def _lock(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> str | None:
    largest = largest_of_limits(accounts, Limit.SERIALIZE)
    if is_restore(context):
        return None
    if largest is not None and largest.cause is Cause.LOCK:
        return "Python's interpreter lock (GIL) lets all threads of a process use one core"
    if not in_background(context, "thread") or stack_share_in("compress")(context):  # zlib releases the lock
        return None
    return f"a thread of the training process wrote: {largest}"


def _compressed(context: CheckpointContext) -> tuple[float, str] | None:
    found, path = stack_share_in("compress")(context), context.checkpoint.path or ""
    if found is not None or context.stacks() or not path.endswith(tuple(COMPRESSIONS.values())):
        return found
    return 1.0, f"its file has the name of a compressed one ({path[path.rindex('.') :]})"


def _copied(context: CheckpointContext) -> tuple[float, str] | None:
    found, sent = stack_share_in("copy")(context), or_zero(context.measures.gpu_sent_bytes)
    if found is None or sent < PART * max(1, context.checkpoint.bytes):
        return found
    return found[0], f"{found[1]}; its GPUs sent {size(sent)} over PCIe since the previous sample"


def _cpu_remedy(context: CheckpointContext) -> str | None:
    """Return the remedy for those who used the CPUs, as far as that is known; None if it was the job itself."""
    used, user = context.used_share, _cpu_user(context)
    if user is not None and user.started_by_writer:
        return f"end its own `{user.comm}` processes before the checkpoint, or start fewer"
    if user is None and used is not None and used >= MOST:
        return None
    who = "" if user is None else f"`{user.comm}` took the CPUs: "
    if user is None and used is None:
        own = "start data loader workers after the restore" if is_restore(context) else "use fewer data loader workers"
        who = f"{own}, "
    return f"{who}run fewer jobs alongside, or reserve cores (Slurm `--cpus-per-task`, `cpuset.cpus`, `cpu.max`)"


def _cpu_user(context: CheckpointContext) -> UsageMeasure | None:
    """Return the other processes that used a third of the CPUs, and more than the job; None if none was seen."""
    most, cores = next(iter(context.measures.others), None), context.measures.cores
    job = sum(or_zero(one.busy) for one in context.measures.processes)
    return most if most is not None and cores and most.busy >= max(job, PART * cores) else None


def _who_used_cpus(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> AttributedTime | str | None:
    largest, user = largest_of_limits(accounts, Limit.CPU), _cpu_user(context)
    if largest is None or user is None:
        return largest
    return f"`{user.comm}` used {user.busy:.1f} of {context.measures.cores} CPUs, {number_of(user)}"


def _by_a_pool(context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> AttributedTime | None:
    before, largest = context.measures.before, largest_of_limits(accounts, Limit.SERIALIZE)
    has_helpers = before is not None and or_zero(before.helpers_busy) > 1  # cores
    pools = (Cause.THREADS, Cause.BUSY_BEFORE) if has_helpers else (Cause.THREADS,)
    return largest if largest is not None and largest.cause in pools else None


def _is_by_another_process(context: CheckpointContext) -> bool:
    return in_background(context, "child", "daemon")


def _longer_than_interval(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str:
    return f"a save took {seconds(context.span)}, longer than the interval"


RULES: tuple[CauseRule, ...] = (
    # Planning collectives: ranks agree on who writes what before the first byte.
    CauseRule(
        name="planning",
        limits=(Limit.GATHER,),
        condition=_received_little,
        remedy="plan once, and reuse the plan while the structure of the state does not change",
        remedies={
            "megatron": "cache the plan: Megatron `--ckpt-assume-constant-structure`",
            "torch": "cache the plan: DCP `DefaultSavePlanner(enable_plan_caching=True)`",
        },
        reference="accelerate#4099; meta-pytorch/tnt PR#989; NVIDIA/Megatron-LM PR#2864",
        without="with a cached plan",
    ),
    # The full state is gathered on one rank before it is written.
    CauseRule(
        name="gathered",
        limits=(Limit.GATHER,),
        remedy="save shards from every rank instead of the whole state from one",
        remedies={
            "accelerate": "save shards from every rank: accelerate `fsdp_state_dict_type: SHARDED_STATE_DICT`",
            "torch-dcp": "save shards: `get_state_dict` without DCP's `StateDictOptions(full_state_dict=True)`",
            "torch": "save shards from every rank: `torch.distributed.checkpoint.save`",
        },
        reference="huggingface/accelerate#4099 (62 min at 16 ranks), PR#4105; dlrover#985",
        without="saved in shards",
    ),
    # One rank reads what all have just written, and writes it again as a whole.
    CauseRule(
        name="joined",
        limits=(Limit.STRAGGLER, Limit.SINGLE_WRITER, Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.PAGE_CACHE),
        saving=extra_writes("consolidation"),
        remedy="keep the parts that the ranks wrote as the checkpoint, and join them after training",
        reference="torch.distributed.checkpoint's HuggingFaceStorageWriter(enable_consolidation=True)",
        without="without joining its parts",
    ),
    CauseRule(
        name="straggler",
        limits=(Limit.STRAGGLER,),
        remedy="balance what the ranks write; if they write the same, check that rank's CPU, disk and link",
        remedies={
            "torch": (
                "balance what the ranks write (DCP: dedup_save_to_lowest_rank=False); if they write the same, "
                "check that rank's CPU, disk and link"
            )
        },
        reference="verl-project/verl#2860 (rank 0 an hour after the other 15); marin#8534",
        remedy_of_restore="balance what the ranks read; if they read the same, check that rank's CPU, disk and link",
    ),
    # Requests wait at this end for the one connection that the mount has.
    CauseRule(
        name="nfs-one-connection",
        limits=(Limit.SINGLE_WRITER, Limit.NETWORK),
        causes=(Cause.ONE_CONNECTION,),
        remedy="mount with `nconnect=8` (Linux 5.3 and newer), or write from several nodes",
        reference="kernel 6619079d0540 (NFSv4: Allow multiple connections to NFSv4.x servers); nfs(5), nconnect",
        without="over more connections",
    ),
    # One rank serialises everything while the others wait.
    CauseRule(
        name="single-writer",
        limits=(Limit.SINGLE_WRITER,),
        remedy="let every rank write its part",
        remedies={
            "deepspeed": (
                'let every rank write its part: DeepSpeed `"checkpoint": {"parallel_write": {"pipeline_stage": true}}`'
            ),
            "torch-dcp": "shard the state, or distribute its replicas: DCP `DefaultSavePlanner()` with its defaults",
            "torch": "let every rank write its part: `torch.distributed.checkpoint.save`",
        },
        reference="ServiceNow/Fast-LLM#26; microsoft/DeepSpeed PR#1419; alpa-projects/alpa#466 (0.53 Gbit/s)",
    ),
    # The daemon of a FUSE mount computes: it encrypts, compresses, computes checksums, copies.
    CauseRule(
        name="busy-daemon",
        limits=(Limit.SERIALIZE,),
        words=mostly(Limit.SERIALIZE, Cause.DAEMON),
        remedy=(
            "reduce the CPU work of the process that serves the mount: no compression, cheaper ciphers (`sshfs -o "
            "compression=no,Ciphers=aes128-gcm@openssh.com`), larger requests"
        ),
        reference="sshfs(1), rclone-mount(1)",
        without="with a fast enough mount process",
    ),
    # After its last byte the trainer waits for tar, zstd or the like, which it runs on the saved files.
    CauseRule(
        name="packed",
        limits=(Limit.SERIALIZE,),
        words=mostly(Limit.SERIALIZE, Cause.PACKED),
        remedy="run the packing in the background, and wait for it only before the next save",
        reference="tar(1), zstd(1)",
        without="packed in the background",
    ),
    # A writing thread, and others of its process that run Python: they compete for the interpreter's lock.
    CauseRule(
        name="gil",
        limits=(Limit.SERIALIZE,),
        words=_lock,
        remedy="write in another process: a thread shares Python's interpreter lock with training",
        remedies={
            "torch": (
                "write in a process: "
                "`torch.distributed.checkpoint.async_save(async_checkpointer_type=AsyncCheckpointerType.PROCESS)`"
            )
        },
        reference="pytorch/pytorch PR#147039; pytorch/torchtitan PR#3393",
    ),
    # torch.save computes a CRC32 of each record on the writing thread.
    CauseRule(
        name="crc",
        limits=(Limit.SERIALIZE,),
        condition=is_save,
        saving=stack_share_in("crc"),
        remedy="do not write a zip file: one thread computes its CRC32 over all bytes",
        remedies={
            "torch": "torch.serialization.set_crc32_options(False) before torch.save",
            "numpy": "write each array with `np.save`: one thread computes the CRC32 of the zip file of `np.savez`",
        },
        reference="pytorch torch.serialization.set_crc32_options; ServiceNow/Fast-LLM#26",
        without="with CRC off",
    ),
    CauseRule(
        name="compression",
        limits=(Limit.SERIALIZE,),
        saving=_compressed,
        remedy="write uncompressed (weights hardly compress), or use zstd at level 1 with several threads",
        remedies={"numpy": "use `np.savez` instead of `np.savez_compressed`: weights hardly compress"},
        reference="ServiceNow/Fast-LLM#26",
        without="uncompressed",
    ),
    # The writing thread pickles many small objects.
    CauseRule(
        name="objects",
        limits=(Limit.SERIALIZE,),
        saving=stack_share_in("pickle"),
        remedy="pack small Python objects of the state into one tensor or array, and save data loader state separately",
        reference="ServiceNow/Fast-LLM#26",
        without="as tensors",
    ),
    # torch.save copies each tensor from the GPU when it writes it, into memory that is not pinned.
    CauseRule(
        name="copies",
        limits=(Limit.SERIALIZE,),
        condition=is_save,
        saving=_copied,
        remedy="copy the whole state into pinned memory that is reused between saves, and write it in the background",
        remedies={
            "torch": (
                "copy the whole state into pinned memory, and write it in the background: "
                "`torch.distributed.checkpoint.async_save` with `DefaultStager(StagingOptions(use_pinned_memory=True))`"
            )
        },
        reference="pytorch/pytorch PR#147039",
        without="copied at once",
    ),
    # The writing process was stopped: a suspended job, a debugger, `kill -STOP`, `docker pause`.
    CauseRule(
        name="stopped",
        limits=(Limit.CPU,),
        words=mostly(Limit.CPU, Cause.STOPPED),
        remedy=(
            "find out who stopped its process: a scheduler (Slurm `scontrol suspend`, `PreemptMode=SUSPEND`), a paused "
            "container, a debugger, or `kill -STOP`"
        ),
        reference="signal(7), SIGSTOP; scontrol(1), suspend",
        without="without the stop",
    ),
    # The writing thread was ready to run, but had no processor.
    CauseRule(
        name="starved",
        limits=(Limit.CPU,),
        words=_who_used_cpus,
        remedy=(
            "leave a core for the writer: fewer data loader workers, OMP_NUM_THREADS below the number of cores, more "
            "CPUs for the job (Slurm `--cpus-per-task`, a higher `cpu.max`)"
        ),
        reference="proc_pid_schedstat, sched(7)",
        remedy_of_restore=(
            "leave a core for the reader: start data loader workers after the restore, OMP_NUM_THREADS below "
            "the number of cores, more CPUs"
        ),
        special_remedy=_cpu_remedy,
    ),
    # A restore that unpickles on one thread.
    CauseRule(
        name="unpickling",
        limits=(Limit.SERIALIZE,),
        condition=is_restore,
        remedy="store arrays as raw data, one shard per rank, and load only that shard; pack small objects into arrays",
        remedies={"torch": "store tensors in DCP shards, and load one shard per rank; pack small objects into tensors"},
        reference="pytorch: torch.load",
        without="without unpickling",
    ),
    # A pool of threads or processes computes what one thread writes.
    CauseRule(
        name="pool",
        limits=(Limit.SERIALIZE,),
        words=_by_a_pool,
        remedy="omit unneeded checksums and compression, or give the job more CPUs: several threads or processes work",
        reference="microsoft/DeepSpeed PR#1419",
    ),
    # One thread serialises: it is at 100 % of a core while the device idles.
    CauseRule(
        name="single-thread",
        limits=(Limit.SERIALIZE,),
        remedy=("write parts of it with several threads or processes; omit unneeded checksums and compression"),
        remedies={
            "torch-dcp": "write with more threads: DCP `FileSystemWriter(path, thread_count=8)`",
            "torch": (
                "no compression, and `torch.serialization.set_crc32_options(False)` before torch.save; or with more "
                "threads: DCP `FileSystemWriter(path, thread_count=8)`"
            ),
            "numpy": (
                "write parts of it with several threads or processes; use `np.save` for each array: a zip file "
                "(`np.savez`) needs a CRC32"
            ),
        },
        reference="ServiceNow/Fast-LLM#26; microsoft/DeepSpeed PR#1419",
    ),
    # Staging fills the host's memory.
    CauseRule(
        name="staging-memory",
        limits=(Limit.STAGING,),
        words=memory_pressure,
        remedy="stage in waves: smaller buckets, one checkpoint in flight at a time; reuse pinned buffers",
        reference="radixark/Megatron-LM PR#61; marin#6774 (26 GB per host and save); NeMo Speech#14965",
        without="staged in waves",
    ),
    # Staging for a writer process copies everything through shared memory.
    CauseRule(
        name="shared-memory",
        limits=(Limit.STAGING,),
        condition=_is_by_another_process,
        remedy="reuse the buffers in shared memory between saves; pack small arrays",
        remedies={
            "torch": (
                "reuse the buffers between saves: DCP `DefaultStager(StagingOptions(use_shared_memory=True, "
                "use_pinned_memory=True))`; pack small tensors"
            )
        },
        reference="InternLM/xtuner PR#1859",
        without="with reused buffers",
    ),
    # The state is copied to host memory before the first byte.
    CauseRule(
        name="staging",
        limits=(Limit.STAGING,),
        remedy="use pinned buffers, reused between saves; and save shards",
        remedies={
            "torch": (
                "use pinned buffers, reused between saves: DCP "
                "`DefaultStager(StagingOptions(use_pinned_memory=True))`; and save shards"
            )
        },
        reference="pytorch/pytorch PR#147039",
        without="with pinned buffers",
    ),
    CauseRule(
        name="clean-up",
        limits=(Limit.CLEAN_UP,),
        remedy="delete in the background: rename the old directory, and remove it in a thread or from cron",
        reference="NVIDIA/Megatron-Bridge#332; prime-rl PR#1763",
    ),
    # The save before has not ended when the next is due.
    CauseRule(
        name="previous",
        limits=(Limit.PREVIOUS_SAVE,),
        words=_longer_than_interval,
        remedy="use an interval longer than a save (`ckptprof plan` calculates one), or make the save itself faster",
        reference="Orbax blocking_wait_prev_duration_secs; google/orbax#392",
    ),
)
