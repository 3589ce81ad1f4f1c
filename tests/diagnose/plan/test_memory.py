"""Forecasts of a kill for lack of memory, of hand-made saves."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ckptprof.diagnose.plan.memory import JobMemory, find_memory
from ckptprof.measures import JobMemoryMeasure, Measures, MemoryMeasure, ProcessMeasure
from ckptprof.model import Checkpoint, Interval, Kind, Level, Pattern

MB, SECOND = 1_000_000, 1_000_000_000
LIMIT, STATE = 1000 * MB, 200 * MB


def save(number: int, before: int | None, *, pid: int = 1, ended: bool = False, shared: int = 0) -> Checkpoint:
    """Return a save that takes twice the memory of its state; 50 MB more than the job's are used of its limit."""
    peak = None if before is None else before + STATE
    used = None if peak is None else min(LIMIT, peak + shared + 50 * MB)
    job_memory = JobMemoryMeasure(
        before_bytes=before, peak_bytes=peak, after_bytes=None if ended else before, limit_bytes=LIMIT,
        is_of_cgroup=True, used_peak_bytes=used,
    )  # fmt: skip
    return Checkpoint(
        id=number, uid=str(number), kind=Kind.SAVE, job="train", framework=None, step=number, ranks=1,
        start_ns=number * 10 * SECOND, end_ns=number * 10 * SECOND + 1, bytes=STATE, files=1, path="/x",
        pattern=Pattern(class_=None), writers=(), level=Level.POLL, limitations=(), evidence=(), confidence=1.0,
        measures=Measures(
            processes=(ProcessMeasure(pid=pid, comm="python"),), job_memory=job_memory,
            memory=MemoryMeasure(shared_before_bytes=shared, shared_peak_bytes=shared),
        ),
    )  # fmt: skip


def found(
    saves: Iterable[Checkpoint], kills: Sequence[float] = (), ends: Mapping[int, float] | None = None
) -> list[JobMemory]:
    """Return the memory of jobs; `kills` for lack of memory and `ends` of processes in seconds."""

    def lives_of(pid: int, since_ns: int, until_ns: int) -> list[Interval]:
        end_ns = min(until_ns, round((ends or {}).get(pid, 10**9) * SECOND))
        return [Interval(since_ns, end_ns)] if end_ns > since_ns else []

    def kills_of(since_ns: int, until_ns: int) -> list[int]:
        return [at_ns for kill in kills if since_ns <= (at_ns := round(kill * SECOND)) <= until_ns]

    return find_memory(saves, lives_of, kills_of)


def forecast(*befores: float) -> int | None:
    """Return in how many saves a job is killed that has these MB before each."""
    (job,) = found(save(number, round(before * MB)) for number, before in enumerate(befores))
    return job.saves_left


def test_a_leak_is_forecast_to_the_save() -> None:
    """It takes 40 MB more each time, and 250 MB of the limit more than it has before: killed where 750 are exceeded."""
    befores = [300 + 40 * number for number in range(13)]
    killed_at = next(number for number, before in enumerate(befores) if before >= 750)

    assert [number + (forecast(*befores[: number + 1]) or 0) for number in range(4, 12)] == [killed_at] * 8
    assert forecast(*befores[:4]) is None


def test_a_save_takes_as_much_as_any_before_but_the_first() -> None:
    """Start-up precedes the first one; and the limit of the cgroup counts where it was seen."""
    saves = [save(number, (300 + 40 * number) * MB) for number in range(6)]
    seen = [
        one.measures.job_memory for one in saves if one.measures is not None and one.measures.job_memory is not None
    ]
    seen[0] = msgspec.structs.replace(seen[0], before_bytes=0)
    seen[2] = msgspec.structs.replace(seen[2], used_peak_bytes=(380 + 290) * MB)
    seen[5] = msgspec.structs.replace(seen[5], limit_bytes=64_000 * MB, used_peak_bytes=9000 * MB, is_of_cgroup=False)
    measured = [Measures(processes=(ProcessMeasure(pid=1, comm="python"),), job_memory=one) for one in seen]
    (job,) = found(msgspec.structs.replace(one, measures=new) for one, new in zip(saves, measured, strict=True))

    assert (job.left_bytes, job.saves_left) == ((1000 - 500 - 290) * MB, 6)


def test_shared_memory_leaks_too() -> None:
    """A save that leaves its copy in /dev/shm."""
    (job,) = found(save(number, 300 * MB, shared=number * 30 * MB) for number in range(6))

    assert (job.growth_bytes, job.left_bytes, job.saves_left) == (30 * MB, 300 * MB, 11)


def test_memory_that_comes_and_goes_is_no_leak() -> None:
    """By chance, in a first save that fills buffers, in growth that ends, and that would take years."""
    chance = random.Random(1)  # noqa: S311 - a job, not a secret
    noisy = [[300 + 40 * chance.random() for _ in range(12)] for _ in range(200)]

    assert sum(forecast(*each[:end]) is not None for each in noisy for end in range(5, 13)) <= 8  # of 1600
    assert forecast(300, *[400] * 8) is None
    assert forecast(100, 200, 280, 340, 380, 400, 410, 412, 413) is None
    assert forecast(300, 340, 380, 420, 460, 476) is None


def test_growth_that_differs_and_takes_long_is_a_leak() -> None:
    """The last growth may be two thirds of the usual one; a forecast is given up to a thousand saves ahead."""
    assert forecast(300, 340, 380, 420, 460, 486) == 7
    assert forecast(*(300 + number * 0.6 for number in range(6))) == 746
    assert forecast(*(300 + number * 0.3 for number in range(6))) is None


def test_a_leak_is_forecast_although_one_save_in_nine_differs() -> None:
    """Garbage is collected now and then."""
    assert forecast(300, 340, 380, 350, 390, 430, 470, 510, 550) == 6
    assert forecast(300, 340, 380, 350, 390, 430, 470, 510) is None


def test_what_stays() -> None:
    """The next start tells what stayed, else the memory after it; a restart begins anew."""
    befores = [300, 400, 500, 600, 700]
    lives = [save(number, before * MB, ended=number == 4) for number, before in enumerate(befores)]
    lives += [save(9, None, pid=2), save(10, 300 * MB, pid=2)]
    jobs = found(lives, kills=[41.5], ends={1: 41.0})

    assert [[one.stayed_bytes for one in job.saves] for job in jobs] == [[100 * MB] * 4 + [None], [None, 0]]
    assert [job.saves_left for job in jobs] == [1, None]
    assert [one.taken_bytes for one in jobs[1].saves] == [None, STATE]
    assert [job.left_bytes for job in jobs] == [50 * MB, 450 * MB]
    assert [job.killed_ns for job in jobs] == [41.5 * SECOND, None]


def test_who_was_killed_for_lack_of_memory() -> None:
    """A process of the job ended when the kernel killed one: not another one's, and not long after the last save."""
    saves = [save(number, 300 * MB) for number in range(3)]

    own = [(25.0, 23.5, True), (500.0, 500.0, True)]
    others = [(25.0, 22.0, False), (25.0, 400.0, False), (9.0, 24.0, False), (900.0, 900.0, False)]
    for kill, end, killed in (*own, *others):
        (job,) = found(saves, [kill], {1: end})
        assert (job.killed_ns is not None) == killed


def test_saves_without_measures_are_left_out() -> None:
    """Of an older ckptprof; and one save makes no forecast."""
    assert found([msgspec.structs.replace(save(1, MB), measures=None)]) == []
    assert forecast(300) is None
