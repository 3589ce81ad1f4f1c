"""Deletions for a save, and how long the main thread deletes after it: by traced calls, else by samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.events.grouping import LOOSE_GAP_NS
from ckptprof.detect.tolerances import AT_ONCE_NS, COMMIT_NS
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.model import Mode

_DELETES = frozenset(("unlink",))
_DELETES_OR_LISTS = frozenset(("unlink", "metadata"))  # removing a tree lists and stats it, too


class DeletionRun(NamedTuple):
    """One uninterrupted run of deletions. Times are CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    is_traced: bool  # from traced calls, else from samples

    @property
    def duration_ns(self) -> int:
        """Duration."""
        return self.end_ns - self.start_ns


def measure_clean_up(draft: Draft) -> tuple[int | None, int | None, int | None]:
    """Measure (files of other saves deleted, ns in these calls, ns that training waited for it).

    None: not observed. Training waits for nothing that is deleted alongside it.
    """
    candidate, known = draft.candidate, draft.known
    if not candidate.writes:
        return None, None, None
    files = spent_ns = row = None
    if any(part.operations is not None for part in candidate.parts):
        paths = frozenset(part.path for part in candidate.parts)
        until_ns = candidate.end_ns + LOOSE_GAP_NS
        files, spent_ns = known.transfers.removals.removal_totals(
            paths, candidate.start_ns, until_ns, candidate.processes
        )
    if draft.stall.mode is not Mode.ASYNC:
        until_ns = candidate.end_ns + COMMIT_NS
        row = deletion_after(draft.world, candidate.processes, candidate.end_ns, until_ns)
    if row is None and files is None and draft.stall.deleting_ns:
        return None, draft.stall.deleting_ns, draft.stall.deleting_ns
    return files, spent_ns, row.duration_ns if row is not None else None if files is None else 0


def deletion_after(world: World, processes: Iterable[ProcessKey], end_ns: int, until_ns: int) -> DeletionRun | None:
    """Find the run of deletions that a main thread started as the save ended, of several the last to end.

    `until_ns` is the latest end of a call in it.
    """
    span = end_ns, until_ns
    traced = [(one, world.calls.deletion_span(one, *span, AT_ONCE_NS)) for one in processes]
    rows = [DeletionRun(*row, is_traced=True) if row else _sampled_deletion(world, one, *span) for one, row in traced]
    return max((row for row in rows if row is not None), key=lambda row: row.end_ns, default=None)


def _sampled_deletion(world: World, process: ProcessKey, end_ns: int, until_ns: int) -> DeletionRun | None:
    deleting = world.threads.state_span(process, _DELETES, end_ns, until_ns, AT_ONCE_NS)
    row = world.threads.state_span(process, _DELETES_OR_LISTS, end_ns, until_ns, AT_ONCE_NS)
    if deleting is None or row is None or deleting[0] == 1:
        return None
    return DeletionRun(row[1], row[2], is_traced=False)
