"""What people chose does not leave the host where the site has a key for hashes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from tests.cluster.nodes import Job

from ckptprof.cluster.merging import merge
from ckptprof.errors import StoreError
from ckptprof.fleet.schema import ShippedRow, table_of
from ckptprof.frameworks.placekeys import file_system_key
from ckptprof.frameworks.runkeys import job_key
from ckptprof.model import Checkpoint, Place, Run
from ckptprof.service.shipping.hashed_names import HashedNames, read_key

SECRET = "hush"  # noqa: S105 # none
# Words of ours, each out of a list that stands in the sources, and the uid, which is a hash of its own
OURS = {
    "Checkpoint.uid", "Checkpoint.framework", "Verdict.cause", "Evidence.name", "Overhead.reason", "Cost.gpus_from",
    "Cost.tier", "Writer.role",
}  # fmt: skip
KEY = b"0123456789abcdef"
redact = HashedNames(KEY).replace
PLAIN = {inspect.DictType: {}, inspect.BoolType: True, inspect.IntType: 7, inspect.FloatType: 0.5}


def _filled(kind: Any, where: str = "") -> Any:
    """Return a value of a type in which each text is secret, but for those of a list and for `OURS`."""
    match kind:
        case inspect.Metadata():
            words = (kind.extra_json_schema or {}).get("enum")
            return words[0] if words else _filled(kind.type, where)
        case inspect.StrType():
            return "ours" if where in OURS else f"/{SECRET}/{where}: {SECRET}"
        case inspect.UnionType():
            return _filled(next(one for one in kind.types if not isinstance(one, inspect.NoneType)), where)
        case inspect.StructType():
            name = kind.cls.__name__
            return kind.cls(**{one.name: _filled(one.type, f"{name}.{one.name}") for one in kind.fields})
        case inspect.VarTupleType():
            return (_filled(kind.item_type, where),)
        case inspect.EnumType():
            return next(iter(kind.cls))
    return PLAIN[type(kind)]


def test_no_text_is_left_but_words_of_our_own() -> None:
    """Whatever a checkpoint can have: each text of it is hashed, left out, or out of a list of ours."""
    whole: Checkpoint = _filled(inspect.type_info(Checkpoint))
    assert SECRET in str(whole)

    told = redact(whole)

    row = {**msgspec.structs.asdict(told), "database": "d", "first_start_ns": 0}
    assert SECRET not in str(table_of([row], ShippedRow).to_pylist())
    assert (told.bytes, told.uid, told.verdict is not None) == (7, "ours", True)
    assert re.fullmatch(r"/[0-9a-f]{12}/[0-9a-f]{12}:[0-9a-f]{12}", told.path or "")


def test_what_is_grouped_by_keys_still_is() -> None:
    """Runs of one job, folders of one file system; numbers that schedulers gave stay."""
    base = Job(saves=1).seen()[0][0].checkpoints[0]

    def hidden(key: str, place: str) -> Checkpoint:
        run = Run(key=key, scheduler="slurm", job="8812", restart=1)
        return redact(msgspec.structs.replace(base, run=run, place=Place(key=place, shared=True)))

    first = hidden("slurm:alpha/8812.0", "nfs:filer:/export/home:123")
    second = hidden("slurm:alpha/8812.3", "nfs:filer:/export/home:456")
    third = hidden("slurm:beta/8812.0", "nfs:filer:/other:123")

    assert first.run is not None
    assert second.run is not None
    assert third.run is not None
    assert re.fullmatch(r"slurm:[0-9a-f]{12}/8812\.0", first.run.key)
    assert job_key(first.run) == job_key(second.run) != job_key(third.run)
    one, two, other = (file_system_key(each.place.key) for each in (first, second, third) if each.place is not None)
    assert one == two != other


def test_nodes_still_have_one_run() -> None:
    """Parts are joined as before: the same name has the same hash."""
    records, _ = Job(nodes=4, saves=3, late_s={1: 4.0}).seen()
    hidden = [msgspec.structs.replace(record, checkpoints=tuple(map(redact, record.checkpoints))) for record in records]

    plain, bare = merge(records), merge(hidden)

    assert [len(one.nodes) for one in bare] == [len(one.nodes) for one in plain] == [4, 4, 4]
    assert [one.straggler is not None and one.straggler.host for one in bare] == ["train-node-1"] * 3
    assert {one.whole.job for one in bare}.isdisjoint({"train"})


def test_another_key_makes_other_hashes() -> None:
    """Who does not have it cannot compare a guess."""
    base = Job(saves=1).seen()[0][0].checkpoints[0]

    assert redact(base).job == redact(base).job != HashedNames(KEY[::-1]).replace(base).job


def test_a_key_is_private_and_long_enough(tmp_path: Path) -> None:
    """A file that others may read is refused, and one that is guessed."""
    key = tmp_path / "key"
    key.write_bytes(KEY + b"\n")
    key.chmod(0o600)
    assert read_key(key) == KEY
    key.chmod(0o640)
    with pytest.raises(StoreError, match="others may read"):
        read_key(key)
    key.chmod(0o600)
    key.write_bytes(b"short")
    with pytest.raises(StoreError, match="5 bytes"):
        read_key(key)
