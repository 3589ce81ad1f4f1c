"""Conditions behind --fail-on: what is read, what is refused, and what holds."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.errors import UsageError
from ckptprof.model import Checkpoint, Kind, Report, Status, Watched
from ckptprof.report import comparison, conditions
from ckptprof.report.conditions import Quantity, format_value, parse
from ckptprof.verdicts import Limit

SECOND = 1_000_000_000
MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("save_p99>2m", 120),
        ("save_p99 >= 1m30s", 90),
        ("stall_max<250ms", 0.25),
        ("stall_max>0", 0),
        ("stall_share>5%", 0.05),
        ("throughput_min<1.5GB/s", 1.5e9),
        ("throughput_min<800MiB/s", 800 * MIB),
        ("size_max>20GB", 20e9),
        ("size_max>1B", 1),
        ("amplification_max>1.5x", 1.5),
        ("incomplete>0", 0),
        ("COUNT==3", 3),
        ("restore_max>.5s", None),
        ("restore_max>0.5h", 1800),
    ],
)
def test_values_are_read_in_their_units(text: str, value: float | None) -> None:
    """Times, shares, rates, sizes and numbers; names in any case."""
    if value is None:
        with pytest.raises(UsageError):
            parse([text], conditions.NAMES)
        return
    (condition,) = parse([text], conditions.NAMES)

    assert condition.value == value
    assert condition.name == condition.name.lower()


def test_several_are_read_from_commas_and_repetition() -> None:
    """Empty pieces are nothing; a limit is a word."""
    found = parse(["count<1, incomplete>0,", "limit!=page_cache"], conditions.NAMES)

    assert [(one.name, one.operator) for one in found] == [("count", "<"), ("incomplete", ">"), ("limit", "!=")]
    assert found[2].limit is Limit.PAGE_CACHE


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("stall_p95>60", "'60' is not a value for stall_p95", "write 90s"),
        ("stal_p95>60s", "unknown name 'stal_p95'", "did you mean stall_p95"),
        ("zzzzz>1", "unknown name 'zzzzz'", "`--help` lists all names"),
        ("foo", "is not a condition", "write NAME"),
        ("save_max>5%", "'5%' is not a value", "90s"),
        ("save_max=3s", "is measured", "compare with"),
        ("limit>device", "takes = or !=", "gather, staging"),
        ("limit=tape", "takes = or !=", "gather, staging"),
        ("size_max>5GB/s", "'5GB/s' is not a value", "16GiB"),
        ("throughput_min<5GB", "'5GB' is not a value", "GB/s"),
        ("count>1e9", "'1e9' is not a value", "write 3"),
        ("count>nan", "'nan' is not a value", "write 3"),
        (" , ", "has no condition", "stall_p95"),
        ("count>" + "9" * 999, "too large", None),
        ("x" * 5000, "at most 4096", None),
        ("count>٣", "is not a value", "write 3"),
        ("\x1b[2J>1", "is not a condition", "write NAME"),
    ],
)
def test_nonsense_is_refused_with_what_could_be_meant(text: str, message: str, hint: str | None) -> None:
    """As a usage error, in one line."""
    with pytest.raises(UsageError) as caught:
        parse([text], conditions.NAMES)

    assert message in str(caught.value)
    assert caught.value.exit_code == 2
    assert (caught.value.hint is None) is (hint is None)
    assert hint is None or hint in (caught.value.hint or "")


@given(st.text(max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    """It is read or refused."""
    try:
        found = parse([text], conditions.NAMES)
    except UsageError:
        return
    assert all(one.name in conditions.NAMES for one in found)


def _report(*checkpoints: Checkpoint) -> Report:
    begin = min((one.start_ns for one in checkpoints), default=0)
    return Report(
        host="h", watched=Watched(start_ns=begin, end_ns=begin + 100 * SECOND), checkpoints=tuple(checkpoints)
    )


def _lasting(make: Callable[..., Checkpoint], number: int, seconds: float, **changes: object) -> Checkpoint:
    one = make(number, number * 10)
    return msgspec.structs.replace(one, end_ns=one.start_ns + int(seconds * SECOND), **changes)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("count>4", True),
        ("count<5", False),
        ("saves=4", True),
        ("restores!=1", False),
        ("incomplete>0", True),
        ("save_max>3.9s", True),
        ("save_max>4s", False),
        ("save_min<1.1s", True),
        ("save_median>2.9s", True),
        ("save_median>3.1s", False),
        ("save_mean>2.4s", True),
        ("save_total>=10s", True),
        ("save_p99<4s", False),
        ("restore_max>9s", True),
        ("duration_max>9s", True),
        ("stall_max>1.9s", True),
        ("stall_share>2%", True),
        ("stall_share>4.6%", False),
        ("share>15%", True),
        ("throughput_min<200MB/s", True),
        ("restore_throughput_max<101MB/s", True),
        ("size_total>3GB", True),
        ("at_risk_max>0", None),
        ("amplification_max>2", None),
        ("gpu_seconds_total>1h", None),
        ("ceiling_share_min<50%", None),
        ("limit=disk", None),
    ],
)
def test_conditions_hold_or_not_or_cannot_be_judged(
    text: str,
    holds: bool | None,  # noqa: FBT001 # a table of cases
    make_checkpoint: Callable[..., Checkpoint],
) -> None:
    """Of four saves of 1 to 4 s, the second broken off, three stalls of 1 s and more, and a restore of 10 s."""
    saves = [
        _lasting(make_checkpoint, n, n, stall_ns=None if n == 1 else (n - 1) * SECOND // 2 + SECOND // 2)
        for n in (1, 2, 3, 4)
    ]
    saves[1] = msgspec.structs.replace(saves[1], status=Status.INCOMPLETE)
    restore = _lasting(make_checkpoint, 5, 10, kind=Kind.RESTORE)
    (judged,) = conditions.evaluate(_report(*saves, restore), parse([text], conditions.NAMES))

    assert judged.is_met is holds
    assert judged.explanation


def test_what_few_tell_is_not_judged(make_checkpoint: Callable[..., Checkpoint]) -> None:
    """Half of the saves must tell a figure; how many did is said."""
    saves = [_lasting(make_checkpoint, n, 1, stall_ns=SECOND if n == 1 else None) for n in (1, 2, 3)]
    few, half, none = (
        conditions.evaluate(_report(*chosen), parse(["stall_p95>0.5s"], conditions.NAMES))[0]
        for chosen in (saves, saves[:2], saves[1:])
    )

    assert (few.is_met, few.explanation) == (None, "observed for 1 of 3 saves")
    assert (half.is_met, half.explanation) == (True, "1.00 s (observed for 1 of 2 saves)")
    assert (none.is_met, none.explanation) == (None, "not observed for any of 2 saves")


def test_nothing_is_counted_and_not_judged_else() -> None:
    """Of an empty report numbers are zero, and nothing else is known."""
    judged = conditions.evaluate(
        _report(), parse(["count<1,incomplete>0,save_max>1s,stall_share>5%"], conditions.NAMES)
    )

    assert [one.is_met for one in judged] == [True, False, None, False]


def test_a_limit_counts_where_it_is_probable(make_diagnosed: Callable[..., Checkpoint]) -> None:
    """What is unclear by its confidence is no limit; the ids are named."""
    sure = make_diagnosed(1, 0, limit=Limit.DEVICE, confidence=0.6)
    unsure = make_diagnosed(2, 100, limit=Limit.FLUSH, confidence=0.4)
    fine = make_diagnosed(3, 200, limit=Limit.NONE, confidence=0.9)
    texts = ["limit=disk", "limit=flush", "limit!=none", "limit!=device", "limit=none"]
    judged = conditions.evaluate(_report(sure, unsure, fine), parse(texts, conditions.NAMES))
    unknown = conditions.evaluate(_report(unsure), parse(["limit=flush"], conditions.NAMES))

    assert [one.is_met for one in judged] == [True, False, True, True, True]
    assert judged[0].explanation == "1 of 2 checkpoints (id 1)"
    assert unknown[0].is_met is None


def test_changes_are_read_in_percent_or_in_their_unit() -> None:
    """For `diff`: a sign is part of the value."""
    share, absolute, negative = parse(
        ["duration>10%,restore_duration>5s", "throughput<-10%"], comparison.NAMES, relative=True
    )

    assert (share.value, share.relative) == (0.1, True)
    assert (absolute.value, absolute.relative) == (5.0, False)
    assert (negative.value, negative.relative) == (-0.1, True)


@pytest.mark.parametrize(
    ("value", "quantity", "text"),
    [
        (-1.5, Quantity.TIME, "-1.50 s"),
        (0.05, Quantity.SHARE, "+5 %"),
        (2e9, Quantity.RATE, "+2.00 GB/s"),
        (0.0, Quantity.SIZE, "0 B"),
        (3.0, Quantity.COUNT, "+3"),
        (1.234, Quantity.FACTOR, "+1.23"),
    ],
)
def test_values_are_shown_with_their_sign(value: float, quantity: Quantity, text: str) -> None:
    """Where a change is meant."""
    assert format_value(value, quantity, signed=True) == text
