"""What TCP connections did during a checkpoint, by remote address and port, and what limited their senders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.tolerances import AT_ONCE_NS, LITTLE_SHARE, NEARBY_NS
from ckptprof.detect.world.counter_history import (
    MAX_HISTORY_BYTES,
    UNOBSERVED,
    CounterHistories,
    CounterHistory,
    value_or_none,
)
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof_collectors.samples import TcpSample

_Column = IntEnum(
    "_Column", "ACKED RECEIVED BUSY RWND SNDBUF RETRANS RTT MIN_RTT SOCKETS", start=0
)  # RTT and on: gauges
_HISTORY_BYTES = MAX_HISTORY_BYTES >> 4  # there may be hundreds, and a history of hours is not needed


class Endpoint(NamedTuple):
    """Connections of one owner with one remote port, from one address."""

    remote: str
    port: int
    accepted: bool
    interfaces: tuple[str, ...]
    local: str
    owner: ProcessKey | None


class ConnectionTraffic(NamedTuple):
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
    """Bytes received within a time."""

    span: Span
    bytes: int


class ConnectionCounters:
    """Recent history of each endpoint."""

    def __init__(self) -> None:
        self._histories: CounterHistories[Endpoint] = CounterHistories(
            lambda: CounterHistory(len(_Column), rising=_Column.RTT, max_bytes=_HISTORY_BYTES)
        )

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        before_ns = samples.unchanged_ns("tcp")
        for one in samples.by_kind(TcpSample):
            owner = (one.pid, one.start_ticks) if one.pid is not None and one.start_ticks is not None else None
            endpoint = Endpoint(one.remote, one.port, one.is_accepted, one.interfaces, one.local, owner)
            counters = (
                one.bytes_acked, one.bytes_received, one.busy_us, one.rwnd_limited_us, one.sndbuf_limited_us,
                one.bytes_retrans, one.rtt_us, one.min_rtt_us, one.sockets,
            )  # fmt: skip
            values = tuple(UNOBSERVED if value is None else value for value in counters)
            if one.is_new:
                self._histories.pop(endpoint, None)
                if before_ns:
                    sums = (0 if value < UNOBSERVED else UNOBSERVED for value in values[: _Column.RTT])
                    self._histories.touch(endpoint).add(before_ns, (*sums, UNOBSERVED, UNOBSERVED, 0))
            self._histories.touch(endpoint).add(samples.at_ns, values, before_ns)

    @property
    def retained_bytes(self) -> int:
        """Memory used, approximately."""
        return self._histories.retained_bytes

    def shrink(self, share: float) -> None:
        """Thin each history to this share of its limit."""
        self._histories.shrink(share)

    def traffic_between(
        self, start_ns: int, end_ns: int, owners: Collection[ProcessKey] | None = None
    ) -> Iterable[tuple[Endpoint, ConnectionTraffic]]:
        """Yield the endpoints with traffic in a time: all, or those of some processes."""
        for endpoint, history in self._histories.items():
            if owners is not None and endpoint.owner not in owners:
                continue
            traffic = _traffic(history, start_ns, end_ns)
            if traffic is not None and (traffic.sent_bytes or traffic.received_bytes):
                yield endpoint, traffic

    def sent_bytes_around(
        self, start_ns: int, end_ns: int, owners: Collection[ProcessKey], ports: Collection[int]
    ) -> int:
        """Bytes sent by some processes to some ports, from the sample before a time to the one after another."""
        histories = [
            history for one, history in self._histories.items() if one.owner in owners and one.port in ports and history
        ]
        return sum(
            samples[-1][1][_Column.ACKED] - samples[0][1][_Column.ACKED]
            for history in histories
            if (samples := history.samples(start_ns, end_ns))
        )

    def find_inflow(self, owner: ProcessKey, since_ns: int, until_ns: int, least_bytes: int) -> Inflow | None:
        """Find what a process received beyond what it sent, without a pause, up to a time.

        None: less than `least_bytes`, or it often receives as much. Data that is reduced or exchanged goes out as it
        arrives. The start within the first sample is estimated by the best rate of the others.
        """
        histories = [history for endpoint, history in self._histories.items() if endpoint.owner == owner and history]
        times = sorted({at_ns for history in histories for at_ns, _ in history.samples(since_ns, until_ns)})
        counted = [[history.at(at_ns) for history in histories] for at_ns in times]
        net_received = [sum(one[_Column.RECEIVED] - one[_Column.ACKED] for one in counts) for counts in counted]
        pieces = [
            (before_ns, at_ns, after - before)
            for (before_ns, before), (at_ns, after) in pairwise(zip(times, net_received, strict=True))
        ]
        return _continuous_inflow(pieces, since_ns, until_ns, least_bytes)


def _continuous_inflow(
    pieces: Sequence[tuple[int, int, float]], since_ns: int, until_ns: int, least_bytes: int
) -> Inflow | None:
    run: list[tuple[int, int, float]] = []
    for piece in reversed(pieces):
        if piece[2] >= LITTLE_SHARE * least_bytes:
            run.insert(0, piece)
        elif (run[0][0] if run else until_ns) - piece[0] > AT_ONCE_NS:
            break
    received = sum(added for *_, added in run)
    if received < least_bytes:
        return None
    usual = sum(max(0.0, added) for *_, added in pieces) - received
    duration_ns, observed_ns = run[-1][1] - run[0][0], run[0][0] - since_ns
    if observed_ns < duration_ns or usual * duration_ns > LITTLE_SHARE * received * observed_ns:
        return None
    (first_ns, sampled_ns, first), *others = run
    if not others and sampled_ns - first_ns > NEARBY_NS:
        return None  # its start is unknown
    fastest = max((added / (at_ns - before_ns) for before_ns, at_ns, added in others), default=0.0)
    start_ns = max(first_ns, sampled_ns - int(first / fastest)) if fastest else first_ns
    return Inflow((start_ns, run[-1][1]), round(received))


def _traffic(history: CounterHistory, start_ns: int, end_ns: int) -> ConnectionTraffic | None:
    measured = history.measure(start_ns, end_ns)
    if measured is None:
        return None
    from_ns, to_ns, counts = measured
    samples = [values for at_ns, values in history.samples(from_ns, to_ns) if from_ns < at_ns <= to_ns]
    rounds = [value for values in samples if (value := value_or_none(values[_Column.RTT])) is not None]
    shortest = [value for values in samples if (value := value_or_none(values[_Column.MIN_RTT])) is not None]
    observed = [
        None if value_or_none(last) is None else value for last, value in zip(history.last_values, counts, strict=True)
    ]
    return ConnectionTraffic(
        sent_bytes=counts[_Column.ACKED],
        received_bytes=counts[_Column.RECEIVED],
        busy_us=observed[_Column.BUSY],
        rwnd_limited_us=observed[_Column.RWND],
        sndbuf_limited_us=observed[_Column.SNDBUF],
        retransmitted_bytes=observed[_Column.RETRANS],
        rtt_us=sum(rounds) / len(rounds) if rounds else None,
        min_rtt_us=min(shortest, default=None),
        sockets=max((values[_Column.SOCKETS] for values in samples), default=0),
    )
