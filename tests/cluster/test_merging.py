"""Checkpoints of several nodes become one, whatever their clocks, folders and restarts; what is not one stays apart."""

from __future__ import annotations

from itertools import chain

import msgspec
import pytest
from tests.cluster.nodes import EVERY, GOOD, HOLD_NS, JITTER, NOBODY_KNOWS, SECOND, Job, groups, recorded, seconds

from ckptprof.cluster.merging import merge
from ckptprof.cluster.model import NodeRecord
from ckptprof.frameworks.runkeys import identify_run
from ckptprof.model import Clock, Destination, Kind, Level, Medium, Place, Sent, Watched

NODES = (2, 8, 64)
YEARS_1970 = -1_774_000_000.0


@pytest.mark.parametrize("nodes", [*NODES, 1000])
def test_one_save_of_many_nodes_is_one(nodes: int) -> None:
    """With MLPerf's figures: as long as the slowest rank, all bytes over that; nobody was long after the others."""
    job = Job(nodes=nodes, saves=12 if nodes < 1000 else 3)
    records, truth = job.seen()

    merged = merge(records)

    assert groups(merged) == truth
    assert [one.whole.id for one in merged] == list(range(1, job.saves + 1))
    for one in merged:
        assert one.whole.bytes == nodes * job.of.bytes
        assert one.whole.files == nodes * job.of.files
        assert one.whole.cost is not None
        assert one.whole.cost.gpus == 8 * nodes
        assert one.whole.cost.bytes_per_second == pytest.approx(one.whole.bytes / seconds(one))
        assert one.whole.cost.gpu_seconds == pytest.approx(8 * nodes * HOLD_NS / SECOND, rel=2 * JITTER)
        assert seconds(one) == pytest.approx(HOLD_NS / SECOND, rel=2 * JITTER)
        assert (one.ranks_observed, one.ranks_expected) == (8 * nodes, 8 * nodes)
        assert (one.nodes_expected, one.is_partial, one.waited, one.place) == (nodes, False, (), "shared")
        assert one.straggler is None
        assert one.clock_bound_seconds == 0.02


SKEWS = {
    "none": ({}, GOOD),
    "50 ms": ({1: 0.05}, Clock(synchronised=True, bound_ns=100_000_000)),
    "5 s": ({1: 5.0}, GOOD),
    "5 s, and nobody knows": ({1: 5.0}, NOBODY_KNOWS),
    "5 s behind, and nothing is told of clocks": ({1: -5.0}, None),
    "all apart, and nobody knows": ({n: 7.0 * n % 40 for n in range(64)}, NOBODY_KNOWS),
    "1970": ({1: YEARS_1970}, NOBODY_KNOWS),
}


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("is_slow", [True, False], ids=["straggler", "control"])
def test_the_straggler_is_found_on_any_clock(nodes: int, skew: str, *, is_slow: bool) -> None:
    """Where one ends late it is named with its own limit, and slow from the third save on; in a control nobody is."""
    ahead, clock = SKEWS[skew]
    late = {1: 4.0} if is_slow else {}
    job = Job(nodes=nodes, ahead_s=ahead, clocks=dict.fromkeys(range(nodes), clock), late_s=late)
    records, truth = job.seen(seed=nodes)

    merged = merge(records)

    assert groups(merged) == truth
    told = [one.straggler for one in merged]
    if not is_slow:
        assert told == [None] * job.saves
        return
    for number, (one, last) in enumerate(zip(merged, told, strict=True), start=1):
        assert last is not None
        assert last.host == job.host(1)
        assert last.excess_seconds == pytest.approx(4.0, abs=0.2)
        assert last.limit is not None
        assert job.slow.verdict is not None
        assert last.limit is job.slow.verdict.limit
        assert one.whole.verdict is not None
        assert one.whole.verdict.limit is last.limit
        assert last.waited_gpu_seconds == pytest.approx(last.excess_seconds * 8 * (nodes - 1))
        assert (last.times, last.saves, last.is_slow) == (min(number, 10), min(number, 10), number >= 3)
        assert seconds(one) == pytest.approx(HOLD_NS / SECOND + 4, rel=2 * JITTER)


def test_a_bad_clock_among_good_ones_does_not_move_a_save() -> None:
    """It is told how far it is off, and the save is where the others have it."""
    records, _ = Job(ahead_s={3: YEARS_1970}, clocks={3: Clock(synchronised=True, bound_ns=1)}).seen()

    merged = merge(records)

    for number, one in enumerate(merged):
        assert one.whole.start_ns == pytest.approx(1_774_000_800 * SECOND + number * EVERY * SECOND, abs=SECOND)
        assert [part.ahead_seconds is not None for part in one.nodes] == [n == 3 for n in range(8)]
        assert one.nodes[3].ahead_seconds == pytest.approx(YEARS_1970, abs=1)


def test_of_few_saves_on_clocks_that_nobody_vouches_for_no_node_is_named() -> None:
    """What they cost is told by each node's own clock."""
    clocks = dict.fromkeys(range(8), NOBODY_KNOWS)
    records, truth = Job(saves=2, clocks=clocks, late_s={1: 4.0}, ahead_s={2: 9.0}).seen()

    merged = merge(records)

    assert groups(merged) == truth
    assert [(one.straggler, one.is_within_clock_error, one.spread_seconds) for one in merged] == [
        (None, True, None)
    ] * 2
    assert [seconds(one) for one in merged] == pytest.approx([12.0, 12.0], rel=2 * JITTER)


def test_a_spread_that_clocks_explain_is_no_straggler() -> None:
    """Two seconds late, on clocks that may be off by three."""
    clocks = dict.fromkeys(range(8), Clock(synchronised=True, bound_ns=1_500_000_000))
    records, _ = Job(clocks=clocks, late_s={1: 2.0}).seen()

    assert {(one.straggler, one.is_within_clock_error) for one in merge(records)} == {(None, True)}


@pytest.mark.parametrize("nodes", [3, 8, 64])
def test_a_uniform_spread_has_no_straggler_but_a_shared_limit(nodes: int) -> None:
    """The ends of all nodes lie evenly within ten seconds: what all wait for is slow, and none of them."""
    records, _ = Job(nodes=nodes, spread_s=10.0).seen()

    for one in merge(records):
        assert one.straggler is None
        assert one.whole.verdict is not None
        assert one.whole.verdict.limit is recorded().verdict.limit  # type: ignore[union-attr] # it has one


def test_a_node_with_more_bytes_is_last_and_not_slow() -> None:
    """It has twice the bytes, and writes them as fast as the others write theirs."""
    records, _ = Job(more={0: 2.0}).seen()

    told = [one.straggler for one in merge(records)]

    assert {(last.host, last.bytes_ratio, last.is_by_size, last.is_slow) for last in told if last is not None} == {
        ("train-node-0", 2.0, True, False)
    }
    assert None not in told


def test_a_node_that_is_lost_makes_a_view_partial() -> None:
    """Nothing is made up for it; while its record goes on it only waited."""
    records, truth = Job(lost={5: [4]}, ends={6: 8}).seen()

    merged = merge(records)

    assert groups(merged) == truth
    assert [one.waited for one in merged] == [("train-node-5",) if n == 4 else () for n in range(12)]
    assert [one.is_partial for one in merged] == [n >= 8 for n in range(12)]
    assert [len(one.nodes) for one in merged] == [8, 8, 8, 8, 7, 8, 8, 8, 7, 7, 7, 7]


@pytest.mark.parametrize("restart", [1, None])
def test_a_restart_at_the_same_step_is_another_checkpoint(restart: int | None) -> None:
    """Also where the scheduler does not count it, and the run has the same key."""
    first, truth = Job(saves=3).seen()
    again, later = Job(saves=3, begin_s=2 * EVERY + 120, restart=restart, name="train").seen()
    if restart is None:
        again = [_renamed(record) for record in again]
        later = {frozenset(f"{uid} again" for uid in group) for group in later}

    assert groups(merge([*first, *again])) == truth | later


@pytest.mark.parametrize("clock", [GOOD, NOBODY_KNOWS])
@pytest.mark.parametrize("is_numbered", [True, False])
def test_a_job_made_again_on_other_nodes_is_another_run(clock: Clock, *, is_numbered: bool) -> None:
    """A day later, with the same key and steps: no clock is off by that."""
    clocks = dict.fromkeys(range(4), clock)
    first, truth = Job(nodes=4, saves=4, clocks=clocks).seen()
    again, later = Job(nodes=4, saves=4, clocks=clocks, begin_s=86_400.0, name="again").seen()
    records = [*first, *again] if is_numbered else [_unnumbered(record) for record in [*first, *again]]

    merged = merge(records)

    assert groups(merged) == truth | later
    assert {part.ahead_seconds for one in merged for part in one.nodes if part.ahead_seconds is not None} == set()


def _unnumbered(record: NodeRecord) -> NodeRecord:
    """Return what is told where nobody numbers the nodes."""
    return msgspec.structs.replace(
        record, checkpoints=tuple(
            msgspec.structs.replace(one, run=None if one.run is None else msgspec.structs.replace(one.run, node=None))
            for one in record.checkpoints
        ),
    )  # fmt: skip


def _renamed(record: NodeRecord) -> NodeRecord:
    return msgspec.structs.replace(
        record, checkpoints=tuple(msgspec.structs.replace(one, uid=f"{one.uid} again") for one in record.checkpoints)
    )


@pytest.mark.parametrize(("nodes", "waited"), [(3, ()), (4, ("train-node-2",))])
def test_a_node_that_came_later_or_left_has_not_waited(nodes: int, waited: tuple[str, ...]) -> None:
    """Node 3 comes with the seventh save, node 2 goes: of a run of three; of one of four it may be there and wait."""
    records, _ = Job(nodes=4, lost={2: range(6, 12), 3: range(6)}).seen()
    records = [
        msgspec.structs.replace(
            record, checkpoints=tuple(
                msgspec.structs.replace(one, run=msgspec.structs.replace(one.run, nodes=nodes))
                for one in record.checkpoints if one.run is not None
            ),
        )
        for record in records
    ]  # fmt: skip

    merged = merge(records)

    assert [(len(one.nodes), one.waited, one.is_partial) for one in merged] == [
        *[(3, (), nodes == 4)] * 6,
        *[(3, waited, False)] * 6,
    ]


def test_a_saver_on_rank_0_has_nodes_that_only_waited() -> None:
    """They are known by a restore of the same run."""
    saves, truth = Job(writers=[0]).seen()
    restores, before = Job(saves=1, begin_s=-EVERY, kind=Kind.RESTORE).seen()

    merged = merge([*saves, *restores])

    assert groups(merged) == truth | before
    assert [(len(one.nodes), len(one.waited), one.is_partial) for one in merged] == [(8, 0, False)] + [
        (1, 7, False)
    ] * 12


def test_each_node_with_a_folder_of_its_own_is_one_checkpoint() -> None:
    """The run joins them: shards on local disks."""
    records, truth = Job(folder="per-node").seen()

    merged = merge(records)

    assert groups(merged) == truth
    assert {one.place for one in merged} == {"per-node"}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ([("a", True), ("a", True)], "shared"),
        ([("a", False), ("a", False)], "shared"),
        ([("a", None), ("a", None)], "shared"),
        ([("a", False), ("b", False)], "per-node"),
        ([("a", True), ("b", True)], None),
        ([("a", True), ("b", False)], None),
        ([("a", None), ("b", None)], None),
        ([None, None], None),
        ([("a", True)], "shared"),
        ([("a", False)], "per-node"),
        ([("a", None)], None),
    ],
)
def test_a_folder_is_shared_where_nodes_call_it_the_same(keys: list[tuple[str, bool | None] | None], told: str) -> None:
    """Two names are two folders where no other node can have either; one server may have two names."""
    records, _ = Job(nodes=len(keys), saves=1).seen()
    places = [None if key is None else Place(key=key[0], shared=key[1]) for key in keys]
    placed = [
        msgspec.structs.replace(record, checkpoints=(msgspec.structs.replace(record.checkpoints[0], place=place),))
        for record, place in zip(records, places, strict=True)
    ]

    assert [one.place for one in merge(placed)] == [told]


def test_two_jobs_at_the_same_second_are_two() -> None:
    """On the same nodes, at the same steps; and without any key each node is for itself."""
    one, truth = Job().seen()
    other, more = Job(key="slurm:alpha/8813.0", name="train").seen()
    unkeyed, _ = Job(run=False, folder="per-node", name="alone").seen()

    merged = merge([*one, *other, *unkeyed])

    assert groups(merged) == truth | more | {frozenset([e.uid]) for e in chain(*(r.checkpoints for r in unkeyed))}


def test_a_shared_folder_joins_what_no_run_does() -> None:
    """Each save has one of its own."""
    records, truth = Job(run=False).seen()

    assert groups(merge(records)) == truth


def test_a_folder_of_many_saves_joins_nothing() -> None:
    """Jobs of one node each, without a run, keep theirs in one folder: the same steps, at the same time."""
    records, _ = Job(run=False, folder="one").seen()

    assert groups(merge(records)) == {frozenset([e.uid]) for e in chain(*(record.checkpoints for record in records))}


@pytest.mark.parametrize("has_steps", [True, False])
def test_a_folder_of_several_jobs_joins_nothing(*, has_steps: bool) -> None:
    """Each has a rank 0, or nothing is known of their steps."""
    one, _ = Job(nodes=1, saves=1, run=False, has_steps=has_steps, name="one").seen()
    other, _ = Job(nodes=1, saves=1, run=False, has_steps=has_steps, name="other").seen()
    several, _ = Job(nodes=2, saves=1, run=False, has_steps=False).seen()

    assert [len(told.nodes) for told in merge([*one, *other])] == [1, 1]
    assert [len(told.nodes) for told in merge(several)] == [1, 1]


def _key(job: int, **told: str) -> str:
    """Return the key that a rank of a Slurm job makes."""
    environment = {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_CLUSTER_NAME": "alpha", **told}
    run = identify_run(environment, None)

    assert run is not None
    return run.key


def test_tasks_of_an_array_are_as_many_jobs() -> None:
    """They have one name, one folder of steps, and save at the same time."""
    keys = [_key(100 + n, SLURM_ARRAY_JOB_ID="100", SLURM_ARRAY_TASK_ID=str(n)) for n in range(3)]
    seen = [Job(key=key, name="array").seen() for key in keys]

    assert groups(merge([record for records, _ in seen for record in records])) == set[frozenset[str]]().union(
        *(truth for _, truth in seen)
    )


def test_the_parts_of_a_heterogeneous_job_are_one() -> None:
    """Each has a job id and nodes of its own; their ranks meet at one place."""
    meeting = {"SLURM_HET_SIZE": "2", "MASTER_ADDR": "node-1", "MASTER_PORT": "29500", "RANK": "3"}
    (key,) = {_key(job, **meeting) for job in (200, 201)}
    one, truth = Job(key=key, name="first").seen()
    two, more = Job(key=key, name="second").seen()

    merged = merge([*one, *two])

    assert groups(merged) == {a | b for a in truth for b in more if _step(one, a) == _step(two, b)}
    assert [len(told.nodes) for told in merged] == [16] * 12


def _step(records: list[NodeRecord], uids: frozenset[str]) -> int | None:
    return next(one.step for record in records for one in record.checkpoints if one.uid in uids)


@pytest.mark.parametrize("every_s", [5.0, 20.0, 600.0])
def test_saves_without_steps_are_told_apart_by_their_times(every_s: float) -> None:
    """Also where a node has no part in one of them."""
    records, truth = Job(has_steps=False, every_s=every_s + HOLD_NS / SECOND, lost={5: [4]}).seen()

    assert groups(merge(records)) == truth


def test_two_saves_of_one_step_are_told_apart_by_their_paths() -> None:
    """The second node begins the first one as the first node begins the second one."""
    first, truth = Job(nodes=2, saves=1, ahead_s={1: 11.0}).seen()
    second, more = Job(nodes=2, saves=1, ahead_s={1: 11.0}, begin_s=10.0).seen()
    again = [
        msgspec.structs.replace(
            record, checkpoints=tuple(
                msgspec.structs.replace(one, uid=f"{one.uid} again", path=f"{one.path}/optimizer")
                for one in record.checkpoints
            ),
        )
        for record in second
    ]  # fmt: skip

    assert groups(merge([*first, *again])) == truth | {frozenset(f"{uid} again" for uid in group) for group in more}


def test_saves_that_overlap_are_told_apart_by_their_steps() -> None:
    """Async ones, each begun before the last has ended."""
    records, truth = Job(every_s=3.0, clocks={2: NOBODY_KNOWS}, ahead_s={2: 2.0}).seen()

    assert groups(merge(records)) == truth


def test_what_goes_to_an_object_store_is_added_up() -> None:
    """By where it went; and when it was durable is on the clock that all share."""
    records, _ = Job(nodes=2, ahead_s={1: 5.0}, clocks={1: NOBODY_KNOWS}).seen()
    sent = [
        Sent(destinations=(Destination(remote="10.0.0.1", port=443, bytes=5),), connections=2, parts=4),
        Sent(destinations=(Destination(remote="10.0.0.2", port=443, bytes=9),), connections=3, parts=5),
    ]
    stored = [
        msgspec.structs.replace(
            record, checkpoints=tuple(
                msgspec.structs.replace(e, path=None, sent=told, written_bytes=7, durable_ns=e.end_ns + SECOND)
                for e in record.checkpoints
            ),
        )
        for record, told in zip(records, sent, strict=True)
    ]  # fmt: skip

    for one in merge(stored):
        assert one.whole.medium is Medium.OBJECT
        assert one.whole.sent == Sent(destinations=sent[1].destinations, connections=5, parts=9)
        assert one.whole.written_bytes == 14
        assert one.whole.durable_ns is not None
        assert one.whole.durable_ns - one.whole.end_ns == pytest.approx(SECOND, abs=SECOND // 5)


@pytest.mark.parametrize("names", [("train", "train"), ("spread.py-21", "spread.py-18")])
def test_the_order_of_databases_does_not_matter(names: tuple[str, str]) -> None:
    """The same is told, also where each node has a name of its own for the job."""
    records, _ = Job(nodes=2, late_s={1: 4.0}).seen()
    records = [
        msgspec.structs.replace(
            one, checkpoints=tuple(msgspec.structs.replace(each, job=name) for each in one.checkpoints)
        )
        for one, name in zip(records, names, strict=True)
    ]  # fmt: skip
    assert merge(records[::-1]) == merge(records)


def test_the_same_database_twice_tells_once() -> None:
    """A later copy knows more; what the older one has is not told again."""
    records, truth = Job().seen()
    later = msgspec.structs.replace(
        records[0], database="later.db",
        checkpoints=tuple(msgspec.structs.replace(e, durable_ns=e.end_ns + SECOND) for e in records[0].checkpoints),
    )  # fmt: skip

    merged = merge([*records, later])

    assert groups(merged) == truth
    assert {one.nodes[0].database for one in merged} == {"later.db"}


def test_two_recorders_of_one_host_tell_once() -> None:
    """The service and `ckptprof run` saw the same processes write the same files: the trace is told."""
    records, truth = Job().seen()
    traced = msgspec.structs.replace(
        records[0], database="run.db",
        checkpoints=tuple(
            msgspec.structs.replace(e, uid=f"{e.uid} traced", level=Level.TRACE, start_ns=e.start_ns + 1000)
            for e in records[0].checkpoints
        ),
    )  # fmt: skip

    merged = merge([*records, traced])

    assert len(merged) == len(truth)
    assert {len(one.nodes) for one in merged} == {8}
    assert {one.nodes[0].database for one in merged} == {"run.db"}
    assert {one.whole.bytes for one in merged} == {8 * recorded().bytes}


def test_what_is_no_part_of_a_job_is_alone() -> None:
    """A copy of the folder while it is written: by nobody who trains."""
    records, truth = Job(saves=1).seen()
    copies, alone = Job(saves=1, nodes=1, kind=Kind.COPY, name="rsync").seen()

    assert groups(merge([*records, *copies])) == truth | alone


def test_of_nothing_nothing_is_told() -> None:
    """No database, and empty ones."""
    empty = NodeRecord(database="a.db", host="a", watched=Watched(start_ns=None, end_ns=None), checkpoints=())

    assert merge([]) == merge([empty]) == ()
