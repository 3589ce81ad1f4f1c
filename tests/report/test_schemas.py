"""The schemas that ship are made from the structs; CKPTPROF_UPDATE_GOLDEN=1 writes them."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import msgspec
import pytest
from tests.report import schemas

from ckptprof.bounds import Count, Nullable, one_of
from ckptprof.model import Interval, Kind


class _Parent(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of None."""

    first: int | None = None  # beside it; None: nothing


class _Told(_Parent, frozen=True, kw_only=True):
    """Two lines.

    They are one.
    """

    second: str = msgspec.field(name="class")  # begins here and
    # ends here
    third: Annotated[str, one_of("a", "b")] | None = None
    spans: tuple[Interval, ...] = ()
    kind: Kind
    sum: Nullable
    number: Count | None


def test_what_ships_is_what_is_made() -> None:
    """A new field of a struct is in the schema of each document that tells it; look at the difference."""
    for name, schema in schemas.made().items():
        path = schemas.FOLDER / f"{name}.schema.json"
        if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
            path.write_text(schemas.text(schema) + "\n", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == schemas.text(schema) + "\n"
        assert json.loads(schemas.text(schema)) == schema
    assert {f"{name}.schema.json" for name in schemas.made()} == {path.name for path in schemas.FOLDER.iterdir()}


def test_a_struct_tells_all_of_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its parent's and under the names in JSON: closed, required, described by what stands beside them."""
    monkeypatch.setattr(schemas, "_ROOM", ("ckptprof.", __name__))

    made = schemas.schema("told", "a title", _Told)

    whole: dict[str, Any] = {"type": "integer"}
    span = {"start_ns": whole, "end_ns": whole}
    assert made["description"] == "Two lines. They are one."
    assert made["additionalProperties"] is False
    assert made["required"] == list(made["properties"])
    assert made["properties"] == {
        "schema_version": {"const": 1},
        "first": {"type": ["integer", "null"], "description": "beside it; null: nothing"},
        "class": {"type": "string", "description": "begins here and ends here"},
        "third": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]},
        "spans": {"type": "array", "items": {"$ref": "#/$defs/Interval"}},
        "kind": {"$ref": "#/$defs/Kind"},
        "sum": {"type": ["number", "null"]},
        "number": {"type": ["integer", "null"], "minimum": 0},
    }
    assert made["$defs"]["Interval"]["properties"] == span
    assert made["$defs"]["Kind"]["enum"] == ["save", "restore", "copy"]


def test_bounds_refuse_nothing_that_was_recorded() -> None:
    """They are for schemas: a database of an older version may hold other words."""
    odd = {"class": "", "third": "c", "kind": "save", "sum": 1.5, "number": -1}

    assert msgspec.convert(odd, _Told).third == "c"
