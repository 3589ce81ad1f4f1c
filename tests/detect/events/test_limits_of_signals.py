"""Where a signal begins to hold: each stream lies less than a factor of two above or below a limit."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from tests.detect.events.test_recognition import signs_of
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity

from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.deferred import DeferredEvents, PendingEvent
from ckptprof.detect.events.gathering import CandidateGatherer, NextStep
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.world.host.devices import Devices

SIZE = 120 * MIB


@pytest.mark.parametrize(("call_bytes", "told"), [(48 << 10, True), (96 << 10, False)])
def test_small_operations_here_and_there_are_those_of_a_database(call_bytes: int, *, told: bool) -> None:
    """Of 64 KB and more they may be those of a file system that is mounted from a file, or of a download in parts."""
    stage = Stage(trace=True)
    stage.write(stage.process(), "/run/blob", 2.0, 1.0, SIZE, call_bytes=call_bytes, layout="random", magic=None)

    assert ("random" in signs_of(stage, 10)) is told


@pytest.mark.parametrize(("busy", "told"), [(0.3, False), (0.6, True)])
def test_who_waits_most_of_the_time_does_not_compute(busy: float, *, told: bool) -> None:
    """A trainer on CPU keeps a core busy; who hands on what others make does not."""
    stage = Stage()
    stage.write(stage.process(busy=busy), "/run/model.blob", 8.0, 1.0, SIZE, magic=None)

    assert ("computes" in signs_of(stage, 20)) is told


@pytest.mark.parametrize(("start_s", "told"), [(2.0, False), (4.5, True)])
def test_that_a_young_process_computes_says_nothing(start_s: float, *, told: bool) -> None:
    """Any program is busy while it starts."""
    stage = Stage()
    stage.write(stage.process(), "/run/model.blob", start_s, 1.0, SIZE, magic=None)

    assert ("computes" in signs_of(stage, 20)) is told


@pytest.mark.parametrize(("apart_s", "told"), [(0.35, False), (0.8, True)])
def test_what_follows_at_once_is_a_piece_of_the_same(apart_s: float, *, told: bool) -> None:
    """The next of a series comes after a while."""
    stage = Stage()
    who = stage.process()
    for number in range(2):
        stage.write(who, "/run/model.blob", 6.0 + number * (1.0 + apart_s), 1.0, SIZE, magic=None)

    assert ("recurs" in signs_of(stage, 20)) is told


@pytest.mark.parametrize(("even", "told"), [(8, False), (18, True)])
def test_the_last_sixteen_of_a_series_tell_whether_it_is_regular(even: int, *, told: bool) -> None:
    """Saves by hand in the first hour say nothing of the rest; a few even periods are chance."""
    stage = Stage(hz=10)
    who, at_s = stage.process(), 2.0
    for pause_s in (2, 30, 2, 30, *[4] * even):
        stage.write(who, "/run/model.blob", at_s, 0.5, SIZE, magic=None)
        at_s += pause_s

    assert ("regular" in signs_of(stage, at_s)) is told


@pytest.mark.parametrize(("size", "told"), [(6 * MIB, False), (12 * MIB, True)])
def test_a_little_that_came_by_the_network_may_be_anybodys(
    monkeypatch: pytest.MonkeyPatch, size: int, *, told: bool
) -> None:
    """Of less than 8 MB nobody can say that it was this."""
    monkeypatch.setattr(Devices, "received_bytes", lambda *_: size)
    stage = Stage()
    stage.write(stage.process(runtimes=("numpy",)), "/run/model.blob", 2.0, 1.0, size, magic=None)

    assert ("received" in signs_of(stage, 10)) is told


@pytest.mark.parametrize(("again", "saves"), [(8 * MIB, 1), (12 * MIB, 2)])
def test_a_little_that_is_written_over_a_file_completes_it(again: int, saves: int) -> None:
    """A header or an index at its end is much less than the file; more than a sixteenth is another save of it."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    stage.extra = [
        (3.1, activity(moved=160 * MIB)),
        (4.1, activity(start_s=3.4, end_s=3.5, moved=again, size=160 * MIB)),
    ]

    assert len(stage.play(60)) == saves


def test_of_many_that_wait_for_the_next_of_their_series_the_oldest_is_told_early() -> None:
    """Each alone would wait a minute; there is room for 64."""
    stage = Stage(trace=True, poll=False)
    for number in range(70):
        who = stage.process(100 + number)
        path, start_s = f"/scratch/{'x' * number}/y.pt", 2.0 + number / 10
        stage.extra.append((start_s + 0.1, activity(who.pid, path, start_s, start_s + 0.05, 4 * MIB, inode=number + 1)))
    detector = Detector(stage.header())

    found = [one for frame in stage.frames(30) for one in detector.ingest(frame)]

    assert len({one.uid for one in found}) == 70 - 64


def test_the_last_two_of_a_series_are_kept_however_many_files_they_have() -> None:
    """What recurs twice is found; room for 8192 files of all that wait is not given to a third."""
    waiting = DeferredEvents()
    held = [PendingEvent(Mock(files=4500), Mock(), "", "", Hypothesis.SAVE) for _ in range(4)]
    for one in held:
        waiting.defer(one)

    assert [one.has_room for one in held] == [False, False, True, True]


@pytest.mark.parametrize(
    ("files", "seconds", "named", "turn"),
    [
        (2_000, 900, False, NextStep.ENDLESS),
        (2_000, 800, False, NextStep.ENDED),
        (10_000, 400, False, NextStep.ENDLESS),
        (10_000, 600, True, NextStep.ENDED),
        (250_000, 600, True, NextStep.ENDED),
    ],
)
def test_nobody_keeps_what_has_no_end(files: int, seconds: int, *, named: bool, turn: NextStep) -> None:
    """A data set under names of no framework is dismissed; a checkpoint is judged while it still grows."""
    part = SimpleNamespace(name=SimpleNamespace(is_certain=named, commit=False, hint=False, framework=None))
    growing = Mock(parts=[part] * files, start_ns=0, end_ns=seconds * SECOND_NS)

    assert CandidateGatherer.next_step(Mock(), growing, 0) is turn
