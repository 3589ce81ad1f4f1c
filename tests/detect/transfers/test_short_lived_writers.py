"""Children that write one file each and end before anybody can describe them: their parent saves."""

from __future__ import annotations

import pytest
from tests.detect.tracer import activity, mono

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof_collectors.samples import Frame, ProcessInfo

KB = 1 << 10
FILES = 60
TRAINER = ProcessInfo(100, 1000, 1, 0, "python", "train.py", ("torch",), {}, None)


def detected(comm: str, info: ProcessInfo = TRAINER) -> tuple[list[Checkpoint], Detector]:
    """Return what is made of a step that children of a process write, and the detector."""
    header = Header(
        uid="u", host="h", boot_id="b", kernel="k", ckptprof="0", level="trace", level_reason="", at_ns=mono(0),
        wall_ns=mono(0), ticks_per_second=100, page_size=4096, monitor_pids=(),
    )  # fmt: skip
    detector = Detector(header)
    detector.ingest(Frame(mono(1), mono(1), (), (info,)))
    shards = [
        activity(
            1000 + number, f"/run/step_100/shard_{number:05d}.bin", 2.0 + number / 100, 2.002 + number / 100, 40 * KB,
            inode=1000 + number, comm=comm, parent_pid=100,
        )
        for number in range(FILES)
    ]  # fmt: skip
    detector.ingest(Frame(mono(3), mono(3), ("trace",), tuple(shards)))
    found = [
        one for second in range(4, 90) for one in detector.ingest(Frame(mono(second), mono(second), ("trace",), ()))
    ]
    return [*found, *detector.finish()], detector


@pytest.mark.parametrize("comm", ["python", "pt_main_thread"])
def test_forks_of_a_trainer_are_what_it_is(comm: str) -> None:
    """One save, of all files, by a process with torch."""
    (save,), _ = detected(comm)

    assert (save.kind.value, save.step, save.files, save.bytes) == ("save", 100, FILES, FILES * 40 * KB)
    assert "runtime" in {reason.name for reason in save.evidence}


@pytest.mark.parametrize("comm", ["cc1plus", "protoc"])
def test_programs_that_a_trainer_starts_are_not(comm: str) -> None:
    """A compiler, known or not, has nothing of its parent's loaded."""
    found, detector = detected(comm)

    assert found == []
    assert all(reason.name != "runtime" or reason.weight < 0 for one in detector.rejected for reason in one.evidence)


def test_forks_of_a_script_that_does_not_train_are_not() -> None:
    """They are described by their parent, too."""
    found, _ = detected("python", ProcessInfo(100, 1000, 1, 0, "python", "split.py", (), {}, None))

    assert found == []
