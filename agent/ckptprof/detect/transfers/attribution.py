"""Whose a file is that nobody was caught writing: of a process that wrote so much more than it was seen to write."""

from __future__ import annotations

from ckptprof.detect.transfers.edges import born_and_written
from ckptprof.detect.transfers.ledger import Ledger
from ckptprof.detect.transfers.model.tolerances import BESIDE_NS, BORN_NS, STAMP_NS, TELLING_BYTES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.world import World
from ckptprof.frameworks.formats import SQLITE_LOGS
from ckptprof_collectors.samples import FileFact

CREDIT = 0.8  # of a file's bytes its process must have written: counters and stamps are some ticks apart
_CREDIT_BESIDE = 0.2  # is enough where it was seen writing in the same folder just then


def _is_database(fact: FileFact) -> bool:
    """Return whether it is one of SQLite's files, as our own is."""
    beginning = fact.magic or b""
    return beginning.startswith((b"SQLite format 3", *SQLITE_LOGS)) or fact.path.endswith(("-wal", "-shm", "-journal"))


def may_be_missed(fact: FileFact, ledger: Ledger, clock: Clock) -> bool:
    """Return whether counting its process's operations may have missed a file: it misses but small ones among many."""
    return fact.size < TELLING_BYTES and _is_beside(fact, ledger, *born_and_written(fact, clock))


def _is_beside(fact: FileFact, ledger: Ledger, birth: int, modified: int) -> bool:
    """Return whether its process was seen writing in the same folder just then."""
    return ledger.is_beside(fact.path.rpartition("/")[0], (fact.pid, fact.start_ticks), birth, modified)


def found_by_its_times(at_ns: int, fact: FileFact, world: World, ledger: Ledger) -> Transfer | None:
    """Return a transfer for a file that was never caught open.

    Its process must have written as much as the file holds at that time, beside what the ledger explains. Or in all its
    life, if it was first seen while the file was written, or after: what it had written by then is in no interval.
    """
    own = (fact.pid, fact.start_ticks)
    history = world.histories.get(own)
    if history is None or not fact.size or _is_database(fact):
        return None
    birth, modified = born_and_written(fact, world.clock)
    around = history.between(min(birth, modified) - STAMP_NS, modified + STAMP_NS)
    small = fact.size < TELLING_BYTES  # markers and metadata are lost in the noise of the counters
    enough = any(interval.wrote_bytes for interval in around)
    if enough and not small:
        share = _CREDIT_BESIDE if _is_beside(fact, ledger, birth, modified) else CREDIT
        enough = ledger.unexplained_written(own, birth, modified) >= share * fact.size
    if not enough:
        met_late = birth <= history.first_ns <= birth + BORN_NS and history.last_io is not None and not small
        if not met_late or ledger.unexplained_since_it_began(own) < CREDIT * fact.size:
            return None  # somebody else wrote it
    start = max(birth, around[0].start_ns if enough else birth) if birth <= modified else modified
    if small and modified - birth > BESIDE_NS:
        start = modified  # written anew, as `latest` is with each save
    return Transfer(
        process=own,
        file=(fact.device, fact.inode),
        writes=True,
        path=fact.path,
        first_ns=start,
        last_ns=modified,
        before_ns=start,
        fact=fact,
        fact_at_ns=at_ns,
        seen_by="directory",
        size=fact.size,
    )
