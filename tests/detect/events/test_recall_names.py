"""A restore of a name that every save uses anew takes framework and step from the save that was seen last."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, Stage

from ckptprof.detect.tolerances import MAX_FILES
from ckptprof.detect.transfers.recent_files import SavedFiles, SavedNames
from ckptprof.model import Kind

LEVELS = pytest.mark.parametrize("traced", [False, True])


@LEVELS
def test_a_restore_of_the_last_checkpoint_is_of_the_last_save(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """Lightning's `last.ckpt` bears no step and looks like torch.save: what wrote it tells."""
    stage = Stage(trace=traced)
    job = stage.process()
    for number, step in enumerate((10, 20)):
        at_s = 2.0 + 6 * number
        stage.write(job, f"/run/epoch=0-step={step}.ckpt", at_s, 0.5, 80 * MIB)
        stage.write(job, "/run/last.ckpt", at_s + 0.6, 0.5, 80 * MIB)
    stage.read(job, "/run/last.ckpt", 20.0, 1.0, 80 * MIB)

    *saves, restore = stage.play(40)

    assert [(save.kind, save.step) for save in saves] == [(Kind.SAVE, 10), (Kind.SAVE, 20)]
    assert (restore.kind, restore.path, restore.step) == (Kind.RESTORE, "/run/last.ckpt", 20)
    assert restore.framework == saves[0].framework == "lightning"


@LEVELS
def test_a_restore_of_what_nobody_saw_saved_says_what_its_name_says(traced: bool) -> None:  # noqa: FBT001 - a parameter
    """A path from an earlier session adds no step, and takes nothing away."""
    stage = Stage(trace=traced)
    stage.read(stage.process(), "/run/last.ckpt", 2.0, 1.0, 80 * MIB)

    (restore,) = stage.play(20, saved_paths=("/run/last.ckpt",))

    assert (restore.kind, restore.step) == (Kind.RESTORE, None)
    assert restore.framework is not None


@LEVELS
@pytest.mark.parametrize(
    ("beside", "framework"),
    [("/run/epoch=0-step=12.ckpt", "lightning"), ("/other/epoch=0-step=12.ckpt", "torch.save"), (None, "torch.save")],
)
def test_an_alias_that_is_saved_alone_is_of_what_lies_beside_it(
    traced: bool,  # noqa: FBT001 - a parameter
    beside: str | None,
    framework: str,
) -> None:
    """A life that resumes, takes one step and ends writes `last.ckpt` only."""
    stage = Stage(trace=traced)
    job = stage.process()
    if beside is not None:
        stage.read(job, beside, 2.0, 1.0, 80 * MIB)
    stage.write(job, "/run/last.ckpt", 20.0, 0.5, 80 * MIB, magic=b"PK\x03\x04" + bytes(12))

    *_, save = stage.play(40)

    assert (save.kind, save.step, save.framework) == (Kind.SAVE, None, framework)


def test_an_alias_is_of_what_an_earlier_session_saved_beside_it() -> None:
    """The store knows the paths only, and these say it."""
    stage = Stage()
    stage.write(stage.process(), "/run/last.ckpt", 2.0, 0.5, 80 * MIB)

    (save,) = stage.play(20, saved_paths=("/run/epoch=0-step=12.ckpt",))

    assert save.framework == "lightning"


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    """The oldest are forgotten, the newest save of a path is known."""
    saved = SavedFiles(("/old",))
    for number in range(MAX_FILES):
        saved[f"/run/{number}"] = SavedNames("lightning", number)
    saved["/run/1"] = SavedNames("lightning", 7)

    assert (saved.get("/old"), saved.contains("/old")) == (None, False)
    assert saved.get("/run/1") == SavedNames("lightning", 7)
