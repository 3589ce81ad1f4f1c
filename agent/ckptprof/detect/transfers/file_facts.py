"""Applies facts of the file system to transfers: final names, stamps, sizes, and files never observed open.

Theory of operation. A fact is the state of one inode at one time: path, size, stamps, sometimes its first bytes. It is
fresh until it is applied, and then in one of three ways. If a known transfer wrote the file, the fact completes it. If
a transfer still has it open, the fact is retained for that. Else no writer was observed: of the processes that
requested the fact, and of their job, the one whose counters have as many unexplained bytes is credited
(`unobserved_writes`, with `ledger`). A fact without any such process is remembered by shape, as a sign of a foreign
job.

The difficulty is that inodes are reused and files rewritten: a fact may be of an earlier file, of a writing that still
goes on, or of a link. Birth and modification times decide, within the resolution of stamps; counters confirm what
a server's clock may have falsified.

Invariant: one state of a file (inode and modification time) is applied once. What was credited is undone if its writer
is observed with the file open later.

Example: a job rewrites `latest` with each save. Its fact at the second save is newer than the end of the first
transfer, and the process wrote as much since: the first transfer is unchanged, and a second one is credited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from ckptprof.detect.tolerances import (
    CONCURRENT_NS,
    LATE_TICK_NS,
    MAX_FILES,
    MAX_PER_ITEM,
    MOST_SHARE,
    POLL_INTERVAL_NS,
    SIGNIFICANT_BYTES,
    STAMP_TOLERANCE_NS,
)
from ckptprof.detect.transfers.edges import is_coarse
from ckptprof.detect.transfers.ledger import Ledger
from ckptprof.detect.transfers.model.operations import shared
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.observed.openings import FileClosing, FileOpenings
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.transfers.unobserved_writes import (
    FileState,
    find_unobserved_write,
    order_by_likelihood,
    wrote_enough,
)
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof.detect.world.world import World
from ckptprof.frameworks.file_names import parse_name, path_shape
from ckptprof_collectors.samples import FileFact

MAX_FACTS = 20_000  # not applied yet: those of a save come at once
_TRAINER_QUERY_NS = 2_500_000_000  # a trainer requests its files by then, after another process did
Claims = dict[FileKey, list[Transfer]]  # what writes each file, the earliest first


class FileFacts:
    """The latest fact of each file, and which of them belong to a transfer."""

    def __init__(self, world: World, traced: TracedTransfers, openings: FileOpenings) -> None:
        self._world = world
        self._traced = traced
        self._openings = openings
        self._now_ns = 0
        self._facts: Bounded[FileKey, tuple[int, FileFact]] = Bounded(MAX_FACTS, on_drop=self._settle)
        # facts not applied yet, and the processes that requested them
        self._fresh: dict[FileKey, dict[ProcessKey, None]] = {}
        # small files that wait for a trainer's request, and until when
        self._awaiting_trainer: dict[FileKey, int] = {}
        self._trainers: frozenset[ProcessKey] = frozenset()  # for whom they wait
        self._applied: Bounded[int, None] = Bounded(MAX_FACTS)  # by `_writing`
        self._first_names: Bounded[FileKey, str] = Bounded(MAX_PER_ITEM)  # of files that have several
        self._links: Bounded[str, FileFact] = Bounded(MAX_PER_ITEM)  # further names of large files, by path, the latest
        self._unclaimed: Bounded[FileKey, str] = Bounded(MAX_PER_ITEM)  # without a possible writer, by shape
        self._claims: dict[tuple[ProcessKey, FileKey, int], Transfer] = {}  # recent writes, decided or not

    def record(self, at_ns: int, fact: FileFact) -> None:
        """Record one fact; a missing file shows nothing about the others."""
        if fact.is_directory:
            self._world.folders.record(fact)
        if fact.is_missing or fact.is_directory:
            return
        key, requester = (fact.device, fact.inode), (fact.pid, fact.start_ticks)
        earlier = self._facts.get(key)
        if earlier is None or earlier[1].birth_ns != fact.birth_ns:
            self._settle(key)  # its inode is reused
            self._first_names.pop(key, None)
        elif (
            self._is_link(at_ns, fact, *earlier)
            or _is_lesser_name(fact, earlier[1])
            or _is_only_writeback(fact, earlier[1])
        ):
            self._facts.move_to_end(key)
            if fact.path != earlier[1].path and fact.size >= SIGNIFICANT_BYTES:
                self._links[fact.path] = fact
            if key in self._fresh:
                self._fresh[key][requester] = None
                self._awaiting_trainer.pop(key, None)
            return
        requester = shared(requester)
        self._facts[key] = (at_ns, FileFact(*map(shared, msgspec.structs.astuple(fact))))
        self._awaiting_trainer.pop(key, None)
        self._fresh.setdefault(key, {})[requester] = None

    def _is_link(self, at_ns: int, fact: FileFact, known_at_ns: int, known: FileFact) -> bool:
        """Recognise a hard link: a further name of a file that had both at a time; the file retains the first.

        Not a temporary name, nor one reused for each save, if that came first.
        """
        key = fact.device, fact.inode
        if fact.path != known.path and at_ns == known_at_ns and not (name := parse_name(known.path)).temporary:
            self._first_names.setdefault(key, fact.path if name.alias else known.path)
        return self._first_names.get(key, fact.path) != fact.path

    def _settle(self, key: FileKey, _: object = None) -> None:
        self._fresh.pop(key, None)
        self._awaiting_trainer.pop(key, None)

    def linked_bytes(self, folder: str, before_ns: int) -> int:
        """Return the bytes of files written before a time with one name in the folder and their first in another."""
        own = (fact for path, fact in self._links.items() if path.rpartition("/")[0] == folder)
        old = (fact for fact in own if self._world.clock.mono(fact.modified_ns) < before_ns)
        firsts = ((fact, self._facts.get((fact.device, fact.inode))) for fact in old)
        # `best` in the same folder is no part of a save
        return sum(fact.size for fact, first in firsts if first and first[1].path.rpartition("/")[0] != folder)

    @property
    def is_nearly_full(self) -> bool:
        """Fresh facts must be applied soon: newer ones would displace them."""
        return 3 * len(self._fresh) >= MAX_FACTS

    def paths(self) -> Iterator[str]:
        """Yield the names of recently inspected files."""
        return (fact.path for _, fact in self._facts.values())

    def modified_ns(self, path: str) -> int | None:
        """Return when a file of that name was last written, by the wall clock; None: not inspected recently."""
        return max((fact.modified_ns for _, fact in self._facts.values() if fact.path == path), default=None)

    def apply(self, waiting: list[Transfer], polled_open: list[Transfer], now_ns: int) -> list[Transfer]:
        """Return waiting transfers with their facts, and new ones for files known only by their times."""
        self._now_ns = now_ns
        world, clock = self._world, self._world.clock
        still_open: list[Transfer] = [*polled_open, *self._traced.open_transfers()] if self._fresh else [*polled_open]
        found = self._without_grown(self._without_reobserved(waiting, still_open))
        if self._awaiting_trainer:
            self._find_trainers()
        unknown = self._join_known(_group_by_file(found, self._fresh), _group_by_file(still_open, self._fresh), clock)
        self._claim(*found, *still_open)
        closings = [
            one for one in self._openings.unattributed_closings(now_ns - POLL_INTERVAL_NS) if one.file in self._facts
        ]
        written = [one for one in found if one.samples and one.writes]
        files = {*unknown, *(one.file for one in written), *(one.file for one in closings)}
        claims = _group_by_file(self._claims.values(), files)
        self._restore_sizes(written, claims)
        if not unknown and not closings:
            return found
        ledger = Ledger(world.histories, self._openings, [*self._claims.values(), *self._traced.written()])
        self._find_trainers()
        states = [
            FileState(*self._facts[key], self._fresh.get(key, ())) for key in unknown if not self._awaits_trainer(key)
        ]
        states += [state for one in closings if (state := self._state_when_closed(one, claims)) is not None]
        for state in order_by_likelihood(states, world, ledger, self._unclaimed.values()):
            # these get what the others do not explain
            ended_ns = [closing.at_ns for closing in self._openings.closings.by_key(state.file)]
            ended_ns += (transfer.span[1] for transfer in claims.get(state.file, ()))
            credited = find_unobserved_write(state, world, self._traced, ledger, ended_ns)
            if credited is not None:
                found.append(credited)
                self._claim(credited)
                claims.setdefault(state.file, []).append(credited)
                ledger.add(credited)
                self._applied[_write_state_hash(state.file, state.fact)] = None
            elif state.file not in claims and state.fact.size >= SIGNIFICANT_BYTES:
                self._unclaimed[state.file] = path_shape(state.fact.path)
            self._settle(state.file)
        return found

    def _state_when_closed(self, closing: FileClosing, claims: Claims) -> FileState | None:
        """Return the state of a file when it was closed; None: its writer is known."""
        closing.is_attributed, of_file = True, self._openings.closings.by_key(closing.file)
        if any(_ends_at(transfer, closing, of_file) for transfer in claims.get(closing.file, ())):
            return None
        _, known_fact = self._facts[closing.file]
        at_ns = self._world.clock.stamp(closing.at_ns)
        fact = msgspec.structs.replace(
            known_fact, path=closing.path, size=closing.size, modified_ns=at_ns, changed_ns=at_ns, is_complete=None
        )
        return FileState(closing.at_ns, fact, ((fact.pid, fact.start_ticks),))

    def _without_reobserved(self, waiting: list[Transfer], still_open: Iterable[Transfer]) -> list[Transfer]:
        """Return waiting transfers without files credited by their times while they were still written.

        Their writer was observed with them open after all, and stands for all of it.
        """
        observed_open: dict[FileKey, list[Transfer]] = {}
        for transfer in [one for one in (*waiting, *still_open) if one.writes and not one.is_credited]:
            observed_open.setdefault(transfer.file, []).append(transfer)
        if not observed_open:
            return list(waiting)
        found = []
        for transfer in waiting:
            others = observed_open.get(transfer.file, ()) if transfer.is_credited else ()
            superseding = next((other for other in others if _is_continued_by(transfer, other)), None)
            if superseding is None:
                found.append(transfer)
                continue
            superseding.extend_back_to(transfer)
            self._claims.pop((transfer.process, transfer.file, transfer.first_ns), None)
        return found

    def _without_grown(self, waiting: list[Transfer]) -> list[Transfer]:
        """Return waiting transfers without files that grew since they were credited, in runs on several nodes.

        They are decided again: a process that had written as much by then need not have written all of it.
        """
        grown = [
            one for one in waiting if one.is_credited and one.file in self._fresh
            and self._facts[one.file][1].size > one.size and self._world.jobs.has_other_nodes(one.process)
        ]  # fmt: skip
        for transfer in grown:
            self._claims.pop((transfer.process, transfer.file, transfer.first_ns), None)
            _, fact = self._facts[transfer.file]
            self._applied.pop(_write_state_hash(transfer.file, fact), None)  # a stamp of whole seconds stays the same
        dropped = set(map(id, grown))
        return [one for one in waiting if id(one) not in dropped] if grown else waiting

    def _find_trainers(self) -> None:
        """Find the processes that may query their files; if they changed, all that waits is decided again."""
        trainers = frozenset(process for process in self._world.histories if self._world.may_save(process))
        if trainers != self._trainers:
            self._trainers = trainers
            self._awaiting_trainer.clear()

    def _awaits_trainer(self, key: FileKey) -> bool:
        """Return True while a small file may belong to a trainer that will query it after its burst."""
        (at_ns, fact), requesters = self._facts[key], self._fresh.get(key, {})
        has_expired = self._now_ns - at_ns >= _TRAINER_QUERY_NS
        if has_expired or fact.size >= SIGNIFICANT_BYTES or not self._trainers.isdisjoint(requesters):
            return False
        is_awaited = any(wrote_enough(process, fact, self._world) for process in self._trainers)
        if is_awaited:
            self._awaiting_trainer[key] = at_ns + _TRAINER_QUERY_NS
        return is_awaited

    def _join_known(self, by_file: Claims, by_open: Claims, clock: RecordingClock) -> list[FileKey]:
        """Apply fresh facts to the transfers of their files; return the files without an observed writer."""
        unknown: list[FileKey] = []
        early = {key for key, until_ns in self._awaiting_trainer.items() if self._now_ns < until_ns}
        early -= by_file.keys() | by_open.keys()
        for key in [key for key in self._fresh if key not in early]:
            at_ns, fact = self._facts[key]
            written = by_file.get(key, [])
            since = [transfer for transfer in written if not _predates(fact, transfer, clock)]
            if written and not (since and self._is_rewritten(at_ns, fact, since[-1])):
                if since and not (since[-1].fact and _is_emptied(since[-1], at_ns, fact, by_open.get(key, ()))):
                    _apply_fact(since[-1], at_ns, fact, clock)
                self._applied[_write_state_hash(key, fact)] = None
            elif key in by_open:
                continue  # its transfer is open: retain the fact
            elif _write_state_hash(key, fact) not in self._applied:
                unknown.append(key)
                continue
            self._settle(key)
        return unknown

    def _is_rewritten(self, at_ns: int, fact: FileFact, transfer: Transfer) -> bool:
        """Recognise a fact of another writing: the inode is a later file's, or the file was rewritten."""
        clock = self._world.clock
        birth_ns = clock.mono(fact.birth_ns) if fact.birth_ns is not None else 0
        if birth_ns > at_ns + STAMP_TOLERANCE_NS:  # the clock was set since: no file is born after it was inspected
            birth_ns = 0
        if birth_ns > transfer.span[1] + STAMP_TOLERANCE_NS:
            return True
        modified_ns = clock.mono(fact.modified_ns)
        if fact.size < SIGNIFICANT_BYTES:  # too small for counters
            return transfer.is_credited and modified_ns > transfer.last_ns + CONCURRENT_NS
        has_ended = transfer.is_credited or (transfer.closed_ns is not None and transfer.operations is None)
        if not has_ended or not transfer.span[1] + STAMP_TOLERANCE_NS < modified_ns <= at_ns + STAMP_TOLERANCE_NS:
            return False
        # its stamp alone may be of a server with another clock: its process must have written as much since
        since_ns, stored_bytes = (
            (transfer.first_ns, transfer.stored_size) if transfer.is_credited else (transfer.span[1], 0)
        )
        history = self._world.histories[transfer.process]
        return history.wrote_bytes(since_ns, modified_ns + STAMP_TOLERANCE_NS) - stored_bytes >= MOST_SHARE * fact.size

    def _restore_sizes(self, written: list[Transfer], claims: Claims) -> None:
        """Restore the size of a file that was rewritten since to what its process wrote, at most its largest ever.

        A size sampled during the next writing shows nothing about the end of this one.
        """
        for transfer in (one for one in written if len(claims[one.file]) > 1):
            fact, path = transfer.fact, transfer.path
            of_file = [other for other in claims[transfer.file] if other.path == path]  # else its inode is reused
            later = next((other for other in of_file if other.first_ns > transfer.last_ns), None)
            if not _is_of_open_write(transfer, later, self._world.clock):
                continue
            sizes = [transfer.stored_size, *(other.stored_size for other in of_file)]
            sizes += self._openings.sizes_when_closed(transfer)
            transfer.set_size(
                max(transfer.size, min(transfer.max_written_bytes, max(sizes))), reported=transfer.is_size_reported
            )
            if fact is not None:
                fact = msgspec.structs.replace(fact, size=transfer.size, is_complete=None)
                transfer.set_fact(fact, transfer.fact_at_ns)

    def _claim(self, *transfers: Transfer) -> None:
        written = [one for one in transfers if one.writes and not isinstance(one, TracedTransfer)]
        self._claims |= {(one.process, one.file, one.first_ns): one for one in written}  # traced: where followed

    def forget_before(self, at_ns: int) -> None:
        """Drop facts recorded before `at_ns`."""
        for claim, transfer in list(self._claims.items()):
            if transfer.last_ns < at_ns:
                del self._claims[claim]
        for key, (recorded_ns, _) in list(self._facts.items()):
            if recorded_ns < at_ns:
                del self._facts[key]
                self._settle(key)
        self.shrink(1.0)

    def __len__(self) -> int:
        """Return the number of facts, applied states and recent writes, weighted by their size."""
        return len(self._facts) + len(self._claims) + len(self._applied) // 4  # each of these is that much smaller

    def shrink(self, share: float) -> None:
        """Retain the latest, up to a share of the bound; of facts, drop only applied ones."""
        settled = [key for key in self._facts if key not in self._fresh]
        for key in settled[: max(0, len(settled) - int(share * MAX_FILES))]:
            del self._facts[key]
        if share < 1.0:
            self._applied.shrink(share)
            for claim in list(self._claims)[: max(0, len(self._claims) - int(share * MAX_FILES))]:
                del self._claims[claim]  # what still waits is claimed again


def _write_state_hash(key: FileKey, fact: FileFact) -> int:
    """Return a hash of one state of a file: twenty thousand of them take 3 MB, as tuples they took 8."""
    return hash((key, fact.modified_ns))


def _is_continued_by(found: Transfer, other: Transfer) -> bool:
    if other.before_ns > found.last_ns + CONCURRENT_NS:
        return False
    return other.span[1] >= found.last_ns and (not other.samples or other.samples[0].position >= found.size)


def _is_emptied(transfer: Transfer, at_ns: int, fact: FileFact, still_open: Iterable[Transfer]) -> bool:
    """Recognise a file inspected during a rewrite, truncated, after that transfer.

    Once inspected at its close, it shrinks only by another writing, observed or not.
    """
    known, over_ns = transfer.fact, transfer.last_ns if transfer.is_credited else transfer.closed_ns
    if known is not None and over_ns is not None and over_ns <= transfer.fact_at_ns < at_ns and fact.size < known.size:
        return True
    return fact.size < transfer.size and any(transfer.last_ns < other.first_ns <= at_ns for other in still_open)


def _is_of_open_write(transfer: Transfer, later: Transfer | None, clock: RecordingClock) -> bool:
    """Recognise a fact of a file still being written, or already truncated for a later writing."""
    fact, at_ns = transfer.fact, transfer.fact_at_ns
    if fact is None or at_ns < transfer.last_ns:
        return True
    if later is None or at_ns < later.before_ns:
        return False
    no_more = fact.size < transfer.size or clock.mono(fact.modified_ns) <= transfer.last_ns
    return at_ns >= later.first_ns or (no_more and fact.size <= transfer.size)


def _is_only_writeback(fact: FileFact, known: FileFact) -> bool:
    same = (fact.path, fact.size, fact.modified_ns) == (known.path, known.size, known.modified_ns)
    return same and fact.unwritten_bytes is not None and fact.magic is None


def _predates(fact: FileFact, transfer: Transfer, clock: RecordingClock) -> bool:
    touched_ns = clock.mono(max(fact.modified_ns, fact.changed_ns))  # no program sets the second one back
    return touched_ns < transfer.before_ns - (1_000_000_000 if is_coarse(fact) else STAMP_TOLERANCE_NS)


def _group_by_file(transfers: Iterable[Transfer], files: Collection[FileKey]) -> Claims:
    found: Claims = {}
    own = [one for one in transfers if one.writes and one.file in files] if files else []
    for transfer in sorted(own, key=lambda one: one.first_ns):
        found.setdefault(transfer.file, []).append(transfer)
    return found


def _ends_at(transfer: Transfer, closing: FileClosing, of_file: Sequence[FileClosing]) -> bool:
    """Match a writing to its closing: the one within its bounds or, if there is none, the first one after."""
    low_ns, high_ns = transfer.before_ns - LATE_TICK_NS, transfer.span[1] + LATE_TICK_NS
    if any(low_ns <= other.at_ns <= high_ns for other in of_file):
        return low_ns <= closing.at_ns <= high_ns
    return closing is next((other for other in of_file if other.at_ns > high_ns), None)


def _is_lesser_name(fact: FileFact, known: FileFact) -> bool:
    """Recognise the temporary name of a file with a known final name, or the name of a `latest` link."""
    if fact.path == known.path:
        return False
    name, better = parse_name(fact.path), parse_name(known.path)
    if name.temporary or better.temporary:
        return name.temporary and not better.temporary
    return _is_unchanged(fact, known) and name.is_alias_of(better)


def _is_unchanged(fact: FileFact, known: FileFact) -> bool:
    return (fact.size, fact.modified_ns) == (known.size, known.modified_ns)


def _is_linked_since(fact: FileFact, known: FileFact) -> bool:
    """Recognise a change of only the links or permissions of a file, long after its last write."""
    same = fact.path == known.path and _is_unchanged(fact, known)
    return same and fact.changed_ns - known.changed_ns > CONCURRENT_NS


def _apply_fact(transfer: Transfer, at_ns: int, fact: FileFact, clock: RecordingClock) -> None:
    if transfer.fact is not None and _is_linked_since(fact, transfer.fact):
        fact = msgspec.structs.replace(fact, changed_ns=transfer.fact.changed_ns)
    if at_ns < transfer.last_ns and fact.size < transfer.size:  # inspected while it grew, and not since
        fact = msgspec.structs.replace(fact, size=transfer.size)
    transfer.set_fact(fact, at_ns)
    is_link = transfer.samples and parse_name(fact.path).is_alias_of(parse_name(transfer.path))
    if is_link or fact.path == transfer.earlier_path:  # an earlier sample: the rename is known
        return
    if isinstance(transfer, TracedTransfer) and is_temporary(fact.path) > is_temporary(transfer.path):
        return
    if fact.path != transfer.path:
        is_later = transfer.is_counted and fact.changed_ns > fact.modified_ns  # polled, its stamps are asked
        transfer.rename(fact.path, clock.mono(fact.changed_ns) if is_later else None)
