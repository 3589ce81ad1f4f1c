"""A write compared with its job's earlier ones: a series of saves, or the shards of a data set."""

from __future__ import annotations

import itertools
import re
import statistics

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.event_history import HistoryEvent
from ckptprof.detect.events.grouping import is_file_series
from ckptprof.detect.events.signal_values import SignalMatch
from ckptprof.detect.tolerances import AT_ONCE_NS, FEW, HEADER_BYTES, is_similar_size
from ckptprof.detect.world.host.known_folders import parent_folder
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.name_words import NUMBERED_PIECE

_MAX_RECURRENCES = 2  # more recurrences count no more
_MAX_PERIOD_SPREAD = 0.35  # spread of the periods, over their mean
_SENT_SIZE_TOLERANCE = 0.002  # of sent data: a state has the same tensors each time, pictures vary in size
_NUMBERS = re.compile(r"\d{1,12}")


def match_recurrence(event: EventContext) -> SignalMatch | None:
    """Match earlier events of the job with files of the same shape and similar size."""
    times = len(_similar_earlier(event))
    often = "once" if times == 1 else f"{times} times"
    return SignalMatch(often, strength=min(_MAX_RECURRENCES, times)) if times and not is_row_of_data(event) else None


def period_text(event: EventContext) -> str | None:
    """Return the seconds of even periods, most of each without writing: a trainer trains between its saves."""
    period_ns = even_period_ns(_similar_earlier(event), event)
    return None if period_ns is None or is_row_of_data(event) else f"{period_ns / 1e9:.0f}"


def even_period_ns(earlier: list[HistoryEvent], last: EventContext | HistoryEvent, most: float = 0.5) -> float | None:
    """Return the mean of even periods in ns; None: uneven, fewer than two, or more than `most` of each in writing.

    A slow save makes its period longer, not the pause after it.
    """
    events = earlier[-FEW:]
    if len(events) < 2:
        return None
    pairs = [*itertools.pairwise((*events, last))]
    periods = [after.start_ns - before.start_ns for before, after in pairs]
    pauses = [after.start_ns - before.end_ns for before, after in pairs]
    mean_ns, duration_ns = statistics.fmean(periods), min(one.end_ns - one.start_ns for one in events)
    is_even = any(statistics.pstdev(row) <= _MAX_PERIOD_SPREAD * statistics.fmean(row) for row in (periods, pauses))
    return mean_ns if is_even and duration_ns <= most * mean_ns else None


def overwrites(event: EventContext) -> bool:
    """Equal path of an earlier event, rewritten: only the last state is needed."""
    return any(not earlier.paths.isdisjoint(event.largest_paths) for earlier in _similar_earlier(event))


def rotates(event: EventContext) -> bool:
    """Older files of the same shape were deleted by the job: only the last few states are needed."""
    return event.writes and event.is_rotated


def was_resumed(event: EventContext) -> bool:
    """Later run of its program that restored the last event of this series."""
    return event.writes and event.known.history.was_resumed(event.history_event)


def is_numbered_onwards(event: EventContext) -> bool:
    """Numbered pieces that continue counting: those of a checkpoint restart with each save."""
    is_candidate = event.writes and not _has_certain_name(event)
    return is_candidate and (is_file_series(event.candidate) or _continues_numbering(event))


def is_row_of_data(event: EventContext) -> bool:
    """Recurrence without weight: no name is a checkpoint's, and data sets grow in the same way.

    Results of a model come from the training process with each evaluation: that rhythm is no sign of a state.
    """
    is_soon = bool(event.series) and event.start_ns - event.series[-1].start_ns <= 2 * AT_ONCE_NS
    return is_numbered_onwards(event) or event.is_named_as_result or (is_soon and _is_nameless(event))


def _is_nameless(event: EventContext) -> bool:
    """Return True if no word, step, framework, marker, rank or clean-up distinguishes it from data."""
    return not (_has_certain_name(event) or event.has_rank or event.is_rotated or event.has_word_or_step)


def _has_certain_name(event: EventContext) -> bool:
    return not event.has_weak_name or any(part.name.commit for part in event.parts)


def _similar_earlier(event: EventContext) -> list[HistoryEvent]:
    """Return the earlier ones of its series of similar size, or of the same files: a state may grow.

    Sent data have no name that shows more: there, only the last ones count, consecutive, of one size and not rejected.
    """
    similar = [
        earlier
        for earlier in (event.series if event.writes else ())
        if (is_similar_size(earlier.bytes, event.bytes) or not earlier.paths.isdisjoint(event.largest_paths))
        and earlier.end_ns <= event.start_ns - AT_ONCE_NS
    ]
    return _latest_of_one_size(event, similar) if event.candidate.is_sent else similar


def _latest_of_one_size(event: EventContext, earlier: list[HistoryEvent]) -> list[HistoryEvent]:
    """Return the last ones of this size, within what samples miss per process and address."""
    endpoints = {(part.process, place) for part in event.parts if part.sending for place in part.sending.endpoints}
    tolerance_bytes = _SENT_SIZE_TOLERANCE * event.bytes + HEADER_BYTES * len(endpoints)

    def is_same(one: HistoryEvent) -> bool:
        return not one.is_rejected and abs(one.bytes - event.bytes) <= tolerance_bytes

    return list(itertools.takewhile(is_same, reversed(earlier)))[::-1]


def _continues_numbering(event: EventContext) -> bool:
    """Return True if its files are in the folder of earlier ones and continue their numbers."""
    before = {path for earlier in event.series for path in earlier.paths}
    own = {part.path for part in event.largest_parts}
    if not before or own & before or event.is_rotated:
        return False
    if not set(map(parent_folder, before)) >= set(map(parent_folder, own)):
        return False
    if sum(1 for path in own if NUMBERED_PIECE.search(path.rpartition("/")[2])) * 2 > len(own):
        return True
    if _has_one_writer(event):
        return False  # one process may number its states consecutively
    return _is_nameless(event) and _has_next_numbers(own, before)


def _has_one_writer(event: EventContext) -> bool:
    """Return True if one process wrote its series, or forked a child for each, which ended before the next wrote."""
    jobs, ended, own = event.world.jobs, event.world.ended, frozenset(event.processes)
    earlier = frozenset[ProcessKey]().union(*(one.processes for one in event.series)) - own
    known = [one for one in earlier if jobs.info(one) is not None]  # the others ended long ago
    makers, start_ns = {jobs.rank_process(one) for one in (*own, *known)}, event.start_ns
    are_over = all(ended.get(one, start_ns) < start_ns for one in known)
    return len(own) == len(makers) == 1 and are_over and (not earlier or makers.isdisjoint(own))


def _has_next_numbers(own: set[str], before: set[str]) -> bool:
    known = {(parent_folder(path), number) for path in before if (number := _last_number(path)) is not None}
    after = [
        1 for path in own if (number := _last_number(path)) is not None and (parent_folder(path), number - 1) in known
    ]
    return len(after) * 2 > len(own)


def _last_number(path: str) -> int | None:
    found = _NUMBERS.findall(path.rpartition("/")[2])
    return int(found[-1]) if found else None
