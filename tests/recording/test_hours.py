"""Hours of everyday work, replayed: what detection keeps stays within its budget, and hardly grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.recording.told import STREAMS, SUFFIX, captures

from ckptprof.detect.pipeline import Detector
from ckptprof.recording import Header, read_file
from ckptprof_collectors.samples import FileScan, Frame, GpuUse

_HALF_SECONDS = 2400.0
_GROWTH_BYTES_PER_HOUR = 2_500_000  # of files and events that are remembered by number, not by age
_MONOTONIC = (
    "at_ns", "first_ns", "last_ns", "closed_ns", "sent_ns", "send_start_ns", "received_ns", "receive_start_ns",
)  # fmt: skip
_WALL = ("birth_ns", "modified_ns", "changed_ns", "accessed_ns")
_PAUSE_NS = 5_000_000_000
_INODES = 10_000_000  # of one recording


class _Shift:
    """What is added to the samples of one recording."""

    def __init__(self, turn: int, monotonic_ns: int, wall_ns: int, ticks: int) -> None:
        self._turn = turn
        self._added = {
            **dict.fromkeys(_MONOTONIC, monotonic_ns),
            **dict.fromkeys(_WALL, wall_ns),
            "start_ticks": ticks,
            "inode": turn * _INODES,
        }
        self._monotonic_ns = monotonic_ns

    def of(self, sample: Any) -> Any:
        """Return a sample, or a file of one, as it would be then."""
        changes: dict[str, Any] = {}
        for name in sample.__struct_fields__:
            value = getattr(sample, name)
            if name in self._added and value:
                changes[name] = value + self._added[name]
            elif name in ("path", "new_path") and value is not None and value.startswith("/"):
                changes[name] = f"/turn{self._turn}{value}"
            elif name == "session":
                changes[name] = f"{value}@{self._turn}"
        if isinstance(sample, FileScan):
            changes["files"] = tuple(map(self.of, sample.files))
            changes["mapped"] = None if sample.mapped is None else tuple(map(self.of, sample.mapped))
        elif isinstance(sample, GpuUse):
            changes["points"] = tuple((at_ns + self._monotonic_ns, busy) for at_ns, busy in sample.points)
        return msgspec.structs.replace(sample, **changes) if changes else sample


def one_after_the_other(paths: Sequence[Path], seconds: float) -> tuple[Header, Iterator[Frame]]:
    """Return the header of the first recording, and the frames of all, again and again until the time is over.

    Each has later times, other processes and other files than the one before.
    """
    first, _ = read_file(paths[0])
    return first, _frames(first, paths, seconds)


def _frames(first: Header, paths: Sequence[Path], seconds: float) -> Iterator[Frame]:
    at_ns, wall_ns, turn = first.at_ns, first.wall_ns, 0
    while True:
        for path in paths:
            turn += 1
            header, frames = read_file(path)
            later_ns = at_ns + _PAUSE_NS - header.at_ns
            wall_later_ns = wall_ns + _PAUSE_NS - header.wall_ns
            shift = _Shift(turn, later_ns, wall_later_ns, later_ns * header.ticks_per_second // 1_000_000_000)
            for frame in frames:
                at_ns, wall_ns = frame.at_ns + later_ns, frame.wall_ns + wall_later_ns
                yield Frame(at_ns, wall_ns, frame.read, tuple(map(shift.of, frame.samples)))
            if at_ns - first.at_ns >= seconds * 1e9:
                return


@pytest.mark.slow
def test_hours_of_everyday_work_hardly_grow() -> None:
    """Each turn has other processes and files, as on a real host; what is over goes again."""
    paths = [STREAMS / f"{name}{SUFFIX}" for name in captures() if name.startswith("work-") and name.endswith(".trace")]
    header, frames = one_after_the_other(paths[::3], 2 * _HALF_SECONDS)
    detector, kept = Detector(header), []
    for frame in frames:
        detector.ingest(frame)
        if frame.at_ns - header.at_ns >= (len(kept) + 1) * _HALF_SECONDS * 1e9:
            kept.append(detector.retained_bytes)

    assert max(kept) < 8_000_000
    assert kept[-1] - kept[0] < _GROWTH_BYTES_PER_HOUR * _HALF_SECONDS / 3600
