"""When a transfer began and ended: each observation is a constraint that narrows the bounds that its looks leave.

Counters of its process give the first guess. A file's birth and modification times are exact to a timer tick however
seldom we look, but anyone may set them and a server's clock may be another: they count only inside of the bounds.
"""

from __future__ import annotations

import math

from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    BORN_NS,
    LITTLE_SHARE,
    MOST_SHARE,
    NEAR_NS,
    STAMP_NS,
    TELLING_BYTES,
)
from ckptprof.detect.transfers.model.transfer import Bounds, Transfer
from ckptprof.detect.transfers.observed.openings import Openings
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.process_counters import ACTIVE_BYTES, ProcessHistory, Run, runs
from ckptprof.detect.world.threads import ThreadLooks
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import FileFact

CLOSED_LATE_NS = 80_000_000  # a file that stays open this much longer than its last write ...
FSYNC_BUSY = 0.35  # ... while its process uses less of a core than this, is being flushed
_READS = frozenset({"data"})
MAPPED_ACTIVE_BYTES = 2 << 20  # in one interval; less is the noise of code that is paged in


def write_edges(
    transfer: Transfer,
    history: ProcessHistory,
    world: World,
    openings: Openings,
) -> tuple[int, int]:
    """Return (start, end) of a transfer that writes.

    Threads observed in a call show its end: in close(2) NFS, FUSE and S3 send the data; in fsync(2) one thread waits
    while the others continue.
    """
    clock, threads, fact = world.clock, world.threads, transfer.fact
    low, high = transfer.span
    modified = clock.mono(fact.modified_ns) if fact and not is_coarse(fact) else None
    # the first look may come after the writing began: reach back to where its process was quiet
    run = _run_at(history.writing_runs(), low, high if modified is None else max(high, modified))
    start, end = (run.start_ns, run.end_ns) if run else (transfer.first_ns, transfer.last_ns)
    if transfer.looks and transfer.before_ns < transfer.first_ns:
        if start < transfer.before_ns:  # what was written by then went elsewhere
            start = transfer.before_ns
            if transfer.size >= TELLING_BYTES:
                inside = (
                    (max(one.start_ns, start), one.end_ns, one.wrote_bytes) for one in history.between(start, end)
                )
                start = next((run.start_ns for run in runs(inside)), start)
        # its opening emptied it, or something of it is there
        begun = (look.at_ns for look in transfer.looks if look.position or not look.size)
        start = min(start, next(begun, start))
    written_since = openings.opened_between(transfer.file, transfer.before_ns, start + STAMP_NS, written=True)
    opened = written_since if transfer.looks else None
    if transfer.closed_ns is not None:  # what its process wrote later went elsewhere
        end = min(end, high)
    if fact is not None:
        latest = max(end, high)
        birth = clock.mono(fact.birth_ns) if fact.birth_ns is not None else None
        start = _begin(transfer, start, latest, birth).narrowed(opened).narrowed(birth, STAMP_NS).best
        written = Bounds(start, end, latest).narrowed(modified, STAMP_NS)
        heard = openings.closed_between(transfer.file, high) if transfer.closed_ns is None else None
        if written.best == modified:
            end = _last_call(transfer, history, written.best, heard or high)
        elif modified is None:
            end = _counted(transfer, history, end, end, heard or high)
    end = max(end, _closed(transfer, history, openings, end, threads.met_until(transfer.process, "close", end)))
    if fact is not None:
        synced = threads.met_until(transfer.process, "sync", end)
        changed = clock.mono(fact.changed_ns)
        if fact.changed_ns != fact.modified_ns and end <= changed <= transfer.fact_at_ns + STAMP_NS:
            end = changed  # it got its name
        end = _synced(transfer, history, end, synced)
    return start, max(start, end)


def _begin(transfer: Transfer, start: int, latest: int, birth: int | None) -> Bounds:
    """Return the bounds in which a file's birth is the start of its writing."""
    latest = min(latest, transfer.first_ns)
    untold = birth is None and transfer.first_ns == transfer.last_ns and transfer.size >= TELLING_BYTES
    if transfer.is_credited and not untold:  # it is known when it began, if written anew, too
        return Bounds(transfer.first_ns, max(start, transfer.first_ns), latest)
    # without a look before the first it may have been open unseen
    unseen_ns = 0 if transfer.before_ns < transfer.first_ns else BORN_NS
    return Bounds(min(start, transfer.before_ns) - unseen_ns, start, latest)


def _closed(transfer: Transfer, history: ProcessHistory, openings: Openings, end: int, sent: int | None) -> int:
    """Return when a file written until `end` was closed: by inotify, else by a thread observed in close(2)."""
    closed = openings.closed_between(transfer.file, end - STAMP_NS, max(end, sent or 0) + AT_ONCE_NS)
    if closed is None and sent is None and transfer.looks and transfer.last_ns <= end + STAMP_NS:
        seen_ns = math.inf if transfer.closed_ns is None else transfer.closed_ns + STAMP_NS
        closed = openings.closed_between(transfer.file, end, seen_ns)  # it was not looked at meanwhile
        closed = closed if closed is not None and _rests(history, end + STAMP_NS, closed) else None
    if closed is not None or sent is None:
        return closed or end
    wrote_on = any(interval.wrote_bytes >= ACTIVE_BYTES for interval in history.between(end + STAMP_NS, sent))
    return end if wrote_on else sent  # it was the last that was written


def born_and_written(fact: FileFact, clock: Clock) -> tuple[int, int]:
    """Return when a file was created and last written, by CLOCK_MONOTONIC; without a birth both are the last."""
    modified_ns = clock.mono(fact.modified_ns)
    return (clock.mono(fact.birth_ns) if fact.birth_ns is not None else modified_ns), modified_ns


def born_within(fact: FileFact | None, edges: tuple[int, int], slack_ns: int) -> bool:
    """Return whether a file was born between the edges of a transfer, which then wrote all of it."""
    if fact is None or fact.birth_ns is None:
        return False
    return 0 <= fact.modified_ns - fact.birth_ns <= edges[1] - edges[0] + slack_ns


def is_coarse(fact: FileFact) -> bool:
    """Return whether a file's stamps are whole seconds, truncated, as on S3: these show no edges."""
    return not fact.modified_ns % 1_000_000_000 and not fact.changed_ns % 1_000_000_000


def _last_call(transfer: Transfer, history: ProcessHistory, modified_ns: int, high: int) -> int:
    """Return when the last write ended: a stamp marks the start of the last write(2), which may write all.

    Only for a file observed open, and while it was: its process may have written elsewhere otherwise. A server may
    stamp a file when it is opened (rclone).
    """
    if not transfer.looks:
        return modified_ns
    later = [one for one in history.between(modified_ns, high) if one.start_ns >= modified_ns]
    dirtied = runs(((one.start_ns, one.end_ns, one.wrote_bytes) for one in later), gap_ns=CLOSED_LATE_NS)
    is_next = bool(dirtied) and dirtied[0].start_ns - modified_ns <= CLOSED_LATE_NS
    return _counted(transfer, history, modified_ns, dirtied[0].end_ns if is_next else modified_ns, high)


def _counted(transfer: Transfer, history: ProcessHistory, since_ns: int, end: int, high: int) -> int:
    """Return the end of the call that wrote what no call had written before: calls are counted at their end.

    `end` if nothing is missing, or the file was not observed open.
    """
    if not transfer.looks or transfer.fact is None:
        return end
    size = transfer.fact.size
    later = [one for one in history.between(since_ns, high) if one.start_ns >= since_ns]
    before = history.between(min(transfer.looks[0].at_ns, since_ns), since_ns)
    missing = size - transfer.looks[0].size - sum(one.written_bytes for one in before)
    for run in runs((one.start_ns, one.end_ns, one.written_bytes) for one in later):
        if missing > LITTLE_SHARE * size and run.start_ns - end > CLOSED_LATE_NS:
            end = run.end_ns
        missing -= run.bytes
    return end


def _synced(transfer: Transfer, history: ProcessHistory, end: int, synced_ns: int | None) -> int:
    """Return when a file written until `end` was synced, if its process was observed waiting for that.

    `synced_ns`: until when one of its threads was in a sync, of any file.
    """
    stayed_open = transfer.closed_ns is not None and transfer.last_ns - end > CLOSED_LATE_NS
    if transfer.closed_ns is not None and stayed_open and _rests(history, end + STAMP_NS, transfer.last_ns):
        end = (transfer.last_ns + transfer.closed_ns) // 2
    closed_ns = transfer.last_ns if transfer.is_credited else transfer.closed_ns
    if synced_ns is not None and closed_ns is not None and closed_ns < synced_ns:
        end = max(end, synced_ns)  # of all files, after it was closed
    return end


def _rests(history: ProcessHistory, low: int, high: int) -> bool:
    """Return whether a process used little of a core in a time, as one waiting in a call does."""
    busy = [i.busy for i in history.between(low, high) if i.busy is not None]
    return not busy or sum(busy) / len(busy) < FSYNC_BUSY


def read_edges(
    transfer: Transfer, history: ProcessHistory, openings: Openings, threads: ThreadLooks
) -> tuple[int, int]:
    """Return (start, end) of a transfer that reads."""
    low, high = transfer.span
    if transfer.before_ns >= transfer.first_ns and not transfer.is_mapped:
        low = _reach_back(transfer, history)
    opened = openings.opened_between(transfer.file, low, transfer.first_ns + STAMP_NS)  # a look is later than its frame
    low = low if opened is None else min(opened, transfer.first_ns)
    if transfer.is_mapped:  # mappings are looked at seldom: the bounds may hold what was mapped before
        touched = [(i.start_ns, i.end_ns, max(i.resident_bytes, i.read_bytes)) for i in history.between(low, high)]
        least = min(MAPPED_ACTIVE_BYTES, transfer.mapped_bytes // 16)
        run = _run_at(runs(touched, active_bytes=least), transfer.first_ns - 1, high)
        low = max(low, min(run.start_ns, transfer.first_ns)) if run else low
    inside = [
        (max(i.start_ns, low), min(i.end_ns, high), i.resident_bytes if transfer.is_mapped else i.read_bytes)
        for i in history.between(low, high)
    ]
    found = runs(inside, gap_ns=high - low)  # whatever pause there is
    if not found:
        return transfer.first_ns, transfer.last_ns
    start = found[0].start_ns
    if not transfer.is_mapped:
        start = _asked(history, low, start)
        met = threads.row(transfer.process, _READS, low, start, NEAR_NS)
        if met is not None and start - met[2] <= NEAR_NS:  # in the call that returned then: none did before
            start = met[1]
    return start, found[0].end_ns


def _asked(history: ProcessHistory, low: int, counted: int) -> int:
    """Return the start of the call whose end counted the first bytes, not before `low`.

    Memory grows while a call reads into it. Of many calls the first returns at once.
    """
    *earlier, first = history.between(low, counted + 1)
    missing, begin = first.returned_bytes - max(0, first.grown_bytes), counted
    for one in reversed(earlier):
        if missing <= 0 or one.grown_bytes <= 0 or one.end_ns < begin:
            break
        missing, begin = missing - one.grown_bytes, max(low, one.start_ns)
    return begin if missing <= (1 - MOST_SHARE) * first.returned_bytes else counted


def _reach_back(transfer: Transfer, history: ProcessHistory) -> int:
    """Return the earliest start of a read whose position had advanced at the first sample."""
    missing = transfer.looks[0].position if transfer.looks else 0
    low = transfer.first_ns
    for interval in reversed(history.between(low - BORN_NS, low)):
        if missing <= 0 or low - interval.end_ns > NEAR_NS:  # a device's limit makes it pause for a tenth of a second
            break
        missing -= interval.read_bytes
        low = interval.start_ns
    return low


def _run_at(all_runs: list[Run], low: int, high: int) -> Run | None:
    overlapping = [run for run in all_runs if run.end_ns >= low and run.start_ns <= high]
    if not overlapping:
        return None
    return Run(overlapping[0].start_ns, overlapping[-1].end_ns, sum(run.bytes for run in overlapping))
