"""Whose a file is that nobody was seen writing: of a process that wrote as much then, beside what is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import BESIDE_NS, BORN_NS, COMMIT_NS, MOST_SHARE, STAMP_NS, TELLING_BYTES
from ckptprof.detect.transfers.edges import born_and_written
from ckptprof.detect.transfers.ledger import Ledger
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.world import World
from ckptprof.frameworks.formats import SQLITE_LOGS
from ckptprof.frameworks.names import shape
from ckptprof_collectors.samples import FileFact

_CREDIT_BESIDE = 0.2  # is enough where it was seen writing in the same folder just then


class FileState(NamedTuple):
    """What a file was at a time."""

    at_ns: int
    fact: FileFact  # as its file system said
    askers: Collection[ProcessKey]  # on whose behalf it was asked

    @property
    def file(self) -> FileKey:
        """The file."""
        return self.fact.device, self.fact.inode


def likeliest_first(
    states: list[FileState], world: World, ledger: Ledger, unclaimed: Collection[str]
) -> list[FileState]:
    """Return first the files that are like those that their job wrote before, and last those that are like `unclaimed`.

    Of two files of one size and one moment, of which it can have written one, the other is of another job.
    """
    if sum(state.fact.size >= TELLING_BYTES for state in states) < 2:
        return states
    written, left = ledger.shapes(world.jobs), Counter(unclaimed)

    def strangeness(state: FileState) -> int:
        like = shape(state.fact.path)
        own = max((written[world.jobs.job_of(one), like] for one in state.askers), default=0)
        return 0 if own and own >= left[like] else 2 if left[like] else 1

    return sorted(states, key=strangeness)


def unseen_write(
    state: FileState, world: World, traced: TracedTransfers, ledger: Ledger, ended_ns: Collection[int] = ()
) -> Transfer | None:
    """Return a file as a transfer of who may have written it; `ended_ns`: when writings of it had ended."""
    at_ns, fact, askers = state
    modified_ns, file = world.clock.mono(fact.modified_ns), state.file
    if not fact.size or _is_database(fact) or any(one.writes for one in traced.near(file, modified_ns, modified_ns)):
        return None  # or who wrote it is known
    for process in _suspects(fact, askers, world):
        if not world.trains([process]):
            history = world.histories[process]
            began, modified = _written_between(history, fact, world, ended_ns)
            if history.was_heir(min(began, modified) - STAMP_NS, modified + BESIDE_NS):
                continue  # it may have its counters by the child that it waited for
        if traced.has_moved(process) and not _is_beside(process, fact, world, ledger):
            continue  # whose calls are counted has written it by none: a trace misses but small ones among many
        start_ns = _written_since(process, fact, world, ledger, ended_ns)
        if start_ns is not None:
            return Transfer(
                phase=Phase.OVER,
                process=process,
                file=file,
                writes=True,
                path=fact.path,
                first_ns=start_ns,
                last_ns=modified_ns,
                before_ns=start_ns,
                fact=msgspec.structs.replace(fact, pid=process[0], start_ticks=process[1]),
                fact_at_ns=at_ns,
                seen_by="directory",
                size=fact.size,
            )
    return None


def wrote_as_much(process: ProcessKey, fact: FileFact, world: World) -> bool:
    """Return whether a process, or children that it has waited for, wrote as much as a file holds about then."""
    birth, modified = born_and_written(fact, world.clock)
    wrote = world.histories[process].wrote_bytes(min(birth, modified) - STAMP_NS, modified + BESIDE_NS)
    return wrote >= MOST_SHARE * fact.size


def _is_database(fact: FileFact) -> bool:
    """Return whether it is one of SQLite's files, as our own is."""
    beginning = fact.magic or b""
    return beginning.startswith((b"SQLite format 3", *SQLITE_LOGS)) or fact.path.endswith(("-wal", "-shm", "-journal"))


def _suspects(fact: FileFact, askers: Iterable[ProcessKey], world: World) -> Iterator[ProcessKey]:
    """Yield who may have written a file: whoever asked for it, the latest first, then others of their job.

    Of a small file those first that train and wrote as much, themselves or by children that they have waited for since:
    whoever else looks at the folder writes something at any time, a log, a database, what it passes on.
    """
    asked = list(askers)[::-1]
    if fact.size < TELLING_BYTES and len(asked) > 1:
        asked.sort(key=lambda process: not (world.saves_itself(process) and wrote_as_much(process, fact, world)))
    yield from asked
    if fact.size >= TELLING_BYTES:
        yield from (process for process in world.relatives((fact.pid, fact.start_ticks)) if process not in asked)


def _written_between(history: ProcessHistory, fact: FileFact, world: World, ended_ns: Collection[int]) -> Span:
    birth, modified = born_and_written(fact, world.clock)
    if fact.size < TELLING_BYTES:
        return birth, modified
    born = None if fact.birth_ns is None else birth
    return _rewritten_since(history, fact.size, born, modified, ended_ns) or birth, modified


def _rewritten_since(
    history: ProcessHistory, size: int, birth: int | None, modified: int, ended_ns: Collection[int]
) -> int | None:
    """Return when a process began to write a file anew that was there before; None: it is not known to have been there.

    Its birth tells nothing then, and some file systems keep none. It began after the writing before, and no later than
    its process can have written as much as it holds.
    """
    before_ns = max((at_ns for at_ns in ended_ns if at_ns < modified), default=None)
    if before_ns is None and birth is not None and history.first_ns <= birth + BORN_NS:
        return None
    left = MOST_SHARE * size
    low_ns = modified - COMMIT_NS if birth is None else birth
    for interval in reversed(history.between(low_ns, modified + STAMP_NS)):
        left -= interval.wrote_bytes
        if left <= 0:
            return min(max(interval.start_ns, before_ns or 0), modified)
    return None


def _is_beside(process: ProcessKey, fact: FileFact, world: World, ledger: Ledger) -> bool:
    folder = fact.path.rpartition("/")[0]
    return fact.size < TELLING_BYTES and ledger.is_beside(folder, process, *born_and_written(fact, world.clock))


def _written_since(
    process: ProcessKey, fact: FileFact, world: World, ledger: Ledger, ended_ns: Collection[int]
) -> int | None:
    """Return when a process began to write a file that was never caught open; None: it did not.

    It must have written as much as the file holds at that time, beside what the ledger explains. Or in all its
    life, if it was first seen while the file was written, or after: what it had written by then is in no interval.
    """
    history = world.histories[process]
    birth, modified = _written_between(history, fact, world, ended_ns)
    small = fact.size < TELLING_BYTES  # markers and metadata are lost in the noise of the counters
    around = history.between(min(birth, modified) - STAMP_NS, modified + STAMP_NS)
    beside = ledger.is_beside(fact.path.rpartition("/")[0], process, birth, modified)
    enough = any(interval.wrote_bytes for interval in around)
    if enough and not small:
        # Of a run on several nodes a file beside is as likely another node's
        share = _CREDIT_BESIDE if beside and not world.jobs.are_elsewhere(process) else MOST_SHARE
        enough = ledger.unexplained_written(process, birth, modified) >= share * fact.size
    if not enough:
        started_ns = min(history.first_ns, process[1] * 1_000_000_000 // world.header.ticks_per_second)
        met_late = birth <= history.first_ns <= birth + BORN_NS and started_ns <= modified + STAMP_NS and not small
        if not met_late or ledger.unexplained_since_it_began(process) < MOST_SHARE * fact.size:
            return None
    if (small and modified - birth > BESIDE_NS) or birth > modified:
        return modified  # written anew, as `latest` is with each save
    # what ended before was a file that had its inode
    born_ns = birth if fact.birth_ns is None else born_and_written(fact, world.clock)[0]
    return max(born_ns, birth, around[0].start_ns) if enough else max(born_ns, birth)
