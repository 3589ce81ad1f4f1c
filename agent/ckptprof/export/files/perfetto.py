"""Checkpoints as a trace for https://ui.perfetto.dev: saves and restores, ranks, training and devices.

Each job is a process of the trace, and the host is one more. Slices of one track must nest or be disjoint: overlapping
ones go to another track of the same name, which the viewer merges. The trace uses BOOTTIME, and a clock snapshot sets
it equal to REALTIME, so that times are wall clock. Field numbers are those of protos/perfetto/trace in
https://github.com/google/perfetto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from ckptprof.export.files import protobuf as pb
from ckptprof.model import Checkpoint

MAX_EVENTS = 1_000_000
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering: by sibling_order_rank
_REALTIME, _BOOTTIME = 1, 6  # BuiltinClock
_BYTES = 3  # CounterDescriptor.Unit
_Fact = tuple[str, "str | int | float"]


class Rate(msgspec.Struct, frozen=True):
    """The rate of one device in one direction: ordered intervals with bytes per second."""

    name: str
    spans: Sequence[tuple[int, int, float]]  # start, end, rate


class Slice(msgspec.Struct, frozen=True):
    """A slice with nested slices."""

    name: str
    start_ns: int
    end_ns: int
    facts: tuple[_Fact, ...] = ()
    flow: int | None = None  # starts a flow
    inside: tuple[Slice, ...] = ()

    @property
    def events(self) -> int:
        """Number of events."""
        return 2 + sum(one.events for one in self.inside)


class PerfettoTrace:
    """Builds packets, with at most `most` events; further slices are omitted and counted."""

    def __init__(self, most: int = MAX_EVENTS) -> None:
        self.events = 0
        self.left_out = 0
        self._most = most
        self._tracks = 0

    def packets(self, checkpoints: Iterable[Checkpoint], rates: Iterable[Rate], host: str) -> Iterator[bytes]:
        """Yield the packets of the trace."""
        found = sorted(checkpoints, key=lambda one: (one.job, one.start_ns))
        yield _packet(pb.part(6, _clocks(min((one.start_ns for one in found), default=0))), cleared=True)
        for job, own in groupby(found, key=lambda one: one.job):
            yield from self._job(job, list(own))
        yield from self._host(host, rates)

    def _job(self, job: str, own: list[Checkpoint]) -> Iterator[bytes]:
        process, described = self._process(job)
        yield described
        yield from self._lanes(process, 1, "checkpoints", [_checkpoint_slice(one) for one in own])
        blocked = [Slice("blocked", two.start_ns, two.end_ns) for one in own for two in one.blocked]
        yield from self._lanes(process, 2, "training blocked", blocked)
        yield from self._durable(process, own)
        yield from self._lanes(process, 4, "at risk", [one for two in own for one in _at_risk(two)])
        ranks: dict[int, list[Slice]] = {}
        for one in own:
            for writer in one.writers:
                if writer.rank is not None and writer.start_ns is not None and writer.end_ns is not None:
                    facts: tuple[_Fact, ...] = (("pid", writer.pid), ("bytes", writer.bytes), ("name", writer.comm))
                    slice_ = Slice(_name(one), writer.start_ns, writer.end_ns, facts)
                    ranks.setdefault(writer.rank, []).append(slice_)
        for rank, slices in sorted(ranks.items()):
            yield from self._lanes(process, 5 + rank, f"rank {rank}", slices)

    def _host(self, host: str, rates: Iterable[Rate]) -> Iterator[bytes]:
        process, described = self._process(f"host {host}")
        yield described
        for order, rate in enumerate(rates):
            counter = pb.part(8, pb.whole(3, _BYTES) + pb.text(6, "bytes/s"))
            track, described = self._track(process, order, rate.name, counter)
            yield described
            yield from self._counted(track, rate)

    def _counted(self, track: int, rate: Rate) -> Iterator[bytes]:
        """Yield the counter values; a value lasts until the next, so each monitored stretch ends with zero."""
        until_ns = None
        for start_ns, end_ns, value in rate.spans:
            if self.events + 2 > self._most:
                self.left_out += 1
                continue
            if until_ns is not None and until_ns < start_ns:
                yield self._event(_COUNTER, track, until_ns, pb.double(44, 0.0))
            yield self._event(_COUNTER, track, start_ns, pb.double(44, value))
            until_ns = end_ns
        if until_ns is not None:
            yield self._event(_COUNTER, track, until_ns, pb.double(44, 0.0))

    def _lanes(self, process: int, order: int, name: str, slices: Iterable[Slice]) -> Iterator[bytes]:
        """Put each slice on the first track that is free at its start."""
        lanes: list[tuple[int, int]] = []  # the track, and when its last slice ends
        for one in sorted(slices, key=lambda two: (two.start_ns, -two.end_ns)):
            if self.events + one.events > self._most:
                self.left_out += 1
                continue
            free = next((place for place, (_, end_ns) in enumerate(lanes) if end_ns <= one.start_ns), None)
            if free is None:
                track, described = self._track(process, order, name)
                yield described
                free = len(lanes)
                lanes.append((track, 0))
            lanes[free] = (lanes[free][0], max(one.end_ns, one.start_ns))
            yield from self._slice(lanes[free][0], one)

    def _slice(self, track: int, one: Slice) -> Iterator[bytes]:
        about = pb.text(23, one.name) + b"".join(pb.part(4, _fact(*fact)) for fact in one.facts)
        if one.flow is not None:
            about += pb.fixed64(47, one.flow)
        yield self._event(_BEGIN, track, one.start_ns, about)
        for inner in one.inside:
            yield from self._slice(track, inner)
        yield self._event(_END, track, max(one.end_ns, one.start_ns))

    def _durable(self, process: int, own: Iterable[Checkpoint]) -> Iterator[bytes]:
        """Yield the times at which saves were on stable storage, the end of each flow."""
        moments = [(one.durable_ns, one) for one in own if one.durable_ns is not None]
        track = None
        for at_ns, one in sorted(moments, key=lambda two: two[0]):
            if self.events + 1 > self._most:
                self.left_out += 1
                continue
            if track is None:
                track, described = self._track(process, 3, "durable")
                yield described
            yield self._event(_INSTANT, track, at_ns, pb.text(23, f"durable: {_name(one)}") + pb.fixed64(48, one.id))

    def _process(self, name: str) -> tuple[int, bytes]:
        """Return a process with an artificial pid: real ones are reused, and the viewer takes 31 bits."""
        self._tracks += 1
        number = self._tracks
        about = pb.whole(1, number) + pb.part(3, pb.whole(1, number) + pb.text(6, name)) + pb.whole(11, _EXPLICIT)
        return number, _packet(pb.part(60, about))

    def _track(self, process: int, order: int, name: str, counter: bytes = b"") -> tuple[int, bytes]:
        self._tracks += 1
        about = pb.whole(1, self._tracks) + pb.text(2, name) + pb.whole(5, process) + counter + pb.whole(12, order)
        return self._tracks, _packet(pb.part(60, about))

    def _event(self, kind: int, track: int, at_ns: int, about: bytes = b"") -> bytes:
        self.events += 1
        return _packet(pb.whole(8, at_ns) + pb.part(11, pb.whole(9, kind) + pb.whole(11, track) + about))


def _packet(content: bytes, *, cleared: bool = False) -> bytes:
    """Return a packet of the single sequence; the first one has the flag for cleared state."""
    return pb.part(1, content + pb.whole(10, 1) + (pb.whole(13, 1) if cleared else b""))


def _clocks(at_ns: int) -> bytes:
    same = [pb.part(1, pb.whole(1, clock) + pb.whole(2, at_ns)) for clock in (_REALTIME, _BOOTTIME)]
    return b"".join(same) + pb.whole(2, _BOOTTIME)


def _fact(name: str, value: str | float) -> bytes:
    if isinstance(value, str):
        return pb.text(10, name) + pb.text(6, value)
    return pb.text(10, name) + (pb.whole(4, value) if isinstance(value, int) else pb.double(5, value))


def _name(one: Checkpoint) -> str:
    return one.kind.value if one.step is None else f"{one.kind.value} of step {one.step}"


def _checkpoint_slice(one: Checkpoint) -> Slice:
    facts: dict[str, str | int | float | None] = {
        "id": one.id, "uid": one.uid, "status": one.status.value, "path": one.path, "framework": one.framework,
        "mode": None if one.mode is None else one.mode.value, "bytes": one.bytes, "files": one.files,
        "pattern": None if one.pattern.class_ is None else one.pattern.class_.value, "level": one.level.value,
        "blocked_seconds": None if one.stall_ns is None else one.stall_ns / 1e9,
    }  # fmt: skip
    if one.verdict is not None:
        facts |= {"limit": one.verdict.limit.value, "confidence": one.verdict.confidence, "why": one.verdict.sentence}
        facts |= {f"seconds of {part.limit.value}": part.seconds for part in one.verdict.accounts if part.limit}
        facts["remedy"] = one.verdict.remedy
    known = tuple((name, value) for name, value in facts.items() if value is not None)
    flow = None if one.durable_ns is None else one.id
    return Slice(_name(one), one.start_ns, one.end_ns, known, flow, _phases(one))


def _phases(one: Checkpoint) -> tuple[Slice, ...]:
    """Return the phases: data transfer, and from its end to the commit."""
    first, last, committed = one.moments.first_data_ns, one.moments.last_data_ns, one.moments.committed_ns
    if first is None or last is None or not one.start_ns <= first <= last <= one.end_ns:
        return ()
    data = Slice("data", first, last)
    if committed is None or not last < committed <= one.end_ns:
        return (data,)
    return data, Slice("commit", last, committed)


def _at_risk(one: Checkpoint) -> tuple[Slice, ...]:
    if not one.at_risk_ns or one.durable_ns is None:
        return ()
    return (Slice("complete, not yet durable", one.durable_ns - one.at_risk_ns, one.durable_ns),)
