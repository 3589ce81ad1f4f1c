"""Requests to disks during a checkpoint: number, sizes, order and latency, as the trace counts them.

Disks are identified by their numbers: a name may pass to another disk, and the kernel's counters go by numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from ckptprof.detect.tolerances import LATE_COUNTER_NS
from ckptprof.detect.world.counter_history import CounterHistories, CounterHistory
from ckptprof.model import DeviceShare
from ckptprof_collectors.samples import BlockActivity, DeviceInfo

_FIRST_BUCKET, _BUCKETS = 8, 32  # log2 of nanoseconds: no request takes less than 256 ns, the last holds 9 minutes


class DeviceRequests:
    """Recent counters of each disk and direction: at most 0.3 MB each."""

    def __init__(self) -> None:
        self._zero = (0,) * (4 + _BUCKETS + 1)  # counters, and a gauge
        self._histories: CounterHistories[tuple[int, int, bool]] = CounterHistories(
            lambda: CounterHistory(len(self._zero), rising=len(self._zero) - 1)
        )

    def observe(self, at_ns: int, sample: BlockActivity) -> None:
        """Ingest the counters of one disk and direction."""
        key = (sample.major, sample.minor, sample.writes)
        history = self._histories.touch(key)
        if not history:  # idle disks are not reported; counters fall when tracing starts again
            history.add(0, self._zero)
        history.add(at_ns, _counters_of(sample))

    def enrich(
        self, share: DeviceShare, disk: DeviceInfo, window: tuple[int, int, int], *, writes: bool
    ) -> DeviceShare:
        """Add the requests of a disk to its share, unless they were not observed.

        `window`: start and end of the checkpoint, and now.
        """
        start_ns, end_ns, now_ns = window
        history = self._histories[disk.major, disk.minor, writes]
        if not history or start_ns < history.first_ns:
            return share
        if history.last_ns <= end_ns and now_ns - end_ns < LATE_COUNTER_NS:
            return share  # the last requests were not reported yet
        pair = history.values_around(start_ns, end_ns)
        if pair is None:
            return share
        requests, transferred, issued, sequential, *latencies, _ = (
            after - before for before, after in zip(*pair, strict=True)
        )
        return msgspec.structs.replace(
            share,
            requests=requests,
            mean_request_bytes=transferred / requests if requests else None,
            sequential_share_bytes=min(1.0, sequential / issued) if issued else None,
            latency_p50_seconds=_latency_quantile(latencies, 0.5),
            latency_p99_seconds=_latency_quantile(latencies, 0.99),
            max_in_flight=history.largest(-1, start_ns, end_ns),
        )


def _counters_of(sample: BlockActivity) -> tuple[int, ...]:
    latencies = [0] * _BUCKETS
    for low_ns, requests in sample.latencies:
        latencies[min(max(0, low_ns.bit_length() - 1 - _FIRST_BUCKET), _BUCKETS - 1)] += requests
    return (sample.requests, sample.bytes, sample.issued_bytes, sample.sequential_bytes, *latencies, sample.in_flight)


def _latency_quantile(latencies: Sequence[int], share: float) -> float | None:
    """Quantile of the latency in seconds: the geometric middle of its bucket; None: no requests."""
    wanted = math.ceil(share * sum(latencies))
    if not wanted:
        return None
    bucket = bisect_left(list(accumulate(latencies)), wanted)
    return float(2 ** (_FIRST_BUCKET + bucket + 0.5)) / 1e9
