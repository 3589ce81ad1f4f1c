"""What checkpoints cost, and what to do first."""

from __future__ import annotations

import msgspec
import pytest
from tests.diagnose.hand import GIB, START_NS, device, measured, ns, restore, save, thread

from ckptprof.diagnose.advice import first_advice
from ckptprof.diagnose.ceilings import WRITE, Ceilings, Measure
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.diagnose.job_costs import job_costs, share_text
from ckptprof.diagnose.losses import seconds_of, won_seconds
from ckptprof.model import Checkpoint, Gap, Kind, Level, Mode, Status, Watched
from ckptprof.verdicts import Alternative, Cost, Limit


def one(begin: float, seconds: float = 20.0, user: float = 18.0, **more: object) -> Checkpoint:
    """Return a judged save that was on CPU for so long, and in a sync for the rest."""
    at = thread(Level.TRACE, seconds, user=user, copy=1, sync=seconds - user - 1)
    known = measured(at, devices=(device(seconds, busy_seconds=seconds - user),))
    return diagnose(save(Level.TRACE, seconds, known, begin=begin, **{"stall_ns": ns(seconds), **more}))  # type: ignore[arg-type]


def known(checkpoint: Checkpoint) -> Cost:
    """Return its cost."""
    assert checkpoint.cost is not None
    return checkpoint.cost


def test_a_stall_costs_the_gpus_that_are_given_else_one_for_each_rank() -> None:
    """And nothing is invented where neither is known."""
    plain = save(Level.TRACE, 20, measured(), ranks=4, stall_ns=ns(10))
    given = known(diagnose(plain, gpus=8))
    assert (given.gpus, given.gpus_from, given.gpu_seconds) == (8, "given", 80)
    assert known(diagnose(plain)).gpu_seconds == 40
    seen = known(diagnose(plain, observed_gpus=2))
    assert (seen.gpus, seen.gpus_from, seen.gpu_seconds) == (2, "nvml", 20)
    assert known(diagnose(plain, gpus=8, observed_gpus=2)).gpus_from == "given"
    nobody = known(diagnose(save(Level.TRACE, 20, measured(), ranks=None, stall_ns=ns(10))))
    assert (nobody.gpus, nobody.gpu_seconds, nobody.bytes_per_second_per_gpu) == (None, None, None)
    unknown = known(diagnose(save(Level.TRACE, 20, measured(), stall_ns=None), gpus=8))
    assert (unknown.stall_seconds, unknown.gpu_seconds) == (None, None)


def test_throughput_is_compared_with_the_tiers_and_with_a_measured_ceiling() -> None:
    """1 GiB in a second for one GPU is Light by writing; the best second that happened to be seen is no ceiling."""
    at = thread(Level.TRACE, 1, copy=0.3, sync=0.7)
    fast = save(Level.TRACE, 1, measured(at, devices=(device(1),)))
    assert known(diagnose(fast, gpus=1)).tier == "light"
    assert known(diagnose(fast)).ceiling_share is None
    assert known(diagnose(fast, gpus=8)).tier == "below"
    best = Measure(id="w", work=WRITE, bytes_per_second=4e9)
    probe = Ceilings(
        version="1", host="h", at_ns=1, spent_ns=1, path="/ckpt", mount_point="/ckpt", fs_type="ext4", source="x",
        device="nvme0n1", server=None, size_bytes=1, phase_seconds=1.0, busy_before=None, complete=True,
        measures=(best,),
    )  # fmt: skip
    told = known(diagnose(fast, ceilings=(probe,)))
    assert told.ceiling_share == pytest.approx(GIB / 4e9)


def test_what_went_on_beside_training_is_not_stall() -> None:
    """Of an async save; of a sync one there is none."""
    beside = save(Level.TRACE, 20, measured(), mode=Mode.ASYNC, stall_ns=ns(2))
    assert known(diagnose(beside)).background_seconds == pytest.approx(18)
    assert known(diagnose(save(Level.TRACE, 20, measured()))).background_seconds == 0


@pytest.mark.parametrize(("ranks", "gpus"), [(1, None), (None, None), (4, 4)])
def test_a_single_rank_proves_no_gpu(ranks: int | None, gpus: int | None) -> None:
    """It may train on CPUs; several ranks are one GPU each."""
    assert known(diagnose(save(Level.TRACE, 20, measured(), ranks=ranks))).gpus == gpus


def test_a_job_is_held_against_the_five_percent_rule_and_the_field() -> None:
    """Four saves of 20 s in 800 s are 10 %."""
    saves = [diagnose(one(begin), gpus=8) for begin in (0, 200, 400, 600)]
    (job,) = job_costs(saves)
    assert (job.count, job.stall_seconds, job.gpu_seconds) == (4, pytest.approx(80), pytest.approx(640))
    assert (job.share, job.exceeds_snia, job.interval_seconds) == (pytest.approx(0.1), True, pytest.approx(200))
    ends = Watched(start_ns=START_NS, end_ns=START_NS + ns(700))
    later = Gap(ends.end_ns or 0, START_NS + ns(5000), "ckptprof was not running")
    lossy = Gap(START_NS, START_NS + ns(9000), "3 samples were lost", lost_samples=3)
    for watched in (ends, Watched(start_ns=START_NS, end_ns=START_NS + ns(9000), gaps=(later, lossy))):
        (ended,) = job_costs(saves, watched)
        assert (job.run_seconds, ended.run_seconds) == (pytest.approx(800), pytest.approx(700))
    assert "above SNIA's 5 %" in (job.judgement or "")
    assert job.saves is not None
    assert job.restores is None
    assert job.saves.gibibytes_per_second == pytest.approx(1 / 20)
    assert job.saves.max_seconds == pytest.approx(20)


def test_restores_alone_have_no_share() -> None:
    """They begin a run of which nothing more is known; with a save after them it is known."""
    restores = [msgspec.structs.replace(one(begin), kind=Kind.RESTORE) for begin in (0, 30)]
    (alone,), (followed,) = job_costs(restores), job_costs([*restores, one(200)])

    assert (alone.run_seconds, alone.share, alone.judgement) == (None, None, None)
    assert followed.run_seconds == pytest.approx(220)


def test_what_was_broken_off_is_counted_apart() -> None:
    """Of means and rates it is no part."""
    (job,) = job_costs([one(0), msgspec.structs.replace(one(200), status=Status.INCOMPLETE)])

    assert job.saves is not None
    assert (job.saves.count, job.saves.complete) == (2, 1)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.03, "within SNIA's 5 %"),
        (0.1, "below the field average of 12 %"),
        (0.2, "below the reported maximum of 43 %"),
        (0.5, "above the reported maximum of 43 %"),
    ],
)
def test_shares_are_put_into_words(share: float, words: str) -> None:
    """SNIA's rule, and what was reported."""
    assert words in share_text(share)


def test_copies_cost_nobody_anything_and_nothing_costs_nothing() -> None:
    """Empty input included."""
    copy = save(Level.TRACE, 20, None, kind=Kind.COPY)
    assert job_costs([copy]) == ()
    assert first_advice([copy]) is None
    assert first_advice([]) is None


def test_the_first_advice_is_what_most_of_the_lost_time_asks_for() -> None:
    """One long save outweighs three short ones of another limit."""
    long = [one(0, 60.0, 55.0)]
    short = [one(begin, 12.0, 1.0) for begin in (100, 200, 300)]
    told = first_advice([*long, *short])
    assert told is not None
    assert (told.limit, told.count, told.seconds) == (Limit.SERIALIZE, 1, pytest.approx(55))
    assert told.share == pytest.approx(55 / 96)
    assert told.sentence == (
        "1 of 4 saves was serialisation-bound: 55.0 s of the 1 min 36 s that training was blocked."
    )
    assert told.remedy is not None
    assert "thread_count" in told.remedy


def test_the_remedy_that_wins_most_comes_first_and_says_where() -> None:
    """Its gain is a part of all lost time; one that is not known is at most what its limit cost."""

    def of(number: int, remedy: str, expected: float | None) -> Checkpoint:
        plain = one(100.0 * number)
        assert plain.verdict is not None
        verdict = msgspec.structs.replace(plain.verdict, remedy=remedy, expected_seconds=expected)
        return msgspec.structs.replace(plain, id=number, verdict=verdict)

    usual = [of(number, "usual", None) for number in range(1, 9)]
    told = first_advice([*usual, of(9, "special", 5.0)])
    assert told is not None
    assert (told.remedy, told.gain) == ("special", "about 15.0 s in save 9, of the 3 min 00 s blocked")
    unknown = "not known: at most 2 min 24 s in all 8 saves, of the 2 min 40 s blocked"
    for saves, gain in ((usual, unknown), ([of(1, "special", 5.0)], "about 15.0 s in save 1, of the 20.0 s blocked")):
        assert getattr(first_advice(saves), "gain", None) == gain


def without_a_cpu(begin: float, seconds: float, ran: float) -> Checkpoint:
    """Return a judged save that computed for so long, and waited for a CPU for the rest."""
    at = thread(Level.TRACE, seconds, user=ran, copy=0.1, runqueue=seconds - ran - 0.1)
    known = measured(at, devices=(device(seconds, busy_seconds=0.1),))
    return diagnose(save(Level.TRACE, seconds, known, begin=begin, stall_ns=ns(seconds)))


@pytest.mark.parametrize(
    ("short", "long", "limit", "seconds"),
    [
        ([1.0] * 3, [9.0], Limit.CPU, 8.5),  # one costs more than all others
        ([1.0] * 20, [9.0], Limit.SERIALIZE, 14.0),  # many cost more than one
        ([1.0] * 3, [9.0, 4.0], Limit.CPU, 12.0),
        ([], [9.0], Limit.CPU, 8.5),
    ],
)
def test_the_answer_is_of_most_of_the_lost_time(
    short: list[float], long: list[float], limit: Limit, seconds: float
) -> None:
    """Not of most saves, nor of what others lost to their second limits; the next limit is told with its own sum."""
    usual = [one(30.0 * n, length, 0.7) for n, length in enumerate(short)]
    late = [without_a_cpu(1000.0 + 30 * n, length, 0.4) for n, length in enumerate(long)]
    told = first_advice([*usual, *late])

    assert told is not None
    assert (told.limit, told.seconds) == (limit, pytest.approx(seconds, abs=0.2))
    assert told.count == len(usual if limit is Limit.SERIALIZE else late)
    second = {Limit.CPU: "; the next limit is serialize, with 2.10 s", Limit.SERIALIZE: "; the next limit is cpu, with"}
    assert (second[limit] in (told.gain or "")) is bool(short)


def test_saves_that_lost_the_same_are_told_by_their_number() -> None:
    """Two of one limit, each of half the time, stand before one of another."""
    half = [one(30.0 * n, 5.0, 4.0) for n in range(2)]
    whole = without_a_cpu(100.0, 8.5, 0.4)
    for several in ([*half, whole], [whole, *half]):
        told = first_advice(several)
        assert told is not None
        assert (told.limit, told.seconds, told.count) == (Limit.SERIALIZE, pytest.approx(8.0), 2)


def test_a_wait_for_a_cpu_is_the_same_number_in_each_place() -> None:
    """The answer counts waits within the work, as the gain of its save does; no gain exceeds what was lost."""
    at = thread(Level.TRACE, 8.15, user=1.0, copy=0.1, sync=3.0, runqueue=4.05)
    starved = diagnose(save(Level.TRACE, 8.15, measured(at, devices=(device(9),)), stall_ns=ns(8.15), id=3))
    told, verdict = first_advice([starved]), starved.verdict

    assert told is not None
    assert verdict is not None
    own = sum(part.seconds for part in verdict.accounts if part.limit is Limit.CPU)
    assert own == pytest.approx(3.06, abs=0.01)
    assert told.limit is verdict.limit is Limit.CPU
    assert told.seconds == won_seconds(verdict) == seconds_of(verdict, Limit.CPU) == pytest.approx(4.05)
    assert told.gain == "about 4.05 s in save 3, of the 8.15 s blocked"
    other = Alternative(limit=Limit.SERIALIZE, remedy="compute less", expected_seconds=0.0)
    assert won_seconds(verdict, other) == seconds_of(verdict, Limit.SERIALIZE) == pytest.approx(1.99, abs=0.01)
    assert "for 3.06 s the single writing thread was waiting for a CPU" in verdict.sentence
    assert "and for 0.99 s within the work of other limits; it takes about 4.10 s" in verdict.sentence


def test_what_was_lost_without_a_cpu_is_no_other_limits() -> None:
    """Of ten seconds two were computed: longer waits are the limit, 1.8 s of waits are of that work, in each place."""
    for user, runqueue, limit, words in (
        (2.0, 7.6, Limit.CPU, "short of CPU: 7.60 s"), (8.0, 1.8, Limit.SERIALIZE, "serialisation-bound: 9.76 s"),
    ):  # fmt: skip
        at = thread(Level.TRACE, 10, user=user, copy=0.2, runqueue=runqueue)
        told = first_advice([diagnose(save(Level.TRACE, 10, measured(at, devices=(device(10, busy_seconds=0.1),))))])
        assert told is not None
        assert told.limit is limit
        assert told.sentence == f"save was {words} of the 10.0 s that training was blocked."


def test_nothing_slow_is_an_answer() -> None:
    """And what is unclear is told only where nothing else is known."""
    at = thread(Level.TRACE, 2, copy=2)
    fine = diagnose(save(Level.TRACE, 2, measured(at)))
    told = first_advice([fine])
    assert told is not None
    assert (told.limit, told.remedy) == (Limit.NONE, None)
    assert told.sentence == "Nothing was slow: 1 checkpoint blocked training for 2.00 s."
    unseen = msgspec.structs.replace(fine, stall_ns=None)
    for several, ending in (
        ([unseen], "1 checkpoint; how long training was blocked is not known."),
        ([fine, unseen], "2 checkpoints blocked training for 2.00 s (1 measured)."),
    ):
        part = first_advice(several)
        assert part is not None
        assert part.sentence == f"Nothing was slow: {ending}"
    unclear = diagnose(save(Level.TRACE, 30, None, begin=100))
    again = first_advice([fine, unclear])
    assert again is not None
    assert again.limit is Limit.UNCLEAR
    least = first_advice([unclear, one(200)])
    assert least is not None
    assert least.limit is Limit.SERIALIZE


def test_restores_count_for_themselves() -> None:
    """In the cost of their job."""
    read = diagnose(restore(Level.TRACE, 10, measured(), begin=-100))
    assert read.start_ns < START_NS
    (job,) = job_costs([read, one(0)])
    assert job.restores is not None
    assert job.saves is not None
    assert (job.restores.count, job.saves.count, job.run_seconds) == (1, 1, pytest.approx(120))
