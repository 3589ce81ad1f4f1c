"""The tables of the fleet: Arrow schemas made from the structs of the model, which name each column once.

A column is only ever added, and may be null: so it is in a file of before. What people read (sentences, timelines)
stays on the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import inspect

from ckptprof.cluster.model import ClusterCheckpoint, NodePart, NodeState
from ckptprof.cluster.runs import job_of, run_of, storage_of
from ckptprof.encoding import all_encodable
from ckptprof.model import Checkpoint, Evidence, Overhead, Pattern
from ckptprof.verdicts import Account, Verdict

_NOT_SHIPPED: dict[type, tuple[str, ...]] = {
    Checkpoint: ("blocked", "devices", "limitations", "measures", "progress_left_out", "streams", "timeline"),
    Account: ("text",),
    Evidence: ("text",),
    Overhead: ("text",),
    Pattern: ("size_histogram",),
    Verdict: ("alternative", "capped_by", "evidence", "excluded", "missing", "reference", "remedy", "sentence"),
    ClusterCheckpoint: ("nodes",),  # rows of a table of their own
}


class _Account(Account, frozen=True, gc=False, kw_only=True):
    text: str = ""


class _Evidence(Evidence, frozen=True, gc=False, kw_only=True):
    text: str = ""


class _Overhead(Overhead, frozen=True, gc=False, kw_only=True):
    text: str = ""


class _Verdict(Verdict, frozen=True, gc=False, kw_only=True):
    sentence: str = ""
    accounts: tuple[_Account, ...] = ()
    evidence: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


class ShippedCheckpoint(Checkpoint, frozen=True, gc=False, kw_only=True):
    """A checkpoint of one node as a row."""

    limitations: tuple[str, ...] = ()
    overheads: tuple[_Overhead, ...] = ()
    evidence: tuple[_Evidence, ...] = ()
    verdict: _Verdict | None = None


class ShippedRow(ShippedCheckpoint, frozen=True, gc=False, kw_only=True):
    """A row of an inbox; with the node it is one of a day."""

    database: str  # uid of the first session of the database; with node and uid the key. The highest revision counts
    first_start_ns: int  # start as first stored, epoch nanoseconds: its UTC day is the day of all revisions
    lost: int = 0  # not a checkpoint, but the number of those that the node deleted before it could ship them


class FleetCheckpoint(ClusterCheckpoint, frozen=True, gc=False, kw_only=True):
    """A row of cluster_checkpoints."""

    whole: ShippedCheckpoint
    run_key: str  # of the run; without one, node and job
    job_key: str  # common to the restarts of a job
    storage: str  # the file system, by the same name on all nodes; object store, local, not known
    nodes_observed: int
    day: str  # UTC, of the first start of its first part
    join_key: str  # run, folder or node: what is joined has the same


class FleetNode(NodePart, frozen=True, gc=False, kw_only=True):
    """A row of cluster_nodes."""

    checkpoint: str  # uid of the checkpoint across nodes


@cache
def table_schema(row: type) -> Any:
    """Return the pyarrow schema of a struct; all columns are nullable."""
    return pa.schema(list(_arrow(inspect.type_info(row))))


def _arrow(of: inspect.Type) -> Any:
    match of:
        case inspect.Metadata(type=inner):
            return _arrow(inner)
        case inspect.UnionType(types=types):
            (known,) = (one for one in types if not isinstance(one, inspect.NoneType))
            return _arrow(known)
        case inspect.StructType(cls=cls, fields=fields):
            omitted = {name for one in cls.__mro__ for name in _NOT_SHIPPED.get(one, ())}
            return pa.struct([(one.encode_name, _arrow(one.type)) for one in fields if one.name not in omitted])
        case inspect.VarTupleType(item_type=item):
            return pa.list_(_arrow(item))
        case inspect.BoolType():
            return pa.bool_()
        case inspect.IntType():
            return pa.int64()
        case inspect.FloatType():
            return pa.float64()
    return pa.string()  # text, or a word of an enumeration


def table_of(rows: Iterable[Any], row: type) -> Any:
    """Return a pyarrow table of structs, or of dicts with the same names."""
    plain = [all_encodable(msgspec.to_builtins(one)) for one in rows]
    return pa.Table.from_pylist(plain, schema=table_schema(row))


def cluster_tables(merged: Iterable[ClusterCheckpoint], day: str = "", join_key: str = "") -> tuple[Any, Any]:
    """Return merged checkpoints as the tables cluster_checkpoints and cluster_nodes."""
    checkpoints, nodes = [], []
    for one in merged:
        keys = {"run_key": run_of(one), "job_key": job_of(one), "storage": storage_of(one)}
        more = {**keys, "nodes_observed": len(one.nodes), "day": day, "join_key": join_key}
        checkpoints.append({**msgspec.structs.asdict(one), **more})
        nodes += [{**msgspec.structs.asdict(part), "checkpoint": one.whole.uid} for part in one.nodes]
    return table_of(checkpoints, FleetCheckpoint), table_of(nodes, FleetNode)


def node_table(states: Iterable[NodeState]) -> Any:
    """Return the table node_states."""
    return table_of(states, NodeState)
