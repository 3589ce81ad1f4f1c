"""What a ledger keeps together tells the same as what each of its transfers tells alone."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.observed import history_of

from ckptprof.detect.transfers.ledger import Ledger, _SpreadBytes
from ckptprof.detect.transfers.model.position_samples import PositionSample
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.world.process_counters import ProcessHistory, ProcessInterval

SECOND_NS = 1_000_000_000
WRITER = (100, 1000)
MOST_ROUNDED = 100  # bytes, one for each interval


def written(dice: random.Random, number: int) -> Transfer:
    """Return one of many files, met at an odd moment, and open for as long."""
    first = dice.randrange(2 * SECOND_NS, 12 * SECOND_NS)
    last = first + dice.choice((0, 40_000_000, SECOND_NS, 30 * SECOND_NS))
    return Transfer(
        process=WRITER, file=(8, number), writes=True, path=f"/run/{number}", first_ns=first, last_ns=last,
        before_ns=first - dice.choice((0, 40_000_000)), size=dice.randrange(1 << 22),
    )  # fmt: skip


def share_of(it: Transfer, window: tuple[int, int]) -> float:
    """Return how many bytes of a file fall into a time, at an even rate."""
    start, end = min(it.span[0], it.span[1] - 1), it.span[1]
    return it.size * max(0, min(end, window[1]) - max(start, window[0])) / (end - start)


def unexplained(history: ProcessHistory, transfers: list[Transfer], start_ns: int, end_ns: int) -> float:
    """Return what is left of what was written, asked of each transfer anew."""
    left = sum(
        max(0, one.new_written_bytes - sum(share_of(it, (one.start_ns, one.end_ns)) for it in transfers))
        for one in history.between(start_ns - 60_000_000, end_ns + 60_000_000)
    )
    beside = [it for it in transfers if it.last_ns >= start_ns - SECOND_NS and it.first_ns <= end_ns + SECOND_NS]
    large = [it.span for it in beside if it.size >= 1 << 20]
    low = min([start_ns, *(span[0] for span in large)]) - 60_000_000
    high = max([end_ns, *(span[1] for span in large)]) + 60_000_000
    in_all = sum(one.new_written_bytes for one in history.between(low, high))
    return min(left, in_all - sum(it.size for it in beside))


def test_what_is_unexplained_is_what_all_of_it_leaves() -> None:
    """Asked while more is entered: a save of thousands of files is credited one after the other."""
    dice = random.Random(11)  # noqa: S311 - the same files in every run
    ticks = range(0, 60 * SECOND_NS, 40_000_000)
    history = history_of(
        [ProcessInterval(at, at + 40_000_000, new_written_bytes=dice.randrange(1 << 25)) for at in ticks], None, None, 1
    )
    known = [written(dice, number) for number in range(50)]
    ledger = Ledger({WRITER: history}, FileOpenings(), known)
    told = []
    for number in range(50, 150):
        start = dice.randrange(SECOND_NS, 13 * SECOND_NS)
        end = start + dice.choice((0, 200_000_000, 3 * SECOND_NS))
        told.append(ledger.unexplained_written_bytes(WRITER, 8, start, end))
        assert abs(told[-1] - unexplained(history, known, start, end)) <= MOST_ROUNDED
        known.append(written(dice, number))
        ledger.add(known[-1])

    assert len(set(told)) > 50


def open_between(start_s: int, end_s: int, size: int) -> Transfer:
    """Return a file of that size that the writer had open for so long."""
    start, end = start_s * SECOND_NS, end_s * SECOND_NS
    return Transfer(
        process=WRITER, file=(8, start_s), writes=True, path=f"/run/{start_s}", first_ns=start, last_ns=end,
        before_ns=start, size=size,
    )  # fmt: skip


@pytest.mark.parametrize(("label_s", "left_mb"), [(20, 0), (19, 0), (18, -64)])
def test_pages_of_a_file_that_stays_open_are_of_no_other(label_s: int, left_mb: int) -> None:
    """They were dirtied at once, and a late tick tells them up to a second before the file was born."""
    at_ns = label_s * SECOND_NS
    pages = [ProcessInterval(low, low + SECOND_NS // 2, dirtied_bytes=64 << 20) for low in (5 * SECOND_NS, at_ns)]
    known = [open_between(5, 6, 64 << 20), open_between(20, 26, 64 << 20)]
    ledger = Ledger({WRITER: history_of(pages, None, None, 1)}, FileOpenings(), known)

    left = ledger.unexplained_written_bytes(WRITER, 8, 20 * SECOND_NS, 20 * SECOND_NS + 1)

    assert left == left_mb << 20


def test_a_log_that_is_open_all_the_time_hands_nothing_on_from_save_to_save() -> None:
    """What the save before wrote while it was open is no part of what this one leaves."""
    saves = [ProcessInterval(at * SECOND_NS, (at + 1) * SECOND_NS, new_written_bytes=64 << 20) for at in (10, 20)]
    known = [open_between(10, 11, 64 << 20), open_between(20, 21, 64 << 20), open_between(1, 30, 200)]
    ledger = Ledger({WRITER: history_of(saves, None, None, 1)}, FileOpenings(), known)

    assert ledger.unexplained_written_bytes(WRITER, 8, 20 * SECOND_NS, 22 * SECOND_NS) <= 0


MOMENTS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ends: (min(ends), max(ends)))


@given(st.lists(st.lists(st.tuples(MOMENTS, st.integers(0, 1000)), max_size=9), max_size=9), MOMENTS)
@settings(max_examples=60)
def test_bytes_that_are_spread_evenly_are_shared_by_time(
    added: list[list[tuple[tuple[int, int], int]]], window: tuple[int, int]
) -> None:
    """Spans are added one by one or together; one without length weighs in what ends there."""
    spread, shares = _SpreadBytes(), Fraction(0)
    for spans in added:
        spread.add(spans)
        for (start, end), size in spans:
            first = min(start, end - 1)
            shares += Fraction(size * max(0, min(end, window[1]) - max(first, window[0])), end - first)

        assert abs(spread.between(window) - shares) <= Fraction(1, 2)
    assert _SpreadBytes([((0, 10**12), 10**9 + 1)]).between((0, 10**12)) == 10**9 + 1  # in a quarter of an hour


@given(st.lists(st.tuples(MOMENTS, st.sampled_from("abc")), max_size=20), MOMENTS)
@settings(max_examples=60)
def test_a_folder_is_searched_by_time_and_only_of_the_process_in_question(
    writes: list[tuple[tuple[int, int], str]], window: tuple[int, int]
) -> None:
    """Whether one of its files was open within a second."""
    half_ns = SECOND_NS // 2

    def observed(process: tuple[int, int], number: int) -> Transfer:
        (start, end), folder = writes[number]
        return Transfer(
            process=process, file=(8, number), writes=True, path=f"/{folder}/{number}", first_ns=start * half_ns,
            last_ns=end * half_ns, before_ns=start * half_ns, samples=[PositionSample(start * half_ns, 0, 1)],
        )  # fmt: skip

    other = (200, 2000)
    known = [observed(process, number) for process in (WRITER, other) for number in range(len(writes))]
    ledger = Ledger({}, FileOpenings(), known)
    low, high = window[0] * half_ns + 9 * SECOND_NS, window[1] * half_ns + 9 * SECOND_NS
    spans = [(start * half_ns, end * half_ns) for (start, end), folder in writes if folder == "a"]

    found = any(low - SECOND_NS <= end and start <= high + SECOND_NS for start, end in spans)
    assert ledger.was_writing_in_folder("/a", WRITER, low, high) == found
    assert list(ledger._observed_writes) == [WRITER]
