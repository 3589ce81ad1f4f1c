"""The schemas of documents are made from their structs."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from ckptprof.bounds import Count, Nullable, one_of
from ckptprof.cli.main import main
from ckptprof.cli.shared import schemas
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


@pytest.mark.parametrize("name", schemas.DOCUMENTS)
def test_each_document_has_a_schema_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As the command prints it: valid, with all that it refers to, and a word on each struct."""
    assert main(["version", "--schema", name]) == 0
    text = capsys.readouterr().out
    made = json.loads(text)

    Draft202012Validator.check_schema(made)
    assert set(re.findall(r'"#/\$defs/(\w+)"', text)) == set(made.get("$defs", ()))
    assert all(part["description"] for part in (made, *made.get("$defs", {}).values()))


def test_a_document_that_there_is_not_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names of those that there are."""
    assert main(["version", "--schema", "nothing"]) == 2
    assert "hint: one of ceiling, cluster, " in capsys.readouterr().err


def test_a_struct_tells_all_of_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its parent's and under the names in JSON: closed, required, described by what stands beside them."""
    monkeypatch.setattr(schemas, "_PACKAGES", ("ckptprof.", __name__))

    monkeypatch.setitem(schemas.DOCUMENTS, "told", ("a title", _Told))
    made = schemas.schema("told")

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
