"""The outlier: which checkpoint it is, why, and what it cost, the same in the answer, in JSON and in the table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone

import msgspec
import pytest

from ckptprof.model import Checkpoint, Report, Status, Watched
from ckptprof.report import answer, document, terminal
from ckptprof.report.outliers import find_outliers
from ckptprof.verdicts import Account, Limit

SECOND = 1_000_000_000
_Make = Callable[..., Checkpoint]


def _save(make: _Make, number: int, device: float, cpu: float = 1.0, **changes: object) -> Checkpoint:
    """Return a save of these seconds at the device and on the CPU, blocked for all of them."""
    one = make(number, 100 * number, limit=Limit.DEVICE, **changes)
    assert one.verdict is not None
    accounts = (
        Account(limit=Limit.DEVICE, seconds=device, text="asleep"),
        Account(limit=Limit.CPU, seconds=cpu, text="waiting"),
    )
    verdict = msgspec.structs.replace(one.verdict, seconds=device + cpu, accounts=accounts)
    spent_ns = round((device + cpu) * SECOND)
    return msgspec.structs.replace(one, verdict=verdict, end_ns=one.start_ns + spent_ns, stall_ns=spent_ns)


def _report(saves: list[Checkpoint]) -> Report:
    return Report(host="h", watched=Watched(start_ns=None, end_ns=None), checkpoints=tuple(saves))


def test_the_account_that_grew_most_is_the_reason(make_diagnosed: _Make, zone: timezone) -> None:
    """And not the largest one, in the sentence of the answer, of the document and of the table."""
    saves = [_save(make_diagnosed, n, device=1.0, cpu=3.0) for n in range(1, 5)]
    slow = _save(make_diagnosed, 5, device=2.9, cpu=3.1)
    report = _report([*saves, slow])
    (one,) = find_outliers(report.checkpoints)
    text = " ".join(terminal.render(report, width=200, colour=False, zone=zone).split())

    assert one.sentence == (
        "save 5, step 500, took 6.00 s, 1.5 times the median of 4.00 s, because of disk (2.90 s, median 1.00 s); "
        "training was blocked for 6.00 s"
    )
    assert (one.id, one.times, one.median_seconds) == (5, 1.5, 4.0)
    assert dict(answer.conclude(report).opening)["Slowest"] == one.sentence
    assert list(document.report_document(report)["outliers"]) == [msgspec.to_builtins(one)]
    assert f"Slowest {one.sentence}" in text
    assert "6.00 s!" in text
    assert "! after a duration: at least 1.5 times the median of its job, and 0.2 s more." in text


def test_work_that_waited_for_a_cpu_is_not_what_grew(make_diagnosed: _Make) -> None:
    """Its wait is."""
    saves = [_save(make_diagnosed, n, device=1.0, cpu=0.0) for n in range(1, 5)]
    slow = _save(make_diagnosed, 5, device=5.0, cpu=0.0)
    assert slow.verdict is not None
    accounts = (msgspec.structs.replace(slow.verdict.accounts[0], runnable_seconds=4.0),)
    slow = msgspec.structs.replace(slow, verdict=msgspec.structs.replace(slow.verdict, accounts=accounts))
    (one,) = find_outliers([*saves, slow])

    assert "because of cpu (4.00 s, median 0 s)" in one.sentence


def test_the_slowest_is_red_and_a_throttle_has_no_median(make_diagnosed: _Make, zone: timezone) -> None:
    """The other outliers are yellow; the median save has no throttle."""
    saves = [_save(make_diagnosed, n, device=spent) for n, spent in enumerate((1.0, 1.0, 1.0, 1.0, 9.0, 4.0), 1)]
    assert saves[4].verdict is not None
    verdict = msgspec.structs.replace(saves[4].verdict, cause="throttled", throttle_bytes_per_second=1e8)
    saves[4] = msgspec.structs.replace(saves[4], verdict=verdict)
    text = terminal.render(_report(saves), width=200, colour=True, zone=zone)

    assert find_outliers(saves)[0].sentence.endswith(
        "because of the throttle (9.00 s); training was blocked for 10.0 s"
    )
    assert "; 1 more outlier\n" in text
    assert "\x1b[1;91m 10.0 s!" in text
    assert "\x1b[1;33m 5.00 s!" in text


def test_a_larger_save_takes_longer_because_of_its_size(make_diagnosed: _Make) -> None:
    """Whatever account grew with it."""
    saves = [_save(make_diagnosed, n, device=1.0, bytes=10**9) for n in range(1, 4)]
    (one,) = find_outliers([*saves, _save(make_diagnosed, 4, device=3.0, bytes=3 * 10**9)])

    assert "because it is 3.0 times as large" in one.sentence


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        ((1, 1, 1, 1.45), []),  # less than half as long again
        ((0.1, 0.1, 0.1, 0.25), []),  # too little to point at
        ((1, 3), []),  # nothing is usual
        ((1, 1, 1, 1.5, 9), [5, 4]),  # by the time that they cost
    ],
)
def test_what_is_an_outlier(seconds: tuple[float, ...], found: list[int], make_diagnosed: _Make) -> None:
    """Half as long again as the median, and 0.2 s more; the most additional seconds first."""
    saves = [_save(make_diagnosed, n, device=spent, cpu=0.0) for n, spent in enumerate(seconds, 1)]

    assert [one.id for one in find_outliers(saves)] == found


def test_each_job_has_its_own_median(make_diagnosed: _Make) -> None:
    """Without incomplete saves, and without a reason where nothing was diagnosed."""
    fast = [_save(make_diagnosed, n, device=1.0, job="a") for n in range(1, 4)]
    slow = [_save(make_diagnosed, n, device=8.0, job="b") for n in range(4, 7)]
    cut = msgspec.structs.replace(_save(make_diagnosed, 7, device=30.0, job="a"), status=Status.INCOMPLETE)
    plain = msgspec.structs.replace(_save(make_diagnosed, 8, device=5.0, job="a"), verdict=None, stall_ns=None)

    assert find_outliers([*fast, *slow, cut]) == ()
    (one,) = find_outliers([*fast, *slow, plain])
    assert one.sentence == "save 8, step 800, took 6.00 s, 3.0 times the median of 2.00 s"
