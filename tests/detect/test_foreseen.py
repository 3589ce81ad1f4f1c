"""What goes on is foreseen, so that it outlives a kill: as seldom as that needs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from tests.detect.stage import MIB, SECOND_NS, Stage
from tests.detect.tracer import activity

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.events.gathering import CandidateGatherer
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.recognition import Recogniser
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof_collectors.samples import Frame, ProcessInfo

BEGAN_S = 3.0
AGAIN_S = 20.0


def foreseen(seconds: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """Return at which of its seconds the first save of a job is worked out before it is told, and the second one."""
    stage = Stage(trace=True)
    trainer = stage.process(runtimes=("torch",))
    for step, began_s in enumerate((BEGAN_S, AGAIN_S)):
        stage.write(trainer, f"/run/step-{step}/model.pt", began_s, seconds, 400 * MIB)
    detector, now_s = Detector(stage.header()), [0.0]
    first: list[float] = []
    second: list[float] = []
    foresee = Recogniser.forecast

    def noted(recogniser: Recogniser, candidate: Candidate) -> PendingEvent | None:
        (first if now_s[0] < AGAIN_S else second).append(now_s[0] % AGAIN_S - BEGAN_S * (now_s[0] < AGAIN_S))
        return foresee(recogniser, candidate)

    monkeypatch.setattr(Recogniser, "forecast", noted)
    for frame in stage.frames(AGAIN_S + seconds + 6):
        now_s[0] = (frame.at_ns - stage.header().at_ns) / SECOND_NS
        detector.ingest(frame)
        detector.pending(closely=False)
    return first, second


def test_a_short_save_of_a_series_is_worked_out_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written within most of a second; while it is written nobody asks what it would be."""
    first, second = foreseen(0.8, monkeypatch)

    assert 0.0 <= min(first) < 0.5
    assert 0.8 <= min(second) < 1.2


def test_a_longer_save_is_foreseen_from_its_second_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on after a kill knows that it had begun."""
    _, second = foreseen(5.0, monkeypatch)

    assert 1.0 <= min(second) < 1.3
    assert sum(at_s < 5.0 for at_s in second) > 1


def test_what_goes_on_and_on_is_gathered_when_it_is_foreseen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written for a minute: a look at it is a look at what is open, until something else is written."""
    stage = Stage(trace=True)
    trainer = stage.process(runtimes=("torch",))
    stage.write(trainer, "/run/log.bin", BEGAN_S, 60.0, 400 * MIB)
    stage.write(trainer, "/run/step-1/model.pt", 50.0, 5.0, 400 * MIB)
    detector, asked, gathered = Detector(stage.header()), 0, 0
    gather = CandidateGatherer.gather_as_ended

    def counted(gatherer: CandidateGatherer, transfers: Sequence[Transfer]) -> list[Candidate]:
        nonlocal gathered
        gathered += 1
        return gather(gatherer, transfers)

    monkeypatch.setattr(CandidateGatherer, "gather_as_ended", counted)
    paths: set[str | None] = set()
    for frame in stage.frames(52):
        detector.ingest(frame)
        asked += detector.active
        paths.update(one.checkpoint.path for one in detector.pending(closely=False))

    assert gathered * 8 < asked
    assert len(paths) > 1


@pytest.mark.parametrize("seconds", [30, 170])
def test_what_grows_is_forecast_by_its_age_and_once_it_is_quiet(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten files a second, none open when it is forecast: all are in the forecast a second after the last one."""
    stage, detector, forecast_at, at_s = Stage(), Detector(Stage().header()), list[float](), 0.0
    forecast, files = Recogniser.forecast, 0

    def recorded(recogniser: Recogniser, candidate: Candidate) -> PendingEvent | None:
        forecast_at.append(at_s)
        return forecast(recogniser, candidate)

    monkeypatch.setattr(Recogniser, "forecast", recorded)
    info = ProcessInfo(10, 100, 1, 0, "python3", "train.py", ("torch",), {}, None)
    pending: list[PendingEvent] = []
    for tick in range((seconds + 2) * 5):
        at_s = tick / 5
        new = range(files, files := files + 2) if at_s < seconds else ()
        samples = [activity(10, f"/ckpt/step_1/{one}.bin", at_s - 0.001, at_s, MIB, inode=one + 1) for one in new]
        at_ns = stage.header().at_ns + round(at_s * SECOND_NS)
        detector.ingest(Frame(at_ns, stage.wall(at_s), ("trace",), (*(() if tick else (info,)), *samples)))
        pending = detector.pending(closely=False)

    assert len(forecast_at) < seconds
    assert max(after - before for before, after in pairwise(forecast_at)) < 16  # however long it has been growing
    assert [one.checkpoint.files for one in pending] == [files]


def test_what_has_thousands_of_files_is_foreseen_as_seldom_as_that_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for each thousand of them passes in between; at the end it is foreseen as it is."""
    stage, detector, files = Stage(), Detector(Stage().header()), 0
    foreseen_at: list[tuple[float, int]] = []
    foresee, at_s = Recogniser.forecast, 0.0

    def noted(recogniser: Recogniser, candidate: Candidate) -> PendingEvent | None:
        foreseen_at.append((at_s, len(candidate.parts)))
        return foresee(recogniser, candidate)

    monkeypatch.setattr(Recogniser, "forecast", noted)
    info = ProcessInfo(10, 100, 1, 0, "python3", "train.py", ("torch",), {}, None)
    for tick in range(200):
        at_s = tick / 5
        new = range(files, files := files + 20)
        samples = [activity(10, f"/ckpt/step_1/{one}.bin", at_s - 0.001, at_s, MIB, inode=one + 1) for one in new]
        at_ns = stage.header().at_ns + round(at_s * SECOND_NS)
        detector.ingest(Frame(at_ns, stage.wall(at_s), ("trace",), (*(() if tick else (info,)), *samples)))
        for closely in (False, True):
            detector.pending(closely=closely)
    gaps = [(after[0] - before[0], before[1] // 1000) for before, after in pairwise(foreseen_at)]
    detector.pause()
    last = detector.pending()

    assert len(gaps) > 4
    assert all(gap_s >= thousands for gap_s, thousands in gaps)
    assert max(gap_s - thousands for gap_s, thousands in gaps) < 5.0
    assert last == []


def test_what_is_over_is_foreseen_no_longer_however_large_it_was() -> None:
    """Else it would be kept as if it went on, and reported twice after a kill."""
    stage = Stage()
    detector = Detector(stage.header())
    reported: list[str] = []
    for tick in range(200):
        at_s = tick / 5
        samples = [
            activity(10, f"/ckpt/step_1/{one}.bin", at_s - 0.001, at_s, MIB, inode=one + 1)
            for one in (range(5_000 * (tick - 9), 5_000 * (tick - 8)) if tick in (9, 10) else ())
        ]
        at_ns = stage.header().at_ns + round(at_s * SECOND_NS)
        info = ProcessInfo(10, 100, 1, 0, "python3", "train.py", ("torch",), {}, None)
        frame = Frame(at_ns, stage.wall(at_s), ("trace",), (*(() if tick else (info,)), *samples))
        reported += [one.uid for one in detector.ingest(frame)]
        left = [one.checkpoint.uid for one in detector.pending(closely=False)]
        assert not set(left) & set(reported)

    assert len(reported) == 1
