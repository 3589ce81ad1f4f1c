"""What RDMA ports and drivers report of the fabric during a checkpoint: congestion, pauses, bytes on the wire."""

from __future__ import annotations

from enum import IntEnum

from msgspec.structs import replace

from ckptprof.detect.world.counter_history import SECOND_NS, UNSEEN, CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.measures import LinkMeasure
from ckptprof_collectors.samples import RdmaSample, WireSample

DATA_UNIT_BYTES = 4  # of InfiniBand, in one tick of a port
_Port = IntEnum("_Port", "RECEIVED SENT WAIT DISCARDS NOTIFICATIONS MARKED SEQUENCE TIMEOUTS", start=0)
_Wire = IntEnum("_Wire", "RECEIVED SENT PAUSES_RECEIVED PAUSES_SENT DISCARDS", start=0)
_BEFORE_NS = 10 * SECOND_NS
_PAST_THE_KERNEL = 2.0  # times the bytes that the kernel counted: headers make a tenth


class Fabric:
    """Recent history of each RDMA port, and of each interface that counts on the wire."""

    def __init__(self) -> None:
        self._ports: CounterHistories[str] = CounterHistories(lambda: CounterHistory(len(_Port), rising=len(_Port)))
        self._wires: CounterHistories[str] = CounterHistories(
            lambda: CounterHistory(len(_Wire), rising=len(_Wire), rated=(_Wire.RECEIVED, _Wire.SENT))
        )

    def take(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for one in samples.of(RdmaSample):
            orders = [value for value in (one.out_of_sequence, one.sequence_errors) if value is not None]
            told = (
                one.rx_bytes, one.tx_bytes, one.tx_wait_ticks, one.tx_discards, one.cnp_handled, one.ecn_marked,
                sum(orders) if orders else None, one.ack_timeouts,
            )  # fmt: skip
            self._ports.update_of(one.port).add(samples.at_ns, _known(*told), samples.unchanged_ns("rdma"))
        for wire in samples.of(WireSample):
            counted = _known(wire.rx_bytes, wire.tx_bytes, wire.rx_pauses, wire.tx_pauses, wire.tx_discards)
            self._wires.update_of(wire.interface).add(samples.at_ns, counted, samples.unchanged_ns("wires"))

    def forget(self, name: str) -> None:
        """Drop a link that was removed."""
        self._ports.pop(name, None)
        self._wires.pop(name, None)

    def fill(self, link: LinkMeasure, start_ns: int, end_ns: int, *, writes: bool) -> LinkMeasure:
        """Add to a link what is known beyond its bytes."""
        if link.name in self._ports:
            told = _of_port(link, self._ports[link.name], start_ns, end_ns, writes=writes)
            wire = self._wires.get(link.interface) if link.interface is not None else None
            return told if wire is None else _with_pauses(told, wire, start_ns, end_ns)
        if link.name in self._wires:
            return _of_wire(link, self._wires[link.name], start_ns, end_ns, writes=writes)
        return link


def _of_port(link: LinkMeasure, past: CounterHistory, start_ns: int, end_ns: int, *, writes: bool) -> LinkMeasure:
    added = _added(past, start_ns, end_ns)
    if added is None:
        return link
    wait, sent = added[_Port.WAIT], added[_Port.SENT]
    share = None
    if wait is not None and sent is not None and (ticks := wait + sent / DATA_UNIT_BYTES):
        share = wait / ticks
    return replace(
        link,
        wait_share=share,
        discards=_whole(added[_Port.DISCARDS]),
        congestion_notifications=_whole(added[_Port.NOTIFICATIONS]),
        marked_packets=_whole(added[_Port.MARKED]),
        out_of_sequence=_whole(added[_Port.SEQUENCE]),
        ack_timeouts=_whole(added[_Port.TIMEOUTS]),
        before_bytes_per_second=_before(past, _Port.SENT if writes else _Port.RECEIVED, start_ns),
    )


def _with_pauses(link: LinkMeasure, past: CounterHistory, start_ns: int, end_ns: int) -> LinkMeasure:
    added = _added(past, start_ns, end_ns)
    if added is None:
        return link
    return replace(
        link,
        pauses_received=_whole(added[_Wire.PAUSES_RECEIVED]),
        pauses_sent=_whole(added[_Wire.PAUSES_SENT]),
        discards=link.discards if link.discards is not None else _whole(added[_Wire.DISCARDS]),
    )


def _of_wire(link: LinkMeasure, past: CounterHistory, start_ns: int, end_ns: int, *, writes: bool) -> LinkMeasure:
    added = _added(past, start_ns, end_ns)
    if added is None:
        return link
    column = _Wire.SENT if writes else _Wire.RECEIVED
    received, sent = added[_Wire.RECEIVED], added[_Wire.SENT]
    known = replace(
        link,
        wire_received_bytes=_whole(received),
        wire_sent_bytes=_whole(sent),
        pauses_received=_whole(added[_Wire.PAUSES_RECEIVED]),
        pauses_sent=_whole(added[_Wire.PAUSES_SENT]),
        discards=_whole(added[_Wire.DISCARDS]),
        before_bytes_per_second=_before(past, column, start_ns),
    )
    if (added[column] or 0) <= _PAST_THE_KERNEL * (link.sent_bytes if writes else link.received_bytes):
        return known
    return replace(  # the kernel's counters show neither its speed nor its course
        known,
        peak_bytes_per_second=past.peak((column,), start_ns, end_ns),
        shown_bytes_per_second=past.best(column, start_ns),
        steadiness=past.steadiness(column, start_ns, end_ns),
        active_seconds=None,
    )


def _added(past: CounterHistory, start_ns: int, end_ns: int) -> list[float | None] | None:
    """Growth of each counter, None for missing ones; None: not sampled by then."""
    measured = past.measured(start_ns, end_ns)
    if measured is None:
        return None
    return [None if last >= UNSEEN else value for last, value in zip(past.last, measured[2], strict=True)]


def _before(past: CounterHistory, column: int, start_ns: int) -> float | None:
    """Rate in the ten seconds before a time; None: less than half of them was sampled."""
    since_ns = max(past.first_ns, start_ns - _BEFORE_NS)
    moved = past.difference(since_ns, start_ns) if start_ns - since_ns >= _BEFORE_NS // 2 else None
    if moved is None or past.last[column] >= UNSEEN:
        return None
    return moved[column] * SECOND_NS / (start_ns - since_ns)


def _known(*values: int | None) -> tuple[int, ...]:
    return tuple(UNSEEN if value is None else value for value in values)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
