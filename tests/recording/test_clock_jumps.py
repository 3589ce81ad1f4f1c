"""A clock that is set while a job saves: durations are of the monotonic clock, so no event is lost or stretched.

A file's stamps are of the wall clock: those of before and after a jump are told apart.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof.recording import Frame, Header, read_file
from ckptprof_collectors.samples import FileFact, FileScan

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
HOUR_NS = 3600 * 1_000_000_000
TOLERANCE_NS = 250_000_000


def found(header: Header, frames: list[Frame]) -> list[Checkpoint]:
    """Return what a detector finds, as it was last told, in order of its telling."""
    detector = Detector(header)
    told = [checkpoint for frame in frames for checkpoint in detector.feed(frame)]
    return list({checkpoint.uid: checkpoint for checkpoint in [*told, *detector.finish()]}.values())


def with_jump(frames: list[Frame], at_ns: int, jump_ns: int) -> list[Frame]:
    """Return the frames as they had been if the wall clock had been set by `jump_ns` at a monotonic time."""
    jumped = []
    for frame in frames:
        if frame.at_ns >= at_ns:
            samples = tuple(
                _stamped(sample, jump_ns, frame.wall_ns - (frame.at_ns - at_ns)) for sample in frame.samples
            )
            frame = msgspec.structs.replace(frame, wall_ns=frame.wall_ns + jump_ns, samples=samples)  # noqa: PLW2901 - the same one, later
        jumped.append(frame)
    return jumped


def _stamped(sample: object, jump_ns: int, since_ns: int) -> object:
    """Return a sample whose stamps of files, where they are later than the jump, are of the new clock."""

    def moved(stamp_ns: int | None) -> int | None:
        return stamp_ns + jump_ns if stamp_ns is not None and stamp_ns >= since_ns else stamp_ns

    if isinstance(sample, FileFact):
        return msgspec.structs.replace(
            sample,
            birth_ns=moved(sample.birth_ns),
            modified_ns=moved(sample.modified_ns),
            changed_ns=moved(sample.changed_ns),
            accessed_ns=moved(sample.accessed_ns),
        )
    if isinstance(sample, FileScan):
        files = tuple(msgspec.structs.replace(file, modified_ns=moved(file.modified_ns)) for file in sample.files)
        return msgspec.structs.replace(sample, files=files)
    return sample


NAMES = ["torch-save", "torch-dcp", "overwritten-last"]


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS, 3 * 1_000_000_000], ids=["ahead", "back", "by three seconds"])
@pytest.mark.parametrize("between", [False, True], ids=["during", "between"])
@pytest.mark.parametrize("name", [*NAMES, *(f"{name}.trace" for name in (*NAMES, "overwritten-names"))])
def test_a_clock_that_is_set_changes_no_save(name: str, between: bool, jump_ns: int) -> None:  # noqa: FBT001 - a case
    """As many events, of the same kinds, bytes and durations, as with a clock that goes on."""
    header, read = read_file(STREAMS / f"{name}.ckptrec.gz")
    frames = list(read)
    steady = found(header, frames)
    first, second = sorted(steady, key=lambda checkpoint: checkpoint.start_ns)[:2]
    middle_ns = (first.end_ns + second.start_ns if between else second.start_ns + second.end_ns) // 2

    jumped = found(header, with_jump(frames, middle_ns - header.wall_ns + header.at_ns, jump_ns))

    assert [(c.kind, c.step, c.bytes) for c in jumped] == [(c.kind, c.step, c.bytes) for c in steady]
    for one, other in zip(jumped, steady, strict=True):
        assert one.end_ns - one.start_ns == pytest.approx(other.end_ns - other.start_ns, abs=TOLERANCE_NS)
