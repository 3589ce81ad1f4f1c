"""Asks the decision table what each event is, and does what follows: report, defer, or turn it down."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from ckptprof.detect.describe.checkpoint import assemble
from ckptprof.detect.describe.completeness import note_complete
from ckptprof.detect.describe.revisions import Revisions
from ckptprof.detect.describe.stall import note_stall
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.copies import Copies
from ckptprof.detect.events.decision import Decision, decide, evidence_of
from ckptprof.detect.events.decision_table import NEEDED, Hypothesis
from ckptprof.detect.events.deferred import Pending
from ckptprof.detect.events.event import Event, is_weak
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signal import Signal
from ckptprof.detect.events.signals import signals_of
from ckptprof.detect.events.signals.copies import counterparts
from ckptprof.detect.events.stand_ins import StandIns
from ckptprof.detect.tolerances import TELLING_BYTES
from ckptprof.detect.transfers.remembered import Saved
from ckptprof.detect.world.bounded import MAX_RECENT
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.frameworks.names import read_name
from ckptprof.model import CUT_AT_END, Checkpoint, Evidence, Kind, Status


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision on an event, for `replay --why`."""

    number: int  # counts those of a recording
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
        """Whether it was no checkpoint and no copy, as far as known then."""
        if self.decision.override is not None:
            return not self.decision.is_copy_or_stream
        return self.decision.save_or_restore < NEEDED[Hypothesis.SAVE if self.writes else Hypothesis.RESTORE]


class Recogniser:
    """Decides candidates one by one, in the order of their ends."""

    def __init__(self, known: Knowledge, revisions: Revisions) -> None:
        self._known = known
        self._revisions = revisions
        self._copies = Copies()
        self._stand_ins = StandIns()
        self._judged = 0
        self.judged: deque[Judged] = deque(maxlen=MAX_RECENT)

    def take(self, samples: FrameSamples) -> None:
        """Ingest a frame's deletions."""
        self._stand_ins.take(samples)

    def judge(self, candidate: Candidate) -> list[Checkpoint]:
        """Decide the candidate; return the reports that follow, of earlier events as well."""
        if candidate.bytes < TELLING_BYTES:
            return []
        event = Event(candidate, self._known)
        signals = signals_of(event)
        decision = decide(signals)
        made = None if decision.is_nothing else self._describe(candidate, evidence_of(signals), decision)
        if made is None or CUT_AT_END not in made.cuts:  # with what follows of it a part is no series
            past = event.remembered._replace(is_nothing=made is None)
            self._known.past.note(event.job, past, writes=event.writes)
        if decision.ends_series:
            self._known.deferred.drop(event.job, event.remembered)
        self._note(candidate, signals, decision, made)
        if event.writes and candidate.is_sent:
            self._revisions.sent(event)
        elif event.writes:
            self._stand_ins.written(event)
        if made is None:
            return []
        pending = self._pending(event, made, decision)
        if decision.deferral is not None:
            self._hold(pending)
            return []
        if decision.is_copy_or_stream:
            if event.writes:
                self._stand_ins.note(made, event)
            others = None if event.writes else frozenset(move.path for move in counterparts(event))
            return self._copies.add(made, event.remembered, others)
        return self._recognised(pending)

    def _hold(self, pending: Pending) -> None:
        """Defer one; of receptions from an object store only the first: a job restores before it fetches data."""
        known, job = self._known, pending.checkpoint.job
        if pending.checkpoint.kind is not Kind.RESTORE or not known.deferred.fetched(job, pending.event, known.past):
            known.deferred.hold(pending)

    def foresee(self, candidate: Candidate) -> Pending | None:
        """Return the save or restore that a candidate is, or may be, if it gets no more parts; record nothing."""
        event = Event(candidate, self._known)
        signals = signals_of(event)
        decision = decide(signals)
        if decision.is_nothing or (decision.is_copy_or_stream and decision.deferral is None):
            return None
        made, *_ = assemble(candidate, list(evidence_of(signals)), decision.confidence, self._known)
        return self._pending(event, made, decision)

    def adopt(self, left: Iterable[Pending]) -> list[Checkpoint]:
        """Adopt the pending events of the previous session; return the certain ones. Another boot continues none."""
        reported = []
        for one in left:
            if one.boot_id != self._known.world.header.boot_id:
                reported += [one.checkpoint] if one.if_alone is None else []
                continue
            made = one.checkpoint
            if CUT_AT_END not in made.cuts:
                self._known.past.note(made.job, one.event, writes=made.kind is Kind.SAVE)
            if one.if_alone is None:
                reported += self._recognised(one)
            else:
                self._known.deferred.hold(one)
        return reported

    def dismiss(self, candidate: Candidate) -> None:
        """Record something endless: it is no checkpoint, and starts no series."""
        if candidate.parts:
            seconds = (candidate.end_ns - candidate.start_ns) / 1e9
            text = f"{len(candidate.parts)} files in {seconds:.0f} s without an end, under names of no framework"
            signals = (Signal("endless", "endless", text),)
            self._note(candidate, signals, decide(signals), None)

    def settle(self, now_ns: int, *, goes_on: bool = False) -> list[Checkpoint]:
        """Return events whose wait has expired; those waiting for their series may continue after a pause."""
        done = self._copies.take(now_ns, self._known.transfers.saved)
        done += self._stand_ins.tell(now_ns, self._known.world.ended)
        self._known.deferred.drop_answered(self._known.past)
        for deferred in [] if goes_on else self._known.deferred.expire(now_ns, self._known.world.ended):
            if deferred.if_alone is Hypothesis.SAVE:
                done += self._fetched_before(deferred)
                done.append(self._saved(deferred))
            else:
                copy = self._as_copy(deferred.checkpoint, writes=True)
                done += self._copies.add(copy, deferred.event, None)
        return done

    def _pending(self, event: Event, made: Checkpoint, decision: Decision) -> Pending:
        boot_id = self._known.world.header.boot_id
        if_alone = decision.hypothesis if decision.deferral is not None else None
        return Pending(made, event.remembered, event.candidate.directory, boot_id, if_alone)

    def _describe(self, candidate: Candidate, evidence: tuple[Evidence, ...], decision: Decision) -> Checkpoint:
        copied = decision.is_copy_or_stream and decision.deferral is None
        why = list(evidence), decision.confidence
        checkpoint, blind, stall = assemble(candidate, *why, self._known, is_copy=copied)
        note_stall(candidate, stall, self._known)
        if not candidate.is_sent:  # of what went to files more becomes known
            self._revisions.note(candidate, checkpoint, blind)
        if candidate.writes and checkpoint.status is Status.COMPLETE and not copied:
            note_complete(candidate, self._known.past)
        return self._as_copy(checkpoint, writes=candidate.writes) if copied else checkpoint

    def _uid_of_copy(self, made: Checkpoint, *, writes: bool) -> str:
        identity = (self._known.world.header.uid, Kind.COPY.value, made.job, made.start_ns, made.path, writes)
        return str(uuid.uuid5(uuid.NAMESPACE_URL, "|".join(map(str, identity))))

    def _as_copy(self, made: Checkpoint, *, writes: bool) -> Checkpoint:
        uid = self._uid_of_copy(made, writes=writes)
        return msgspec.structs.replace(
            made, kind=Kind.COPY, uid=uid, mode=None, stall_ns=None, blocked=(), overheads=()
        )

    def _recognised(self, sure: Pending) -> list[Checkpoint]:
        """Return a save or restore, and the earlier events that it confirms as saves."""
        if sure.checkpoint.kind is Kind.SAVE:
            earlier = self._known.deferred.release(sure.checkpoint.job, sure.event)
            return [*self._fetched_before(sure), *map(self._saved, earlier), self._saved(sure)]
        if sure.checkpoint.sent is not None:
            earlier = self._known.deferred.fetched_back(sure.event, self._known.past)
        else:
            earlier = self._known.deferred.read_again(sure.event)
            if any(reason.name == "resumes" for reason in sure.checkpoint.evidence):
                self._known.past.note_resumed(sure.event)
                earlier += self._known.deferred.resumed(sure.event)
        return [self._saved(one) for one in (*earlier, sure)]

    def _fetched_before(self, saved: Pending) -> list[Checkpoint]:
        """Return the restores from an object store that a save confirms."""
        job = saved.checkpoint.job
        return [one.checkpoint for one in self._known.deferred.saved_later(job, saved.event, self._known.past)]

    def _saved(self, sure: Pending) -> Checkpoint:
        """Record a save and return it; a restore gets the framework and step of its save."""
        checkpoint, paths = sure.checkpoint, sure.event.paths
        if checkpoint.kind is Kind.SAVE:
            self._known.past.note_state(sure.event)
        if checkpoint.sent is not None:
            return checkpoint
        if checkpoint.kind is not Kind.SAVE:
            return _recalled(paths, checkpoint, self._known)
        self._stand_ins.saved(sure.event)
        checkpoint = _named_as_its_like(paths, checkpoint, self._known)
        for path in (*(stream.path for stream in checkpoint.streams), sure.directory):
            self._known.transfers.saved[path] = Saved(checkpoint.framework, checkpoint.step)
        return checkpoint

    def _note(
        self, candidate: Candidate, signals: tuple[Signal, ...], decision: Decision, made: Checkpoint | None
    ) -> None:
        self._judged += 1
        path = max(candidate.parts, key=lambda part: part.bytes).path
        uids = (made.uid, self._uid_of_copy(made, writes=candidate.writes)) if made is not None else ()
        start_ns = self._known.world.clock.wall(candidate.start_ns)
        own = (candidate.bytes, candidate.writes, candidate.job, start_ns)
        self.judged.append(Judged(self._judged, uids, path, *own, signals, decision))


def _recalled(paths: Collection[str], restore: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the restore with framework and step of the save of its files, if all are of one."""
    found = {known.transfers.saved.get(path) for path in paths}
    if len(found) != 1:
        return restore
    save = found.pop()
    if save is None:
        return restore
    step = save.step if restore.step is None and not _says_step(paths) else restore.step
    return msgspec.structs.replace(restore, framework=save.framework or restore.framework, step=step)


def _named_as_its_like(paths: Collection[str], save: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the save of an alias with the framework of saves and restores alongside, if they agree."""
    if _says_step(paths) or not is_weak(save.framework) or not all(read_name(path).alias for path in paths):
        return save
    folders = {path.rpartition("/")[0] for path in paths}
    beside = (
        path for folder in folders for path in (*known.transfers.saved.in_folder(folder), *known.past.in_folder(folder))
    )
    frameworks = {read_name(path).framework for path in beside}
    found = {framework.name for framework in frameworks if framework is not None and not framework.weak}
    return msgspec.structs.replace(save, framework=found.pop()) if len(found) == 1 else save


def _says_step(paths: Collection[str]) -> bool:
    return any(read_name(path).step is not None for path in paths)
