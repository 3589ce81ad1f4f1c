"""What TCP connections did during a checkpoint, by remote address and port, and what limited their senders."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import NamedTuple

from ckptprof.detect.world.counter_history import MAX_HISTORY_BYTES, UNOBSERVED, CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
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
            if one.is_new:
                self._histories.pop(endpoint, None)
                if before_ns:
                    sums = (None if value is None else 0 for value in counters[: _Column.RTT])
                    self._histories.touch(endpoint).add(before_ns, (*sums, None, None, 0))
            self._histories.touch(endpoint).add(samples.at_ns, counters, before_ns)

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


def _traffic(history: CounterHistory, start_ns: int, end_ns: int) -> ConnectionTraffic | None:
    measured = history.measure(start_ns, end_ns)
    if measured is None:
        return None
    from_ns, to_ns, counts = measured
    samples = [values for at_ns, values in history.samples(from_ns, to_ns) if from_ns < at_ns <= to_ns]
    rounds = [values[_Column.RTT] for values in samples if values[_Column.RTT] < UNOBSERVED]
    shortest = [values[_Column.MIN_RTT] for values in samples if values[_Column.MIN_RTT] < UNOBSERVED]
    observed = history.observed(counts)
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
