"""The catalogue of the hold-out: which job, with what, and what is right to say of it.

A case is a way of a file: `job.py` calls one of its ways in three rounds, the other files have a job of each name. The
docstring of a way says what it imitates; what is right to say stands here, or in the log of the job itself.
"""

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
    remedy: str = ""  # the way of each second round
    layout: str = "folder"
    pace: str = "compute"
    beside: str = ""  # what it does between two events, which is none
    size_mb: int = 96
    seconds: float = 3.0  # of training between two events
    ground: str = "disk"  # one of score.py
    prepared: bool = False  # what it finds is made before
    minutes: float = 0.0  # for which it trains, if that can be chosen


def _of(job: str, *ways: str, **what: float | str | tuple[str, ...]) -> tuple[Case, ...]:
    """Return jobs that are rebuilt from what people report of theirs, and log themselves what is right."""
    return tuple(Case(way.replace("_", " "), way, job=job, **what) for way in ways)  # type: ignore[arg-type]


def _restore(name: str, way: str, limits: tuple[str, ...] = (), **what: int | str | tuple[str, ...]) -> Case:
    """Return a job that goes back to checkpoints of an earlier run."""
    return Case(name, way, limits, prepared=True, **what)  # type: ignore[arg-type]


_STRAGGLER = ("straggler", "single-writer", "gather")  # what nobody may say of ranks that are alike

CASES = (
    # how saves replace the last one, are published and kept, and what a restart reads
    *_of("plain_python.py", "json_booster", "renamed_over"),
    *_of("numpy_jobs.py", "keras_overwritten", "verified", "ever_growing", "retried", "hard_linked", "patched"),
    *_of("numpy_jobs.py", "savez_replaced", "joblib_kept", "population", "saver_of_five"),
    *_of("numpy_stores.py", "flax_prefixed", "mapped_in_place", "rows"),
    Case("NumPy alone, bytes", "bare", job="numpy_jobs.py"),
    *_of("torch_jobs.py", "stripped", "averaged_best", "reported", "kept_times", "averaging_thread"),
    *_of("torch_restarts.py", "best_so_far", "limit_of_two", "replay_buffer", "sweep", "in_turns", "split_volumes"),
    *_of("torch_restarts.py", "in_memory", ground="tmpfs"),
    Case("torch.save before 1.6", "legacy", layout="epoch"),
    Case("a file for each array", "npy"),
    Case("pickle with buffers in parts", "pickle5", layout="flat"),
    Case("tar", "tarred", layout="flat"),
    Case("slabs, the last array first", "slabs"),
    Case("140 MB on xfs, the last one is deleted", "rotated", ground="xfs", size_mb=140),
    Case("8 MB", "plain", size_mb=8),
    Case("names without a step", "plain", layout="odd"),
    Case("staged in memory", "staged-in-memory"),
    Case("staged in TMPDIR and moved", "staged-and-moved", layout="flat"),
    Case("staged, sendfile", "sent"),
    Case("staged, copy_file_range", "ranged", layout="epoch"),
    Case("synced, made read-only, renamed", "careful"),
    Case("a symbolic link to the last", "pointed", pace="sleep"),
    Case("a copy as the best", "doubled"),
    Case("a checksum before", "summed-before"),
    Case("a lock is awaited", "locked"),
    # saves that do not come to their end
    *_of("torch_restarts.py", "base_copied", prepared=True),
    *_of("torch_restarts.py", "preempted", "killed"),
    # large things beside what is saved, and jobs that save nothing
    *_of("torch_beside.py", "token_cache", "study", "offloaded", "scored", "features", "adapters"),
    *_of("torch_beside.py", "recovery_points", "tables", "self_play"),
    *_of("torch_beside.py", "memory_snapshots", ranks=2),
    *_of("trained_for_hours.py", "trained_for_hours", prepared=True, minutes=2.0),
    Case("a download of the data set", "none", beside="downloaded"),
    Case("logs and events", "none", beside="logged"),
    Case("sorting through files", "none", beside="spilled"),
    Case("activations in a file without a name", "none", beside="scratch"),
    # planted causes and their controls
    Case("pickled in memory", "pickled", limits=("serialize",)),
    Case("pickled: control", "plain", accused=("serialize", "staging")),
    Case("bz2", "packed", limits=("serialize",)),
    Case("gzip in memory", "gzipped", limits=("serialize",), size_mb=24),
    Case("gzip: control, the same bytes", "buffered", accused=("serialize",), size_mb=24),
    Case("npz, compressed", "squeezed", limits=("serialize",), size_mb=24, layout="flat"),
    Case("npz, compressed: control", "npz", accused=("serialize",), layout="flat"),
    Case("sync after each row", "journaled", limits=("flush",)),
    Case("sync: control", "plain", accused=("flush",)),
    Case("a sync for each of many files", "synced-files", limits=("flush", "metadata"), size_mb=32),
    Case("sync once: control", "synced", accused=("flush", "small-io", "metadata"), layout="flat"),
    Case("small calls past the cache", "in-small-direct", limits=("small-io",), size_mb=64),
    Case("small calls past the cache: control", "direct", accused=("small-io", "flush")),
    Case("thousands of files", "scattered", limits=("metadata",), size_mb=24),
    Case("thousands of files: control", "in-files", accused=("metadata", "clean-up")),
    *_of("numpy_stores.py", "chunked"),
    *_of("numpy_stores.py", "chunked_control", accused=("metadata",)),
    Case("old files deleted in line", "deleting", limits=("clean-up",), size_mb=24, ground="ext4", prepared=True),
    Case("old files deleted in line: control", "rotated", accused=("clean-up", "metadata")),
    Case("the previous save is awaited", "waits-for-previous", limits=("previous-save",), mode="async", first=1),
    Case("the previous save: control", "in-slow-thread", accused=("previous-save",), mode="async"),
    Case("a slow device", "synced", limits=("device",), ground="slow", size_mb=64),
    Case("a slow device: control", "synced", accused=("device", "flush"), ground="ext4", size_mb=64),
    Case("the CPUs taken by others", "plain", limits=("cpu",), others=12),
    Case("the CPUs taken by others, two ranks", "sharded", limits=("cpu",), others=12, ranks=2),
    # several ranks
    *_of("torch_ranks.py", "ranks_one_path", "merged_shards", ranks=2),
    *_of("torch_ranks.py", "consolidated"),
    *_of("torch_ranks.py", "first_has_more", ranks=3, limits=("straggler", "single-writer", "serialize")),
    *_of("torch_ranks.py", "first_has_more_control", ranks=3, accused=_STRAGGLER),
    *_of("torch_ranks.py", "quota", ranks=2, limits=("straggler", "cpu")),
    *_of("torch_ranks.py", "quota_control", ranks=2, accused=_STRAGGLER),
    Case("gathered by gloo", "gathered", limits=("gather",), ranks=2),
    Case("gathered objects", "gathered-objects", limits=("gather",), ranks=2, size_mb=48),
    Case("gathered: control", "sharded", accused=("gather", "single-writer", "straggler"), ranks=2),
    Case("the last rank begins later", "overslept", limits=("straggler",), ranks=3, size_mb=32),
    Case("the last rank: control", "packed-by-each", accused=_STRAGGLER, ranks=2, size_mb=24),
    Case("the first rank compresses for all", "packed-by-first", ("single-writer", "serialize"), ranks=2, size_mb=24),
    Case("one file of pieces by two ranks", "strided", accused=("gather", "straggler"), ranks=2, size_mb=48),
    Case("the first rank writes what all have", "by-first", accused=("gather", "straggler"), ranks=2),
    # other threads and processes than the one that trains
    Case("a forked process, beside training", "in-process", mode="async"),
    Case("two forked processes, joined", "in-processes"),
    Case("a thread, beside training", "in-thread", mode="async"),
    Case("a slow thread, beside a trainer that sleeps", "in-slow-thread", mode="async", pace="sleep"),
    Case("a slow thread, awaited", "in-awaited-thread"),
    Case("four threads, awaited", "in-pool"),
    Case("a fresh Python, awaited", "in-spawned", size_mb=48),
    Case("a snapshot by fork", "as-snapshot", mode="async"),
    Case("nobody's child", "detached", mode="async", pace="sleep"),
    Case("a process fed by a pipe", "piped"),
    Case("a process fed by a queue", "queued", mode="async"),
    # restores
    _restore("torch.load", "load"),
    _restore("npz loaded", "load-npz", pace="sleep"),
    _restore("arrays loaded by threads", "load-in-threads"),
    _restore("a file for each parameter loaded", "load-files", size_mb=64),
    _restore("gzip loaded", "load-packed", limits=("serialize",)),
    _restore("loaded in large pieces", "load-large", accused=("serialize", "small-io"), pace="spin"),
    _restore("a slow device, loaded", "load", limits=("device",), ground="slow to read", size_mb=64),
    _restore("a slow device, loaded: control", "load", accused=("device",), ground="ext4", size_mb=64),
    _restore("small reads past the cache", "load-small-direct", ("small-io",), ground="few operations", size_mb=24),
    _restore(
        "small reads: control", "load-large-direct", accused=("small-io", "page-fault"), ground="ext4", size_mb=64
    ),
    _restore("by page faults", "load-by-faults", limits=("page-fault",), ground="few operations", size_mb=16),
    _restore("by page faults: control", "load-mapped", accused=("page-fault",), ground="ext4", size_mb=64),
    _restore("two ranks load their own", "load-own", ranks=2, size_mb=48),
    _restore("one rank loads and sends", "load-and-send", ranks=2),
)
