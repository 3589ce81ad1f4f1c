"""Contradictory evidence is unclear, with both candidates; what is missing lowers the confidence and is said."""

from __future__ import annotations

import msgspec
import pytest
from tests.diagnose.hand import (
    GIB,
    MIB,
    START_NS,
    changed,
    device,
    far,
    link,
    local,
    measured,
    ns,
    process,
    restore,
    save,
    thread,
)

from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.diagnose.rules import RULES
from ckptprof.measures import ProcessMeasure, UsageMeasure
from ckptprof.model import LEFT_OUT, REUSED_MEMORY, Checkpoint, Level, Mode
from ckptprof.verdicts import Limit, Verdict

BOTH = pytest.mark.parametrize("level", list(Level))


def told(checkpoint: Checkpoint, *history: Checkpoint) -> Verdict:
    """Return its verdict."""
    verdict = diagnose(checkpoint, history).verdict
    assert verdict is not None
    return verdict


def test_two_limits_that_hold_alike_and_exclude_each_other_are_both_named() -> None:
    """Half of the time on CPU, half asleep in a sync; with a third less of one it is the other."""
    even = thread(Level.TRACE, 20, user=9.8, copy=0.4, sync=9.8)
    under = (device(20, busy_seconds=9.8),)
    verdict = told(save(Level.TRACE, 20, measured(even, devices=under)))
    assert verdict.limit is Limit.UNCLEAR
    assert set(verdict.candidates) == {Limit.SERIALIZE, Limit.DEVICE}
    assert verdict.confidence <= 0.5
    assert "unclear" in verdict.sentence
    assert verdict.remedy is not None
    uneven = thread(Level.TRACE, 20, user=13, copy=0.4, sync=6.6)
    assert told(save(Level.TRACE, 20, measured(uneven, devices=under))).limit is Limit.SERIALIZE


@BOTH
def test_who_sleeps_because_he_asked_to_is_told_so(level: Level) -> None:
    """A hook, a rate limit of its own; one of several ranks may look for what another one has not done yet."""
    at = msgspec.structs.replace(
        thread(level, 20, copy=1, sync=1, other={"sleep": 18}),
        samples=200,
        samples_by_state={"sleep": 180, "sync": 10, "running": 10},
    )
    verdict = told(save(level, 20, measured(at, devices=(device(20),))))
    assert (verdict.limit, verdict.cause) == (Limit.UNCLEAR, "own-pause")
    assert "by its own request" in verdict.sentence

    processes = tuple(ProcessMeasure(pid=100 + rank, comm="python", rank=rank) for rank in (0, 1))
    seen = measured(at, devices=(device(20),), processes=processes)
    assert told(save(level, 20, seen, ranks=2)).limit is Limit.UNCLEAR


def test_waits_for_a_cpu_are_the_limit_where_they_are_the_longest_account() -> None:
    """18 of 20 s are; beside 11 s that nothing explains 8 s are a candidate, and 4 s the same."""

    def crowded(waited: float) -> Verdict:
        at = msgspec.structs.replace(thread(Level.TRACE, 20, copy=1), runqueue_ns=ns(waited))
        return told(save(Level.TRACE, 20, measured(at, devices=(device(20),))))

    assert (crowded(18).limit, crowded(8).limit, crowded(4).limit) == (Limit.CPU, Limit.UNCLEAR, Limit.UNCLEAR)
    assert crowded(8).candidates == crowded(4).candidates == (Limit.CPU,)


def test_calls_are_exact_and_processor_time_is_not() -> None:
    """18 of 20 s in a sync, and 10 of 20 s on CPU outside of it: its samples lie up to seconds around the save."""
    both = thread(Level.TRACE, 20, user=10, copy=0.1, sync=18)
    verdict = told(save(Level.TRACE, 20, measured(both, devices=(device(20),))))

    assert verdict.limit is Limit.DEVICE
    assert verdict.accounts[0].seconds == pytest.approx(18, abs=0.2)


def test_what_nothing_explains_is_unclear_and_asks_to_look_closer() -> None:
    """Asleep outside of all calls for most of it."""
    at = thread(Level.TRACE, 20, copy=1, sync=2)
    verdict = told(save(Level.TRACE, 20, measured(at, devices=(device(20),))))
    assert verdict.limit is Limit.UNCLEAR
    assert verdict.accounts[0].limit is None
    assert verdict.cause == "unexplained"


@pytest.mark.parametrize(
    ("mode", "stall", "limit"),
    [
        (Mode.ASYNC, 0.1, Limit.NONE), (Mode.ASYNC, None, Limit.NONE), (Mode.ASYNC, 4.0, Limit.NONE),
        (Mode.ASYNC, 8.0, Limit.UNCLEAR), (Mode.SYNC, 20.0, Limit.UNCLEAR), (None, None, Limit.UNCLEAR),
    ],
)  # fmt: skip
def test_what_nothing_explains_is_nobodys_trouble_where_training_goes_on(
    mode: Mode | None, stall: float | None, limit: Limit
) -> None:
    """Less than 5 % of the 100 s between two saves may be lost; what is not explained lowers the confidence."""
    seen = measured(thread(Level.TRACE, 20, copy=4, sync=2), devices=(device(20),))
    before = save(Level.TRACE, 20, seen, begin=-100.0)
    verdict = told(save(Level.TRACE, 20, seen, mode=mode, stall_ns=None if stall is None else ns(stall)), before)

    assert verdict.limit is limit
    if limit is Limit.NONE:
        assert "training continued" in verdict.sentence
        assert 0.5 < verdict.confidence < 0.8


def test_a_moment_is_much_of_the_time_between_saves_that_follow_each_other_closely() -> None:
    """0.4 s of each 7 s, and nothing tells of what: that is not to be passed over as nothing."""
    seen = measured(thread(Level.TRACE, 6, copy=1, sync=0.6), devices=(device(6),))
    before = save(Level.TRACE, 6, seen, begin=-7.0)

    assert told(save(Level.TRACE, 6, seen, mode=Mode.ASYNC, stall_ns=ns(0.4)), before).limit is Limit.UNCLEAR


@pytest.mark.parametrize("level", list(Level))
def test_who_looks_closer_is_not_sent_where_he_was(level: Level) -> None:
    """Not to the trace if it was traced, nor to py-spy: `doctor` knows whether it is there."""
    seen = measured(thread(level, 20, copy=1, sync=2), devices=(device(20),))
    unexplained = next(one for one in RULES if one.name == "unexplained")
    remedy = unexplained.remedy_for(gather_context(save(level, 20, seen)))

    assert ("--level trace" in remedy) is (level is Level.POLL)
    assert "py-spy" not in remedy
    assert "`ckptprof ceiling DIR`" in remedy


def test_without_measures_nothing_is_claimed() -> None:
    """Recordings of older versions have none."""
    verdict = told(save(Level.POLL, 20, None))
    assert verdict.limit is Limit.UNCLEAR
    assert verdict.missing == ("any measurement of the host during the checkpoint",)
    assert verdict.confidence < 0.5
    assert verdict.expected_seconds is None


def test_missing_evidence_lowers_the_confidence_and_is_said() -> None:
    """The disk, the mount, the looks, the CPU time: each in turn."""
    at = thread(Level.POLL, 20, copy=1, sync=19)
    whole = save(Level.POLL, 20, measured(at, devices=(device(20, busy_seconds=19),)))
    full = told(whole)
    assert full.missing == ()
    fewer = {
        "disk": changed(whole, devices=()),
        "mount": changed(whole, mount=None),
        "samples": changed(
            whole, threads=(msgspec.structs.replace(at, samples=3, samples_by_state={"sync": 2, "running": 1}),)
        ),
        "CPU": changed(whole, threads=(msgspec.structs.replace(at, user_ns=None, system_ns=None, on_cpu_ns=None),)),
        "threads": changed(whole, threads=()),
    }
    for word, checkpoint in fewer.items():
        verdict = told(checkpoint)
        assert any(word in one for one in verdict.missing), word
        assert verdict.confidence < full.confidence, word
    left_out = told(msgspec.structs.replace(whole, limitations=(f"stacks, timelines: {LEFT_OUT}",)))
    assert left_out.missing == (f"stacks, timelines: {LEFT_OUT}",)
    assert left_out.confidence < full.confidence


def test_what_may_have_been_built_before_lowers_the_confidence_that_nothing_was_slow() -> None:
    """In memory of an earlier save: what is short may have been long. Of a limit it says nothing."""
    for seconds, limit in ((0.1, Limit.NONE), (8.0, Limit.SERIALIZE)):
        at = thread(Level.TRACE, seconds, user=0.9 * seconds, copy=0.1 * seconds)
        sure = told(save(Level.TRACE, seconds, measured(at, devices=(device(seconds),))))
        unsure = told(
            save(Level.TRACE, seconds, measured(at, devices=(device(seconds),)), limitations=(REUSED_MEMORY,))
        )
        assert sure.limit is unsure.limit is limit
        assert (REUSED_MEMORY in unsure.missing) is (unsure.confidence < sure.confidence) is (limit is Limit.NONE)


def test_a_stall_that_was_not_seen_lowers_the_confidence_of_a_save_in_the_background() -> None:
    """Whoever waited for it, or nobody."""
    seen = measured(thread(Level.TRACE, 20, user=18, copy=2), devices=(device(20),))
    known, unknown = (told(save(Level.TRACE, 20, seen, mode=Mode.ASYNC, stall_ns=stall)) for stall in (ns(8), None))

    assert (known.limit, unknown.limit) == (Limit.SERIALIZE, Limit.SERIALIZE)
    assert unknown.missing == ("how long training was blocked",)
    assert unknown.confidence < known.confidence


def test_what_was_lost_lowers_the_confidence_by_its_share() -> None:
    """Of a verdict on 86 % lost samples hardly anything is left."""
    at = measured(thread(Level.TRACE, 10, user=9, copy=1), devices=(device(10),))
    whole, rest = (told(changed(save(Level.TRACE, 10, at), lost_share=lost)).confidence for lost in (0.0, 0.86))
    assert rest == pytest.approx(0.14 * whole, abs=1e-3)


def test_a_server_without_a_link_to_look_at_may_be_the_network() -> None:
    """It is said, and the other one is a candidate."""
    at = thread(Level.TRACE, 20, copy=1, sync=19)
    verdict = told(save(Level.TRACE, 20, measured(at, mount=far())))
    assert verdict.limit is Limit.SERVER
    assert Limit.NETWORK in verdict.candidates
    assert any("link" in one for one in verdict.missing)
    seen = told(save(Level.TRACE, 20, measured(at, mount=far(), links=(link(),))))
    assert seen.confidence > verdict.confidence


def test_what_is_short_and_rare_is_nothing_and_what_is_short_and_often_is_not() -> None:
    """0.8 s of serialising: every minute it does not matter, every two seconds it does."""
    at = thread(Level.TRACE, 0.8, user=0.7, copy=0.1)

    def one(begin: float) -> Checkpoint:
        return save(Level.TRACE, 0.8, measured(at), begin=begin, stall_ns=ns(0.8))

    assert told(one(0), one(-120), one(-60)).limit is Limit.NONE
    assert told(one(0), one(-4), one(-2)).limit is Limit.SERIALIZE


def test_what_takes_a_moment_is_nothing_unless_it_comes_so_often_that_it_costs() -> None:
    """0.35 s of serialising every 3 s are a tenth of the time; what is unclear is nothing, and so is 0.1 s."""

    def one(took: float, begin: float = 0.0, **spent: float) -> Checkpoint:
        at = thread(Level.TRACE, took, copy=0.02, **spent)
        return save(Level.TRACE, took, measured(at), begin=begin, stall_ns=ns(took))

    assert told(one(0.35, user=0.3), one(0.35, -3)).limit is Limit.SERIALIZE
    assert told(one(0.35, user=0.3), one(0.35, -60)).limit is Limit.NONE
    assert told(one(0.35, user=0.3)).limit is Limit.NONE
    assert told(one(0.35), one(0.35, -3)).limit is Limit.NONE
    assert told(one(0.1, user=0.08), one(0.1, -1)).limit is Limit.NONE


def test_a_limit_that_held_a_moment_is_none_where_the_rest_was_a_wait_for_a_processor() -> None:
    """57 ms of the device in a save of 0.55 s of which 0.42 went by without a CPU; 0.45 s of it limit one of 0.95 s."""

    def one(waited: float, begin: float = 0.0) -> Checkpoint:
        took = 0.5 + waited
        at = thread(Level.TRACE, took, copy=0.02, sync=waited, runqueue=0.42, moved=GIB)
        under = device(took, GIB, busy_seconds=0.9 * waited, shown_bytes_per_second=99 * GIB)
        return save(Level.TRACE, took, measured(at, devices=(under,)), begin=begin, stall_ns=ns(took))

    assert told(one(0.057), one(0.057, -3)).limit is Limit.NONE
    assert told(one(0.45), one(0.45, -3)).limit is Limit.DEVICE


def test_a_host_without_cpu_time_to_spare_is_no_storage_and_no_code_problem() -> None:
    """Waiting for a processor while copying: a moment of it is nothing, what is longer is what limits."""
    at = thread(Level.TRACE, 0.9, copy=0.8)
    at = msgspec.structs.replace(at, system_ns=ns(0.4), on_cpu_ns=ns(0.4), runqueue_ns=ns(0.4))
    assert told(save(Level.TRACE, 0.9, measured(at, devices=(device(2),)))).limit is Limit.NONE
    long = thread(Level.TRACE, 20, copy=19)
    long = msgspec.structs.replace(long, system_ns=ns(1), on_cpu_ns=ns(1), runqueue_ns=ns(18))
    verdict = told(save(Level.TRACE, 20, measured(long, devices=(device(20),))))
    assert verdict.limit is Limit.CPU
    assert "waiting for a CPU" in verdict.sentence
    assert verdict.cause == "starved"


@pytest.mark.parametrize(
    ("busy", "who"), [((0.4, 3.5), "others"), ((0.6, 3.5), "own"), ((0.3, None), "both"), ((), "both")]
)
def test_who_had_the_cpus_is_told_by_what_the_job_used(busy: tuple[float | None, ...], who: str) -> None:
    """A job that used less than half of eight cores has no loaders to blame; where that was not seen, both may be."""
    at = msgspec.structs.replace(thread(Level.TRACE, 20, copy=19), system_ns=ns(1), on_cpu_ns=ns(1), runqueue_ns=ns(18))
    processes = tuple(ProcessMeasure(pid=number, comm="python", busy=one) for number, one in enumerate(busy, 1))
    verdict = told(save(Level.TRACE, 20, measured(at, devices=(device(20),), processes=processes)))

    assert verdict.cause == "starved"
    assert verdict.remedy is not None
    assert ("data loader workers" in verdict.remedy) == (who in ("own", "both"))
    assert ("fewer jobs" in verdict.remedy) == (who in ("others", "both"))
    assert "short of CPU" in verdict.sentence
    assert "serialisation" not in verdict.sentence


@pytest.mark.parametrize(("is_own", "cores", "named"), [(True, 7.4, True), (False, 7.4, True), (False, 0.9, False)])
def test_who_took_the_cpus_is_named_if_that_was_seen(cores: float, *, is_own: bool, named: bool) -> None:
    """Children of the trainer are not other jobs; what used little took nothing."""
    at = msgspec.structs.replace(thread(Level.TRACE, 20, copy=19), system_ns=ns(1), on_cpu_ns=ns(1), runqueue_ns=ns(18))
    users = (UsageMeasure(comm="spin", count=8, busy=cores, started_by_writer=is_own),)
    known = measured(at, devices=(device(20),), processes=(process(busy=0.1),), others=users)
    verdict = told(save(Level.TRACE, 20, known))

    assert verdict.remedy is not None
    assert ("`spin`" in verdict.remedy) is named
    assert ("fewer jobs" in verdict.remedy) is not is_own
    whose = "that it started" if is_own else "of others"
    assert (f"`spin` used 7.4 of 8 CPUs, in 8 processes {whose}" in verdict.evidence) is named
    assert "quota took" not in verdict.remedy


@pytest.mark.parametrize("is_known", [True, False])
def test_who_shares_the_disk_is_the_cause(*, is_known: bool) -> None:
    """Readers of its disk are named, or that there are some; without them the disk alone is slow. One gain is known."""
    at = thread(Level.TRACE, 20, copy=1, sync=19)
    users = (UsageMeasure(comm="dd", count=6, busy=0.1, started_by_writer=False, disk_bytes=9 * GIB),)
    shared = {"read_bytes": 9 * GIB, "busy_seconds": 19.8}
    for more, cause in ((shared, "shared-disk"), ({"busy_seconds": 19.8}, "slow-device")):
        known = measured(at, devices=(device(20, **more),), processes=(process(fetched_bytes=0),),
                         others=users if is_known else ())  # fmt: skip
        verdict = told(save(Level.TRACE, 20, known))
        assert verdict.cause == cause
        is_named = is_known and cause == "shared-disk"
        assert ("`dd`" in (verdict.remedy or "")) is is_named
        assert ("`dd` transferred 9.66 GB alongside, in 6 processes of others" in verdict.evidence) is is_named


@pytest.mark.parametrize(
    ("state", "cause", "words"),
    [
        ("child", "awaited-child", "until its child `make` ended"),
        ("file-lock", "file-lock", "for a file lock"),
        ("lock", "unexplained", "for another thread or process"),
    ],
)
def test_what_a_thread_slept_for_is_told(state: str, cause: str, words: str) -> None:
    """Unexplained time has the call that the thread was asleep in, and its remedy; the disk was idle."""
    at = thread(Level.POLL, 20, copy=1, data=1, other={state: 18})
    known = measured(at, devices=(device(20, busy_seconds=1),), awaited="make")
    verdict = told(save(Level.POLL, 20, known, mode=None, stall_ns=None))

    assert (verdict.limit, verdict.cause) == (Limit.UNCLEAR, cause)
    assert f"18.0 s asleep {words}" in verdict.sentence
    assert "py-spy" not in (verdict.remedy or "")
    assert "reads, writes and syncs waited only 1.00 s, disk 5 % busy" in verdict.excluded


@pytest.mark.parametrize(
    ("sampled", "foreign", "durable", "words"),
    [
        (1.0, 0, 0.061, "at 525 MB/s, which was 91.8 % busy"),
        (1.0, 300 * MIB, 0.061, "(sampled over 1.00 s: its rate in this time is not known)"),
        (1.0, 0, 1.0, "(sampled over 1.00 s: its rate in this time is not known)"),
        (1.0, 0, None, "(sampled over 1.00 s: its rate in this time is not known)"),
        (0.065, 300 * MIB, None, "at 492 MB/s, which was 86.2 % busy"),
    ],
)
def test_an_average_over_a_longer_time_is_not_told_of_a_save(
    sampled: float, foreign: int, durable: float | None, words: str
) -> None:
    """The requests of a second are those of a save of 61 ms if they are no more than its own, and it is durable."""
    size = 32_000_000
    at = thread(Level.TRACE, 0.061, sync=0.061, moved=size)
    under = device(sampled, size, busy_seconds=0.056, read_bytes=foreign)
    durable_ns = None if durable is None else START_NS + ns(durable)
    short = save(Level.TRACE, 0.061, measured(at, devices=(under,)), bytes=size, durable_ns=durable_ns)
    assert any(words in one.text for one in told(short).accounts)


def test_words_are_those_of_a_restore() -> None:
    """Its thread reads."""
    at = thread(Level.TRACE, 20, user=18, copy=2)
    verdict = told(restore(Level.TRACE, 20, measured(at, mount=local(), devices=(device(20, 0, read_bytes=GIB),))))
    assert verdict.sentence.startswith(
        "restore of 20.0 s, serialisation-bound: for 18.0 s the single reading thread was on CPU"
    )
    assert "writing" not in verdict.sentence
