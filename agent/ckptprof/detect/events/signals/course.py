"""How one event was written: with care for the file, in one go, or as logs and databases are."""

from __future__ import annotations

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signals.series import is_row_of_data
from ckptprof.detect.tolerances import HEADER_BYTES, MANY, MOST_SHARE
from ckptprof.detect.transfers.model.operations import LARGE_BYTES


def renamed(event: Event) -> bool:
    """Return whether it had a temporary name, then another: whoever reads it never meets half of it."""
    return event.writes and any(part.earlier_path is not None for part in event.parts)


def committed(event: Event) -> str | None:
    """Return the marker with which its framework completed it."""
    marks = (part.file_name for part in event.parts if part.name.commit)
    return next(marks, None) if event.writes else None


def tensors(event: Event) -> bool:
    """Return whether it has many arrays in one file: operations of many sizes, the big ones with the bytes."""
    if not event.writes:
        return False
    sizes: dict[int, int] = {}
    for part in event.parts:
        for session in part.threads:
            for low, _operations, moved in session.sizes:
                sizes[low] = sizes.get(low, 0) + moved
    large = sum(moved for low, moved in sizes.items() if low >= LARGE_BYTES)
    return len(sizes) >= MANY and large * 2 >= sum(sizes.values())


def bulk(event: Event) -> bool:
    """Return whether most of what its job wrote lately is of this series."""
    if not event.writes or not event.series or is_row_of_data(event):
        return False
    alike = event.bytes + sum(earlier.bytes for earlier in event.series)
    written = event.bytes + sum(earlier.bytes for earlier in event.known.past.events(event.job, writes=True))
    return alike >= MOST_SHARE * written


def appends(event: Event) -> bool:
    """Return whether most of it was written with O_APPEND, as logs are."""
    return event.writes and not event.mostly(lambda part: not part.append)


def random(event: Event) -> bool:
    """Return whether small operations do not follow each other, as databases write."""
    sums = [part.operations for part in event.parts if part.operations is not None]
    moved = sum(one.bytes for one in sums)
    operations = sum(one.number for one in sums)
    if not event.writes or not operations or moved / operations >= HEADER_BYTES:
        return False
    return sum(one.consecutive_bytes for one in sums) * 2 <= moved
