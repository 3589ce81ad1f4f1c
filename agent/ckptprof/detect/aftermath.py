"""What becomes known of a save after it was told: when it was durable, and when old ones were deleted for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from ckptprof.detect.blind import NOT_YET_DURABLE, UNSEEN_DURABLE
from ckptprof.detect.candidates import Candidate
from ckptprof.detect.edges import Clock
from ckptprof.detect.jobs import JobBook
from ckptprof.detect.removals import RemovalBook
from ckptprof.detect.writeback import Durability, FileEnd, WritebackBook, durability, ends_of
from ckptprof.frameworks.names import shape
from ckptprof.model import Checkpoint, Evidence, Kind
from ckptprof_collectors.samples import FileFact, FileLifeEvent

MAX_AWAITED = 64
MAX_NOTED = 128
MAX_ENDS = 1024  # of one save, the largest files
PATIENCE_NS = 150_000_000_000  # longer than the sampler asks
CLEAN_UP_NS = 30_000_000_000  # a deletion that comes later makes room for the next one
_SETTLED_NS = 1_500_000_000  # after the last deletion: they come in rows


@dataclass(slots=True)
class _Awaited:
    checkpoint: Checkpoint
    start_ns: int  # CLOCK_MONOTONIC, as is the next
    end_ns: int
    offset_ns: int  # from there to the wall clock, as it was when the save was told
    ends: tuple[FileEnd, ...]
    whole: bool  # whether `ends` has all its files
    shapes: frozenset[str]
    paths: frozenset[str]
    durable: bool
    seen: tuple[int, int] = (-1, -1)  # versions of the books, when it was last held against them
    cleaned_ns: int | None = None  # CLOCK_MONOTONIC, as told


class Aftermath:
    """Keeps the saves that were told, bounded in number and time, and what is learnt of their files."""

    def __init__(self, jobs: JobBook, clock: Clock) -> None:
        """Start with nothing."""
        self._jobs = jobs
        self._clock = clock
        self._writeback = WritebackBook()
        self._version = 0
        self.removals = RemovalBook()
        self._noted: dict[str, _Awaited] = {}
        self._awaited: dict[str, _Awaited] = {}

    def learn(self, at_ns: int, fact: FileFact) -> None:
        """Take one fact."""
        if self._writeback.learn(at_ns, fact):
            self._version += 1

    def happen(self, event: FileLifeEvent) -> None:
        """Take one event of a file's life."""
        self.removals.learn(event)

    def durability(self, candidate: Candidate) -> Durability:
        """Return what is known now of when a candidate's files were on stable storage."""
        return durability(ends_of(candidate, self._clock), self._writeback)

    def cleaned_ns(self, candidate: Candidate) -> int | None:
        """Return when the last old file of its kind was deleted, by now."""
        return self._cleaned(
            candidate.job, _shapes(candidate), _paths(candidate), candidate.start_ns, candidate.end_ns + CLEAN_UP_NS
        )

    def note(self, candidate: Candidate, checkpoint: Checkpoint) -> None:
        """Remember the files of a save that is about to be told, or held."""
        if checkpoint.kind is not Kind.SAVE:
            return
        ends = ends_of(candidate, self._clock)
        while len(self._noted) >= MAX_NOTED:
            del self._noted[next(iter(self._noted))]
        self._noted[checkpoint.uid] = _Awaited(
            checkpoint, candidate.start_ns, candidate.end_ns, self._clock.offset_ns, ends[:MAX_ENDS],
            whole=len(ends) <= MAX_ENDS, shapes=_shapes(candidate), paths=_paths(candidate),
            durable=checkpoint.durable_ns is not None, cleaned_ns=self.cleaned_ns(candidate),
        )  # fmt: skip

    def follow(self, told: list[Checkpoint], now_ns: int) -> list[Checkpoint]:
        """Take what is told now; return it with the revisions of what was told before."""
        self._keep(told)
        revised = []
        for uid, awaited in list(self._awaited.items()):
            found = self._revision(awaited, now_ns)
            if found is not None:
                revised.append(found)
            age_ns = now_ns - awaited.end_ns
            if age_ns > PATIENCE_NS or (awaited.durable and age_ns > CLEAN_UP_NS + _SETTLED_NS):
                del self._awaited[uid]
        self._writeback.forget_before(now_ns - PATIENCE_NS)
        self.removals.forget_before(now_ns - PATIENCE_NS)
        return [*told, *revised]

    def finish(self, told: list[Checkpoint]) -> list[Checkpoint]:
        """Take what is told last; return it, and the last revisions of all: the recording is over."""
        self._keep(told)
        new = {checkpoint.uid: checkpoint for checkpoint in told}
        last = []
        for uid, awaited in self._awaited.items():
            before = awaited.checkpoint
            after = self._undecided(awaited, self._revision(awaited, None) or before)
            if uid in new:
                new[uid] = msgspec.structs.replace(after, revision=new[uid].revision)
            elif after is not before:
                last.append(msgspec.structs.replace(after, revision=before.revision + 1))
        self._awaited.clear()
        return [*new.values(), *last]

    def _keep(self, told: Iterable[Checkpoint]) -> None:
        for checkpoint in told:
            awaited = self._noted.pop(checkpoint.uid, None)
            if awaited is None or checkpoint.kind is not Kind.SAVE:
                continue
            awaited.checkpoint = checkpoint
            self._awaited.pop(checkpoint.uid, None)
            while len(self._awaited) >= MAX_AWAITED:
                del self._awaited[next(iter(self._awaited))]
            self._awaited[checkpoint.uid] = awaited

    def _revision(self, awaited: _Awaited, now_ns: int | None) -> Checkpoint | None:
        """Return the checkpoint with what is new of it, if anything is; `now_ns` None: there is no later."""
        versions = (self._version, self.removals.version)
        if versions == awaited.seen:
            return None
        before = awaited.checkpoint
        after = before if awaited.durable else self._durable(awaited)
        after, settled = self._cleaned_up(awaited, after, now_ns)
        if settled:
            awaited.seen = versions
        if after is before:
            return None
        awaited.checkpoint = msgspec.structs.replace(after, revision=before.revision + 1)
        return awaited.checkpoint

    def _durable(self, awaited: _Awaited) -> Checkpoint:
        found = durability(awaited.ends, self._writeback)
        if found.at_ns is None or not awaited.whole:
            return awaited.checkpoint
        awaited.durable = True
        return msgspec.structs.replace(
            awaited.checkpoint,
            durable_ns=found.at_ns + awaited.offset_ns,
            blind=_without(awaited.checkpoint.blind),
            evidence=(*awaited.checkpoint.evidence, *durable_evidence(found)),
        )

    def _cleaned_up(self, awaited: _Awaited, checkpoint: Checkpoint, now_ns: int | None) -> tuple[Checkpoint, bool]:
        """Return it with its clean-up, and whether no more of that is just going on."""
        cleaned_ns = self._cleaned(
            checkpoint.job, awaited.shapes, awaited.paths, awaited.start_ns, awaited.end_ns + CLEAN_UP_NS
        )
        if cleaned_ns is None or cleaned_ns == awaited.cleaned_ns:
            return checkpoint, True
        if now_ns is not None and now_ns - cleaned_ns < _SETTLED_NS:
            return checkpoint, False
        awaited.cleaned_ns = cleaned_ns
        moments = msgspec.structs.replace(checkpoint.moments, cleaned_ns=cleaned_ns + awaited.offset_ns)
        return msgspec.structs.replace(checkpoint, moments=moments), True

    def _undecided(self, awaited: _Awaited, checkpoint: Checkpoint) -> Checkpoint:
        """Say of a save that is not yet durable that it is not."""
        if awaited.durable:
            return checkpoint
        unwritten = durability(awaited.ends, self._writeback).unwritten_bytes
        if not unwritten:
            return checkpoint
        sentence = f"{NOT_YET_DURABLE}: {unwritten} bytes of it were not yet written"
        return msgspec.structs.replace(checkpoint, blind=(*_without(checkpoint.blind), sentence))

    def _cleaned(
        self, job: str, shapes: frozenset[str], paths: frozenset[str], start_ns: int, end_ns: int
    ) -> int | None:
        return self.removals.last_ns(shapes, paths, start_ns, end_ns, lambda process: self._jobs.job_of(process) == job)


def durable_evidence(found: Durability) -> tuple[Evidence, ...]:
    """Return how exact the time is at which a save was durable, if it is not exact."""
    if found.exact or found.at_ns is None:
        return ()
    text = "its files were asked how much of them was unwritten: nothing was when this was first seen"
    if found.not_before_ns is not None:
        text = f"written back by the kernel: something was still unwritten {_seconds(found)} s before"
    return (Evidence(name="durable", weight=0.0, text=text),)


def _seconds(found: Durability) -> str:
    return f"{max(0, (found.at_ns or 0) - (found.not_before_ns or 0)) / 1e9:.1f}"


def _without(blind: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sentence for sentence in blind if not sentence.startswith((UNSEEN_DURABLE, NOT_YET_DURABLE)))


def _shapes(candidate: Candidate) -> frozenset[str]:
    return frozenset(shape(part.stream.path) for part in candidate.parts)


def _paths(candidate: Candidate) -> frozenset[str]:
    return frozenset(part.stream.path for part in candidate.parts)


def newest(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return each checkpoint once, as it was told last, in the place where it was told first."""
    found: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        known = found.get(checkpoint.uid)
        if known is None or known.revision <= checkpoint.revision:
            found[checkpoint.uid] = checkpoint
    return list(found.values())
