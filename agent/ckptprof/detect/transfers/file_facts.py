"""Joins what the file system said with the transfers: final names, stamps, sizes, and files that nobody caught open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ckptprof.detect.tolerances import BESIDE_NS, BORN_NS, MAX_FILES, MOST_SHARE, STAMP_NS, TELLING_BYTES
from ckptprof.detect.transfers.edges import born_and_written, is_coarse
from ckptprof.detect.transfers.ledger import Ledger, counted
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.observed.traced_transfers import TracedTransfers
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.frameworks.formats import SQLITE_LOGS
from ckptprof.frameworks.names import read_name
from ckptprof_collectors.samples import FileFact

MAX_FACTS = 20_000  # of files that nobody asked about yet: those of a save come at once
_ASKED_NS = 2_500_000_000  # after somebody else a trainer asks for its files by then
_CREDIT_BESIDE = 0.2  # is enough where it was seen writing in the same folder just then


class FileFacts:
    """The latest fact of each file, and which of them belong to a transfer already."""

    def __init__(self, world: World, traced: TracedTransfers) -> None:
        """Start with nothing."""
        self._world = world
        self._traced = traced
        self._now_ns = 0
        self._facts: Bounded[FileKey, tuple[int, FileFact]] = Bounded(MAX_FACTS, lambda key, _: self._settle(key))
        # those that were not taken into account yet, and on whose behalf they were looked at
        self._fresh: dict[FileKey, dict[ProcessKey, None]] = {}
        self._used: Bounded[int, None] = Bounded(MAX_FACTS)  # by `_writing`
        self._claims: dict[tuple[ProcessKey, FileKey, int], Transfer] = {}  # what was written lately, judged or not

    def note(self, at_ns: int, fact: FileFact) -> None:
        """Take one fact; a file that is gone tells nothing of the others."""
        if fact.missing or fact.is_directory:
            return
        key, asker = (fact.device, fact.inode), (fact.pid, fact.start_ticks)
        earlier = self._facts.get(key)
        if earlier is None or earlier[1].birth_ns != fact.birth_ns:
            self._settle(key)  # its inode is another file's now
        elif _is_lesser_name(fact, earlier[1]) or _is_no_news(fact, earlier[1]):
            self._facts.move_to_end(key)
            if key in self._fresh:
                self._fresh[key][asker] = None
            return
        self._facts[key] = (at_ns, fact)
        self._fresh.setdefault(key, {})[asker] = None

    def _settle(self, key: FileKey) -> None:
        self._fresh.pop(key, None)

    @property
    def is_pressing(self) -> bool:
        """Whether so much was learnt that it is to be taken into account soon: what comes next takes its room."""
        return 3 * len(self._fresh) >= MAX_FACTS

    def modified_ns(self, path: str) -> int | None:
        """Return when a file of that name was last written, by the wall clock; None: it was not looked at of late."""
        return max((fact.modified_ns for _, fact in self._facts.values() if fact.path == path), default=None)

    def attach(self, waiting: list[Transfer], polled_open: list[Transfer], now_ns: int) -> list[Transfer]:
        """Return what waits with its facts, and transfers for files that were found by their times only."""
        self._now_ns = now_ns
        world, clock = self._world, self._world.clock
        still_open: list[Transfer] = [*polled_open, *self._traced.open_transfers()] if self._fresh else [*polled_open]
        found = self._without_outlived(waiting, still_open)
        by_file = {transfer.file: transfer for transfer in found if transfer.writes}  # of each the last
        open_files = {transfer.file for transfer in still_open if transfer.writes}
        unknown = self._join_known(by_file, open_files, clock)
        for transfer in [*found, *still_open]:
            self._claim(transfer)
        ledger = Ledger(world.histories, [*self._claims.values(), *self._traced.written()] if unknown else ())
        trainers = [process for process in world.histories if world.saves_itself(process)] if unknown else []
        for key in unknown:  # what the others do not account for is left for these
            if self._waits(key, trainers):
                continue
            alone = self._credited(key, ledger)
            if alone is not None:
                found.append(alone)
                self._claim(alone)
                ledger.enter(alone)
                self._used[_writing(key, self._facts[key][1])] = None
            self._settle(key)
        return found

    def _without_outlived(self, waiting: list[Transfer], still_open: Iterable[Transfer]) -> list[Transfer]:
        """Return what waits without files that were found by their times while they were still being written.

        Who writes them was caught with them open after all, and stands for all of it.
        """
        if not any(transfer.is_credited for transfer in waiting):
            return list(waiting)
        caught: dict[FileKey, list[Transfer]] = {}
        for transfer in [*waiting, *still_open]:
            if transfer.writes and not transfer.is_credited:
                caught.setdefault(transfer.file, []).append(transfer)
        found = []
        for transfer in waiting:
            others = caught.get(transfer.file, ()) if transfer.is_credited else ()
            whole = next((other for other in others if _goes_on(transfer, other)), None)
            if whole is None:
                found.append(transfer)
                continue
            whole.first_ns = min(whole.first_ns, transfer.first_ns)
            whole.before_ns = min(whole.before_ns, transfer.before_ns)
            self._claims.pop((transfer.process, transfer.file, transfer.first_ns), None)
        return found

    def _credited(self, key: FileKey, ledger: Ledger) -> Transfer | None:
        """Return a file that nobody was seen writing as a transfer of who may have written it."""
        at_ns, fact = self._facts[key]
        modified = self._world.clock.mono(fact.modified_ns)
        if not fact.size or _is_database(fact) or any(one.writes for one in self._traced.near(key, modified, modified)):
            return None  # or who wrote it is known
        for process in _suspects(fact, self._fresh.get(key, ()), self._world):
            if self._world.trains([process]) or not _waited_meanwhile(process, fact, self._world):
                found = self._written_by(process, at_ns, fact, ledger)
                if found is not None:
                    return found
        return None

    def _written_by(self, process: ProcessKey, at_ns: int, fact: FileFact, ledger: Ledger) -> Transfer | None:
        """Return a transfer by which a process wrote a file that was never caught open; None: it did not.

        It must have written as much as the file holds at that time, beside what the ledger explains. Or in all its
        life, if it was first seen while the file was written, or after: what it had written by then is in no interval.
        """
        history = self._world.histories.get(process)
        if history is None:
            return None
        birth, modified = born_and_written(fact, self._world.clock)
        around = history.between(min(birth, modified) - STAMP_NS, modified + STAMP_NS)
        small = fact.size < TELLING_BYTES  # markers and metadata are lost in the noise of the counters
        beside = ledger.is_beside(fact.path.rpartition("/")[0], process, birth, modified)
        if self._traced.moved_by(process) and not (small and beside):
            return None  # whose calls are counted has written it by none: a trace misses but small ones among many
        enough = any(interval.wrote_bytes for interval in around)
        if enough and not small:
            share = _CREDIT_BESIDE if beside else MOST_SHARE
            enough = ledger.unexplained_written(process, birth, modified) >= share * fact.size
        if not enough:
            met_late = birth <= history.first_ns <= birth + BORN_NS and not small
            if not met_late or ledger.unexplained_since_it_began(process) < MOST_SHARE * fact.size:
                return None
        start = max(birth, around[0].start_ns if enough else birth) if birth <= modified else modified
        if small and modified - birth > BESIDE_NS:
            start = modified  # written anew, as `latest` is with each save
        return Transfer(
            process=process,
            file=(fact.device, fact.inode),
            writes=True,
            path=fact.path,
            first_ns=start,
            last_ns=modified,
            before_ns=start,
            fact=msgspec.structs.replace(fact, pid=process[0], start_ticks=process[1]),
            fact_at_ns=at_ns,
            seen_by="directory",
            size=fact.size,
        )

    def _waits(self, key: FileKey, trainers: list[ProcessKey]) -> bool:
        """Return whether a small file may be a trainer's that has not asked for it yet: it will when its burst ends."""
        (at_ns, fact), askers = self._facts[key], self._fresh.get(key, {})
        late = self._now_ns - at_ns >= _ASKED_NS
        if late or fact.size >= TELLING_BYTES or any(process in askers for process in trainers):
            return False
        return any(_wrote_as_much(process, fact, self._world) for process in trainers)

    def _join_known(self, by_file: dict[FileKey, Transfer], open_files: set[FileKey], clock: Clock) -> list[FileKey]:
        """Give the fresh facts to the transfers of their files; return the files that nobody was seen writing."""
        unknown: list[FileKey] = []
        for key in list(self._fresh):
            at_ns, fact = self._facts[key]
            if key in by_file and not _is_written_anew(at_ns, fact, by_file[key], clock):
                if not _is_of_before(fact, by_file[key], clock):
                    _join(by_file[key], at_ns, fact)
                self._used[_writing(key, fact)] = None
            elif key in open_files:
                continue  # its transfer is not over: keep the fact for it
            elif _writing(key, fact) not in self._used:
                unknown.append(key)
                continue
            self._settle(key)
        return unknown

    def _claim(self, transfer: Transfer) -> None:
        if transfer.writes and not isinstance(transfer, TracedTransfer):  # those are kept where they are followed
            self._claims[transfer.process, transfer.file, transfer.first_ns] = transfer

    def forget_before(self, at_ns: int) -> None:
        """Drop facts that were learnt before `at_ns`."""
        for claim, transfer in list(self._claims.items()):
            if transfer.last_ns < at_ns:
                del self._claims[claim]
        for key, (learnt_ns, _) in list(self._facts.items()):
            if learnt_ns < at_ns:
                del self._facts[key]
                self._settle(key)
        self.cut(1.0)

    def __len__(self) -> int:
        """Return how many facts are known, how many were taken into account, and what was written lately."""
        return len(self._facts) + len(self._claims) + len(self._used) // 4  # of which each takes that much less

    def cut(self, share: float) -> None:
        """Keep so many of the latest, as a share of the bound; of facts, what was not taken into account yet."""
        settled = [key for key in self._facts if key not in self._fresh]
        for key in settled[: max(0, len(settled) - int(share * MAX_FILES))]:
            del self._facts[key]
        if share < 1.0:
            self._used.cut(share)
            for claim in list(self._claims)[: max(0, len(self._claims) - int(share * MAX_FILES))]:
                del self._claims[claim]  # what still waits is claimed again


def _writing(key: FileKey, fact: FileFact) -> int:
    """Return a number for one state of a file: twenty thousand of them take 3 MB, as tuples they took 8."""
    return hash((key, fact.modified_ns))


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
        asked.sort(key=lambda process: not (world.saves_itself(process) and _wrote_as_much(process, fact, world)))
    yield from asked
    if fact.size >= TELLING_BYTES:
        yield from (process for process in world.relatives((fact.pid, fact.start_ticks)) if process not in asked)


def _waited_meanwhile(process: ProcessKey, fact: FileFact, world: World) -> bool:
    """Return whether a process waited for a child about when a file was written, and may have its counters by that."""
    history = world.histories.get(process)
    birth, modified = born_and_written(fact, world.clock)
    return history is not None and history.was_heir(min(birth, modified) - STAMP_NS, modified + BESIDE_NS)


def _wrote_as_much(process: ProcessKey, fact: FileFact, world: World) -> bool:
    """Return whether a process, or children that it has waited for, wrote as much as a file holds about then."""
    history = world.histories.get(process)
    birth, modified = born_and_written(fact, world.clock)
    frame = min(birth, modified) - STAMP_NS, modified + BESIDE_NS
    return history is not None and counted(history, *frame, writes=True) >= MOST_SHARE * fact.size


def _goes_on(found: Transfer, other: Transfer) -> bool:
    """Return whether another transfer of the same file is the later part of what was found in the folder."""
    if other.begin.least > found.last_ns + BESIDE_NS:
        return False
    later = other.end.most >= found.last_ns
    return later and (not other.looks or other.looks[0].position >= found.size)


def _is_no_news(fact: FileFact, known: FileFact) -> bool:
    """Whether `fact` was asked for its pages only, and nothing else has changed."""
    same = (fact.path, fact.size, fact.modified_ns) == (known.path, known.size, known.modified_ns)
    return same and fact.unwritten_bytes is not None and fact.magic is None


def _is_of_before(fact: FileFact, transfer: Transfer, clock: Clock) -> bool:
    """Whether a file was looked at before a transfer wrote it: deleted since, perhaps, and its inode is another's."""
    touched_ns = clock.mono(max(fact.modified_ns, fact.changed_ns))  # nobody sets the second one back
    slack_ns = 1_000_000_000 if is_coarse(fact) else STAMP_NS
    return touched_ns < transfer.before_ns - slack_ns


def _is_written_anew(at_ns: int, fact: FileFact, transfer: Transfer, clock: Clock) -> bool:
    """Whether it is not that writing which is told of: the inode is a later file's, or `latest` was written again."""
    born_ns = clock.mono(fact.birth_ns) if fact.birth_ns is not None else 0
    was_set = born_ns > at_ns + STAMP_NS  # the clock, since then: nothing is born after it was looked at
    if not was_set and born_ns > transfer.end.most + STAMP_NS:
        return True
    small = transfer.is_credited and fact.size < TELLING_BYTES
    return small and clock.mono(fact.modified_ns) > transfer.last_ns + BESIDE_NS


def _is_lesser_name(fact: FileFact, known: FileFact) -> bool:
    """Whether `fact` shows the temporary name of a file whose final name is known, or of a link to it `latest`."""
    name, better = read_name(fact.path), read_name(known.path)
    if name.temporary or better.temporary:
        return name.temporary and not better.temporary
    as_it_was = (fact.size, fact.modified_ns) == (known.size, known.modified_ns)
    return as_it_was and name.alias and name.step is None and better.step is not None


def _join(transfer: Transfer, at_ns: int, fact: FileFact) -> None:
    if at_ns < transfer.last_ns and fact.size < transfer.size:  # looked at while it grew, and gone or unasked for since
        fact = msgspec.structs.replace(fact, size=transfer.size)
    transfer.fact = fact
    transfer.fact_at_ns = at_ns
    if isinstance(transfer, TracedTransfer):
        if fact.path == transfer.earlier_path or is_temporary(fact.path) > is_temporary(transfer.path):
            return  # an earlier look: the rename was seen
        transfer.version += fact.path != transfer.path
        if not transfer.path.startswith("/"):
            transfer.path = fact.path
            return
    if fact.path != transfer.path:
        transfer.earlier_path = transfer.path
        transfer.path = fact.path
