"""What is said to be out of sight of a checkpoint."""

from __future__ import annotations

import msgspec
import pytest
from tests.detect.stage import MIB, Stage, changed, play

from ckptprof_collectors.samples import ProcessIo, Sample


@pytest.mark.parametrize(("beside", "told"), [(700 << 10, False), (3 * MIB, True)], ids=["logs", "a file"])
def test_what_was_written_and_not_found_is_told_unless_it_is_logs(beside: int, told: bool) -> None:  # noqa: FBT001 # a parameter
    """A job writes its logs and metrics during a save as well: nothing of a small checkpoint lacks for that."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 0.4, 4 * MIB)

    def with_more(sample: Sample) -> Sample:
        if not isinstance(sample, ProcessIo) or sample.write_chars < 2 * MIB:
            return sample
        return msgspec.structs.replace(sample, write_chars=sample.write_chars + beside)

    (found,) = play(stage.header(), changed(stage.frames(8.0), with_more))

    assert any("of it to the files found" in sentence for sentence in found.limitations) is told
