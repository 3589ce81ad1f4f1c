"""What is asked of a fleet, answered from clones of recorded saves with what happens on clusters planted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.cluster.nodes import BEGIN_NS, EVERY, HOLD_NS, NOBODY_KNOWS, SECOND, Job

from ckptprof.cluster import answers
from ckptprof.cluster.merging import merge
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.diagnose import tiers
from ckptprof.diagnose.plan.intervals import daly_exact
from ckptprof.fleet.questions import FleetDatabase, node_state
from ckptprof.model import CheckpointQuery, Destination, Evidence, Kind, Risk, Sent, Session, Status
from ckptprof.verdicts import Limit

HOLD = HOLD_NS / SECOND
LATER_NS = BEGIN_NS + 365 * 86_400 * SECOND
LLM = {"name": "llm", "key": "slurm:alpha/9000.0", "job_id": "9000"}


def _records(*jobs: Job) -> list[NodeRecord]:
    """Return what all nodes tell; one that had several jobs has one database."""
    found: dict[str, NodeRecord] = {}
    for job in jobs:
        for record in job.seen()[0]:
            known = found.get(record.host)
            if known is not None:
                watched = msgspec.structs.replace(known.watched, end_ns=record.watched.end_ns)
                both = (*known.checkpoints, *record.checkpoints)
                record = msgspec.structs.replace(known, watched=watched, checkpoints=both)  # noqa: PLW2901 # the same node
            found[record.host] = record
    return list(found.values())


def _merged(*jobs: Job) -> Sequence[ClusterCheckpoint]:
    return merge(_records(*jobs))


def _ask(
    merged: Sequence[ClusterCheckpoint],
    question: str,
    of: Any,
    records: Sequence[NodeRecord] = (),
    now_ns: int = LATER_NS,
    **variables: object,
) -> Any:
    """Return the answer of a question's SQL."""
    with contextlib.closing(FleetDatabase()) as tables:
        tables.add_merged(merged, map(node_state, records))
        tables.select(CheckpointQuery(), now_ns)
        return tables.ask(question, of, **variables)


def stragglers(merged: Sequence[ClusterCheckpoint]) -> answers.Stragglers:
    """Ask for nodes that others waited for."""
    return _ask(merged, "stragglers", answers.Stragglers)


def costs(merged: Sequence[ClusterCheckpoint], by: str) -> answers.Costs:
    """Ask for the cost, by week in UTC."""
    return _ask(merged, "cost", answers.Costs, by=by)


def limits(merged: Sequence[ClusterCheckpoint], split_ns: int | None) -> answers.Limits:
    """Ask for limits."""
    return _ask(merged, "limits", answers.Limits, split_ns=split_ns)


def newest_restorable(
    merged: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord], now_ns: int
) -> answers.NewestSteps:
    """Ask for the newest restorable step of each job."""
    return _ask(merged, "newest", answers.NewestSteps, records, now_ns)


def collisions(merged: Sequence[ClusterCheckpoint]) -> answers.Collisions:
    """Ask for jobs that save at the same time."""
    return _ask(merged, "collisions", answers.Collisions)


def nodes(merged: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord]) -> answers.Nodes:
    """Ask for differences between nodes."""
    return _ask(merged, "nodes", answers.Nodes, records)


def test_the_straggler_of_all_jobs_is_found() -> None:
    """How often and how long it was waited for, with its own limit; a job without any tells none."""
    told = stragglers(_merged(Job(late_s={1: 4.0}, only={1: range(6)}), Job(**LLM)))

    (one,) = told.nodes
    assert (one.host, one.times, one.saves, one.is_slow, one.jobs) == ("train-node-1", 6, 12, True, ("train",))
    assert one.excess_seconds == pytest.approx(6 * 4.0, abs=1)
    assert one.max_seconds == pytest.approx(4.0, abs=0.2)
    assert one.waited_gpu_seconds == pytest.approx(one.excess_seconds * 7 * 8)
    assert one.limit is Limit.NETWORK
    assert (told.checkpoints, told.of_several, told.within_clock_error) == (24, 24, 0)


def test_nobody_is_named_within_clock_error() -> None:
    """Two saves tell nothing of clocks that nobody vouches for: that is said."""
    told = stragglers(_merged(Job(saves=2, late_s={1: 4.0}, clocks=dict.fromkeys(range(8), NOBODY_KNOWS))))

    assert (told.nodes, told.within_clock_error) == ((), 2)


def test_what_it_cost_is_the_gpu_time_of_all_nodes() -> None:
    """And its share of what the runs had, from the first save of each until its next one is due."""
    told = costs(_merged(Job(nodes=4), Job(nodes=2, every_s=EVERY / 10, **LLM)), "job")

    train, llm = told.rows
    assert [train.job, llm.job] == ["train", "llm"]
    assert [train.name, llm.name] == ["slurm:alpha/8812", "slurm:alpha/9000"]
    for one, nodes_, every in ((train, 4, EVERY), (llm, 2, EVERY / 10)):
        assert one.gpus == 8 * nodes_
        assert one.gpu_seconds == pytest.approx(12 * HOLD * 8 * nodes_, rel=0.02)
        assert one.run_seconds == pytest.approx(12 * every, rel=0.01)
        assert one.allocated_gpu_seconds == pytest.approx(12 * every * 8 * nodes_, rel=0.01)
        assert one.gpu_share == pytest.approx(HOLD / every, rel=0.03)
        assert (one.saves, one.restores, one.incomplete, one.nodes, one.stalls_unknown) == (12, 0, 0, nodes_, 0)
    assert [train.exceeds_snia, llm.exceeds_snia] == [False, True]


def test_the_share_of_several_runs_is_of_the_gpus_that_each_had() -> None:
    """A small run that saves all the time makes no large one dear."""
    told = costs(_merged(Job(nodes=4), Job(nodes=1, every_s=EVERY / 10, **LLM)), "framework")

    (one,) = told.rows
    assert one.job is None
    assert one.share == pytest.approx(2 * HOLD / (EVERY * 1.1), rel=0.03)
    assert one.gpu_share == pytest.approx((4 + 1) * HOLD / (EVERY * 4.1), rel=0.03)


@pytest.mark.parametrize("by", ["job", "run", "user", "account", "partition", "framework", "mode", "storage", "week"])
def test_each_checkpoint_counts_once_however_the_cost_is_told(by: str) -> None:
    """Copies count in none; the GPU time is the same in all."""
    week = 7 * 86_400.0
    merged = _merged(
        Job(nodes=2), Job(nodes=2, begin_s=week, **LLM), Job(nodes=1, saves=3, kind=Kind.COPY, name="rsync")
    )

    told = costs(merged, by)

    assert told.checkpoints == sum(one.saves + one.restores for one in told.rows) == 24
    assert sum(one.gpu_seconds or 0.0 for one in told.rows) == pytest.approx(2 * 12 * HOLD * 16, rel=0.02)
    assert by != "week" or [one.name for one in told.rows] == ["2026-W12", "2026-W13"]


def test_what_is_whose_is_added_up() -> None:
    """By user, account and partition, as far as Slurm's prolog tells them."""
    records = _records(Job(nodes=2), Job(nodes=1, **LLM))
    of = {"train": {"user": "alice", "account": "nlp"}, "llm": {"user": "bob", "account": "nlp"}}
    owned = [
        msgspec.structs.replace(
            one, checkpoints=tuple(
                msgspec.structs.replace(e, run=msgspec.structs.replace(e.run, **of[e.job])) for e in one.checkpoints
            ),
        )
        for one in records
    ]  # fmt: skip
    merged = merge(owned)

    assert [one.name for one in costs(merged, "user").rows] == ["alice", "bob"]
    assert [(one.name, one.saves) for one in costs(merged, "account").rows] == [("nlp", 24)]
    assert [one.name for one in costs(merged, "partition").rows] == ["-"]


@pytest.mark.parametrize("rate", [0.1e9, 0.75e9, 1.5e9, 2.9e9, 3e9, None])
def test_the_tier_of_a_rate_is_that_of_a_node(rate: float | None) -> None:
    """SQL and Python have one table of tiers."""
    of = Job().of
    assert of.cost is not None
    of = msgspec.structs.replace(of, cost=msgspec.structs.replace(of.cost, bytes_per_second_per_gpu=rate))

    (one,) = costs(_merged(Job(nodes=1, of=of)), "job").rows

    assert one.tier == tiers.word(Kind.SAVE, rate)


def test_a_limit_is_told_for_each_storage() -> None:
    """By the time that training lost; of a save with a straggler it is that one's."""
    told = limits(_merged(Job(nodes=4, late_s={1: 4.0}), Job(nodes=2, folder="per-node", **LLM)), None)

    (period,) = told.periods
    assert [(one.storage, one.limit, one.count, one.jobs, one.nodes) for one in period.limits] == [
        ("nfs:filer:/ckpt", Limit.NETWORK, 12, 1, 1),
        ("local", Limit.DEVICE, 12, 1, 2),
    ]
    assert sum(one.lost_share or 0.0 for one in period.limits) == pytest.approx(1)
    assert period.limits[0].median_seconds == pytest.approx(HOLD + 4, rel=0.02)


def test_before_and_after_a_change_are_told_apart() -> None:
    """A node was mended after the fourth save."""
    split_ns = BEGIN_NS + round(3.5 * EVERY * SECOND)
    told = limits(_merged(Job(late_s={1: 4.0}, only={1: range(4)})), split_ns)

    before, after = told.periods
    assert [(one.limit, one.count) for one in before.limits] == [(Limit.NETWORK, 4)]
    assert [(one.limit, one.count) for one in after.limits] == [(Limit.DEVICE, 8)]
    assert (before.until_ns, after.since_ns) == (split_ns, split_ns)


def test_the_newest_step_is_the_last_one_that_is_whole() -> None:
    """What broke off on one node, or may restore wrongly there, is no step to go back to."""
    records = _records(Job(nodes=4))
    broken = msgspec.structs.replace(records[2].checkpoints[-1], status=Status.INCOMPLETE)
    risky = msgspec.structs.replace(
        records[1].checkpoints[-2], evidence=(Evidence(name=Risk.SHARED_PATH.value, weight=0.0, text="two wrote it"),)
    )
    records[2] = msgspec.structs.replace(records[2], checkpoints=(*records[2].checkpoints[:-1], broken))
    records[1] = msgspec.structs.replace(
        records[1], checkpoints=(*records[1].checkpoints[:-2], risky, records[1].checkpoints[-1])
    )

    (one,) = newest_restorable(merge(records), records, LATER_NS).jobs

    assert (one.job, one.step, one.unusable, one.saves, one.restarts) == ("train", 1000, 2, 12, 0)
    assert one.age_seconds == pytest.approx(3 * EVERY - 60, abs=1)  # their nodes were watched until then
    assert one.interval_seconds == pytest.approx(EVERY, abs=1)
    assert one.is_overdue is True
    assert (one.mttf_seconds, one.optimal_interval_seconds) == (None, None)


@pytest.mark.parametrize(
    "missing",
    [
        {"ends": {3: 11}, "lost": {3: [11]}}, {"ends": {3: 10}, "lost": {3: [10, 11]}}, {"lost": {3: [11]}},
    ],
    ids=["its node died in it", "and in the one before", "it was watched and wrote nothing"],
)  # fmt: skip
def test_a_save_without_the_part_of_a_node_is_no_step_to_go_back_to(missing: dict[str, Any]) -> None:
    """A node that wrote before has a part of it, which nobody saw."""
    records = _records(Job(nodes=4, **missing))

    (one,) = newest_restorable(merge(records), records, LATER_NS).jobs

    unseen = len(missing["lost"][3])
    assert (one.step, one.unusable) == (1200 - 100 * unseen, unseen)


def test_nodes_that_never_wrote_are_not_missed() -> None:
    """One saves for all, or the databases of the others were never collected; or from one time on one saves for all."""
    alone, changes = Job(nodes=4, writers=[0]), Job(nodes=4, lost={n: range(5, 12) for n in (1, 2, 3)})
    for records in (_records(alone), _records(Job(nodes=4))[:2], _records(changes)):
        (one,) = newest_restorable(merge(records), records, LATER_NS).jobs

        assert (one.step, one.unusable) == (1200, 0)


def test_a_job_on_its_way_is_not_overdue() -> None:
    """Its last save was less than two intervals ago, when its nodes were watched last, or now if that is earlier."""
    records = _records(Job(nodes=2))
    now_ns = BEGIN_NS + round((11 * EVERY + 100) * SECOND)

    (one,) = newest_restorable(merge(records), records, now_ns).jobs

    assert (one.is_overdue, one.unusable) == (False, 0)
    assert one.age_seconds == pytest.approx(100, abs=1)


def test_a_clock_that_is_ahead_makes_no_save_older() -> None:
    """What it is ahead is taken off, as it is off the save."""
    records = _records(Job(nodes=4, ahead_s={1: 700.0}, clocks={1: NOBODY_KNOWS}))

    (one,) = newest_restorable(merge(records), records, LATER_NS).jobs

    assert one.age_seconds == pytest.approx(EVERY - 60, abs=1)


def test_a_job_without_a_step_to_go_back_to_comes_first() -> None:
    """And one that only restores is not told."""
    of = msgspec.structs.replace(Job().of, status=Status.INCOMPLETE)
    records = _records(
        Job(nodes=2), Job(nodes=2, saves=1, of=of, **LLM), Job(nodes=1, kind=Kind.RESTORE, name="eval", key="a")
    )

    told = newest_restorable(merge(records), records, LATER_NS)

    assert [(one.job, one.step, one.age_seconds is None) for one in told.jobs] == [
        ("llm", None, True),
        ("train", 1200, False),
    ]


def test_how_often_to_save_follows_from_the_restarts_of_the_whole_fleet() -> None:
    """Two restarts in the time that runs were seen, for each node; a run of two nodes has half of that."""
    begins = (0.0, 20_000.0, 40_000.0)
    runs = [
        Job(nodes=2, key=f"slurm:alpha/9000.0{f'+{n}' if n else ''}", restart=n, begin_s=at, name="llm", job_id="9000")
        for n, at in enumerate(begins)
    ]
    back = [replace(run, saves=1, kind=Kind.RESTORE, begin_s=run.begin_s - 100, first_step=1200) for run in runs[1:]]
    records = _records(*runs, *back, Job(nodes=4))

    told = newest_restorable(merge(records), records, LATER_NS)

    llm, train = sorted(told.jobs, key=lambda one: one.job)
    spent = 3 * 2 * (11 * EVERY + HOLD) + 2 * 2 * 100 + 4 * (11 * EVERY + HOLD)
    assert (llm.restarts, train.restarts, told.restarts) == (2, 0, 2)
    assert told.node_seconds == pytest.approx(spent, rel=0.01)
    assert llm.mttf_seconds == pytest.approx(spent / 2 / 2, rel=0.01)
    assert train.mttf_seconds == pytest.approx(spent / 2 / 4, rel=0.01)
    assert llm.stall_seconds is not None
    assert llm.optimal_interval_seconds == pytest.approx(daly_exact(llm.stall_seconds, spent / 4), rel=0.01)
    assert llm.resumed_seconds == pytest.approx(20_000 - 11 * EVERY - 100, rel=0.01)


@pytest.mark.parametrize("begin_s", [0.0, 3.0, 300.0, 597.0])
def test_the_phase_to_shift_puts_one_job_between_two_saves_of_the_other(begin_s: float) -> None:
    """Shifted by so much, they do not meet."""
    other = Job(nodes=2, begin_s=begin_s, **LLM)
    told = collisions(_merged(Job(nodes=2, saves=24), other))

    if begin_s == 300.0:
        assert told.pairs == ()
        return
    (one,) = told.pairs
    assert one.shift_seconds is not None
    assert (begin_s + one.shift_seconds) % EVERY == pytest.approx(EVERY / 2, abs=1)
    shifted = Job(nodes=2, begin_s=begin_s + one.shift_seconds, **LLM)
    assert collisions(_merged(Job(nodes=2, saves=24), shifted)).pairs == ()


def test_what_a_meeting_costs_is_told_by_the_saves_that_met_nobody() -> None:
    """Of both jobs: here each save that met took three seconds longer."""
    late = {0: 3.0, 1: 3.0}
    first = Job(nodes=2, saves=24, late_s=late, only=dict.fromkeys(range(2), range(12)))
    second = Job(nodes=2, saves=12, late_s=late, **LLM)

    (one,) = collisions(_merged(first, second)).pairs

    assert (one.storage, one.first.job, one.second.job) == ("nfs:filer:/ckpt", "train", "llm")
    assert (one.first.met, one.first.saves, one.second.met, one.second.saves) == (12, 24, 12, 12)
    assert one.overlap_seconds == pytest.approx(12 * (HOLD + 3), rel=0.03)
    assert one.first.median_alone_seconds == pytest.approx(HOLD, rel=0.02)
    assert one.second.median_alone_seconds is None
    assert one.cost_seconds == pytest.approx(12 * 3, rel=0.1)


def test_two_saves_of_a_run_at_once_meet_another_run_once() -> None:
    """The same seconds are not counted for each of them."""
    (one,), (other,) = Job(nodes=1).seen()[0], Job(nodes=1, **LLM).seen()[0]
    (alone,) = collisions(merge([one, other])).pairs
    second = (msgspec.structs.replace(save, uid=f"{save.uid}-2", step=(save.step or 0) + 1) for save in one.checkpoints)
    twice = msgspec.structs.replace(one, checkpoints=(*one.checkpoints, *second))

    (both,) = collisions(merge([twice, other])).pairs

    assert {both.first.met, both.second.met} == {12, 24}
    assert both.overlap_seconds == pytest.approx(alone.overlap_seconds)


def test_of_many_pairs_the_most_costly_are_told() -> None:
    """Where a whole fleet saves on the hour, its pairs are more than anybody reads."""
    jobs = [Job(nodes=1, saves=1, name=f"j{n}", key=f"slurm:alpha/{n}.0", begin_s=n / 10) for n in range(21)]
    told = [(one.first.job, one.second.job) for one in collisions(_merged(*jobs)).pairs]

    assert len(set(told)) == 200
    assert ("j0", "j1") in told
    assert ("j0", "j20") not in told  # they overlap for the shortest time


def test_intervals_that_differ_meet_by_chance() -> None:
    """No phase keeps them apart."""
    (one,) = collisions(_merged(Job(nodes=2), Job(nodes=2, every_s=EVERY * 0.9, **LLM))).pairs

    assert one.shift_seconds is None


def test_jobs_on_disks_of_their_own_meet_nobody() -> None:
    """Nor do two saves of one run; how many were compared with none is said."""
    told = collisions(_merged(Job(nodes=2, every_s=4.0), Job(nodes=2, folder="per-node", **LLM)))

    assert (told.pairs, told.elsewhere) == ((), 12)


def test_saves_to_object_stores_are_compared_with_none() -> None:
    """Which of them share what, an address does not tell."""
    sent = Sent(destinations=(Destination(remote="10.0.0.1", port=443, bytes=5),))
    of = msgspec.structs.replace(Job().of, sent=sent)
    away = {"path": None, "place": None}
    records = [
        msgspec.structs.replace(
            one, checkpoints=tuple(msgspec.structs.replace(e, **away) for e in one.checkpoints)
        )
        for one in _records(Job(nodes=2, of=of), Job(nodes=2, of=of, **LLM))
    ]  # fmt: skip
    merged = merge(records)

    assert (collisions(merged).pairs, collisions(merged).elsewhere) == ((), 24)
    assert {one.storage for one in limits(merged, None).periods[0].limits} == {"object store"}


def _session(host: str, version: str = "1.0", level: str = "trace") -> Session:
    return Session(
        uid=host, host=host, boot_id="b", kernel="6.1", version=version, level=level, start_ns=0, end_ns=1, clean=True
    )


def test_what_differs_on_a_node_is_told() -> None:
    """Its agent, its level, its clock; and that it is silent while the others of its run save on."""
    job = Job(nodes=5, clocks={3: NOBODY_KNOWS}, ahead_s={3: 20.0}, ends={4: 4})
    records = [
        msgspec.structs.replace(
            one, session=_session(one.host, version="0.9" if n == 1 else "1.0", level="poll" if n == 2 else "trace")
        )
        for n, one in enumerate(_records(job))
    ]

    told = nodes(merge(records), records)

    assert {one.host: one.odd for one in told.nodes} == {
        "train-node-0": (), "train-node-1": ("version",), "train-node-2": ("level",), "train-node-3": ("clock",),
        "train-node-4": (),
    }  # fmt: skip
    assert told.nodes[0].host == "train-node-4"
    assert told.nodes[0].silent_seconds == pytest.approx(7 * EVERY + HOLD + 60, rel=0.01)
    assert told.nodes[1].silent_seconds is None
    (clock,) = [one for one in told.nodes if one.odd == ("clock",)]
    assert clock.ahead_seconds == pytest.approx(20, abs=0.5)
    assert clock.is_clock_synchronised is False
    assert told.partial == 8


@pytest.mark.parametrize(("last", "is_silent"), [(9, False), (8, True)])
def test_a_node_that_ships_every_15_minutes_is_not_silent(last: int, *, is_silent: bool) -> None:
    """What others of its run shipped just now may be newer by that, and by what a run takes."""
    records = _records(Job(ends={4: last}, nodes=5))

    assert (nodes(merge(records), records).nodes[0].silent_seconds is not None) is is_silent


def test_where_half_are_of_a_kind_none_is_odd() -> None:
    """In the midst of an upgrade; and a database of before tells nothing of it."""
    records = [
        msgspec.structs.replace(one, session=_session(one.host, version=str(n % 2)) if n < 4 else None)
        for n, one in enumerate(_records(Job(nodes=5)))
    ]

    assert {one.odd for one in nodes(merge(records), records).nodes} == {()}


def test_of_nothing_nothing_is_told() -> None:
    """No checkpoint, no node."""
    assert stragglers(()).nodes == ()
    assert costs((), "job").rows == ()
    assert limits((), None).periods[0].limits == ()
    assert newest_restorable((), (), 0).jobs == ()
    assert collisions(()).pairs == ()
    assert nodes((), ()).nodes == ()
