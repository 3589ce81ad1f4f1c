"""What a plan says of published figures, of a notice, and of restarts that were recorded."""

from __future__ import annotations

import pytest
from tests.diagnose.test_plan_measured import SECOND, checkpoint

from ckptprof.diagnose.plan import field
from ckptprof.diagnose.plan.basis import RESTART_SECONDS, GivenFigures, MeasuredFigures, Origin, measure
from ckptprof.diagnose.plan.checkpoint_plan import CheckpointPlan, plan
from ckptprof.model import Checkpoint, Gap, Interval, Kind, Writer
from ckptprof.report.plan import render

GIB = 1 << 30


def test_rates_of_failures_are_those_of_their_sources() -> None:
    """GPU-hours between failures: 7.9 h times 1,024 and so on."""
    assert [round(one.gpu_hours) for one in field.FAILURE_RATES] == [8090, 29491, 49600, 50677, 876000]


def test_an_assumed_rate_is_shown_as_a_range() -> None:
    """Each with its interval, the assumed one with the advice; a given rate has no range."""
    made = plan(GivenFigures(size_bytes=5e12, gpus=24_000, cost_seconds=30))
    assert [one.published for one in made.rates] == list(field.FAILURE_RATES)
    assert made.advice is not None
    assert made.rates[2].interval_seconds == pytest.approx(made.advice.interval_seconds)
    assert made.rates[0].interval_seconds < made.rates[4].interval_seconds / 5
    assert plan(GivenFigures(size_bytes=5e12, gpus=24_000, cost_seconds=30, mttf_seconds=3600)).rates == ()


def test_a_rate_at_which_no_save_completes_is_left_out() -> None:
    """Saves of half an hour, and a failure every 20 min."""
    made = plan(GivenFigures(gpus=24_000, cost_seconds=1800))
    assert [one.published.source for one in made.rates] == [one.source for one in field.FAILURE_RATES[1:]]


@pytest.mark.parametrize(
    ("gib", "model"), [(400, None), (500, "70B"), (912, "70B"), (913, "405B"), (6000, "1T"), (90_000, "1T")]
)
def test_the_published_write_rate_is_of_the_next_larger_model(gib: int, model: str | None) -> None:
    """For small checkpoints there is none."""
    found = field.write_of(gib * GIB)
    assert (found.model if found else None) == model


def test_a_price_makes_lost_time_money() -> None:
    """100 GPUs that lose 1 % of the day at 2.5 lose 60."""
    made = plan(GivenFigures(gpus=100, mttf_seconds=1e6, cost_seconds=60, gpu_hour_price=2.5))
    assert made.advice is not None
    assert made.advice.losses is not None
    assert made.advice.lost_price_per_day == pytest.approx(made.advice.losses.lost_share * 24 * 100 * 2.5)
    assert "a price of" in render(made, width=120, colour=False)


@pytest.mark.parametrize(
    ("seconds", "notice", "told"),
    [
        ([4, 5, 6], 6, "6.00 s is enough: the slowest of 3 saves recorded is complete after 6.00 s"),
        ([4, 5, 6], 5, "too short: the slowest of 3 saves recorded is complete after 6.00 s; 2 of 3 would be in time"),
        ([4] * 198 + [40] * 2, 30, "is enough: 99 % of 200 saves recorded are complete after 4.00 s"),
        ([4] * 197 + [40] * 3, 30, "too short: 99 % of 200 saves recorded are complete after 40.0 s; 197 of 200"),
    ],
)
def test_a_notice_is_compared_with_recorded_saves(seconds: list[int], notice: float, told: str) -> None:
    """From when training stopped: a stall that is longer than the save counts."""
    saves = [checkpoint(at * 100, stall_ns=length * SECOND) for at, length in enumerate(seconds)]
    made = plan(GivenFigures(mttf_seconds=1e5, notice_seconds=notice), measure(saves))
    assert told in " ".join(render(made, width=200, colour=False).split())


def test_the_step_under_way_has_to_end_first() -> None:
    """A handler that saves waits for it."""
    made = plan(GivenFigures(mttf_seconds=1e5, notice_seconds=30, cost_seconds=25, step_seconds=6))
    assert made.notice is not None
    assert (made.notice.needed_seconds, made.notice.saves) == (31, 0)
    assert "too short: a save is complete after 31.0 s, the step under way included (6.00 s)" in " ".join(
        render(made, width=200, colour=False).split()
    )


def _life(begin: int, pid: int) -> list[Checkpoint]:
    """Return a restore and two saves of a process."""
    writers = (Writer(pid=pid, comm="python", bytes=10**9),)
    return [
        checkpoint(begin, kind=Kind.RESTORE, writers=writers),
        *(checkpoint(begin + at, writers=writers, stall_ns=SECOND) for at in (100, 200)),
    ]


def test_own_restarts_go_before_published_rates() -> None:
    """Three in the 3,104 s since the first save; what evaluation reads between two saves of one process is none."""
    lives = [one for n in range(4) for one in _life(n * 1000, pid=100 + n)]
    read_back = checkpoint(150, kind=Kind.RESTORE, writers=(Writer(pid=7, comm="eval", bytes=10**9),))
    made = plan(GivenFigures(gpus=8), measure([*lives, read_back]))
    assert (made.basis.mttf.value, made.basis.mttf.origin) == (3104 / 3, Origin.MEASURED)
    assert made.basis.mttf.text == "3 restarts in 0.8622 h, planned ones included"
    assert made.rates == ()
    fewer = measure([one for n in range(3) for one in _life(n * 1000, pid=100 + n)])
    assert plan(GivenFigures(gpus=8), fewer).basis.mttf.origin is Origin.ASSUMED
    assert made.basis.restart.origin is Origin.ASSUMED


def test_drives_wear_off() -> None:
    """233 saves of 5 TB a day, on drives rated for five years of one drive write a day."""
    made = plan(GivenFigures(size_bytes=5e12, gpus=24_000, capacity_bytes=1e16))
    assert made.wear is not None
    assert made.wear.drive_writes_per_day == pytest.approx(0.1165)
    assert made.wear.years == pytest.approx(42.92, abs=0.01)
    assert "Endurance 0.117 drive writes a day of 10.0 PB: drives rated for 1 a day" in _words(made)
    assert "are enough for 42.9 years" in _words(made)
    less = plan(GivenFigures(size_bytes=5e12, gpus=24_000, capacity_bytes=5e14))
    assert "2.33 drive writes a day of 500 TB: drives rated for 1 a day over 5 years (assumed) are worn out " in _words(
        less
    )
    assert plan(GivenFigures(size_bytes=5e12, gpus=24_000)).wear is None


@pytest.mark.parametrize(
    ("changes", "keep", "many", "text"),
    [
        (
            {"path": "/ckpt/{}", "files": 512},
            None,
            100_000,
            "512 files in one save at most; 100,000 saves side by side",
        ),
        ({"path": "/ckpt/{}", "files": 512}, 3, None, "Entries 512 files in one save at most Notes"),
        ({"path": "/ckpt", "files": 512}, None, None, "Entries 512 files in one save at most Notes"),
        ({"path": "/ckpt", "files": 150_000}, 3, None, "150,000 files in one save at most; more than 100,000 in one"),
    ],
)
def test_entries_of_directories(changes: dict[str, object], keep: int | None, many: int | None, text: str) -> None:
    """Files of a save, and saves in a directory, which grow if each has a path of its own and all are kept."""
    path = str(changes["path"])
    saves = [checkpoint(n * 100, **{**changes, "path": path.format(n), "stall_ns": SECOND}) for n in range(3)]
    made = plan(GivenFigures(mttf_seconds=1e5, keep=keep), measure(saves))
    assert made.entries is not None
    assert made.advice is not None
    assert made.entries.many_after_seconds == (many if many is None else many * made.advice.interval_seconds)
    assert text in _words(made)
    assert plan(GivenFigures(mttf_seconds=1e5), measure([checkpoint(0, stall_ns=SECOND)])).entries is None


def _words(made: CheckpointPlan) -> str:
    return " ".join(render(made, width=200, colour=False).split())


def test_a_restart_takes_as_long_as_recorded_ones() -> None:
    """The median from the end of a process to the end of the restore, without the restore; of one alone, none."""
    lives = {100: (-50, 250), 101: (900, 1300), 102: (1940, 3000)}  # 1,000 - 250, 2,000 - 1,300

    def lives_of(pid: int, since_ns: int, until_ns: int) -> list[Interval]:
        start_ns, end_ns = (round((1_700_000_000 + at) * SECOND) for at in lives[pid])
        return [Interval(start_ns, end_ns)] if start_ns < until_ns and end_ns > since_ns else []

    saves = [one for n, pid in enumerate(lives) for one in _life(n * 1000, pid=pid)]
    gap = Gap(saves[2].end_ns, saves[3].start_ns, "killed")
    every, one = measure(saves, lives_of), measure(saves, lives_of, [gap])

    assert every is not None
    assert one is not None
    found = plan(GivenFigures(gpus=8), every).basis.restart
    assert (found.value, found.origin) == (725.0, Origin.MEASURED)
    assert found.text == "median of 2 restarts until the first step, without the restore"
    alone = plan(GivenFigures(gpus=8), one).basis.restart  # the other one was in a gap
    assert (alone.value, alone.origin) == (RESTART_SECONDS, Origin.ASSUMED)
    assert alone.text.endswith("; 1 restart took 700 s until the first step, without the restore")
    assert plan(GivenFigures(gpus=8, restart_seconds=60), every).basis.restart.origin is Origin.GIVEN

    def noticed(seconds: float, measured: MeasuredFigures) -> str:
        return _words(plan(GivenFigures(gpus=8, notice_seconds=seconds), measured))

    assert "0 of 2 recorded restarts went on from a save of the last 49.0 s before the end" in noticed(49, every)
    assert "1 of 2 recorded restarts went on from a save of the last 51.0 s before the end" in noticed(51, every)
    assert "0 of 1 recorded restart went on from a save" in noticed(51, one)
