"""The past of counters: in full near the end, thinned before it, bounded always."""

from __future__ import annotations

from ckptprof.detect.world.counter_history import MAX_HISTORY_BYTES, CounterHistories, CounterHistory

SECOND_NS = 1_000_000_000


def test_counters_stand_as_they_were_last_seen() -> None:
    """Between two looks nothing had changed; before the first the first holds."""
    past = CounterHistory(2)
    past.add(10, (1, 100))
    past.add(20, (5, 100))
    past.add(30, (9, 400))

    assert past.values_around(12, 25) == ((1, 100), (9, 400))
    assert past.values_around(20, 20) == ((5, 100), (9, 400))
    assert past.values_around(0, 5) == ((1, 100), (1, 100))
    assert past.values_around(100, 200) == ((9, 400), (9, 400))


def test_nothing_seen_is_none() -> None:
    """Without a look there is no difference."""
    assert CounterHistory(1).values_around(0, 1) is None


def test_two_hours_at_ten_looks_a_second_stay_small() -> None:
    """The last minute keeps every look; the older the looks, the farther they are apart, and the whole is bounded."""
    past = CounterHistory(4)
    tick_ns = SECOND_NS // 10
    for tick in range(72_000):
        past.add(tick * tick_ns, (tick, 0, 0, 0))
    last = tick

    assert len(past) * 5 * 8 <= MAX_HISTORY_BYTES == 128 << 10
    for age in (1, 10, 100, 400):  # in full
        ((at_ns, counts), *_) = past.samples((last - age) * tick_ns, last * tick_ns)
        assert (at_ns, counts[0]) == ((last - age) * tick_ns, last - age)
    for age in (600, 6000, 36_000):  # a minute, ten, an hour
        (before, *_), (after, *_) = past.values_around((last - age) * tick_ns, (last - age) * tick_ns) or ((0,), (0,))
        assert before <= last - age <= after
        assert after - before <= age / 100


def test_the_largest_of_a_gauge_is_of_the_time_between() -> None:
    """From the first look after the start to the first after the end; the last one if there is none."""
    past = CounterHistory(2)
    for at_ns, gauge in ((10, 99), (20, 5), (30, 7), (40, 88)):
        past.add(at_ns, (0, gauge))

    assert past.largest(1, 10, 25) == 7
    assert past.largest(1, 50, 60) == 88
    assert CounterHistory(2).largest(1, 0, 9) is None


def test_of_wide_looks_fewer_are_kept_and_a_past_knows_its_ends() -> None:
    """However close they are."""
    past = CounterHistory(100)
    assert past.last_values == ()
    for at_ns in range(1000):
        past.add(at_ns, (at_ns,) * 100)

    assert len(past) * 101 * 8 <= MAX_HISTORY_BYTES
    assert (past.last_ns, past.last_values[0]) == (999, 999)
    assert 0 <= past.first_ns < 990


def test_a_look_that_was_not_told_had_not_changed() -> None:
    """Up to the time when it was looked at before it was as at the last look; between two looks it grew evenly."""
    past = CounterHistory(1)
    past.add(0, (100,))
    past.add(1000, (200,), unchanged_ns=900)

    assert past.at(900) == (100,)
    assert past.at(950) == (150,)
    assert past.samples(100, 950) == [(0, (100,)), (900, (100,)), (1000, (200,))]
    assert past.samples(-5, 0) == [(0, (100,))]
    assert past.difference(0, 950) == (50,)


def test_what_falls_begins_anew() -> None:
    """A counter that went back is that of another thing; a gauge after it may fall."""
    past = CounterHistory(2, rising=1)
    past.add(10, (5, 9))
    past.add(20, (7, 1))
    assert past.difference(10, 20) == (2, -8)
    past.add(30, (1, 1))
    past.add(40, (4, 1))

    assert len(past) == 2
    assert past.difference(20, 40) is None
    assert past.difference(30, 40) == (3, 0)


def test_a_cut_takes_detail_and_no_thing() -> None:
    """Each thing keeps its first and its latest look, and of those between as many as there is room for."""
    pasts: CounterHistories[int] = CounterHistories(lambda: CounterHistory(1, max_bytes=1600))
    for tick in range(100):
        for thing in range(10):
            pasts.touch(thing).add(tick * SECOND_NS, (tick,))
    before_bytes = pasts.retained_bytes
    pasts.shrink(1.0)

    assert pasts.retained_bytes == before_bytes

    pasts.shrink(0.5)

    assert len(pasts) == 10
    assert {len(past) for past in pasts.values()} <= set(range(10, 51))
    assert {past.last_values for past in pasts.values()} == {(99,)}
    assert pasts.retained_bytes < before_bytes - 10 * 50 * 16 + 1
