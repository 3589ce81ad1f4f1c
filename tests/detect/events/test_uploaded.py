"""Saves to files that are read back and sent to an object store: when they are there, too."""

from __future__ import annotations

import pytest
from tests.detect.sockets import SIZE, TOOK_S, look, saved, told
from tests.detect.stage import SECOND_NS, Actor, Stage

from ckptprof.measures import UploadMeasure
from ckptprof.model import Checkpoint, Medium

UPLOADED_S = (12.3, 22.3, 32.3)


def uploads(found: list[Checkpoint]) -> list[UploadMeasure]:
    """Return what is told of uploads, each save with one at most."""
    return [one for save in found if save.measures is not None for one in save.measures.uploads]


def saving(stage: Stage, sender: Actor, writer: Actor, *, read: float = 1.0) -> None:
    """Let one process save to files, and one read a share of each and send as much as is in it."""
    for number, at_s in enumerate(UPLOADED_S):
        stage.write(writer, f"/ckpt/step_{number}.pt", at_s - 4, 0.8, SIZE)
        stage.read(sender, f"/ckpt/step_{number}.pt", at_s, TOOK_S, int(read * SIZE), kept=0.0, from_disk=False)
    look(stage, sender, saved(at_s=UPLOADED_S), 40)


@pytest.mark.parametrize("by", ["its trainer", "a sidecar"])
def test_a_save_that_is_uploaded_says_when_it_was_there(by: str) -> None:
    """It is one save, with a second tier; whoever sent it."""
    stage = Stage()
    trainer = stage.process()
    sender = trainer if by == "its trainer" else stage.process(300, program="sidecar.py", runtimes=())
    saving(stage, sender, trainer)
    found = told(stage, 60.0)
    saves = [one for one in found if one.kind.value == "save"]

    assert [one.medium for one in saves] == [Medium.FILE] * 3
    assert [len(one.measures.uploads) for one in saves if one.measures is not None] == [1] * 3
    for one, at_s in zip(uploads(saves), UPLOADED_S, strict=True):
        assert (one.remote, one.port, one.bytes, one.processes) == ("10.0.0.9", 443, SIZE, (sender.pid,))
        assert abs(one.end_ns - stage.wall(at_s + TOOK_S)) <= SECOND_NS // 10


def test_an_upload_of_half_of_it_is_none() -> None:
    """What is sent is something else then, however large it is."""
    stage = Stage()
    trainer = stage.process()
    saving(stage, trainer, trainer, read=0.5)
    assert uploads(told(stage, 60.0)) == []


def test_what_is_sent_for_long_is_waited_for() -> None:
    """Longer than the clean-up of a save is followed."""
    stage = Stage()
    trainer, at_s = stage.process(), 10.0
    for number in range(3):
        stage.write(trainer, f"/ckpt/step_{number}.pt", 5.0 + 20 * number, 0.8, SIZE)
    stage.read(trainer, "/ckpt/step_0.pt", at_s, 200.0, SIZE, kept=0.0, from_disk=False)
    look(stage, trainer, lambda now_s: (int(SIZE * min(max(0.0, (now_s - at_s) / 200), 1.0)), 0), 230)
    (upload,) = uploads(told(stage, 240.0))

    assert abs(upload.end_ns - stage.wall(at_s + 200.0)) <= SECOND_NS


def test_of_one_save_so_many_uploads_are_told() -> None:
    """To whomever it is sent again and again."""
    stage = Stage()
    trainer = stage.process()
    stage.write(trainer, "/ckpt/step_0.pt", 5.0, 0.8, SIZE)
    at_s = tuple(8.0 + 5 * number for number in range(6))
    for one_s in at_s:
        stage.read(trainer, "/ckpt/step_0.pt", one_s, TOOK_S, SIZE, kept=0.0, from_disk=False)
    look(stage, trainer, saved(at_s=at_s), 40)
    assert len(uploads(told(stage, 60.0))) == 4


@pytest.mark.parametrize(("at_s", "number"), [(32.3, 2), (22.3, 1)])
def test_of_a_file_that_is_written_over_the_last_save_before_is_uploaded(at_s: float, number: int) -> None:
    """What was in it before is there no more, and what comes later was not sent."""
    stage = Stage()
    trainer = stage.process()
    for one in range(3):
        stage.write(trainer, "/ckpt/last.pt", 8.3 + 10 * one, 0.8, SIZE)
    stage.read(trainer, "/ckpt/last.pt", at_s, TOOK_S, SIZE, kept=0.0, from_disk=False)
    look(stage, trainer, saved(at_s=(at_s,)), 40)
    saves = [one for one in told(stage, 60.0) if one.kind.value == "save"]

    assert [len(uploads([one])) for one in saves] == [int(one == number) for one in range(3)]


@pytest.mark.parametrize("every_s", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("at_s", [10.5, 11.5])
def test_a_checkpoint_that_is_read_to_be_sent_is_no_restore(every_s: float, at_s: float) -> None:
    """However far apart the looks at its sockets are, as on a crowded host."""
    stage = Stage()
    trainer = stage.process()
    stage.read(trainer, "/ckpt/checkpoint-500/model.safetensors", at_s, 0.4, SIZE, from_disk=False)
    look(stage, trainer, saved(at_s=(at_s,), took_s=0.4), 40, every_s=every_s)
    assert [one.kind.value for one in told(stage, 60.0, every_s=every_s)] == ["copy"]
