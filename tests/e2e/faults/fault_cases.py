"""The faults that are planted, each with its control: the same work without it, in the time that the gain promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fault_grounds import Ground, Throttle, dirty_limits, loop, s3, sshfs

MB = 1 << 20


@dataclass(frozen=True)
class Work:
    """A job on a ground."""

    ground: Ground
    arguments: tuple[str, ...]
    before: tuple[str, ...] | None = None  # a job that is done first, unwatched: it makes what is restored


@dataclass(frozen=True)
class Case:
    """One fault. `limits`: what may be said of it, the first is meant; of each of `sizes_mb` it is planted once."""

    name: str
    limits: tuple[str, ...]
    fault: Work
    control: Work
    sizes_mb: tuple[int, int]
    kind: str = "save"
    skip: int = 0  # events at the beginning that the fault does not reach
    gain: bool = (
        True  # whether the control is the fault's work at its next limit, so that the promise can be held to it
    )
    control_limits: tuple[str, ...] = ("none", "cpu")  # others may have the processors: that is not the fault


def work(ground: Ground, *arguments: str, before: Sequence[str] | None = None) -> Work:
    """Return a job on a ground."""
    return Work(ground, arguments, None if before is None else tuple(before))


def _save(ground: Ground, way: str, *more: str) -> Work:
    return work(ground, "--way", way, *more)


def _restore(ground: Ground, way: str) -> Work:
    return work(ground, "--restore", way, before=("--way", "fsync", "--saves", "1"))


_FAST, _FAST_XFS = partial(loop, "ext4"), partial(loop, "xfs")
_SLOW = partial(loop, "ext4", Throttle(write_bytes=50 * MB))
_SLOW_XFS = partial(loop, "xfs", Throttle(write_bytes=50 * MB))
_FEW = partial(loop, "ext4", Throttle(write_operations=400))
_FEW_XFS = partial(loop, "xfs", Throttle(write_operations=400))
_SYNCED = partial(loop, "ext4", Throttle(write_operations=200), options="dirsync")
_RANKS = ("--ranks", "4")

CASES: tuple[Case, ...] = (
    Case("device-fsync-ext4", ("device",), _save(_SLOW, "fsync"), _save(_FAST, "fsync"), (100, 300)),
    Case("device-fsync-xfs", ("device",), _save(_SLOW_XFS, "fsync"), _save(_FAST_XFS, "fsync"), (100, 300)),
    Case("device-direct-xfs", ("device",), _save(_SLOW_XFS, "direct"), _save(_FAST_XFS, "direct"), (100, 300)),
    Case("device-msync", ("device",), _save(_SLOW, "mapped"), _save(_FAST, "mapped"), (100, 200)),
    Case("device-sync-all", ("device",), _save(_SLOW, "sync-all"), _save(_FAST, "sync-all"), (100, 200)),
    Case(  # its control writes as small pieces, on a device that was never asked for others
        "device-iops-ext4", ("small-io",), _save(_FEW, "small-direct"), _save(_FAST, "small-direct"), (20, 40),
        control_limits=("none", "cpu", "small-io"),
    ),
    Case(  # its control writes as small pieces, on a device that was never asked for others
        "device-iops-xfs", ("small-io",), _save(_FEW_XFS, "small-direct"), _save(_FAST_XFS, "small-direct"), (20, 40),
        control_limits=("none", "cpu", "small-io"),
    ),
    Case("network-fuse", ("network",), _save(partial(sshfs, 160), "raw"), _save(sshfs, "raw"), (25, 50)),
    Case(
        "path-fuse", ("network",), _save(partial(sshfs, 160, routed=True), "raw"),
        _save(partial(sshfs, routed=True), "raw"), (25, 50),
    ),
    Case(
        "server-fuse", ("server",), _save(partial(sshfs, server_bytes=16 * MB), "raw"), _save(sshfs, "raw"), (25, 50),
        gain=False,
    ),
    Case("network-s3", ("network",), _save(partial(s3, 40), "raw"), _save(s3, "raw"), (8, 14), gain=False),
    Case("serialize-zlib", ("serialize",), _save(_FAST, "zlib"), _save(_FAST, "raw"), (60, 150)),
    Case("serialize-objects", ("serialize",), _save(_FAST, "objects"), _save(_FAST, "raw"), (100, 200), gain=False),
    Case("serialize-pool", ("serialize",), _save(_FAST, "pooled"), _save(_FAST, "raw"), (150, 300), gain=False),
    Case(
        "serialize-gil", ("serialize",), _save(_FAST, "contended"), _save(_FAST, "objects"), (25, 50),
        control_limits=("none", "serialize"),  # it pickles objects, too
    ),
    Case(
        "single-writer", ("single-writer",), _save(_FAST, "one-of-many", *_RANKS), _save(_FAST, "zlib", *_RANKS),
        (80, 160), control_limits=("serialize", "none", "cpu"),
    ),
    Case(
        "straggler", ("straggler",), _save(_FAST, "fsync", *_RANKS, "--straggler", "2", "--straggle", "3"),
        _save(_FAST, "fsync", *_RANKS), (80, 160),
    ),
    Case("small-random", ("small-io",), _save(_FEW, "random-direct"), _save(_FAST, "direct"), (8, 16), gain=False),
    Case(
        "dirty-limits", ("page-cache",),
        work(partial(dirty_limits, 8 * MB, _SLOW), "--way", "raw"), _save(_SLOW, "raw"), (100, 200),
    ),
    Case("sync-pieces", ("flush",), _save(_FEW, "sync-pieces"), _save(_FEW, "fsync"), (16, 32)),
    Case("metadata", ("metadata",), _save(_FAST, "many-files", "--files", "20000"), _save(_FAST, "raw"), (40, 80)),
    Case(
        "metadata-fuse", ("metadata",), _save(sshfs, "many-files", "--files", "1000"), _save(sshfs, "raw"), (4, 8),
        gain=False,
    ),
    Case(
        "clean-up", ("clean-up",),
        work(_SYNCED, "--way", "rotated", before=("--way", "filled", "--saves", "3", "--files", "1000")),
        _save(_SYNCED, "rotated"), (40, 80),
    ),
    Case(
        "previous-save", ("previous-save",), _save(_SLOW, "background", "--pause", "1"),
        _save(_FAST, "background", "--pause", "1"), (150, 300), skip=1, gain=False,
    ),
    Case(
        "restore-mapping", ("page-fault",), _restore(_FAST, "mapping"), _restore(_FAST, "read"), (120, 200),
        kind="restore",
    ),
    Case(
        "restore-device", ("device",), _restore(partial(loop, "ext4", Throttle(read_bytes=50 * MB)), "read"),
        _restore(_FAST, "read"), (50, 100), kind="restore",
    ),
    Case(
        "restore-network", ("network",), _restore(partial(sshfs, 160), "read"), _restore(sshfs, "read"), (60, 120),
        kind="restore",
    ),
    Case(
        "restore-mapping-network", ("network",), _restore(partial(sshfs, 160), "copy"), _restore(sshfs, "copy"),
        (40, 80), kind="restore", gain=False, control_limits=("none", "page-fault", "cpu"),
    ),
    Case(
        "gather", ("gather",), _save(_FAST, "gathered", *_RANKS, "--gather-pause", "0.0004"),
        _save(_FAST, "ungathered", *_RANKS), (200, 400),
    ),
)  # fmt: skip
