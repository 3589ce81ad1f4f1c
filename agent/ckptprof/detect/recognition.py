"""Classifies each event by the decision table, and then reports, defers or rejects it."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from ckptprof.detect.describe.checkpoint import assemble
from ckptprof.detect.describe.completeness import record_complete
from ckptprof.detect.describe.revisions import Revisions
from ckptprof.detect.describe.stall import record_stall
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.decision import Decision, decide, evidence_of
from ckptprof.detect.events.decision_table import REQUIRED_SUMS, Hypothesis
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_context import EventContext, is_weak_framework
from ckptprof.detect.events.placeholders import Copies, Placeholders
from ckptprof.detect.events.signal_values import Signal
from ckptprof.detect.events.signals import signals_of
from ckptprof.detect.events.signals.copies import find_counterparts
from ckptprof.detect.tolerances import SIGNIFICANT_BYTES
from ckptprof.detect.transfers.recent_files import SavedNames
from ckptprof.detect.world.bounded import MAX_RECENT
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.frameworks.file_names import parse_name
from ckptprof.model import CUT_AT_END, Checkpoint, Evidence, Kind, Status


@dataclass(frozen=True, slots=True)
class EventDecision:
    """A decision on an event, for `replay --why`."""

    number: int  # counter within a recording
    uids: tuple[str, ...]  # under which it is reported, or will be
    path: str  # of its largest file
    bytes: int
    writes: bool
    job: str
    start_ns: int  # wall clock
    signals: tuple[Signal, ...]
    decision: Decision

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence that users see."""
        return evidence_of(self.signals)

    @property
    def score(self) -> float:
        """The sum for a save or a restore."""
        return round(self.decision.save_or_restore, 2)

    @property
    def is_rejected(self) -> bool:
        """It was no checkpoint and no copy, as far as known then."""
        if self.decision.override is not None:
            return not self.decision.is_copy_or_stream
        return self.decision.save_or_restore < REQUIRED_SUMS[Hypothesis.SAVE if self.writes else Hypothesis.RESTORE]


class Recogniser:
    """Decides candidates one by one, in the order of their ends."""

    def __init__(self, known: Knowledge, revisions: Revisions) -> None:
        self._known = known
        self._revisions = revisions
        self._copies = Copies()
        self._placeholders = Placeholders()
        self._decision_count = 0
        self.decisions: deque[EventDecision] = deque(maxlen=MAX_RECENT)

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest a frame's deletions."""
        self._placeholders.ingest(samples)

    def classify(self, candidate: Candidate) -> list[Checkpoint]:
        """Classify a candidate; return the resulting reports, also of earlier events."""
        if candidate.bytes < SIGNIFICANT_BYTES:
            return []
        event = EventContext(candidate, self._known)
        signals = signals_of(event)
        decision = decide(signals)
        checkpoint = None if decision.is_nothing else self._describe(candidate, evidence_of(signals), decision)
        # a truncated save and its continuation are no series
        if checkpoint is None or CUT_AT_END not in checkpoint.cuts:
            history_event = event.history_event._replace(is_rejected=checkpoint is None)
            self._known.history.record(event.job, history_event, writes=event.writes)
        if decision.marks_series_as_data:
            self._known.deferred.drop(event.job, event.history_event)
        self._record_decision(candidate, signals, decision, checkpoint)
        if event.writes and candidate.is_sent:
            self._revisions.record_upload(event)
        elif event.writes:
            self._placeholders.record_written(event)
        if checkpoint is None:
            return []
        pending = self._pending(event, checkpoint, decision)
        if decision.deferral is not None:
            self._defer(pending)
            return []
        if decision.is_copy_or_stream:
            if event.writes:
                self._placeholders.add_copy(checkpoint, event)
            counterpart_paths = (
                None if event.writes else frozenset(transfer.path for transfer in find_counterparts(event))
            )
            return self._copies.add(checkpoint, event.history_event, counterpart_paths)
        return self._report_recognised(pending)

    def _defer(self, pending: PendingEvent) -> None:
        """Defer one; of receptions from an object store only the first: a job restores before it fetches data."""
        known, job = self._known, pending.checkpoint.job
        if pending.checkpoint.kind is not Kind.RESTORE or not known.deferred.fetched_by(
            job, pending.event, known.history
        ):
            known.deferred.defer(pending)

    def forecast(self, candidate: Candidate) -> PendingEvent | None:
        """Return the save or restore that a candidate is, or may be, if it gets no more parts; record nothing."""
        event = EventContext(candidate, self._known)
        signals = signals_of(event)
        decision = decide(signals)
        if decision.is_nothing or (decision.is_copy_or_stream and decision.deferral is None):
            return None
        checkpoint, *_ = assemble(candidate, list(evidence_of(signals)), decision.confidence, self._known)
        return self._pending(event, checkpoint, decision)

    def adopt_pending(self, pending: Iterable[PendingEvent]) -> list[Checkpoint]:
        """Adopt the pending events of the previous session; return the certain ones. Another boot continues none."""
        reported = []
        for one in pending:
            if one.boot_id != self._known.world.header.boot_id:
                reported += [one.checkpoint] if one.if_alone is None else []
                continue
            checkpoint = one.checkpoint
            if CUT_AT_END not in checkpoint.cuts:
                self._known.history.record(checkpoint.job, one.event, writes=checkpoint.kind is Kind.SAVE)
            if one.if_alone is None:
                reported += self._report_recognised(one)
            else:
                self._known.deferred.defer(one)
        return reported

    def dismiss(self, candidate: Candidate) -> None:
        """Record an endless candidate: it is no checkpoint, and starts no series."""
        if candidate.parts:
            seconds = (candidate.end_ns - candidate.start_ns) / 1e9
            text = f"{len(candidate.parts)} files in {seconds:.0f} s without an end, under names of no framework"
            signals = (Signal("endless", "endless", text),)
            self._record_decision(candidate, signals, decide(signals), None)

    def release_expired(self, now_ns: int, *, goes_on: bool = False) -> list[Checkpoint]:
        """Return events whose wait has expired; those waiting for their series may continue after a pause."""
        done = self._copies.release_unpaired(now_ns, self._known.transfers.saved)
        done += self._placeholders.take_revised(now_ns, self._known.world.ended)
        self._known.deferred.drop_returned(self._known.history)
        for deferred in [] if goes_on else self._known.deferred.take_expired(now_ns, self._known.world.ended):
            if deferred.if_alone is Hypothesis.SAVE:
                done += self._fetched_before(deferred)
                done.append(self._record_saved(deferred))
            else:
                done += self._copies.add(self._as_copy(deferred.checkpoint, writes=True), deferred.event, None)
        return done

    def _pending(self, event: EventContext, made: Checkpoint, decision: Decision) -> PendingEvent:
        boot_id = self._known.world.header.boot_id
        if_alone = decision.hypothesis if decision.deferral is not None else None
        return PendingEvent(made, event.history_event, event.candidate.directory, boot_id, if_alone)

    def _describe(self, candidate: Candidate, evidence: tuple[Evidence, ...], decision: Decision) -> Checkpoint:
        copied = decision.is_copy_or_stream and decision.deferral is None
        why = list(evidence), decision.confidence
        checkpoint, limitations, stall = assemble(candidate, *why, self._known, is_copy=copied)
        record_stall(candidate, stall, self._known)
        if not candidate.is_sent:  # durability and clean-up of files become known later
            self._revisions.record(candidate, checkpoint, limitations)
        if candidate.writes and checkpoint.status is Status.COMPLETE and not copied:
            record_complete(candidate, self._known.history)
        return self._as_copy(checkpoint, writes=candidate.writes) if copied else checkpoint

    def _uid_of_copy(self, made: Checkpoint, *, writes: bool) -> str:
        identity = (self._known.world.header.uid, Kind.COPY.value, made.job, made.start_ns, made.path, writes)
        return str(uuid.uuid5(uuid.NAMESPACE_URL, "|".join(map(str, identity))))

    def _as_copy(self, made: Checkpoint, *, writes: bool) -> Checkpoint:
        uid = self._uid_of_copy(made, writes=writes)
        return msgspec.structs.replace(
            made, kind=Kind.COPY, uid=uid, mode=None, stall_ns=None, blocked=(), overheads=()
        )

    def _report_recognised(self, pending: PendingEvent) -> list[Checkpoint]:
        """Return a save or restore, and the earlier events that it confirms as saves."""
        if pending.checkpoint.kind is Kind.SAVE:
            earlier = self._known.deferred.take_recurring(pending.checkpoint.job, pending.event)
            return [*self._fetched_before(pending), *map(self._record_saved, earlier), self._record_saved(pending)]
        if pending.checkpoint.sent is not None:
            earlier = self._known.deferred.take_fetched_again(pending.event, self._known.history)
        else:
            earlier = self._known.deferred.take_reread(pending.event)
            if any(reason.name == "resumes" for reason in pending.checkpoint.evidence):
                self._known.history.record_resumed(pending.event)
                earlier += self._known.deferred.take_resumed(pending.event)
        return [self._record_saved(one) for one in (*earlier, pending)]

    def _fetched_before(self, saved: PendingEvent) -> list[Checkpoint]:
        """Return the restores from an object store that a save confirms."""
        job = saved.checkpoint.job
        return [one.checkpoint for one in self._known.deferred.take_saved_later(job, saved.event, self._known.history)]

    def _record_saved(self, pending: PendingEvent) -> Checkpoint:
        """Record a save and return it; a restore gets the framework and step of its save."""
        checkpoint, paths = pending.checkpoint, pending.event.paths
        if checkpoint.kind is Kind.SAVE:
            self._known.history.record_state(pending.event)
        if checkpoint.sent is not None:
            return checkpoint
        if checkpoint.kind is not Kind.SAVE:
            return _with_save_names(paths, checkpoint, self._known)
        self._placeholders.record_save(pending.event)
        checkpoint = _with_neighbour_framework(paths, checkpoint, self._known)
        for path in (*(stream.path for stream in checkpoint.streams), pending.directory):
            self._known.transfers.saved[path] = SavedNames(checkpoint.framework, checkpoint.step)
        return checkpoint

    def _record_decision(
        self, candidate: Candidate, signals: tuple[Signal, ...], decision: Decision, checkpoint: Checkpoint | None
    ) -> None:
        self._decision_count += 1
        path = max(candidate.parts, key=lambda part: part.bytes).path
        uids = (
            (checkpoint.uid, self._uid_of_copy(checkpoint, writes=candidate.writes)) if checkpoint is not None else ()
        )
        start_ns = self._known.world.clock.wall(candidate.start_ns)
        identity = (candidate.bytes, candidate.writes, candidate.job, start_ns)
        self.decisions.append(EventDecision(self._decision_count, uids, path, *identity, signals, decision))


def _with_save_names(paths: Collection[str], restore: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the restore with framework and step of the save of its files, if all are of one."""
    found = {known.transfers.saved.get(path) for path in paths}
    if len(found) != 1:
        return restore
    save = found.pop()
    if save is None:
        return restore
    step = save.step if restore.step is None and not _has_step(paths) else restore.step
    return msgspec.structs.replace(restore, framework=save.framework or restore.framework, step=step)


def _with_neighbour_framework(paths: Collection[str], save: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the save of an alias with the framework of saves and restores alongside, if they agree."""
    if _has_step(paths) or not is_weak_framework(save.framework) or not all(parse_name(path).alias for path in paths):
        return save
    folders = {path.rpartition("/")[0] for path in paths}
    neighbour_paths = (
        path
        for folder in folders
        for path in (*known.transfers.saved.in_folder(folder), *known.history.paths_in_folder(folder))
    )
    frameworks = {parse_name(path).framework for path in neighbour_paths}
    found = {framework.name for framework in frameworks if framework is not None and not framework.weak}
    return msgspec.structs.replace(save, framework=found.pop()) if len(found) == 1 else save


def _has_step(paths: Collection[str]) -> bool:
    return any(parse_name(path).step is not None for path in paths)
