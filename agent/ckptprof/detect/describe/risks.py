"""Risks: why a seemingly complete checkpoint may restore wrongly, as far as observed."""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import accumulate, combinations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.tolerances import CONCURRENT_NS, HEADER_BYTES, MAX_PER_ITEM, MOST_SHARE, WHOLE_SHARE
from ckptprof.detect.transfers.ledger import evenly_counted_bytes
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import OverlapWeights
from ckptprof.frameworks.file_names import final_path, parse_name
from ckptprof.model import Evidence, Risk
from ckptprof.units import size

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_ERROR_TEXTS = {  # as strerror(3) does
    errno.ENOSPC: "no space left on device",
    errno.EDQUOT: "disk quota exceeded",
    errno.EFBIG: "file too large",
    errno.EIO: "input/output error",
}
_MAX_NAMED_RANKS = 3  # ranks listed by number; of more only their count


def find_risks(candidate: Candidate, known: Knowledge) -> Iterator[Evidence]:
    """Yield the risks of a save as evidence."""
    if not candidate.writes:
        return
    shared = _find_shared_path(candidate, known)
    if shared is not None:
        yield _evidence(Risk.SHARED_PATH, shared)
    failed = failed_parts(candidate, known)
    if failed:
        risk = Risk.DISK_FULL if failed[-1].error in _DISK_FULL_ERRORS else Risk.WRITE_FAILED
        yield _evidence(risk, describe_failures(failed))
    full = [] if failed else files_on_full_disk(candidate.parts, known)
    if full:
        names = full[0].file_name + _and_more(len(full))
        yield _evidence(Risk.DISK_FULL, f"{names} may be truncated: its file system was full")


def failed_parts(candidate: Candidate, known: Knowledge) -> list[Transfer]:
    """List the files that a failed call left unwritten or unstored, unless they were written again later."""
    parts = candidate.parts if candidate.writes else ()
    last_start_ns: dict[str, int] = {}  # the last start of each path
    for part in parts:
        last_start_ns[part.path] = max(last_start_ns.get(part.path, part.start_ns), part.start_ns)
    # if it ended at once, its own start is no later one
    failed = [p for p in parts if p.error is not None and not p.start_ns < p.end_ns <= last_start_ns[p.path]]
    later = Replacements(parts if failed else ())
    return [p for p in failed if not later.is_replaced(p, known)]


class Replacements:
    """Later files that may have replaced a failed one, indexed once for all failures."""

    def __init__(self, parts: Iterable[Transfer]) -> None:
        rows: dict[str, list[Transfer]] = {}
        for part in sorted(parts, key=lambda part: part.start_ns):
            rows.setdefault(part.path, []).append(part)
            if part.earlier_path is not None and parse_name(part.earlier_path).staging:
                rows.setdefault(f"{part.folder}/", []).append(part)
        # by place: start times, and the largest size from each on
        self._rows: dict[str, tuple[list[int], list[int]]] = {}
        for place, row in rows.items():
            largest = [*accumulate((one.stored_size for one in reversed(row)), max)][::-1]
            self._rows[place] = [one.start_ns for one in row], largest

    def is_replaced(self, attempt: Transfer, known: Knowledge) -> bool:
        """Whether a file with a temporary name was written again.

        The later one has the final name of the first, or both have names of Python's tempfile and the first was
        deleted.
        """
        if not is_temporary(attempt.path) and not attempt.name.staging:
            return False
        if self._has_later_file(final_path(attempt.path), attempt):
            return True
        is_gone = known.transfers.removals.removed_ns(attempt.path, attempt.end_ns) is not None
        return is_gone and attempt.name.staging and self._has_later_file(f"{attempt.folder}/", attempt)

    def _has_later_file(self, place: str, attempt: Transfer) -> bool:
        """Whether a file of that place started after the attempt ended, and became as large."""
        starts, largest = self._rows.get(place, ((), ()))
        first = bisect_left(starts, attempt.end_ns)
        return first < len(largest) and largest[first] >= attempt.bytes


def describe_failures(failed: Sequence[Transfer]) -> str:
    """Describe the last failure, and count the other files."""
    last = failed[-1]
    error = last.error or 0
    reason = _ERROR_TEXTS.get(error) or errno.errorcode.get(error) or f"error {error}"
    return f"{last.file_name} failed after {size(last.bytes)}: {reason}{_and_more(len(failed))}"


def files_on_full_disk(parts: Iterable[Transfer], known: Knowledge) -> list[Transfer]:
    """List files on a full file system that are not known to be complete.

    Data that their process started to write there after a file, before that was inspected, is evidence of free space.
    """
    found: list[Transfer] = []
    started_ns: dict[tuple[ProcessKey, int], list[int]] = {}  # by process and device, ascending
    for part in parts:
        fact = part.fact
        if fact is None or fact.is_complete or fact.free_bytes is None or fact.free_bytes >= HEADER_BYTES:
            continue
        key = part.process, part.file[0]
        if key not in started_ns:
            started_ns[key] = sorted(
                one.before_ns
                for one in known.transfers.recent.written_by(part.process)
                if one.file[0] == part.file[0] and max(one.counted_bytes, one.stored_size) >= HEADER_BYTES
            )
        later = bisect_left(started_ns[key], part.end_ns)
        if later == len(started_ns[key]) or started_ns[key][later] > part.fact_at_ns:
            found.append(part)
    return found


def _evidence(risk: Risk, text: str) -> Evidence:
    return Evidence(name=risk.value, weight=0.0, text=text)


def _and_more(files: int) -> str:
    return f" and {files - 1} more" if files > 1 else ""


def _find_shared_path(candidate: Candidate, known: Knowledge) -> str | None:
    """Describe the file that several processes each wrote in full; None if none was observed."""
    by_path: dict[str, list[Transfer]] = {}
    for part in candidate.parts if len(candidate.processes) > 1 else ():
        by_path.setdefault(part.path, []).append(part)
    shared, whole_files = {}, WholeFiles(candidate, known)
    for path, parts in by_path.items():
        pairs = combinations(parts[:MAX_PER_ITEM], 2)
        writers = {one.process for pair in pairs if _is_written_twice(*pair, whole_files) for one in pair}
        if writers:
            shared[path] = writers
    if not shared:
        return _find_replaced_path(candidate, known)
    path, writers = max(shared.items(), key=lambda pair: len(pair[1]))
    name, writers_text = path.rpartition("/")[2], _describe_processes(writers, known.world.jobs)
    return (
        f"{writers_text} wrote {name}{_and_more(len(shared))} at the same time: each of its bytes is "
        "the one that was written last"
    )


def _is_written_twice(transfer: Transfer, other: Transfer, whole_files: WholeFiles) -> bool:
    """Whether two processes wrote the same bytes at the same time; ranks may share a file piece by piece."""
    if transfer.process == other.process or transfer.start_ns > other.end_ns or other.start_ns > transfer.end_ns:
        return False
    stretch, other_stretch = transfer.offset_range, other.offset_range
    if stretch is None or other_stretch is None:
        return whole_files.is_written_whole(transfer) and whole_files.is_written_whole(other)
    dense = all(
        part.bytes >= WHOLE_SHARE * (high - low) for part, (low, high) in ((transfer, stretch), (other, other_stretch))
    )
    return dense and min(stretch[1], other_stretch[1]) - max(stretch[0], other_stretch[0]) > HEADER_BYTES


class WholeFiles:
    """Which files of a candidate one process wrote in full."""

    def __init__(self, candidate: Candidate, known: Knowledge) -> None:
        self._parts, self._known = candidate.parts, known
        self._written_spans: dict[ProcessKey, OverlapWeights] = {}  # spans and sizes written by a process

    def is_written_whole(self, part: Transfer) -> bool:
        """Whether a process wrote all of a file in addition to its others; one that only inherited it did not."""
        if part.is_credited or part.stored_size <= HEADER_BYTES:
            return False
        if part.process not in self._written_spans:
            own = (one for one in self._parts if one.process == part.process)
            self._written_spans[part.process] = OverlapWeights((one.span, one.stored_size) for one in own)
        elsewhere = max(
            0, self._written_spans[part.process].weight(part.span) - part.stored_size
        )  # without its own size
        wrote = evenly_counted_bytes(self._known.world.histories[part.process], *part.span, writes=True)
        return wrote - elsewhere >= MOST_SHARE * part.stored_size


def _find_replaced_path(candidate: Candidate, known: Knowledge) -> str | None:
    """Describe the file that another rank wrote just before, and that was overwritten."""
    rank = known.world.jobs.rank
    own_ranks = {rank(process) for process in candidate.processes}
    for part in nlargest(MAX_PER_ITEM, candidate.parts, key=lambda part: part.bytes):
        author = known.history.author_of(part.path)
        ranks = {rank(process) for process in author.processes} if author is not None else {None}
        if None in own_ranks | ranks or not own_ranks.isdisjoint(ranks) or author is None:
            continue
        if candidate.start_ns - author.end_ns <= CONCURRENT_NS:
            earlier, later = (
                _describe_processes(one, known.world.jobs) for one in (author.processes, candidate.processes)
            )
            return f"{earlier} wrote {part.file_name}, and {later} overwrote it right after"
    return None


def _describe_processes(processes: Collection[ProcessKey], jobs: Jobs) -> str:
    ranks = sorted({-1 if (rank := jobs.rank(process)) is None else rank for process in processes})
    if ranks[0] < 0 or len(ranks) != len(processes) or len(ranks) > _MAX_NAMED_RANKS:
        noun = "processes" if ranks[0] < 0 else "ranks"
        return f"{len(processes)} {noun}"
    return f"rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))}"
