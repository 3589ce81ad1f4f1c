"""The JSON documents of `--json`; schema/ holds their JSON Schemas, and tests hold the one against the other."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ckptprof.model import Checkpoint, Report
from ckptprof.report import answer
from ckptprof.report.clean import encodable
from ckptprof.report.summary import ordered

SCHEMA_VERSION = 1
DETAIL = ("streams", "progress_left_out", "timeline", "devices", "measures")  # in `show --json` only
# May be raw in JSON but not on a terminal: DEL, C1, invisible formats, line ends of Unicode. JSON escapes C0 itself.
_UNSAFE = re.compile(
    "[\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def report_document(report: Report) -> dict[str, Any]:
    """Return the document of `report --json` and `list --json`, checkpoints in the order of their start."""
    return {
        "schema_version": SCHEMA_VERSION,
        "host": report.host,
        "watched": msgspec.to_builtins(report.watched),
        "copies_left_out": report.copies_left_out,
        "answer": msgspec.to_builtins(answer.headline(report)),
        "jobs": msgspec.to_builtins(answer.costs(report)),
        "checkpoints": [_summary(checkpoint) for checkpoint in ordered(report.checkpoints)],
    }


def checkpoint_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the document of `show --json`: one checkpoint with its streams, timeline, devices and measures."""
    body = _summary(checkpoint)
    body["streams"] = msgspec.to_builtins(checkpoint.streams)
    body["progress_left_out"] = checkpoint.progress_left_out
    body["timeline"] = [{"start_ns": p.start_ns, "end_ns": p.end_ns, "bytes": p.bytes} for p in checkpoint.timeline]
    body["devices"] = msgspec.to_builtins(checkpoint.devices)
    body["measures"] = msgspec.to_builtins(checkpoint.measures)
    return {"schema_version": SCHEMA_VERSION, "checkpoint": body}


def dump(document: dict[str, Any]) -> str:
    """Return the document as JSON text that ends in a newline: readable names, nothing that a terminal would obey.

    Numbers that are none (NaN, infinity) become null, lone surrogates the text of their escape.
    """
    try:
        packed = msgspec.json.encode(document)
    except UnicodeEncodeError:  # a surrogate somewhere
        packed = msgspec.json.encode(_without_surrogates(document))
    return _UNSAFE.sub(_escape, msgspec.json.format(packed, indent=2).decode()) + "\n"


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _summary(checkpoint: Checkpoint) -> dict[str, Any]:
    lean = msgspec.structs.replace(checkpoint, streams=(), timeline=(), devices=(), measures=None)
    body: dict[str, Any] = msgspec.to_builtins(lean)
    for name in (*DETAIL, "revision"):
        del body[name]
    body["blocked"] = [{"start_ns": one.start_ns, "end_ns": one.end_ns} for one in checkpoint.blocked]
    body["at_risk_ns"] = checkpoint.at_risk_ns
    body["durable_is_most"] = checkpoint.durable_is_most
    return body


def _without_surrogates(value: object) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(str(key)): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value
