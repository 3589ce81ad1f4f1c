"""How a write stands among what its job wrote before: a series of saves, or the shards of a data set."""

from __future__ import annotations

import itertools
import re
import statistics

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import LIKE, PastEvent, shape_of
from ckptprof.detect.events.signal import Found
from ckptprof.detect.events.traits import biggest, candidate_bytes, framework_of, is_weak, shapes
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.words import NUMBERED_PIECE

_TIMES = 2  # that a recurrence counts
_APART_NS = 500_000_000  # pieces of one thing follow sooner
_DENSE = 2.0  # numbers up to the highest, for each file
_EVEN = 0.35  # spread of the periods, over their mean
_PAUSE = 0.5  # of a period is written, at most
_WINDOW = 8  # events
_RAPID = 3  # events
_RAPID_NS = 1_000_000_000  # from one to the next
_ALWAYS = 0.8  # of the time
_ALWAYS_NS = 10_000_000_000
_MANY = 4
_SAME = 0.7
_NUMBERS = re.compile(r"\d{1,12}")


def recurs(candidate: Candidate, known: Knowledge) -> Found | None:
    """Return how often the like of it came before: a file of the same shape, a size that differs little."""
    times = len(_alike(candidate, known)) if candidate.writes and not is_row_of_data(candidate, known) else 0
    return Found(str(times), strength=min(_TIMES, times)) if times else None


def regular(candidate: Candidate, known: Knowledge) -> str | None:
    """Return the seconds of even periods, most of each without writing: between its saves a trainer trains."""
    events = _alike(candidate, known)[-_WINDOW:] if candidate.writes else []
    if len(events) < 2 or is_row_of_data(candidate, known):
        return None
    starts = [*(event.start_ns for event in events), candidate.start_ns]
    periods = [later - earlier for earlier, later in itertools.pairwise(starts)]
    mean_ns = statistics.fmean(periods)
    took_ns = statistics.fmean(event.end_ns - event.start_ns for event in events)
    if min(periods) <= 0 or statistics.pstdev(periods) > _EVEN * mean_ns or took_ns > _PAUSE * mean_ns:
        return None
    return f"{mean_ns / 1e9:.0f}"


def overwrites(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether the same file is written anew: only the last state is wanted."""
    own = set(biggest(candidate))
    return candidate.writes and any(event.paths & own for event in _alike(candidate, known))


def rotates(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether the job deleted older ones of the same shape: only the last few states are wanted."""
    return candidate.writes and known.past.rotated(candidate.job, shapes(candidate)) > 0


def shards(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether numbered pieces go on counting: those of a checkpoint begin anew with each save."""
    return candidate.writes and _counts(candidate, known)


def is_row_of_data(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether that it comes again says nothing: nothing calls it a checkpoint, and data sets grow so, too."""
    if _counts(candidate, known):
        return True
    turns = _takes_turns(candidate, known) or _follows_at_once(candidate, known)
    return turns and is_nameless(candidate, known)


def is_nameless(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether no word, step, framework, marker, rank or care for old ones tells it from data."""
    if _is_known(candidate, known) or known.world.jobs.rank(candidate.processes[0]) is not None:
        return False
    if known.past.rotated(candidate.job, shapes(candidate)):
        return False
    hints = sum(part.bytes for part in candidate.parts if part.name.hint or part.name.certain)
    return hints * 2 < candidate_bytes(candidate)


def _counts(candidate: Candidate, known: Knowledge) -> bool:
    if _is_known(candidate, known):
        return False
    if _is_row(candidate):
        return True
    events = known.past.series(candidate.job, shapes(candidate), writes=True)
    before = {path for event in events for path in event.paths}
    own = set(biggest(candidate, 64))
    if not before or own & before or known.past.rotated(candidate.job, shapes(candidate)):
        return False
    if not {_folder(path) for path in before} >= {_folder(path) for path in own}:
        return False
    pieces = [path for path in own if NUMBERED_PIECE.search(path.rpartition("/")[2])]
    if len(pieces) * 2 > len(own):
        return True
    writers = frozenset(candidate.processes).union(*(event.processes for event in events))
    if len(writers) == 1:
        return False  # one process may well count its states one by one
    return is_nameless(candidate, known) and (_is_dense(own | before) or _follow(own, before))


def _is_dense(paths: set[str]) -> bool:
    """Return whether the numbers of the files leave few out: steps are counted in hundreds."""
    numbers: dict[str, set[int]] = {}
    for path in paths:
        number = _number(path)
        if number is not None:
            numbers.setdefault(_folder(path), set()).add(number)
    return bool(numbers) and all(
        len(known) > 1 and max(known) - min(known) < _DENSE * len(known) for known in numbers.values()
    )


def _follow(own: set[str], before: set[str]) -> bool:
    """Return whether most files have the number after that of an earlier one."""
    known = {(_folder(path), number) for path in before if (number := _number(path)) is not None}
    after = [1 for path in own if (number := _number(path)) is not None and (_folder(path), number - 1) in known]
    return len(after) * 2 > len(own)


def _number(path: str) -> int | None:
    found = _NUMBERS.findall(path.rpartition("/")[2])
    return int(found[-1]) if found else None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_row(candidate: Candidate) -> bool:
    """Return whether one process alone wrote many files of one shape, one after the other."""
    rows: dict[tuple[object, str], int] = {}
    for part in candidate.parts:
        if not part.name.certain and part.name.rank is None and not part.name.hint:
            key = (part.process, shape_of(part.path))
            rows[key] = rows.get(key, 0) + 1
    return any(count >= _MANY for count in rows.values())


def _takes_turns(candidate: Candidate, known: Knowledge) -> bool:
    if known.world.jobs.rank(candidate.processes[0]) is not None:
        return False
    events = known.past.series(candidate.job, shapes(candidate), writes=True)[-_WINDOW:]
    crews = [*(event.processes for event in events), frozenset(candidate.processes)]
    everybody: frozenset[ProcessKey] = frozenset().union(*crews)
    times = {process: sum(1 for crew in crews if process in crew) for process in everybody}
    if len(crews) < 3 or len(everybody) < 2 or max(times.values()) < 2:
        return len(crews) > 1 and len(everybody) > _MANY and not crews[-1] & crews[-2]
    likeness = statistics.fmean(
        len(earlier & later) / len(earlier | later) for earlier, later in itertools.pairwise(crews)
    )
    return likeness < _SAME


def continuous(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether its job hardly ever stops writing the like."""
    if not candidate.writes:
        return False
    events = known.past.series(candidate.job, shapes(candidate), writes=True)[-_WINDOW:]
    if len(events) < 2:
        return False
    spans = sorted([*((event.start_ns, event.end_ns) for event in events), (candidate.start_ns, candidate.end_ns)])
    written_ns, reached_ns = 0, spans[0][0]
    for start_ns, end_ns in spans:
        written_ns += max(0, end_ns - max(start_ns, reached_ns))
        reached_ns = max(reached_ns, end_ns)
    whole_ns = reached_ns - spans[0][0]
    return whole_ns >= _ALWAYS_NS and written_ns >= _ALWAYS * whole_ns


def rapid(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether one follows the other without a pause, each a little: nobody saves a state so often."""
    if not candidate.writes or not is_nameless(candidate, known):
        return False
    events = known.past.series(candidate.job, shapes(candidate), writes=True)[-_RAPID:]
    return len(events) >= _RAPID and candidate.start_ns - events[0].start_ns <= _RAPID * _RAPID_NS


def _follows_at_once(candidate: Candidate, known: Knowledge) -> bool:
    events = known.past.series(candidate.job, shapes(candidate), writes=True)[-1:]
    return any(candidate.start_ns - event.start_ns <= _RAPID_NS for event in events)


def _alike(candidate: Candidate, known: Knowledge) -> list[PastEvent]:
    size = candidate_bytes(candidate)
    events = known.past.series(candidate.job, shapes(candidate), writes=True)
    before_ns = candidate.start_ns - _APART_NS
    return [event for event in events if abs(event.bytes - size) <= LIKE * max(size, 1) and event.end_ns <= before_ns]


def _is_known(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether its names are beyond doubt: those of a framework, or a step's."""
    return not is_weak(framework_of(candidate, known)) or any(part.name.commit for part in candidate.parts)
