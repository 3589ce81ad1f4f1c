"""The past of counters: in full near the end, thinned before it, bounded always."""

from __future__ import annotations

from ckptprof.detect.past import FAST_LOOKS, SLOW_LOOKS, Past

SECOND_NS = 1_000_000_000


def test_counters_stand_as_they_were_last_seen() -> None:
    """Between two looks nothing had changed; before the first the first holds."""
    past = Past(2)
    past.add(10, (1, 100))
    past.add(20, (5, 100))
    past.add(30, (9, 400))

    assert past.around(12, 25) == ((1, 100), (9, 400))
    assert past.around(20, 20) == ((5, 100), (9, 400))
    assert past.around(0, 5) == ((1, 100), (1, 100))
    assert past.around(100, 200) == ((9, 400), (9, 400))


def test_nothing_seen_is_none() -> None:
    """Without a look there is no difference."""
    assert Past(1).around(0, 1) is None


def test_an_hour_at_ten_looks_a_second_stays_small() -> None:
    """The last minute keeps every look, what was before keeps one a second, and the whole is bounded."""
    past = Past(1)
    tick_ns = SECOND_NS // 10
    for tick in range(80_000):
        past.add(tick * tick_ns, (tick,))

    assert len(past._times) <= SLOW_LOOKS + 2 * FAST_LOOKS
    assert past.around(79_990 * tick_ns, 79_995 * tick_ns) == ((79_990,), (79_996,))
    (before,), (after,) = past.around(50_000 * tick_ns, 60_000 * tick_ns) or ((0,), (0,))
    assert abs(before - 50_000) <= 10
    assert abs(after - 60_000) <= 10
