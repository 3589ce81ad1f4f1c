"""Files that grow: a log beside checkpoints is none of them, and a state that grows is the same state."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.detect.stage import MIB, NUMPY, Stage

from ckptprof.model import Checkpoint, Kind

JSON = b'{"learner": {"tre'
NOBODY: dict[str, tuple[str, ...]] = {"runtimes": ()}  # of libraries


def told(found: list[Checkpoint]) -> list[tuple[str, str, int]]:
    """Return kind, name and size of each."""
    return [(one.kind.value, (one.path or "").rpartition("/")[2], one.bytes // MIB) for one in found]


@pytest.mark.parametrize("trace", [False, True])
def test_a_log_that_grows_beside_checkpoints_is_none_of_them(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """A replay buffer is appended to all the while, in the folder where the agent is saved."""
    stage = Stage(trace=trace)
    trainer = stage.process(runtimes=("numpy",))
    buffer = {"flags": os.O_WRONLY | os.O_APPEND, "magic": b"\x00" * 16, "call_bytes": 3 * MIB}
    stage.write(trainer, "/run/replay_buffer.bin", 1.0, 24.0, 90 * MIB, **buffer)
    for number in range(3):
        stage.write(trainer, f"/run/agent_{number}.npy", 6.0 + 7 * number, 0.4, 64 * MIB, magic=NUMPY)

    assert told(stage.play(40)) == [("save", f"agent_{number}.npy", 64) for number in range(3)]


@pytest.mark.parametrize("trace", [False, True])
def test_a_model_that_grows_is_written_over_itself(trace: bool) -> None:  # noqa: FBT001 # a parameter
    """A booster that keeps itself as text has another tree each time; no library tells that it trains."""
    stage = Stage(trace=trace)
    trainer = stage.process(**NOBODY)
    for number in range(4):
        stage.write(trainer, "/run/model.json", 6.0 + 7 * number, 0.4, 20 * MIB * (number + 1), magic=JSON)

    assert told(stage.play(50)) == [("save", "model.json", 20 * (number + 1)) for number in range(4)]


def test_a_state_as_text_may_have_a_step() -> None:
    """Numbers as JSON, in the folder of a step or beside those before."""
    for name in ("checkpoint-{}/model.json", "state_{}.json"):
        stage = Stage()
        trainer = stage.process()
        for number in range(1, 4):
            path = "/run/" + name.format(100 * number)
            stage.write(trainer, path, 6.0 + 7 * number, 0.4, 20 * MIB, magic=JSON)

        assert [one.path for one in stage.play(50)] == ["/run/" + name.format(100 * n) for n in (1, 2, 3)], name


def test_text_is_a_model_only_by_its_name() -> None:
    """Results that a trainer writes over, and what its profiler writes at a step, are none."""
    for name in (
        "results_{}.json",
        "report.json",
        "rank0_step_{}.json",
        "policy_rollouts_{}.json",
        "trainer_log_{}.json",
    ):
        stage = Stage()
        trainer = stage.process()
        for number in range(4):
            path = "/run/" + name.format(100 * number)
            stage.write(trainer, path, 6.0 + 7 * number, 0.4, 20 * MIB * (number + 1), magic=JSON)

        assert [one for one in stage.play(50) if one.kind is not Kind.COPY] == [], name


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize(
    ("name", "shares", "who", "found"),
    [
        ("round_{}.json", (24,) * 4, {"runtimes": ("numpy",)}, True),
        ("net-iter{}.json", (24,) * 4, NOBODY, True),
        ("round_{}.json", (24, 22, 24, 24), {"runtimes": ("numpy",)}, False),
        ("round_{}.json", (24,) * 4, {"runtimes": ("numpy",), "busy": 0.0}, False),
        ("predictions_{}.json", (24,) * 4, {"runtimes": ("numpy",)}, False),
        ("step_{}.json", (24,) * 4, {}, False),
        ("round_{}.svg", (24,) * 4, {"runtimes": ("numpy",)}, False),
    ],
    ids=["numpy", "no library", "of other sizes", "without computing", "results", "a profiler's", "no text"],
)
def test_text_of_one_size_at_even_times_is_a_state(
    name: str,
    shares: tuple[int, ...],
    who: dict[str, Any],
    found: bool,  # noqa: FBT001 # a parameter
    trace: bool,  # noqa: FBT001 # a parameter
) -> None:
    """A booster or a small network keeps itself as numbers in text, and is read again; its reports differ in size."""
    stage = Stage(trace=trace)
    trainer = stage.process(**who)
    paths = [f"/run/{name.format(50 * number)}" for number in range(1, 5)]
    for number, (path, share) in enumerate(zip(paths, shares, strict=True)):
        stage.write(trainer, path, 6.0 + 7 * number, 0.4, share * MIB, magic=JSON)

    assert [one.path for one in stage.play(50) if one.kind is not Kind.COPY] == (paths if found else [])


def test_a_text_that_was_saved_is_restored() -> None:
    """What reads a state as text restores it; it restores no other text."""
    for saved, kinds in (("/run/round_50.json", [Kind.RESTORE]), ("/run/other.json", [])):
        stage = Stage()
        stage.read(stage.process(runtimes=("numpy",)), "/run/round_50.json", 6.0, 0.4, 24 * MIB)

        assert [one.kind for one in stage.play(20, saved_paths=(saved,))] == kinds
