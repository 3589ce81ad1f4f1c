"""Which node is named: each number of the rules at its edge."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest
from tests.cluster.nodes import NOBODY_KNOWS, SECOND, Job, groups, recorded

from ckptprof.cluster import clocks
from ckptprof.cluster.clocks import NodeEvent, TimedEvent
from ckptprof.cluster.merging import merge
from ckptprof.cluster.model import NodePart, NodeRecord
from ckptprof.cluster.stragglers import describe_straggler, find_last_node, slow_nodes


def _named(job: Job) -> list[str | None]:
    """Return the straggler of each save."""
    return [None if one.straggler is None else one.straggler.host for one in merge(job.seen()[0])]


@pytest.mark.parametrize(("late_s", "is_named"), [(0.7, False), (1.3, True)])
def test_less_than_a_second_is_nothing_to_point_at(late_s: float, *, is_named: bool) -> None:
    """Of saves of eight seconds."""
    assert set(_named(Job(late_s={1: late_s}))) == {"train-node-1" if is_named else None}


@pytest.mark.parametrize(("late_s", "is_named"), [(2.5, False), (7.0, True)])
def test_nor_is_less_than_a_twentieth(late_s: float, *, is_named: bool) -> None:
    """Of saves of eighty seconds."""
    assert set(_named(Job(late_s={1: late_s}, more=dict.fromkeys(range(8), 10.0)))) == {
        "train-node-1" if is_named else None
    }


def _group(ends_s: Collection[float]) -> list[TimedEvent]:
    """Return what nodes did that ended so many seconds after a start."""
    return [
        TimedEvent(NodeEvent(f"node-{n}", "", recorded()), 0, round(end * SECOND), 0)
        for n, end in enumerate(ends_s, start=1)
    ]


@pytest.mark.parametrize(
    ("ends_s", "last"),
    [
        ((9, 10, 11, 14.5), None),
        ((9, 10, 11, 15.5), ("node-4", 5_500_000_000)),
        ((10, 14), ("node-2", 4_000_000_000)),
        ((10, 10, 14), ("node-3", 4_000_000_000)),
        ((10, 12, 14), None),
        ((10, 10, 10, 14, 14.5), ("node-5", 4_500_000_000)),
        ((10, 11, 12, 13, 14), None),
        ((14,), None),
    ],
)
def test_the_last_stands_out_of_what_the_others_differ_by(
    ends_s: tuple[float, ...], last: tuple[str, int] | None
) -> None:
    """By five times their median deviation; of two slow nodes it is the last."""
    assert find_last_node(_group(ends_s), 0) == last


def _committing(job: Job, *, is_told: bool) -> list[NodeRecord]:
    """Return what nodes tell where rank 0 ends after all others; by an older ckptprof its own end is not told."""
    (first, *others), _ = job.seen()
    every = zip(first.checkpoints, *(one.checkpoints for one in others), strict=True)
    saves = []
    for own, *beside in every:
        end_ns = max(own.end_ns, *(one.end_ns for one in beside)) + SECOND // 2
        writers = [msgspec.structs.replace(one, end_ns=one.end_ns if is_told else end_ns) for one in own.writers]
        saves.append(msgspec.structs.replace(own, end_ns=end_ns, writers=tuple(writers)))
    return [msgspec.structs.replace(first, checkpoints=tuple(saves)), *others]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize(("late_s", "named"), [({2: 4.0}, "train-node-2"), ({}, None), ({0: 4.0}, "train-node-0")])
def test_who_commits_for_all_is_not_whom_they_waited_for(
    late_s: dict[int, float], named: str | None, *, is_told: bool
) -> None:
    """Rank 0 ends after all others, whichever of them is slow."""
    merged = merge(_committing(Job(late_s=late_s), is_told=is_told))

    assert {None if one.straggler is None else one.straggler.host for one in merged} == {named}


@pytest.mark.parametrize(("late_s", "named"), [({1: 4.0}, "train-node-1"), ({}, None), ({0: 4.0}, "train-node-0")])
def test_of_two_nodes_too(late_s: dict[int, float], named: str | None) -> None:
    """Where the end of its own is told."""
    merged = merge(_committing(Job(nodes=2, late_s=late_s), is_told=True))

    assert {None if one.straggler is None else one.straggler.host for one in merged} == {named}


@pytest.mark.parametrize(
    ("late_in", "slow_from"), [((3, 7), None), ((3, 7, 8), 8), ((0, 4, 9), 9), ((0, 5, 10), None), ((0, 5, 10, 11), 11)]
)
def test_a_node_is_slow_after_three_of_its_last_ten_saves(late_in: tuple[int, ...], slow_from: int | None) -> None:
    """Once or twice is chance, and what was long ago is over."""
    merged = merge(Job(saves=16, late_s={1: 4.0}, only={1: late_in}).seen()[0])

    slow = [n for n, one in enumerate(merged) if one.straggler is not None and one.straggler.is_slow]

    assert [n for n, one in enumerate(merged) if one.straggler is not None] == list(late_in)
    assert next(iter(slow), None) == slow_from
    assert [one.host for one in slow_nodes(merged)] == ["train-node-1"] * (slow_from is not None)


@pytest.mark.parametrize(("own", "is_slow"), [(6, False), (7, True)])
def test_whose_turn_it_was_is_not_slow(own: int, *, is_slow: bool) -> None:
    """Of three nodes each is the last in a third of the saves: twice as often is more than chance."""
    late_in = {0: [*range(1, own), 10], 1: range(own, 9), 2: [9]}
    merged = merge(Job(nodes=3, saves=11, late_s=dict.fromkeys(range(3), 4.0), only=late_in).seen()[0])

    last = merged[-1].straggler

    assert last is not None
    assert (last.host, last.is_slow) == ("train-node-0", is_slow)


def test_each_save_another_one_is_no_slow_node() -> None:
    """Of eight nodes."""
    job = Job(saves=32, late_s=dict.fromkeys(range(8), 4.0), only={n: range(n, 32, 8) for n in range(8)})

    assert _named(job) == [job.host(n % 8) for n in range(32)]
    assert slow_nodes(merge(job.seen()[0])) == ()


def _part(host: str, size: int, seconds: float) -> NodePart:
    return NodePart(
        host=host, database="", id=1, uid=host, start_ns=0, end_ns=round(seconds * SECOND), bytes=size, files=1, ranks=1
    )


@pytest.mark.parametrize(
    ("size", "seconds", "is_by_size"),
    [(200, 20, True), (200, 21.9, True), (200, 23, False), (115, 11.5, True), (105, 10.5, False), (100, 10, False)],
)
def test_a_node_with_more_bytes_is_as_fast_as_the_others(size: int, seconds: float, *, is_by_size: bool) -> None:
    """From a tenth more on, at nine tenths of their rate at least."""
    others = [_part(f"node-{n}", 100, 10) for n in range(3)]

    last = describe_straggler("slow", SECOND, [*others, _part("slow", size, seconds)])

    assert last.is_by_size is is_by_size
    assert last.bytes_ratio == size / 100


@pytest.mark.parametrize(("saves", "is_named"), [(2, False), (3, True)])
def test_three_saves_tell_what_a_clock_is_off_by(saves: int, *, is_named: bool) -> None:
    """Nobody vouches for it."""
    job = Job(saves=saves, late_s={1: 4.0}, ahead_s={2: 9.0}, clocks=dict.fromkeys(range(8), NOBODY_KNOWS))

    assert set(_named(job)) == {"train-node-1" if is_named else None}


def test_a_clock_that_drifts_is_told_by_the_saves_around() -> None:
    """Half a second with each of a hundred saves: fifty in all."""
    clocks = dict.fromkeys(range(8), NOBODY_KNOWS)
    job = Job(saves=100, late_s={1: 4.0}, drift_s={2: 0.5}, clocks=clocks)

    assert set(_named(job)) == {"train-node-1"}
    assert set(_named(Job(saves=100, drift_s={2: 0.5}, clocks=clocks))) == {None}


@pytest.mark.parametrize(("ahead_s", "is_one"), [(60.0, True), (75.0, False)])
def test_a_clock_of_which_nothing_is_known_is_off_by_a_minute_at_most(ahead_s: float, *, is_one: bool) -> None:
    """As far as parts of one step are joined; the saves are short and few."""
    records, truth = Job(saves=2, every_s=20.0, ahead_s={1: ahead_s}, clocks={1: NOBODY_KNOWS}).seen()

    assert (groups(merge(records)) == truth) is is_one


@pytest.mark.parametrize(("late_s", "is_one"), [(28.0, True), (33.0, False)])
def test_a_node_may_begin_half_a_minute_after_the_others(late_s: float, *, is_one: bool) -> None:
    """When theirs have long ended."""
    records, truth = Job(saves=2, every_s=50.0, ahead_s={1: late_s}).seen()

    assert (groups(merge(records)) == truth) is is_one


def test_the_work_grows_with_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is compared with the few checkpoints that are open as it begins, however many there are."""
    asked = []
    takes = clocks._CheckpointGroup.accepts
    monkeypatch.setattr(clocks._CheckpointGroup, "accepts", lambda *given: asked.append(1) or takes(*given))
    counts = []
    for saves in (50, 100):
        records, _ = Job(nodes=16, saves=saves, clocks={1: NOBODY_KNOWS}).seen()
        asked.clear()
        merge(records)
        counts.append(len(asked) / sum(len(record.checkpoints) for record in records))

    assert max(counts) <= 2
