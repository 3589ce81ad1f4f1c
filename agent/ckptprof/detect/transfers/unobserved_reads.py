"""Finds the reader of a file that was opened and read between two samples: a process with unexplained read bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ckptprof.detect.tolerances import (
    FEW,
    LATE_TICK_NS,
    POLL_INTERVAL_NS,
    SIGNIFICANT_BYTES,
    STAMP_TOLERANCE_NS,
    WHOLE_SHARE,
)
from ckptprof.detect.transfers.ledger import Ledger
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpening, FileOpenings
from ckptprof.detect.transfers.recent_files import SavedFiles
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World


def find_unobserved_reads(
    openings: FileOpenings, explained: Sequence[Transfer], world: World, saved: SavedFiles, now_ns: int
) -> list[Transfer]:
    """Return transfers for files read between two samples, by the process that read as much then.

    Any process may have opened them, while a trainer read its data or loaded its libraries: only those count that may
    read that path, or were observed at another file of its folder.
    """
    found: list[Transfer] = []
    known: _ExplainedTransfers | None = None
    ledger: Ledger | None = None
    heard = list(openings)
    for number, opening in enumerate(heard):
        is_due = not opening.is_attributed and now_ns - opening.opened_ns >= POLL_INTERVAL_NS
        if not is_due or opening.was_written or opening.size < SIGNIFICANT_BYTES:
            continue
        opening.is_attributed = True
        known = known or _ExplainedTransfers(explained)
        if _is_explained(opening, known.of_file[opening.file], openings):
            continue
        readers = set(known.in_folder[opening.path.rpartition("/")[0]])
        if saved.contains(opening.path):
            readers.update(process for process in world.histories if world.may_restore(process))
        ledger = ledger or Ledger(world.histories, openings, [*explained, *found])
        reader = _find_reader(opening, readers, world, ledger)
        if reader is None:
            continue
        near = (
            one for one in heard[max(0, number - FEW) : number + FEW + 1]
            if not _is_explained(one, known.of_file[one.file], openings)
        )  # fmt: skip
        if _were_read(_alike(opening, near, reader, world), readers, ledger):
            found.append(reader)
            known.add(reader)
            ledger.add(reader)
    return found


class _ExplainedTransfers:
    """Known transfers by file, and processes by folder."""

    def __init__(self, transfers: Iterable[Transfer]) -> None:
        self.of_file: defaultdict[FileKey, list[Transfer]] = defaultdict(list)
        self.in_folder: defaultdict[str, set[ProcessKey]] = defaultdict(set)
        for transfer in transfers:
            self.add(transfer)

    def add(self, transfer: Transfer) -> None:
        """Add one transfer."""
        self.of_file[transfer.file].append(transfer)
        self.in_folder[transfer.folder].add(transfer.process)


def _is_explained(opening: FileOpening, of_same: Sequence[Transfer], openings: FileOpenings) -> bool:
    """Return True if as many reads of its file are known as there were opens in their time."""
    explaining = [transfer for transfer in of_same if _explains(transfer, opening, openings)]
    if any(transfer.writes or transfer.is_mapped for transfer in explaining):
        return True
    of_file = openings.by_key(opening.file)
    if not explaining or len(of_file) > FEW:  # a data set is read repeatedly
        return bool(explaining)
    read = (other for other in of_file if not other.was_written)
    return sum(any(_explains(one, other, openings) for one in explaining) for other in read) <= len(explaining)


def _explains(transfer: Transfer, opening: FileOpening, openings: FileOpenings) -> bool:
    closing = openings.closing_of(transfer) if transfer.writes else None
    last_ns = transfer.closed_ns if transfer.closed_ns is not None else transfer.last_ns
    high_ns = last_ns + LATE_TICK_NS if closing is None else closing.at_ns
    return transfer.before_ns - LATE_TICK_NS <= opening.opened_ns <= high_ns


def _find_reader(opening: FileOpening, readers: Iterable[ProcessKey], world: World, ledger: Ledger) -> Transfer | None:
    """Return a transfer by the process with as many unexplained bytes as the file has, while it was open."""
    if opening.closed_ns is None:
        return None
    from_ns = opening.opened_ns - STAMP_TOLERANCE_NS
    for process in readers:
        history = world.histories[process]
        if history.had_child_exit(from_ns - LATE_TICK_NS, opening.closed_ns + 1 + LATE_TICK_NS):
            continue  # the reads of ended descendants were added to its counters
        if opening.opened_ns < history.first_ns and not opening.may_read_whole:
            continue  # it read something else since its birth
        if ledger.unexplained_read_bytes(process, from_ns, opening.closed_ns) >= WHOLE_SHARE * opening.size:
            return Transfer(
                phase=Phase.ENDED, process=process, file=opening.file, writes=False, path=opening.path,
                first_ns=opening.opened_ns, last_ns=opening.closed_ns, before_ns=opening.opened_ns,
                closed_ns=opening.closed_ns, observed_by="opening", size=opening.size,
            )  # fmt: skip
    return None


def _alike(opening: FileOpening, near: Iterable[FileOpening], reader: Transfer, world: World) -> list[FileOpening]:
    """Return those that were open in the same intervals of the counters, and are as large.

    Not what was open for too short a time, unless this was, too.
    """
    around = world.histories[reader.process].between(reader.first_ns - STAMP_TOLERANCE_NS, reader.last_ns)
    first_ns, last_ns = min(reader.first_ns, around[0].start_ns), max(reader.last_ns, around[-1].end_ns)
    return [
        other for other in near
        if other.opened_ns <= last_ns and first_ns <= (other.closed_ns or 0) and not other.was_written
        and other.size >= WHOLE_SHARE * opening.size and other.may_read_whole >= opening.may_read_whole
    ]  # fmt: skip


def _were_read(files: Sequence[FileOpening], readers: Iterable[ProcessKey], ledger: Ledger) -> bool:
    """Return True if the readers read as much as all of these files have: else it is unknown which one they read."""
    from_ns, until_ns = min(one.opened_ns for one in files), max(one.closed_ns or 0 for one in files)
    read = (ledger.unexplained_read_bytes(one, from_ns - STAMP_TOLERANCE_NS, until_ns) for one in readers)
    return sum(max(0, one) for one in read) >= WHOLE_SHARE * sum({one.file: one.size for one in files}.values())
