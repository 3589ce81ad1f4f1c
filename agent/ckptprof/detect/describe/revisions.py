"""What becomes known after a save was reported: when it was durable, uploaded, and old ones deleted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest

import msgspec

from ckptprof.detect.describe.blind import not_yet_durable
from ckptprof.detect.describe.clean_up import Clearing, clearing_after
from ckptprof.detect.describe.durability import (
    MAX_UPLOADS,
    Durability,
    FileEnd,
    durability,
    durable_evidence,
    ends_of,
    upload_of,
    writeback_measures,
)
from ckptprof.detect.describe.stall import intervals
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.event import Event
from ckptprof.detect.events.grouping import LOOSE_GAP_NS
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import MAX_REMEMBERED
from ckptprof.detect.events.waits import FOLLOWED_NS, is_followed
from ckptprof.detect.tolerances import COMMIT_NS, MAX_EACH
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.names import shape
from ckptprof.measures import Measures, UploadMeasure
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof_collectors.samples import FileFact, FileLifeEvent

MAX_ENDS = 1024  # of one save, the largest files


@dataclass(slots=True)
class _Awaited:
    checkpoint: Checkpoint
    blind: tuple[str, ...]  # without the sentence on durability
    start_ns: int  # CLOCK_MONOTONIC, as is the next
    end_ns: int
    ends: tuple[FileEnd, ...]
    whole: bool  # whether `ends` has all its files
    shapes: frozenset[str]
    paths: frozenset[str]
    processes: tuple[ProcessKey, ...]
    lost: bool = False  # a file was deleted again: it will never be durable
    seen: tuple[int, int] = (-1, -1)  # versions of writeback and removals when last compared
    is_cleaned: bool = False  # later deletions are not its clean-up
    uploads: tuple[UploadMeasure, ...] = ()

    def wall(self, mono_ns: int) -> int:
        """Wall time of a moment, by the clock as it was when the save was reported."""
        return mono_ns + self.checkpoint.end_ns - self.end_ns


class Revisions:
    """The saves that were reported, bounded in number and time, and what is learnt of their files."""

    def __init__(self, known: Knowledge) -> None:
        self._known = known
        self._noted: dict[str, _Awaited] = {}  # deferred, or about to be reported
        self._awaited: dict[str, _Awaited] = {}

    def take(self, samples: FrameSamples) -> None:
        """Ingest the files that a frame shows deleted."""
        gone = {fact.path for fact in samples.of(FileFact) if fact.missing}
        gone.update(
            event.path for event in samples.of(FileLifeEvent) if event.kind == "unlinked" and event.path is not None
        )
        for awaited in self._awaited.values() if gone else ():
            awaited.lost = awaited.lost or not gone.isdisjoint(awaited.paths)

    def note(self, candidate: Candidate, checkpoint: Checkpoint, blind: tuple[str, ...]) -> None:
        """Record a save that is about to be reported or deferred; `blind` lacks the sentence on durability."""
        if checkpoint.kind is not Kind.SAVE:
            return
        if checkpoint.mode is not Mode.ASYNC:
            self._known.past.note_blocked(checkpoint.uid, checkpoint.job, candidate.end_ns, candidate.end_ns)
        largest = nlargest(MAX_ENDS, candidate.parts, key=lambda part: part.bytes)
        ends = ends_of(largest, self._known.world.clock)
        paths = frozenset(part.path for part in candidate.parts)
        _put(self._noted, _Awaited(
            checkpoint, blind, candidate.start_ns, candidate.end_ns, ends, whole=len(ends) == len(candidate.parts),
            shapes=frozenset(map(shape, paths)), paths=paths, processes=tuple(candidate.processes),
        ))  # fmt: skip

    def sent(self, event: Event) -> None:
        """Record a transfer to an object store as an upload of the last save whose files were read for it."""

        def order(awaited: _Awaited) -> tuple[bool, int]:
            return awaited.start_ns <= event.start_ns, awaited.end_ns

        over = (one for one in (*self._noted.values(), *self._awaited.values()) if one.end_ns <= event.end_ns)
        # files may be overwritten: the upload contains what they contained then
        for awaited in sorted(over, key=order, reverse=True):
            upload = upload_of(event, awaited.checkpoint, awaited.paths)
            if upload is not None:
                if len(awaited.uploads) < MAX_UPLOADS:
                    awaited.uploads = (*awaited.uploads, upload)
                return

    def follow(self, reported: list[Checkpoint], now_ns: int | None) -> list[Checkpoint]:
        """Return the checkpoints reported now, and revisions of earlier ones. `now_ns` None: the recording ended."""
        self._keep(reported)
        new = {checkpoint.uid: checkpoint for checkpoint in reported}
        revised = []
        for uid, awaited in list(self._awaited.items()):
            before = awaited.checkpoint
            awaited.checkpoint = self._revision(awaited, now_ns)
            if awaited.checkpoint is not before and uid in new:  # known before it was reported: reported at once
                new[uid] = awaited.checkpoint
            elif awaited.checkpoint is not before:
                awaited.checkpoint = msgspec.structs.replace(awaited.checkpoint, revision=before.revision + 1)
                revised.append(awaited.checkpoint)
            durable = awaited.checkpoint.durable_ns is not None
            over = now_ns is None or is_followed(now_ns - awaited.end_ns, durable=durable)
            if over and not (now_ns and self._known.transfers.sent.sends_since(awaited.start_ns)):  # it may be uploaded
                del self._awaited[uid]
        if now_ns is not None:
            self._known.transfers.writeback.forget_before(now_ns - FOLLOWED_NS)
            self._known.transfers.removals.forget_before(now_ns - FOLLOWED_NS)
        return [*new.values(), *revised]

    def _keep(self, reported: Iterable[Checkpoint]) -> None:
        for checkpoint in reported:
            awaited = self._noted.pop(checkpoint.uid, None)
            if awaited is None or checkpoint.kind is not Kind.SAVE:
                continue
            awaited.checkpoint = checkpoint
            self._awaited.pop(checkpoint.uid, None)
            _put(self._awaited, awaited)

    def _revision(self, awaited: _Awaited, now_ns: int | None) -> Checkpoint:
        versions = (self._known.transfers.writeback.version, self._known.transfers.removals.version)
        seen, over = versions == awaited.seen, now_ns is None
        now = self._durable(awaited, over=over) if over or not seen else awaited.checkpoint
        if not seen:
            now, settled = (now, True) if awaited.is_cleaned else self._cleaned_up(awaited, now, now_ns)
            awaited.seen = versions if settled else awaited.seen
        measures = now.measures or Measures()
        if measures.uploads != awaited.uploads:
            now = msgspec.structs.replace(now, measures=msgspec.structs.replace(measures, uploads=awaited.uploads))
        return now

    def _durable(self, awaited: _Awaited, *, over: bool) -> Checkpoint:
        checkpoint, blind = awaited.checkpoint, awaited.blind
        if checkpoint.durable_ns is not None:
            return checkpoint
        found = durability(awaited.ends, self._known.transfers.writeback)
        if found.at_ns is not None and awaited.whole:
            durable_ns, evidence = awaited.wall(found.at_ns), (*checkpoint.evidence, *durable_evidence(found))
            measures = self._written_back(awaited, found)
            return msgspec.structs.replace(
                checkpoint, durable_ns=durable_ns, blind=blind, evidence=evidence, measures=measures
            )
        if over and found.unwritten_bytes and not awaited.lost:
            blind, measures = (*blind, not_yet_durable(found.unwritten_bytes)), self._written_back(awaited, found)
            return msgspec.structs.replace(checkpoint, blind=blind, measures=measures)
        return checkpoint

    def _written_back(self, awaited: _Awaited, found: Durability) -> Measures:
        path, span = awaited.checkpoint.path or "", (awaited.start_ns, awaited.end_ns)
        told = writeback_measures(found, path, span, self._known.world.devices, awaited.wall)
        return msgspec.structs.replace(awaited.checkpoint.measures or Measures(), **told)

    def _cleaned_up(self, awaited: _Awaited, checkpoint: Checkpoint, now_ns: int | None) -> tuple[Checkpoint, bool]:
        """Add its clean-up; the flag says whether that is settled."""
        next_ns = self._next_ns(awaited)
        row = self._row(awaited, next_ns)
        cleaned_ns = max(filter(None, (self._cleaned_ns(awaited, next_ns), row.end_ns if row else None)), default=None)
        is_sure = row is None or row.counted  # else its duration is known at the next sample of the thread
        awaited.is_cleaned = is_sure and now_ns is not None and now_ns - next_ns >= LOOSE_GAP_NS
        if cleaned_ns is None or awaited.wall(cleaned_ns) == checkpoint.moments.cleaned_ns:
            return checkpoint, now_ns is None or now_ns - awaited.end_ns >= LOOSE_GAP_NS
        if now_ns is not None and now_ns - cleaned_ns < LOOSE_GAP_NS:
            return checkpoint, False
        moments = msgspec.structs.replace(checkpoint.moments, cleaned_ns=awaited.wall(cleaned_ns))
        checkpoint = msgspec.structs.replace(checkpoint, moments=moments)
        if cleaned_ns > awaited.end_ns:
            checkpoint = self._measured(awaited, checkpoint, row, min(cleaned_ns + LOOSE_GAP_NS, next_ns))
        return checkpoint, True

    def _measured(self, awaited: _Awaited, checkpoint: Checkpoint, row: Clearing | None, until_ns: int) -> Checkpoint:
        files = spent_ns = None
        if row is None or row.counted:
            removals = self._known.transfers.removals
            files, spent_ns = removals.spent(awaited.paths, awaited.start_ns, until_ns, awaited.processes)
        changed = {"clean_up_files": files, "clean_up_ns": spent_ns}
        stall_ns = checkpoint.stall_ns
        spans = [(one.start_ns, one.end_ns) for one in checkpoint.blocked]
        if row is not None:
            self._known.past.note_blocked(checkpoint.uid, checkpoint.job, awaited.end_ns, row.end_ns)
            changed["clean_up_after_ns"] = row.lasts_ns
            if not row.counted:
                changed["clean_up_ns"] = row.lasts_ns
            if stall_ns is not None:
                stall_ns = max(stall_ns, checkpoint.end_ns - checkpoint.start_ns + row.lasts_ns)
                spans.append((checkpoint.end_ns, checkpoint.end_ns + row.lasts_ns))
        measures = msgspec.structs.replace(checkpoint.measures or Measures(), **changed)
        return msgspec.structs.replace(
            checkpoint, measures=measures, stall_ns=stall_ns, blocked=intervals(spans, stall_ns)
        )

    def _row(self, awaited: _Awaited, next_ns: int) -> Clearing | None:
        """Find the deletion that blocked training right after the save; None if it ran alongside training."""
        if awaited.checkpoint.mode is Mode.ASYNC:
            return None
        return clearing_after(self._known.world, awaited.processes, awaited.end_ns, next_ns)

    def _cleaned_ns(self, awaited: _Awaited, next_ns: int) -> int | None:
        """When the last old file of its kind was deleted for it, before the next save of that kind."""
        kind = awaited.shapes, awaited.paths, awaited.start_ns
        removals, job = self._known.transfers.removals, awaited.checkpoint.job
        found_ns = removals.last_ns(*kind, awaited.end_ns + COMMIT_NS, job)
        if found_ns is None or found_ns <= awaited.end_ns:
            return found_ns
        return removals.last_ns(*kind, min(found_ns, next_ns), job)

    def _next_ns(self, awaited: _Awaited) -> int:
        """When its writers started the next save of the kind; without one, until when clean-up is expected."""
        until_ns = awaited.end_ns + COMMIT_NS
        later = [
            transfer.first_ns
            for process in awaited.processes
            for transfer in self._known.transfers.recent.moved(process, awaited.end_ns, until_ns, writes=True)
            if transfer.first_ns > awaited.end_ns and transfer.path not in awaited.paths
            and shape(transfer.path) in awaited.shapes
        ]  # fmt: skip
        return min(later, default=until_ns)


def _put(awaited: dict[str, _Awaited], new: _Awaited) -> None:
    files = sum(len(one.paths) for one in awaited.values())
    while awaited and (len(awaited) >= MAX_EACH or files > MAX_REMEMBERED):
        files -= len(awaited.pop(next(iter(awaited))).paths)
    awaited[new.checkpoint.uid] = new


def newest(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Each checkpoint once: its latest revision, in the place of its first report."""
    found: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        known = found.get(checkpoint.uid)
        if known is None or known.revision <= checkpoint.revision:
            found[checkpoint.uid] = checkpoint
    return list(found.values())
