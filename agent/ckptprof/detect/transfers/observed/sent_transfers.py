"""What goes over TCP to where an object store may be, or comes from there: each stretch without a pause is a transfer.

That is a port of object stores on whatever host, and on this host any port that no process that trains serves, and no
database, broker or collector of logs is known by: who else may have another host's port, nobody knows.

Nothing is concluded here: signals say what speaks for a save or a restore, and what against it. A stretch is over when
nothing more of it was seen for as long as files are waited for; what the ranks of one job send at a time belongs
together, and so does what they receive.
What goes out to ask for much, and what comes back to say that much has come, is no part of either; but who sends
waits for the last answer, and has sent all of it then only.
Where the trace counts calls it tells of the same as the looks at the sockets, and exactly: its stretch is taken then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import (
    HEADER_BYTES,
    LITTLE_SHARE,
    MAX_PER_ITEM,
    MAX_POINTS,
    MOST_SHARE,
    SIGNIFICANT_BYTES,
)
from ckptprof.detect.transfers.model.movement import Movement, merge_movements
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.sending import OTHER_ADDRESSES, SENT_PREFIX, Sending
from ckptprof.detect.transfers.model.sent_transfer import SentTransfer
from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.counter_history import MAX_HISTORY_BYTES, CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.frameworks.places import OBJECT_STORE_PORTS, OTHER_SERVICE_PORTS
from ckptprof_collectors.samples import SocketTraffic, TcpSample

_MAX_SENDING_NS = 1_800_000_000_000  # what goes on for longer without a pause is no save, and is forgotten
_MAX_COUNTED_CONNECTIONS = 2048  # twice what the trace keeps: what is forgotten here would seem to begin anew at once
_Endpoint = tuple[ProcessKey, str, int, str]  # owner, remote address and port, local address
_ProcessAndPort = tuple[ProcessKey, int, bool]  # owner, remote port (0: any where no store is), whether it sends
_LETTERS = str.maketrans("0123456789", "abcdefghij")  # a series has one shape: numbers in it are all the same
_NO_FILE = (0, 0)
MOST_RANKS = 32  # on this host: of more processes the sampler does not see who has which socket


class _StretchKey(NamedTuple):
    """What tells one stretch from another that goes on at the same time."""

    process: ProcessKey
    port: int
    sends: bool  # or receives
    is_counted: bool  # by the trace, call by call


@dataclass(slots=True)
class _TransferStretch:
    """What one process sends to one port, or receives from it; it goes on."""

    before_ns: int  # the look before the first one that saw something of it; where calls are counted the first of them
    first_ns: int  # that look
    last_ns: int  # the last one
    endpoints: dict[tuple[str, int], int] = field(default_factory=dict)  # bytes by address and port
    sockets: dict[_Endpoint, int] = field(default_factory=dict)  # at most open at once
    early: list[Movement] = field(default_factory=list)  # what the first look found
    later: list[Movement] = field(default_factory=list)
    parts: int = 0
    parts_bytes: int = 0
    returned_bytes: int = 0
    answered_ns: int = 0  # when something came back last that is as little as answers to what is sent are

    def add(self, endpoint: _Endpoint, movement: Movement, sockets: int, at_ns: int) -> None:
        """Add what a look found to have moved since the look before."""
        if self.is_endless:
            self.last_ns = at_ns
            self.early, self.later = [], []  # nobody asks for them any more
            return
        place = endpoint[1], endpoint[2]
        if place not in self.endpoints and len(self.endpoints) >= MAX_PER_ITEM:
            place = OTHER_ADDRESSES, endpoint[2]
        if endpoint not in self.sockets and len(self.sockets) >= MAX_PER_ITEM:
            endpoint = endpoint[0], OTHER_ADDRESSES, endpoint[2], ""
        self.endpoints[place] = self.endpoints.get(place, 0) + movement.bytes
        self.sockets[endpoint] = max(self.sockets.get(endpoint, 0), sockets)
        (self.early if at_ns == self.first_ns else self.later).append(movement)
        if len(self.later) >= 2 * MAX_POINTS:
            self._merge_pairs()
        self.last_ns = at_ns

    def record_answer(self, received_bytes: int, at_ns: int) -> None:
        """Take note of what came back until then."""
        if 0 < received_bytes <= HEADER_BYTES:
            self.answered_ns = max(self.answered_ns, at_ns)

    def shrink(self, points: int) -> None:
        """Keep so many points of what followed the first look, or a few less: with all bytes, in longer pieces."""
        while len(self.later) > max(1, points):
            self._merge_pairs()

    def _merge_pairs(self) -> None:
        odd = self.later[len(self.later) // 2 * 2 :]
        self.later = [*(merge_movements(*pair) for pair in zip(self.later[::2], self.later[1::2], strict=False)), *odd]

    @property
    def bytes(self) -> int:
        """All that moved."""
        return sum(self.endpoints.values())

    @property
    def is_endless(self) -> bool:
        """Whether it goes on for longer than any save."""
        return self.last_ns - self.before_ns > _MAX_SENDING_NS

    def estimate_start_ns(self, end_ns: int) -> int:
        """Return when it began: what the first look found took as long as the same of what came after, or was busy."""
        start_ns = min(one.start_ns for one in self.early)
        after = sum(one.bytes for one in self.later)
        if after and end_ns > self.first_ns:
            duration_ns = sum(one.bytes for one in self.early) * (end_ns - self.first_ns) // after
            start_ns = min(start_ns, self.first_ns - duration_ns)
        return max(self.before_ns, start_ns)


@dataclass(slots=True)
class _CountedBytes:
    """What one frame tells that one process sent or received."""

    start_ns: int  # after the last silence of it
    bytes: int = 0

    def add(self, transferred: int, start_ns: int | None) -> None:
        """Add what went over one of its connections."""
        if transferred:
            self.bytes += transferred
            self.start_ns = min(self.start_ns, start_ns or self.start_ns)


# of one job in one direction: by process and port, looked at and counted
_StretchesByPort = dict[tuple[ProcessKey, int], dict[_StretchKey, _TransferStretch]]


class _SocketCounters(NamedTuple):
    """What the sockets of an endpoint had counted."""

    acked_bytes: int
    received_bytes: int
    busy_us: int


class SentTransfers:
    """Knows what processes that train are sending and receiving, and since when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._polled: Bounded[_Endpoint, _SocketCounters] = Bounded(MAX_ENTRIES)
        self._counted: Bounded[_Endpoint, SocketTraffic] = Bounded(_MAX_COUNTED_CONNECTIONS)
        self.transferred_bytes: CounterHistories[_ProcessAndPort] = CounterHistories(
            lambda: CounterHistory(1, max_bytes=MAX_HISTORY_BYTES >> 4)
        )
        self._open: Bounded[_StretchKey, _TransferStretch] = Bounded(MAX_ENTRIES)
        self._served_ports: Bounded[int, None] = Bounded(MAX_ENTRIES)  # ports at which processes that train are called
        self._called_ports: Bounded[tuple[ProcessKey, str, int], None] = Bounded(
            MAX_ENTRIES
        )  # at other ports of this host

    @property
    def counted_connections(self) -> int:
        """Of how many connections it is known what was counted last."""
        return len(self._counted)

    @property
    def point_count(self) -> int:
        """How many movements are kept of what goes on."""
        return sum(len(one.early) + len(one.later) for one in self._open.values())

    def shrink(self, share: float) -> None:
        """Keep a share of the points that there may be of each stretch."""
        for one in self._open.values():
            one.shrink(int(2 * share * MAX_POINTS))

    def ingest(self, samples: FrameSamples) -> None:
        """Take what a frame tells of connections."""
        before_ns, tcp_samples = samples.unchanged_ns("tcp"), samples.by_kind(TcpSample)
        for sample in tcp_samples:
            if sample.is_accepted and sample.pid is not None:
                self._served_ports[sample.port] = None
        for sample in tcp_samples:
            if sample.pid is None or sample.start_ticks is None or sample.is_accepted:
                continue
            process = sample.pid, sample.start_ticks
            if sample.port in OBJECT_STORE_PORTS or self._may_be_local_store(process, sample):
                self._ingest_sample(process, sample, before_ns, samples.at_ns)
        counted: dict[_ProcessAndPort, _CountedBytes] = {}
        for traffic in samples.by_kind(SocketTraffic):
            process = traffic.pid, traffic.start_ticks
            called = process, traffic.remote, traffic.port
            endpoint = process, traffic.remote, traffic.port, ""
            known = self._previous_counts(endpoint, traffic)
            self._counted[endpoint] = traffic
            is_store = traffic.port in OBJECT_STORE_PORTS or (
                called in self._called_ports and traffic.port not in self._served_ports
            )
            received = counted.setdefault(
                (process, traffic.port if is_store else 0, False), _CountedBytes(samples.at_ns)
            )
            received.add(traffic.received_bytes - known.received_bytes, traffic.receive_start_ns)
            if is_store:
                sent = counted.setdefault((process, traffic.port, True), _CountedBytes(samples.at_ns))
                sent.add(traffic.sent_bytes - known.sent_bytes, traffic.send_start_ns)
                self._ingest_counts(process, traffic, known, samples.at_ns)
        for place, transferred in counted.items():
            self._record_counted(place, transferred, samples.at_ns)

    def _may_be_local_store(self, process: ProcessKey, sample: TcpSample) -> bool:
        """Return whether an object store may be at a port of this host: nobody who trains is."""
        if sample.port in self._served_ports or sample.port in OTHER_SERVICE_PORTS:
            return False
        if sample.remote not in {sample.local, "::1"} and not sample.remote.startswith("127."):
            return False
        if len(self._world.jobs.local_living_ranks(process)) > MOST_RANKS:
            return False
        self._called_ports[process, sample.remote, sample.port] = None  # who opened a connection only looks tell
        return True

    def _ingest_sample(self, process: ProcessKey, sample: TcpSample, before_ns: int, at_ns: int) -> None:
        endpoint = process, sample.remote, sample.port, sample.local
        known = _SocketCounters(0, 0, 0) if sample.is_new and before_ns else self._polled.get(endpoint)
        now = self._polled[endpoint] = _SocketCounters(sample.bytes_acked, sample.bytes_received, sample.busy_us or 0)
        if known is None:
            return
        sent, received = now.acked_bytes - known.acked_bytes, now.received_bytes - known.received_bytes
        if sent > max(0, LITTLE_SHARE * received):
            until_ns = min(at_ns, max(before_ns, sample.sent_ns or at_ns))
            # several connections are busy at a time: each for as long as it took, if they share the work evenly
            busy_ns = max(0, now.busy_us - known.busy_us) * 1000 // max(1, sample.sockets)
            movement = Movement(max(before_ns, until_ns - max(busy_ns, 1)), until_ns, sent)
            stretch = self._stretch(_StretchKey(process, sample.port, sends=True, is_counted=False), before_ns, at_ns)
            stretch.add(endpoint, movement, sample.sockets, at_ns)
        sending = self._open.get(_StretchKey(process, sample.port, sends=True, is_counted=False))
        if sending is not None and sample.received_ns is not None:
            sending.record_answer(received, min(at_ns, sample.received_ns))
        if received > max(0, LITTLE_SHARE * sent):
            until_ns = min(at_ns, max(before_ns, sample.received_ns or at_ns))
            movement = Movement(until_ns - 1, until_ns, received)  # for how long it was busy nobody says
            stretch = self._stretch(_StretchKey(process, sample.port, sends=False, is_counted=False), before_ns, at_ns)
            stretch.add(endpoint, movement, sample.sockets, at_ns)

    def _previous_counts(self, endpoint: _Endpoint, traffic: SocketTraffic) -> SocketTraffic:
        """Return what was counted before; of one that is new, or gave way and begins anew, nothing."""
        known = self._counted.get(endpoint)
        if known is None or traffic.sent_bytes < known.sent_bytes or traffic.received_bytes < known.received_bytes:
            return msgspec.structs.replace(
                traffic, sent_bytes=0, received_bytes=0, parts=0, parts_bytes=0, answers=0, answers_bytes=0,
                sent_ns=None, received_ns=None,
            )  # fmt: skip
        return known

    def _record_counted(self, place: _ProcessAndPort, transferred: _CountedBytes, at_ns: int) -> None:
        history = self.transferred_bytes.touch(place)
        start_ns = min(transferred.start_ns, at_ns - 1)
        if not history:
            history.add(start_ns, (0,))
        history.add(at_ns, (history.last_values[0] + transferred.bytes,), start_ns)

    def counted_bytes(
        self, process: ProcessKey, start_ns: int, end_ns: int, ports: Collection[int] | None = None, *, sends: bool
    ) -> float:
        """Return what a process sent to stores, or received, between two times as its calls were counted.

        From all ports, or some.
        """
        histories = (
            history
            for (owner, port, is_sent), history in self.transferred_bytes.items()
            if owner == process and is_sent is sends and (ports is None or port in ports)
        )
        return sum(one[2][0] for history in histories if (one := history.measure(start_ns, end_ns)) is not None)

    def _ingest_counts(self, process: ProcessKey, traffic: SocketTraffic, known: SocketTraffic, at_ns: int) -> None:
        sent = (
            traffic.sent_bytes - known.sent_bytes,
            traffic.parts - known.parts,
            traffic.parts_bytes - known.parts_bytes,
        )
        received = (
            traffic.received_bytes - known.received_bytes,
            traffic.answers - known.answers,
            traffic.answers_bytes - known.answers_bytes,
        )
        sent_span = traffic.send_start_ns, known.sent_ns, traffic.sent_ns
        received_span = traffic.receive_start_ns, known.received_ns, traffic.received_ns
        for sends, own, other, span in ((True, sent, received, sent_span), (False, received, sent, received_span)):
            key, (start_ns, known_ns, last_ns) = _StretchKey(process, traffic.port, sends=sends, is_counted=True), span
            if own[0] > LITTLE_SHARE * other[0] and start_ns is not None and last_ns is not None:
                until_ns = min(at_ns, last_ns)
                since_ns = min(max(start_ns, known_ns or 0), until_ns - 1)
                stretch = self._stretch(key, since_ns, at_ns)
                movement = Movement(since_ns, until_ns, own[0], tid=traffic.tid)
                stretch.add((process, traffic.remote, traffic.port, ""), movement, traffic.sockets, at_ns)
                stretch.before_ns = min(stretch.before_ns, since_ns)
            if key in self._open:  # the last part is one once it was answered, the last answer once more is asked for
                stretch = self._open[key]
                stretch.parts += max(0, own[1])
                stretch.parts_bytes += max(0, own[2])
                stretch.returned_bytes += max(0, other[0])
                if sends and traffic.received_ns is not None:
                    stretch.record_answer(other[0], min(at_ns, traffic.received_ns))

    def _stretch(self, key: _StretchKey, before_ns: int, at_ns: int) -> _TransferStretch:
        stretch = self._open.get(key)
        if stretch is None:
            stretch = self._open[key] = _TransferStretch(before_ns, at_ns, at_ns)
        return stretch

    def take_ended(self, now_ns: int, quiet_ns: int) -> list[tuple[str, list[SentTransfer]]]:
        """Return what each job sent or received at a time, with the job, once no more of it was seen for so long."""
        for key in [key for key in self._open if key.port not in OBJECT_STORE_PORTS and key.port in self._served_ports]:
            del self._open[key]  # ranks met there, and were seen to only later
        by_job: dict[tuple[str, bool], _StretchesByPort] = {}
        for key, stretch in self._open.items():
            stretches_by_port = by_job.setdefault((self._world.jobs.job_of(key.process), key.sends), {})
            stretches_by_port.setdefault((key.process, key.port), {})[key] = stretch
        found = []
        for (job, _), stretches_by_port in by_job.items():
            keys = [
                key for place in _ended_ports(stretches_by_port, now_ns, quiet_ns) for key in stretches_by_port[place]
            ]
            if keys:
                found.append((job, _make_transfers({key: self._open.pop(key) for key in keys})))
        return [(job, parts) for job, parts in found if parts]

    def is_sending_since(self, since_ns: int) -> bool:
        """Return whether something goes on being sent that began then, or later, and is more than what many send."""
        later = (one for key, one in self._open.items() if key.sends and one.before_ns >= since_ns)
        return any(one.bytes >= SIGNIFICANT_BYTES and not one.is_endless for one in later)

    def oldest_ns(self, now_ns: int) -> int:
        """Return from when on something is still asked for by what goes on."""
        going_on = (one.before_ns for key, one in self._open.items() if key.sends and not one.is_endless)
        return min(going_on, default=now_ns)  # a data set may come for as long as it is trained on


def _ended_ports(stretches_by_port: _StretchesByPort, now_ns: int, quiet_ns: int) -> list[tuple[ProcessKey, int]]:
    """Return which of what a job moved is over, with all of the job that began with it, or while it went on.

    What began earlier and goes on is something else, as the requests of a worker that loads data.
    """
    spans = {place: _span_of(stretches.values()) for place, stretches in stretches_by_port.items()}
    quiet = [place for place, (_, _, last_ns) in spans.items() if now_ns - last_ns >= quiet_ns]
    busy = [
        spans[place][1]
        for place, stretches in stretches_by_port.items()
        if place not in quiet and not any(one.is_endless for one in stretches.values())
    ]
    windows = {place: (before_ns - quiet_ns, last_ns) for place, (before_ns, _, last_ns) in spans.items()}
    return [
        place for place in quiet if not any(windows[place][0] <= start_ns <= windows[place][1] for start_ns in busy)
    ]


def _span_of(stretches: Iterable[_TransferStretch]) -> tuple[int, int, int]:
    all_stretches = list(stretches)
    return (
        min(one.before_ns for one in all_stretches),
        min(one.first_ns for one in all_stretches),
        max(one.last_ns for one in all_stretches),
    )


def _make_transfers(stretches: dict[_StretchKey, _TransferStretch]) -> list[SentTransfer]:
    """Return stretches that are over; of one that looks and the trace tell of, as the trace tells."""
    transfers = []
    for key, stretch in stretches.items():
        other = stretches.get(key._replace(is_counted=not key.is_counted))
        counted, polled = (stretch, other) if key.is_counted else (other, stretch)
        is_whole = counted is not None and (polled is None or counted.bytes >= MOST_SHARE * polled.bytes)
        if stretch.is_endless or (is_whole is not key.is_counted and other is not None):
            continue
        transfers.append(_make_transfer(key, stretch, polled))
    return transfers


def _make_transfer(key: _StretchKey, stretch: _TransferStretch, polled: _TransferStretch | None) -> SentTransfer:
    """Return a stretch that is over; how many connections are open at once only looks at them tell."""
    last_byte_ns = max(one.end_ns for one in (*stretch.early, *stretch.later))
    is_known = key.is_counted or not (key.sends or stretch.later)
    start_ns = stretch.before_ns if is_known else min(stretch.estimate_start_ns(last_byte_ns), last_byte_ns)
    early = [one._replace(start_ns=min(start_ns, one.start_ns)) for one in stretch.early]
    return SentTransfer(
        process=key.process,
        file=_NO_FILE,
        writes=key.sends,
        path=f"{SENT_PREFIX}{str(key.port).translate(_LETTERS)}/{start_ns}",
        first_ns=stretch.first_ns,
        last_ns=stretch.last_ns,
        before_ns=stretch.before_ns,
        closed_ns=stretch.last_ns,
        phase=Phase.ENDED,
        observed_by="trace" if key.is_counted else "connections",
        start_ns=start_ns,
        end_ns=max(last_byte_ns, stretch.answered_ns),
        last_byte_ns=last_byte_ns,
        bytes=stretch.bytes,
        sending=Sending(
            stretch.endpoints,
            None if polled is None else sum(polled.sockets.values()) or None,
            key.is_counted,
            stretch.parts,
            stretch.parts_bytes,
            stretch.returned_bytes,
        ),
        points=(*early, *stretch.later),
    )
