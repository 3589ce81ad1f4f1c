"""How one event was written: with care for the file, in one go, or as logs and databases are."""

from __future__ import annotations

from ckptprof.detect.events.event import Event
from ckptprof.detect.tolerances import HEADER_BYTES


def renamed(event: Event) -> bool:
    """Return whether it had a temporary name, then another: whoever reads it never meets half of it."""
    return event.writes and any(part.earlier_path is not None for part in event.parts)


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
