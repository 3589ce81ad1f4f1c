"""Start and end of a transfer: each observation is a constraint that narrows the bounds given by its samples.

Counters of its process give the first guess. A file's birth and modification times are exact to a timer tick at any
sampling rate, but anyone may set them and a server's clock may differ: they count only inside the bounds.
"""

from __future__ import annotations

from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    BIRTH_TOLERANCE_NS,
    COMMIT_NS,
    LITTLE_SHARE,
    MOST_SHARE,
    NEARBY_NS,
    POLL_INTERVAL_NS,
    SIGNIFICANT_BYTES,
    STAMP_TOLERANCE_NS,
)
from ckptprof.detect.transfers.model.transfer import Transfer, ValueBounds
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.world.process_counters import ACTIVE_BYTES, ActivityRun, ProcessHistory, find_runs
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof.detect.world.thread_histories import ThreadHistories
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import FileFact

LATE_CLOSE_NS = 80_000_000  # a file that stays open this much longer than its last write ...
MAX_SYNC_BUSY_SHARE = 0.35  # ... while its process uses less of a core than this, is being flushed
_READ_STATES = frozenset({"data"})
MAPPED_ACTIVE_BYTES = 2 << 20  # in one interval; less is the noise of code that is paged in


def estimate_write_edges(
    transfer: Transfer, history: ProcessHistory, world: World, openings: FileOpenings
) -> tuple[int, int]:
    """Return (start, end) of a transfer that writes.

    Threads observed in a call show its end: in close(2) NFS, FUSE and S3 send the data; in fsync(2) one thread waits
    while the others continue.
    """
    clock, threads, fact = world.clock, world.threads, transfer.fact
    low, high = transfer.span
    modified = clock.mono(fact.modified_ns) if fact and not is_coarse(fact) else None
    # the first sample may come after the writing started: extend back to the last idle time of its process
    run = _run_between(history.writing_runs(), low, high if modified is None else max(high, modified))
    start, end = (run.start_ns, run.end_ns) if run else (transfer.first_ns, transfer.last_ns)
    if transfer.samples and transfer.before_ns < transfer.first_ns:
        if start < transfer.before_ns:  # bytes written before that went to other files
            start = transfer.before_ns
            if transfer.size >= SIGNIFICANT_BYTES:
                inside = (
                    (max(one.start_ns, start), one.end_ns, one.new_written_bytes) for one in history.between(start, end)
                )
                start = next((run.start_ns for run in find_runs(inside)), start)
        # its open truncated it, or it has contents
        with_data_ns = (sample.at_ns for sample in transfer.samples if sample.position or not sample.size)
        start = min(start, next(with_data_ns, start))
    opened = openings.opened_between(transfer.file, transfer.before_ns, start + STAMP_TOLERANCE_NS, only_written=True)
    opened = opened if transfer.samples else None
    if transfer.closed_ns is not None:  # later bytes of its process went to other files
        end = min(end, high)
    if fact is not None:
        latest = max(end, high)
        birth = clock.mono(fact.birth_ns) if fact.birth_ns is not None else None
        start = _birth_bounds(transfer, start, latest, birth).narrow(opened).narrow(birth, STAMP_TOLERANCE_NS).best
        written = ValueBounds(start, end, latest).narrow(modified, STAMP_TOLERANCE_NS)
        if written.best == modified:
            end = _last_call_end_ns(transfer, history, written.best, high)
        elif modified is None:
            end = _counted_end_ns(transfer, history, end, end, high)
    end = max(end, _close_ns(transfer, history, openings, end, threads))
    if fact is not None:
        synced = threads.state_end_ns(transfer.process, "sync", end)
        changed = clock.mono(fact.changed_ns)
        if fact.changed_ns != fact.modified_ns and end <= changed <= transfer.fact_at_ns + STAMP_TOLERANCE_NS:
            end = changed  # it was renamed
        end = _sync_end_ns(transfer, history, end, synced, threads)
    named = transfer.name_given_ns or end
    return start, max(start, named if end <= named <= end + COMMIT_NS else end)


def _birth_bounds(transfer: Transfer, start: int, latest: int, birth: int | None) -> ValueBounds:
    """Return the bounds in which a file's birth is the start of its writing."""
    latest = min(latest, transfer.first_ns)
    is_uncertain = birth is None and transfer.first_ns == transfer.last_ns and transfer.size >= SIGNIFICANT_BYTES
    if transfer.is_credited and not is_uncertain:  # its start is known, also of a rewrite
        return ValueBounds(transfer.first_ns, max(start, transfer.first_ns), latest)
    # without a sample before the first it may have been open, unobserved
    unobserved_ns = 0 if transfer.before_ns < transfer.first_ns else BIRTH_TOLERANCE_NS
    return ValueBounds(min(start, transfer.before_ns) - unobserved_ns, start, latest)


def _close_ns(
    transfer: Transfer, history: ProcessHistory, openings: FileOpenings, end: int, threads: ThreadHistories
) -> int:
    """Return when a file written until `end` was closed: by inotify, else by a thread observed in close(2)."""
    sent_until_ns = threads.state_end_ns(transfer.process, "close", end)
    closed = openings.closed_between(transfer.file, end - STAMP_TOLERANCE_NS, max(end, sent_until_ns or 0) + AT_ONCE_NS)
    was_polled = transfer.samples and transfer.last_ns <= end + STAMP_TOLERANCE_NS
    if closed is None and sent_until_ns is None and was_polled and transfer.closed_ns is not None:
        closed = openings.closed_between(transfer.file, end, transfer.closed_ns + STAMP_TOLERANCE_NS)
        closed = closed if closed is not None and _is_synced(transfer, history, end, closed, threads) else None
    if closed is not None or sent_until_ns is None:
        return closed or end
    later = history.between(end + STAMP_TOLERANCE_NS, sent_until_ns)
    wrote_on = any(one.new_written_bytes >= ACTIVE_BYTES for one in later)
    return end if wrote_on else sent_until_ns  # it is the last written file


def birth_and_write_ns(fact: FileFact, clock: RecordingClock) -> tuple[int, int]:
    """Return when a file was created and last written, by CLOCK_MONOTONIC; without a birth both are the last."""
    modified_ns = clock.mono(fact.modified_ns)
    return (clock.mono(fact.birth_ns) if fact.birth_ns is not None else modified_ns), modified_ns


def is_born_within(fact: FileFact | None, edges: tuple[int, int], slack_ns: int) -> bool:
    """Return True if a file was born between the edges of a transfer, which then wrote all of it."""
    if fact is None or fact.birth_ns is None:
        return False
    return 0 <= fact.modified_ns - fact.birth_ns <= edges[1] - edges[0] + slack_ns


def is_coarse(fact: FileFact) -> bool:
    """Return True if a file's stamps are whole seconds, truncated, as on S3: these show no edges."""
    return not fact.modified_ns % 1_000_000_000 and not fact.changed_ns % 1_000_000_000


def _last_call_end_ns(transfer: Transfer, history: ProcessHistory, modified_ns: int, high: int) -> int:
    """Return when the last write ended: a stamp marks the start of the last write(2), which may write all.

    Only for a file observed open, and while it was: its process may have written elsewhere otherwise. A server may
    stamp a file when it is opened (rclone).
    """
    if not transfer.samples:
        return modified_ns
    later = [one for one in history.between(modified_ns, high) if one.start_ns >= modified_ns]
    dirtied = find_runs(((one.start_ns, one.end_ns, one.new_written_bytes) for one in later), gap_ns=LATE_CLOSE_NS)
    is_next = bool(dirtied) and dirtied[0].start_ns - modified_ns <= LATE_CLOSE_NS
    return _counted_end_ns(transfer, history, modified_ns, dirtied[0].end_ns if is_next else modified_ns, high)


def _counted_end_ns(transfer: Transfer, history: ProcessHistory, since_ns: int, end: int, high: int) -> int:
    """Return the end of the call that wrote what no call had written before: calls are counted at their end.

    `end` if nothing is missing, or the file was not observed open.
    """
    if not transfer.samples or transfer.fact is None:
        return end
    size = transfer.fact.size
    later = [one for one in history.between(since_ns, high) if one.start_ns >= since_ns]
    before = history.between(min(transfer.samples[0].at_ns, since_ns), since_ns)
    missing = size - transfer.samples[0].size - sum(one.written_bytes for one in before)
    for run in find_runs((one.start_ns, one.end_ns, one.written_bytes) for one in later):
        if missing > LITTLE_SHARE * size and run.start_ns - end > LATE_CLOSE_NS:
            end = run.end_ns
        missing -= run.bytes
    return end


def _sync_end_ns(
    transfer: Transfer, history: ProcessHistory, end: int, synced_ns: int | None, threads: ThreadHistories
) -> int:
    """Return when a file written until `end` was synced; `synced_ns`: until when a thread synced any file."""
    closed_ns, last_ns = transfer.closed_ns, transfer.last_ns
    if closed_ns is not None and last_ns - end > LATE_CLOSE_NS and _is_synced(transfer, history, end, last_ns, threads):
        end = (last_ns + closed_ns) // 2
    closed_ns = last_ns if transfer.is_credited else closed_ns
    if synced_ns is not None and closed_ns is not None and closed_ns < synced_ns:
        end = max(end, synced_ns)  # of all files, after it was closed
    return end


def _is_synced(transfer: Transfer, history: ProcessHistory, low: int, high: int, threads: ThreadHistories) -> bool:
    """Whether a file written until `low` was then synced until `high`; else its process did not close it."""
    busy = [i.busy for i in history.between(low + STAMP_TOLERANCE_NS, high) if i.busy >= 0]
    synced_ns = threads.state_end_ns(transfer.process, "sync", low)
    is_sampled = bool(busy) and threads.was_sampled(transfer.process, low, high)
    is_synced = not is_sampled if synced_ns is None else high - synced_ns <= POLL_INTERVAL_NS
    return is_synced and sum(busy) <= MAX_SYNC_BUSY_SHARE * len(busy)


def estimate_read_edges(
    transfer: Transfer, history: ProcessHistory, openings: FileOpenings, threads: ThreadHistories
) -> tuple[int, int]:
    """Return (start, end) of a transfer that reads."""
    low, high = transfer.span
    if transfer.before_ns >= transfer.first_ns and not transfer.is_mapped:
        low = _earliest_start_ns(transfer, history)
    until_ns = transfer.first_ns + STAMP_TOLERANCE_NS  # a sample is later than its frame
    opened = openings.opened_between(transfer.file, low, until_ns)
    low = low if opened is None else min(opened, transfer.first_ns)
    if transfer.is_mapped:  # mappings are read seldom: the bounds may include an earlier mapping
        touched = [(i.start_ns, i.end_ns, max(i.resident_bytes, i.read_bytes)) for i in history.between(low, high)]
        min_bytes = min(MAPPED_ACTIVE_BYTES, transfer.mapped_bytes // 16)
        run = _run_between(find_runs(touched, active_bytes=min_bytes), transfer.first_ns - 1, high)
        low = max(low, min(run.start_ns, transfer.first_ns)) if run else low
    inside = [
        (max(i.start_ns, low), min(i.end_ns, high), i.resident_bytes if transfer.is_mapped else i.read_bytes)
        for i in history.between(low, high)
    ]
    found = find_runs(inside, gap_ns=high - low)  # any pause
    if not found:
        return transfer.first_ns, transfer.last_ns
    start = found[0].start_ns
    if not transfer.is_mapped:
        start = _call_start_ns(history, low, start)
        read_state = threads.state_span(transfer.process, _READ_STATES, low, start, NEARBY_NS)
        if read_state is not None and start - read_state[2] <= NEARBY_NS:  # in the call that returned then
            start = read_state[1]
    return start, found[0].end_ns


def _call_start_ns(history: ProcessHistory, low: int, counted: int) -> int:
    """Return the start of the call whose end counted the first bytes, not before `low`.

    Memory grows while a call reads into it. Of many calls the first returns at once.
    """
    *earlier, first = history.between(low, counted + 1)
    missing, start_ns = first.returned_bytes - max(0, first.grown_bytes), counted
    for one in reversed(earlier):
        if missing <= 0 or one.grown_bytes <= 0 or one.end_ns < start_ns:
            break
        missing, start_ns = missing - one.grown_bytes, max(low, one.start_ns)
    return start_ns if missing <= (1 - MOST_SHARE) * first.returned_bytes else counted


def _earliest_start_ns(transfer: Transfer, history: ProcessHistory) -> int:
    """Return the earliest start of a read whose position had advanced at the first sample."""
    missing = transfer.samples[0].position if transfer.samples else 0
    low = transfer.first_ns
    for interval in reversed(history.between(low - BIRTH_TOLERANCE_NS, low)):
        if missing <= 0 or low - interval.end_ns > NEARBY_NS:  # a device's limit makes it pause for a tenth of a second
            break
        missing -= interval.read_bytes
        low = interval.start_ns
    return low


def _run_between(all_runs: list[ActivityRun], low: int, high: int) -> ActivityRun | None:
    overlapping = [run for run in all_runs if run.end_ns >= low and run.start_ns <= high]
    if not overlapping:
        return None
    return ActivityRun(overlapping[0].start_ns, overlapping[-1].end_ns, sum(run.bytes for run in overlapping))
