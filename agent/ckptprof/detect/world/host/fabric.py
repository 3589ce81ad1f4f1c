"""What RDMA ports and drivers report of the fabric during a checkpoint: congestion, pauses, bytes on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from msgspec.structs import replace

from ckptprof.detect.world.counter_history import SECOND_NS, UNOBSERVED, CounterHistories, CounterHistory, rounded
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.measures import LinkMeasure
from ckptprof_collectors.samples import RdmaSample, WireSample

DATA_UNIT_BYTES = 4  # of InfiniBand, in one tick of a port
_Port = IntEnum("_Port", "RECEIVED SENT WAIT DISCARDS NOTIFICATIONS MARKED SEQUENCE TIMEOUTS", start=0)
_Wire = IntEnum("_Wire", "RECEIVED SENT PAUSES_RECEIVED PAUSES_SENT DISCARDS", start=0)
_BEFORE_NS = 10 * SECOND_NS
_BYPASS_FACTOR = 2.0  # times the bytes that the kernel counted: headers make a tenth


class FabricCounters:
    """Recent history of each RDMA port, and of each interface that counts on the wire."""

    def __init__(self) -> None:
        self._ports: CounterHistories[str] = CounterHistories(lambda: CounterHistory(len(_Port), rising=len(_Port)))
        self._wires: CounterHistories[str] = CounterHistories(
            lambda: CounterHistory(len(_Wire), rising=len(_Wire), rated=(_Wire.RECEIVED, _Wire.SENT))
        )

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for one in samples.by_kind(RdmaSample):
            orders = [value for value in (one.out_of_sequence, one.sequence_errors) if value is not None]
            counters = (
                one.rx_bytes, one.tx_bytes, one.tx_wait_ticks, one.tx_discards, one.cnp_handled, one.ecn_marked,
                sum(orders) if orders else None, one.ack_timeouts,
            )  # fmt: skip
            self._ports.touch(one.port).add(samples.at_ns, counters, samples.unchanged_ns("rdma"))
        for wire in samples.by_kind(WireSample):
            counted = wire.rx_bytes, wire.tx_bytes, wire.rx_pauses, wire.tx_pauses, wire.tx_discards
            self._wires.touch(wire.interface).add(samples.at_ns, counted, samples.unchanged_ns("wires"))

    def forget(self, name: str) -> None:
        """Drop a link that was removed."""
        self._ports.pop(name, None)
        self._wires.pop(name, None)

    def enrich(self, link: LinkMeasure, start_ns: int, end_ns: int, *, writes: bool) -> LinkMeasure:
        """Add to a link what is known beyond its bytes."""
        if link.name in self._ports:
            enriched = _with_port_counters(link, self._ports[link.name], start_ns, end_ns, writes=writes)
            wire = self._wires.get(link.interface) if link.interface is not None else None
            added = None if wire is None else wire.growth(start_ns, end_ns)
            return enriched if added is None else _with_pauses(enriched, added)
        if link.name in self._wires:
            return _with_wire_counters(link, self._wires[link.name], start_ns, end_ns, writes=writes)
        return link


def _with_port_counters(
    link: LinkMeasure, history: CounterHistory, start_ns: int, end_ns: int, *, writes: bool
) -> LinkMeasure:
    added = history.growth(start_ns, end_ns)
    if added is None:
        return link
    wait, sent = added[_Port.WAIT], added[_Port.SENT]
    share = None
    if wait is not None and sent is not None and (ticks := wait + sent / DATA_UNIT_BYTES):
        share = wait / ticks
    return replace(
        link,
        wait_share=share,
        discards=rounded(added[_Port.DISCARDS]),
        congestion_notifications=rounded(added[_Port.NOTIFICATIONS]),
        marked_packets=rounded(added[_Port.MARKED]),
        out_of_sequence=rounded(added[_Port.SEQUENCE]),
        ack_timeouts=rounded(added[_Port.TIMEOUTS]),
        before_bytes_per_second=_rate_before(history, _Port.SENT if writes else _Port.RECEIVED, start_ns),
    )


def _with_pauses(link: LinkMeasure, added: Sequence[float | None]) -> LinkMeasure:
    return replace(
        link,
        pauses_received=rounded(added[_Wire.PAUSES_RECEIVED]),
        pauses_sent=rounded(added[_Wire.PAUSES_SENT]),
        discards=link.discards if link.discards is not None else rounded(added[_Wire.DISCARDS]),
    )


def _with_wire_counters(
    link: LinkMeasure, history: CounterHistory, start_ns: int, end_ns: int, *, writes: bool
) -> LinkMeasure:
    added = history.growth(start_ns, end_ns)
    if added is None:
        return link
    column = _Wire.SENT if writes else _Wire.RECEIVED
    enriched = replace(
        _with_pauses(link, added),
        wire_received_bytes=rounded(added[_Wire.RECEIVED]),
        wire_sent_bytes=rounded(added[_Wire.SENT]),
        before_bytes_per_second=_rate_before(history, column, start_ns),
    )
    if (added[column] or 0) <= _BYPASS_FACTOR * (link.sent_bytes if writes else link.received_bytes):
        return enriched
    return replace(  # the kernel's counters show neither its speed nor its course
        enriched,
        peak_bytes_per_second=history.peak_rate((column,), start_ns, end_ns),
        shown_bytes_per_second=history.best_rate(column, start_ns),
        steadiness=history.steadiness(column, start_ns, end_ns),
        active_seconds=None,
    )


def _rate_before(history: CounterHistory, column: int, start_ns: int) -> float | None:
    """Rate in the ten seconds before a time; None: less than half of them was sampled."""
    since_ns = max(history.first_ns, start_ns - _BEFORE_NS)
    added = history.difference(since_ns, start_ns) if start_ns - since_ns >= _BEFORE_NS // 2 else None
    if added is None or history.last_values[column] >= UNOBSERVED:
        return None
    return added[column] * SECOND_NS / (start_ns - since_ns)
