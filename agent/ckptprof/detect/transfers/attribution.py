"""Whose a file is that nobody was caught writing: of a process that wrote so much more than it was seen to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ckptprof.detect.transfers.edges import SLACK_NS, UNSEEN_NS, born_and_written
from ckptprof.detect.transfers.polled import PolledTransfer
from ckptprof.detect.transfers.transfer import Transfer
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import Interval, ProcessHistory, writing
from ckptprof.detect.world.world import World
from ckptprof.frameworks.formats import SQLITE_LOGS
from ckptprof_collectors.samples import FileFact

CREDIT = 0.8  # of a file's bytes its process must have written: counters and stamps are some ticks apart
BESIDE_NS = 1_000_000_000
SMALL_BYTES = 1 << 20
_CREDIT_BESIDE = 0.2  # is enough where it was seen writing in the same folder just then
_MIN_ALONE_BYTES = 1  # an empty file carries nothing


class KnownWrites:
    """What processes were seen writing, so ordered that a save of very many files is not held against all of them."""

    def __init__(self, streams: Iterable[Transfer]) -> None:
        """Take all that writes."""
        self.of: dict[ProcessKey, list[Transfer]] = {}
        self._seen: dict[tuple[ProcessKey, str], list[Transfer]] = {}
        for stream in streams:
            self.add(stream)

    def add(self, stream: Transfer) -> None:
        """Take one more, if it writes."""
        if not stream.writes:
            return
        self.of.setdefault(stream.process, []).append(stream)
        if stream.looks if isinstance(stream, PolledTransfer) else True:
            self._seen.setdefault((stream.process, stream.path.rpartition("/")[0]), []).append(stream)

    def is_beside(self, path: str, process: ProcessKey, start_ns: int, end_ns: int) -> bool:
        """Return whether the process was seen writing another file of the folder then, give or take a second."""
        return any(
            other.first_ns - BESIDE_NS <= end_ns and start_ns <= other.last_ns + BESIDE_NS
            for other in reversed(self._seen.get((process, path.rpartition("/")[0]), ()))
        )


def _left_over(history: ProcessHistory, others: list[Transfer], start_ns: int, end_ns: int) -> int:
    """Return how much more a process wrote, in all the time of its streams around, than these account for."""
    around = [
        other for other in others if other.last_ns >= start_ns - BESIDE_NS and other.first_ns <= end_ns + BESIDE_NS
    ]
    first_ns = min([start_ns, *(other.begin.least for other in around)])
    last_ns = max([end_ns, *(other.end.most for other in around)])
    written = sum(writing(interval) for interval in history.between(first_ns - SLACK_NS, last_ns + SLACK_NS))
    return written - sum(_size(other) for other in around)


def _size(stream: Transfer) -> int:
    operations = stream.operations if stream.threads else None
    return operations.bytes if operations is not None else stream.stored_size


def _wrote_unseen(history: ProcessHistory, others: list[Transfer], birth_ns: int, size: int) -> bool:
    """Return whether a process that was met while the file was written, or after, wrote as much in all its life.

    What it had written by the first look is in no interval: the kernel counts from nought (kernel/fork.c).
    """
    met_ns = history.first_ns
    if history.last_io is None or size < SMALL_BYTES or not birth_ns <= met_ns <= birth_ns + UNSEEN_NS:
        return False
    claimed = sum(_size(other) for other in others)
    return history.last_io.write_chars - claimed >= CREDIT * size


def _is_database(fact: FileFact) -> bool:
    """Return whether it is one of SQLite's files, as our own is."""
    beginning = fact.magic or b""
    return beginning.startswith((b"SQLite format 3", *SQLITE_LOGS)) or fact.path.endswith(("-wal", "-shm", "-journal"))


def may_be_missed(fact: FileFact, claims: KnownWrites, clock: Clock) -> bool:
    """Return whether the trace of its process may not have told of a file: it misses but small ones among many."""
    birth, modified = born_and_written(fact, clock)
    return fact.size < SMALL_BYTES and claims.is_beside(fact.path, (fact.pid, fact.start_ticks), birth, modified)


def _accounts_for(
    history: ProcessHistory,
    around: Sequence[Interval],
    fact: FileFact,
    claims: KnownWrites,
    written_ns: tuple[int, int],
) -> bool:
    """Return whether a process wrote so much more than it was seen writing that a file may be its own."""
    own = (fact.pid, fact.start_ticks)
    others = claims.of.get(own, [])
    needed = fact.size * (_CREDIT_BESIDE if claims.is_beside(fact.path, own, *written_ns) else CREDIT)
    start_ns, end_ns = around[0].start_ns, around[-1].end_ns
    near = [other for other in others if other.end.most > start_ns and other.begin.least < end_ns]
    left = sum(_unclaimed(interval, near) for interval in around)
    return left >= needed and _left_over(history, others, *written_ns) >= needed


def _unclaimed(interval: Interval, others: list[Transfer]) -> int:
    """Return what was written in an interval beside what others can have had of it, each at an even rate."""
    written = writing(interval)
    claimed = sum(other.evenly(_size(other), interval.start_ns, interval.end_ns) for other in others) if written else 0
    return max(0, written - claimed)


def found_by_its_times(at_ns: int, fact: FileFact, world: World, claims: KnownWrites) -> PolledTransfer | None:
    """Return a stream for a file that was never caught open.

    Its process must have written as much as the file holds at that time, beside what `claims` account for.
    """
    history = world.histories.get((fact.pid, fact.start_ticks))
    if history is None or fact.size < _MIN_ALONE_BYTES or _is_database(fact):
        return None
    birth, modified = born_and_written(fact, world.clock)
    around = history.between(min(birth, modified) - SLACK_NS, modified + SLACK_NS)
    small = fact.size < SMALL_BYTES  # markers and metadata are lost in the noise of the counters
    enough = any(writing(interval) for interval in around)
    enough = enough and (small or _accounts_for(history, around, fact, claims, (birth, modified)))
    own = (fact.pid, fact.start_ticks)
    if not enough and not _wrote_unseen(history, claims.of.get(own, []), birth, fact.size):
        return None  # somebody else wrote it
    start = max(birth, around[0].start_ns if enough else birth) if birth <= modified else modified
    if small and modified - birth > BESIDE_NS:
        start = modified  # written anew, as `latest` is with each save
    return PolledTransfer(
        process=(fact.pid, fact.start_ticks),
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
