"""The JSON documents of `--json`; schema/ holds their JSON Schemas, and tests hold the one against the other."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from ckptprof.model import Checkpoint, Report
from ckptprof.report.clean import encodable

SCHEMA_VERSION = 1
DETAIL = ("streams", "timeline", "devices")  # in `show --json` only
# May be raw in JSON but not on a terminal: DEL, C1, invisible formats, line ends of Unicode. JSON escapes C0 itself.
_UNSAFE = re.compile(
    "[\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def report_document(report: Report) -> dict[str, Any]:
    """Return the document of `report --json` and `list --json`, checkpoints in the order of their start."""
    ordered = sorted(report.checkpoints, key=lambda checkpoint: (checkpoint.start_ns, checkpoint.id))
    watched: dict[str, Any] = _plain(report.watched)
    return {
        "schema_version": SCHEMA_VERSION,
        "host": _plain(report.host),
        "watched": watched,
        "checkpoints": [_summary(checkpoint) for checkpoint in ordered],
    }


def checkpoint_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the document of `show --json`: one checkpoint with its streams, timeline and devices."""
    body = _summary(checkpoint)
    body["streams"] = _plain(checkpoint.streams)
    body["timeline"] = [{"start_ns": p.start_ns, "end_ns": p.end_ns, "bytes": p.bytes} for p in checkpoint.timeline]
    body["devices"] = _plain(checkpoint.devices)
    return {"schema_version": SCHEMA_VERSION, "checkpoint": body}


def dump(document: dict[str, Any]) -> str:
    """Return the document as JSON text that ends in a newline: readable names, nothing that a terminal would obey."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    return _UNSAFE.sub(_escape, text) + "\n"


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] > "\x7f" else "\\u007f"


def _summary(checkpoint: Checkpoint) -> dict[str, Any]:
    body: dict[str, Any] = {
        name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__ if name not in DETAIL
    }
    return {name: _plain(value) for name, value in body.items()}


def _plain(value: object) -> Any:
    """Return `value` in JSON's own types: names without surrogates, numbers that are none as null."""
    return _tidy(msgspec.to_builtins(value))


def _tidy(value: object) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {encodable(str(key)): _tidy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tidy(item) for item in value]
    return value
