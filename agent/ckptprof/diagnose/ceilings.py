"""What a directory can do at best, as `ckptprof ceiling` measured it, and which measure speaks for which work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated

import msgspec

FORMAT = 1  # of what is kept; others are left alone
MIB = 1 << 20

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Work(str, Enum):
    """What was done again and again."""

    WRITE = "write"
    READ = "read"
    SYNC = "sync"  # a small write at the end of a file, and an fsync
    CREATE = "create"
    RENAME = "rename"
    UNLINK = "unlink"


class Ended(str, Enum):
    """Why a measure was over; anything but `full` and `stopped` makes it as good as any."""

    SIZE = "size"  # all was moved that might be
    TIME = "time"
    STEADY = "steady"  # the rate did not change any more
    FULL = "full"  # the file system or a quota was
    STOPPED = "stopped"  # by a signal


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work and how fast it went; the rates are None where it could not be done, and `missing` says why."""

    id: str
    work: Work
    operation_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None  # None: no data is moved
    workers: Annotated[int, msgspec.Meta(ge=1)] = 1  # threads, each with a file of its own (reading: a part of one)
    direct: bool | None = None  # with O_DIRECT; None where it makes no difference
    random: bool = False
    mapped: bool = False  # read by page faults of a mapping
    bytes_per_second: Rate | None = None  # of writes: over the time of the writes and of the fsync that ends them
    operations_per_second: Rate | None = None
    latency_p50_seconds: Seconds | None = None  # of one operation; None where operations end in the page cache
    latency_p99_seconds: Seconds | None = None
    moved_bytes: Count = 0
    operations: Count = 0
    spent_ns: Count = 0
    ended: Ended | None = None
    missing: str | None = None


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe found."""

    format: int = FORMAT
    version: str  # of ckptprof
    host: str
    at_ns: int  # wall clock, when it began
    spent_ns: Count
    path: str  # the directory that was probed, without symlinks
    mount_point: str
    fs_type: str
    source: str  # as the mount names it
    device: str | None  # kernel name of the block device below, if there is one
    server: str | None  # of a remote mount
    size_bytes: Count  # at most so much might be written
    phase_seconds: Seconds  # and each measure took at most so long
    busy_before: Annotated[float, msgspec.Meta(ge=0, le=1)] | None  # share of the time in which the device had work
    complete: bool  # nothing broke off: no full disk, no error
    measures: tuple[Measure, ...]


def ceiling_for(path: str, ceilings: Sequence[Ceilings], *, mount_point: str | None = None) -> Ceilings | None:
    """Return what speaks for an absolute path: the longest mount point above it, the newest of several.

    Whoever knows on which mount the path is says so: a mount below a probed one has been measured by nobody.
    """
    fitting = [
        one
        for one in ceilings
        if _is_below(path, one.mount_point) and (mount_point is None or one.mount_point == mount_point)
    ]
    return max(fitting, key=lambda one: (len(one.mount_point), one.at_ns), default=None)


def _is_below(path: str, mount_point: str) -> bool:
    point = mount_point.rstrip("/")
    return path == point or path.startswith(point + "/")


def fastest(ceilings: Ceilings, work: Work) -> Measure | None:
    """Return the measure with the highest bandwidth of one direction: what the path does at best."""
    known = [one for one in ceilings.measures if one.work is work and one.bytes_per_second is not None]
    return max(known, key=lambda one: one.bytes_per_second or 0.0, default=None)


def by_id(ceilings: Ceilings, name: str) -> Measure | None:
    """Return one measure by its name, None if there is none or it has no rate."""
    for one in ceilings.measures:
        if one.id == name and one.operations_per_second is not None:
            return one
    return None


def nearest(  # noqa: PLR0913 # one for each property of a measure
    ceilings: Ceilings,
    work: Work,
    *,
    operation_bytes: int,
    workers: int = 1,
    direct: bool | None = None,
    random: bool = False,
    mapped: bool = False,
) -> Measure | None:
    """Return the best that was measured for work of this shape, None if nothing like it was.

    It is the faster one of buffered and direct if `direct` is None. Of workers and operation sizes the largest measured
    ones that are not above those asked for count; random work in operations of 1 MiB and more goes as sequential does.
    """
    random = random and operation_bytes < MIB
    fitting = [
        one
        for one in ceilings.measures
        if one.work is work
        and one.bytes_per_second is not None
        and one.random == random
        and one.mapped == mapped
        and (direct is None or one.direct == direct)
    ]
    fitting = _at_most(fitting, workers, lambda one: one.workers)
    fitting = _at_most(fitting, operation_bytes, lambda one: one.operation_bytes or 0)
    return max(fitting, key=lambda one: one.bytes_per_second or 0.0, default=None)


def _at_most(measures: list[Measure], wanted: int, of: Callable[[Measure], int]) -> list[Measure]:
    """Return the measures with the largest number up to the wanted one, or with the smallest that there is."""
    below = [of(one) for one in measures if of(one) <= wanted]
    chosen = max(below) if below else min(map(of, measures), default=0)
    return [one for one in measures if of(one) == chosen]
