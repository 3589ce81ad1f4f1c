"""Another engine finds the same in the tables of a fleet: `pip install chdb; pytest tests/fleet/chdb_answers.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import chdb
import duckdb
from chdb.session import Session
from tests.fleet.inboxes import compact, put, records, rounded
from tests.fleet.test_compaction import LLM, TRAIN

from ckptprof.fleet import files
from ckptprof.fleet.files import FleetFiles

TABLES = {"checkpoints": files.CLUSTER_CHECKPOINTS, "nodes": files.CLUSTER_NODES, "rows": files.DAYS}
QUESTIONS = (
    "SELECT job_key, sum(whole.cost.gpu_seconds), sum(whole.stall_ns) FROM {checkpoints} GROUP BY 1 ORDER BY 1",
    "SELECT job_key, max(whole.step) FROM {checkpoints} WHERE is_restorable GROUP BY 1 ORDER BY 1",
    'SELECT storage, whole.verdict."limit", count(*) FROM {checkpoints} GROUP BY 1, 2 ORDER BY 1, 2',
    "SELECT straggler.host, sum(straggler.excess_seconds) FROM {checkpoints} WHERE straggler.host > '' GROUP BY 1",
    "SELECT host, count(*), sum(bytes) FROM {nodes} GROUP BY 1 ORDER BY 1",
    "SELECT node, count(*), sum(bytes), max(revision), min(first_start_ns) FROM {rows} GROUP BY 1 ORDER BY 1",
)
SUMS = (
    "SELECT job_key, sum(whole.stall_ns) / 1e9, sum(whole.cost.gpu_seconds), min(whole.verdict.limit) "
    "FROM '{}' GROUP BY 1 ORDER BY 1"
)


def test_another_engine_answers_the_same(tmp_path: Path) -> None:
    """Of nested columns as well."""
    store = FleetFiles(str(tmp_path))
    put(store, records(TRAIN, LLM))
    compact(store)
    globs = {name: f"{tmp_path}/{folder}/*/*.parquet" for name, folder in TABLES.items()}
    by_duckdb = {name: f"read_parquet('{one}', hive_partitioning = false)" for name, one in globs.items()}
    by_chdb = {name: f"file('{one}', Parquet)" for name, one in globs.items()}

    for question in QUESTIONS:
        expected = duckdb.sql(question.format(**by_duckdb)).fetchall()
        found = chdb.query(question.format(**by_chdb), "JSONCompactEachRow").bytes().decode().splitlines()

        assert expected
        assert [_plain(json.loads(line)) for line in found] == [_plain(row) for row in expected]


def test_its_views_answer_the_same(tmp_path: Path) -> None:
    """Those of deploy/clickhouse.sql, over local files in the place of a bucket."""
    store = FleetFiles(str(tmp_path))
    put(store, records(TRAIN, LLM))
    compact(store)
    text = (Path(__file__).resolve().parents[2] / "deploy/clickhouse.sql").read_text(encoding="utf-8")
    text = re.sub(r"s3\('https://[^']*/ckptprof/", f"file('{tmp_path}/", text)
    with Session() as session:
        for statement in re.sub(r"--.*", "", text).split(";"):
            if statement.strip():
                session.query(statement)
        asked = "SELECT job_key, sum(stall_seconds), sum(gpu_seconds), min(limited_by) FROM ckptprof.checkpoints"
        found = session.query(f"{asked} GROUP BY 1 ORDER BY 1", "JSONCompactEachRow").bytes().decode().splitlines()
        nodes = session.query("SELECT count() FROM ckptprof.nodes", "CSV").bytes()

    expected = duckdb.sql(SUMS.format(f"{tmp_path}/{files.CLUSTER_CHECKPOINTS}/*/*.parquet")).fetchall()
    assert expected
    assert [_plain(json.loads(line)) for line in found] == [_plain(row) for row in expected]
    assert int(nodes) == len(duckdb.sql(f"FROM '{tmp_path}/{files.CLUSTER_NODES}/*/*.parquet'").fetchall())


def _plain(row: Any) -> Any:
    """Return a row with numbers for those that ClickHouse writes as text in JSON."""
    return rounded([float(one) if str(one).lstrip("-").isdigit() else one for one in row])
