"""The memory of a job around a save, of made-up processes whose memory is known at any time."""

from __future__ import annotations

import pytest
from tests.detect.describe.test_measures_threads import told, with_samples
from tests.detect.stage import MIB, Stage
from tests.detect.tracer import activity

from ckptprof.diagnose.plan.memory import find_memory
from ckptprof.measures import JobMemoryMeasure
from ckptprof_collectors.samples import CgroupMemory, MemorySample, ProcessExit, ProcessStat, Sample, ThreadTime

LIMIT = 500 * MIB


def stat(pid: int, at: int, anonymous: int) -> ProcessStat:
    """Return the counters of a process at a tenth of a second; it has 5 MiB of files mapped."""
    return ProcessStat(pid, pid * 10, "R", at * 7, 0, 0, 0, 1, anonymous + 5 * MIB, 5 * MIB)


def host(at: int, *, available: int, shared: int = 0) -> MemorySample:
    """Return the memory of a host of 4000 MiB at a tenth of a second."""
    return MemorySample(
        4000 * MIB, available, None, 0, 0, None, None, None, None, at, None, None, None, None,
        shared_bytes=shared, locked_bytes=7 * MIB,
    )  # fmt: skip


def copied(tenth: int) -> int:
    """Return the memory of a trainer that copies 200 MiB from 13 to 15 s, writes until 17 s, and keeps 60 MiB of it."""
    return int(MIB * (100 + 200 * min(1, max(0, tenth - 130) / 20)) if tenth < 171 else 160 * MIB)


def measured(*samples: tuple[float, Sample], until: int = 200) -> JobMemoryMeasure:
    """Return what is told of a save by that trainer, of which further samples were taken."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process()
    found: list[tuple[float, Sample]] = [*samples]
    ran = 0
    for at in range(until):
        ran += 0 if 130 <= at < 170 else 95_000_000
        found.append((at / 10, ThreadTime(100, 1000, 100, ran, 0, ran // 10_000_000)))
        found.append((at / 10, stat(100, at, copied(at))))
    found.append((17.0, activity(100, "/ckpt/step_1.pt", 15.0, 16.95, 200 * MIB)))
    (save,) = with_samples(stage, until // 10 - 1, *sorted(found, key=lambda pair: pair[0]))
    memory = told(save).job_memory
    assert memory is not None
    return memory


def test_peak_and_what_stays_are_of_the_time_since_training_stopped() -> None:
    """The copy is made before the first byte, and most of it is freed after the last; of a limit nothing is known."""
    assert measured() == JobMemoryMeasure(before_bytes=100 * MIB, peak_bytes=300 * MIB, after_bytes=160 * MIB)


def test_the_limit_is_that_of_which_least_is_left() -> None:
    """The cgroup has 30 MiB beyond its processes, and was sampled after they wrote; or the host has less."""
    cgroup = [(at / 10, CgroupMemory(100, 1000, LIMIT, copied(at) + 30 * MIB)) for at in (100, 140, 175)]
    hosts = [(at / 10, host(at, available=(1000 - 3 * at) * MIB)) for at in range(0, 200, 5)]
    near = measured(*cgroup, *hosts)
    far = measured(*cgroup, *[(at / 10, host(at, available=(800 - 4 * at) * MIB)) for at in range(0, 200, 5)])

    assert (near.is_of_cgroup, near.limit_bytes, near.used_peak_bytes) == (True, LIMIT, 330 * MIB)
    assert (far.is_of_cgroup, far.limit_bytes) == (False, 4000 * MIB)
    assert far.used_peak_bytes == pytest.approx(3880 * MIB, abs=20 * MIB)


def test_a_cgroup_that_was_read_later_than_its_processes_has_no_more_beyond_them() -> None:
    """They took 10 MiB meanwhile; it was sampled once, before their peak."""
    memory = measured((13.5, CgroupMemory(100, 1000, LIMIT, copied(136) + 30 * MIB)))

    assert memory.used_peak_bytes == 330 * MIB


def test_a_forked_child_has_the_pages_of_its_parent() -> None:
    """Only what it grows by is more; an unforked process that was there before counts whole, and none when it ended."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process()
    stage.process(107, parent_pid=100, born_s=15.0)
    stage.process(108, parent_pid=100)
    samples: list[tuple[float, Sample]] = []
    for at in range(200):
        samples.append((at / 10, stat(100, at, 100 * MIB)))
        samples += [(at / 10, stat(107, at, (100 + max(0, at - 155)) * MIB))] * (150 <= at < 170)
        samples += [(at / 10, stat(108, at, 40 * MIB))] * (at < 180)
    samples.append((16.9, activity(107, "/ckpt/step_1.pt", 15.2, 16.9, 200 * MIB, tid=107)))
    samples += [(17.0, ProcessExit(107, 1070)), (18.0, ProcessExit(108, 1080))]
    (save,) = with_samples(stage, 19, *sorted(samples, key=lambda pair: pair[0]))
    memory = told(save).job_memory

    assert memory is not None
    assert (memory.before_bytes, memory.after_bytes) == (140 * MIB, 100 * MIB)
    assert memory.peak_bytes == pytest.approx(154 * MIB, abs=MIB)


@pytest.mark.parametrize("leak", [30 * MIB, 0])
def test_a_leak_is_forecast_from_what_was_sampled(leak: int) -> None:
    """Saves copy 100 MiB for a second, and leave a part: killed at the first that needs more than 500 MiB; or never."""
    stage = Stage(hz=10, trace=True, poll=False)
    stage.process()
    saves, samples = 8, []
    for at in range(saves * 100):
        number, tenth = divmod(at, 100)
        own = (100 * MIB if 50 <= tenth < 70 else 0) + 120 * MIB + leak * (number + (tenth >= 60))
        samples.append((at / 10, ThreadTime(100, 1000, 100, at * 95_000_000, 0, at * 9)))
        samples.append((at / 10, stat(100, at, own)))
        samples += [(at / 10, CgroupMemory(100, 1000, LIMIT, own + 10 * MIB))] * (tenth in (62, 67))
    for number in range(saves):
        start_s = number * 10 + 6.0
        samples.append((start_s + 1, activity(100, f"/ckpt/step_{number}.pt", start_s, start_s + 1, 100 * MIB)))
    found = with_samples(stage, saves * 10 - 1, *sorted(samples, key=lambda pair: pair[0]))
    killed_at = next((number for number in range(40) if 230 * MIB + leak * (number + 1) > LIMIT), None)

    assert len(found) == saves
    for last in range(4, saves):
        (job,) = find_memory(found[: last + 1], lambda *_: (), lambda *_: ())
        assert [one.stayed_bytes for one in job.saves[:-1]] == [leak] * last
        assert (None if job.saves_left is None else last + job.saves_left) == killed_at
