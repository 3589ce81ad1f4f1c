"""The maximum rates of a directory, as measured by `ckptprof ceiling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from ckptprof.bounds import one_of

WRITE, READ = "write", "read"
# Why a measure ended: all data transferred, time up, file system or quota full, a signal
SIZE, TIME, FULL, STOPPED = "size", "time", "full", "stopped"

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work and its rate; the rate is None if it could not be measured, and `missing` is the reason.

    Files of earlier versions may contain other kinds of work.
    """

    id: str
    work: Annotated[str, one_of(WRITE, READ)]
    operation_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    workers: Annotated[int, msgspec.Meta(ge=1)] = 1  # threads, each with a file of its own (reading: a part of one)
    direct: bool | None = None  # with O_DIRECT
    bytes_per_second: Rate | None = None  # writes: including the final fsync
    transferred_bytes: Count = 0
    spent_ns: Count = 0
    ended: Annotated[str, one_of(SIZE, TIME, FULL, STOPPED)] | None = None
    missing: str | None = None


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one probe."""

    format: Literal[1] = 1  # other versions are left unchanged
    version: str  # of ckptprof
    host: str
    at_ns: int  # wall clock, at its start
    spent_ns: Count
    path: str  # the directory that was probed, without symlinks
    mount_point: str
    fs_type: str
    source: str  # as the mount names it
    device: str | None  # kernel name of the block device below, if there is one
    server: str | None  # of a remote mount
    size_bytes: Count  # maximum to be written
    phase_seconds: Seconds  # maximum duration of each measure
    busy_before: Annotated[float, msgspec.Meta(ge=0, le=1)] | None  # share of the time in which the device had work
    complete: bool  # not interrupted: no full disk, no error
    measures: tuple[Measure, ...]


def ceiling_for(path: str, ceilings: Sequence[Ceilings], *, mount_point: str | None = None) -> Ceilings | None:
    """Return the probe that applies to an absolute path: the longest mount point above it, the newest of several.

    `mount_point`: that of the path, if known. A mount below a probed one has not been measured.
    """
    fitting = [
        one
        for one in ceilings
        if f"{path}/".startswith(f"{one.mount_point.rstrip('/')}/") and mount_point in (None, one.mount_point)
    ]
    return max(fitting, key=lambda one: (len(one.mount_point), one.at_ns), default=None)


def fastest(ceilings: Ceilings, work: str) -> Measure | None:
    """Return the measure with the highest rate in one direction, None without any."""
    known = [one for one in ceilings.measures if one.work == work and one.bytes_per_second is not None]
    return max(known, key=lambda one: one.bytes_per_second or 0.0, default=None)
