"""What Lustre's client does with caches: hybrid I/O passes that of pages by, PCC keeps files on a disk of this host.

Hybrid I/O (2.16) switches large pieces of buffered writes to direct I/O. The client counts the calls that it switched,
and since 2.17 their bytes, and those that PCC gave.
"""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.diagnose.sight import MOST, SLIGHT, Sight, some
from ckptprof.model import Level


class Hybrid(NamedTuple):
    """What it did of a save."""

    on: bool
    switched: float  # share of the bytes
    threshold_bytes: float | None  # smaller pieces are not switched
    piece_bytes: float | None  # of the save, the median
    piece_is_exact: bool  # calls were seen one by one: their size is no mean of some


def hybrid(sight: Sight) -> Hybrid | None:
    """Return what it did of a save; None: this client has none, or that was not seen."""
    mount = sight.measures.mount
    settings = (mount.settings or {}) if mount is not None else {}
    if mount is None or "hybrid_io" not in settings or not sight.writes:
        return None
    counters, asked = mount.counters or {}, some(mount.written_bytes)
    calls = some(counters.get("writes"))
    share = some(counters.get("hybrid_writesize_switch")) / calls if calls else 0.0
    if "hybrid_write_bytes" in counters and asked:
        share = counters["hybrid_write_bytes"] / asked
    piece = sight.checkpoint.pattern.median_operation_bytes
    exact = piece is not None and sight.checkpoint.level is Level.TRACE
    if piece is None:
        piece = asked / calls if asked and calls else sight.checkpoint.pattern.mean_operation_bytes
    threshold = settings.get("hybrid_io_write_threshold_bytes")
    return Hybrid(bool(settings["hybrid_io"]), min(1.0, share), threshold, piece, exact)


def was_in_pcc(sight: Sight) -> bool:
    """Return whether most of a restore came from PCC."""
    mount = sight.measures.mount
    hit = some(((mount.counters or {}) if mount is not None else {}).get("pcc_hit_bytes"))
    return not sight.writes and 0 < MOST * sight.checkpoint.bytes <= hit


def could_pass_the_cache(sight: Sight) -> bool:
    """Return whether a save was copied into the page cache, though its client could pass it by to idle servers."""
    known, mount = hybrid(sight), sight.measures.mount
    if known is None or known.switched >= SLIGHT or mount is None:
        return False
    in_use, slots = mount.in_use_mean, mount.slots
    return in_use is not None and bool(slots) and in_use < MOST * (slots or 0.0)
