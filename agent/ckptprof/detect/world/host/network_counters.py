"""What network interfaces and RDMA ports did while a checkpoint went on, and how they were held back."""

from __future__ import annotations

from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.counter_history import SECOND_NS, CounterHistory, Kept
from ckptprof.detect.world.counter_rates import CounterRates
from ckptprof.measures import LinkMeasure
from ckptprof_collectors.samples import Gone, NicInfo, NicSample, QdiscSample, RdmaInfo, RdmaSample, Sample

MAX_LINKS = 256  # 58 KB each at most; a node has a veth for each container
MAX_TOLD = 32  # links of one checkpoint, the busiest
MAX_QDISCS = 512  # 26 KB each at most
_QUEUE_KEPT = Kept(fast_looks=200, slow_looks=400, slow_ns=6 * SECOND_NS)
_RECEIVED, _SENT = 0, 1
_TRICKLE = 64 << 10  # bytes a second: names, keep-alives
_ACTIVE = 0.01  # of its best second
_LOOPBACK = "lo"
_PAIRED = frozenset(("veth",))  # what one end sends the other receives: which of them is the host's own is not known


class NetworkCounters:
    """The counters of links, and of what queues before them."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._meters: Bounded[str, CounterRates] = Bounded(MAX_LINKS)
        self.nics: dict[str, NicInfo] = {}
        self._ports: dict[str, RdmaInfo] = {}
        # drops, overlimits, backlog
        self._qdiscs: Bounded[tuple[str, int, int], CounterHistory] = Bounded(MAX_QDISCS)

    def observe(self, at_ns: int, unchanged_ns: int, sample: Sample) -> None:
        """Take one sample; up to `unchanged_ns` nothing had changed since the one before."""
        if isinstance(sample, NicSample):
            self._count(sample.interface, at_ns, unchanged_ns, (sample.rx_bytes, sample.tx_bytes))
        elif isinstance(sample, RdmaSample):
            if sample.rx_bytes is not None and sample.tx_bytes is not None:
                self._count(sample.port, at_ns, unchanged_ns, (sample.rx_bytes, sample.tx_bytes))
        elif isinstance(sample, NicInfo):
            self.nics[sample.interface] = sample
        elif isinstance(sample, RdmaInfo):
            self._ports[sample.port] = sample
        elif isinstance(sample, QdiscSample):
            self._queue(at_ns, unchanged_ns, sample)
        elif isinstance(sample, Gone) and sample.entity in {"interface", "port"}:
            self._forget(sample.name)

    def _count(self, name: str, at_ns: int, unchanged_ns: int, values: tuple[int, int]) -> None:
        self._meters.update_of(name, _new_link).add(at_ns, values, unchanged_ns)

    def _queue(self, at_ns: int, unchanged_ns: int, sample: QdiscSample) -> None:
        if sample.drops is None and sample.overlimits is None and sample.backlog_bytes is None:
            return
        key = (sample.interface, sample.handle, sample.parent)
        values = (sample.drops or 0, sample.overlimits or 0, sample.backlog_bytes or 0)
        self._qdiscs.update_of(key, _new_queue).add(at_ns, values, unchanged_ns)

    def _forget(self, name: str) -> None:
        self._meters.pop(name, None)
        self.nics.pop(name, None)
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

    def around(self, start_ns: int, end_ns: int) -> dict[str, tuple[int, int]]:
        """Return what each interface received and sent, from the look before a time to the look after another.

        Not of RDMA ports: these have a slash in their name, which no interface has (net/core/dev.c, dev_valid_name).
        """
        found = {}
        for name, meter in sorted(self._meters.items()):
            pair = meter.around(start_ns, end_ns) if "/" not in name else None
            if pair is not None:
                (received, sent), (received_after, sent_after) = pair
                found[name] = received_after - received, sent_after - sent
        return found

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
        nic, port = self.nics.get(name), self._ports.get(name)
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
        counts = [count for past in pasts if (count := past.difference(start_ns, end_ns)) is not None]
        drops, overlimits = (max((round(count[i]) for count in counts), default=None) for i in (0, 1))
        backlogs = [backlog for past in pasts if (backlog := past.largest(2, start_ns, end_ns)) is not None]
        return drops, overlimits, max(backlogs, default=None)


def _new_link() -> CounterRates:
    return CounterRates(2, (_RECEIVED, _SENT))


def _new_queue() -> CounterHistory:
    return CounterHistory(3, _QUEUE_KEPT, rising=2)
