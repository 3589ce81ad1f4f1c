"""Finds the writer of a file that was never observed open: a process with as many unexplained written bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import (
    BIRTH_TOLERANCE_NS,
    COMMIT_NS,
    CONCURRENT_NS,
    MOST_SHARE,
    SIGNIFICANT_BYTES,
    STAMP_TOLERANCE_NS,
)
from ckptprof.detect.transfers.edges import birth_and_write_ns
from ckptprof.detect.transfers.ledger import Ledger
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.world import World
from ckptprof.frameworks.file_formats import SQLITE_LOGS
from ckptprof.frameworks.file_names import parse_name, path_shape
from ckptprof_collectors.samples import FileFact

_MIN_SHARE_IN_SAME_FOLDER = 0.2  # enough if it was observed writing in the same folder at that time


class FileState(NamedTuple):
    """The state of a file at a time."""

    at_ns: int
    fact: FileFact  # by its file system
    requesters: Collection[ProcessKey]  # the processes for which it was queried

    @property
    def file(self) -> FileKey:
        """The file, by device and inode."""
        return self.fact.device, self.fact.inode


def order_by_likelihood(
    states: list[FileState], world: World, ledger: Ledger, unclaimed: Collection[str]
) -> list[FileState]:
    """Order files: shapes that their job wrote before first, shapes like `unclaimed` last.

    Of two files of one size and moment, of which it can have written one, the other is another job's.
    """
    if sum(state.fact.size >= SIGNIFICANT_BYTES for state in states) < 2:
        return states
    written, unclaimed_shapes = ledger.shapes(world.jobs), Counter(unclaimed)

    def strangeness(state: FileState) -> int:
        like = path_shape(state.fact.path)
        own = max((written[world.jobs.job_of(one), like] for one in state.requesters), default=0)
        return 0 if own and own >= unclaimed_shapes[like] else 2 if unclaimed_shapes[like] else 1

    return sorted(states, key=strangeness)


def find_unobserved_write(
    state: FileState, world: World, traced: TracedTransfers, ledger: Ledger, ended_ns: Collection[int] = ()
) -> Transfer | None:
    """Return a transfer of the likeliest writer of a file, or None; `ended_ns`: ends of known writings of it."""
    at_ns, fact, requesters = state
    modified_ns, file = world.clock.mono(fact.modified_ns), state.file
    nearby = traced.transfers_near(file, modified_ns, modified_ns)
    if not fact.size or _is_database(fact) or any(one.writes for one in nearby):
        return None  # or its writer is known
    for process in _possible_writers(fact, requesters, world):
        if not (parse_name(fact.path).commit or (world.trains([process]) and world.trains(list(requesters)))):
            history = world.histories[process]
            birth, modified = _write_span(history, fact, world, ended_ns)
            if history.had_child_exit(min(birth, modified) - STAMP_TOLERANCE_NS, modified + CONCURRENT_NS):
                continue  # its counters may include those of a reaped child, which is no fork of a trainer
        if traced.has_transfers(process) and not _was_writing_in_folder(process, fact, world, ledger):
            continue  # traced, without a call on this file: a trace misses only small files among many
        start_ns = _write_start_ns(process, fact, world, ledger, ended_ns)
        if start_ns is not None:
            fact = msgspec.structs.replace(fact, pid=process[0], start_ticks=process[1])
            return Transfer(
                phase=Phase.ENDED, process=process, file=file, writes=True, path=fact.path, first_ns=start_ns,
                last_ns=modified_ns, before_ns=start_ns, fact=fact, fact_at_ns=at_ns, observed_by="directory",
                size=fact.size,
            )  # fmt: skip
    return None


def wrote_enough(process: ProcessKey, fact: FileFact, world: World) -> bool:
    """Return True if a process, or its reaped children, wrote at least the file's size at about that time."""
    birth, modified = birth_and_write_ns(fact, world.clock)
    span = min(birth, modified) - STAMP_TOLERANCE_NS, modified + CONCURRENT_NS
    return world.histories[process].wrote_bytes(*span) >= MOST_SHARE * fact.size


def _is_database(fact: FileFact) -> bool:
    """Recognise SQLite's files, as our own database is."""
    beginning = fact.magic or b""
    return beginning.startswith((b"SQLite format 3", *SQLITE_LOGS)) or fact.path.endswith(("-wal", "-shm", "-journal"))


def _possible_writers(fact: FileFact, requesters: Collection[ProcessKey], world: World) -> list[ProcessKey]:
    """Return possible writers: the processes that requested the fact, the latest first, then others of their job.

    Before all the rank that its name has. Of a small file first those that train and wrote as much, themselves or by
    reaped children: other readers of the folder write something at any time, a log, a database, data that they pass on.
    """
    ordered, rank = list(requesters)[::-1], parse_name(fact.path).rank
    if fact.size >= SIGNIFICANT_BYTES:
        ordered += (one for one in world.job_processes((fact.pid, fact.start_ticks)) if one not in requesters)
    elif len(ordered) > 1:
        ordered.sort(key=lambda process: not (world.may_save(process) and wrote_enough(process, fact, world)))
    return ordered if rank is None else sorted(ordered, key=lambda process: world.jobs.rank(process) != rank)


def _write_span(history: ProcessHistory, fact: FileFact, world: World, ended_ns: Collection[int]) -> Span:
    birth, modified = birth_and_write_ns(fact, world.clock)
    if fact.size < SIGNIFICANT_BYTES:
        return birth, modified
    birth_or_none = None if fact.birth_ns is None else birth
    return _rewrite_start_ns(history, fact.size, birth_or_none, modified, ended_ns) or birth, modified


def _rewrite_start_ns(
    history: ProcessHistory, size: int, birth: int | None, modified: int, ended_ns: Collection[int]
) -> int | None:
    """Return when a process started to rewrite a file that existed before; None: it did not exist, as known.

    Its birth is no evidence then, and some file systems have none. It started after the previous writing, and early
    enough to write all of it.
    """
    before_ns = max((at_ns for at_ns in ended_ns if at_ns < modified), default=None)
    if before_ns is None and birth is not None and history.first_ns <= birth + BIRTH_TOLERANCE_NS:
        return None
    remaining = MOST_SHARE * size
    low_ns = modified - COMMIT_NS if birth is None else birth
    for interval in reversed(history.between(low_ns, modified + STAMP_TOLERANCE_NS)):
        remaining -= interval.new_written_bytes
        if remaining <= 0:
            return min(max(interval.start_ns, before_ns or 0), modified)
    return None


def _was_writing_in_folder(process: ProcessKey, fact: FileFact, world: World, ledger: Ledger) -> bool:
    folder = fact.path.rpartition("/")[0]
    return fact.size < SIGNIFICANT_BYTES and ledger.was_writing_in_folder(
        folder, process, *birth_and_write_ns(fact, world.clock)
    )


def _write_start_ns(
    process: ProcessKey, fact: FileFact, world: World, ledger: Ledger, ended_ns: Collection[int]
) -> int | None:
    """Return when a process started to write a file never observed open; None: it did not write it.

    It must have written as much as the file has, in excess of the ledger: at that time or, if it is older than the
    recording and was first observed during the writing, in all its life.
    """
    history = world.histories[process]
    birth, modified = _write_span(history, fact, world, ended_ns)
    small = fact.size < SIGNIFICANT_BYTES  # markers and metadata are lost in the noise of the counters
    intervals = history.between(min(birth, modified) - STAMP_TOLERANCE_NS, modified + STAMP_TOLERANCE_NS)
    is_in_same_folder = ledger.was_writing_in_folder(fact.path.rpartition("/")[0], process, birth, modified)
    if small:
        enough = any(interval.new_written_bytes for interval in intervals)
    else:
        # In a run on several nodes, another file of the folder is as likely another node's
        is_likely = is_in_same_folder and not world.jobs.has_other_nodes(process)
        share = _MIN_SHARE_IN_SAME_FOLDER if is_likely else MOST_SHARE
        enough = ledger.unexplained_written_bytes(process, fact.device, birth, modified) >= share * fact.size
    if not enough:
        was_observed_late = history.born_ns is None and birth <= history.first_ns <= birth + BIRTH_TOLERANCE_NS
        if small or not was_observed_late or ledger.unexplained_bytes_since_start(process) < MOST_SHARE * fact.size:
            return None
    if (small and modified - birth > CONCURRENT_NS) or birth > modified:
        return modified  # rewritten, as `latest` is with each save
    # an earlier end is of a previous file with its inode
    earliest_ns = birth if fact.birth_ns is None else birth_and_write_ns(fact, world.clock)[0]
    return max(earliest_ns, birth, intervals[0].start_ns if enough and intervals else 0)
