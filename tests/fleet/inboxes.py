"""What nodes ship, as files of a fleet: made of the records of clones."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.cluster.nodes import Job

from ckptprof.cluster.model import NodeRecord
from ckptprof.fleet import compaction, files, schema
from ckptprof.fleet.files import FleetFiles
from ckptprof.fleet.questions import ANSWERS, FleetDatabase, node_state
from ckptprof.fleet.reading import open_fleet
from ckptprof.model import CheckpointQuery

NOW_NS = 1_900_000_000 * 10**9


def records(*jobs: Job) -> list[NodeRecord]:
    """Return what all nodes have; each job has nodes of its own."""
    return [record for job in jobs for record in job.seen()[0]]


def put(store: FleetFiles, of: Sequence[NodeRecord], first: int = 0, last: int = 1 << 40, revision: int = 1) -> None:
    """Ship some checkpoints of each node, and its state."""
    for record in of:
        rows = [
            {**msgspec.structs.asdict(one), "database": record.database, "first_start_ns": one.start_ns,
             "lost": 0, "revision": revision}
            for one in record.checkpoints[first:last]
        ]  # fmt: skip
        name = f"{files.inbox_folder(record.host)}/{record.database}-{first}-{last}.parquet"
        store.put(name, files.to_parquet(schema.table_of(rows, schema.ShippedRow)))
        state = msgspec.json.encode(node_state(record))
        store.put(files.heartbeat_name(record.host, record.database), state)


def compact(store: FleetFiles, **more: Any) -> compaction.Compacted:
    """Merge inboxes."""
    return compaction.compact(store, **{"keep_days": None, "now_ns": NOW_NS, "progress": lambda _: None, **more})


def answers(tables: FleetDatabase) -> dict[str, Any]:
    """Return the answers to all questions, rounded as far as sums depend on the order of rows."""
    with contextlib.closing(tables):
        tables.select(CheckpointQuery(), NOW_NS)
        asked = {question: tables.ask(question, of, by="job") for question, of in ANSWERS.items()}
    found: dict[str, Any] = rounded(msgspec.to_builtins(asked))
    return found


def fleet_answers(store: FleetFiles, temporary: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the answers of a fleet, and what is missing."""
    tables, missing = open_fleet(store.url, temporary)
    return answers(tables), missing


def rounded(value: Any) -> Any:
    """Return a value whose numbers have nine digits: the last of a sum depend on the order of rows."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
