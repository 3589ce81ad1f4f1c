"""Small files of a save are written more than once while the others come: that begins no further save."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, Stage

from ckptprof.model import Kind

LEVELS = pytest.mark.parametrize("traced", [False, True])


@LEVELS
def test_a_manifest_that_is_written_anew_begins_no_further_save(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """Orbax writes its metadata first and last, and its manifest after each file: one save for each step."""
    stage = Stage(trace=traced)
    job = stage.process()
    for step, at_s in ((11, 2.0), (22, 9.0)):
        tmp, done = f"/run/{step}.orbax-checkpoint-tmp", f"/run/{step}"
        small = (("_CHECKPOINT_METADATA", 0.0), ("default/manifest.ocdbt", 0.2), ("default/manifest.ocdbt", 0.95),
                 ("_CHECKPOINT_METADATA", 2.3))  # fmt: skip
        for name, after_s in small:
            stage.write(
                job, f"{tmp}/{name}", at_s + after_s, 0.05, 200, held_s=0.05, rename_to=f"{done}/{name}", magic=None
            )
        for number in range(2):
            name = f"default/d/{number}b9c4e8d1a2f3b4c5d6e7f8091a2b3c4"
            stage.write(
                job, f"{tmp}/{name}", at_s + 0.1 + number, 0.8, 60 * MIB, rename_to=f"{done}/{name}", magic=None
            )

    saves = stage.play(40)

    assert [(save.kind, save.step, save.path) for save in saves] == [
        (Kind.SAVE, 11, "/run/11"),
        (Kind.SAVE, 22, "/run/22"),
    ]
    assert all(120 * MIB <= save.bytes < 121 * MIB for save in saves)


@LEVELS
def test_the_same_step_that_is_saved_again_is_another_save(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """Its manifest is small, its tensors are not."""
    stage = Stage(trace=traced)
    job = stage.process()
    for at_s in (2.0, 6.0):
        stage.write(job, "/run/step-8/.metadata", at_s, 0.05, 4096, magic=None)
        stage.write(job, "/run/step-8/__0_0.distcp", at_s + 0.1, 1.0, 60 * MIB)

    saves = stage.play(40)

    assert [(save.step, save.bytes // MIB) for save in saves] == [(8, 60)] * 2
