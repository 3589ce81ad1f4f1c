"""The cases of the hold-out: a job, and what is right to say of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A job, and what is right to say of it. `accused`: what its fault is called, which nobody may say of a control."""

    name: str
    way: str
    limits: tuple[str, ...] = ()  # of a fault
    accused: tuple[str, ...] = ()  # of a control
    mode: str = "sync"
    ranks: int = 1
    others: int = 0  # busy loops of other jobs that are the fault
    first: int = 0  # of its events that has the fault
    job: str = "job.py"
    layout: str = "folder"
    pace: str = "compute"
    beside: str = ""  # what it does between two events, which is none
    size_mb: int = 96
    seconds: float = 3.0  # of training between two events
    ground: str = "disk"  # one of score.py
    prepared: bool = False  # what it finds is made before
    minutes: float = 0.0  # for which it trains, if that can be chosen


def _nothing(name: str, beside: str, job: str = "job.py", pace: str = "compute") -> Case:
    """Return a job that saves nothing."""
    return Case(name, "none", beside=beside, job=job, pace=pace)


def _restore(
    name: str, way: str, limits: tuple[str, ...] = (), accused: tuple[str, ...] = (), **what: int | str
) -> Case:
    """Return a job that goes back to checkpoints of an earlier run."""
    return Case(name, way, limits, accused, prepared=True, **what)  # type: ignore[arg-type]


FAULTS = (
    Case("pickled in memory", "pickled", limits=("serialize",)),
    Case("pickled: control", "plain", accused=("serialize", "staging")),
    Case("bz2", "packed", limits=("serialize",)),
    Case("gzip in memory", "gzipped", limits=("serialize",), size_mb=24),
    Case(
        "gzip in memory, on tmpfs, spinning", "gzipped", limits=("serialize",), size_mb=24, ground="tmpfs", pace="spin"
    ),
    Case("gzip: control, the same bytes", "buffered", accused=("serialize",), size_mb=24),
    Case("npz, compressed", "squeezed", limits=("serialize",), size_mb=24, layout="flat"),
    Case("npz, compressed: control", "npz", accused=("serialize",), layout="flat"),
    Case("xz", "xz", limits=("serialize",), pace="sleep"),
    Case("numbers as JSON", "as-json", limits=("serialize",), size_mb=64),
    Case("numbers as rows of text", "as-rows", limits=("serialize",), size_mb=64),
    Case("sync after each row", "journaled", limits=("flush",)),
    Case("sync: control", "plain", accused=("flush",)),
    Case("a sync for each of many files", "synced-files", limits=("flush", "metadata"), size_mb=32),
    Case("a sync for each of many files, xfs", "synced-files", limits=("flush", "metadata"), size_mb=32, ground="xfs"),
    Case("sync once: control", "synced", accused=("flush", "small-io", "metadata"), layout="flat"),
    Case("small calls past the cache", "in-small-direct", limits=("small-io",), size_mb=64),
    Case("small calls past the cache: control", "direct", accused=("small-io", "flush")),
    Case("thousands of files", "scattered", limits=("metadata",), size_mb=24),
    Case("thousands of files, xfs", "scattered", limits=("metadata",), size_mb=24, ground="xfs", pace="sleep"),
    Case("thousands of files: control", "in-files", accused=("metadata", "clean-up")),
    Case("old files deleted in line", "deleting", limits=("clean-up",), size_mb=24, ground="ext4", prepared=True),
    Case("old files deleted in line: control", "rotated", accused=("clean-up", "metadata")),
    Case(
        "the previous save is awaited",
        "waits-for-previous",
        limits=("previous-save",),
        mode="async",
        first=1,
    ),
    Case("the previous save: control", "in-slow-thread", accused=("previous-save",), mode="async"),
    Case("a slow device", "synced", limits=("device",), ground="slow", size_mb=64),
    Case("a slow device, asleep between steps", "careful", limits=("device",), ground="slow", size_mb=64, pace="sleep"),
    Case("a slow device: control", "synced", accused=("device", "flush"), ground="ext4", size_mb=64),
    Case("the CPUs taken by others", "plain", limits=("cpu",), others=12),
    Case("the CPUs taken by others, npz", "npz", limits=("cpu",), others=16),
    Case("the CPUs taken by others, two ranks", "sharded", limits=("cpu",), others=12, ranks=2),
)

OF_RANKS = (
    Case("gathered by gloo", "gathered", limits=("gather",), ranks=2),
    Case("gathered by gloo, three ranks", "gathered", limits=("gather",), ranks=3, size_mb=32, layout="flat"),
    Case("gathered by all", "gathered-by-all", limits=("gather",), ranks=2, size_mb=48),
    Case("gathered objects", "gathered-objects", limits=("gather",), ranks=2, size_mb=48),
    Case("gathered: control", "sharded", accused=("gather", "single-writer", "straggler"), ranks=2),
    Case("four times as much for the last rank", "late", limits=("straggler",), ranks=2),
    Case("the last rank begins later", "overslept", limits=("straggler",), ranks=3, size_mb=32),
    Case("the last rank syncs each row", "synced-by-last", limits=("straggler",), ranks=3, size_mb=24),
    Case(
        "the last rank: control",
        "packed-by-each",
        accused=("straggler", "single-writer", "gather"),
        ranks=2,
        size_mb=24,
    ),
    Case("the first rank compresses for all", "packed-by-first", ("single-writer", "serialize"), ranks=2, size_mb=24),
    Case("one file of pieces by two ranks", "strided", accused=("gather", "straggler"), ranks=2, size_mb=48),
    Case("one file of pieces by three ranks, xfs", "strided", accused=("gather",), ranks=3, size_mb=48, ground="xfs"),
    Case("the first rank writes what all have", "by-first", accused=("gather", "straggler"), ranks=2),
)

WRITERS = (
    Case("torch.save before 1.6", "legacy", layout="epoch"),
    Case("torch.save to memory", "buffered", layout="flat", pace="sleep"),
    Case("safetensors by NumPy", "safetensors", pace="spin"),
    Case("npz, asleep between steps", "npz", pace="sleep"),
    Case("a file for each array", "npy"),
    Case("pickle with buffers in parts", "pickle5", layout="flat"),
    Case("HDF5", "hdf5", layout="flat", pace="spin"),
    Case("JSON and bytes", "indexed", pace="sleep"),
    Case("joblib", "joblibs", layout="odd"),
    Case("tar", "tarred", layout="flat"),
    Case("zip", "zipped"),
    Case("msgpack", "packed-by-name", layout="epoch"),
    Case("slabs, the last array first", "slabs"),
    Case("past the cache", "direct", layout="flat"),
    Case("by a mapping", "mapped"),
    Case("on tmpfs", "plain", ground="tmpfs", layout="flat"),
    Case("140 MB on xfs, the last one is deleted", "rotated", ground="xfs", size_mb=140),
    Case("8 MB", "plain", size_mb=8),
    Case("names without a step", "plain", layout="odd"),
    Case("NumPy alone, npz", "npz", job="numpy_job.py"),
    Case("NumPy alone, pickle", "whole-pickle", job="numpy_job.py", layout="flat", pace="sleep"),
    Case("NumPy alone, bytes", "bare", job="numpy_job.py", layout="odd", pace="spin"),
    Case("NumPy alone, the same name", "appended", job="numpy_job.py", layout="same", pace="sleep"),
    Case("plain Python", "to-file", job="array_job.py"),
    Case("plain Python, text", "in-lines", limits=("serialize",), job="array_job.py", layout="flat", size_mb=48),
    Case("plain Python, pickle", "renamed-pickle", job="array_job.py", pace="sleep", ground="xfs"),
    Case("plain Python, a forked process", "forked", mode="async", job="array_job.py", size_mb=64),
)

PLACING = (
    Case("staged in memory", "staged-in-memory"),
    Case("staged in TMPDIR and moved", "staged-and-moved", layout="flat"),
    Case("staged, sendfile", "sent"),
    Case("staged, copy_file_range", "ranged", layout="epoch"),
    Case("synced, made read-only, renamed", "careful"),
    Case("synced after 16 MiB", "synced-chunks"),
    Case("overwritten in place", "overwritten", layout="same"),
    Case("overwritten in place, spinning, xfs", "overwritten", layout="same", pace="spin", ground="xfs"),
    Case("a hard link to the latest", "linked"),
    Case("a symbolic link to the last", "pointed", pace="sleep"),
    Case("the last one is deleted", "rotated"),
    Case("a copy as the best", "doubled"),
    Case("a file for each parameter", "in-files"),
    Case("a checksum before", "summed-before"),
    Case("a checksum after", "summed-after"),
    Case("read back", "read-back"),
    Case("a lock is awaited", "locked"),
    Case("evaluation between", "plain", beside="predictions"),
    Case("logging between", "plain", beside="logged", pace="sleep"),
    Case("reading data between", "plain", beside="fed"),
    Case("a copy is served", "plain", beside="exported"),
)

PROCESSES = (
    Case("a forked process, beside training", "in-process", mode="async"),
    Case("two forked processes, joined", "in-processes"),
    Case("a thread, beside training", "in-thread", mode="async"),
    Case("a slow thread, beside a trainer that sleeps", "in-slow-thread", mode="async", pace="sleep"),
    Case("a slow thread, beside a trainer that spins", "in-slow-thread", mode="async", pace="spin", layout="flat"),
    Case("a slow thread, awaited", "in-awaited-thread"),
    Case("four threads, awaited", "in-pool"),
    Case("an event loop", "on-asyncio"),
    Case("a fresh Python, awaited", "in-spawned", size_mb=48),
    Case("a pool of processes, awaited", "in-executor"),
    Case("a snapshot by fork", "as-snapshot", mode="async"),
    Case("nobody's child", "detached", mode="async", pace="sleep"),
    Case("a process fed by a pipe", "piped"),
    Case("a process fed by a queue", "queued", mode="async"),
    Case("a process fed by shared memory", "shared", mode="async", layout="flat"),
)

RESTORES = (
    _restore("torch.load", "load"),
    _restore("torch.load by a mapping", "load-mapped", layout="flat"),
    _restore("safetensors loaded", "load-safetensors"),
    _restore("npz loaded", "load-npz", pace="sleep"),
    _restore("HDF5 loaded", "load-hdf5", layout="flat"),
    _restore("arrays loaded by threads", "load-in-threads"),
    _restore("a file for each parameter loaded", "load-files", size_mb=64),
    _restore("gzip loaded", "load-packed", limits=("serialize",)),
    _restore("loaded in large pieces", "load-large", accused=("serialize", "small-io"), pace="spin"),
    _restore("loaded in small pieces of any order", "load-shuffled", size_mb=64),
    _restore("a slow device, loaded", "load", limits=("device",), ground="slow to read", size_mb=64),
    _restore("a slow device, loaded: control", "load", accused=("device",), ground="ext4", size_mb=64),
    _restore(
        "small reads past the cache", "load-small-direct", limits=("small-io",), ground="few operations", size_mb=24
    ),
    _restore(
        "small reads: control", "load-large-direct", accused=("small-io", "page-fault"), ground="ext4", size_mb=64
    ),
    _restore("by page faults", "load-by-faults", limits=("page-fault",), ground="few operations", size_mb=16),
    _restore("by page faults: control", "load-mapped", accused=("page-fault",), ground="ext4", size_mb=64),
    _restore("two ranks load the same", "load-same", ranks=2, size_mb=64),
    _restore("two ranks load their own", "load-own", ranks=2, size_mb=48),
    _restore("one rank loads and sends", "load-and-send", ranks=2),
)

NOTHING = (
    _nothing("predictions", "predictions"),
    _nothing("embeddings", "embeddings", pace="sleep"),
    _nothing("the optimizer is swapped at every step", "swapped"),
    _nothing("a download of the data set", "downloaded"),
    _nothing("logs and events", "logged"),
    _nothing("a cache of the data set, by workers", "cached"),
    _nothing("pictures", "sampled", pace="spin"),
    _nothing("a trace of the profiler", "profiled"),
    _nothing("sorting through files", "spilled"),
    _nothing("reading data", "fed"),
    _nothing("activations in a file without a name", "scratch"),
)


def _habit(name: str, folder: str = "habits", **what: float | str | tuple[str, ...]) -> Case:
    """Return a job that is rebuilt from what people report of theirs; it logs itself what is right."""
    return Case(name.replace("_", " "), "", job=f"{folder}/{name}.py", **what)  # type: ignore[arg-type]


HABITS = (
    _habit("keras_overwritten"),
    _habit("trainer_rotated"),
    _habit("stripped"),
    _habit("pickled_trees"),
    _habit("json_booster"),
    _habit("token_cache"),
    _habit("feature_shards"),
    _habit("averaged_best"),
    _habit("verified"),
    _habit("reporter_thread"),
    _habit("reporter_process"),
    _habit("ranks_one_path", ranks=2),
    _habit("base_copied", prepared=True),
    _habit("disk_full", prepared=True, ground="ext4"),
    _habit("retried"),
    _habit("hard_linked"),
    _habit("kept_times"),
    _habit("ever_growing"),
    _habit("in_memory", ground="tmpfs"),
    _habit("merged_shards", ranks=2),
    _habit("patched"),
    _habit("renamed_over"),
)

SECOND = (  # more of them, written when the first had become what detection is tuned to
    _habit("neox_latest", "second", ranks=2),
    _habit("joblib_kept", "second"),
    _habit("saver_of_five", "second"),
    _habit("savez_replaced", "second"),
    _habit("population", "second"),
    _habit("exported_too", "second"),
    _habit("study", "second"),
    _habit("flax_prefixed", "second"),
    _habit("averaging_thread", "second"),
    _habit("stopped_early", "second"),
)

THIRD = (  # states that are no checkpoints, and results, beside what is saved
    _habit("swapped_to_nvme", "third"),
    _habit("offloaded", "third"),
    _habit("scored", "third"),
    _habit("features", "third"),
    _habit("trained_for_hours", "third", prepared=True, minutes=2.0),
)

FOURTH = (  # of those who knew only what jobs of people do, when the others were known
    _habit("best_so_far", "fourth"),
    _habit("recovery_points", "fourth"),
    _habit("limit_of_two", "fourth"),
    _habit("replay_buffer", "fourth"),
    _habit("reported", "fourth"),
    _habit("sweep", "fourth"),
    _habit("preempted", "fourth"),
    _habit("consolidated", "fourth"),
    _habit("archived", "fourth"),
    _habit("archived_control", "fourth", accused=("serialize",)),
    _habit("chunked", "fourth"),
    _habit("chunked_control", "fourth", accused=("metadata",)),
    _habit("first_has_more", "fourth", ranks=3, limits=("straggler", "single-writer", "serialize")),
    _habit("first_has_more_control", "fourth", ranks=3, accused=("straggler", "single-writer", "gather")),
    _habit("tables", "fourth"),
    _habit("self_play", "fourth"),
    _habit("memory_snapshots", "fourth", ranks=2),
)

FIFTH = (  # of somebody who knew neither what detection does, nor how it fared
    _habit("rows", "fifth"),
    _habit("mapped_in_place", "fifth"),
    _habit("split_volumes", "fifth"),
    _habit("in_turns", "fifth"),
    _habit("adapters", "fifth"),
    _habit("killed", "fifth"),
    _habit("fewer_ranks", "fifth", ranks=2),
    _habit("compressed_by_pool", "fifth", limits=("serialize",)),
    _habit("compressed_by_pool_control", "fifth", accused=("serialize",)),
    _habit("quota", "fifth", ranks=2, limits=("straggler", "cpu")),
    _habit("quota_control", "fifth", ranks=2, accused=("straggler", "single-writer", "gather")),
    _habit("mapped_dataset", "fifth"),
    _habit("kept_prefixes", "fifth", prepared=True),
)

CASES = (
    *HABITS,
    *SECOND,
    *THIRD,
    *FOURTH,
    *FIFTH,
    *FAULTS,
    *OF_RANKS,
    *WRITERS,
    *PLACING,
    *PROCESSES,
    *RESTORES,
    *NOTHING,
)
