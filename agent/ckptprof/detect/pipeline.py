"""From frames to checkpoints: a pure function of the samples, the same live and on replay."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ckptprof.detect.budget import Budget, retained_kinds
from ckptprof.detect.describe.completeness import large_file_shapes
from ckptprof.detect.describe.revisions import Revisions
from ckptprof.detect.describe.truncations import find_hang
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.gathering import MANY_PARTS, CandidateGatherer, NextStep
from ckptprof.detect.events.lifecycle import LONGEST_CLOSING_NS
from ckptprof.detect.recognition import EventDecision, Recogniser
from ckptprof.detect.tolerances import CONCURRENT_NS, COUNTER_LAG_NS, FEW, MAX_PER_ITEM, PATIENCE_NS, SIGNIFICANT_BYTES
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfer_tracker import QUIET_NS, TransferTracker
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.spans import merged
from ckptprof.detect.world.starvation import FAR_BEHIND_NS
from ckptprof.detect.world.world import World
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof.units import MS, NS
from ckptprof_collectors.samples import Frame

_EVALUATE_NS = 500_000_000
_KEEP_NS = 120_000_000_000  # how long counters are retained, if nothing older is waiting
_FORECAST_AGE_SHARE = 8  # an unfinished save is forecast again after an eighth of its age: a long save costs no more
_MAX_FORECAST_AGE_NS = PATIENCE_NS // 4  # at most: after a kill a save is joined to its last forecast
_YOUNG_NS = 1_000_000_000  # many saves have ended by then, and need no forecast before
_REUSE_NS = 1_000_000  # for each of its parts a forecast is reused for so long: it takes a twentieth of that


class _Forecast(NamedTuple):
    """The forecast of an unfinished event."""

    fingerprint: Hashable  # of its inputs
    due_ns: int  # valid until then while it grows
    pause_ns: int  # it seems to have ended after such a silence
    pending: PendingEvent | None


class Detector:
    """Ingests frames in order; returns checkpoints once they have ended, and again when more is known."""

    def __init__(self, header: Header, *, saved_paths: tuple[str, ...] = (), before: Detector | None = None) -> None:
        """Start a recording; `saved_paths` are files and folders that were saved before it.

        `before` recorded the same boot of this host until a moment ago: its knowledge of jobs is carried over.
        """
        self._world = World(header)
        self._transfers = TransferTracker(self._world, saved_paths)
        self.known = Knowledge(self._world, self._transfers)
        if before is not None:
            self.known = Knowledge(self._world, self._transfers, before.known.history, before.known.deferred)
            self._transfers.saved.update(before.known.transfers.saved)
        self._revisions = Revisions(self.known)
        self._gatherer = CandidateGatherer(self._world, self._transfers)
        self._recogniser = Recogniser(self.known, self._revisions)
        self._budget = Budget(retained_kinds(self.known))
        self._forecasts: dict[Hashable, _Forecast] = {}
        self._transfer_count = 0  # open and waiting at the last forecast
        self._good_until_ns = 0  # while they become a few more, without a pause, and no event has ended
        self._reuse_until_ns = 0  # unless an event has ended
        self._omitted: set[Hashable] = set()  # unfinished events without a forecast in the last result
        self.omitted_event_count = 0  # newly omitted in the last result of `pending`, for its limit
        self._evaluated_ns = self._classified_ns = self._forgotten_ns = 0
        self._grown_ns = self._due_ns = 0  # when more files waited than before; when a large event may have ended
        self._hung: Bounded[Hashable, int] = Bounded(MAX_PER_ITEM)  # when each open file was last part of a hang
        self._fed_ns = header.at_ns

    @property
    def decisions(self) -> deque[EventDecision]:
        """The decisions on the last events, for `replay --why`."""
        return self._recogniser.decisions

    @property
    def rejected(self) -> list[EventDecision]:
        """The last decisions against a checkpoint."""
        return [decision for decision in self.decisions if decision.is_rejected]

    @property
    def active(self) -> bool:
        """Whether a transfer is in progress that may become a checkpoint."""
        return self._transfers.active

    @property
    def retained_bytes(self) -> int:
        """About how many bytes it retains of its input."""
        return self._budget.retained_bytes

    @property
    def forgotten_bytes(self) -> int:
        """Memory of detection data released early because its budget was full, in bytes."""
        return self._budget.forgotten_bytes

    def ingest(self, frame: Frame, behind_ns: int = 0) -> list[Checkpoint]:
        """Ingest one frame; return the checkpoints that end with it, and revisions of earlier ones.

        `behind_ns`: how far the recorder is behind; far behind, samples that only describe are left out, and evaluation
        is less frequent.
        """
        frame = self._world.starvation.shorten(frame, self._fed_ns, behind_ns)
        self._fed_ns = frame.at_ns
        for process in self._world.drop_stalest():
            self._transfers.polled.close_all(process, frame.at_ns)  # it is no longer polled
        samples = self._world.ingest(frame)
        self._transfers.ingest(samples, frame.at_ns)
        self.known.history.ingest(samples, self._world.jobs)
        self._revisions.ingest(samples)
        self._recogniser.ingest(samples)
        self._world.ingest_exits(samples)
        # with many waiting transfers, or far behind, evaluation is less frequent, but in time for a large event's end
        turns = FEW if behind_ns >= FAR_BEHIND_NS else min(len(self._transfers.waiting) // MANY_PARTS, FEW)
        pause_ns = _EVALUATE_NS * (1 if self._transfers.facts.is_nearly_full else 1 + turns)
        if frame.at_ns - self._evaluated_ns < pause_ns and not self._evaluated_ns < self._due_ns <= frame.at_ns:
            return []
        return self._revisions.follow(self._evaluate(frame.at_ns), frame.at_ns)

    def adopt_pending(self, pending: Sequence[PendingEvent]) -> list[Checkpoint]:
        """Adopt the pending events of the previous session; return the certain ones, the rest stay pending."""
        return self._recogniser.adopt_pending(pending)

    def finish(self) -> list[Checkpoint]:
        """Classify all remaining events: the recording has ended, and every wait with it."""
        return self._finish(goes_on=False)

    def pause(self, hurried: Callable[[], bool] = lambda: False) -> list[Checkpoint]:
        """Classify open events: the recording has ended, and the next one gets the rest through `pending`.

        Events not decided when `hurried` returns True are pending there, too.
        """
        return self._finish(goes_on=True, hurried=hurried)

    def _finish(self, *, goes_on: bool, hurried: Callable[[], bool] = lambda: False) -> list[Checkpoint]:
        self._world.recording_end_ns = self._fed_ns
        return self._revisions.follow(self._evaluate(self._far_future_ns, goes_on=goes_on, hurried=hurried), None)

    @property
    def _far_future_ns(self) -> int:
        """A time after every wait."""
        return self._world.counted_ns + 1_000_000_000_000

    def pending(self, hurried: Callable[[], bool] = lambda: False, *, closely: bool = True) -> list[PendingEvent]:
        """Return deferred events, and what would be reported of open ones if the recording ended now.

        Nothing changes by that. Of open events, the largest ones; once `hurried` returns True only earlier forecasts,
        unchanged. The others are counted. Not `closely`: a forecast of an event that still grows may be an eighth of
        its age old, 15 s at most; a job that saved before has none in its first second. Until the recording ends any
        forecast may be one second old for each thousand of its files.
        """
        has_ended = self._world.recording_end_ns is not None
        writing = [one for one in self._transfers.still_open() if one.writes]
        is_reused = self._fed_ns < self._reuse_until_ns and not has_ended
        if is_reused or (not closely and self._is_unchanged(writing)):
            self.omitted_event_count = 0
            return self._unreported()
        forecasts: dict[Hashable, _Forecast] = {}
        omitted: set[Hashable] = set()
        good_until_ns = 0
        if self.active:
            recording_end_ns, self._world.recording_end_ns = self._world.recording_end_ns, self._fed_ns
            candidates = self._gatherer.gather_as_ended([*self._transfers.waiting, *writing])
            ongoing = [one for one in self._ongoing(candidates) if closely or not self._is_young(one)]
            names = {_key_of(candidate): candidate for candidate in ongoing[:MAX_PER_ITEM]}
            for name in sorted(names, key=self._forecasts.__contains__):  # those without a forecast first
                candidate, known = names[name], self._forecasts.get(name)
                is_due = known is None or closely or self._fed_ns >= known.due_ns or self._is_quiet(candidate, known)
                in_haste = is_due and hurried()
                if known is not None and (not is_due or in_haste or known.fingerprint == self._fingerprint(candidate)):
                    forecasts[name] = known
                elif not in_haste:
                    age_ns = self._fed_ns - candidate.start_ns
                    due_ns = self._fed_ns + min(age_ns // _FORECAST_AGE_SHARE, _MAX_FORECAST_AGE_NS)
                    pause_ns = max(CONCURRENT_NS, 2 * _longest_pause_ns(candidate))
                    pending = self._recogniser.forecast(candidate)
                    forecasts[name] = _Forecast(self._fingerprint(candidate), due_ns, pause_ns, pending)
            self._world.recording_end_ns = recording_end_ns
            omitted.update(name for candidate in ongoing if (name := _key_of(candidate)) not in forecasts)
            if len(forecasts) == len(candidates):
                good_until_ns = min((one.due_ns for one in forecasts.values()), default=0)
            parts = sum(len(candidate.parts) for candidate in candidates)
            self._reuse_until_ns = 0 if omitted else self._fed_ns + parts * _REUSE_NS
        self._forecasts = forecasts
        self._transfer_count, self._good_until_ns = len(self._transfers.waiting) + len(writing), good_until_ns
        self._omitted, self.omitted_event_count = omitted, len(omitted - self._omitted)
        return self._unreported()

    def _fingerprint(self, candidate: Candidate) -> Hashable:
        return _fingerprint(candidate), find_hang(candidate, self.known)

    def _is_unchanged(self, writing: Sequence[Transfer]) -> bool:
        """Return True if little was added since the last forecasts, and none of their events seems to have ended."""
        waiting = self._transfers.waiting
        added = len(waiting) + len(writing) - self._transfer_count
        if self._fed_ns >= self._good_until_ns or not 0 <= added <= self._transfer_count // _FORECAST_AGE_SHARE:
            return False
        pause_ns = min(one.pause_ns for one in self._forecasts.values())
        return not waiting or self._fed_ns - max(one.last_ns for one in waiting) < pause_ns

    def _unreported(self) -> list[PendingEvent]:
        return [*self.known.deferred.events, *filter(None, (one.pending for one in self._forecasts.values()))]

    def _is_young(self, candidate: Candidate) -> bool:
        """Recognise a save that a job started within the last second, with a file still open, after earlier saves.

        It is forecast later, or reported when it has ended.
        """
        if self._fed_ns - candidate.start_ns >= _YOUNG_NS or not _is_open(candidate):
            return False
        return bool(self.known.history.complete_saves(candidate.job, large_file_shapes(candidate)))

    def _is_quiet(self, candidate: Candidate, known: _Forecast) -> bool:
        """Return whether it seems to have ended; until then it grows, and its last forecast is valid for a while."""
        return self._fed_ns - candidate.end_ns >= known.pause_ns and not _is_open(candidate)

    @property
    def underway(self) -> list[Checkpoint]:
        """The open saves and restores in the last result of `pending`, as far as they are certain."""
        found = filter(None, (one.pending for one in self._forecasts.values()))
        return [one.checkpoint for one in found if one.if_alone is None]

    def _ongoing(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        ended = (
            one for one in candidates if self._gatherer.next_step(one, self._far_future_ns) is not NextStep.ENDLESS
        )
        wholes = map(self._gatherer.without_open_parts, ended)
        found = [whole for whole in wholes if whole.parts and whole.bytes >= SIGNIFICANT_BYTES]
        return sorted(found, key=lambda one: one.bytes, reverse=True)

    def _evaluate(
        self, now_ns: int, *, goes_on: bool = False, hurried: Callable[[], bool] = lambda: False
    ) -> list[Checkpoint]:
        self._evaluated_ns, waiting_before = now_ns, len(self._transfers.waiting)
        self._transfers.update(now_ns)
        waiting, done = len(self._transfers.waiting), list[Checkpoint]()
        self._grown_ns = now_ns if waiting > waiting_before else self._grown_ns
        pause_ns = min(waiting * _EVALUATE_NS // MAX_PER_ITEM, QUIET_NS)
        # while files arrive their event has not ended; one of another job is classified so much later
        is_growing = now_ns - self._grown_ns < QUIET_NS and now_ns - self._classified_ns < pause_ns
        is_due = 0 < self._due_ns <= now_ns or self._world.recording_end_ns is not None
        if waiting and (is_due or not is_growing):
            self._classified_ns = now_ns
            done += self._classify_waiting(now_ns, hurried)
        done += self._classify_sent(now_ns)
        done += self._recogniser.release_expired(now_ns, goes_on=goes_on)
        self._forget_old(now_ns)
        self._budget.shrink_after_burst()
        return done

    def _classify_waiting(self, now_ns: int, hurried: Callable[[], bool]) -> list[Checkpoint]:
        waiting, measurable = self._transfers.estimates.await_sizes(self._transfers.waiting, now_ns)
        self._due_ns, done = 0, list[Checkpoint]()
        for candidate in self._gatherer.gather(measurable, self._transfers.still_open()):
            step = NextStep.WAITS if hurried() else self._gatherer.next_step(candidate, now_ns)
            if step is NextStep.WAITS or (step is NextStep.ENDED and self._is_unfinished(candidate, now_ns)):
                waiting.extend(candidate.ended_transfers())
                if len(candidate.parts) >= MANY_PARTS and candidate.due_ns > now_ns:
                    self._due_ns = min(self._due_ns or candidate.due_ns, candidate.due_ns)
                continue
            settled = self._gatherer.without_open_parts(candidate)
            if step is NextStep.ENDLESS:
                self._recogniser.dismiss(settled)
            else:
                done.extend(self._recogniser.classify(settled))
            _mark_classified(candidate)
            if any(_key_of(candidate, part) in self._forecasts for part in candidate.parts):
                self._reuse_until_ns = self._good_until_ns = 0  # it needs no forecast any more
        self._transfers.waiting = waiting
        return sorted(done, key=lambda checkpoint: checkpoint.start_ns)

    def _classify_sent(self, now_ns: int) -> list[Checkpoint]:
        """Classify network transfers after their end."""
        done: list[Checkpoint] = []
        for job, parts in self._transfers.sent.take_ended(now_ns, QUIET_NS):
            candidate = Candidate(job, writes=parts[0].writes, patience_ns=QUIET_NS)
            for part in parts:
                candidate.add(part)
            done += self._recogniser.classify(candidate)
            _mark_classified(candidate)
        return done

    def _is_unfinished(self, candidate: Candidate, now_ns: int) -> bool:
        """Return True while a writer hangs, or closes its file."""
        return self._is_hung(candidate) or self._is_closing(candidate, now_ns)

    def _is_hung(self, candidate: Candidate) -> bool:
        """Return True while a writer hangs, and for a while after it goes on."""
        if self._world.recording_end_ns is not None:
            return False
        open_keys = [_key_of(candidate, part) for part in candidate.parts if part.closed_ns is None]
        if open_keys and find_hang(candidate, self.known) is not None:
            self._hung.update(dict.fromkeys(open_keys[:FEW], self._fed_ns))
        return any(self._fed_ns - self._hung.get(key, -PATIENCE_NS) < PATIENCE_NS for key in open_keys)

    def _is_closing(self, candidate: Candidate, now_ns: int) -> bool:
        """Return True while a close(2) at its end still sends data to its server, or a sync still waits for that."""
        if not candidate.writes or now_ns - candidate.end_ns > LONGEST_CLOSING_NS:
            return False
        since_ns = now_ns - 2 * _EVALUATE_NS  # a thread sampled there so recently may still be there
        ends = itertools.product(candidate.processes, ("close", "sync"))
        return any(self._world.threads.was_last_in(process, word, since_ns) for process, word in ends)

    def _forget_old(self, now_ns: int) -> None:
        if now_ns - self._forgotten_ns < _KEEP_NS // 20:
            return
        self._forgotten_ns = now_ns
        keep_from_ns = min(now_ns - _KEEP_NS, self._transfers.oldest_ns(now_ns))
        counted_since_ns = self._world.forget_before(keep_from_ns, self._transfers.in_use())
        self._transfers.forget_before(keep_from_ns, counted_since_ns)
        self._budget.shrink_to_limit()


def _mark_classified(candidate: Candidate) -> None:
    """Mark the transfers of a classified candidate: later activity starts new ones."""
    for transfer in candidate.ended_transfers():
        transfer.mark_classified()


def _key_of(candidate: Candidate, first: Transfer | None = None) -> Hashable:
    first = first or candidate.parts[0]
    return candidate.job, candidate.writes, first.path, first.first_ns


def _longest_pause_ns(candidate: Candidate) -> int:
    spans = merged((part.start_ns, part.end_ns) for part in candidate.parts)
    return max((after[0] - before[1] for before, after in itertools.pairwise(spans)), default=0)


def _is_open(candidate: Candidate) -> bool:
    return any(part.phase is Phase.OPEN for part in candidate.parts)


def _fingerprint(candidate: Candidate) -> Hashable:
    """Return a value that changes with anything known of a candidate.

    Edges count in milliseconds: those from the wall clock move by microseconds while that is slewed.
    """
    facts_hash = sum(map(_fact_hash, candidate.parts))
    edges = candidate.start_ns * MS // NS, candidate.end_ns * MS // NS
    size = candidate.bytes, len(candidate.parts)
    return candidate.job, candidate.writes, candidate.parts[0].path, edges, size, candidate.committed_ns, facts_hash


def _fact_hash(part: Transfer) -> int:
    fact = part.fact
    stamps = fact and (fact.size, fact.modified_ns, fact.changed_ns, fact.unwritten_bytes == 0)
    is_after = part.fact_at_ns - part.active_ns >= COUNTER_LAG_NS
    contents = fact and (fact.is_complete, fact.magic)
    return hash((part.path, part.closed_ns is None, part.durable_ns, stamps, contents, is_after))
