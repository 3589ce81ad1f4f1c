"""A fleet of files answers as the databases of its nodes do, compacted or not, whatever is killed or damaged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.cluster.nodes import NOBODY_KNOWS, Job
from tests.cluster.test_commands import write
from tests.fleet.inboxes import answers, compact, fleet_answers, put, records, rounded

from ckptprof.cli.main import main
from ckptprof.cluster.merging import merge
from ckptprof.cluster.model import NodeRecord
from ckptprof.errors import StoreError
from ckptprof.fleet import files, reading
from ckptprof.fleet.files import FleetFiles
from ckptprof.fleet.questions import FleetDatabase, node_state
from ckptprof.model import Status

MIDNIGHT_S = 13 * 3600 + 600.0  # its first save is twenty minutes before a UTC midnight
TRAIN = Job(
    nodes=4, late_s={1: 4.0}, ahead_s={2: 20.0}, clocks={2: NOBODY_KNOWS}, lost={3: [2]}, begin_s=MIDNIGHT_S - 1800
)
LLM = Job(nodes=2, name="llm", key="slurm:alpha/9000.0", job_id="9000", begin_s=MIDNIGHT_S - 1800)


@pytest.fixture
def store(tmp_path: Path) -> FleetFiles:
    """Return a fleet of which nothing is there yet."""
    return FleetFiles(str(tmp_path / "fleet"))


@pytest.fixture
def nodes() -> list[NodeRecord]:
    """Return what six nodes of two jobs recorded around midnight."""
    return records(TRAIN, LLM)


def of_databases(nodes: Sequence[NodeRecord]) -> dict[str, Any]:
    """Return the answers from the databases of the nodes."""
    tables = FleetDatabase()
    tables.add_merged(merge(nodes), map(node_state, nodes))
    return answers(tables)


def test_answers_are_those_of_the_databases(store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path) -> None:
    """From inboxes, from days, from both at once, and from days that get more."""
    expected = of_databases(nodes), []

    put(store, nodes, 0, 6)
    put(store, nodes, 6)
    assert fleet_answers(store, tmp_path) == expected
    done = compact(store)
    assert (done.files, done.rows, done.days) == (12, 71, ("2026-03-20", "2026-03-21"))
    assert fleet_answers(store, tmp_path) == expected
    put(store, nodes, 0, 6)  # again, as after a crash
    assert fleet_answers(store, tmp_path) == expected
    assert compact(store).rows == 36
    assert fleet_answers(store, tmp_path) == expected
    assert compact(store).files == 0
    assert fleet_answers(store, tmp_path) == expected


def test_days_that_get_more_are_joined_again(store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path) -> None:
    """With what was compacted before, whether the rest is compacted yet or not."""
    put(store, nodes, 0, 5)
    compact(store)
    put(store, nodes, 5)

    assert fleet_answers(store, tmp_path) == (of_databases(nodes), [])
    compact(store)
    assert fleet_answers(store, tmp_path) == (of_databases(nodes), [])


def test_a_late_revision_replaces_the_earlier_one(store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path) -> None:
    """And reopens its day; an older one that comes late changes nothing."""
    put(store, nodes)
    compact(store)
    broken = msgspec.structs.replace(nodes[0].checkpoints[-1], status=Status.INCOMPLETE)
    later = [msgspec.structs.replace(nodes[0], checkpoints=(*nodes[0].checkpoints[:-1], broken)), *nodes[1:]]

    put(store, later[:1], 11, revision=2)

    assert fleet_answers(store, tmp_path) == (of_databases(later), [])
    assert of_databases(later) != of_databases(nodes)
    compact(store)
    put(store, nodes[:1], 11)
    assert fleet_answers(store, tmp_path) == (of_databases(later), [])
    compact(store)
    assert fleet_answers(store, tmp_path) == (of_databases(later), [])


def test_a_run_that_is_killed_changes_no_answer(store: FleetFiles, tmp_path: Path) -> None:
    """At each of its writes and deletions; the next run completes it."""
    nodes = records(replace(TRAIN, nodes=2))
    expected = of_databases(nodes), []
    put(store, nodes, 0, 6)
    compact(store)
    put(store, nodes, 6)
    left = 0
    while True:
        steps = iter(range(left))
        broken = FleetFiles(store.url)

        def step(method: Any, *given: Any, steps: Any = steps) -> None:
            if next(steps, None) is None:
                raise StoreError("killed")
            method(*given)

        broken.put = lambda *given: step(store.put, *given)  # type: ignore[method-assign] # stops at some step
        broken.delete = lambda names: [step(store.delete, [name]) for name in names] and None  # type: ignore[method-assign] # likewise
        try:
            compact(broken)
        except StoreError as error:
            assert str(error) == "killed"  # noqa: PT017 # else it is another one
            assert fleet_answers(store, tmp_path) == expected
        else:
            break
        left += 1
    assert left > 6
    assert fleet_answers(store, tmp_path) == expected
    assert len([*(tmp_path / "fleet/v1/days").rglob("*.parquet")]) == 2


class Turns:
    """Lets two threads go on by turns, in a random order; one whose peer has ended goes on alone."""

    def __init__(self, seed: int) -> None:
        self._dice, self._turn, self._running, self._changed = random.Random(seed), 0, {0, 1}, threading.Condition()  # noqa: S311 # no secret

    def step(self, who: int) -> None:
        """Wait for a turn, and draw whose is the next one."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn == who or len(self._running) == 1)
            self._turn = self._dice.randrange(2)
            self._changed.notify_all()

    def end(self, who: int) -> None:
        """Leave."""
        with self._changed:
            self._running.discard(who)
            self._changed.notify_all()


@pytest.mark.parametrize("seed", range(12))
def test_two_runs_at_once_lose_nothing(seed: int, store: FleetFiles, tmp_path: Path) -> None:
    """One may fail, as the other deletes what it reads; no row is lost or counts twice, and the next run joins all."""
    nodes = records(replace(TRAIN, nodes=2))
    put(store, nodes, 0, 4)
    compact(store)
    put(store, nodes, 4, 8)
    turns = Turns(seed)

    def run(who: int) -> str:
        mine = FleetFiles(store.url)
        for name in ("names", "read", "put", "_delete"):
            method = getattr(mine, name)
            setattr(mine, name, lambda *given, method=method: (turns.step(who), method(*given))[1])
        try:
            if who:
                put(store, nodes, 8)
            compact(mine)
        except StoreError as error:
            return str(error)
        finally:
            turns.end(who)
        return ""

    with ThreadPoolExecutor(2) as runs:
        failed = [*runs.map(run, range(2))]

    assert "" in failed
    rows = {
        (row["uid"], row["first_start_ns"])
        for folder in (files.INBOX, files.DAYS)
        for name in files.parquet_files(store.names(folder))
        for row in parquet.read_table(pa.BufferReader(store.read(name)), partitioning=None).to_pylist()
    }
    assert rows == {(one.uid, one.start_ns) for record in nodes for one in record.checkpoints}
    compact(store)
    assert fleet_answers(store, tmp_path) == (of_databases(nodes), [])
    assert compact(store).days == ()


def test_what_is_compacted_while_it_is_read_is_read_again(
    store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inbox whose files are gone by then is in days."""
    put(store, nodes)
    read_states, calls = reading.read_states, []

    def while_compacting(*given: Any) -> Any:
        calls.append(compact(store) if not calls else None)
        return read_states(*given)

    monkeypatch.setattr(reading, "read_states", while_compacting)

    assert fleet_answers(store, tmp_path) == (of_databases(nodes), [])
    assert len(calls) == 2


def test_old_days_go(store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path) -> None:
    """With --keep, and what comes late of them is not kept."""
    put(store, nodes)
    compact(store)
    put(store, nodes)
    now_ns = nodes[0].checkpoints[-1].start_ns + 86_400 * 10**9

    done = compact(store, keep_days=1, now_ns=now_ns)
    put(store, nodes)
    again = compact(store, keep_days=1, now_ns=now_ns)

    assert (done.expired, done.days) == (("2026-03-20",), ("2026-03-21",))
    assert (again.expired, again.days) == ((), ("2026-03-21",))
    found, _ = fleet_answers(store, tmp_path)
    assert 0 < found["cost"]["checkpoints"] < 24


def test_what_cannot_be_read_is_named_and_hides_nothing(
    store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path
) -> None:
    """A file that is none, columns of another type, rows that are no checkpoints; it stays where it is."""
    put(store, nodes)
    folder = files.inbox_folder("evil\x1b")
    store.put(f"{folder}/a-0-1.parquet", b"x" * 4096)
    store.put(f"{folder}/b-0-1.parquet", files.to_parquet(pa.table({"uid": [1.5], "first_start_ns": ["no"]})))
    rubbish = {"uid": ["u"], "kind": ["weird"], "first_start_ns": [nodes[0].checkpoints[0].start_ns], "revision": [1]}
    store.put(f"{folder}/c-0-1.parquet", files.to_parquet(pa.table(rubbish)))
    store.put(files.heartbeat_name("evil\x1b", "a"), b"{")

    found, missing = fleet_answers(store, tmp_path)
    done = compact(store)

    assert found == of_databases(nodes)
    assert len(missing) == 3
    assert [one.partition(":")[0] for one in done.unread[:3]] == [
        f"{folder}/a-0-1.parquet", f"{folder}/b-0-1.parquet", files.heartbeat_name("evil\x1b", "a")
    ]  # fmt: skip
    assert done.unread[3] == "1 row is not a checkpoint"
    assert fleet_answers(store, tmp_path)[0] == of_databases(nodes)
    assert {name for name in store.names(files.INBOX) if name.endswith(".parquet")} == {
        f"{folder}/a-0-1.parquet", f"{folder}/b-0-1.parquet"
    }  # fmt: skip


def test_a_table_that_is_damaged_is_named(
    store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line; the next `compact` writes it again."""
    put(store, nodes)
    compact(store)
    name = f"{files.CLUSTER_CHECKPOINTS}/day=2026-03-20/cluster_checkpoints.parquet"
    store.put(name, b"x" * 4096)

    assert main(["fleet", "cost", "--db", store.url]) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
    assert compact(store).days == ("2026-03-20",)
    assert fleet_answers(store, tmp_path) == (of_databases(nodes), [])


def test_a_node_cannot_be_another(store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path) -> None:
    """Its name is that of its inbox, whatever its files have in them."""
    (one,) = records(Job(nodes=1))
    put(store, [one])
    (name,) = files.parquet_files(store.names(files.INBOX))
    table = parquet.read_table(pa.BufferReader(store.read(name)), partitioning=None)
    store.put(name, files.to_parquet(table.append_column("node", pa.array(["another"] * len(table)))))
    state = msgspec.structs.replace(node_state(one), host="another")
    store.put(files.heartbeat_name(one.host, one.database), msgspec.json.encode(state))

    for _ in range(2):
        found, missing = fleet_answers(store, tmp_path)
        assert missing == []
        assert [row["host"] for row in found["nodes"]["nodes"]] == ["train-node-0"]
        compact(store)


def test_more_than_can_be_joined_at_once_is_said(
    store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is answered."""
    put(store, nodes, 0, 6)
    compact(store)
    put(store, nodes, 6)
    monkeypatch.setattr(reading, "MAX_JOINED_ROWS", 50)

    found, missing = fleet_answers(store, tmp_path)

    assert found["cost"]["checkpoints"] == 13  # of the seventh save one node was compacted
    assert missing == [f"{store.url}: what was shipped since the last `ckptprof fleet compact`"]


def test_files_of_before_have_null_in_a_new_column(store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path) -> None:
    """Of a table and of a struct, in inboxes and in days."""
    put(store, nodes)
    for name in files.parquet_files(store.names(files.INBOX)):
        table = parquet.read_table(pa.BufferReader(store.read(name)), partitioning=None)
        pattern = table.schema.field("pattern").type
        fewer = pa.struct([one for one in pattern if one.name != "engine"])
        place = table.schema.get_field_index("pattern")
        table = table.set_column(place, "pattern", table.column("pattern").combine_chunks().cast(fewer))
        store.put(name, files.to_parquet(table.drop_columns(["cache", "storage_bytes"])))

    assert fleet_answers(store, tmp_path) == (of_databases(nodes), [])
    compact(store)
    for name in files.parquet_files(store.names(files.CLUSTER_CHECKPOINTS))[:1]:
        table = parquet.read_table(pa.BufferReader(store.read(name)), partitioning=None)
        whole = table.schema.field("whole").type
        fewer = pa.struct([one for one in whole if one.name not in ("cache", "owner")])
        whole = table.column("whole").combine_chunks().cast(fewer)
        store.put(name, files.to_parquet(table.set_column(0, "whole", whole).drop_columns(["place"])))
    assert fleet_answers(store, tmp_path) == (of_databases(nodes), [])


QUESTIONS = [
    ["stragglers"], ["cost", "--by", "week"], ["limits", "--split", "2026-03-21T00:00Z"], ["newest"], ["collisions"],
    ["nodes"], ["cost", "--job", "tr*", "--limit", "3"], ["limits", "--since", "2026-03-21T00:10Z", "--kind", "save"],
]  # fmt: skip


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_the_command_answers_of_a_fleet_as_of_databases(
    words: list[str], store: FleetFiles, nodes: list[NodeRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text and as JSON, before and after `compact`."""
    paths = write(tmp_path / "nodes", nodes)
    put(store, [msgspec.structs.replace(one, database=path.stem) for one, path in zip(nodes, paths, strict=True)])

    def answered(db: str) -> list[str]:
        found = []
        for more in ([], ["--json"]):
            assert main(["fleet", *words, *more, "--db", db]) == 0
            found.append(capsys.readouterr().out)
        return found

    def told(text: str) -> Any:
        found = json.loads(text)
        return rounded({key: value for key, value in found.items() if key != "nodes" or words[0] != "nodes"})

    text, document = answered(str(tmp_path / "nodes"))
    before = answered(store.url)
    assert main(["fleet", "compact", "--db", store.url]) == 0
    assert "6 files with 71 rows merged; days: 2026-03-20, 2026-03-21\n" in capsys.readouterr().out
    after = answered(store.url)
    assert before[0] == after[0]
    assert told(before[1]) == told(after[1]) == told(document)
    assert words[0] == "nodes" or after[0] == text


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["compact"], "compact needs one --db"), (["compact", "--db", "x", "--keep", "1h"], "less than a day"),
        (["cost", "--keep", "90d"], "--keep needs"), (["cost", "--db", "s3://a/b", "--db", "c.db"], "one fleet"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    assert main(["fleet", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_folder_that_is_no_fleet_is_not_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped URL must not look like success; nothing is made there."""
    assert main(["fleet", "compact", "--db", str(tmp_path)]) == 3

    assert f"nothing was shipped to {tmp_path}" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("duckdb", ["fleet", "cost", "--db", "nodes"], "fleet"),
        ("pyarrow", ["ship", "--to", "/shared/ckptprof"], "ship"),
        ("opentelemetry", ["ship", "--to", "https://otel.example"], "otel"),
    ],
)
def test_without_an_extra_its_command_is_named(missing: str, words: list[str], extra: str) -> None:
    """In a process of its own, which has not loaded it yet."""
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from ckptprof.cli.main import main; sys.exit(main({words}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert missing in done.stderr
    assert f"pip install 'ckptprof[{extra}]'" in done.stderr
