"""Truncation: the recording started or ended, or the trace failed, during a save, so that only a part was observed.

There is no proof of that, so a save that may be a part is reported as one. A save that its marker completed, or that is
as large as earlier ones of its series, was observed to its end.

A hang: a writer has an unfinished file open, and neither writes nor computes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ckptprof.detect.describe.completeness import lacks_only_bytes, large_file_shapes
from ckptprof.detect.describe.writers import name_writer
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.gathering import may_be_written_twice
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.tolerances import (
    ALL_SHARE,
    CONCURRENT_NS,
    HEADER_BYTES,
    LITTLE_SHARE,
    PATIENCE_NS,
    POLL_INTERVAL_NS,
    SIGNIFICANT_BYTES,
)
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfer_tracker import QUIET_NS
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import CUT_AT_END, CUT_AT_START, Evidence
from ckptprof.units import size

LIMITATIONS = {
    CUT_AT_START: "what it wrote before the recording started",
    CUT_AT_END: "what it wrote after the recording ended",
}
HANG_NS = 20_000_000_000  # no byte for so long; it is named within 30 s
_STATES = {"T": "was stopped by a signal", "t": "was stopped by a debugger"}
_CALLS = {"data": "read or write", "sync": "sync", "close": "close"}


def find_truncations(candidate: Candidate, known: Knowledge) -> tuple[Evidence, ...]:
    """Evidence of truncation, empty if a save was observed from start to end; restores are not checked."""
    if not candidate.writes:
        return ()
    found = [*_at_start(candidate, known), *_at_end(candidate, known)]
    return tuple(Evidence(name=name, weight=0.0, text=text) for name, text in found)


def _at_start(candidate: Candidate, known: Knowledge) -> Iterator[tuple[str, str]]:
    world = known.world
    since_ns = world.header.at_ns
    older = _processes_before_recording(candidate, known)
    if candidate.start_ns - since_ns > PATIENCE_NS or not older:
        return
    if (part := _started_unobserved(candidate)) is not None:
        yield CUT_AT_START, f"{part.file_name} already had bytes when the recording started"
        return
    if candidate.start_ns <= known.transfers.observed_since_ns(older) + CONCURRENT_NS:
        yield CUT_AT_START, "it was under way at the first sample of its process"
    elif candidate.start_ns <= since_ns + CERTAIN_GAP_NS and _is_part_of_unobserved(candidate, known):
        yield CUT_AT_START, "other files of it were not observed being written since the recording started"


def _processes_before_recording(candidate: Candidate, known: Knowledge) -> list[ProcessKey]:
    """Its writers, and the ranks they write for, that started before the recording."""
    world = known.world
    writers_and_ranks = [(process, world.jobs.rank_process(process)) for process in candidate.processes]
    ticks = world.header.at_ns * world.header.ticks_per_second // 1_000_000_000
    return [
        process for process in dict.fromkeys(itertools.chain.from_iterable(writers_and_ranks)) if process[1] <= ticks
    ]


def _started_unobserved(candidate: Candidate) -> Transfer | None:
    """Find a file whose first bytes were written before the first sample."""
    first_offsets: dict[str, tuple[int, Transfer]] = {}
    for part in candidate.parts:
        stretch = part.offset_range
        if stretch is not None:
            first_offset = stretch[0]
        else:
            is_partial = part.samples and part.before_ns >= part.first_ns and part.bytes < part.stored_size
            first_offset = part.samples[0].position if is_partial else 0
        if part.path not in first_offsets or first_offset < first_offsets[part.path][0]:
            first_offsets[part.path] = first_offset, part
    first_offset, part = max(first_offsets.values(), key=lambda one: one[0])
    return part if first_offset > HEADER_BYTES else None


def _is_part_of_unobserved(candidate: Candidate, known: Knowledge) -> bool:
    """Whether files carry ranks and living ranks wrote none, or it is a copy of an unobserved original."""
    names = [part.name for part in candidate.parts]
    if all(name.alias and name.framework is not None and name.framework.copies_whole for name in names):
        return True
    ranks_in_names = {name.rank for name in names} - {None}
    jobs = known.world.jobs
    writing_ranks = {jobs.rank(process) for process in candidate.processes}
    return (
        bool(ranks_in_names) and not jobs.local_living_ranks(candidate.processes[0]) <= ranks_in_names | writing_ranks
    )


def _at_end(candidate: Candidate, known: Knowledge) -> Iterator[tuple[str, str]]:
    failed_ns = known.world.health.failed_ns
    traced = [part for part in candidate.parts if part.operations is not None and part.closed_ns is None]
    if failed_ns is not None and any(part.first_ns <= failed_ns for part in traced):  # its close was not observed
        yield CUT_AT_END, "the trace failed during it"
        return
    recording_end_ns = known.world.recording_end_ns
    if recording_end_ns is None or all(known.world.died_ns(process) is not None for process in candidate.processes):
        return
    quiet_ns = recording_end_ns - candidate.end_ns
    has_open_file = any(_is_open(part, recording_end_ns) for part in candidate.parts)
    if quiet_ns >= (PATIENCE_NS if has_open_file else candidate.patience_ns):
        return
    if has_open_file or not _is_complete(candidate, known, quiet_ns):
        yield CUT_AT_END, f"the recording ended {max(0, quiet_ns) / 1e9:.1f} s after its last observed activity"


def _is_open(part: Transfer, recording_end_ns: int) -> bool:
    if part.closed_ns is not None:
        return False
    return part.operations is not None or (bool(part.samples) and recording_end_ns - part.last_ns < POLL_INTERVAL_NS)


def _is_complete(candidate: Candidate, known: Knowledge, quiet_ns: int) -> bool:
    if candidate.committed_ns is not None:
        return True
    earlier = sorted(one.bytes for one in known.history.complete_saves(candidate.job, large_file_shapes(candidate)))
    if earlier:
        return candidate.bytes >= ALL_SHARE * earlier[len(earlier) // 2]
    if quiet_ns < CONCURRENT_NS or candidate.patience_ns > QUIET_NS or may_be_written_twice(candidate):
        return False
    return quiet_ns >= LOOSE_GAP_NS or all(part.fact is not None and part.fact.is_complete for part in candidate.parts)


def find_hang(candidate: Candidate, known: Knowledge) -> str | None:
    """Describe the writer that stopped first; None: the save moves, or may have ended."""
    if candidate.hang is None:
        candidate.hang = (_find_hang(candidate, known),)
    return candidate.hang[0]


def _find_hang(candidate: Candidate, known: Knowledge) -> str | None:
    now_ns = known.world.counted_ns
    if not candidate.writes or candidate.is_sent or candidate.bytes < SIGNIFICANT_BYTES:
        return None
    open_parts = [part for part in candidate.parts if part.closed_ns is None]
    last_bytes_ns = [_last_byte_ns(part) for part in open_parts]
    if now_ns - max([candidate.end_ns if not open_parts else 0, *last_bytes_ns]) < HANG_NS:
        return None
    hung = [
        (since_ns, part, why)
        for since_ns, part in zip(last_bytes_ns, open_parts, strict=True)
        if (why := _why_hung(part, since_ns, candidate, known, now_ns)) is not None
    ]
    if not hung:
        return None
    _, part, why = min(hung, key=lambda one: one[0])
    who = name_writer(part.process, candidate, known.world.jobs)
    others = len(set(candidate.processes) - {one.process for _, one, _ in hung})
    ended = f"; {others} other process{'es have' if others > 1 else ' has'} ended its part" if others else ""
    return f"{who} {why}, {size(part.bytes)} into {part.file_name}{ended}"


def _last_byte_ns(part: Transfer) -> int:
    if part.operations is not None or not part.samples:
        return part.active_ns
    *_, last = part.samples
    since_ns = last.at_ns
    for sample in reversed(part.samples):
        if sample[1:] != last[1:]:
            break
        since_ns = sample.at_ns
    return since_ns


def _why_hung(part: Transfer, since_ns: int, candidate: Candidate, known: Knowledge, now_ns: int) -> str | None:
    world = known.world
    if world.died_ns(part.process) is not None:
        return None
    stat = world.histories[part.process].last_stat
    if stat is not None and stat.state in _STATES:
        return _STATES[stat.state]
    for call, text in _CALLS.items():
        until_ns = world.threads.state_end_ns(part.process, call, since_ns)
        if until_ns is not None and now_ns - until_ns <= 2 * POLL_INTERVAL_NS:
            return f"is in a {text} that does not return"
    used = world.usage.totals(part.process, since_ns, now_ns)
    is_idle = used is not None and used.busy < LITTLE_SHARE
    return "is idle" if is_idle and lacks_only_bytes(candidate, known) else None
