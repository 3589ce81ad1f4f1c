"""The answer that a report opens with, and what checkpoints cost."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timezone

import msgspec
import pytest

from ckptprof.model import Checkpoint, Gap, Kind, Report, Status, Watched
from ckptprof.report import account, answer, terminal
from ckptprof.verdicts import Account, Cost, Limit

_UNWATCHED = Watched(start_ns=None, end_ns=None)


def _flat(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_stands_first_and_says_how_sure_it_is(reports: dict[str, Report], zone: timezone) -> None:
    """What limited most of the lost time, then what to do first; what is unclear is marked in the table."""
    text = terminal.render(reports["limits"], width=200, colour=False, zone=zone)
    first, second = text.splitlines()[:2]

    assert re.match(r"Answer    .* \(serialize, likely\): ", first)
    assert second.startswith("Do first  torch.serialization.set_crc32_options(False)")
    assert "page-cache?" in text
    assert "unclear, or ? after a limit: `ckptprof show ID`" in text


@pytest.mark.parametrize(("lost", "head"), [(0, None), (1, None), (10, "10 samples: ")])
def test_what_was_lost_stands_before_the_answer(reports: dict[str, Report], lost: int, head: str | None) -> None:
    """A hundredth of 20 s, and more; a pause of the recorder is no loss."""
    watched = Watched(start_ns=0, end_ns=20 * 10**9, gaps=(Gap(0, 20 * 10**9, "lost somewhere", lost),))
    opening = answer.conclude(msgspec.structs.replace(reports["limits"], watched=watched)).opening

    assert [key for key, _ in opening[:2]] == (["Lost", "Answer"] if head else ["Answer", "Do first"])
    assert head is None or opening[0][1].startswith(head)
    assert " (serialize, likely): " in dict(opening)["Answer"]


def test_when_all_is_fine_it_says_so_in_one_line(reports: dict[str, Report], zone: timezone) -> None:
    """And gives no advice."""
    text = terminal.render(reports["fine"], width=200, colour=False, zone=zone)

    assert text.startswith("Answer    Nothing was slow: ")
    assert "Do first" not in text


def test_what_is_fast_can_still_be_too_often(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """Nothing was slow, and training was blocked for half of the run: then the interval is what to change."""
    often = tuple(make_diagnosed(n, n * 80, limit=Limit.NONE, stall_ns=40 * 10**9) for n in range(1, 4))
    pairs = answer.conclude(Report(host="h", watched=_UNWATCHED, checkpoints=often)).opening

    assert list(pairs) == [
        ("Answer", "Saving blocked train.py for 50 % of its run: 3 saves, a median of 1 min 20 s apart."),
        (
            "Do first",
            (
                "save less often, or asynchronously: `ckptprof plan --mttf 3h` calculates the best "
                "interval for one failure every 3 hours"
            ),
        ),
    ]


def test_a_restore_or_a_single_save_is_no_reason_to_save_less_often(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """A short run after a long restore is blocked for most of its time, and fewer saves would not change it."""
    kinds = (Kind.RESTORE, Kind.RESTORE, Kind.SAVE)
    once = tuple(
        make_diagnosed(n, n * 80, limit=Limit.NONE, kind=kind, stall_ns=40 * 10**9) for n, kind in enumerate(kinds, 1)
    )
    pairs = answer.conclude(Report(host="h", watched=_UNWATCHED, checkpoints=once)).opening

    assert list(pairs) == [("Answer", "Nothing was slow: 3 checkpoints blocked training for 2 min 00 s.")]


def test_a_limit_of_little_is_not_the_answer(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """One small save was slow, and held a thirtieth of what training lost: what all of them blocked is told."""
    fast = [make_diagnosed(n, n * 1000, limit=Limit.NONE, stall_ns=4 * 10**9) for n in range(1, 5)]
    slow = make_diagnosed(5, 5000, stall_ns=5 * 10**8)
    (pair,) = answer.conclude(Report(host="h", watched=_UNWATCHED, checkpoints=(*fast, slow))).opening

    assert pair == ("Answer", "Little was slow: 5 checkpoints blocked training for 16.5 s.")


def test_the_share_of_the_answer_stands_below_it_too(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """One share of one run, where restores blocked training as well: there is no other percentage on the page."""
    held = {"limit": Limit.NONE, "stall_ns": 40_000_000_000}
    saves = tuple(make_diagnosed(n, n * 100, **held) for n in (1, 2, 3))
    again = make_diagnosed(4, 390, kind=Kind.RESTORE, **held)
    for restores in ((), (again,)):
        report = Report(host="h", watched=_UNWATCHED, checkpoints=(*saves, *restores))
        text = _flat(terminal.render(report, width=200, colour=False, zone=zone))
        (told,) = re.findall(r" blocked train.py for ([\d.]+ %) of its run", text)

        assert ("Saving and restoring blocked" in text) is bool(restores)
        assert f" s, {told} of a run of " in text
        left = re.sub(r"[\d.]+ % of the fastest rate measured on this path", "", text.replace(told, ""))
        assert set(re.findall(r"[\d.]+ %", left)) <= {"12 %", "43 %"}  # what the field reports


def test_the_base_of_a_mean_is_named(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """It is of the complete ones, and one is no mean and no median; of two it is."""
    saves = tuple(make_diagnosed(n, n * 100) for n in (1, 2, 3))
    broken = msgspec.structs.replace(saves[2], status=Status.INCOMPLETE)
    told = [
        _flat(
            terminal.render(
                Report(host="h", watched=_UNWATCHED, checkpoints=(*kept, broken)), width=200, colour=False, zone=zone
            )
        )
        for kept in (saves[:1], saves[:2])
    ]

    assert "duration 39.2 s (1 complete)" in told[0]
    assert "2 saves (1 incomplete), 3 min 20 s apart, 39.2 s (1 complete); 25.5 MB/s" in told[0]
    assert "3 saves (1 incomplete), a median of 1 min 40 s apart, 39.2 s at most (2 complete)" in told[1]


@pytest.mark.parametrize(("ids", "said"), [((1, 2), False), ((2, 5), False), ((2, 1), True)])
def test_ids_that_jump_back_are_explained(
    ids: tuple[int, int], make_checkpoint: Callable[..., Checkpoint], zone: timezone, *, said: bool
) -> None:
    """A save that waited for a second one of its series is told after that."""
    several = tuple(make_checkpoint(number, n * 100) for n, number in enumerate(ids))
    report = Report(host="h", watched=_UNWATCHED, checkpoints=several)

    assert ("IDs are in order" in terminal.render(report, width=200, colour=False, zone=zone)) is said


def test_a_stall_of_saves_says_so_beside_restores(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """The answer speaks of what both lost."""
    save = make_diagnosed(1, 0, stall_ns=10**9)
    for beside, said in (((), "1.00 s"), ((make_diagnosed(2, 9, kind=Kind.RESTORE),), "1.00 s by saves")):
        report = Report(host="h", watched=_UNWATCHED, checkpoints=(save, *beside))
        text = terminal.render(report, width=200, colour=False, zone=zone)
        (line,) = (line for line in text.splitlines() if line.startswith("Blocked "))

        assert said in line
        assert ("by saves" in line) is bool(beside)


def test_the_advice_asks_for_a_plan_of_its_job(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """A plan without a name is of the job that saved last."""
    often = {"limit": Limit.NONE, "stall_ns": 40_000_000_000}
    mine = [make_diagnosed(n, n * 100, job="my job", **often) for n in (1, 2, 3)]
    other = make_diagnosed(4, 500, job="other", limit=Limit.NONE, stall_ns=10**9)
    alone, beside = (Report(host="h", watched=_UNWATCHED, checkpoints=tuple(told)) for told in (mine, [*mine, other]))

    assert "`ckptprof plan --mttf 3h` calculates" in dict(answer.conclude(alone).opening)["Do first"]
    assert "`ckptprof plan --mttf 3h --job 'my job'` calculates" in dict(answer.conclude(beside).opening)["Do first"]


@pytest.mark.parametrize(("stall_seconds", "said"), [(4.12, False), (4.124, False), (5.04, True), (2, False)])
def test_a_stall_above_its_duration_is_explained_where_it_stands(
    stall_seconds: float, make_diagnosed: Callable[..., Checkpoint], zone: timezone, *, said: bool
) -> None:
    """In the report and in `show`; not where both are printed alike."""
    one = make_diagnosed(1, 0, stall_ns=int(stall_seconds * 10**9))
    one = msgspec.structs.replace(one, end_ns=one.start_ns + 4_120_000_000)
    text = _flat(
        terminal.render(Report(host="h", watched=_UNWATCHED, checkpoints=(one,)), width=200, colour=False, zone=zone)
    )

    assert ("Blocked can exceed duration: training also paused" in text) is said
    assert (
        "including 0.92 s before the first byte or after the last" in dict(account.headline_facts(one))["Cost"]
    ) is said


def test_without_verdicts_there_is_no_answer(reports: dict[str, Report], zone: timezone) -> None:
    """A database from before the diagnosis looks as it did."""
    text = terminal.render(reports["course"], width=200, colour=False, zone=zone)

    assert text.startswith("Run  ")
    assert "LIMIT" not in text
    assert "What checkpoints cost" not in text


def test_each_job_is_told_what_it_paid(reports: dict[str, Report], zone: timezone) -> None:
    """Stall, share of the run against SNIA's 5 %, GPU time for the GPUs that are given, throughput and tier."""
    text = _flat(terminal.render(answer.with_gpus(reports["limits"], 16), width=200, colour=False, zone=zone))

    assert "above SNIA's 5 %" in text
    assert "blocked on 16 GPUs" in text
    assert "per GPU: below DGX Light; 40 % of the fastest rate measured on this path" in text
    assert text.index("What checkpoints cost train.py") < text.index("What checkpoints cost jax_train.py")


def test_gpus_that_are_given_replace_those_that_were_guessed(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """Of every figure that depends on them; without a stall there is no GPU time."""
    held = make_diagnosed(1, 0, stall_ns=2_000_000_000, cost=Cost(gpus=1, gpus_from="ranks", bytes_per_second=4e9))
    unknown = make_diagnosed(2, 100, cost=None)
    report = Report(host="h", watched=_UNWATCHED, checkpoints=(held, unknown))
    first, second = answer.with_gpus(report, 4).checkpoints

    assert first.cost == Cost(
        gpus=4, gpus_from="given", bytes_per_second=4e9, bytes_per_second_per_gpu=1e9, gpu_seconds=8.0, tier="light"
    )
    assert second.cost == Cost(gpus=4, gpus_from="given")
    assert answer.with_gpus(report, None) is report


@pytest.mark.parametrize(
    ("were", "rate", "text"),
    [
        ((True, True), 4e8, "Saves return after the data is on disk (400 MB/s)"),
        ((False, False), 4e8, "Saves return before the data is on disk (about 400 MB/s including sync)"),
        ((False, False), None, "Saves return before the data is on disk"),
        ((True, False), 4e8, "1 of 2 saves returned after the data was on disk (400 MB/s)"),
        ((None, True), 4e8, "Saves return after the data is on disk (400 MB/s); known for 1 of 2"),
        ((None, None), None, None),
    ],
)
def test_whether_saves_were_durable_when_they_returned_is_one_line(
    were: tuple[bool | None, ...], rate: float | None, text: str | None, make_diagnosed: Callable[..., Checkpoint]
) -> None:
    """With the rate by which people compare storage; nothing where nothing is known."""
    costs = [Cost(durable_on_return=was, durable_bytes_per_second=rate if was is not None else None) for was in were]
    saves = tuple(make_diagnosed(n, n * 100, cost=cost) for n, cost in enumerate(costs))
    (told,) = answer.conclude(Report(host="h", watched=_UNWATCHED, checkpoints=saves)).costs

    assert dict(answer.job_facts(told)).get("Durable") == text


def test_one_rank_is_not_taken_for_a_gpu(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """It may as well train on none; several ranks are said to be a guess."""
    guess = Cost(gpus=1, gpus_from="ranks", gpu_seconds=1.0, bytes_per_second_per_gpu=5.0)
    one = make_diagnosed(1, 0, cost=guess, stall_ns=1_000_000_000)
    several = msgspec.structs.replace(one, cost=Cost(gpus=4, gpus_from="ranks", gpu_seconds=4.0))

    assert "GPU" not in str(account.cost_facts(one))
    assert "GPU" not in dict(account.headline_facts(one))["Cost"]
    assert dict(account.headline_facts(several))["Cost"].endswith(
        "; 4.00 s of GPU time on 4 GPUs, assuming one per rank"
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.4, "40 % of the fastest rate measured on this path"),
        (1.02, "100 % of the fastest rate measured on this path"),
        (2891.0, "above the fastest rate measured on this path"),
        (float("nan"), None),
        (None, None),
    ],
)
def test_a_ceiling_is_not_exceeded_in_percent(share: float | None, text: str | None) -> None:
    """What the page cache takes is faster than any device."""
    assert account.ceiling(share) == text


def test_many_jobs_are_summed_up(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """The dearest are told, the others counted."""
    many = tuple(make_diagnosed(n, n * 100, job=f"job-{n}", stall_ns=n * 10**9) for n in range(1, 9))
    report = Report(host="h", watched=_UNWATCHED, checkpoints=many)
    text = terminal.render(report, width=80, colour=True, zone=zone)

    assert text.count("What checkpoints cost") == answer.MAX_JOBS
    assert "cost job-8" in text
    assert "and 3 jobs more: --json has them all" in text


def test_limits_have_the_names_that_reports_use(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """Every limit can be told, alone and in the opening."""
    for limit in Limit:
        report = Report(host="h", watched=_UNWATCHED, checkpoints=(make_diagnosed(1, 0, limit=limit),))
        pairs = dict(answer.conclude(report).opening)
        assert "Answer" in pairs
        if limit is Limit.UNCLEAR:
            assert pairs["Answer"].startswith("It is unclear what limited ")
        else:
            assert limit is Limit.NONE or limit.word in pairs["Answer"].partition(": ")[0]


def test_the_costliest_leads_not_the_surest(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """A restore that is certain does not lead while twenty saves, each less certain, blocked training longer."""
    saves = [make_diagnosed(n, n * 100, confidence=0.7, limit=Limit.DEVICE) for n in range(1, 21)]
    for number, one in enumerate(saves):
        assert one.verdict is not None
        accounts = (Account(limit=Limit.DEVICE, seconds=one.verdict.seconds, text=""),)
        saves[number] = msgspec.structs.replace(one, verdict=msgspec.structs.replace(one.verdict, accounts=accounts))
    restore = make_diagnosed(21, 3000, kind=Kind.RESTORE, confidence=0.99, limit=Limit.SERIALIZE)
    found = answer.conclude(Report(host="h", watched=_UNWATCHED, checkpoints=(*saves, restore))).opening

    assert found[0][1].startswith("20 of 21 checkpoints were disk-bound (probably): ")
