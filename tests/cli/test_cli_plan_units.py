"""Numbers with units, as people type them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptprof.cli.shared import typed_values as units
from ckptprof.errors import UsageError

PARSERS = (
    units.seconds, units.size, units.rate, units.count, units.whole, units.failures,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("500ms", 0.5), ("5m", 300), ("5min", 300), ("1.5h", 5400), (" 1h30m ", 5400), ("2 d", 172_800),
        ("1H", 3600), ("50,000h", 180_000_000), ("1e3s", 1000), ("1w", 604_800), (".5h", 1800), ("-5s", -5),
        ("1h 30m 10s", 5410),
    ],
)  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    """With a unit always, several of them where wanted."""
    assert units.seconds(text, "--x") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1TB", 10**12), ("1TiB", 2**40), ("1.5tb", 1.5e12), ("1 tib", 2**40), ("5EB", 5e18), ("2PiB", 2**51),
        ("512GiB", 2**39), ("750kB", 750_000), ("1KiB", 1024), ("5000000000000", 5e12), ("5,000,000 B", 5e6),
        ("2e12", 2e12), ("1e3GB", 1e12),
    ],
)  # fmt: skip
def test_sizes(text: str, size: float) -> None:
    """Without an i decimal, with it binary."""
    assert units.size(text, "--x") == size


@pytest.mark.parametrize(
    ("text", "rate"), [("65GB/s", 65e9), ("1.5 GiB/s", 1.5 * 2**30), ("750MBps", 7.5e8), ("100 B/s", 100)]
)
def test_rates(text: str, rate: float) -> None:
    """Of bytes, per second."""
    assert units.rate(text, "--x") == rate


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("405B", 405e9), ("70b", 70e9), ("1.38T", 1.38e12), ("405B params", 405e9), ("7B parameters", 7e9),
        ("24,000", 24_000), ("24k", 24_000), ("124M", 124e6), ("8bn", 8e9), ("1e9", 1e9), ("355 million", None),
    ],
)  # fmt: skip
def test_counts(text: str, count: float | None) -> None:
    """Thousands, millions, billions and trillions by their letters."""
    if count is None:
        with pytest.raises(UsageError, match="not a unit of this"):
            units.count(text, "--x")
    else:
        assert units.count(text, "--x") == pytest.approx(count)


def test_failures() -> None:
    """So many in that time."""
    assert units.failures("419/54d", "--x") == units.Failures(419, 54 * 86_400)
    assert units.failures("12 / 30 d", "--x") == units.Failures(12, 30 * 86_400)


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (units.seconds, "30", "has no unit"), (units.seconds, "5x", "'x' is not a unit of this option"),
        (units.seconds, "1h5", "'h5' is not a unit of this option"), (units.seconds, "", "not a number with a unit"),
        (units.seconds, "1,5h", "not a unit of this"), (units.seconds, "5 TB", "'TB' is not a unit of this option"),
        (units.seconds, "soon", "not a number with a unit"), (units.seconds, "--", "not a number with a unit"),
        (units.size, "405B", "would be 405 bytes"), (units.size, "5T", "'T' is not a unit of this option"),
        (units.size, "5Tb", "counts bits"), (units.size, "5Gbit", "counts bits"),
        (units.size, "5Gib", "counts bits"), (units.size, "5b", "counts bits"),
        (units.size, "5 XB", "not a unit of this"), (units.size, "1.2.3TB", "not a unit of this"),
        (units.rate, "65GB", "'GB' is not a unit of this option"), (units.rate, "65", "not a unit of this"),
        (units.rate, "100Gb/s", "counts bits"), (units.rate, "1GB/h", "not a unit of this"),
        (units.count, "405GB", "not a unit of this"), (units.whole, "2.5", "not a whole number"),
        (units.whole, "inf", "is not a number"), (units.whole, "nan", "is not a number"),
        (units.failures, "12", "no period"),
        (units.failures, "1.5/3d", "not a whole number"), (units.failures, "12/3", "has no unit"),
    ],
)  # fmt: skip
def test_refused(parse: object, text: str, reason: str) -> None:
    """With the option, what was typed, why not, and what to write."""
    assert callable(parse)
    with pytest.raises(UsageError) as caught:
        parse(text, "--x")

    assert str(caught.value).startswith("--x ")
    assert reason in str(caught.value)
    assert caught.value.hint


def test_no_number_is_passed_on() -> None:
    """What is none is the plan's to refuse, by its name."""
    assert math.isnan(units.size("nanTB", "--x"))
    assert math.isinf(units.seconds("1e999s", "--x"))
    assert math.isinf(units.seconds("inf s", "--x"))


@settings(max_examples=200)
@given(
    st.sampled_from(PARSERS),
    st.sampled_from(["0/0", "12/30d"])
    | st.text(max_size=30)
    | st.from_regex(r"[-+]?[0-9.,e]{0,8} ?[a-zA-Z/]{0,5}", fullmatch=True),
)
def test_any_text_is_a_number_or_refused(parse: object, text: str) -> None:
    """Never an exception of another kind."""
    assert callable(parse)
    try:
        answer = parse(text, "--x")
    except UsageError as error:
        answer = error

    assert isinstance(answer, (int, float, units.Failures)) or (answer.hint and len(str(answer)) < 400)


@settings(max_examples=50)
@given(st.floats(0.001, 1e6), st.sampled_from("kMGTPE"))
def test_binary_is_more_than_decimal(value: float, prefix: str) -> None:
    """And both are the number times their unit."""
    power = "kMGTPE".index(prefix) + 1
    text = f"{value:.6f}"

    assert units.size(f"{text}{prefix}B", "--x") == pytest.approx(float(text) * 1000**power)
    assert units.size(f"{text}{prefix}iB", "--x") == pytest.approx(float(text) * 1024**power)
