"""Saves that GPUDirect Storage moves past all calls, played on the counters of a process: no such driver is here."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest
from tests.detect.stage import MIB, Stage, changed, play

from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.model import Checkpoint, Kind
from ckptprof.verdicts import Limit
from ckptprof_collectors.samples import (
    FileActivity,
    FileScan,
    MountInfo,
    ProcessIo,
    Sample,
    ThreadSample,
)

SIZE = 400 * MIB
_IOCTL = 16


def played(*, hidden: bool = True, opened: bool = True, reads: bool = False, trace: bool = False) -> list[Checkpoint]:
    """Return what is found of a save of ten seconds, or a restore, by a process that may have the driver open."""
    stage = Stage(hz=10.0, trace=trace)
    trainer = stage.process()
    flags = (os.O_RDONLY if reads else os.O_WRONLY) | os.O_DIRECT
    if reads:
        stage.read(trainer, "/ckpt/step_1.pt", 8.0, 10.0, SIZE)
    else:
        stage.write(trainer, "/ckpt/step_1.pt", 8.0, 10.0, SIZE, flags=flags)
    key = trainer.pid, trainer.info.start_ticks
    looks: list[tuple[float, Sample]] = [
        (at / 10, ThreadSample(*key, trainer.pid, "python3", at * 1000, 0, 0, 0, 0, None, "D", _IOCTL, ""))
        for at in range(80, 185)
    ]
    stage.extra = sorted([(0.05, MountInfo(1, 259, 0, "/", "/ckpt", "ext4", "/dev/nvme0n1", "nvme0n1", None)), *looks],
                         key=lambda pair: pair[0])  # fmt: skip

    def past_all_calls(sample: Sample) -> Sample | None:
        if isinstance(sample, FileActivity) and hidden:
            return None
        if isinstance(sample, ProcessIo) and hidden:
            return msgspec.structs.replace(sample, write_chars=0, write_syscalls=0, read_chars=0, read_syscalls=0)
        if isinstance(sample, FileScan):
            files = tuple(
                msgspec.structs.replace(file, position=0 if hidden else file.position, flags=flags)
                for file in sample.files
            )
            return msgspec.structs.replace(sample, files=files, gpudirect=opened)
        return sample

    return play(stage.header(), changed(stage.frames(25.0), past_all_calls))


def only(**how: Any) -> Checkpoint:
    """Return the one checkpoint that is found."""
    (found,) = played(**how)
    return found


def past(found: Checkpoint) -> list[str]:
    """Return what is said of what went past all calls."""
    return [one for one in found.limitations if "nvidia-fs" in one]


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("reads", [False, True])
def test_what_the_driver_moves_is_found_and_said_to_be_hidden(*, reads: bool, trace: bool) -> None:
    """By the bytes that its process wrote or fetched: no call asked for them, which a trace would have counted."""
    found = only(reads=reads, trace=trace)

    assert found.kind is (Kind.RESTORE if reads else Kind.SAVE)
    assert found.bytes == pytest.approx(SIZE, rel=0.02)
    assert found.pattern.engine == "nvfs"
    assert past(found) == [
        "offset, size and time of its operations: nvidia-fs (GPUDirect Storage) transferred it without any call"
    ]


def test_who_waits_in_the_driver_waits_for_storage() -> None:
    """Its call is one of a driver, which has no word of its own."""
    verdict = diagnose(only()).verdict

    assert verdict is not None
    assert verdict.limit is Limit.DEVICE


@pytest.mark.parametrize(
    "how",
    [
        {"hidden": False},  # calls moved it, by a process that has the driver open
        {"opened": False},  # io_uring moves past what its process counts as calls, too
    ],
)
def test_what_calls_move_is_not_said_to_be_hidden(how: dict[str, Any]) -> None:
    """Nor what somebody moves who has not the driver open."""
    found = only(**how)

    assert found.pattern.engine is None
    assert past(found) == []


def test_what_the_trace_counts_is_not_hidden() -> None:
    """The driver is open, and each call is seen."""
    found = only(hidden=False, trace=True)

    assert found.pattern.engine is None
    assert found.bytes == pytest.approx(SIZE, rel=0.02)
