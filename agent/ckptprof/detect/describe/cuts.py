"""Truncation: the recording started or ended, or the trace failed, during a save, so that only a part was observed.

There is no proof of that, so a save that may be a part is reported as one. A save that its marker completed, or that is
as large as earlier ones of its series, was observed to its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ckptprof.detect.describe.completeness import kinds
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.gathering import may_come_again
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.tolerances import ALL_SHARE, BESIDE_NS, HEADER_BYTES, LOOK_NS, PATIENCE_NS
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfers import QUIET_NS
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import CUT_AT_BEGIN, CUT_AT_END, Evidence

UNSEEN = {
    CUT_AT_BEGIN: "what it wrote before the recording started",
    CUT_AT_END: "what it wrote after the recording ended",
}


def cuts_of(candidate: Candidate, known: Knowledge) -> tuple[Evidence, ...]:
    """Evidence of truncation, empty if a save was observed from start to end; restores are not checked."""
    if not candidate.writes:
        return ()
    cuts = [*_at_begin(candidate, known), *_at_end(candidate, known)]
    return tuple(Evidence(name=name, weight=0.0, text=text) for name, text in cuts)


def unseen_of(cuts: tuple[Evidence, ...]) -> list[str]:
    """Limitations for each truncation."""
    return [UNSEEN[cut.name] for cut in cuts]


def _at_begin(candidate: Candidate, known: Knowledge) -> Iterator[tuple[str, str]]:
    world = known.world
    since_ns = world.header.at_ns
    older = _older(candidate, known)
    if candidate.start_ns - since_ns > PATIENCE_NS or not older:
        return
    if (part := _begun_unseen(candidate)) is not None:
        yield CUT_AT_BEGIN, f"{part.file_name} already had bytes when the recording started"
        return
    if candidate.start_ns <= known.transfers.seen_since_ns(older) + BESIDE_NS:
        yield CUT_AT_BEGIN, "it was under way at the first sample of its process"
    elif candidate.start_ns <= since_ns + CERTAIN_GAP_NS and _lacks_others(candidate, known):
        yield CUT_AT_BEGIN, "other files of it were not observed being written since the recording started"


def _older(candidate: Candidate, known: Knowledge) -> list[ProcessKey]:
    """Its writers, and the ranks they write for, that started before the recording."""
    world = known.world
    both = [(process, world.jobs.works_for(process)) for process in candidate.processes]
    ticks = world.header.at_ns * world.header.ticks_per_second // 1_000_000_000
    return [process for process in dict.fromkeys(itertools.chain.from_iterable(both)) if process[1] <= ticks]


def _begun_unseen(candidate: Candidate) -> Transfer | None:
    """Find a file whose first bytes were written before the first sample."""
    lows: dict[str, tuple[int, Transfer]] = {}
    for part in candidate.parts:
        stretch = part.stretch
        if stretch is not None:
            low = stretch[0]
        else:
            met = part.looks and part.before_ns >= part.first_ns and part.bytes < part.stored_size
            low = part.looks[0].position if met else 0
        if part.path not in lows or low < lows[part.path][0]:
            lows[part.path] = low, part
    low, part = max(lows.values(), key=lambda one: one[0])
    return part if low > HEADER_BYTES else None


def _lacks_others(candidate: Candidate, known: Knowledge) -> bool:
    """Whether files carry ranks and living ranks wrote none, or it is a copy of an unobserved original."""
    names = [part.name for part in candidate.parts]
    if all(name.alias and name.framework is not None and name.framework.copies_whole for name in names):
        return True
    wrote = {name.rank for name in names} - {None}
    jobs = known.world.jobs
    wrote_too = {jobs.rank(process) for process in candidate.processes}
    return bool(wrote) and not jobs.living_ranks(candidate.processes[0]) <= wrote | wrote_too


def _at_end(candidate: Candidate, known: Knowledge) -> Iterator[tuple[str, str]]:
    failed_ns = known.world.health.failed_ns
    if failed_ns is not None and any(_is_traced_until(part, failed_ns) for part in candidate.parts):
        yield CUT_AT_END, "the trace failed during it"
        return
    over_ns = known.world.over_ns
    if over_ns is None or all(known.world.died_ns(process) is not None for process in candidate.processes):
        return
    quiet_ns = over_ns - candidate.end_ns
    still_open = any(_is_open(part, over_ns) for part in candidate.parts)
    if quiet_ns >= (PATIENCE_NS if still_open else candidate.patience_ns):
        return
    if still_open or not _is_whole(candidate, known, quiet_ns):
        yield CUT_AT_END, f"the recording ended {max(0, quiet_ns) / 1e9:.1f} s after its last observed activity"


def _is_traced_until(part: Transfer, failed_ns: int) -> bool:
    """Whether it was traced and still open when the trace failed: its close was not observed."""
    return part.operations is not None and part.closed_ns is None and part.first_ns <= failed_ns


def _is_open(part: Transfer, over_ns: int) -> bool:
    if part.closed_ns is not None:
        return False
    return part.operations is not None or (bool(part.looks) and over_ns - part.last_ns < LOOK_NS)


def _is_whole(candidate: Candidate, known: Knowledge, quiet_ns: int) -> bool:
    if candidate.committed_ns is not None:
        return True
    earlier = sorted(one.bytes for one in known.past.complete(candidate.job, kinds(candidate)))
    if earlier:
        return candidate.bytes >= ALL_SHARE * earlier[len(earlier) // 2]
    if quiet_ns < BESIDE_NS or candidate.patience_ns > QUIET_NS or may_come_again(candidate):
        return False
    return quiet_ns >= LOOSE_GAP_NS or all(part.fact is not None and part.fact.whole for part in candidate.parts)
