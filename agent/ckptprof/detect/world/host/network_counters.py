"""What network interfaces and RDMA ports did during a checkpoint, and what limited them."""

from __future__ import annotations

from enum import IntEnum

from ckptprof.detect.world.counter_history import CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.host.fabric import Fabric
from ckptprof.measures import LinkMeasure
from ckptprof_collectors.samples import NicInfo, NicSample, QdiscSample, RdmaInfo, RdmaSample

MAX_TOLD = 32  # links of one checkpoint, the busiest
_Column = IntEnum("_Column", "RECEIVED SENT", start=0)
_TRICKLE = 64 << 10  # bytes a second: names, keep-alives
_ACTIVE = 0.01  # of its best second: above that it is active
_LOOPBACK = "lo"
_PAIRED = frozenset(("veth",))  # one end receives what the other sends; which one is the host's is unknown


class NetworkCounters:
    """The counters of links, and of the queues in front of them."""

    def __init__(self) -> None:
        self._meters: CounterHistories[str] = CounterHistories(
            lambda: CounterHistory(len(_Column), rising=len(_Column), rated=tuple(_Column))
        )
        self._fabric = Fabric()
        self.nics: dict[str, NicInfo] = {}
        self._ports: dict[str, RdmaInfo] = {}
        # drops, overlimits, backlog
        self._qdiscs: CounterHistories[tuple[str, int, int]] = CounterHistories(lambda: CounterHistory(3, rising=2))

    def take(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        at_ns = samples.at_ns
        self._fabric.take(samples)
        for nic in samples.of(NicInfo):
            self.nics[nic.interface] = nic
        for port in samples.of(RdmaInfo):
            self._ports[port.port] = port
        for one in samples.of(NicSample):
            counted = one.rx_bytes, one.tx_bytes
            self._meters.update_of(one.interface).add(at_ns, counted, samples.unchanged_ns("nics"))
        for counts in samples.of(RdmaSample):
            if counts.rx_bytes is not None and counts.tx_bytes is not None:
                counted = counts.rx_bytes, counts.tx_bytes
                self._meters.update_of(counts.port).add(at_ns, counted, samples.unchanged_ns("rdma"))
        for queue in samples.of(QdiscSample):
            values = (queue.drops or 0, queue.overlimits or 0, queue.backlog_bytes or 0)
            key = queue.interface, queue.handle, queue.parent
            self._qdiscs.update_of(key).add(at_ns, values, samples.unchanged_ns("qdiscs"))

    def forget(self, name: str) -> None:
        """Drop a link that was removed."""
        self._meters.pop(name, None)
        self._fabric.forget(name)
        self.nics.pop(name, None)
        self._ports.pop(name, None)
        for key in [key for key in self._qdiscs if key[0] == name]:
            del self._qdiscs[key]

    def measures(self, start_ns: int, end_ns: int, *, writes: bool) -> tuple[LinkMeasure, ...]:
        """Measure every link with traffic in a time, the busiest first."""
        found = [self._measure(name, meter, start_ns, end_ns, writes=writes) for name, meter in self._meters.items()]
        filled = [self._fabric.fill(one, start_ns, end_ns, writes=writes) for one in found if one is not None]
        moved = [(amount, one) for one in filled if (amount := _moved(one))]
        return tuple(one for _, one in sorted(moved, key=lambda pair: -pair[0])[:MAX_TOLD])

    def around(self, start_ns: int, end_ns: int) -> dict[str, tuple[int, int]]:
        """Bytes (received, sent) of each interface, from the sample before a time to the one after another."""
        found = {}
        for name, meter in sorted(self._meters.items()):  # RDMA ports have a slash (net/core/dev.c, dev_valid_name)
            pair = meter.around(start_ns, end_ns) if "/" not in name else None
            if pair is not None:
                (received, sent), (received_after, sent_after) = pair
                found[name] = received_after - received, sent_after - sent
        return found

    def received_bytes(self, start_ns: int, end_ns: int) -> int | None:
        """Bytes received by the busiest link, loopback included; None: none sampled."""
        pairs = [meter.difference(start_ns, end_ns) for meter in self._meters.values()]
        return max((round(pair[_Column.RECEIVED]) for pair in pairs if pair is not None), default=None)

    def _measure(
        self, name: str, meter: CounterHistory, start_ns: int, end_ns: int, *, writes: bool
    ) -> LinkMeasure | None:
        measured = meter.measured(start_ns, end_ns)
        if measured is None:
            return None
        _, _, counts = measured
        nic, port = self.nics.get(name), self._ports.get(name)
        column = _Column.SENT if writes else _Column.RECEIVED
        if nic is not None and nic.driver in _PAIRED and counts[1 - column] > counts[column]:
            column = _Column(1 - column)
        peak = meter.peak((column,), start_ns, end_ns)
        drops, overlimits, backlog = self._shaped(name, start_ns, end_ns)
        bits = nic.speed_bits_per_second if nic is not None else port.rate_bits_per_second if port is not None else None
        kind = "loopback" if name == _LOOPBACK else "rdma" if port is not None else "nic"
        return LinkMeasure(
            name=name,
            kind=kind,
            countable=nic.countable if nic is not None else kind != "loopback",
            speed_bytes_per_second=bits / 8 if bits else None,
            received_bytes=round(counts[_Column.RECEIVED]),
            sent_bytes=round(counts[_Column.SENT]),
            peak_bytes_per_second=peak,
            shown_bytes_per_second=meter.best(column, start_ns),
            steadiness=meter.steadiness(column, start_ns, end_ns),
            active_seconds=meter.active_seconds(column, start_ns, end_ns, max(_TRICKLE, _ACTIVE * (peak or 0.0))),
            shaped_drops=drops,
            shaped_overlimits=overlimits,
            backlog_bytes=backlog,
            interface=port.interface if port is not None else None,
        )

    def _shaped(self, name: str, start_ns: int, end_ns: int) -> tuple[int | None, int | None, int | None]:
        pasts = [past for key, past in self._qdiscs.items() if key[0] == name and past.first_ns < end_ns]
        counts = [count for past in pasts if (count := past.difference(start_ns, end_ns)) is not None]
        drops, overlimits = (max((round(count[i]) for count in counts), default=None) for i in (0, 1))
        backlogs = [backlog for past in pasts if (backlog := past.largest(2, start_ns, end_ns)) is not None]
        return drops, overlimits, max(backlogs, default=None)


def _moved(link: LinkMeasure) -> int:
    """Bytes in the busier direction, including those that bypass the kernel."""
    wire = max(link.wire_received_bytes or 0, link.wire_sent_bytes or 0)
    return max(link.received_bytes, link.sent_bytes, wire)
