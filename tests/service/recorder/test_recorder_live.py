"""What a recorder shows on the screen of `run --live` while somebody looks; what it stores is the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.detect.stage import MIB, MONOTONIC_NS, SECOND_NS, Stage

from ckptprof.model import Checkpoint, Kind
from ckptprof.report.live.state import State
from ckptprof.service.recorder.recorder import Recorder

pytestmark = pytest.mark.usefixtures("replayed")
SAVED_S = (10.0, 6.0)  # of the stage: begins, takes
SIZE = 600 * MIB


@dataclass
class Audience:
    """Keeps what it is told."""

    is_wanted: bool = True
    states: list[State] = field(default_factory=list)

    def put(self, state: State) -> None:
        """Keep it."""
        self.states.append(state)


def watched(audience: Audience, *, trace: bool, left: list[object] | None) -> tuple[dict[int, State], list[Checkpoint]]:
    """Return what is told in each second of a save by two ranks, and the checkpoints of it."""
    stage = Stage(trace=trace)
    for rank in range(2):
        actor = stage.process(100 + rank, environment={"RANK": str(rank), "WORLD_SIZE": "2"})
        stage.write(actor, f"/ckpt/step_5/__{rank}_0.distcp", SAVED_S[0], SAVED_S[1] / (2 - rank), SIZE // 2)
    recorder = Recorder(None, None, pending=left, live=audience)  # type: ignore[arg-type]
    recorder.keep_checkpoints = True
    recorder.ingest(stage.header())
    found: dict[int, State] = {}
    second = 1
    for frame in stage.frames(60.0):
        recorder.ingest(frame)
        if frame.at_ns >= MONOTONIC_NS + second * SECOND_NS:
            recorder.housekeeping(frame.wall_ns)
            if audience.states:
                found[second] = audience.states[-1]
            second += 1
    recorder.end(clean=True)
    return found, recorder.checkpoints


@pytest.mark.parametrize("left", [None, []], ids=["run", "agent"])
@pytest.mark.parametrize("trace", [False, True], ids=["poll", "trace"])
def test_a_save_is_seen_while_it_is_written(*, trace: bool, left: list[object] | None) -> None:
    """Within two seconds of its begin, and its bytes rise; before and long after it nothing goes on."""
    states, checkpoints = watched(Audience(), trace=trace, left=left)

    began, took = map(int, SAVED_S)
    going_on = {second: state.underway for second, state in states.items()}
    assert not any(going_on[second] for second in range(1, began))
    (early,), (late,) = going_on[began + 2], going_on[began + took - 1]
    assert (early.kind, early.step) == (Kind.SAVE, 5)
    assert early.job == late.job == checkpoints[0].job
    assert 0 < early.bytes < late.bytes <= SIZE
    assert early.start_ns == pytest.approx(checkpoints[0].start_ns, abs=SECOND_NS)
    assert going_on[59] == ()


@pytest.mark.parametrize("trace", [False, True], ids=["poll", "trace"])
def test_one_that_begins_waits_for_nobody(*, trace: bool) -> None:
    """It is told as soon as it is sure, once, before anybody keeps house."""
    stage, audience = Stage(trace=trace), Audience()
    actor = stage.process(100, environment={"RANK": "0", "WORLD_SIZE": "1"})
    stage.write(actor, "/ckpt/step_5/__0_0.distcp", *SAVED_S, SIZE)
    recorder = Recorder(None, None, live=audience)
    recorder.ingest(stage.header())
    for frame in stage.frames(sum(SAVED_S)):
        recorder.ingest(frame)

    (told,) = audience.states
    assert [one.step for one in told.underway] == [5]


@pytest.mark.parametrize("trace", [False, True], ids=["poll", "trace"])
def test_a_rank_that_has_closed_its_file_is_done(*, trace: bool) -> None:
    """The first of two takes half as long."""
    states, _ = watched(Audience(), trace=trace, left=[])

    began, took = map(int, SAVED_S)
    (early,), (late,) = states[began + 2].underway, states[began + took - 1].underway
    assert (early.ranks_done, late.ranks_done) == (0, 1)


@pytest.mark.parametrize("trace", [False, True], ids=["poll", "trace"])
def test_a_save_is_judged_while_it_is_written(*, trace: bool) -> None:
    """As if it were over: the accounts are of the time until then."""
    states, _ = watched(Audience(), trace=trace, left=[])

    began, took = map(int, SAVED_S)
    (early,), (late,) = states[began + 2].underway, states[began + took - 1].underway
    assert early.so_far is not None
    assert late.so_far is not None
    assert 1 <= early.so_far.seconds <= 2 < late.so_far.seconds <= took - 1
    assert sum(one.seconds for one in early.so_far.accounts) == pytest.approx(early.so_far.seconds, abs=0.01)


@pytest.mark.parametrize("trace", [False, True], ids=["poll", "trace"])
def test_who_looks_changes_nothing_that_is_recorded(*, trace: bool) -> None:
    """And nobody is told anything who does not look."""
    nobody = Audience(is_wanted=False)

    assert watched(Audience(), trace=trace, left=None)[1] == watched(nobody, trace=trace, left=None)[1]
    assert nobody.states == []
