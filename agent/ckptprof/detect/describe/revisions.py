"""Revisions of reported saves: when one became durable, was uploaded, and old ones were deleted for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest

import msgspec

from ckptprof.detect.describe.clean_up import DeletionRun, deletion_after
from ckptprof.detect.describe.durability import (
    MAX_UPLOADS,
    Durability,
    FileWriteEnd,
    durability_evidence,
    estimate_durability,
    list_write_ends,
    match_upload,
    measure_writeback,
)
from ckptprof.detect.describe.limitations import not_durable_limitation
from ckptprof.detect.describe.stall import blocked_intervals
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.event_history import MAX_HISTORY_PATHS, deleted_paths
from ckptprof.detect.events.grouping import LOOSE_GAP_NS
from ckptprof.detect.events.lifecycle import FOLLOWED_NS, is_final
from ckptprof.detect.tolerances import COMMIT_NS, MAX_PER_ITEM
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.file_names import path_shape
from ckptprof.measures import Measures, UploadMeasure
from ckptprof.model import Checkpoint, Kind, Mode

MAX_WRITE_ENDS = 1024  # of one save, the largest files


@dataclass(slots=True)
class _FollowedSave:
    checkpoint: Checkpoint
    limitations: tuple[str, ...]  # without the sentence on durability
    start_ns: int  # CLOCK_MONOTONIC, as is the next
    end_ns: int
    ends: tuple[FileWriteEnd, ...]
    has_all_files: bool  # whether `ends` has all its files
    shapes: frozenset[str]
    paths: frozenset[str]
    processes: tuple[ProcessKey, ...]
    is_deleted: bool = False  # a file was deleted again: it will never be durable
    checked_versions: tuple[int, int] = (-1, -1)  # versions of writeback and removals when last compared
    is_cleaned: bool = False  # later deletions are not its clean-up
    uploads: tuple[UploadMeasure, ...] = ()

    def wall(self, mono_ns: int) -> int:
        """Wall time of a moment, by the clock as it was when the save was reported."""
        return mono_ns + self.checkpoint.end_ns - self.end_ns


class Revisions:
    """The reported saves, bounded in number and time, and the later state of their files."""

    def __init__(self, known: Knowledge) -> None:
        self._known = known
        self._pending: dict[str, _FollowedSave] = {}  # deferred, or about to be reported
        self._followed: dict[str, _FollowedSave] = {}

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the files that a frame shows deleted."""
        deleted = deleted_paths(samples)
        for awaited in self._followed.values() if deleted else ():
            awaited.is_deleted = awaited.is_deleted or not deleted.isdisjoint(awaited.paths)

    def record(self, candidate: Candidate, checkpoint: Checkpoint, limitations: tuple[str, ...]) -> None:
        """Record a save that is about to be reported or deferred; `limitations` lacks the sentence on durability."""
        if checkpoint.kind is not Kind.SAVE:
            return
        if checkpoint.mode is not Mode.ASYNC:
            self._known.history.record_blocked(checkpoint.uid, checkpoint.job, candidate.end_ns, candidate.end_ns)
        largest = nlargest(MAX_WRITE_ENDS, candidate.parts, key=lambda part: part.bytes)
        ends = list_write_ends(largest, self._known.world.clock)
        paths = frozenset(part.path for part in candidate.parts)
        _insert_bounded(self._pending, _FollowedSave(
            checkpoint, limitations, candidate.start_ns, candidate.end_ns, ends, has_all_files=len(ends) ==
            len(candidate.parts),
            shapes=frozenset(map(path_shape, paths)), paths=paths, processes=tuple(candidate.processes),
        ))  # fmt: skip

    def record_upload(self, event: EventContext) -> None:
        """Record a transfer to an object store as an upload of the last save whose files were read for it."""

        def order(awaited: _FollowedSave) -> tuple[bool, int]:
            return awaited.start_ns <= event.start_ns, awaited.end_ns

        ended = (one for one in (*self._pending.values(), *self._followed.values()) if one.end_ns <= event.end_ns)
        # files may be overwritten: the upload contains their contents at that time
        for awaited in sorted(ended, key=order, reverse=True):
            upload = match_upload(event, awaited.checkpoint, awaited.paths)
            if upload is not None:
                if len(awaited.uploads) < MAX_UPLOADS:
                    awaited.uploads = (*awaited.uploads, upload)
                return

    def follow(self, reported: list[Checkpoint], now_ns: int | None) -> list[Checkpoint]:
        """Return the checkpoints reported now, and revisions of earlier ones. `now_ns` None: the recording ended."""
        for checkpoint in reported:
            awaited = self._pending.pop(checkpoint.uid, None)
            if awaited is not None and checkpoint.kind is Kind.SAVE:
                awaited.checkpoint = checkpoint
                self._followed.pop(checkpoint.uid, None)
                _insert_bounded(self._followed, awaited)
        new = {checkpoint.uid: checkpoint for checkpoint in reported}
        revised = []
        for uid, awaited in list(self._followed.items()):
            before = awaited.checkpoint
            awaited.checkpoint = self._revision(awaited, now_ns)
            if awaited.checkpoint is not before and uid in new:  # known before it was reported: reported at once
                new[uid] = awaited.checkpoint
            elif awaited.checkpoint is not before:
                awaited.checkpoint = msgspec.structs.replace(awaited.checkpoint, revision=before.revision + 1)
                revised.append(awaited.checkpoint)
            durable = awaited.checkpoint.durable_ns is not None
            has_ended = now_ns is None or is_final(now_ns - awaited.end_ns, durable=durable)
            if has_ended and not (
                now_ns and self._known.transfers.sent.is_sending_since(awaited.start_ns)
            ):  # it may be uploaded
                del self._followed[uid]
        if now_ns is not None:
            self._known.transfers.writeback.forget_before(now_ns - FOLLOWED_NS)
            self._known.transfers.removals.forget_before(now_ns - FOLLOWED_NS)
        return [*new.values(), *revised]

    def _revision(self, awaited: _FollowedSave, now_ns: int | None) -> Checkpoint:
        versions = (self._known.transfers.writeback.version, self._known.transfers.removals.version)
        is_checked, has_ended = versions == awaited.checked_versions, now_ns is None
        revised = (
            self._with_durability(awaited, has_ended=has_ended) if has_ended or not is_checked else awaited.checkpoint
        )
        if not is_checked:
            revised, settled = (revised, True) if awaited.is_cleaned else self._with_clean_up(awaited, revised, now_ns)
            awaited.checked_versions = versions if settled else awaited.checked_versions
        measures = revised.measures or Measures()
        if measures.uploads != awaited.uploads:
            revised = msgspec.structs.replace(
                revised, measures=msgspec.structs.replace(measures, uploads=awaited.uploads)
            )
        return revised

    def _with_durability(self, awaited: _FollowedSave, *, has_ended: bool) -> Checkpoint:
        checkpoint, limitations = awaited.checkpoint, awaited.limitations
        if checkpoint.durable_ns is not None:
            return checkpoint
        found = estimate_durability(awaited.ends, self._known.transfers.writeback)
        if found.at_ns is not None and awaited.has_all_files:
            durable_ns, evidence = awaited.wall(found.at_ns), (*checkpoint.evidence, *durability_evidence(found))
            measures = self._measures_of_writeback(awaited, found)
            return msgspec.structs.replace(
                checkpoint, durable_ns=durable_ns, limitations=limitations, evidence=evidence, measures=measures
            )
        if has_ended and found.unwritten_bytes and not awaited.is_deleted:
            limitations, measures = (
                (*limitations, not_durable_limitation(found.unwritten_bytes)),
                self._measures_of_writeback(awaited, found),
            )
            return msgspec.structs.replace(checkpoint, limitations=limitations, measures=measures)
        return checkpoint

    def _measures_of_writeback(self, awaited: _FollowedSave, found: Durability) -> Measures:
        path, span = awaited.checkpoint.path or "", (awaited.start_ns, awaited.end_ns)
        writeback = measure_writeback(found, path, span, self._known.world.devices, awaited.wall)
        return msgspec.structs.replace(awaited.checkpoint.measures or Measures(), **writeback)

    def _with_clean_up(
        self, awaited: _FollowedSave, checkpoint: Checkpoint, now_ns: int | None
    ) -> tuple[Checkpoint, bool]:
        """Add its clean-up; also return whether that is final."""
        next_ns = self._next_save_ns(awaited)
        deletion = None  # alongside training it blocks nothing
        if awaited.checkpoint.mode is not Mode.ASYNC:
            deletion = deletion_after(self._known.world, awaited.processes, awaited.end_ns, next_ns)
        cleaned_ns = max(
            filter(None, (self._cleaned_ns(awaited, next_ns), deletion.end_ns if deletion else None)), default=None
        )
        is_final = deletion is None or deletion.is_traced  # else its duration is known at the next sample of the thread
        awaited.is_cleaned = is_final and now_ns is not None and now_ns - next_ns >= LOOSE_GAP_NS
        if cleaned_ns is None or awaited.wall(cleaned_ns) == checkpoint.moments.cleaned_ns:
            return checkpoint, now_ns is None or now_ns - awaited.end_ns >= LOOSE_GAP_NS
        if now_ns is not None and now_ns - cleaned_ns < LOOSE_GAP_NS:
            return checkpoint, False
        moments = msgspec.structs.replace(checkpoint.moments, cleaned_ns=awaited.wall(cleaned_ns))
        checkpoint = msgspec.structs.replace(checkpoint, moments=moments)
        if cleaned_ns > awaited.end_ns:
            checkpoint = self._with_clean_up_measures(
                awaited, checkpoint, deletion, min(cleaned_ns + LOOSE_GAP_NS, next_ns)
            )
        return checkpoint, True

    def _with_clean_up_measures(
        self, awaited: _FollowedSave, checkpoint: Checkpoint, deletion: DeletionRun | None, until_ns: int
    ) -> Checkpoint:
        files = spent_ns = None
        if deletion is None or deletion.is_traced:
            removals = self._known.transfers.removals
            files, spent_ns = removals.removal_totals(awaited.paths, awaited.start_ns, until_ns, awaited.processes)
        changed = {"clean_up_files": files, "clean_up_ns": spent_ns}
        stall_ns = checkpoint.stall_ns
        spans = [(one.start_ns, one.end_ns) for one in checkpoint.blocked]
        if deletion is not None:
            self._known.history.record_blocked(checkpoint.uid, checkpoint.job, awaited.end_ns, deletion.end_ns)
            changed["clean_up_after_ns"] = deletion.duration_ns
            if not deletion.is_traced:
                changed["clean_up_ns"] = deletion.duration_ns
            if stall_ns is not None:
                stall_ns = max(stall_ns, checkpoint.end_ns - checkpoint.start_ns + deletion.duration_ns)
                spans.append((checkpoint.end_ns, checkpoint.end_ns + deletion.duration_ns))
        measures = msgspec.structs.replace(checkpoint.measures or Measures(), **changed)
        return msgspec.structs.replace(
            checkpoint, measures=measures, stall_ns=stall_ns, blocked=blocked_intervals(spans, stall_ns)
        )

    def _cleaned_ns(self, awaited: _FollowedSave, next_ns: int) -> int | None:
        """When the last old file of its kind was deleted for it, before the next save of that kind."""
        kind = awaited.shapes, awaited.paths, awaited.start_ns
        removals, job = self._known.transfers.removals, awaited.checkpoint.job
        found_ns = removals.last_removal_ns(*kind, awaited.end_ns + COMMIT_NS, job)
        if found_ns is None or found_ns <= awaited.end_ns:
            return found_ns
        return removals.last_removal_ns(*kind, min(found_ns, next_ns), job)

    def _next_save_ns(self, awaited: _FollowedSave) -> int:
        """When its writers started the next save of the kind; without one, until when clean-up is expected."""
        until_ns = awaited.end_ns + COMMIT_NS
        recent = self._known.transfers.recent
        later = [
            transfer.first_ns
            for process in awaited.processes
            for transfer in recent.transfers_between(process, awaited.end_ns, until_ns, writes=True)
            if transfer.first_ns > awaited.end_ns and transfer.path not in awaited.paths
            and path_shape(transfer.path) in awaited.shapes
        ]  # fmt: skip
        return min(later, default=until_ns)


def _insert_bounded(awaited: dict[str, _FollowedSave], new: _FollowedSave) -> None:
    files = sum(len(one.paths) for one in awaited.values())
    while awaited and (len(awaited) >= MAX_PER_ITEM or files > MAX_HISTORY_PATHS):
        files -= len(awaited.pop(next(iter(awaited))).paths)
    awaited[new.checkpoint.uid] = new


def latest_revisions(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Each checkpoint once: its latest revision, in the place of its first report."""
    found: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        previous = found.get(checkpoint.uid)
        if previous is None or previous.revision <= checkpoint.revision:
            found[checkpoint.uid] = checkpoint
    return list(found.values())
