"""Whether a save came to its end: not if its writer died, its disk was full, or its last step is missing.

A save is called incomplete only on evidence from its own files or its series. What could not be observed is no
evidence.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ckptprof.detect.describe.risks import Successors, failed_parts, failures_of, on_full_disk
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import CompleteSave, PastEvents
from ckptprof.detect.tolerances import CALLS_NS, LITTLE_SHARE, WHOLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.frameworks.names import shape
from ckptprof.frameworks.table import COMPANIONS
from ckptprof.frameworks.words import PART_NUMBER
from ckptprof.model import Evidence, Status
from ckptprof.units import size

SOON_NS = 5_000_000_000  # a writer that exits so soon after its last write may have crashed


_VOLUME = re.compile(r"(.+?)([a-z]{2,3}|\d{2,4})")  # as split(1) names what it makes: xaa, xab; x00, x01
_FIRST_VOLUME = re.compile(r"a+|0+1?")


@dataclass(frozen=True)
class Ending:
    """How a save ended, and the evidence, which has no weight in the recognition."""

    status: Status = Status.COMPLETE
    evidence: tuple[Evidence, ...] = ()


def ending_of(candidate: Candidate, known: Knowledge, *, is_copy: bool) -> Ending:
    """Classify how a save or a copy ended; a copy belongs to no series, and a restore is always complete."""
    if not candidate.writes:
        return Ending()
    died = [known.world.died_ns(process) for process in candidate.processes]
    ended = [at_ns for at_ns in died if at_ns is not None]
    dead = len(ended) == len(died)
    soon = dead and max(ended) - candidate.end_ns <= SOON_NS
    earlier = [] if is_copy else known.past.complete(candidate.job, kinds(candidate))
    failed = failed_parts(candidate, known)
    reasons = [
        *([failures_of(failed)] if failed else ()),
        *_cut(candidate, known),
        *_unfinished(candidate, earlier, known, dead=dead, soon=soon),
    ]
    if not reasons:
        return Ending()
    if dead:
        reasons.append("its writer has exited")
    text = "; ".join(dict.fromkeys(reasons))
    return Ending(Status.INCOMPLETE, (Evidence(name="incomplete", weight=0.0, text=text),))


def _is_renamed_whole(candidate: Candidate, large: list[Transfer], known: Knowledge) -> bool:
    """All large files were renamed after the last byte was written: their writer considered them complete."""
    last_ns = max(part.last_data_ns(known.world.clock) for part in candidate.parts)
    renamed = [part.renamed_ns(known.world.clock) for part in large]
    return bool(renamed) and all(at_ns is not None and at_ns >= last_ns for at_ns in renamed)


def _unfinished(
    candidate: Candidate, earlier: list[CompleteSave], known: Knowledge, *, dead: bool, soon: bool
) -> Iterator[str]:
    """Yield what is missing compared with `earlier` saves, of which those with no more files come first."""
    large = _large(candidate)
    alike = [one for one in earlier if one.files <= len(large)]
    usual = _usual_bytes(alike or earlier)
    moved = linked = 0
    if usual is not None:
        moved = _kept_bytes(candidate)
        linked = known.transfers.facts.linked_bytes(candidate.parts[0].folder, candidate.start_ns)
    smaller = usual is not None and moved + linked < WHOLE_SHARE * usual and not _is_whole(candidate, large, alike)
    smaller = smaller and not _is_renamed_whole(candidate, large, known)
    removed_ns = known.transfers.removals.removed_ns
    later = Successors(large)
    written_again = {id(part) for part in large if later.supersede(part, known)}
    unstaged = [part for part in large if part.staged is None and id(part) not in written_again]
    deleted = [part for part in unstaged if removed_ns(part.path, part.end_ns) is not None]
    full = bool(on_full_disk(large, known))
    failed = any(part.error is not None and id(part) not in written_again for part in large)
    if smaller and (soon or full or deleted or failed):
        yield f"it has {size(moved)}, and earlier saves have {size(usual)}"
    yield from _without_room(earlier if smaller else (), moved)
    if deleted and (smaller or any(part.temporary for part in deleted)):
        yield f"{deleted[0].file_name} was deleted again"
    if full and (smaller or (soon and usual is None)):
        yield "its file system is full"
    if not dead:
        return
    ended_ns = max((known.world.ended.get(process, 0) for process in candidate.processes), default=0)
    stuck = [part for part in unstaged if is_temporary(part.path) and part.kept_its_name(ended_ns)]
    if stuck and not earlier:  # a temporary name lasted until its writers exited
        yield f"{stuck[0].file_name} never got its final name"
    if _marker(candidate) is None and (lacking := lacking_pieces(candidate)) and _is_all_seen(candidate, known):
        yield f"{lacking[0]} of the {lacking[1]} files that its names imply were never written"
    missing = _missing_marker(candidate, known)
    if missing is not None:
        yield f"{missing} was never written"
    elif earlier and soon and _lacks_marker([one.marker for one in earlier], candidate, known):
        yield "the file that completed earlier saves was never written"


def _without_room(earlier: Sequence[CompleteSave], moved: int) -> Iterator[str]:
    """Yield that the previous save left too little free space: a job that fails may delete the file that filled it."""
    usual, room = _usual_bytes(earlier), next((one.free_bytes for one in earlier[-1:]), None)
    if usual is not None and room is not None and moved <= room < WHOLE_SHARE * usual:
        yield f"it has {size(moved)}, where earlier saves have {size(usual)} and left {size(room)} free"


def _usual_bytes(earlier: Sequence[CompleteSave]) -> int | None:
    return sorted(one.bytes for one in earlier)[len(earlier) // 2] if earlier else None


def _is_whole(candidate: Candidate, large: Sequence[Transfer], alike: Sequence[CompleteSave]) -> bool:
    """Whether a save smaller than earlier ones is complete all the same; `alike`: earlier ones with no more files."""
    if _marker(candidate) is not None and all(part.operations is None for part in candidate.parts):
        return True  # its framework marked it complete: missing files were not observed
    whole = all(part.fact is not None and part.fact.whole for part in large)
    return bool(alike and large) and whole  # no file is missing, and each is complete: there was less to save


def _cut(candidate: Candidate, known: Knowledge) -> Iterator[str]:
    """Yield truncated files, if inspected after their last write; volumes that split(1) makes may end anywhere."""
    found = [_VOLUME.fullmatch(path) for path in {part.path for part in candidate.parts}]
    stems = Counter(one[1] for one in found if one)
    begun = {one[1] for one in found if one and _FIRST_VOLUME.fullmatch(one[2])}
    for part in candidate.parts:
        fact, volume = part.fact, _VOLUME.fullmatch(part.path)
        if fact is None or fact.whole is not False or (volume and volume[1] in begun and stems[volume[1]] > 1):
            continue
        ended_ns = known.world.ended.get(part.process)
        late = part.fact_at_ns - part.active_ns >= CALLS_NS or part.was_looked_at_after(ended_ns)
        if late:
            yield f"{part.file_name} ends before its format does"


def note_complete(candidate: Candidate, past: PastEvents) -> None:
    """Record a complete save, with which later ones of its series are compared."""
    large = _large(candidate)
    rooms = [part.fact.free_bytes for part in large if part.fact is not None and part.fact.free_bytes is not None]
    save = CompleteSave(_kept_bytes(candidate), len(large), _marker(candidate), min(rooms, default=None))
    past.note_complete(candidate.job, kinds(candidate), save)


def _large(candidate: Candidate) -> list[Transfer]:
    least = LITTLE_SHARE * candidate.bytes
    return [part for part in candidate.parts if part.bytes >= least]  # the rest is metadata


def _kept_bytes(candidate: Candidate) -> int:
    """Bytes written that its files still contain: what was written again counts once."""
    written: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for part in candidate.parts:
        written[part.path] = written.get(part.path, 0) + part.bytes
        sizes[part.path] = max(sizes.get(part.path, 0), part.stored_size)
    return sum(min(moved, sizes[path] or moved) for path, moved in written.items())


def lacking_pieces(candidate: Candidate) -> tuple[int, int] | None:
    """Count (missing, expected) files by their names (`2-of-8`); None if none is missing."""
    found: dict[tuple[str, str, int], set[int]] = {}
    for part in candidate.parts if candidate.writes else ():
        if part.name.piece is not None:
            number, whole = part.name.piece
            kind = part.folder, PART_NUMBER.sub("", part.file_name), whole
            found.setdefault(kind, set()).add(number)
    whole = sum(count for *_, count in found)
    lacking = whole - sum(map(len, found.values()))
    return (lacking, whole) if lacking > 0 else None


def _is_all_seen(candidate: Candidate, known: Knowledge) -> bool:
    # a process that does not train may copy one file of several
    here = known.world.trains(candidate.processes) and all(map(known.world.jobs.are_all_here, candidate.processes))
    return here and all(part.operations is not None for part in candidate.parts)


def _missing_marker(candidate: Candidate, known: Knowledge) -> str | None:
    """Name of a required companion file that no process wrote; None if all are there or unknown."""
    written = {part.path for part in candidate.parts}
    wanted: dict[str, str] = {}  # by their paths
    for part in candidate.parts:
        if part.operations is None and not part.was_looked_at_after(known.world.ended.get(part.process)):
            continue
        for companion in COMPANIONS:
            path = f"{part.folder}/{companion.name}"
            if path not in written and path not in wanted and companion.of.search(part.file_name):
                wanted[path] = companion.name
    others = known.transfers.written_of(candidate.job, wanted) if wanted else ()
    return next((marker for path, marker in wanted.items() if path not in others), None)


def _marker(candidate: Candidate) -> str | None:
    """Find the file that completed a save: its path, or relative to the folder of the save; None if there was none."""
    folder = candidate.directory.partition("#")[0] + "/"
    return next((part.path.removeprefix(folder) for part in candidate.parts if part.name.commit), None)


def _lacks_marker(usual: list[str | None], candidate: Candidate, known: Knowledge) -> bool:
    """Whether earlier saves had a marker and this one has none; polling may miss its writer, but not its file."""
    if not all(usual) or _marker(candidate) is not None:
        return False
    folder = candidate.directory.partition("#")[0]
    places = (posixpath.join(folder, marker) for marker in dict.fromkeys(usual) if marker)
    return not any(known.transfers.is_changed(path, candidate.start_ns) for path in places)


def kinds(candidate: Candidate) -> frozenset[str]:
    """Shapes of its large files, which identify its series."""
    return frozenset(shape(part.path) for part in _large(candidate)[:8])
