"""Signals for restores, against the reading of data."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.events.past_events import PastEvent, shape_of
from ckptprof.detect.events.signals.series import period_of
from ckptprof.detect.tolerances import BESIDE_NS, FEW, LIKE, MANY, MOST_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span


def read_back(event: Event) -> bool:
    """Return whether most of it was recognised as saved before."""
    return not event.writes and event.mostly(lambda part: event.known.transfers.saved.contains(part.path))


def read_again(event: Event) -> bool:
    """Return whether an earlier run of the same program wrote one of its files, whatever it was classified as."""
    own = event.remembered
    authors = {path: event.known.past.author(path) for path in (event.biggest if not event.writes else ())}
    return any(
        one and one.programs & own.programs and not one.processes & own.processes and not _is_made_for(event, path)
        for path, one in authors.items()
    )


def handed(event: Event) -> bool:
    """Return whether worker processes pass files to the process that started them, and no name is a checkpoint's.

    Actors play, generators make samples, and the trainer reads all of their files while it continues. A state goes the
    other way: the trainer writes it, and a process started later reads it; a trainer that returns to the best of many
    such states reads one.
    """
    if not event.is_weak or not (event.writes or all(_is_made_for(event, path) for path in event.biggest)):
        return False
    past, own = event.known.past, event.remembered
    left = past.series(event.job, event.shapes, writes=True)[-FEW:]
    read = past.series(event.job, event.shapes, writes=False)
    taken = [
        one
        for one in left
        if own.processes.isdisjoint(one.processes)  # a process that continues to write is a trainer
        and any(
            not one.paths.isdisjoint(reader.paths)
            and _is_hired(one, reader)
            and (not event.writes or _is_hired(own, reader))
            for reader in (*read, own)
        )
    ]
    return bool(taken) and len(taken) * 2 >= len(left)


def _is_made_for(event: Event, path: str) -> bool:
    """Return whether a file was its author's only one of that shape, and the author started after the reader."""
    author = event.known.past.author(path)
    return author is not None and _is_hired(author, event.remembered) and len(event.known.past.run_of(path)) == 1


def _is_hired(author: PastEvent, reader: PastEvent) -> bool:
    return min(ticks for _, ticks in author.processes) > max(ticks for _, ticks in reader.processes)


def resumes(event: Event) -> bool:
    """Return whether it is the last of what an earlier run of its program wrote in even periods, and the only one read.

    A resuming run wants the last state; a cache, a data set or a log is read piece by piece.
    """
    return read_again(event) and all(map(partial(_is_last, event), event.biggest)) and not _reads_others(event)


def _is_last(event: Event, path: str) -> bool:
    run = event.known.past.run_of(path)
    return bool(run) and path in run[-1].paths and period_of(run[:-1], run[-1]) is not None


def _reads_others(event: Event) -> bool:
    own = {part.path for part in event.parts}
    return any(
        one.path not in own and shape_of(one.path) in event.shapes
        for process in event.first_processes
        for one in _read_whole(event, process, (0, event.end_ns + LOOSE_GAP_NS))
    )


def amid(event: Event) -> bool:
    """Return whether it is read for a save: during one, or as one of several that its processes saved."""
    return not event.writes and (_reads_several(event) or _is_in_the_midst(event))


def _reads_several(event: Event) -> bool:
    """Return whether its processes read several of their own saves of a series in a row, each whole.

    They average them, or choose one: no run resumes from two.
    """
    near = event.start_ns - LOOSE_GAP_NS, event.end_ns + LOOSE_GAP_NS
    for process in event.first_processes:
        whole = (one.path for one in _read_whole(event, process, near))
        alike = map(event.known.past.author, (path for path in whole if shape_of(path) in event.shapes))
        if len({author.start_ns for author in alike if author and process in author.processes}) < 2:
            return False
    return True


def _read_whole(event: Event, process: ProcessKey, span: Span) -> list[Transfer]:
    read = event.known.transfers.recent.moved(process, *span, writes=False)
    return [one for one in read if one.bytes >= MOST_SHARE * one.stored_size]


def _is_in_the_midst(event: Event) -> bool:
    """Return whether its processes saved just before it and continued right after it: it is part of that save.

    States are averaged or merged, or a save is checked. A process that saves another step, or the same files again, has
    restored between two saves; but not one that replaces them at once by less, as without the optimizer.
    """
    return _is_between(event) or _is_stripped(event)


def _is_stripped(event: Event) -> bool:
    """Return whether the processes that read most of it rewrote it right away, and smaller."""
    recent = event.known.transfers.recent
    written: dict[tuple[ProcessKey, str], list[Transfer]] = {}
    for one in itertools.chain.from_iterable(map(recent.written, event.processes)):
        written.setdefault((one.process, one.path), []).append(one)

    def is_stripped(part: Transfer) -> bool:
        if not any(_is_smaller(one, part) for one in written.get((part.process, part.path), ())):
            return False  # cheap check first: there may be thousands of files
        meanwhile = recent.moved(part.process, part.start_ns, part.end_ns + BESIDE_NS, writes=True)
        return any(one.path == part.path and _is_smaller(one, part) for one in meanwhile)

    return event.mostly(is_stripped)


def _is_smaller(written: Transfer, read: Transfer) -> bool:
    return _begin_ns(written) >= read.start_ns and written.stored_size < (1 - LIKE) * read.used_size


def _begin_ns(written: Transfer) -> int:
    return written.start_ns or written.first_ns


def _is_between(event: Event) -> bool:
    folders, start_ns, end_ns = {part.folder for part in event.parts}, event.start_ns, event.end_ns

    def moved(process: ProcessKey, low_ns: int, high_ns: int) -> list[Transfer]:
        found = event.known.transfers.recent.moved(process, low_ns, high_ns, writes=True)
        return [one for one in found if one.folder in folders and (one.name.framework or one.name.hint)]

    for process in event.first_processes:
        near = moved(process, start_ns - LOOSE_GAP_NS, end_ns + LOOSE_GAP_NS)
        before = [one for one in near if _begin_ns(one) < start_ns]
        after = [one for one in near if _begin_ns(one) >= start_ns]
        steps = {one.name.step for one in (*before, *after)} - {None}
        again = {one.file for one in before} & {one.file for one in after}
        if not before or not after or again or len(steps) > 1:
            return False
    return True


def feeds(event: Event) -> bool:
    """Return whether files of one shape are read in a row or repeatedly, without a checkpoint's name: a data set."""
    if event.writes or not event.is_weak or event.is_called:
        return False
    if event.known.transfers.saved.contains(event.biggest[0]):
        return False
    return any(earlier.processes & event.remembered.processes for earlier in event.series) or _is_row(event)


def _is_row(event: Event) -> bool:
    beside = {
        move.path
        for process in event.first_processes
        for move in event.known.transfers.recent.moved(
            process, event.start_ns - CERTAIN_GAP_NS, event.end_ns + CERTAIN_GAP_NS, writes=False
        )
    }
    return max(Counter(map(shape_of, event.remembered.paths | beside)).values()) >= MANY
