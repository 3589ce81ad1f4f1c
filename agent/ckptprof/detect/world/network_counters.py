"""What network interfaces and RDMA ports did while a checkpoint went on, and how they were held back."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.detect.world.counter_rates import SECOND_NS, CounterRates
from ckptprof.measures import LinkMeasure
from ckptprof_collectors.samples import Gone, NicInfo, NicSample, QdiscSample, RdmaInfo, RdmaSample, Sample

MAX_LINKS = 256
MAX_TOLD = 32
MAX_QDISCS = 512
_RECEIVED, _SENT = 0, 1
_TRICKLE = 64 << 10  # bytes a second: names, keep-alives
_ACTIVE = 0.01  # of its best second
_LOOPBACK = "lo"
_PAIRED = frozenset(("veth",))  # what one end sends the other receives: which of them is the host's own is not known


class NetworkCounters:
    """The counters of links, and of what queues before them."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._meters: dict[str, CounterRates] = {}
        self._nics: dict[str, NicInfo] = {}
        self._ports: dict[str, RdmaInfo] = {}
        self._qdiscs: dict[tuple[str, int, int], CounterHistory] = {}  # drops, overlimits, backlog

    def observe(self, at_ns: int, unchanged_ns: int, sample: Sample) -> None:
        """Take one sample; up to `unchanged_ns` nothing had changed since the one before."""
        if isinstance(sample, NicSample):
            self._count(sample.interface, at_ns, unchanged_ns, (sample.rx_bytes, sample.tx_bytes))
        elif isinstance(sample, RdmaSample):
            if sample.rx_bytes is not None and sample.tx_bytes is not None:
                self._count(sample.port, at_ns, unchanged_ns, (sample.rx_bytes, sample.tx_bytes))
        elif isinstance(sample, NicInfo):
            self._nics[sample.interface] = sample
        elif isinstance(sample, RdmaInfo):
            self._ports[sample.port] = sample
        elif isinstance(sample, QdiscSample):
            self._queue(at_ns, unchanged_ns, sample)
        elif isinstance(sample, Gone) and sample.entity in {"interface", "port"}:
            self._forget(sample.name)

    def _count(self, name: str, at_ns: int, unchanged_ns: int, values: tuple[int, int]) -> None:
        meter = self._meters.get(name)
        if meter is None:
            while len(self._meters) >= MAX_LINKS:
                del self._meters[next(iter(self._meters))]
            meter = self._meters[name] = CounterRates(2, (_RECEIVED, _SENT))
        meter.add(at_ns, values, unchanged_ns)

    def _queue(self, at_ns: int, unchanged_ns: int, sample: QdiscSample) -> None:
        if sample.drops is None and sample.overlimits is None and sample.backlog_bytes is None:
            return
        key = (sample.interface, sample.handle, sample.parent)
        values = (sample.drops or 0, sample.overlimits or 0, sample.backlog_bytes or 0)
        past = self._qdiscs.get(key)
        if past is None or any(new < old for new, old in zip(values[:2], past.last, strict=False)):
            self._qdiscs.pop(key, None)
            while len(self._qdiscs) >= MAX_QDISCS:
                del self._qdiscs[next(iter(self._qdiscs))]
            past = self._qdiscs[key] = CounterHistory(3, fast_looks=200, slow_looks=400, slow_ns=6 * SECOND_NS)
        if past.last and past.last_ns < unchanged_ns < at_ns:
            past.add(unchanged_ns, past.last)
        past.add(at_ns, values)

    def _forget(self, name: str) -> None:
        self._meters.pop(name, None)
        self._nics.pop(name, None)
        self._ports.pop(name, None)
        for key in [key for key in self._qdiscs if key[0] == name]:
            del self._qdiscs[key]

    def measures(self, start_ns: int, end_ns: int, *, writes: bool) -> tuple[LinkMeasure, ...]:
        """Return what every link did in a time that moved anything, the busiest first."""
        if end_ns <= start_ns:
            return ()
        found = [self._measure(name, meter, start_ns, end_ns, writes=writes) for name, meter in self._meters.items()]
        moved = [one for one in found if one is not None and (one.received_bytes or one.sent_bytes)]
        return tuple(sorted(moved, key=lambda one: -max(one.received_bytes, one.sent_bytes))[:MAX_TOLD])

    def received_bytes(self, start_ns: int, end_ns: int) -> int | None:
        """Return what the busiest one received, loopback included; None: none was looked at."""
        pairs = [meter.difference(start_ns, end_ns) for meter in self._meters.values()]
        return max((round(pair[_RECEIVED]) for pair in pairs if pair is not None), default=None)

    def _measure(
        self, name: str, meter: CounterRates, start_ns: int, end_ns: int, *, writes: bool
    ) -> LinkMeasure | None:
        seen = meter.seen(start_ns, end_ns)
        counts = meter.difference(*seen) if seen is not None else None
        if counts is None:
            return None
        nic, port = self._nics.get(name), self._ports.get(name)
        column = _SENT if writes else _RECEIVED
        if nic is not None and nic.driver in _PAIRED and counts[1 - column] > counts[column]:
            column = 1 - column
        peak = meter.peak((column,), start_ns, end_ns)
        drops, overlimits, backlog = self._shaped(name, start_ns, end_ns)
        bits = nic.speed_bits_per_second if nic is not None else port.rate_bits_per_second if port is not None else None
        kind = "loopback" if name == _LOOPBACK else "rdma" if port is not None else "nic"
        return LinkMeasure(
            name=name,
            kind=kind,
            countable=nic.countable if nic is not None else kind != "loopback",
            speed_bytes_per_second=bits / 8 if bits else None,
            received_bytes=round(counts[_RECEIVED]),
            sent_bytes=round(counts[_SENT]),
            peak_bytes_per_second=peak,
            shown_bytes_per_second=meter.ceilings[column].best(start_ns),
            steadiness=meter.steadiness((column,), start_ns, end_ns),
            active_seconds=meter.active_seconds((column,), start_ns, end_ns, max(_TRICKLE, _ACTIVE * (peak or 0.0))),
            shaped_drops=drops,
            shaped_overlimits=overlimits,
            backlog_bytes=backlog,
        )

    def _shaped(self, name: str, start_ns: int, end_ns: int) -> tuple[int | None, int | None, int | None]:
        """Return drops, overlimits and the largest backlog: a parent's numbers are those of its children, too."""
        pasts = [past for key, past in self._qdiscs.items() if key[0] == name and past.first_ns < end_ns]
        pairs = [(past.at(start_ns), past.at(end_ns)) for past in pasts]
        backlogs = [backlog for past in pasts if (backlog := past.largest(2, start_ns, end_ns)) is not None]
        return _most(pairs, 0), _most(pairs, 1), max(backlogs, default=None)


def _most(pairs: Sequence[tuple[tuple[float, ...], tuple[float, ...]]], column: int) -> int | None:
    return max((round(after[column] - before[column]) for before, after in pairs), default=None)
