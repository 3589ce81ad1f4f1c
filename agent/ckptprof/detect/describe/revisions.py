"""What becomes known of a save after it was told: when it was durable, and when old ones were deleted for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from ckptprof.detect.describe.blind import not_yet_durable
from ckptprof.detect.describe.clean_up import Clearing, clearing_after, paths_of
from ckptprof.detect.describe.durability import FileEnd, durability, durable_evidence, ends_of
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.life import CLEAN_UP_NS, FOLLOWED_NS, SETTLED_NS, State, Trigger, after, is_followed
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.frameworks.names import shape
from ckptprof.measures import Measures
from ckptprof.model import Checkpoint, Kind, Mode

MAX_AWAITED = 64
MAX_NOTED = 128
MAX_NOTED_FILES = 16_384  # of all of them together
MAX_ENDS = 1024  # of one save, the largest files


@dataclass(slots=True)
class _Awaited:
    checkpoint: Checkpoint
    blind: tuple[str, ...]  # without what is said of when it was durable
    start_ns: int  # CLOCK_MONOTONIC, as is the next
    end_ns: int
    offset_ns: int  # from there to the wall clock, as it was when the save was told
    ends: tuple[FileEnd, ...]
    whole: bool  # whether `ends` has all its files
    shapes: frozenset[str]
    paths: frozenset[str]
    processes: tuple[ProcessKey, ...]
    durable: bool
    lost: bool = False  # a file of it was deleted again: it will never be durable
    seen: tuple[int, int] = (-1, -1)  # versions of the books, when it was last held against them
    cleaned_ns: int | None = None  # CLOCK_MONOTONIC, as told
    state: State = State.REPORTED


class Revisions:
    """Keeps the saves that were told, bounded in number and time, and what is learnt of their files."""

    def __init__(self, known: Knowledge) -> None:
        """Start with nothing."""
        self._known = known
        self._noted: dict[str, _Awaited] = {}  # held, or about to be told
        self._awaited: dict[str, _Awaited] = {}

    def take(self, samples: FrameSamples) -> None:
        """Take what a frame tells of files that are gone."""
        for fact in samples.facts:
            if fact.missing:
                self._lose(fact.path)
        for event in samples.lives:
            if event.kind == "unlinked" and event.path is not None:
                self._lose(event.path)

    def _lose(self, path: str) -> None:
        for awaited in self._awaited.values():
            awaited.lost = awaited.lost or path in awaited.paths

    def note(self, candidate: Candidate, checkpoint: Checkpoint, blind: tuple[str, ...]) -> None:
        """Remember the files of a save that is about to be told, or held; `blind` lacks the sentence on durability."""
        if checkpoint.kind is not Kind.SAVE:
            return
        if checkpoint.mode is not Mode.ASYNC:
            self._known.past.note_blocked(checkpoint.uid, checkpoint.job, candidate.end_ns, candidate.end_ns)
        ends = ends_of(candidate, self._known.world.clock)
        files = sum(len(noted.paths) for noted in self._noted.values())
        while self._noted and (len(self._noted) >= MAX_NOTED or files > MAX_NOTED_FILES):
            files -= len(self._noted.pop(next(iter(self._noted))).paths)
        self._noted[checkpoint.uid] = _Awaited(
            checkpoint, blind, candidate.start_ns, candidate.end_ns, self._known.world.clock.offset_ns,
            ends=ends[:MAX_ENDS], whole=len(ends) <= MAX_ENDS, shapes=_shapes(candidate), paths=paths_of(candidate),
            processes=tuple(candidate.processes), durable=checkpoint.durable_ns is not None,
        )  # fmt: skip

    def follow(self, told: list[Checkpoint], now_ns: int) -> list[Checkpoint]:
        """Take what is told now; return it with the revisions of what was told before."""
        self._keep(told)
        new = {checkpoint.uid: checkpoint for checkpoint in told}
        revised = []
        for uid, awaited in list(self._awaited.items()):
            found = self._revision(awaited, now_ns)
            if found is not None and uid in new:  # known before it was told: told at once
                found = awaited.checkpoint = msgspec.structs.replace(found, revision=new[uid].revision)
                new[uid] = found
            elif found is not None:
                revised.append(found)
            if is_followed(now_ns - awaited.end_ns, durable=awaited.durable):
                awaited.state = after(awaited.state, Trigger.FOLLOWED)
                del self._awaited[uid]
        self._known.transfers.writeback.forget_before(now_ns - FOLLOWED_NS)
        self._known.transfers.removals.forget_before(now_ns - FOLLOWED_NS)
        return [*new.values(), *revised]

    def finish(self, told: list[Checkpoint]) -> list[Checkpoint]:
        """Take what is told last; return it, and the last revisions of all: the recording is over."""
        self._keep(told)
        new = {checkpoint.uid: checkpoint for checkpoint in told}
        last = []
        for uid, awaited in self._awaited.items():
            before = awaited.checkpoint
            now = self._undecided(awaited, self._revision(awaited, None) or before)
            if uid in new:
                new[uid] = msgspec.structs.replace(now, revision=new[uid].revision)
            elif now is not before:
                last.append(msgspec.structs.replace(now, revision=before.revision + 1))
        self._awaited.clear()
        return [*new.values(), *last]

    def _keep(self, told: Iterable[Checkpoint]) -> None:
        for checkpoint in told:
            awaited = self._noted.pop(checkpoint.uid, None)
            if awaited is None or checkpoint.kind is not Kind.SAVE:
                continue
            awaited.checkpoint = checkpoint
            self._awaited.pop(checkpoint.uid, None)
            files = sum(len(one.paths) for one in self._awaited.values())
            while self._awaited and (len(self._awaited) >= MAX_AWAITED or files > MAX_NOTED_FILES):
                files -= len(self._awaited.pop(next(iter(self._awaited))).paths)
            self._awaited[checkpoint.uid] = awaited

    def _revision(self, awaited: _Awaited, now_ns: int | None) -> Checkpoint | None:
        """Return the checkpoint with what is new of it, if anything is; `now_ns` None: there is no later."""
        versions = (self._known.transfers.writeback.version, self._known.transfers.removals.version)
        if versions == awaited.seen:
            return None
        before = awaited.checkpoint
        now = before if awaited.durable else self._durable(awaited)
        now, settled = self._cleaned_up(awaited, now, now_ns)
        if settled:
            awaited.seen = versions
        if now is before:
            return None
        awaited.checkpoint = msgspec.structs.replace(now, revision=before.revision + 1)
        awaited.state = after(awaited.state, Trigger.REVISED)
        return awaited.checkpoint

    def _durable(self, awaited: _Awaited) -> Checkpoint:
        found = durability(awaited.ends, self._known.transfers.writeback)
        if found.at_ns is None or not awaited.whole:
            return awaited.checkpoint
        awaited.durable = True
        return msgspec.structs.replace(
            awaited.checkpoint,
            durable_ns=found.at_ns + awaited.offset_ns,
            blind=awaited.blind,
            evidence=(*awaited.checkpoint.evidence, *durable_evidence(found)),
        )

    def _cleaned_up(self, awaited: _Awaited, checkpoint: Checkpoint, now_ns: int | None) -> tuple[Checkpoint, bool]:
        """Return it with its clean-up, and whether no more of that is just going on."""
        row = self._row(awaited)
        cleaned_ns = max(filter(None, (self._cleaned_ns(awaited), row.end_ns if row else None)), default=None)
        if cleaned_ns is None or cleaned_ns == awaited.cleaned_ns:
            return checkpoint, now_ns is None or now_ns - awaited.end_ns >= SETTLED_NS
        if now_ns is not None and now_ns - cleaned_ns < SETTLED_NS:
            return checkpoint, False
        awaited.cleaned_ns = cleaned_ns
        moments = msgspec.structs.replace(checkpoint.moments, cleaned_ns=cleaned_ns + awaited.offset_ns)
        checkpoint = msgspec.structs.replace(checkpoint, moments=moments)
        if checkpoint.measures is None or cleaned_ns <= awaited.end_ns:
            return checkpoint, True
        return self._measured(awaited, checkpoint, row, cleaned_ns), True

    def _measured(self, awaited: _Awaited, checkpoint: Checkpoint, row: Clearing | None, cleaned_ns: int) -> Checkpoint:
        """Return it with what its clean-up took."""
        until_ns = min(cleaned_ns + SETTLED_NS, self._next_ns(awaited))
        after_ns = row.end_ns - row.start_ns if row is not None else None
        if row is not None:
            self._known.past.note_blocked(checkpoint.uid, checkpoint.job, awaited.end_ns, row.end_ns)
        files, spent_ns = None, after_ns
        if row is None or row.files is not None:
            files, spent_ns = self._known.transfers.removals.spent(
                awaited.paths, awaited.start_ns, until_ns, awaited.processes
            )
        known = checkpoint.measures or Measures()
        measures = msgspec.structs.replace(
            known, clean_up_files=files, clean_up_ns=spent_ns,
            clean_up_after_ns=after_ns if after_ns is not None else known.clean_up_after_ns,
        )  # fmt: skip
        stall_ns = checkpoint.stall_ns
        if after_ns is not None and stall_ns is not None:
            stall_ns = max(stall_ns, checkpoint.end_ns - checkpoint.start_ns + after_ns)
        return msgspec.structs.replace(checkpoint, measures=measures, stall_ns=stall_ns)

    def _row(self, awaited: _Awaited) -> Clearing | None:
        """Return the deletion that held training right after the save; beside it, nothing was held by it."""
        if awaited.checkpoint.mode is Mode.ASYNC or awaited.checkpoint.measures is None:
            return None
        until_ns = min(awaited.end_ns + CLEAN_UP_NS, self._next_ns(awaited))
        return clearing_after(self._known.world.host, awaited.processes, awaited.end_ns, until_ns)

    def _undecided(self, awaited: _Awaited, checkpoint: Checkpoint) -> Checkpoint:
        """Say of a save that is not yet durable that it is not."""
        if awaited.durable or awaited.lost:
            return checkpoint
        unwritten = durability(awaited.ends, self._known.transfers.writeback).unwritten_bytes
        if not unwritten:
            return checkpoint
        return msgspec.structs.replace(checkpoint, blind=(*awaited.blind, not_yet_durable(unwritten)))

    def _cleaned_ns(self, awaited: _Awaited) -> int | None:
        """Return when the last old file of its kind was deleted for it, which is before the next save of the kind."""

        def last_ns(until_ns: int) -> int | None:
            return self._known.transfers.removals.last_ns(
                awaited.shapes, awaited.paths, awaited.start_ns, until_ns, awaited.checkpoint.job
            )

        found_ns = last_ns(awaited.end_ns + CLEAN_UP_NS)
        if found_ns is None or found_ns <= awaited.end_ns:
            return found_ns
        return last_ns(min(found_ns, self._next_ns(awaited)))

    def _next_ns(self, awaited: _Awaited) -> int:
        """Return when its writers began to write the next of the kind; far away if they have not."""
        later = [
            stream.first_ns
            for process in awaited.processes
            for stream in self._known.transfers.counted_of(process)
            if stream.writes and stream.first_ns > awaited.end_ns and stream.path not in awaited.paths
            and shape(stream.path) in awaited.shapes
        ]  # fmt: skip
        return min(later, default=awaited.end_ns + CLEAN_UP_NS)


def _shapes(candidate: Candidate) -> frozenset[str]:
    return frozenset(shape(part.path) for part in candidate.parts)


def newest(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return each checkpoint once, as it was told last, in the place where it was told first."""
    found: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        known = found.get(checkpoint.uid)
        if known is None or known.revision <= checkpoint.revision:
            found[checkpoint.uid] = checkpoint
    return list(found.values())
