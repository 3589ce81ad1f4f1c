"""Copies: their two sides, and those that are placeholders for files that training will write, such as a base model."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.event_history import HistoryEvent, deleted_paths, shape_of
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.events.signals.copies import find_counterparts
from ckptprof.detect.tolerances import LITTLE_SHARE, MAX_PER_ITEM, is_similar_size
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.recent_files import SavedFiles
from ckptprof.detect.transfers.transfer_tracker import QUIET_NS
from ckptprof.detect.world.bounded import MAX_RECENT, Bounded
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint, Evidence, Risk

_CLASSIFIED_NS = CERTAIN_GAP_NS + QUIET_NS  # written files are classified this long after their last byte


@dataclass(slots=True)
class _Placeholder:
    copy: Checkpoint  # as last reported
    end_ns: int  # CLOCK_MONOTONIC
    remaining_paths: set[str]  # its files that were not rewritten
    source: str  # the largest file copied
    authors: frozenset[ProcessKey]  # its writers, if observed
    trainers: set[ProcessKey]  # alive, and expected to rewrite it: they saved alongside


class Placeholders:
    """Follows copies until their files are rewritten, or until the processes that save alongside end."""

    def __init__(self) -> None:
        self._all: Bounded[str, _Placeholder] = Bounded(MAX_PER_ITEM)
        # shape -> the processes that rewrote such copies
        self._replacing: Bounded[str, frozenset[ProcessKey]] = Bounded(MAX_PER_ITEM, frozenset)
        self._revised: dict[str, Checkpoint] = {}

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest a frame's deletions."""
        if self._all:
            self._remove_paths(deleted_paths(samples))

    def add_copy(self, copy: Checkpoint, event: EventContext) -> None:
        """Add a written copy, if it has large files with a checkpoint's name.

        The processes that rewrote earlier ones of its kind are expected to do so again.
        """
        sources = find_counterparts(event)
        min_bytes = LITTLE_SHARE * event.bytes
        paths = {part.path for part in event.largest_parts if part.bytes >= min_bytes and _has_checkpoint_name(part)}
        if sources and paths:
            source = max(sources, key=lambda part: part.size_in_use).path
            author = event.known.history.author_of(source)
            authors = frozenset() if author is None else author.processes
            trainers = set().union(*(self._replacing[shape_of(path)] for path in paths))
            self._all[copy.uid] = _Placeholder(copy, event.end_ns, paths, source, authors, trainers)

    def record_written(self, event: EventContext) -> None:
        """Record written files of any kind: they replace the copies that were there."""
        if self._all:
            replaced = {part.path for part in event.parts}
            for path in replaced & set().union(*(one.remaining_paths for one in self._all.values())):
                self._replacing[shape_of(path)] = frozenset(event.processes)
            self._remove_paths(replaced)

    def record_save(self, event: HistoryEvent) -> None:
        """Record a save: copies alongside it, or right above under the same name, belong to its job."""
        for uid, one in list(self._all.items()):
            if not one.authors.isdisjoint(event.processes):
                del self._all[uid]  # a copy of its own save: the best one
            elif event.start_ns >= one.end_ns and _is_beside_or_below(event.paths, one.remaining_paths):
                one.trainers |= event.processes

    def take_revised(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[Checkpoint]:
        """Return the copies to report again: the processes that save alongside have ended, or the copies are gone."""
        for one in self._all.values():
            exited = {process for process in one.trainers if now_ns - ended.get(process, now_ns) >= _CLASSIFIED_NS}
            one.trainers -= exited
            if exited and not one.trainers:
                name = min(one.remaining_paths).rpartition("/")[2]
                text = f"{name} is still the copy of {one.source}: the job ended without writing its own there"
                self._revise(one, (Evidence(name=Risk.NOT_REPLACED.value, weight=0.0, text=text),))
        reported, self._revised = list(self._revised.values()), {}
        return reported

    def _remove_paths(self, paths: set[str]) -> None:
        for uid, one in list(self._all.items()):
            if one.remaining_paths.isdisjoint(paths):
                continue
            one.remaining_paths -= paths
            if not one.remaining_paths:
                del self._all[uid]
                self._revise(one, ())

    def _revise(self, one: _Placeholder, risk: tuple[Evidence, ...]) -> None:
        """Revise the copy if its risk changed."""
        before = [evidence for evidence in one.copy.evidence if evidence.name == Risk.NOT_REPLACED.value]
        if tuple(before) == risk:
            return
        evidence = (*(evidence_item for evidence_item in one.copy.evidence if evidence_item not in before), *risk)
        one.copy = msgspec.structs.replace(one.copy, evidence=evidence, revision=one.copy.revision + 1)
        self._revised[one.copy.uid] = one.copy


def _has_checkpoint_name(part: Transfer) -> bool:
    """Recognise the name of a checkpoint, unlike that of any model."""
    name = part.name
    return name.hint or name.alias or (name.framework is not None and not name.framework.weak)


def _is_beside_or_below(saved: frozenset[str], copied: set[str]) -> bool:
    """Return True if a save is in a folder of the copies, or right below it under one of their names."""
    for path in saved:
        folder, _, name = path.rpartition("/")
        above = folder.rpartition("/")[0]
        if any(other.rpartition("/")[0] == folder for other in copied) or f"{above}/{name}" in copied:
            return True
    return False


class _CopySide(NamedTuple):
    copy: Checkpoint
    start_ns: int  # CLOCK_MONOTONIC
    end_ns: int
    names: frozenset[str]  # of its biggest files, without folders
    other_paths: frozenset[str]  # paths of the other side, as far as observed


class Copies:
    """The recent sides of copies: the written side is reported at once, the read side only if it stays alone."""

    def __init__(self) -> None:
        self._written: deque[_CopySide] = deque(maxlen=MAX_RECENT)
        self._read: deque[_CopySide] = deque(maxlen=MAX_RECENT)

    def add(self, copy: Checkpoint, event: HistoryEvent, others: frozenset[str] | None) -> list[Checkpoint]:
        """Add one side; return it if it may be reported. `others`: paths of the written side, for a read side."""
        names = frozenset(path.rpartition("/")[2] for path in event.paths)
        side = _CopySide(copy, event.start_ns, event.end_ns, names, others or frozenset())
        (self._written if others is None else self._read).append(side)
        return [copy] if others is None else []

    def release_unpaired(self, now_ns: int, saved: SavedFiles) -> list[Checkpoint]:
        """Return the read sides without a written side: sent, packed, or copied to staging files of unknown names."""
        unpaired = []
        longest_ns = CERTAIN_GAP_NS + QUIET_NS  # the written side may wait this long for a rename
        while self._read and now_ns - self._read[0].end_ns >= longest_ns:
            side = self._read.popleft()
            is_reported = any(_is_same_copy(side, other) for other in self._written) or any(
                map(saved.contains, side.other_paths)
            )
            if not is_reported:
                unpaired.append(side.copy)
        return unpaired


def _is_same_copy(read: _CopySide, written: _CopySide) -> bool:
    """Match two sides of one copy: as observed, or at the same time with as many bytes or the same names."""
    apart_ns = max(read.start_ns, written.start_ns) - min(read.end_ns, written.end_ns)
    is_alike = is_similar_size(read.copy.bytes, written.copy.bytes) or not read.names.isdisjoint(written.names)
    return written.copy.path in read.other_paths or (is_alike and apart_ns <= LOOSE_GAP_NS)
