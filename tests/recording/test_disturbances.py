"""A clock that is set, and a sampler that is stopped, while a job saves: no event is lost, stretched or invented.

Durations are of the monotonic clock; a file's stamps are of the wall clock: those of before and after a jump are told
apart. While a sampler is stopped the kernel counts on, and nobody looks.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import msgspec
import pytest

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint, Kind
from ckptprof.recording import Frame, Header, read_file
from ckptprof_collectors.samples import (
    FileEvent,
    FileFact,
    FileLifeEvent,
    FileScan,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    Sample,
    SamplerHealth,
    StackSample,
    ThreadSample,
    ThreadTime,
)

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
HOUR_NS = 3600 * 1_000_000_000
TOLERANCE_NS = 250_000_000


def found(header: Header, frames: list[Frame]) -> list[Checkpoint]:
    """Return what a detector finds, as it was last told, in order of its telling."""
    detector = Detector(header)
    told = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)]
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


STOP_NS = 5_000_000_000
_EVENTS = (FileLifeEvent, FileEvent)
_LOOKS = (StackSample, ThreadSample)  # of a moment that is over
_OF_THE_LIVING = (ProcessInfo, ProcessIo, ProcessStat, ThreadTime, FileScan)
_NAMES = (  # what an entity is known by
    "pid", "start_ticks", "tid", "session", "device", "inode", "path", "interface", "port", "mount_id", "writes",
    "remote", "entity", "name", "handle", "parent", "cgroup", "collector",
)  # fmt: skip
_AWAKE = SamplerHealth(  # older captures have no account of their sampler
    ticks=1, late_ticks=1, lateness_ns=0, dropped_frames=0, cpu_ns=0, rss_bytes=None, watched_processes=0,
    known_processes=0, read_ns={}, faults={}, starved_ns=0,
)  # fmt: skip


def with_stop(frames: list[Frame], from_ns: int, until_ns: int) -> list[Frame]:
    """Return the frames of a sampler that came to no turn meanwhile: what was counted and queued is told afterwards."""
    before = [frame for frame in frames if frame.at_ns < from_ns]
    missed = [sample for frame in frames if from_ns <= frame.at_ns < until_ns for sample in frame.samples]
    first, *after = [frame for frame in frames if frame.at_ns >= until_ns]
    late_ns = first.at_ns - before[-1].at_ns
    latest: dict[Hashable, Sample] = {}
    for number, sample in enumerate(missed):
        latest[number if isinstance(sample, _EVENTS) else _known_by(sample)] = sample
    ended = {(one.pid, one.start_ticks) for one in latest.values() if isinstance(one, ProcessExit)}
    told = [
        msgspec.structs.replace(one, at_ns=until_ns) if isinstance(one, FileEvent) else one
        for one in latest.values()
        if not isinstance(one, _LOOKS) and not (isinstance(one, _OF_THE_LIVING) and (one.pid, one.start_ticks) in ended)
    ]
    first = msgspec.structs.replace(first, samples=(*told, *first.samples, _AWAKE))
    return [*before, *(_starved(frame, late_ns) for frame in (first, *after))]


def _known_by(sample: Sample) -> Hashable:
    return (type(sample), *(getattr(sample, name, None) for name in _NAMES))


def _starved(frame: Frame, late_ns: int) -> Frame:
    """Return a frame whose account of the sampler, if there is one, has the time in which it was stopped."""
    samples = [
        msgspec.structs.replace(one, starved_ns=(one.starved_ns or 0) + late_ns)
        if isinstance(one, SamplerHealth)
        else one
        for one in frame.samples
    ]
    return msgspec.structs.replace(frame, samples=tuple(samples))


STOPPED = ["safetensors-numpy", "torch-dcp", "control-gather", "fault-device-direct-xfs", "framework-hf-trainer"]


@pytest.mark.parametrize("name", [*STOPPED, *(f"{name}.trace" for name in STOPPED)])
def test_a_sampler_that_is_stopped_for_five_seconds_in_a_save_costs_no_save(name: str) -> None:
    """None is invented, and that save is told whole, with what may have been missed of it.

    At trace the others are, too; polled, what began and ended meanwhile is not seen.
    """
    header, read = read_file(STREAMS / f"{name}.ckptrec.gz")
    frames = list(read)
    steady = found(header, frames)
    save = max((one for one in steady if one.kind is Kind.SAVE), key=lambda one: one.end_ns - one.start_ns)
    middle_ns = (save.start_ns + save.end_ns) // 2 - header.wall_ns + header.at_ns

    stopped = found(header, with_stop(frames, middle_ns, middle_ns + STOP_NS))

    before, after = ([(one.kind, one.step, one.status, one.path) for one in told] for told in (steady, stopped))
    assert set(after) <= set(before)
    if name.endswith(".trace"):
        assert sorted(map(str, after)) == sorted(map(str, before))
    (touched,) = [one for one in stopped if (one.kind, one.path) == (save.kind, save.path)]
    assert touched.bytes == pytest.approx(save.bytes, rel=0.02)
    assert touched.start_ns == pytest.approx(save.start_ns, abs=TOLERANCE_NS)
    assert any("the sampler was late" in sentence for sentence in touched.limitations)
