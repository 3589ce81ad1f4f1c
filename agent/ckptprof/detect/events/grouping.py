"""From parts to candidates: which files are one save or one restore, by their names and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.event_history import shape_of
from ckptprof.detect.tolerances import (
    CONCURRENT_NS,
    FEW,
    HEADER_BYTES,
    MANY,
    MAX_PER_ITEM,
    PATIENCE_NS,
    SIMILAR_SHARE,
    is_similar_size,
)
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.host.known_folders import parent_folder

LOOSE_GAP_NS = 2_000_000_000  # between files that only share a folder, or folders written in one go
CERTAIN_GAP_NS = 10_000_000_000  # between files whose names belong together: gather, barriers
_PICKLING_FACTOR = 4  # times the duration of writing it

PauseFunction = Callable[[Candidate, Candidate], int]  # the longest pause between two candidates


def _gap_ns(earlier: Candidate, later: Candidate) -> int:
    return later.start_ns - earlier.end_ns


def group_parts(job: str, parts: list[Transfer], pause_ns: PauseFunction = _gap_ns) -> list[Candidate]:
    """Split the parts of one job and direction into candidates, at pauses in which the job does not read."""
    candidates: list[Candidate] = []
    by_unit: dict[str, list[Candidate]] = {}
    for part in sorted(parts, key=lambda part: (part.start_ns, part.end_ns)):
        # a log that grows alongside checkpoints is none of them, and may never end
        unit = f"{part.path}#appended" if _is_log(part) else part.name.directory
        alike = by_unit.setdefault(unit, [])
        for candidate in alike[: -FEW - 1 : -1]:
            if _belongs(candidate, part):
                candidate.add(part)
                break
        else:
            started = Candidate(job, part.writes)
            started.add(part)
            alike.append(started)
            candidates.append(started)
    return _join_candidates([piece for candidate in candidates for piece in _split(candidate)], pause_ns)


def _is_log(part: Transfer) -> bool:
    return part.append and part.name.framework is None and not part.name.hint


def _belongs(candidate: Candidate, part: Transfer) -> bool:
    gap_ns = part.start_ns - candidate.end_ns
    if candidate.repeats(part) and _starts_another_event(part, gap_ns):
        return False
    step, steps = part.name.step, candidate.steps
    if step is not None and steps and step not in steps:
        return gap_ns <= CONCURRENT_NS
    return gap_ns <= _max_gap_ns(candidate, part)


def _starts_another_event(part: Transfer, gap_ns: int) -> bool:
    """Decide whether a repeated file starts another event; a restore reads small files more than once."""
    return part.writes or (gap_ns > LOOSE_GAP_NS and part.size_in_use > HEADER_BYTES)


def _max_gap_ns(candidate: Candidate, part: Transfer) -> int:
    """Return how long after a candidate's last sign a part of the same directory still belongs to it."""
    if part.name.is_certain:
        return PATIENCE_NS if part.writes and part.name.step is not None else CERTAIN_GAP_NS
    same_step = part.name.step is not None and part.name.step in candidate.steps
    return CERTAIN_GAP_NS if same_step else LOOSE_GAP_NS


def _split(candidate: Candidate) -> list[Candidate]:
    """Split a candidate by step, if its numbers are steps: those of parts count from zero or one."""
    if len(candidate.steps) < 2 or min(candidate.steps) <= 1:
        return [candidate]
    pieces: list[Candidate] = []
    for part in candidate.parts:
        step = part.name.step
        if not pieces or (step is not None and pieces[-1].steps and step not in pieces[-1].steps):
            pieces.append(Candidate(candidate.job, candidate.writes))
        pieces[-1].add(part)
    return pieces


def _join_candidates(candidates: list[Candidate], pause_ns: PauseFunction) -> list[Candidate]:
    """Join candidates that are one save: several folders, further names of the same, markers alongside."""
    joined: list[Candidate] = []
    joinable: list[Candidate] = []  # those that a later one may still belong to
    for candidate in sorted(candidates, key=lambda candidate: candidate.start_ns):
        is_unrelated = _is_unrelated(candidate)
        joinable = [earlier for earlier in joinable if candidate.start_ns - earlier.end_ns <= CERTAIN_GAP_NS][-FEW:]
        matching = (
            ()
            if is_unrelated
            else (earlier for earlier in reversed(joinable) if _is_same_save(earlier, candidate, pause_ns))
        )
        if (earlier_of_same := next(iter(matching), None)) is not None:
            for part in candidate.parts:
                earlier_of_same.add(part)
        else:
            joined.append(candidate)
            joinable += [] if is_unrelated else [candidate]
    return joined


def _is_same_save(earlier: Candidate, later: Candidate, pause_ns: PauseFunction) -> bool:
    if earlier.steps and later.steps and earlier.steps.isdisjoint(later.steps):
        return False
    if is_file_series(earlier) is not is_file_series(later):
        return False  # samples stored during training
    gap_ns = _gap_ns(earlier, later)
    if any(_starts_another_event(part, gap_ns) and earlier.repeats(part) for part in later.parts):
        return False
    if earlier.steps and later.steps:
        is_related = (earlier.is_certain and later.is_certain) or _is_nearby(earlier, later)
        return is_related and gap_ns <= LOOSE_GAP_NS
    if not _is_nearby(earlier, later):
        return False
    if later.writes and all(part.name.commit for part in later.parts):
        return gap_ns <= CERTAIN_GAP_NS
    if not _is_known(earlier) or not _is_known(later):  # it is in the other's folder, or not part of it
        known, unknown = (later, earlier) if _is_known(later) else (earlier, later)
        own = "#" not in known.directory and _is_known(known) and _is_inside(_folder_of(unknown), _folder_of(known))
        return gap_ns <= 0 and own
    if _is_alias(later) or _is_alias(earlier):
        return gap_ns <= (second_copy_gap_ns(earlier) if _is_second_copy(earlier, later) else LOOSE_GAP_NS)
    return gap_ns <= CONCURRENT_NS or (gap_ns <= CERTAIN_GAP_NS and pause_ns(earlier, later) <= CONCURRENT_NS)


def is_file_series(candidate: Candidate) -> bool:
    """Recognise many files of one shape, by one process, with at most a weak name."""
    counts = Counter(
        (part.process, shape_of(part.path))
        for part in candidate.parts[:MAX_PER_ITEM]
        if not (part.name.is_certain or part.name.hint or part.name.commit or part.name.rank is not None)
        and (part.name.framework is None or part.name.framework.weak)
    )
    return max(counts.values(), default=0) >= MANY


def _is_known(candidate: Candidate) -> bool:
    return all(part.name.framework is not None or part.name.hint for part in candidate.parts[:FEW])


def _is_alias(candidate: Candidate) -> bool:
    """Recognise names that are reused for every save: last, best, latest."""
    return not candidate.steps and candidate.is_alias


def _is_second_copy(earlier: Candidate, later: Candidate) -> bool:
    """Return True if the process of the earlier one wrote as much under the other name, or may still do so."""
    if not later.writes or set(earlier.processes[:FEW]).isdisjoint(later.processes[:FEW]):
        return False
    own_bytes, later_bytes = (one.bytes for one in (earlier, later))
    if later.open_parts:
        return later_bytes <= own_bytes * (1 + SIMILAR_SHARE)
    return any(
        is_similar_size(size, later_bytes) for size in (own_bytes, *(part.bytes for part in earlier.parts[:FEW]))
    )


def second_copy_gap_ns(candidate: Candidate) -> int:
    """Return how long after a save its second copy may start: it may be pickled in memory first."""
    duration_ns = candidate.end_ns - candidate.start_ns
    return min(CERTAIN_GAP_NS, max(LOOSE_GAP_NS, _PICKLING_FACTOR * duration_ns))


def _is_unrelated(candidate: Candidate) -> bool:
    """Recognise a log, or a small file unknown to any framework, alongside a checkpoint."""
    if all(map(_is_log, candidate.parts[:FEW])):
        return True
    is_small = candidate.bytes < HEADER_BYTES
    return is_small and not any(part.name.commit or part.name.framework or part.is_open for part in candidate.parts)


def _is_nearby(one: Candidate, other: Candidate) -> bool:
    here, there = _folder_of(one), _folder_of(other)
    return _is_inside(here, there) or _is_inside(there, here) or parent_folder(here) == parent_folder(there) != "/"


def _folder_of(candidate: Candidate) -> str:
    return candidate.directory.partition("#")[0]


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
