"""Copies as placeholders for files that training is to write: a base model, until the job's first own one."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS
from ckptprof.detect.events.past_events import PastEvent, shape_of
from ckptprof.detect.events.signals.copies import counterparts
from ckptprof.detect.tolerances import LITTLE_SHARE, MAX_EACH
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfers import QUIET_NS
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.model import Checkpoint, Evidence, Risk
from ckptprof_collectors.samples import FileFact, FileLifeEvent

_JUDGED_NS = CERTAIN_GAP_NS + QUIET_NS  # written files are classified this long after their last byte


@dataclass(slots=True)
class _StandIn:
    copy: Checkpoint  # as reported last
    end_ns: int  # CLOCK_MONOTONIC
    left: set[str]  # its files that were not rewritten
    source: str  # the largest file copied
    authors: frozenset[ProcessKey]  # who wrote that, if observed
    trainers: set[ProcessKey]  # alive, and expected to rewrite it: they saved alongside


class StandIns:
    """Follows copies until their files are rewritten, or until the processes that save alongside end."""

    def __init__(self) -> None:
        self._all: Bounded[str, _StandIn] = Bounded(MAX_EACH)
        # who rewrote copies of such a shape
        self._replacing: Bounded[str, frozenset[ProcessKey]] = Bounded(MAX_EACH, frozenset)
        self._revised: dict[str, Checkpoint] = {}

    def take(self, samples: FrameSamples) -> None:
        """Ingest a frame's deletions."""
        if self._all:
            gone = {fact.path for fact in samples.of(FileFact) if fact.missing}
            gone.update(life.path for life in samples.of(FileLifeEvent) if life.kind == "unlinked" and life.path)
            self._without(gone)

    def note(self, copy: Checkpoint, event: Event) -> None:
        """Add a written copy, if it has large files with a checkpoint's name.

        The processes that rewrote earlier ones of its kind are expected to do so again.
        """
        sources = counterparts(event)
        least = LITTLE_SHARE * event.bytes
        paths = {part.path for part in event.largest if part.bytes >= least and _is_called(part)}
        if sources and paths:
            source = max(sources, key=lambda part: part.used_size).path
            author = event.known.past.author(source)
            authors = frozenset() if author is None else author.processes
            trainers = set().union(*(self._replacing[shape_of(path)] for path in paths))
            self._all[copy.uid] = _StandIn(copy, event.end_ns, paths, source, authors, trainers)

    def written(self, event: Event) -> None:
        """Record written files of any kind: they replace the copies that were there."""
        if self._all:
            replaced = {part.path for part in event.parts}
            for path in replaced & set().union(*(one.left for one in self._all.values())):
                self._replacing[shape_of(path)] = frozenset(event.processes)
            self._without(replaced)

    def saved(self, event: PastEvent) -> None:
        """Record a save: copies alongside it, or right above under the same name, belong to its job."""
        for uid, one in list(self._all.items()):
            if not one.authors.isdisjoint(event.processes):
                del self._all[uid]  # a copy of its own save: the best one
            elif event.start_ns >= one.end_ns and _is_of(event.paths, one.left):
                one.trainers |= event.processes

    def tell(self, now_ns: int, ended: dict[ProcessKey, int]) -> list[Checkpoint]:
        """Return the copies to report again: the processes that save alongside have ended, or the copies are gone."""
        for one in self._all.values():
            over = {process for process in one.trainers if now_ns - ended.get(process, now_ns) >= _JUDGED_NS}
            one.trainers -= over
            if over and not one.trainers:
                name = min(one.left).rpartition("/")[2]
                text = f"{name} is still the copy of {one.source}: the job ended without writing its own there"
                self._tell(one, (Evidence(name=Risk.NOT_REPLACED.value, weight=0.0, text=text),))
        reported, self._revised = list(self._revised.values()), {}
        return reported

    def _without(self, paths: set[str]) -> None:
        for uid, one in list(self._all.items()):
            if one.left.isdisjoint(paths):
                continue
            one.left -= paths
            if not one.left:
                del self._all[uid]
                self._tell(one, ())

    def _tell(self, one: _StandIn, risk: tuple[Evidence, ...]) -> None:
        """Revise the copy if its risk changed."""
        before = [evidence for evidence in one.copy.evidence if evidence.name == Risk.NOT_REPLACED.value]
        if tuple(before) == risk:
            return
        evidence = (*(kept for kept in one.copy.evidence if kept not in before), *risk)
        one.copy = msgspec.structs.replace(one.copy, evidence=evidence, revision=one.copy.revision + 1)
        self._revised[one.copy.uid] = one.copy


def _is_called(part: Transfer) -> bool:
    """Return whether its name is that of a checkpoint, not of any model."""
    name = part.name
    return name.hint or name.alias or (name.framework is not None and not name.framework.weak)


def _is_of(saved: frozenset[str], copied: set[str]) -> bool:
    """Return whether a save lies in a folder of the copies, or right below it under one of their names."""
    for path in saved:
        folder, _, name = path.rpartition("/")
        above = folder.rpartition("/")[0]
        if any(other.rpartition("/")[0] == folder for other in copied) or f"{above}/{name}" in copied:
            return True
    return False
