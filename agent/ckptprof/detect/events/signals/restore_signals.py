"""Signals for restores, against the reading of data."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.event_history import HistoryEvent, shape_of
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.events.signals.recurrence import even_period_ns
from ckptprof.detect.tolerances import FEW, MANY, MAX_PER_ITEM, MOST_SHARE, SIMILAR_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span


def is_read_back(event: EventContext) -> bool:
    """Most of its bytes are in files of earlier saves."""
    return not event.writes and event.holds_for_most_bytes(lambda part: event.known.transfers.saved.contains(part.path))


def is_read_by_later_run(event: EventContext) -> bool:
    """One of its files was written by an earlier run of the same program, in an event of any kind."""
    own, since = event.history_event, (event.start_ns, event.world.counted_ns)  # an author that writes on still runs
    authors = {path: event.known.history.author_of(path) for path in (event.largest_paths if not event.writes else ())}
    return any(
        one
        and one.programs & own.programs
        and not one.authors & own.authors
        and not any(event.world.histories[author].wrote_bytes(*since) >= event.bytes for author in one.authors)
        and not _is_made_for_reader(event, path)
        for path, one in authors.items()
    )


def is_handed_over(event: EventContext) -> bool:
    """Files passed by worker processes to the process that started them, without a checkpoint's name.

    Actors and generators write samples, and the trainer reads all these files during training. A state goes the other
    way: the trainer writes it, and a process started later reads it; a trainer that returns to the best of many states
    reads one.
    """
    if not event.has_weak_name or not (
        event.writes or all(_is_made_for_reader(event, path) for path in event.largest_paths)
    ):
        return False
    history, own = event.known.history, event.history_event
    written_events = history.series(event.job, event.shapes, writes=True)[-FEW:]
    read = history.series(event.job, event.shapes, writes=False)
    handed_over = [
        one
        for one in written_events
        if own.authors.isdisjoint(one.authors)  # a process that continues to write is a trainer
        and any(
            not one.paths.isdisjoint(reader.paths)
            and _started_later(one, reader)
            and (not event.writes or _started_later(own, reader))
            for reader in (*read, own)
        )
    ]
    return bool(handed_over) and len(handed_over) * 2 >= len(written_events)


def _is_made_for_reader(event: EventContext, path: str) -> bool:
    """Return True if the file was its author's only one of that shape, and the author started after the reader."""
    author = event.known.history.author_of(path)
    return (
        author is not None
        and _started_later(author, event.history_event)
        and len(event.known.history.run_of(path)) == 1
    )


def _started_later(author: HistoryEvent, reader: HistoryEvent) -> bool:
    return min(ticks for _, ticks in author.processes) > max(ticks for _, ticks in reader.processes)


def is_resumed_from(event: EventContext) -> bool:
    """Return True if it reads only the last file of those that an earlier run of its program wrote at even intervals.

    A resuming run needs the last state; a cache, a data set or a log is read piece by piece.
    """
    return (
        is_read_by_later_run(event)
        and all(map(partial(_is_last_of_run, event), event.largest_paths))
        and not _reads_other_files(event)
    )


def _is_last_of_run(event: EventContext, path: str) -> bool:
    run = event.known.history.run_of(path)
    return bool(run) and path in run[-1].paths and even_period_ns(run[:-1], run[-1], MOST_SHARE) is not None


def _reads_other_files(event: EventContext) -> bool:
    own = {part.path for part in event.parts}
    return any(
        one.path not in own and shape_of(one.path) in event.shapes
        for process in event.first_processes
        for one in _files_read_whole(event, process, (0, event.end_ns + LOOSE_GAP_NS))
    )


def is_read_during_save(event: EventContext) -> bool:
    """Read for a save: during one, or as one of several that its processes saved."""
    return not event.writes and (_reads_several_saves(event) or _is_part_of_save(event))


def _reads_several_saves(event: EventContext) -> bool:
    """Return True if its processes read several of their own saves of a series in a row, each completely.

    They average them, or choose one: no run resumes from two states.
    """
    window = event.start_ns - LOOSE_GAP_NS, event.end_ns + LOOSE_GAP_NS
    for process in event.first_processes:
        whole_paths = (one.path for one in _files_read_whole(event, process, window))
        authors = map(event.known.history.author_of, (path for path in whole_paths if shape_of(path) in event.shapes))
        if len({author.start_ns for author in authors if author and process in author.processes}) < 2:
            return False
    return True


def _files_read_whole(event: EventContext, process: ProcessKey, span: Span) -> list[Transfer]:
    read = event.known.transfers.recent.transfers_between(process, *span, writes=False)
    return [one for one in read if one.bytes >= MOST_SHARE * one.stored_size]


def _is_part_of_save(event: EventContext) -> bool:
    """Return True if its processes write there right after it: they merge, average, strip or check what they read.

    They rewrite it with less, as without the optimizer, or their job had just written there, too, and no other step nor
    the same files again: that would be a restore between two saves.
    """
    sizes = {part.path: part.size_in_use for part in event.parts}
    folders = {folder for part in event.parts for folder in (part.folder, part.name.directory)}
    window = event.start_ns - LOOSE_GAP_NS, event.end_ns + LOOSE_GAP_NS

    def written_nearby(process: ProcessKey) -> list[Transfer]:
        found = event.known.transfers.recent.transfers_between(process, *window, writes=True)
        near = (one for one in found if not folders.isdisjoint((one.folder, one.name.directory)))
        return [one for one in near if one.name.framework or one.name.hint or one.path in sizes]

    def is_after(one: Transfer) -> bool:
        starts_before = (one.start_ns or one.first_ns) < event.start_ns
        return not starts_before or (one.path not in sizes and max(one.end_ns, one.last_ns) > event.start_ns)

    nearby = list(map(written_nearby, event.first_processes))
    if not all(any(map(is_after, own)) for own in nearby):
        return False
    nearby += map(written_nearby, event.world.job_processes(event.processes[0])[:MAX_PER_ITEM])
    every = list(itertools.chain.from_iterable(nearby))
    after = list(filter(is_after, every))
    if rewritten := [one for one in after if one.path in sizes]:
        return all(one.stored_size < (1 - SIMILAR_SHARE) * sizes[one.path] for one in rewritten)
    before_files = {one.file for one in every if not is_after(one)}
    is_same_step = len({one.name.step for one in every} - {None}) <= 1
    return bool(before_files) and before_files.isdisjoint(one.file for one in after) and is_same_step


def is_read_as_data_set(event: EventContext) -> bool:
    """Files of one shape read in a row or repeatedly, without a checkpoint's name: a data set."""
    if event.writes or not event.has_weak_name or event.has_word_or_step:
        return False
    if event.known.transfers.saved.contains(event.largest_paths[0]):
        return False
    return any(earlier.processes & event.history_event.processes for earlier in event.series) or _is_file_series(event)


def _is_file_series(event: EventContext) -> bool:
    window = event.start_ns - CERTAIN_GAP_NS, event.end_ns + CERTAIN_GAP_NS
    nearby_paths = {transfer.path for transfer in event.transfers_between(*window, writes=False)}
    return max(Counter(map(shape_of, event.history_event.paths | nearby_paths)).values()) >= MANY
