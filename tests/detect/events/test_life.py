"""The life of an event is one table: every state is reached, what is over stays over, and nothing skips a step."""

from __future__ import annotations

import pytest
from tests.detect.stage import MIB, Stage

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.life import TRANSITIONS, Life, State, Trigger
from ckptprof.detect.events.waits import deferred_until_ns, is_followed
from ckptprof.detect.pipeline import Detector


def test_every_state_is_reached_and_every_trigger_is_one_of_some_state() -> None:
    """From the first state on, by turns of the table; none is left over."""
    reached, seen = {State.OPEN}, set()
    while reached - seen:
        state = (reached - seen).pop()
        seen.add(state)
        reached |= set(TRANSITIONS[state].values())

    assert reached == set(State) == set(TRANSITIONS)
    assert {trigger for turns in TRANSITIONS.values() for trigger in turns} == set(Trigger)


def test_what_is_final_stays_so() -> None:
    """No trigger moves it on, and nothing is reported that was not judged."""
    for trigger in Trigger:
        with pytest.raises(KeyError):
            Life(State.FINAL).turn(trigger)
    for state in (State.OPEN, State.QUIET):
        assert State.REPORTED not in TRANSITIONS[state].values()


def test_one_look_shows_where_each_event_is() -> None:
    """The read side of a copy waits for the written side; a save is followed, a restore and a copy are not."""
    stage = Stage()
    job, copier = stage.process(100), stage.process(101, comm="cp", program="cp", runtimes=())
    stage.write(job, "/ckpt/step_7.pt", 2.0, 1.0, 300 * MIB)
    stage.read(copier, "/ckpt/step_7.pt", 6.0, 1.5, 300 * MIB)
    stage.write(copier, "/backup/step_7.pt", 6.0, 1.5, 300 * MIB)
    detector, waited = Detector(stage.header()), []
    for frame in stage.frames(40):
        detector.feed(frame)
        waited += [one.path for one in detector.judged if one.life.state is State.DEFERRED]
    followed = [one.life.state for one in detector.judged if one.path == "/ckpt/step_7.pt" and one.writes]
    detector.finish()

    assert set(waited) == {"/ckpt/step_7.pt"}
    assert followed == [State.REPORTED]
    assert {(one.path, one.writes): one.life.state for one in detector.judged} == {
        ("/ckpt/step_7.pt", True): State.FINAL,
        ("/ckpt/step_7.pt", False): State.FINAL,
        ("/backup/step_7.pt", True): State.REPORTED,
    }


@pytest.mark.parametrize(
    ("alone", "ended_ns", "due_ns"),
    [
        (Hypothesis.SAVE, None, 60_000_000_000),
        (Hypothesis.SAVE, 10, 2_000_000_010),
        (Hypothesis.COPY, None, 3_600_000_000_000),
        (Hypothesis.COPY, 10, 2_000_000_010),
        (Hypothesis.NOTHING, 10, 3_600_000_000_000),
    ],
)
def test_waiting_ends_with_the_writers_unless_a_later_run_may_read_it(
    alone: Hypothesis, ended_ns: int | None, due_ns: int
) -> None:
    """A save waits a minute for the next of its series, what is nothing alone an hour."""
    assert deferred_until_ns(alone, 0, ended_ns) == due_ns


def test_a_durable_save_is_followed_as_long_as_its_clean_up_may_come() -> None:
    """Another is followed as long as the sampler asks whether it is durable."""
    assert not is_followed(31_000_000_000, durable=True)
    assert is_followed(33_000_000_000, durable=True)
    assert not is_followed(33_000_000_000, durable=False)
    assert is_followed(151_000_000_000, durable=False)
