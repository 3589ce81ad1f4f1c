"""A series that nothing but a weak name calls checkpoints: what its program reads when it is run again tells."""

from __future__ import annotations

from typing import Any

import pytest
from tests.detect.stage import MIB, Stage

from ckptprof.model import Checkpoint
from ckptprof.report.rows import LOW_CONFIDENCE

PLAIN: dict[str, Any] = {"program": "forest.py", "runtimes": ()}
PICKLE = b"\x80\x04\x95" + bytes(13)
EVEN, UNEVEN = (4.0, 8.0, 12.0), (4.0, 6.0, 17.0)


def found(
    begun: tuple[float, ...],
    reads: tuple[int, ...],
    *,
    trace: bool,
    again: str = "forest.py",
    name: str = "forest_{}.pkl",
    usual_s: float = 0.2,
    slowest_s: float | None = None,
) -> list[Checkpoint]:
    """Return what is told of a program that writes a state that grows, is run again, reads some and writes one more."""
    stage = Stage(trace=trace)
    first = stage.process(100, exit_s=18.0, **PLAIN)
    second = stage.process(200, born_s=20.0, **{**PLAIN, "program": again})
    for number, at_s in enumerate(begun, 1):
        took_s = slowest_s if slowest_s is not None and number == 2 else usual_s
        stage.write(first, f"/run/{name.format(number)}", at_s, took_s, 12 * number * MIB, magic=PICKLE)
    for place, number in enumerate(reads):
        stage.read(second, f"/run/{name.format(number)}", 21.0 + place, 0.2, 12 * number * MIB, from_disk=False)
    stage.write(second, f"/run/{name.format(4)}", 30.0, 0.2, 48 * MIB, magic=PICKLE)
    return stage.play(60)


def told(*how: Any, **more: Any) -> list[tuple[str, str]]:
    """Return kinds and names."""
    return [(one.kind.value, (one.path or "").removeprefix("/run/")) for one in found(*how, **more)]


@pytest.mark.parametrize("trace", [False, True])
def test_whose_last_one_the_next_run_reads_is_a_series_of_saves(trace: bool) -> None:  # noqa: FBT001 - a parameter
    """Those before the restart are told then, those after it at once."""
    assert told(EVEN, (3,), trace=trace) == [
        *(("save", f"forest_{number}.pkl") for number in (1, 2, 3)),
        ("restore", "forest_3.pkl"),
        ("save", "forest_4.pkl"),
    ]


@pytest.mark.parametrize("trace", [False, True])
def test_a_save_that_took_long_makes_no_series_uneven(trace: bool) -> None:  # noqa: FBT001 - a parameter
    """Training went on for as long after it as after the others: a path of its storage was lost meanwhile."""
    begun = (3.0, 6.2, 14.2)

    assert ("save", "forest_4.pkl") in told(begun, (3,), trace=trace, slowest_s=5.0)
    assert told(begun, (3,), trace=trace) == []


@pytest.mark.parametrize(("usual_s", "is_series"), [(4.7, True), (4.9, False)])
@pytest.mark.parametrize("trace", [False, True])
def test_saves_may_outlast_the_training_between_them(usual_s: float, *, is_series: bool, trace: bool) -> None:
    """On slow storage; who writes without pause keeps a log, and reads its last piece when it starts again."""
    assert (("save", "forest_4.pkl") in told((1.0, 7.0, 13.0), (3,), trace=trace, usual_s=usual_s)) is is_series


@pytest.mark.parametrize("writes_on", [False, True])
def test_who_reads_what_a_process_that_writes_on_made_restores_nothing(*, writes_on: bool) -> None:
    """One makes pictures, and the next of the same program looks at each; one that only waits has started a run."""
    stage = Stage(trace=False)
    maker, reader = (
        stage.process(pid, born_s=born_s, program="made.py", runtimes=("numpy",))
        for pid, born_s in ((100, 0), (200, 5))
    )
    for number in range(1, 12 if writes_on else 2):
        stage.write(maker, f"/run/made_{number}.raw", 1.0 * number, 0.3, 24 * MIB, magic=bytes(16))
    stage.read(reader, "/run/made_1.raw", 6.0, 0.3, 24 * MIB, from_disk=False)

    assert ("restore" in {one.kind.value for one in stage.play(30)}) is not writes_on


def test_what_comes_after_the_restart_is_sure_at_once() -> None:
    """Before it nothing told such a series from what evaluations yield."""
    *_, last = found(EVEN, (3,), trace=True)

    assert last.confidence >= LOW_CONFIDENCE


@pytest.mark.parametrize(
    ("begun", "reads", "changed"),
    [
        pytest.param(EVEN, (1, 2, 3), {}, id="a cache is read piece by piece"),
        pytest.param(EVEN, (2,), {}, id="who goes on wants the last state"),
        pytest.param(UNEVEN, (3,), {}, id="results of stages come when they are done"),
        pytest.param(EVEN[1:], (2,), {}, id="two are no series"),
        pytest.param(EVEN, (3,), {"again": "serve.py"}, id="another program does not go on"),
        pytest.param(EVEN, (3,), {"name": "train_data_{}.pkl"}, id="a data set"),
        pytest.param(EVEN, (), {}, id="nothing is read"),
    ],
)
@pytest.mark.parametrize("trace", [False, True])
def test_what_is_not_gone_on_from_is_nothing(
    begun: tuple[float, ...],
    reads: tuple[int, ...],
    changed: dict[str, str],
    trace: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Programs write pickles for all sorts of reasons."""
    assert told(begun, reads, trace=trace, **changed) == []
