"""What becomes known of a save after it was told: when it was durable, when old ones were deleted; told again."""

from __future__ import annotations

import msgspec
import pytest
from tests.detect.stage import MIB, SECOND_NS, WALL_NS, Move, Stage
from tests.detect.tracer import life

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint, Kind


def at(stage_ns: int | None) -> float | None:
    """Return a wall clock time as seconds of the stage."""
    return None if stage_ns is None else (stage_ns - WALL_NS) / SECOND_NS


def looked(stage: Stage, move: Move, at_s: float, unwritten: int) -> None:
    """Have somebody look at how much of a file is not yet written."""
    fact = msgspec.structs.replace(stage.fact(move, at_s), unwritten_bytes=unwritten, magic=None)
    stage.extra.append((at_s, fact))


def told(stage: Stage, until_s: float, *, finished: bool = True) -> list[Checkpoint]:
    """Return everything that a detector tells, in the order in which it tells it."""
    detector = Detector(stage.header())
    found = [checkpoint for frame in stage.frames(until_s) for checkpoint in detector.ingest(frame)]
    return [*found, *detector.finish()] if finished else found


@pytest.mark.parametrize("trace", [True, False])
def test_a_save_is_durable_when_its_last_byte_was_written_back(*, trace: bool) -> None:
    """Half a minute later, told again under the same uid; how exact that is, its evidence says."""
    stage = Stage(trace=trace)
    move = stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 100 * MIB)
    for second in range(4, 32):
        looked(stage, move, second, 50 * MIB)
    looked(stage, move, 32.0, 0)

    first, again = told(stage, 40.0)

    assert (first.revision, first.durable_ns, first.at_risk_ns) == (0, None, None)
    assert any("stable storage" in sentence for sentence in first.limitations)
    assert (again.uid, again.revision) == (first.uid, 1)
    assert at(again.durable_ns) == pytest.approx(32.0, abs=0.1)
    assert again.at_risk_ns == pytest.approx(29.0 * SECOND_NS, abs=0.2 * SECOND_NS)
    assert not any("stable storage" in sentence for sentence in again.limitations)
    (evidence,) = [one for one in again.evidence if one.name == "durable"]
    assert "1.0 s before" in evidence.text
    assert evidence.weight == 0.0
    assert again.measures is not None
    assert at(again.measures.unwritten_ns) == pytest.approx(31.0, abs=0.1)
    left_out = {"revision", "durable_ns", "limitations", "evidence", "measures"}
    assert {k: v for k, v in msgspec.structs.asdict(again).items() if k not in left_out} == {
        k: v for k, v in msgspec.structs.asdict(first).items() if k not in left_out
    }


def test_a_sync_is_exact_and_needs_no_look() -> None:
    """At its end, told at once and not again."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 100 * MIB, held_s=0.5)

    (only,) = told(stage, 10.0)

    assert at(only.durable_ns) == pytest.approx(3.5, abs=0.001)
    assert at(only.moments.synced_ns) == pytest.approx(3.5, abs=0.001)
    assert not [one for one in only.evidence if one.name == "durable"]


def test_a_save_is_durable_with_the_last_of_its_files() -> None:
    """Not with the first, and not as long as most of it was never looked at."""
    stage = Stage(trace=True)
    trainer = stage.process()
    moves = [stage.write(trainer, f"/ckpt/step-1/rank_{n}.pt", 2.0, 1.0, 100 * MIB) for n in range(3)]
    looked(stage, moves[0], 5.0, 0)
    looked(stage, moves[1], 15.0, 0)
    looked(stage, moves[2], 12.0, 0)

    (found,) = latest_revisions(told(stage, 20.0))
    assert at(found.durable_ns) == pytest.approx(15.0, abs=0.1)

    stage.extra = stage.extra[:2]
    (found,) = latest_revisions(told(stage, 20.0))
    assert found.durable_ns is None


def test_a_look_before_the_last_byte_says_nothing() -> None:
    """A file that was clean in a pause of its writer was written on."""
    stage = Stage(trace=True)
    move = stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 4.0, 100 * MIB, pauses=[(3.0, 5.0)])
    looked(stage, move, 4.0, 0)

    (found,) = told(stage, 12.0)

    assert found.durable_ns is None


@pytest.mark.parametrize("trace", [True, False])
def test_what_is_unwritten_of_the_next_save_is_not_of_this_one(*, trace: bool) -> None:
    """It writes the same file anew, in place: that this one was durable nobody saw, that the next one was is told."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    first = stage.write(trainer, "/ckpt/last.pt", 2.0, 1.0, 100 * MIB)
    looked(stage, first, 4.0, 50 * MIB)
    second = stage.write(trainer, "/ckpt/last.pt", 12.0, 1.0, 100 * MIB)
    looked(stage, second, 15.0, 50 * MIB)
    looked(stage, second, 18.0, 0)

    before, after = latest_revisions(told(stage, 30.0))

    assert before.durable_ns is None
    assert at(after.durable_ns) == pytest.approx(18.0, abs=0.1)


def test_a_watch_that_ends_sooner_says_so() -> None:
    """In the one telling, if the save was not told before."""
    stage = Stage(trace=True)
    move = stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 100 * MIB)
    looked(stage, move, 3.5, 100 * MIB)

    (at_once,) = told(stage, 4.0)
    assert at_once.revision == 0
    assert [sentence for sentence in at_once.limitations if "was still unwritten when the recording ended" in sentence]

    first, last = told(stage, 10.0)
    assert (first.revision, last.revision) == (0, 1)
    assert not [sentence for sentence in first.limitations if "when the recording ended" in sentence]
    assert [sentence for sentence in last.limitations if "when the recording ended" in sentence]
    assert not [sentence for sentence in last.limitations if sentence.startswith("when the last byte")]


def test_old_checkpoints_that_are_deleted_afterwards_are_its_clean_up() -> None:
    """The last file of the row counts; its edges stay; other files and other jobs are none of it."""
    stage = Stage(trace=True)
    trainer, other = stage.process(), stage.process(200, program="other.py", parent_pid=1)
    stage.write(trainer, "/ckpt/checkpoint-200/optimizer.pt", 2.0, 1.0, 100 * MIB)
    for when, pid, path in (
        (5.0, trainer.pid, "/ckpt/checkpoint-100/optimizer.pt"),
        (20.0, trainer.pid, "/ckpt/checkpoint-101/optimizer.pt"),
        (20.5, trainer.pid, "/ckpt/notes.txt"),
        (21.0, other.pid, "/ckpt/checkpoint-300/optimizer.pt"),
    ):
        stage.extra.append((when + 0.001, life("unlinked", when, pid, inode=None, path=path)))

    first, again = told(stage, 30.0)

    assert at(first.moments.cleaned_ns) == pytest.approx(5.0, abs=0.001)
    assert at(again.moments.cleaned_ns) == pytest.approx(20.0, abs=0.001)
    assert (again.start_ns, again.end_ns) == (first.start_ns, first.end_ns)


def test_a_deletion_long_afterwards_is_not() -> None:
    """It makes room for the next one, or it is somebody tidying up."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/ckpt/step_2.pt", 2.0, 1.0, 100 * MIB)
    stage.extra.append((50.001, life("unlinked", 50.0, inode=None, path="/ckpt/step_1.pt")))

    (only,) = told(stage, 60.0)

    assert only.moments.cleaned_ns is None


def test_the_course_of_a_save_is_told_in_order() -> None:
    """Created, written, synced, renamed."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/ckpt/step_1.pt.tmp", 2.0, 1.0, 100 * MIB, held_s=0.5, rename_to="/ckpt/step_1.pt")

    (found,) = latest_revisions(told(stage, 10.0))

    moments = found.moments
    assert at(moments.first_data_ns) == pytest.approx(2.0, abs=0.01)
    assert at(moments.last_data_ns) == pytest.approx(3.0, abs=0.01)
    assert at(moments.synced_ns) == pytest.approx(3.5, abs=0.01)
    assert at(moments.committed_ns) == pytest.approx(3.5, abs=0.01)
    assert found.start_ns <= (moments.first_data_ns or 0)


def test_polling_tells_the_course_as_far_as_it_shows() -> None:
    """The rename by its stamp; of a sync nothing."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt.tmp", 2.0, 1.0, 100 * MIB, held_s=0.5, rename_to="/ckpt/step_1.pt")

    (found,) = latest_revisions(told(stage, 10.0))

    assert at(found.moments.committed_ns) == pytest.approx(3.5, abs=0.05)
    assert at(found.moments.last_data_ns) == pytest.approx(3.0, abs=0.1)
    assert found.moments.synced_ns is None


def test_thousands_of_saves_are_not_all_waited_for() -> None:
    """The oldest are let go; of a minute of them it is told when they were durable."""
    stage = Stage(hz=5.0, trace=True, poll=False)
    trainer = stage.process()
    moves = [stage.write(trainer, f"/ckpt/step_{number}.pt", 1.0 + number, 0.2, 2 * MIB) for number in range(80)]
    for move in moves:
        looked(stage, move, 85.0, 0)

    found = latest_revisions(told(stage, 88.0))

    assert [checkpoint.kind for checkpoint in found] == [Kind.SAVE] * 80
    durable = [checkpoint.durable_ns is not None for checkpoint in found]
    assert not any(durable[:10])
    assert all(durable[-60:])


def test_the_newest_revision_takes_the_place_of_the_first() -> None:
    """Whatever order they come in."""
    stage = Stage()
    stage.write(stage.process(), "/ckpt/step_1.pt", 2.0, 1.0, 100 * MIB)
    (first,) = told(stage, 8.0)
    later = msgspec.structs.replace(first, revision=2, durable_ns=5)
    other = msgspec.structs.replace(first, uid="other")

    assert latest_revisions([first, other, later]) == [later, other]
    assert latest_revisions([later, first]) == [later]


def test_what_the_next_save_deletes_is_its_own_clean_up() -> None:
    """Each deletes the one before it when it is complete; the last, and one that was deleted itself, say no more."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for number in range(1, 4):
        move = stage.write(trainer, f"/ckpt/step_{number}.pt", 4.0 * number, 1.0, 100 * MIB)
        looked(stage, move, 4.0 * number + 1.4, 100 * MIB)
        gone_s = 4.0 * number + 1.2
        path = f"/ckpt/step_{number - 1}.pt"
        stage.extra.append((gone_s + 0.001, life("unlinked", gone_s, inode=None, path=path)))

    found = latest_revisions(told(stage, 20.0))

    assert [at(one.moments.cleaned_ns) for one in found] == [pytest.approx(4.0 * n + 1.2, abs=0.01) for n in (1, 2, 3)]
    pending = [any("when the recording ended" in sentence for sentence in one.limitations) for one in found]
    assert pending == [False, False, True]
