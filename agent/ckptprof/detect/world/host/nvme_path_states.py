"""The paths to NVMe namespaces over fabrics, and which of them were unusable during a checkpoint."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from ckptprof.detect.tolerances import FEW, MAX_PER_ITEM
from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.counter_history import SECOND_NS
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.spans import Span, clip, length
from ckptprof.measures import PathMeasure
from ckptprof_collectors.samples import NvmePath

LIVE = "live"
GONE = "gone"  # its controller was removed


class _PathState(NamedTuple):
    since_ns: int
    state: str | None
    ana_state: str | None


class NvmePathStates:
    """Each path as last reported, and its earlier states."""

    def __init__(self) -> None:
        self._last: Bounded[str, NvmePath] = Bounded(MAX_ENTRIES)
        self._states: Bounded[str, deque[_PathState]] = Bounded(MAX_ENTRIES, lambda: deque(maxlen=MAX_PER_ITEM))

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for one in samples.by_kind(NvmePath):
            before = self._last.get(one.device)
            if before is not None and (before.head, before.target) != (one.head, one.target):
                self._states.pop(one.device, None)  # another path has its name
            self._last[one.device] = one
            self._states.touch(one.device).append(_PathState(samples.at_ns, one.state, one.ana_state))

    def record_removal(self, device: str, at_ns: int) -> None:
        """Record that a path was removed: an earlier checkpoint may still be reported."""
        if device in self._last:
            self._states.touch(device).append(_PathState(at_ns, GONE, None))

    def targets(self, devices: Collection[str]) -> frozenset[tuple[str, int]]:
        """Address and port of the targets of the paths to these devices."""
        paths = (one for one in self._last.values() if one.head in devices)
        return frozenset((one.target, one.port) for one in paths if one.target is not None and one.port is not None)

    def measures(self, devices: Collection[str], start_ns: int, end_ns: int) -> tuple[PathMeasure, ...]:
        """Measure the paths to these devices in a time, those unusable for longest first."""
        paths = [one for one in self._last.values() if one.head in devices]
        found = [measure for one in paths if (measure := self._measure(one, start_ns, end_ns)) is not None]
        return tuple(sorted(found, key=lambda one: (-(one.lost_seconds or 0.0), one.device))[:FEW])

    def unreachable_seconds(self, devices: Collection[str], start_ns: int, end_ns: int) -> float | None:
        """Seconds without any usable path to these devices; None: no path, or unknown."""
        unreachable: list[Span] | None = None
        for path in self._last.values():
            states = list(_with_ends(self._states[path.device], end_ns)) if path.head in devices else []
            in_window = [
                (state, span)
                for state, until_ns in states
                for span in clip([(state.since_ns, until_ns)], [(start_ns, end_ns)])
            ]
            if all(state.state == GONE for state, _ in in_window):
                continue
            if all(state.state is None for state, _ in in_window):
                return None
            lost = [span for state, span in in_window if state.state not in (LIVE, None)]
            unreachable = lost if unreachable is None else clip(unreachable, lost)
        return None if unreachable is None else length(unreachable) / SECOND_NS

    def _measure(self, one: NvmePath, start_ns: int, end_ns: int) -> PathMeasure | None:
        states = self._states[one.device]
        spans = [
            (min(end_ns, until_ns) - max(start_ns, state.since_ns), state)
            for state, until_ns in _with_ends(states, end_ns)
        ]
        in_window = [(span_ns, state) for span_ns, state in spans if span_ns > 0]
        if all(state.state == GONE for _, state in in_window):  # removed before, or added after
            return None
        lost = [(span_ns, state.state) for span_ns, state in in_window if state.state not in (LIVE, None)]
        access: Counter[str | None] = Counter()
        for span_ns, state in in_window:
            access[state.ana_state] += span_ns if state.state != GONE else 0
        is_known = any(state.state is not None for _, state in in_window)
        return PathMeasure(
            device=one.device,
            transport=one.transport,
            target=one.target,
            port=one.port,
            link=one.link,
            state=max(lost, key=lambda one: one[0])[1] if lost else LIVE if is_known else None,
            lost_seconds=sum(span_ns for span_ns, _ in lost) / SECOND_NS if is_known else None,
            ana_state=access.most_common(1)[0][0],
        )


def _with_ends(states: Iterable[_PathState], end_ns: int) -> Iterable[tuple[_PathState, int]]:
    """Yield each state with its end."""
    return ((state, after.since_ns) for state, after in pairwise([*states, _PathState(end_ns, None, None)]))
