"""What network interfaces and RDMA ports did during a checkpoint, and what limited them."""

from __future__ import annotations

from enum import IntEnum

from ckptprof.detect.world.counter_history import CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.host.fabric import FabricCounters
from ckptprof.measures import LinkMeasure
from ckptprof_collectors.samples import NicInfo, NicSample, QdiscSample, RdmaInfo, RdmaSample

MAX_REPORTED = 32  # links of one checkpoint, the busiest
_Column = IntEnum("_Column", "RECEIVED SENT", start=0)
_TRICKLE = 64 << 10  # bytes a second: names, keep-alives
_ACTIVE = 0.01  # of its best second: above that it is active
LOOPBACK = "lo"
_PAIRED = frozenset(("veth",))  # one end receives what the other sends; which one is the host's is unknown


class NetworkCounters:
    """The counters of links, and of the queues in front of them."""

    def __init__(self) -> None:
        self._histories: CounterHistories[str] = CounterHistories(
            lambda: CounterHistory(len(_Column), rising=len(_Column), rated=tuple(_Column))
        )
        self._fabric = FabricCounters()
        self.nics: dict[str, NicInfo] = {}
        self._ports: dict[str, RdmaInfo] = {}
        # drops, overlimits, backlog
        self._qdiscs: CounterHistories[tuple[str, int, int]] = CounterHistories(lambda: CounterHistory(3, rising=2))

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        at_ns = samples.at_ns
        self._fabric.ingest(samples)
        for nic in samples.by_kind(NicInfo):
            self.nics[nic.interface] = nic
        for port in samples.by_kind(RdmaInfo):
            self._ports[port.port] = port
        for one in samples.by_kind(NicSample):
            counted = one.rx_bytes, one.tx_bytes
            self._histories.touch(one.interface).add(at_ns, counted, samples.unchanged_ns("nics"))
        for counts in samples.by_kind(RdmaSample):
            if counts.rx_bytes is not None and counts.tx_bytes is not None:
                counted = counts.rx_bytes, counts.tx_bytes
                self._histories.touch(counts.port).add(at_ns, counted, samples.unchanged_ns("rdma"))
        for queue in samples.by_kind(QdiscSample):
            values = (queue.drops or 0, queue.overlimits or 0, queue.backlog_bytes or 0)
            key = queue.interface, queue.handle, queue.parent
            self._qdiscs.touch(key).add(at_ns, values, samples.unchanged_ns("qdiscs"))

    def forget(self, name: str) -> None:
        """Drop a link that was removed."""
        self._histories.pop(name, None)
        self._fabric.forget(name)
        self.nics.pop(name, None)
        self._ports.pop(name, None)
        for key in [key for key in self._qdiscs if key[0] == name]:
            del self._qdiscs[key]

    def measures(self, start_ns: int, end_ns: int, *, writes: bool) -> tuple[LinkMeasure, ...]:
        """Measure every link with traffic in a time, the busiest first."""
        found = [
            self._measure(name, history, start_ns, end_ns, writes=writes) for name, history in self._histories.items()
        ]
        enriched = [self._fabric.enrich(one, start_ns, end_ns, writes=writes) for one in found if one is not None]
        with_bytes = [(amount, one) for one in enriched if (amount := _transferred_bytes(one))]
        return tuple(one for _, one in sorted(with_bytes, key=lambda pair: -pair[0])[:MAX_REPORTED])

    def totals_around(self, start_ns: int, end_ns: int) -> dict[str, tuple[int, int]]:
        """Bytes (received, sent) of each interface, from the sample before a time to the one after another."""
        found = {}
        for name, history in sorted(
            self._histories.items()
        ):  # RDMA ports have a slash (net/core/dev.c, dev_valid_name)
            pair = history.values_around(start_ns, end_ns) if "/" not in name else None
            if pair is not None:
                (received, sent), (received_after, sent_after) = pair
                found[name] = received_after - received, sent_after - sent
        return found

    def received_bytes(self, start_ns: int, end_ns: int) -> int | None:
        """Bytes received by the busiest link, loopback included; None: none sampled."""
        pairs = [history.difference(start_ns, end_ns) for history in self._histories.values()]
        return max((round(pair[_Column.RECEIVED]) for pair in pairs if pair is not None), default=None)

    def _measure(
        self, name: str, history: CounterHistory, start_ns: int, end_ns: int, *, writes: bool
    ) -> LinkMeasure | None:
        measured = history.measure(start_ns, end_ns)
        if measured is None:
            return None
        _, _, counts = measured
        nic, port = self.nics.get(name), self._ports.get(name)
        column = _Column.SENT if writes else _Column.RECEIVED
        if nic is not None and nic.driver in _PAIRED and counts[1 - column] > counts[column]:
            column = _Column(1 - column)
        peak = history.peak_rate((column,), start_ns, end_ns)
        drops, overlimits, backlog = self._queue_counters(name, start_ns, end_ns)
        bits = nic.speed_bits_per_second if nic is not None else port.rate_bits_per_second if port is not None else None
        kind = "loopback" if name == LOOPBACK else "rdma" if port is not None else "nic"
        return LinkMeasure(
            name=name,
            kind=kind,
            countable=nic.is_countable if nic is not None else kind != "loopback",
            speed_bytes_per_second=bits / 8 if bits else None,
            received_bytes=round(counts[_Column.RECEIVED]),
            sent_bytes=round(counts[_Column.SENT]),
            peak_bytes_per_second=peak,
            shown_bytes_per_second=history.best_rate(column, start_ns),
            steadiness=history.steadiness(column, start_ns, end_ns),
            active_seconds=history.active_seconds(column, start_ns, end_ns, max(_TRICKLE, _ACTIVE * (peak or 0.0))),
            shaped_drops=drops,
            shaped_overlimits=overlimits,
            backlog_bytes=backlog,
            interface=port.interface if port is not None else None,
        )

    def _queue_counters(self, name: str, start_ns: int, end_ns: int) -> tuple[int | None, int | None, int | None]:
        histories = [history for key, history in self._qdiscs.items() if key[0] == name and history.first_ns < end_ns]
        counts = [count for history in histories if (count := history.difference(start_ns, end_ns)) is not None]
        drops, overlimits = (max((round(count[i]) for count in counts), default=None) for i in (0, 1))
        backlogs = [backlog for history in histories if (backlog := history.largest(2, start_ns, end_ns)) is not None]
        return drops, overlimits, max(backlogs, default=None)


def _transferred_bytes(link: LinkMeasure) -> int:
    """Bytes in the busier direction, including those that bypass the kernel."""
    wire = max(link.wire_received_bytes or 0, link.wire_sent_bytes or 0)
    return max(link.received_bytes, link.sent_bytes, wire)
