"""How long a directory, its number of entries and its drives last at an interval between saves."""

from __future__ import annotations

import math

import msgspec

from ckptprof.diagnose.plan.basis import Basis, GivenFigures, MeasuredFigures

MANY_ENTRIES = 100_000  # of a directory: more slow file systems down, says WEKA
RATED_YEARS = 5  # at one drive write a day: mainstream NVMe drives of data centres, assumed
_DIGITS = 6  # after the point: rounding noise is hidden


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """How long a directory lasts, if the first save starts one interval from now.

    Existing checkpoints are not counted. Frameworks delete an old checkpoint after the new one is complete, so space
    for one more than is retained is needed.
    """

    free_bytes: float
    fitting: int  # number of checkpoints that fit into the free space
    retain: int | None  # number of checkpoints retained; None: all
    retained_bytes: float | None  # their size, with the one being written before the oldest is deleted
    full_after_seconds: float | None  # until a save does not fit; None: never


class Entries(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that the recorded saves make in directories."""

    files: int  # of one save at most, as if all were in one directory
    many_after_seconds: float | None  # until 100,000 saves are side by side; None: never, or saves share a path


class Wear(msgspec.Struct, frozen=True, kw_only=True):
    """What the saves alone wear off drives; without copies, parity and write amplification of the storage."""

    capacity_bytes: float
    drive_writes_per_day: float
    years: float  # until drives rated for one a day over five years have taken what they are rated for


def fill(given: GivenFigures, basis: Basis, interval: float) -> Filling | None:
    """Return how the free space fills; None if it or the size is not known."""
    free, keep = given.free_bytes, given.keep
    if free is None or basis.size is None:
        return None
    size = basis.size.value
    fitting = math.floor(round(free / size, _DIGITS))
    return Filling(
        free_bytes=free,
        fitting=fitting,
        retain=keep,
        retained_bytes=None if keep is None else (keep + 1) * size,
        full_after_seconds=None if keep is not None and fitting > keep else (fitting + 1) * interval,
    )


def count_entries(given: GivenFigures, measured: MeasuredFigures, interval: float) -> Entries | None:
    """Return the entries of directories; None if no save to files is recorded."""
    if measured.files is None:
        return None
    grows = measured.has_own_paths and given.keep is None
    return Entries(files=measured.files, many_after_seconds=MANY_ENTRIES * interval if grows else None)


def wear_off(given: GivenFigures, bytes_per_day: float) -> Wear | None:
    """Return the wear of drives; None if their capacity is not known."""
    if given.capacity_bytes is None:
        return None
    writes = bytes_per_day / given.capacity_bytes
    return Wear(capacity_bytes=given.capacity_bytes, drive_writes_per_day=writes, years=RATED_YEARS / writes)
