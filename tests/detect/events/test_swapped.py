"""What does not fit into memory: states that are swapped out and in at every step are no checkpoints."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, SECOND_NS, WALL_NS, Stage

from ckptprof.model import Kind

LEVELS = pytest.mark.parametrize("trace", [True, False], ids=["trace", "poll"])


@LEVELS
@pytest.mark.parametrize("name", ["exp_avg", "param"])
@pytest.mark.parametrize("steps", [8, 14])
def test_what_is_swapped_at_every_step_hides_no_save(steps: int, name: str, *, trace: bool) -> None:
    """ZeRO-Infinity reads each state of the optimizer, changes it and writes it back; the job saves beside."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    for step in range(steps):
        for layer in range(3):
            path, at_s = f"/nvme/optimizer/rank0/{layer}_{name}.tensor.swp", 2.0 + 0.6 * step + 0.1 * layer
            if step:
                stage.read(trainer, path, at_s, 0.03, 16 * MIB)
            stage.write(trainer, path, at_s + 0.04, 0.03, 16 * MIB, magic=None, layout="pwrite")
    stage.write(trainer, "/run/global_step8/mp_rank_00_model_states.pt", 3.0 + 0.6 * steps, 0.5, 100 * MIB)

    assert [one.step for one in stage.play(50) if one.kind is not Kind.COPY] == [8]


@LEVELS
def test_what_is_swapped_in_right_before_a_save_is_no_part_of_it(*, trace: bool) -> None:
    """Who reads several of its saves in a row averages them; swapped files it has written, too, and trains."""
    stage = Stage(trace=trace, poll=not trace)
    trainer = stage.process()
    for step in range(14):
        for layer in range(3):
            path, at_s = f"/nvme/optimizer/rank0/{layer}_exp_avg.tensor.swp", 2.0 + 0.6 * step + 0.1 * layer
            if step:
                stage.read(trainer, path, at_s, 0.03, 16 * MIB)
            if step < 13:
                stage.write(trainer, path, at_s + 0.04, 0.03, 16 * MIB, magic=None, layout="pwrite")
    stage.write(trainer, "/run/step_14/model_states.pt", 10.1, 0.5, 100 * MIB)

    (stall_ns,) = (one.stall_ns for one in stage.play(50) if one.step == 14)

    assert stall_ns is not None
    assert stall_ns / SECOND_NS == pytest.approx(0.5, abs=0.1)


def test_what_is_swapped_at_long_steps_is_no_save() -> None:
    """A step takes 40 s: from the third writing on it is known, whatever was told of the first two."""
    stage = Stage(trace=True)
    trainer = stage.process()
    for step in range(5):
        if step:
            stage.read(trainer, "/nvme/rank0/0.swp", 1.0 + 40 * step, 0.2, 64 * MIB)
        stage.write(trainer, "/nvme/rank0/0.swp", 1.3 + 40 * step, 0.2, 64 * MIB, magic=None, layout="pwrite")

    assert sum(one.kind is not Kind.COPY for one in stage.play(260)) <= 2


def test_polled_steps_of_some_seconds_are_known_from_the_fourth_writing_on() -> None:
    """It reads what it writes, right before that, and nothing else; the first one it reads is the second."""
    stage = Stage(trace=False)
    trainer = stage.process()
    for step in range(20):
        for layer in range(3):
            path, at_s = f"/nvme/optimizer/rank0/{layer}_exp_avg.bin", 2.0 + 4 * step + 0.1 * layer
            if step:
                stage.read(trainer, path, at_s, 0.03, 16 * MIB)
            stage.write(trainer, path, at_s + 0.04, 0.03, 16 * MIB, magic=None, layout="pwrite")

    told_s = [(one.start_ns - WALL_NS) / 1e9 for one in stage.play(150) if one.kind is not Kind.COPY]
    assert max(told_s) < 2.0 + 4 * 3


@LEVELS
@pytest.mark.parametrize("name", ["state.pt", "net.bin"])
def test_a_state_that_is_checked_after_each_save_is_saved(name: str, *, trace: bool) -> None:
    """It is read whole between two writings of it, but right after the first of them."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    for number in range(4):
        stage.write(trainer, f"/run/{name}", 3.0 + 5 * number, 0.5, 100 * MIB)
        stage.read(trainer, f"/run/{name}", 3.6 + 5 * number, 0.3, 100 * MIB, kept=0.0)

    assert sum(one.kind is Kind.SAVE for one in stage.play(50)) == 4


@LEVELS
def test_a_state_that_is_loaded_and_saved_anew_at_once_is_saved(*, trace: bool) -> None:
    """A job goes on from its last state, and writes it over before it has trained."""
    stage = Stage(trace=trace)
    first, second = stage.process(exit_s=5.0), stage.process(200, born_s=6.0)
    stage.write(first, "/run/state.pt", 3.0, 0.5, 100 * MIB)
    stage.read(second, "/run/state.pt", 9.0, 0.5, 100 * MIB)
    stage.write(second, "/run/state.pt", 9.8, 0.5, 100 * MIB)

    assert sum(one.kind is Kind.SAVE for one in stage.play(50)) == 2


@LEVELS
@pytest.mark.parametrize("name", ["ema.pt", "swa_model.pt", "model_merged.safetensors"])
def test_a_running_average_that_is_read_and_saved_anew_is_saved(name: str, *, trace: bool) -> None:
    """Each epoch it is read whole, averaged with the weights of now, and written over."""
    stage = Stage(trace=trace)
    trainer = stage.process()
    for number in range(8):
        if number:
            stage.read(trainer, f"/runs/x/{name}", 3.0 + 10 * number, 0.3, 100 * MIB)
        stage.write(trainer, f"/runs/x/{name}", 3.4 + 10 * number, 0.5, 100 * MIB)

    assert sum(one.kind is Kind.SAVE for one in stage.play(110)) == 8
