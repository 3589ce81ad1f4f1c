"""What TCP connections did during a checkpoint, by remote address and port, and what limited their senders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.tolerances import AT_ONCE_NS, LITTLE_SHARE, NEAR_NS
from ckptprof.detect.world.counter_history import MOST_BYTES, UNSEEN, CounterHistories, CounterHistory, known
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof_collectors.samples import TcpSample

_Column = IntEnum(
    "_Column", "ACKED RECEIVED BUSY RWND SNDBUF RETRANS RTT MIN_RTT SOCKETS", start=0
)  # RTT and on: gauges
_EACH_BYTES = MOST_BYTES >> 4  # there may be hundreds, and a history of hours is not needed


class Endpoint(NamedTuple):
    """Connections of one owner with one remote port, from one address."""

    remote: str
    port: int
    accepted: bool
    interfaces: tuple[str, ...]
    local: str
    owner: ProcessKey | None


class Traffic(NamedTuple):
    """Traffic of an endpoint in a time; None: not observed."""

    sent_bytes: float
    received_bytes: float
    busy_us: float | None
    rwnd_limited_us: float | None
    sndbuf_limited_us: float | None
    retransmitted_bytes: float | None
    rtt_us: float | None  # mean of the samples
    min_rtt_us: float | None
    sockets: int  # maximum open at once


class Inflow(NamedTuple):
    """Bytes received, and when."""

    span: Span
    bytes: int


class Connections:
    """Recent history of each endpoint."""

    def __init__(self) -> None:
        self._pasts: CounterHistories[Endpoint] = CounterHistories(
            lambda: CounterHistory(len(_Column), rising=_Column.RTT, most_bytes=_EACH_BYTES)
        )

    def take(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        before_ns = samples.unchanged_ns("tcp")
        for one in samples.of(TcpSample):
            owner = (one.pid, one.start_ticks) if one.pid is not None and one.start_ticks is not None else None
            endpoint = Endpoint(one.remote, one.port, one.accepted, one.interfaces, one.local, owner)
            told = (
                one.bytes_acked, one.bytes_received, one.busy_us, one.rwnd_limited_us, one.sndbuf_limited_us,
                one.bytes_retrans, one.rtt_us, one.min_rtt_us, one.sockets,
            )  # fmt: skip
            values = tuple(UNSEEN if value is None else value for value in told)
            if one.is_new:
                self._pasts.pop(endpoint, None)
                if before_ns:
                    sums = (0 if value < UNSEEN else UNSEEN for value in values[: _Column.RTT])
                    self._pasts.update_of(endpoint).add(before_ns, (*sums, UNSEEN, UNSEEN, 0))
            self._pasts.update_of(endpoint).add(samples.at_ns, values, before_ns)

    @property
    def kept_bytes(self) -> int:
        """Memory used, approximately."""
        return self._pasts.kept_bytes

    def cut(self, share: float) -> None:
        """Thin each history to this share of its limit."""
        self._pasts.cut(share)

    def between(
        self, start_ns: int, end_ns: int, owners: Collection[ProcessKey] | None = None
    ) -> Iterable[tuple[Endpoint, Traffic]]:
        """Yield the endpoints with traffic in a time: all, or those of some processes."""
        for endpoint, past in self._pasts.items():
            if owners is not None and endpoint.owner not in owners:
                continue
            traffic = _traffic(past, start_ns, end_ns)
            if traffic is not None and (traffic.sent_bytes or traffic.received_bytes):
                yield endpoint, traffic

    def sent_bytes_about(
        self, start_ns: int, end_ns: int, owners: Collection[ProcessKey], ports: Collection[int]
    ) -> int:
        """Bytes sent by some processes to some ports, from the sample before a time to the one after another."""
        pasts = [past for one, past in self._pasts.items() if one.owner in owners and one.port in ports and past]
        return sum(
            looks[-1][1][_Column.ACKED] - looks[0][1][_Column.ACKED]
            for past in pasts
            if (looks := past.looks(start_ns, end_ns))
        )

    def came_in(self, owner: ProcessKey, since_ns: int, until_ns: int, least_bytes: int) -> Inflow | None:
        """Find what a process received beyond what it sent, without a pause, up to a time.

        None: less than `least_bytes`, or it often receives as much. Data that is reduced or exchanged goes out as it
        arrives. The start within the first sample is estimated by the best rate of the others.
        """
        pasts = [past for endpoint, past in self._pasts.items() if endpoint.owner == owner and past]
        times = sorted({at_ns for past in pasts for at_ns, _ in past.looks(since_ns, until_ns)})
        counted = [[past.at(at_ns) for past in pasts] for at_ns in times]
        kept = [sum(one[_Column.RECEIVED] - one[_Column.ACKED] for one in counts) for counts in counted]
        pieces = [
            (before_ns, at_ns, after - before)
            for (before_ns, before), (at_ns, after) in pairwise(zip(times, kept, strict=True))
        ]
        return _without_a_pause(pieces, since_ns, until_ns, least_bytes)


def _without_a_pause(
    pieces: Sequence[tuple[int, int, float]], since_ns: int, until_ns: int, least_bytes: int
) -> Inflow | None:
    run: list[tuple[int, int, float]] = []
    for piece in reversed(pieces):
        if piece[2] >= LITTLE_SHARE * least_bytes:
            run.insert(0, piece)
        elif (run[0][0] if run else until_ns) - piece[0] > AT_ONCE_NS:
            break
    came = sum(moved for *_, moved in run)
    if came < least_bytes:
        return None
    usual = sum(max(0.0, moved) for *_, moved in pieces) - came
    lasted_ns, seen_ns = run[-1][1] - run[0][0], run[0][0] - since_ns
    if seen_ns < lasted_ns or usual * lasted_ns > LITTLE_SHARE * came * seen_ns:
        return None
    (first_ns, met_ns, first), *others = run
    if not others and met_ns - first_ns > NEAR_NS:
        return None  # its start is unknown
    fastest = max((moved / (at_ns - before_ns) for before_ns, at_ns, moved in others), default=0.0)
    begin_ns = max(first_ns, met_ns - int(first / fastest)) if fastest else first_ns
    return Inflow((begin_ns, run[-1][1]), round(came))


def _traffic(past: CounterHistory, start_ns: int, end_ns: int) -> Traffic | None:
    measured = past.measured(start_ns, end_ns)
    if measured is None:
        return None
    from_ns, to_ns, counts = measured
    looks = [values for at_ns, values in past.looks(from_ns, to_ns) if from_ns < at_ns <= to_ns]
    rounds = [value for values in looks if (value := known(values[_Column.RTT])) is not None]
    shortest = [value for values in looks if (value := known(values[_Column.MIN_RTT])) is not None]
    seen = [None if known(last) is None else value for last, value in zip(past.last, counts, strict=True)]
    return Traffic(
        sent_bytes=counts[_Column.ACKED],
        received_bytes=counts[_Column.RECEIVED],
        busy_us=seen[_Column.BUSY],
        rwnd_limited_us=seen[_Column.RWND],
        sndbuf_limited_us=seen[_Column.SNDBUF],
        retransmitted_bytes=seen[_Column.RETRANS],
        rtt_us=sum(rounds) / len(rounds) if rounds else None,
        min_rtt_us=min(shortest, default=None),
        sockets=max((values[_Column.SOCKETS] for values in looks), default=0),
    )
