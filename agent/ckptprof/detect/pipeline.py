"""From frames to checkpoints: a pure function of the samples, the same live and on replay."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ckptprof.detect.budget import Budget, kinds_of
from ckptprof.detect.describe.completeness import kinds
from ckptprof.detect.describe.revisions import Revisions
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.deferred import Pending
from ckptprof.detect.events.gathering import MANY_PARTS, Gatherer, Turn
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.waits import LONGEST_CLOSING_NS
from ckptprof.detect.recognition import Judged, Recogniser
from ckptprof.detect.tolerances import CALLS_NS, FEW, MAX_EACH, PATIENCE_NS, TELLING_BYTES
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfers import QUIET_NS, Transfers
from ckptprof.detect.world.world import World
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof_collectors.samples import Frame

_EVALUATE_NS = 500_000_000
_KEEP_NS = 120_000_000_000  # of counters, while nothing older is waiting
_MOMENT_NS = 1_000_000  # edges that move by less are where they were
_FORESEEN_SHARE = 8  # what goes on is foreseen again once an eighth of its age has passed: a long save costs no more
_FORESEEN_NS = PATIENCE_NS // 4  # but then: what goes on after a kill is joined to what was foreseen before it
_YOUNG_NS = 1_000_000_000  # many saves are over by then, and foreseen once they are
_REST_NS = 1_000_000_000  # for each so many parts nothing is foreseen again: they take a twentieth of that
_REST_PARTS = 1_000


class _Foreseen(NamedTuple):
    """The forecast of something that goes on."""

    sign: Hashable  # by which that was told
    due_ns: int  # until then it is good enough, as long as a file of it is open
    rest_ns: int  # until then in any case, for it has many parts
    told: Pending | None


class Detector:
    """Ingests frames in order; returns checkpoints once they have ended, and again when more is known."""

    def __init__(self, header: Header, *, saved_paths: tuple[str, ...] = (), before: Detector | None = None) -> None:
        """Start a recording; `saved_paths` are files and folders that were saved before it.

        `before` recorded the same boot of this host until a moment ago: its knowledge of jobs is carried over.
        """
        self._world = World(header)
        self._transfers = Transfers(self._world, saved_paths)
        self.known = Knowledge(self._world, self._transfers)
        if before is not None:
            self.known = Knowledge(self._world, self._transfers, before.known.past, before.known.deferred)
            self._transfers.saved.update(before.known.transfers.saved)
        self._revisions = Revisions(self.known)
        self._gatherer = Gatherer(self._world, self._transfers)
        self._recogniser = Recogniser(self.known, self._revisions)
        self._budget = Budget(kinds_of(self.known))
        self._foreseen: dict[Hashable, _Foreseen] = {}
        self._written: dict[int, Transfer] = {}  # by identity, what was being written when that was foreseen
        self._good_until_ns = 0  # if nothing else is written, and nothing is over
        self._rest_until_ns = 0  # unless something of it is over
        self._left_out: set[Hashable] = set()  # of what goes on, as of the last time
        self.left_out_events = 0  # which `pending` had no room for the last time, and not yet the time before
        self._evaluated_ns = 0
        self._fed_ns = header.at_ns
        self._forgotten_ns = 0

    @property
    def judged(self) -> deque[Judged]:
        """The last decisions."""
        return self._recogniser.judged

    @property
    def rejected(self) -> list[Judged]:
        """Those of them that recognised nothing."""
        return [judged for judged in self.judged if judged.is_rejected]

    @property
    def active(self) -> bool:
        """Whether something is going on that may become a checkpoint."""
        return self._transfers.active

    @property
    def kept_bytes(self) -> int:
        """About how many bytes it retains of its input."""
        return self._budget.kept_bytes

    @property
    def forgotten_bytes(self) -> int:
        """How many of them were dropped before their time, to stay in its budget."""
        return self._budget.forgotten_bytes

    def feed(self, frame: Frame) -> list[Checkpoint]:
        """Ingest one frame; return the checkpoints that end with it, and revisions of earlier ones."""
        self._fed_ns = frame.at_ns
        for process in self._world.drop_stalest():
            self._transfers.polled.end(process, frame.at_ns)  # no process looks at it any more
        samples = self._world.take(frame)
        self._transfers.take(samples, frame.at_ns)
        self.known.past.take(samples, self._world.jobs)
        self._revisions.take(samples)
        self._recogniser.take(samples)
        self._world.end(samples)
        waiting = len(self._transfers.waiting)
        # many that wait are looked at less often, by one turn for each so many
        crowded = 0 if self._transfers.facts.is_pressing else min(waiting // MANY_PARTS, FEW)
        if frame.at_ns - self._evaluated_ns < _EVALUATE_NS * (1 + crowded):
            return []
        return self._revisions.follow(self._evaluate(frame.at_ns), frame.at_ns)

    def adopt(self, left: Sequence[Pending]) -> list[Checkpoint]:
        """Adopt the pending events of the previous session; return the certain ones, the rest stay pending."""
        return self._recogniser.adopt(left)

    def finish(self) -> list[Checkpoint]:
        """Decide everything that is left: the recording has ended, and every wait with it."""
        return self._end(goes_on=False)

    def pause(self, hurried: Callable[[], bool] = lambda: False) -> list[Checkpoint]:
        """Decide what is open: the recording has ended, and the next one gets the rest through `pending`.

        Events not decided when `hurried` returns True are pending there, too.
        """
        return self._end(goes_on=True, hurried=hurried)

    def _end(self, *, goes_on: bool, hurried: Callable[[], bool] = lambda: False) -> list[Checkpoint]:
        self._world.over_ns = self._fed_ns
        return self._revisions.follow(self._evaluate(self._end_ns, goes_on=goes_on, hurried=hurried), None)

    @property
    def _end_ns(self) -> int:
        """A time after every wait."""
        return self._world.counted_ns + 1_000_000_000_000

    def pending(self, hurried: Callable[[], bool] = lambda: False, *, closely: bool = True) -> list[Pending]:
        """Return deferred events, and what would be reported of open ones if the recording ended now.

        Nothing changes by that. Of open events, the largest ones; once `hurried` returns True only earlier forecasts,
        unchanged. The others are counted. Not `closely`: a forecast of files still being written may be an eighth of
        its age old, 15 s at most; a job that saved before has none in its first second. Until the recording ends any
        forecast may be one second old for each thousand of its files.
        """
        is_over = self._world.over_ns is not None
        writing = [one for one in self._transfers.still_open() if one.writes]
        rests = self._fed_ns < self._rest_until_ns and not is_over
        if rests or (not closely and self._is_as_before(writing)):
            self.left_out_events = 0
            return self._untold()
        foreseen: dict[Hashable, _Foreseen] = {}
        left_out: set[Hashable] = set()
        good_until_ns = 0
        if self.active:
            over_ns, self._world.over_ns = self._world.over_ns, self._fed_ns
            candidates = self._gatherer.gather_as_over([*self._transfers.waiting, *writing])
            going_on = [one for one in self._going_on(candidates) if closely or not self._is_young(one)]
            names = {_name(candidate): candidate for candidate in going_on[:MAX_EACH]}
            for name in sorted(names, key=self._foreseen.__contains__):  # what was not foreseen yet comes first
                candidate, known = names[name], self._foreseen.get(name)
                sign = _sign(candidate)
                is_due = known is None or closely or self._fed_ns >= known.due_ns or not _is_open(candidate)
                rests = known is not None and self._fed_ns < known.rest_ns and not is_over
                if known is not None and (known.sign == sign or not is_due or rests or hurried()):
                    foreseen[name] = known
                elif not hurried():
                    age_ns = self._fed_ns - candidate.start_ns
                    due_ns = self._fed_ns + min(age_ns // _FORESEEN_SHARE, _FORESEEN_NS)
                    rest_ns = self._fed_ns + _rest_ns(len(candidate.parts))
                    foreseen[name] = _Foreseen(sign, due_ns, rest_ns, self._recogniser.foresee(candidate))
            self._world.over_ns = over_ns
            left_out.update(name for candidate in going_on if (name := _name(candidate)) not in foreseen)
            if len(foreseen) == len(candidates):
                good_until_ns = min((one.due_ns for one in foreseen.values()), default=0)
            parts = sum(len(candidate.parts) for candidate in candidates)
            self._rest_until_ns = 0 if left_out else self._fed_ns + _rest_ns(parts)
        self._foreseen = foreseen
        self._written, self._good_until_ns = {id(one): one for one in writing}, good_until_ns
        self._left_out, self.left_out_events = left_out, len(left_out - self._left_out)
        return self._untold()

    def _is_as_before(self, writing: Sequence[Transfer]) -> bool:
        if self._fed_ns >= self._good_until_ns or self._transfers.waiting:
            return False
        return self._written.keys() == set(map(id, writing))

    def _untold(self) -> list[Pending]:
        return [*self.known.deferred.held, *(one.told for one in self._foreseen.values() if one.told is not None)]

    def _is_young(self, candidate: Candidate) -> bool:
        """Return whether a job that saves repeatedly started a save a moment ago, with a file still open.

        The forecast follows when it has ended.
        """
        if self._fed_ns - candidate.start_ns >= _YOUNG_NS or not _is_open(candidate):
            return False
        return bool(self.known.past.complete(candidate.job, kinds(candidate)))

    @property
    def underway(self) -> list[Checkpoint]:
        """The open saves and restores in the last result of `pending`, as far as they are certain."""
        found = (one.told for one in self._foreseen.values() if one.told is not None)
        return [one.checkpoint for one in found if one.if_alone is None]

    @property
    def writing(self) -> frozenset[int]:
        """The pids of the processes with a file open for writing."""
        return frozenset(one.process[0] for one in self._transfers.still_open() if one.writes)

    def _going_on(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        ended = (one for one in candidates if self._gatherer.turn(one, self._end_ns) is not Turn.ENDLESS)
        wholes = map(self._gatherer.settled, ended)
        found = [whole for whole in wholes if whole.parts and whole.bytes >= TELLING_BYTES]
        return sorted(found, key=lambda one: one.bytes, reverse=True)

    def _evaluate(
        self, now_ns: int, *, goes_on: bool = False, hurried: Callable[[], bool] = lambda: False
    ) -> list[Checkpoint]:
        self._evaluated_ns = now_ns
        self._transfers.update(now_ns)
        done = self._judge(now_ns, hurried) if self._transfers.waiting else []
        done += self._judge_sent(now_ns)
        done += self._recogniser.settle(now_ns, goes_on=goes_on)
        self._forget(now_ns)
        return done

    def _judge(self, now_ns: int, hurried: Callable[[], bool]) -> list[Checkpoint]:
        waiting, sized = self._transfers.estimates.await_sizes(self._transfers.waiting, now_ns)
        done: list[Checkpoint] = []
        for candidate in self._gatherer.gather(sized, self._transfers.still_open()):
            turn = Turn.WAITS if hurried() else self._gatherer.turn(candidate, now_ns)
            if turn is Turn.WAITS or (turn is Turn.OVER and self._is_closing(candidate, now_ns)):
                waiting.extend(candidate.over())
                continue
            whole = self._gatherer.settled(candidate)
            if turn is Turn.ENDLESS:
                self._recogniser.dismiss(whole)
            else:
                done.extend(self._recogniser.judge(whole))
            _close(candidate)
            if any(_name_of(candidate, part) in self._foreseen for part in candidate.parts):
                self._rest_until_ns = 0  # it is no longer to be foreseen
        self._transfers.waiting = waiting
        return sorted(done, key=lambda checkpoint: checkpoint.start_ns)

    def _judge_sent(self, now_ns: int) -> list[Checkpoint]:
        """Decide what went over the network, once nothing more comes."""
        done: list[Checkpoint] = []
        for job, parts in self._transfers.sent.over(now_ns, QUIET_NS):
            candidate = Candidate(job, writes=parts[0].writes, patience_ns=QUIET_NS)
            for part in parts:
                candidate.add(part)
            done += self._recogniser.judge(candidate)
            _close(candidate)
        return done

    def _is_closing(self, candidate: Candidate, now_ns: int) -> bool:
        """Return whether the close(2) at its end still sends data to its server, or a sync still waits for it."""
        if not candidate.writes or now_ns - candidate.end_ns > LONGEST_CLOSING_NS:
            return False
        since_ns = now_ns - 2 * _EVALUATE_NS  # who was met in it so lately may still be in it
        ends = itertools.product(candidate.processes, ("close", "sync"))
        return any(self._world.threads.is_in(process, word, since_ns) for process, word in ends)

    def _forget(self, now_ns: int) -> None:
        if now_ns - self._forgotten_ns < _KEEP_NS // 20:
            return
        self._forgotten_ns = now_ns
        keep_from_ns = min(now_ns - _KEEP_NS, self._transfers.oldest_ns(now_ns))
        counted_since_ns = self._world.forget_before(keep_from_ns, self._transfers.in_use())
        self._transfers.forget_before(keep_from_ns, counted_since_ns)
        self._budget.keep()


def _close(candidate: Candidate) -> None:
    """Mark the transfers of a decided candidate: later activity starts new ones."""
    for transfer in candidate.over():
        transfer.judged()


def _rest_ns(parts: int) -> int:
    return parts // _REST_PARTS * _REST_NS


def _name(candidate: Candidate) -> Hashable:
    return _name_of(candidate, candidate.parts[0])


def _name_of(candidate: Candidate, first: Transfer) -> Hashable:
    return candidate.job, candidate.writes, first.path, first.first_ns


def _is_open(candidate: Candidate) -> bool:
    return any(part.phase is Phase.OPEN for part in candidate.parts)


def _sign(candidate: Candidate) -> Hashable:
    """Return a value that changes with anything known of a candidate.

    Edges from the wall clock move by microseconds while that is slewed.
    """
    learnt = sum(map(_learnt_of, candidate.parts))
    edges = candidate.start_ns // _MOMENT_NS, candidate.end_ns // _MOMENT_NS
    size = candidate.bytes, len(candidate.parts)
    return candidate.job, candidate.writes, candidate.parts[0].path, edges, size, candidate.committed_ns, learnt


def _learnt_of(part: Transfer) -> int:
    fact = part.fact
    told = fact and (fact.size, fact.modified_ns, fact.changed_ns, fact.unwritten_bytes == 0, fact.whole, fact.magic)
    is_after = part.fact_at_ns - part.active_ns >= CALLS_NS
    return hash((part.path, part.closed_ns is None, part.durable_ns, told, is_after))
