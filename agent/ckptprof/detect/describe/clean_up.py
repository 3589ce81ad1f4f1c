"""How long the thread that trains went on deleting in line, right after a save: by its calls, else by looks at it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.life import CLEAN_UP_NS
from ckptprof.detect.world.host.host_counters import HostCounters
from ckptprof.detect.world.keys import ProcessKey

_CLEANED_WITHIN_NS = 2_000_000_000  # after its end: then it is told
_GAP_NS = 500_000_000  # between two deletions, and after the end of the save: what is further apart is no row
_LEAST_LOOKS = 2  # that met it deleting
_DELETES = frozenset(("unlink",))
_CLEARS = frozenset(("unlink", "metadata"))  # a tree is listed and looked at as it goes


class Clearing(NamedTuple):
    """One row of deletions. Times are CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    in_calls_ns: int
    files: int | None  # None: they were not counted


def cleaned_up(candidate: Candidate, known: Knowledge) -> tuple[int, int | None]:
    """Return (files, time in the calls) of what a save's processes have deleted of other saves since it began."""
    until_ns = candidate.end_ns + _CLEANED_WITHIN_NS
    return known.transfers.removals.spent(paths_of(candidate), candidate.start_ns, until_ns, candidate.processes)


def cleared_ns(candidate: Candidate, known: Knowledge) -> int | None:
    """Return for how long training has been held by deletion right after a save, as far as that is known by now."""
    until_ns = candidate.end_ns + CLEAN_UP_NS
    row = clearing_after(known.world.host, candidate.processes, candidate.end_ns, until_ns)
    return None if row is None else row.end_ns - row.start_ns


def paths_of(candidate: Candidate) -> frozenset[str]:
    """Return the paths of its files."""
    return frozenset(part.path for part in candidate.parts)


def clearing_after(books: HostCounters, processes: Iterable[ProcessKey], end_ns: int, until_ns: int) -> Clearing | None:
    """Return the row of a process whose main thread began to delete as the save ended; of several the one that is last.

    `until_ns` is the latest end of a call in it.
    """
    rows = [
        _called(books, process, end_ns, until_ns) or _looked_at(books, process, end_ns, until_ns)
        for process in processes
    ]
    return max((row for row in rows if row is not None), key=lambda row: row.end_ns, default=None)


def _called(books: HostCounters, process: ProcessKey, end_ns: int, until_ns: int) -> Clearing | None:
    row = books.calls.row(process, "unlinked", end_ns, until_ns, _GAP_NS)
    return None if row is None else Clearing(row.first_ns, row.last_ns, row.spent_ns or 0, row.number)


def _looked_at(books: HostCounters, process: ProcessKey, end_ns: int, until_ns: int) -> Clearing | None:
    deleting = books.threads.row(process, _DELETES, end_ns, until_ns, _GAP_NS)
    row = books.threads.row(process, _CLEARS, end_ns, until_ns, _GAP_NS)
    if deleting is None or row is None or deleting[0] < _LEAST_LOOKS:
        return None
    return Clearing(row[1], row[2], row[2] - row[1], None)
