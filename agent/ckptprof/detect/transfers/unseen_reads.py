"""Whose a file is that was opened and read between two looks: of a process that read more than it was seen to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ckptprof.detect.tolerances import FEW, LATE_TICK_NS, LOOK_NS, STAMP_NS, TELLING_BYTES, WHOLE_SHARE
from ckptprof.detect.transfers.ledger import Ledger
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import Opening, Openings
from ckptprof.detect.transfers.remembered import SavedFiles
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World


def unseen_reads(
    openings: Openings, explained: Sequence[Transfer], world: World, saved: SavedFiles, now_ns: int
) -> list[Transfer]:
    """Return transfers for files that were read between two looks, by the process that read as much then.

    Anybody may have opened them, another recorder too, while a trainer read its data or began and loaded its libraries:
    only those are asked who may read that path, or were seen at another file of its folder.
    """
    found: list[Transfer] = []
    known: _Known | None = None
    ledger: Ledger | None = None
    for opening in openings:
        if opening.is_settled or opening.written or opening.size < TELLING_BYTES:
            continue
        if now_ns - opening.opened_ns < LOOK_NS:
            continue
        opening.is_settled = True
        known = known or _Known(explained)
        if _is_explained(opening, known.of_file[opening.file], openings):
            continue
        readers = set(known.in_folder[opening.path.rpartition("/")[0]])
        if saved.contains(opening.path):
            readers.update(process for process in world.histories if world.may_restore(process))
        ledger = ledger or Ledger(world.histories, [*explained, *found])
        reader = _reader(opening, readers, world, ledger, openings)
        if reader is not None:
            found.append(reader)
            known.enter(reader)
            ledger.enter(reader)
    return found


class _Known:
    """What is known by now: by file, and who was at a file of each folder."""

    def __init__(self, transfers: Iterable[Transfer]) -> None:
        self.of_file: defaultdict[FileKey, list[Transfer]] = defaultdict(list)
        self.in_folder: defaultdict[str, set[ProcessKey]] = defaultdict(set)
        for transfer in transfers:
            self.enter(transfer)

    def enter(self, transfer: Transfer) -> None:
        """Enter one more."""
        self.of_file[transfer.file].append(transfer)
        self.in_folder[transfer.folder].add(transfer.process)


def _is_explained(opening: Opening, of_same: Sequence[Transfer], openings: Openings) -> bool:
    """Return whether as many readings of its file are known as there were openings in their time."""
    beside = [transfer for transfer in of_same if _explains(transfer, opening)]
    if any(transfer.writes or transfer.is_mapped for transfer in beside):
        return True
    of_file = openings.of(opening.file)
    if not beside or len(of_file) > FEW:  # a data set is read again and again
        return bool(beside)
    about = [other for other in of_file if not other.written and any(_explains(one, other) for one in beside)]
    return len(about) <= len(beside)


def _explains(transfer: Transfer, opening: Opening) -> bool:
    last_ns = transfer.closed_ns if transfer.closed_ns is not None else transfer.last_ns
    low_ns, high_ns = transfer.before_ns - LATE_TICK_NS, last_ns + LATE_TICK_NS
    return low_ns <= opening.opened_ns <= high_ns


def _reader(
    opening: Opening, readers: Iterable[ProcessKey], world: World, ledger: Ledger, openings: Openings
) -> Transfer | None:
    """Return the transfer of who read as much as the file holds while it was open, beside what is known."""
    if opening.closed_ns is None:
        return None
    from_ns = opening.opened_ns - STAMP_NS
    for process in readers:
        if world.histories[process].was_heir(from_ns - LATE_TICK_NS, opening.closed_ns + 1 + LATE_TICK_NS):
            continue  # what its child read, and what that one's children did, came into its counters
        if ledger.unexplained_read(process, from_ns, opening.closed_ns, openings) >= WHOLE_SHARE * opening.size:
            return Transfer(
                phase=Phase.OVER,
                process=process,
                file=opening.file,
                writes=False,
                path=opening.path,
                first_ns=opening.opened_ns,
                last_ns=opening.closed_ns,
                before_ns=opening.opened_ns,
                closed_ns=opening.closed_ns,
                seen_by="opening",
                size=opening.size,
            )
    return None
