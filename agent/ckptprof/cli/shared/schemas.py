"""The JSON Schema of the documents of `--json`, made from their structs on request.

A description is the comment of a field, or the docstring of a struct, with null for None. All fields of a struct are
required and no others allowed, except those named here.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from enum import Enum
from typing import Any, get_args, get_type_hints

import msgspec

from ckptprof.cluster.answers import Collisions, Costs, Limits, NewestSteps, Nodes, Stragglers
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.diagnose.plan.checkpoint_plan import CheckpointPlan
from ckptprof.model import Checkpoint
from ckptprof.report import ceiling, diff, doctor, document, plan, service, settings, why
from ckptprof.report.cluster import cluster_document as clusters
from ckptprof.report.jobs import memory, reads
from ckptprof.report.live.state import State

_PACKAGES = ("ckptprof.",)  # modules of the structs
_WORDS = {"None": "null", "True": "true", "False": "false"}


class CheckpointDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint with all details."""

    checkpoint: Checkpoint


class ClusterCheckpointDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint across its nodes."""

    checkpoint: ClusterCheckpoint


DOCUMENTS: dict[str, tuple[str, type]] = {
    "ceiling": ("ceiling --json", ceiling.CeilingDocument),
    "cluster": ("report --json, list --json of several databases", clusters.ClusterReport),
    "cluster-show": ("show --json of several databases", ClusterCheckpointDocument),
    "config": ("config --json", settings.Settings),
    "diff": ("diff --json", diff.DiffDocument),
    "doctor": ("doctor --json", doctor.DoctorDocument),
    "fleet-collisions": ("fleet collisions --json", Collisions),
    "fleet-cost": ("fleet cost --json", Costs),
    "fleet-limits": ("fleet limits --json", Limits),
    "fleet-newest": ("fleet newest --json", NewestSteps),
    "fleet-nodes": ("fleet nodes --json", Nodes),
    "fleet-stragglers": ("fleet stragglers --json", Stragglers),
    "live": ("live --json", State),
    "memory": ("report --memory --json", memory.MemoryDocument),
    "plan": ("plan --json", CheckpointPlan),
    "reads": ("report --reads --json", reads.ReadsDocument),
    "report": ("report --json, list --json", why.ExplainedReport),
    "restarts": ("report --restarts --json", plan.RestartsDocument),
    "service": ("service --json", service.ActionResult),
    "show": ("show --json", CheckpointDocument),
}
_OPTIONAL: dict[type, tuple[str, ...]] = {Checkpoint: document.DETAIL, why.ExplainedReport: ("events",)}
_UNREPORTED: dict[type, tuple[str, ...]] = {Checkpoint: document.OMITTED, ceiling.CeilingDocument: ceiling.UNREPORTED}
_COMPUTED: dict[type, tuple[str, ...]] = {Checkpoint: document.DERIVED}


def schema(name: str) -> dict[str, Any]:
    """Return the schema of one of DOCUMENTS."""
    title, root = DOCUMENTS[name]
    classes = _classes(root, {})
    worked_out = [_returned(kind, way) for kind in classes.values() for way in _COMPUTED.get(kind, ())]
    _, components = msgspec.json.schema_components([root, *worked_out])
    parts = {one: _describe(classes[one], components[one]) for one in sorted(components)}
    body = parts.pop(root.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ckptprof:schema:{name}:{document.SCHEMA_VERSION}",
        "title": f"ckptprof {title}",
        **body,
        "required": ["schema_version", *body["required"]],
        "properties": {"schema_version": {"const": document.SCHEMA_VERSION}, **body["properties"]},
        **({"$defs": parts} if parts else {}),
    }


def _classes(kind: Any, found: dict[str, type]) -> dict[str, type]:
    for one in get_args(kind):
        _classes(one, found)
    if isinstance(kind, type) and kind.__module__.startswith(_PACKAGES) and kind.__name__ not in found:
        found[kind.__name__] = kind
        if not issubclass(kind, Enum):
            worked_out = [_returned(kind, name) for name in _COMPUTED.get(kind, ())]
            for field in (*get_type_hints(kind).values(), *worked_out):
                _classes(field, found)
    return found


def _returned(kind: type, name: str) -> Any:
    return get_type_hints(getattr(kind, name).fget)["return"]


def _describe(kind: type, schema: dict[str, Any]) -> dict[str, Any]:
    if issubclass(kind, Enum):
        return {"description": _sentence(kind.__doc__), "enum": [one.value for one in kind]}
    names = getattr(kind, "__struct_encode_fields__", tuple(schema.get("properties", ())))
    fields = schema["properties"] if "properties" in schema else dict(zip(names, schema["prefixItems"], strict=True))
    descriptions = dict(zip(names, _field_comments(kind), strict=True))
    properties = {
        name: _simplify(fields[name], descriptions[name]) for name in names if name not in _UNREPORTED.get(kind, ())
    }
    for name in _COMPUTED.get(kind, ()):
        (worked_out,), _ = msgspec.json.schema_components([_returned(kind, name)])
        properties[name] = _simplify(worked_out, _sentence(getattr(kind, name).__doc__))
    required = [name for name in properties if name not in _OPTIONAL.get(kind, ())]
    closed = {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
    return {"description": _sentence(kind.__doc__), **closed}


def _simplify(schema: dict[str, Any], description: str) -> dict[str, Any]:
    simple = {key: value for key, value in schema.items() if key != "default"}
    parts = simple.get("anyOf", [])
    types = [part.get("type") for part in parts]
    if parts and None not in types and not any("enum" in part for part in parts):
        simple = {key: value for part in parts for key, value in part.items()} | {"type": types}
    return {**simple, **({"description": description} if description else {})}


def _field_comments(kind: type) -> list[str]:
    """Return the comment of each field, those of parent classes first."""
    by_field: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith(_PACKAGES):
            source = textwrap.dedent(inspect.getsource(one))
            comments = {
                token.start[0]: token.string.removeprefix("#").strip()
                for token in tokenize.generate_tokens(io.StringIO(source).readline)
                if token.type == tokenize.COMMENT
            }
            (body,) = ast.parse(source).body
            fields = body.body if isinstance(body, ast.ClassDef) else []
            ends = [node.lineno for node in fields[1:]] + [len(source.splitlines()) + 1]
            for node, end in zip(fields, ends, strict=True):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    lines = [comments[line] for line in range(node.lineno, end) if line in comments]
                    by_field[node.target.id] = _sentence(" ".join(lines))
    return [by_field[name] for name in getattr(kind, "__struct_fields__", ()) or get_type_hints(kind)]


def _sentence(text: str | None) -> str:
    return re.sub(r"\b(None|True|False)\b", lambda word: _WORDS[word[0]], " ".join((text or "").split()))
