"""Decides what a candidate is, a save, a restore, a copy or nothing, and what earlier ones turn out to have been."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass

import msgspec

from ckptprof.detect.describe.checkpoint import assemble
from ckptprof.detect.describe.completeness import note_complete
from ckptprof.detect.describe.revisions import Revisions
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.copies import Copies, counterparts
from ckptprof.detect.events.deferred import Deferred, DeferredEvents, IfAlone
from ckptprof.detect.events.evidence import (
    MIN_BYTES,
    THRESHOLD,
    candidate_bytes,
    confidence,
    framework_of,
    likeness,
    score,
    weigh,
)
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.past_events import PastEvent
from ckptprof.detect.events.recall_names import named_as_its_like, recalled
from ckptprof.detect.events.signals.series import is_nameless
from ckptprof.detect.events.signals.weights import BEHAVIOUR, FATAL, MOVED, PASSED, PASSING, SERIES_AGAINST, WEIGHTS
from ckptprof.detect.events.traits import event_of, is_weak
from ckptprof.model import Checkpoint, Evidence, Kind, Status

LIKE = 0.65  # a weak name and the right first bytes, with a word for checkpoints
_HOLD_SCORE = -0.45  # what a process without any library writes, with nothing else against it: kept, it may come again
_MAX_REJECTED = 256
_CLEAR = BEHAVIOUR - {"computes"} | {"step", "word"}


@dataclass(frozen=True)
class Rejected:
    """A candidate that was not recognised, for those who ask why."""

    path: str
    bytes: int
    writes: bool
    job: str
    score: float
    evidence: tuple[Evidence, ...]


class Recogniser:
    """Judges candidates one by one, in the order in which they were over."""

    def __init__(self, known: Knowledge, revisions: Revisions) -> None:
        """Start with nothing; `revisions` follow what is made of candidates."""
        self._known = known
        self._revisions = revisions
        self._held = DeferredEvents()
        self._copies = Copies()
        self.rejected: deque[Rejected] = deque(maxlen=_MAX_REJECTED)

    def judge(self, candidate: Candidate) -> list[Checkpoint]:
        """Return what the candidate is, and with it what earlier ones were, as it shows."""
        if candidate_bytes(candidate) < MIN_BYTES:
            return []
        known = self._known
        evidence = weigh(candidate, known)
        names = frozenset(reason.name for reason in evidence)
        event = event_of(candidate, known)
        known.past.note(candidate.job, event, writes=candidate.writes)
        if self._is_moved(candidate, evidence):
            return self._copied(candidate, evidence)
        total = score(evidence)
        if names & SERIES_AGAINST:
            self._held.drop(candidate.job, event.shapes)
        if total < THRESHOLD:
            self._reject(candidate, total, evidence)
            if candidate.writes and total >= _HOLD_SCORE and not names & FATAL:
                self._hold(candidate, evidence, event, self._otherwise(candidate, evidence))
            return []
        if candidate.writes and self._is_doubtful(candidate, names):
            alien = known.world.is_alien(candidate.processes)
            self._hold(candidate, evidence, event, self._otherwise(candidate, evidence) if alien else IfAlone.SAVE)
            return []
        earlier = self._held.release(candidate.job, event) if candidate.writes else self._held.read_again(event)
        return [
            *self._released(earlier),
            self._saved(candidate, self._describe(candidate, evidence, confidence(total))),
        ]

    def _describe(self, candidate: Candidate, evidence: list[Evidence], sure: float) -> Checkpoint:
        checkpoint = assemble(candidate, evidence, sure, self._known)
        self._revisions.note(candidate, checkpoint)
        if candidate.writes and checkpoint.status is Status.COMPLETE:
            note_complete(candidate, self._known.past)
        return checkpoint

    def dismiss(self, candidate: Candidate) -> None:
        """Take note of what goes on without an end: it is no checkpoint, and the like of it makes no series."""
        if candidate.parts:
            seconds = (candidate.end_ns - candidate.start_ns) / 1e9
            text = f"{len(candidate.parts)} files in {seconds:.0f} s without an end, under names of no framework"
            evidence = Evidence(name="endless", weight=WEIGHTS["endless"], text=text)
            self._reject(candidate, evidence.weight, [evidence])

    def settle(self, now_ns: int) -> list[Checkpoint]:
        """Return what waited for something that did not come."""
        done = self._copies.take(now_ns, self._known.transfers.saved)
        for held, otherwise in self._held.expire(now_ns, self._known.world.ended):
            if otherwise is IfAlone.SAVE:
                done += self._released([held])
            elif otherwise is IfAlone.COPY:
                done += self._copies.add(self._as_copy(held.checkpoint, held.candidate), held.candidate, [])
        return done

    def _otherwise(self, candidate: Candidate, evidence: list[Evidence]) -> IfAlone:
        """Return what it was if the like of it does not come again: brought here by something that trains nothing."""
        alien = self._known.world.is_alien(candidate.processes)
        return IfAlone.COPY if alien and likeness(evidence) >= LIKE else IfAlone.NOTHING

    def _is_moved(self, candidate: Candidate, evidence: list[Evidence]) -> bool:
        """Return whether it was brought or taken by something, not saved or restored."""
        trains = self._known.world.trains(candidate.processes)
        for reason in evidence:
            if reason.name == "copies" and trains and reason.weight > WEIGHTS["copies-exactly"]:
                continue  # it may read data while it saves
            if reason.name in MOVED:
                return True
        if any(reason.name == "service" for reason in evidence):
            return False
        if sum(reason.weight for reason in evidence if reason.name in PASSING) <= PASSED:
            return True
        if candidate.writes or not self._known.world.is_alien(candidate.processes):
            return False
        mapped = sum(part.bytes for part in candidate.parts if part.uses_mapping)
        again = any(reason.name == "read-again" for reason in evidence)
        return not again and mapped * 2 < candidate_bytes(candidate)

    def _is_doubtful(self, candidate: Candidate, names: frozenset[str]) -> bool:
        """Return whether only a name that data sets bear, too, and a library speak for it."""
        known = self._known
        if known.world.is_alien(candidate.processes):
            return not names & BEHAVIOUR
        weak = is_weak(framework_of(candidate, known))
        clear = _CLEAR - {"step"} if is_nameless(candidate, known) else _CLEAR  # samples are numbered, too
        return weak and known.world.runtimes(candidate.processes) is not None and not names & clear

    def _copied(self, candidate: Candidate, evidence: list[Evidence]) -> list[Checkpoint]:
        others = counterparts(candidate, self._known)
        like = likeness(evidence)
        if any(self._known.transfers.saved.contains(move.path) for move in others):
            like += WEIGHTS["read-back"]
        if like < LIKE:
            self._reject(candidate, score(evidence), evidence)
            return []
        made = self._describe(candidate, evidence, confidence(like))
        return self._copies.add(self._as_copy(made, candidate), candidate, others)

    def _as_copy(self, made: Checkpoint, candidate: Candidate) -> Checkpoint:
        recording = self._known.world.header.uid
        told = f"{recording}|{Kind.COPY.value}|{made.job}|{made.start_ns}|{made.path}|{candidate.writes}"
        uid = str(uuid.uuid5(uuid.NAMESPACE_URL, told))
        return msgspec.structs.replace(made, kind=Kind.COPY, uid=uid, mode=None, stall_ns=None, overheads=())

    def _hold(self, candidate: Candidate, evidence: list[Evidence], event: PastEvent, otherwise: IfAlone) -> None:
        checkpoint = self._describe(candidate, evidence, 0.5)
        self._held.hold(Deferred(candidate, evidence, event, checkpoint), otherwise)

    def _released(self, earlier: list[Deferred]) -> list[Checkpoint]:
        """Return those that turned out to be saves."""
        told = []
        for held in earlier:
            more = tuple(held.evidence[len(held.checkpoint.evidence) :])
            checkpoint = msgspec.structs.replace(held.checkpoint, evidence=(*held.checkpoint.evidence, *more))
            told.append(self._saved(held.candidate, checkpoint))
        return told

    def _saved(self, candidate: Candidate, checkpoint: Checkpoint) -> Checkpoint:
        """Take note of what was saved; return it. A restore is returned with what is known of its save."""
        if not candidate.writes:
            return recalled(candidate, checkpoint, self._known)
        checkpoint = named_as_its_like(candidate, checkpoint, self._known)
        for path in (*(part.path for part in candidate.parts), candidate.unit):
            self._known.transfers.saved.add(path, checkpoint.framework, checkpoint.step)
        return checkpoint

    def _reject(self, candidate: Candidate, total: float, evidence: list[Evidence]) -> None:
        path = max(candidate.parts, key=lambda part: part.bytes).path
        size = candidate_bytes(candidate)
        self.rejected.append(Rejected(path, size, candidate.writes, candidate.job, round(total, 2), tuple(evidence)))
