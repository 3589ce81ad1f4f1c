"""Questions in SQL have the answers of the commands, as far as a view can tell; readers alone may ask them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timezone
from pathlib import Path

import msgspec
import pytest
from tests.cluster.nodes import BEGIN_NS, HOLD_NS, SECOND, Job, recorded
from tests.cluster.test_commands import write
from tests.postgres import Server

from ckptprof.cluster.fleet.fleet_costs import costs
from ckptprof.cluster.fleet.limits import limits
from ckptprof.cluster.fleet.newest_steps import newest_restorable
from ckptprof.cluster.fleet.runs import run_of, storage_of
from ckptprof.cluster.merging import merge
from ckptprof.cluster.model import NodeRecord
from ckptprof.frameworks.placekeys import KINDS
from ckptprof.model import Checkpoint, Destination, Evidence, Kind, Place, Risk, Run, Sent, Status, Watched
from ckptprof.service.shipping.shipper import Shipper, to_server
from ckptprof.store.fleet import server_migrations
from ckptprof.store.fleet.server_connection import connected
from ckptprof.store.fleet.server_migrations import STEPS, migrate
from ckptprof.store.fleet.server_views import VIEWS
from ckptprof.store.fleet.target import parse_target

pytestmark = pytest.mark.postgres
LLM = {"name": "llm", "key": "slurm:alpha/9000.0", "job_id": "9000"}
LATER_NS = BEGIN_NS + 365 * 86_400 * SECOND


def ship(server: Server, fleet: str, folder: Path, *jobs: Job) -> list[NodeRecord]:
    """Ship what the nodes of jobs have; return that."""
    records = [record for job in jobs for record in job.seen()[0]]
    for db in write(folder / "nodes", records):
        Shipper(db, to_server(parse_target(server.url(fleet))), names=True).send()
    return records


def put(server: Server, fleet: str, *made: Checkpoint) -> None:
    """Have checkpoints of one node on the server."""
    for number, one in enumerate(made):
        detail = msgspec.json.encode(one).decode().replace("'", "''")
        server.ask(
            "INSERT INTO ckptprof.checkpoints (first_start_ns, node, uid, revision, detail)"  # noqa: S608 # our own
            f" VALUES ({one.start_ns}, 'n', '{number}', 1, '{detail}')",
            fleet,
        )


def told(server: Server, fleet: str, view: str, columns: str) -> list[tuple[object, ...]]:
    """Return what a view tells."""
    return server.ask(f"SELECT {columns} FROM ckptprof.{view} ORDER BY 1, 2", fleet)  # noqa: S608 # our own


def test_a_save_of_many_nodes_is_one(server: Server, fleet: str, tmp_path: Path) -> None:
    """With the figures of all its parts; restores count apart, copies in none."""
    records = ship(
        server, fleet, tmp_path, Job(nodes=4), Job(nodes=2, saves=3, kind=Kind.RESTORE, **LLM),
        Job(nodes=1, saves=2, kind=Kind.COPY, name="rsync"),
    )  # fmt: skip
    every = [one for one in merge(records) if one.whole.kind is not Kind.COPY]

    found = server.ask("SELECT run, kind, step, parts, run_nodes, bytes FROM ckptprof.checkpoints_by_step", fleet)

    assert len(found) == len(every) == 15
    assert sorted(found) == sorted(
        (run_of(one), one.whole.kind.value, one.whole.step, len(one.nodes), len(one.nodes), one.whole.bytes)
        for one in every
    )
    spent = dict(server.ask("SELECT run, sum(gpu_seconds) FROM ckptprof.costs_by_day GROUP BY 1", fleet))
    rows = costs(every, "run", timezone.utc).rows
    assert spent == {one.name: pytest.approx(one.gpu_seconds) for one in rows}
    counted = "job, sum(saves)::int, sum(restores)::int, sum(not_joined)::int, max(most_parts)"
    assert server.ask(f"SELECT {counted} FROM ckptprof.costs_by_day GROUP BY job ORDER BY job", fleet) == [  # noqa: S608
        ("llm", 0, 3, 0, 2), ("train", 12, 0, 0, 4),
    ]  # fmt: skip


def test_a_day_is_the_same_wherever_it_is_asked(server: Server, fleet: str, tmp_path: Path) -> None:
    """UTC, and not that of who asks."""
    ship(server, fleet, tmp_path, Job(nodes=1, saves=1))
    server.ask(f"ALTER DATABASE {fleet} SET timezone = 'Pacific/Kiritimati'")

    assert server.ask("SELECT day::text FROM ckptprof.costs_by_day", fleet) == [("2026-03-20",)]


def test_limits_are_those_of_the_command(server: Server, fleet: str, tmp_path: Path) -> None:
    """By storage, with the time that training lost; of several nodes that of the slowest."""
    records = ship(server, fleet, tmp_path, Job(nodes=4, late_s={1: 4.0}), Job(nodes=2, **LLM))
    (period,) = limits(merge(records), None).periods

    found = told(
        server, fleet, "limits_by_day",
        'storage, "limit", checkpoints, lost_seconds',
    )  # fmt: skip

    assert {(row[0], row[1]): row[2:] for row in found} == {
        (one.storage, one.limit.value if one.limit else None): (one.count, pytest.approx(one.lost_seconds, rel=0.05))
        for one in period.limits
    }


@pytest.mark.parametrize(
    "job",
    [Job(nodes=4), Job(nodes=4, lost={3: [11]}), Job(nodes=4, ends={3: 11}), Job(nodes=4, key="torch:a:1", restart=2)],
    ids=["whole", "a part is missing", "a node died", "started again"],
)
def test_the_newest_save_is_whole_on_all_nodes(server: Server, fleet: str, tmp_path: Path, job: Job) -> None:
    """One that lacks a part which the save before had is not restorable."""
    records = ship(server, fleet, tmp_path, job)
    (row,) = newest_restorable(merge(records), records, LATER_NS).jobs

    columns = "run, whole_step, saves, not_joined, most_parts, interval_seconds, stall_seconds, age_seconds > 0"
    (found,) = told(server, fleet, "newest_by_run", columns)

    assert row.interval_seconds is not None
    assert found == (
        row.run, row.step, 12, 0, 4, pytest.approx(row.interval_seconds, rel=0.001),
        pytest.approx(HOLD_NS / SECOND, rel=0.03), True,
    )  # fmt: skip


def test_the_slowest_node_is_told_with_what_it_took_longer(server: Server, fleet: str, tmp_path: Path) -> None:
    """One is always the slowest: that its times tell little is seen by the seconds."""
    ship(
        server, fleet, tmp_path, Job(nodes=4, late_s={1: 4.0}), Job(nodes=4, **LLM), Job(nodes=1, name="alone", key="a")
    )

    found = {str(row[0]): row[1:] for row in told(server, fleet, "slowest_nodes", "node, times, excess_seconds, runs")}

    assert found.pop("train-node-1") == (12, pytest.approx(48.0, rel=0.05), 1)
    assert sum(times for times, _, _ in found.values()) == 12  # type: ignore[misc]
    assert all(name.startswith("llm") and seconds < 3 for name, (_, seconds, _) in found.items())  # type: ignore[operator]


def test_what_nothing_joins_is_said(server: Server, fleet: str, tmp_path: Path) -> None:
    """Without steps, or without a run, each part stands alone, and is counted apart."""
    ship(server, fleet, tmp_path, Job(nodes=2, saves=3, has_steps=False), Job(nodes=1, saves=2, run=False, **LLM))

    found = server.ask(
        "SELECT job, sum(saves)::int, sum(not_joined)::int FROM ckptprof.costs_by_day GROUP BY 1 ORDER BY 1", fleet
    )
    assert found == [("llm", 2, 2), ("train", 6, 6)]


def test_the_state_of_each_node_is_its_newest(server: Server, fleet: str, tmp_path: Path) -> None:
    """One row for each, by what its agent said last."""
    ship(server, fleet, tmp_path, Job(nodes=2, saves=1))
    server.ask(
        "INSERT INTO ckptprof.sessions SELECT node, database, 'newer', host, boot_id, kernel, '2', 'trace', start_ns,"
        " end_ns + 1, clean, dropped_frames FROM ckptprof.sessions WHERE node = 'train-node-1'",
        fleet,
    )

    assert told(server, fleet, "node_states", "node, version, level, lost, unseen_seconds >= 0") == [
        ("train-node-0", "0", "poll", 0, True), ("train-node-1", "2", "trace", 0, True),
    ]  # fmt: skip


def _of(**fields: object) -> Checkpoint:
    return msgspec.structs.replace(recorded(), **fields)


PLACES = [Place(key=f"{kind.name}:a:b:{'/c:d/e' if kind.by_path else '77'}", shared=True) for kind in KINDS.values()]
RUNS = [
    Run(key="slurm:a/1.0", scheduler="slurm"), Run(key="slurm:a/1.0+2", scheduler="slurm", restart=2),
    Run(key="torch:h:1", scheduler="rendezvous", restart=0), Run(key="torch:h:1", scheduler="rendezvous", restart=3),
]  # fmt: skip


def test_what_is_derived_is_what_the_commands_say(server: Server, fleet: str) -> None:
    """Storage, run, and whether it may be restored: a new kind of either needs a new step of the schema."""
    made: Sequence[Checkpoint] = [
        *(_of(place=place) for place in PLACES), _of(place=None), _of(place=Place(key="x:1", shared=None)),
        _of(place=Place(key="x:1", shared=False)),
        _of(place=None, sent=Sent(destinations=(Destination(remote="10.0.0.1", port=443, bytes=5),))),
        *(_of(run=run) for run in RUNS), _of(run=None),
        *(_of(evidence=(*recorded().evidence, Evidence(name=risk.value, weight=0.0, text="it's so"))) for risk in Risk),
        _of(status=Status.INCOMPLETE), _of(kind=Kind.RESTORE), _of(written_bytes=9, unique_bytes=3),
    ]  # fmt: skip
    put(server, fleet, *made)

    found = server.ask(
        "SELECT run, storage, is_restorable, written_bytes, unique_bytes, mode FROM ckptprof.checkpoints"
        " ORDER BY uid::int",
        fleet,
    )

    for one, row in zip(made, found, strict=True):
        record = NodeRecord(database="n.db", host="n", watched=Watched(start_ns=None, end_ns=None), checkpoints=(one,))
        (whole,) = merge([record])
        mode = None if one.mode is None else one.mode.value
        expected = (run_of(whole), storage_of(whole), one.is_restorable, one.written_bytes, one.unique_bytes, mode)
        assert row == expected, json.dumps(msgspec.to_builtins(one))[:300]


def test_readers_alone_may_ask(server: Server, fleet: str, tmp_path: Path) -> None:
    """A view asks as its owner, who sees all nodes."""
    ship(server, fleet, tmp_path, Job(nodes=2, saves=1))
    reader, node, site = (
        server.role(name, f"ckptprof_{group}")
        for name, group in (("reader", "reader"), ("train-node-0", "node"), ("site", "site"))
    )
    for view in VIEWS:
        ask = f"SELECT * FROM ckptprof.{view}"  # noqa: S608 # our own names
        assert server.ask(ask, fleet, reader)
        for other in (node, site):
            with pytest.raises(Exception, match="permission denied"):
                server.ask(ask, fleet, other)
    ((commented,),) = server.ask(
        "SELECT count(obj_description(oid)) FROM pg_class WHERE relnamespace = 'ckptprof'::regnamespace"
        " AND relkind = 'v'",
        fleet,
    )
    assert commented == len(VIEWS)


def test_a_server_of_the_first_schema_is_brought_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has is derived anew, and a node of before goes on to ship."""
    with monkeypatch.context() as before:
        before.setattr(server_migrations, "STEPS", STEPS[:1])
        fleet = server.database()
        ship(server, fleet, tmp_path, Job(nodes=2, saves=1))
    with connected(parse_target(server.url(fleet))) as connection:
        assert migrate(connection) == len(STEPS)

    assert told(server, fleet, "checkpoints_by_step", "run, parts") == [("slurm:alpha/8812.0", 2)]
    with monkeypatch.context() as before:
        before.setattr(server_migrations, "STEPS", STEPS[:1])
        ship(server, fleet, tmp_path, Job(nodes=2, saves=1, **LLM))
    assert len(told(server, fleet, "checkpoints_by_step", "run, parts")) == 2
