"""Transfers over TCP to and from possible object stores: each stretch without a pause is one.

Possible stores are: on any host the usual ports of object stores; on this host every port that is not served by a
training process, and is not the usual one of a database, broker or log collector. Other ports of other hosts may be
anything.

Nothing is classified here: signals are the evidence for and against a save or restore. A stretch has ended when
nothing more was observed for as long as for files; concurrent sends of the ranks of one job belong together, and so do
concurrent receives.
Requests for received data, and answers to sent data, count as neither; but a send has ended only with the last answer.
The trace counts the bytes of the same sockets exactly: where there is a traced stretch, the polled one is dropped.
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

_MAX_SENDING_NS = 1_800_000_000_000  # a longer stretch without a pause is no save, and is dropped
_MAX_COUNTED_CONNECTIONS = 2048  # twice the trace's: a dropped one would seem to start again at once
_Endpoint = tuple[ProcessKey, str, int, str]  # owner, remote address and port, local address
_ProcessAndPort = tuple[ProcessKey, int, bool]  # owner, remote port (0: all ports without stores), "sends"
_LETTERS = str.maketrans("0123456789", "abcdefghij")  # all members of a series have one shape: digits become letters
_NO_FILE = (0, 0)


class _StretchKey(NamedTuple):
    """Identity of a stretch among concurrent ones."""

    process: ProcessKey
    port: int
    sends: bool  # False: receives
    is_counted: bool  # by the trace, call by call


@dataclass(slots=True)
class _TransferStretch:
    """An unfinished stretch: what one process sends to one port, or receives from it."""

    before_ns: int  # the sample before the first one with bytes; if traced, the first call
    first_ns: int  # that sample
    last_ns: int  # the last sample
    endpoints: dict[tuple[str, int], int] = field(default_factory=dict)  # bytes by address and port
    sockets: dict[_Endpoint, int] = field(default_factory=dict)  # maximum open at once
    early: list[Movement] = field(default_factory=list)  # movements of the first sample
    later: list[Movement] = field(default_factory=list)
    parts: int = 0
    parts_bytes: int = 0
    returned_bytes: int = 0
    answered_ns: int = 0  # the last small amount received, as answers to sent data are

    def add(self, endpoint: _Endpoint, movement: Movement, sockets: int, at_ns: int) -> None:
        """Add the bytes transferred between two samples."""
        if self.is_endless:
            self.last_ns = at_ns
            self.early, self.later = [], []  # no longer needed
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
        """Record received bytes, if they are an answer."""
        if 0 < received_bytes <= HEADER_BYTES:
            self.answered_ns = max(self.answered_ns, at_ns)

    def shrink(self, points: int) -> None:
        """Reduce the movements after the first sample to about `points`: all bytes, in longer pieces."""
        while len(self.later) > max(1, points):
            self._merge_pairs()

    def _merge_pairs(self) -> None:
        odd = self.later[len(self.later) // 2 * 2 :]
        self.later = [*(merge_movements(*pair) for pair in zip(self.later[::2], self.later[1::2], strict=False)), *odd]

    @property
    def bytes(self) -> int:
        """Total bytes."""
        return sum(self.endpoints.values())

    @property
    def is_endless(self) -> bool:
        """It is longer than any save."""
        return self.last_ns - self.before_ns > _MAX_SENDING_NS

    def estimate_start_ns(self, end_ns: int) -> int:
        """Estimate its start: the first sample's bytes took their busy time, or had the rate of the later ones."""
        start_ns = min(one.start_ns for one in self.early)
        after = sum(one.bytes for one in self.later)
        if after and end_ns > self.first_ns:
            duration_ns = sum(one.bytes for one in self.early) * (end_ns - self.first_ns) // after
            start_ns = min(start_ns, self.first_ns - duration_ns)
        return max(self.before_ns, start_ns)


@dataclass(slots=True)
class _CountedBytes:
    """Bytes that one process sent or received in one frame."""

    start_ns: int  # after its last pause
    bytes: int = 0

    def add(self, transferred: int, start_ns: int | None) -> None:
        """Add the bytes of one connection."""
        if transferred:
            self.bytes += transferred
            self.start_ns = min(self.start_ns, start_ns or self.start_ns)


# of one job in one direction: by process and port, polled and traced
_StretchesByPort = dict[tuple[ProcessKey, int], dict[_StretchKey, _TransferStretch]]


class _SocketCounters(NamedTuple):
    """Counters of the sockets of an endpoint."""

    acked_bytes: int
    received_bytes: int
    busy_us: int


class SentTransfers:
    """Follows what training processes send and receive, and since when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._polled: Bounded[_Endpoint, _SocketCounters] = Bounded(MAX_ENTRIES)
        self._counted: Bounded[_Endpoint, SocketTraffic] = Bounded(_MAX_COUNTED_CONNECTIONS)
        self.transferred_bytes: CounterHistories[_ProcessAndPort] = CounterHistories(
            lambda: CounterHistory(1, max_bytes=MAX_HISTORY_BYTES >> 4)
        )
        self._open: Bounded[_StretchKey, _TransferStretch] = Bounded(MAX_ENTRIES)
        self._served_ports: Bounded[int, None] = Bounded(MAX_ENTRIES)  # ports served by training processes
        self._called_ports: Bounded[tuple[ProcessKey, str, int], None] = Bounded(
            MAX_ENTRIES
        )  # at other ports of this host

    @property
    def counted_connections(self) -> int:
        """Number of connections with known counters."""
        return len(self._counted)

    @property
    def point_count(self) -> int:
        """Number of movements retained for unfinished stretches."""
        return sum(len(one.early) + len(one.later) for one in self._open.values())

    def shrink(self, share: float) -> None:
        """Reduce each stretch to a share of its maximum points."""
        for one in self._open.values():
            one.shrink(int(2 * share * MAX_POINTS))

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest a frame's samples of connections."""
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
        """Return True if a port of this host may be an object store: no training process serves it."""
        if sample.port in self._served_ports or sample.port in OTHER_SERVICE_PORTS:
            return False
        if sample.remote not in {sample.local, "::1"} and not sample.remote.startswith("127."):
            return False
        if len(self._world.jobs.local_living_ranks(process)) > MAX_PER_ITEM:
            return False  # the sampler assigns sockets to no more processes
        self._called_ports[process, sample.remote, sample.port] = (
            None  # only polling shows which end opened a connection
        )
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
            # several connections are busy at a time: with even shares, each is busy for the whole duration
            busy_ns = max(0, now.busy_us - known.busy_us) * 1000 // max(1, sample.sockets)
            movement = Movement(max(before_ns, until_ns - max(busy_ns, 1)), until_ns, sent)
            stretch = self._stretch(_StretchKey(process, sample.port, sends=True, is_counted=False), before_ns, at_ns)
            stretch.add(endpoint, movement, sample.sockets, at_ns)
        sending = self._open.get(_StretchKey(process, sample.port, sends=True, is_counted=False))
        if sending is not None and sample.received_ns is not None:
            sending.record_answer(received, min(at_ns, sample.received_ns))
        if received > max(0, LITTLE_SHARE * sent):
            until_ns = min(at_ns, max(before_ns, sample.received_ns or at_ns))
            movement = Movement(until_ns - 1, until_ns, received)  # its busy time is unknown
            stretch = self._stretch(_StretchKey(process, sample.port, sends=False, is_counted=False), before_ns, at_ns)
            stretch.add(endpoint, movement, sample.sockets, at_ns)

    def _previous_counts(self, endpoint: _Endpoint, traffic: SocketTraffic) -> SocketTraffic:
        """Return the earlier counters; zeros for a new connection, or one that was dropped and starts again."""
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
        """Return the bytes that a process sent to stores, or received, between two times, by traced calls.

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
            if key in self._open:  # a part is complete once it was answered, an answer once the next request is sent
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
        """Return (job, transfers) of concurrent sends, or receives, that had no more bytes for `quiet_ns`."""
        for key in [key for key in self._open if key.port not in OBJECT_STORE_PORTS and key.port in self._served_ports]:
            del self._open[key]  # a port between ranks, which was recognised later
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
        """Return True if a send in progress started at `since_ns` or later, and is larger than usual traffic."""
        later = (one for key, one in self._open.items() if key.sends and one.before_ns >= since_ns)
        return any(one.bytes >= SIGNIFICANT_BYTES and not one.is_endless for one in later)

    def oldest_ns(self, now_ns: int) -> int:
        """Return since when unfinished stretches still need data."""
        going_on = (one.before_ns for key, one in self._open.items() if key.sends and not one.is_endless)
        return min(going_on, default=now_ns)  # a data set may be received for the whole training


def _ended_ports(stretches_by_port: _StretchesByPort, now_ns: int, quiet_ns: int) -> list[tuple[ProcessKey, int]]:
    """Return the ended stretches of a job, with all that started during them.

    A stretch that started earlier and has not ended is something else, such as the requests of a data loader.
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
    """Return the transfers of ended stretches; of one both polled and traced, the traced one."""
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
    """Return the transfer of an ended stretch; only the `polled` one has the number of open connections."""
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
