"""The times that one may write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.cli import filters
from ckptprof.errors import UsageError
from ckptprof.model import Kind

SECOND = 1_000_000_000
NOW = 1_774_000_800 * SECOND + 123_456_789  # 2026-03-20 10:00:00.123456789 UTC


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Live where the clock changes: UTC+1, and UTC+2 from 29 March 2026."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _utc(*parts: int) -> int:
    return round(datetime(*parts, tzinfo=timezone.utc).timestamp()) * SECOND  # type: ignore[misc,arg-type] # ints only


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("NOW", NOW),
        ("2h", NOW - 7200 * SECOND),
        ("30m", NOW - 1800 * SECOND),
        ("30min", NOW - 1800 * SECOND),
        ("7d", NOW - 7 * 86_400 * SECOND),
        ("1w", NOW - 7 * 86_400 * SECOND),
        ("1h30m", NOW - 5400 * SECOND),
        ("0.5s", NOW - SECOND // 2),
        ("today", _utc(2026, 3, 19, 23)),
        ("yesterday", _utc(2026, 3, 18, 23)),
        ("10:30", _utc(2026, 3, 20, 9, 30)),
        ("2026-03-20", _utc(2026, 3, 19, 23)),
        ("2026-07-01", _utc(2026, 6, 30, 22)),
        ("2026-03-20 10:30", _utc(2026, 3, 20, 9, 30)),
        ("2026-03-20T10:30:05", _utc(2026, 3, 20, 9, 30, 5)),
        ("2026-03-20T10:30:05Z", _utc(2026, 3, 20, 10, 30, 5)),
        ("2026-03-20t10:30:05z", _utc(2026, 3, 20, 10, 30, 5)),
        ("2026-03-20T10:30:05.25+01:00", _utc(2026, 3, 20, 9, 30, 5) + SECOND // 4),
        ("2026-03-20T10:30:05.123456789-0330", _utc(2026, 3, 20, 14, 0, 5) + 123_456_789),
        ("1774000800", 1_774_000_800 * SECOND),
        ("1774000800.5", 1_774_000_800 * SECOND + SECOND // 2),
        (" 2h ", NOW - 7200 * SECOND),
    ],
)
def test_accepted_forms(text: str, expected: int) -> None:
    """Local time unless an offset says otherwise, to the nanosecond."""
    assert expected == filters.moment(text, now_ns=NOW, option="--since")


@pytest.mark.parametrize(
    "text",
    ["", "teatime", "5", "-2h", "2 hours", "2h ago", "2026-02-30", "2026-13-01", "0000-01-01", "25:00", "2026-03-20T10",
     "nan", "inf", "1e9", "\u0661\u0662h", "2026-03-20T10:30:05+99:99",
     "99999999999999999999", "\x1b[2J", "\udcff"],
)  # fmt: skip
def test_refused_forms(text: str) -> None:
    """Each is a usage error that names what would be accepted."""
    with pytest.raises(UsageError, match=r"--until .* is not a time") as caught:
        filters.moment(text, now_ns=NOW, option="--until")

    assert caught.value.exit_code == 2
    assert "2h, 30m, 7d, now, today, yesterday" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["0001-01-01", "9" * 4000 + "h"])
def test_a_time_may_be_out_of_range(text: str) -> None:
    """It is a time, only none that a clock can show here."""
    with pytest.raises(UsageError, match=r"--since .* is out of range"):
        filters.moment(text, now_ns=NOW, option="--since")


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_usage_error(text: str) -> None:
    """Nothing else comes out."""
    try:
        found = filters.moment(text, now_ns=NOW, option="--since")
    except UsageError:
        found = 0
    assert isinstance(found, int)


def test_query_takes_all() -> None:
    """Every option arrives."""
    query = filters.query("2h", "now", "train*", Kind.SAVE, 5, now_ns=NOW)

    assert (query.since_ns, query.until_ns) == (NOW - 7200 * SECOND, NOW)
    assert (query.job, query.kind, query.limit) == ("train*", Kind.SAVE, 5)


def test_query_of_nothing_is_open() -> None:
    """Without options everything is asked for."""
    query = filters.query(None, None, None, None, None, now_ns=NOW)

    assert (query.since_ns, query.until_ns, query.limit) == (None, None, None)


def test_bounds_have_an_order() -> None:
    """A time span that ends before it begins is a mistake, not an empty answer."""
    with pytest.raises(UsageError, match="is not before"):
        filters.query("1h", "2h", None, None, None, now_ns=NOW)
