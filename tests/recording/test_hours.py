"""Hours of everyday work, replayed: what detection keeps stays within its budget, and hardly grows."""

from __future__ import annotations

import pytest
from tests.recording.shifted import one_after_the_other
from tests.recording.told import STREAMS, SUFFIX, captures

from ckptprof.detect.pipeline import Detector

_HALF_SECONDS = 2400.0
_GROWTH_BYTES_PER_HOUR = 2_500_000  # of files and events that are remembered by number, not by age


@pytest.mark.slow
def test_hours_of_everyday_work_hardly_grow() -> None:
    """Each turn has other processes and files, as on a real host; what is over goes again."""
    paths = [STREAMS / f"{name}{SUFFIX}" for name in captures() if name.startswith("work-") and name.endswith(".trace")]
    header, frames = one_after_the_other(paths[::3], 2 * _HALF_SECONDS)
    detector, kept = Detector(header), []
    for frame in frames:
        detector.feed(frame)
        if frame.at_ns - header.at_ns >= (len(kept) + 1) * _HALF_SECONDS * 1e9:
            kept.append(detector.kept_bytes)

    assert max(kept) < 16_000_000
    assert kept[-1] - kept[0] < _GROWTH_BYTES_PER_HOUR * _HALF_SECONDS / 3600
