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

from ckptprof.detect.describe.risks import Replacements, describe_failures, failed_parts, files_on_full_disk
from ckptprof.detect.describe.writers import name_writer
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_history import CompleteSave, EventHistory
from ckptprof.detect.tolerances import COUNTER_LAG_NS, LITTLE_SHARE, WHOLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.file_names import path_shape
from ckptprof.frameworks.framework_table import COMPANIONS
from ckptprof.frameworks.name_words import PART_NUMBER
from ckptprof.model import Evidence, Status
from ckptprof.units import size

DEATH_AFTER_WRITE_NS = 5_000_000_000  # a writer that exits so soon after its last write may have crashed
_VOLUME = re.compile(r"(.+?)([a-z]{2,3}|\d{2,4})")  # as split(1) names what it makes: xaa, xab; x00, x01
_FIRST_VOLUME = re.compile(r"a+|0+1?")


@dataclass(frozen=True)
class Ending:
    """How a save ended, and the evidence, which has no weight in the recognition."""

    status: Status = Status.COMPLETE
    evidence: tuple[Evidence, ...] = ()


def classify_ending(candidate: Candidate, known: Knowledge, *, is_copy: bool) -> Ending:
    """Classify how a save or a copy ended; a copy belongs to no series, and a restore is always complete."""
    if not candidate.writes:
        return Ending()
    exit_times = [known.world.died_ns(process) for process in candidate.processes]
    known_exit_times = [at_ns for at_ns in exit_times if at_ns is not None]
    all_exited = len(known_exit_times) == len(exit_times)
    exited_soon = all_exited and max(known_exit_times) - candidate.end_ns <= DEATH_AFTER_WRITE_NS
    earlier = [] if is_copy else known.history.complete_saves(candidate.job, large_file_shapes(candidate))
    failed = failed_parts(candidate, known)
    reasons = [
        *([describe_failures(failed)] if failed else ()),
        *_truncated_files(candidate, known),
        *_missing_data_reasons(candidate, earlier, known, all_exited=all_exited, exited_soon=exited_soon),
    ]
    if not reasons:
        return Ending()
    if all_exited:
        reasons.append("its writer has exited")
    text = "; ".join(dict.fromkeys(reasons))
    return Ending(Status.INCOMPLETE, (Evidence(name="incomplete", weight=0.0, text=text),))


def _is_renamed_whole(candidate: Candidate, large: list[Transfer], known: Knowledge) -> bool:
    """All large files were renamed after the last byte was written: their writer considered them complete."""
    last_ns = max(part.last_data_ns(known.world.clock) for part in candidate.parts)
    renamed = [part.renamed_ns(known.world.clock) for part in large]
    return bool(renamed) and all(at_ns is not None and at_ns >= last_ns for at_ns in renamed)


def _missing_data_reasons(
    candidate: Candidate, earlier: list[CompleteSave], known: Knowledge, *, all_exited: bool, exited_soon: bool
) -> Iterator[str]:
    """Yield what is missing compared with `earlier` saves, of which those with no more files come first."""
    large = _large(candidate)
    comparable = [one for one in earlier if one.files <= len(large)]
    usual = _usual_bytes(comparable or earlier)
    transferred = linked = 0
    if usual is not None:
        transferred = _stored_bytes(candidate)
        linked = known.transfers.facts.linked_bytes(candidate.parts[0].folder, candidate.start_ns)
    smaller = (
        usual is not None
        and transferred + linked < WHOLE_SHARE * usual
        and not _is_complete_despite_size(candidate, large, comparable)
        and not _is_renamed_whole(candidate, large, known)
    )
    removed_ns = known.transfers.removals.removed_ns
    later = Replacements(large)
    rewritten = {id(part) for part in large if later.is_replaced(part, known)}
    final_parts = [part for part in large if part.staging_file is None and id(part) not in rewritten]
    deleted = [part for part in final_parts if removed_ns(part.path, part.written_ns(known.world.clock)) is not None]
    full = bool(files_on_full_disk(large, known))
    failed = any(part.error is not None and id(part) not in rewritten for part in large)
    died = list(_deaths(candidate, known))
    if smaller and (exited_soon or died or full or deleted or failed):
        yield f"it has {size(transferred)}, and earlier saves have {size(usual)}"
        yield from died if not all_exited else ()
    yield from _disk_full_reasons(earlier if smaller else (), transferred)
    if deleted and (smaller or any(part.temporary for part in deleted)):
        yield f"{deleted[0].file_name} was deleted again"
    if full and (smaller or (exited_soon and usual is None)):
        yield "its file system is full"
    if not all_exited:
        return
    ended_ns = max((known.world.ended.get(process, 0) for process in candidate.processes), default=0)
    followed = [one for one in final_parts if one.operations is not None or one.was_inspected_after(ended_ns)]
    temporary_parts = [part for part in followed if is_temporary(part.path)]
    if temporary_parts and not earlier:  # a temporary name lasted until its writers exited
        yield f"{temporary_parts[0].file_name} never got its final name"
    if (
        _marker(candidate) is None
        and (missing_files := missing_pieces(candidate))
        and _is_fully_traced(candidate, known)
    ):
        yield f"{missing_files[0]} of the {missing_files[1]} files that its names imply were never written"
    missing_marker = _missing_marker(candidate, known)
    if missing_marker is not None:
        yield f"{missing_marker} was never written"
    elif earlier and exited_soon and _is_marker_missing([one.marker for one in earlier], candidate, known):
        yield "the file that completed earlier saves was never written"


def _deaths(candidate: Candidate, known: Knowledge) -> Iterator[str]:
    """Yield which processes exited so soon after their last write that they may have crashed."""
    last_ns: dict[ProcessKey, int] = {}
    for part in candidate.parts:
        last_ns[part.process] = max(part.end_ns, last_ns.get(part.process, 0))
    for process, end_ns in last_ns.items():
        died_ns = known.world.died_ns(process)
        if died_ns is not None and died_ns - end_ns <= DEATH_AFTER_WRITE_NS:
            yield f"{name_writer(process, candidate, known.world.jobs)} exited after its last byte"


def _disk_full_reasons(earlier: Sequence[CompleteSave], transferred: int) -> Iterator[str]:
    """Yield that the previous save left too little free space: a job that fails may delete the file that filled it."""
    usual, free_bytes = _usual_bytes(earlier), next((one.free_bytes_after for one in earlier[-1:]), None)
    if usual is not None and free_bytes is not None and transferred <= free_bytes < WHOLE_SHARE * usual:
        yield f"it has {size(transferred)}, where earlier saves have {size(usual)} and left {size(free_bytes)} free"


def lacks_only_bytes(candidate: Candidate, known: Knowledge) -> bool:
    """Whether it has fewer bytes than complete saves of its series with no more large files."""
    earlier, files = known.history.complete_saves(candidate.job, large_file_shapes(candidate)), len(_large(candidate))
    usual = _usual_bytes([one for one in earlier if one.files <= files])
    return usual is not None and candidate.bytes < WHOLE_SHARE * usual


def _usual_bytes(earlier: Sequence[CompleteSave]) -> int | None:
    return sorted(one.bytes for one in earlier)[len(earlier) // 2] if earlier else None


def _is_complete_despite_size(
    candidate: Candidate, large: Sequence[Transfer], comparable: Sequence[CompleteSave]
) -> bool:
    """Whether a smaller save than earlier ones is complete anyway; `comparable`: earlier ones with no more files."""
    if _marker(candidate) is not None and all(part.operations is None for part in candidate.parts):
        return True  # its framework marked it complete: missing files were not observed
    all_whole = all(part.fact is not None and part.fact.is_complete for part in large)
    return bool(comparable and large) and all_whole  # no file is missing, and each is complete: there was less to save


def _truncated_files(candidate: Candidate, known: Knowledge) -> Iterator[str]:
    """Yield truncated files, if inspected after their last write; volumes that split(1) makes may end anywhere."""
    truncated = [part for part in candidate.parts if part.fact is not None and part.fact.is_complete is False]
    paths = {part.path for part in candidate.parts} if truncated else ()
    found = [volume for path in paths if (volume := _VOLUME.fullmatch(path))]
    stems = Counter(volume[1] for volume in found)
    first_stems = {volume[1] for volume in found if _FIRST_VOLUME.fullmatch(volume[2])}
    for part in truncated:
        volume = _VOLUME.fullmatch(part.path)
        if volume and volume[1] in first_stems and stems[volume[1]] > 1:
            continue
        ended_ns = known.world.ended.get(part.process)
        if part.fact_at_ns - part.active_ns >= COUNTER_LAG_NS or part.was_inspected_after(ended_ns):
            yield f"{part.file_name} ends before its format does"


def record_complete(candidate: Candidate, history: EventHistory) -> None:
    """Record a complete save, with which later ones of its series are compared."""
    large = _large(candidate)
    free_bytes = [part.fact.free_bytes for part in large if part.fact is not None and part.fact.free_bytes is not None]
    save = CompleteSave(_stored_bytes(candidate), len(large), _marker(candidate), min(free_bytes, default=None))
    history.record_complete(candidate.job, large_file_shapes(candidate), save)


def _large(candidate: Candidate) -> list[Transfer]:
    least = LITTLE_SHARE * candidate.bytes
    return [part for part in candidate.parts if part.bytes >= least]  # the rest is metadata


def _stored_bytes(candidate: Candidate) -> int:
    """Bytes written that its files still contain: what was written again counts once."""
    written: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for part in candidate.parts:
        written[part.path] = written.get(part.path, 0) + part.bytes
        sizes[part.path] = max(sizes.get(part.path, 0), part.stored_size)
    return sum(min(transferred, sizes[path] or transferred) for path, transferred in written.items())


def missing_pieces(candidate: Candidate) -> tuple[int, int] | None:
    """Count (missing, expected) files by their names (`2-of-8`); None if none is missing."""
    found: dict[tuple[str, str, int], set[int]] = {}
    for part in candidate.parts if candidate.writes else ():
        if part.name.piece is not None:
            number, expected = part.name.piece
            series = part.folder, PART_NUMBER.sub("", part.file_name), expected
            found.setdefault(series, set()).add(number)
    expected = sum(count for *_, count in found)
    missing = expected - sum(map(len, found.values()))
    return (missing, expected) if missing > 0 else None


def _is_fully_traced(candidate: Candidate, known: Knowledge) -> bool:
    # a process that does not train may copy one file of several
    all_local = known.world.trains(candidate.processes) and all(
        map(known.world.jobs.are_all_ranks_local, candidate.processes)
    )
    return all_local and all(part.operations is not None for part in candidate.parts)


def _missing_marker(candidate: Candidate, known: Knowledge) -> str | None:
    """Name of a required companion file that no process wrote; None if all are there or unknown."""
    written = {part.path for part in candidate.parts}
    wanted: dict[str, str] = {}  # path -> name
    for part in candidate.parts:
        if part.operations is None and not part.was_inspected_after(known.world.ended.get(part.process)):
            continue
        for companion in COMPANIONS:
            path = f"{part.folder}/{companion.name}"
            if path not in written and path not in wanted and companion.of.search(part.file_name):
                wanted[path] = companion.name
    others = known.transfers.written_paths(candidate.job, wanted) if wanted else ()
    return next((marker for path, marker in wanted.items() if path not in others), None)


def _marker(candidate: Candidate) -> str | None:
    """Find the file that completed a save: its path, or relative to the folder of the save; None if there was none."""
    folder = candidate.directory.partition("#")[0] + "/"
    return next((part.path.removeprefix(folder) for part in candidate.parts if part.name.commit), None)


def _is_marker_missing(usual: list[str | None], candidate: Candidate, known: Knowledge) -> bool:
    """Whether earlier saves had a marker and this one has none; polling may miss its writer, but not its file."""
    if not all(usual) or _marker(candidate) is not None:
        return False
    folder = candidate.directory.partition("#")[0]
    places = (posixpath.join(folder, marker) for marker in dict.fromkeys(usual) if marker)
    return not any(known.transfers.was_written_since(path, candidate.start_ns) for path in places)


def large_file_shapes(candidate: Candidate) -> frozenset[str]:
    """Shapes of its large files, which identify its series."""
    return frozenset(path_shape(part.path) for part in _large(candidate)[:8])
