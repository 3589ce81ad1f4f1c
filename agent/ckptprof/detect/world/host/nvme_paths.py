"""The paths to NVMe namespaces over fabrics, and which of them were unusable during a checkpoint."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.tolerances import FEW, MAX_EACH
from ckptprof.detect.world.bounded import MAX_THINGS, Bounded
from ckptprof.detect.world.counter_history import SECOND_NS
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.spans import Span, cut, length
from ckptprof.measures import PathMeasure
from ckptprof_collectors.samples import NvmePath

LIVE = "live"
GONE = "gone"  # its controller was removed


class _State(NamedTuple):
    since_ns: int
    state: str | None
    ana_state: str | None


class NvmePaths:
    """Each path as last reported, and its earlier states."""

    def __init__(self) -> None:
        self._last: Bounded[str, NvmePath] = Bounded(MAX_THINGS)
        self._pasts: Bounded[str, deque[_State]] = Bounded(MAX_THINGS, lambda: deque(maxlen=MAX_EACH))

    def take(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for one in samples.of(NvmePath):
            before = self._last.get(one.device)
            if before is not None and (before.head, before.target) != (one.head, one.target):
                self._pasts.pop(one.device, None)  # another path has its name
            self._last[one.device] = one
            self._pasts.update_of(one.device).append(_State(samples.at_ns, one.state, one.ana_state))

    def gone(self, device: str, at_ns: int) -> None:
        """Record that a path was removed: an earlier checkpoint may still be reported."""
        if device in self._last:
            self._pasts.update_of(device).append(_State(at_ns, GONE, None))

    def targets(self, devices: Collection[str]) -> frozenset[tuple[str, int]]:
        """Address and port of the targets of the paths to these devices."""
        theirs = (one for one in self._last.values() if one.head in devices)
        return frozenset((one.target, one.port) for one in theirs if one.target is not None and one.port is not None)

    def measures(self, devices: Collection[str], start_ns: int, end_ns: int) -> tuple[PathMeasure, ...]:
        """Measure the paths to these devices in a time, those unusable for longest first."""
        theirs = [one for one in self._last.values() if one.head in devices]
        found = [told for one in theirs if (told := self._measure(one, start_ns, end_ns)) is not None]
        return tuple(sorted(found, key=lambda one: (-(one.lost_seconds or 0.0), one.device))[:FEW])

    def cut_off_seconds(self, devices: Collection[str], start_ns: int, end_ns: int) -> float | None:
        """Seconds without any usable path to these devices; None: no path, or unknown."""
        without: list[Span] | None = None
        for path in self._last.values():
            pasts = list(_until(self._pasts[path.device], end_ns)) if path.head in devices else []
            held = [
                (was, span) for was, until_ns in pasts for span in cut([(was.since_ns, until_ns)], [(start_ns, end_ns)])
            ]
            if all(was.state == GONE for was, _ in held):
                continue
            if all(was.state is None for was, _ in held):
                return None
            lost = [span for was, span in held if was.state not in (LIVE, None)]
            without = lost if without is None else cut(without, lost)
        return None if without is None else length(without) / SECOND_NS

    def _measure(self, one: NvmePath, start_ns: int, end_ns: int) -> PathMeasure | None:
        past = self._pasts[one.device]
        spans = [(min(end_ns, until_ns) - max(start_ns, was.since_ns), was) for was, until_ns in _until(past, end_ns)]
        held = [(span_ns, was) for span_ns, was in spans if span_ns > 0]
        if all(was.state == GONE for _, was in held):  # removed before, or added after
            return None
        lost = [(span_ns, was.state) for span_ns, was in held if was.state not in (LIVE, None)]
        access: Counter[str | None] = Counter()
        for span_ns, was in held:
            access[was.ana_state] += span_ns if was.state != GONE else 0
        known = any(was.state is not None for _, was in held)
        return PathMeasure(
            device=one.device,
            transport=one.transport,
            target=one.target,
            port=one.port,
            link=one.link,
            state=max(lost, key=lambda one: one[0])[1] if lost else LIVE if known else None,
            lost_seconds=sum(span_ns for span_ns, _ in lost) / SECOND_NS if known else None,
            ana_state=access.most_common(1)[0][0],
        )


def _until(past: Iterable[_State], end_ns: int) -> Iterable[tuple[_State, int]]:
    """Yield each state with its end."""
    return ((was, after.since_ns) for was, after in pairwise([*past, _State(end_ns, None, None)]))
