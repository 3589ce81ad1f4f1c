"""The JSON documents of `--json`.

`cli/shared/schemas.py` generates their schemas from the structs: descriptions are the comments of fields and the
docstrings of structs.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ckptprof.bounds import Count
from ckptprof.encoding import all_encodable
from ckptprof.model import Checkpoint, Report, Watched
from ckptprof.report import answer
from ckptprof.report.live.state import State, Underway
from ckptprof.report.outliers import Outlier
from ckptprof.report.summary import ordered
from ckptprof.verdicts import Headline, JobCost

SCHEMA_VERSION = 1
DETAIL = ("streams", "progress_left_out", "timeline", "devices", "measures")  # in `show --json` only
DERIVED = ("medium", "risks", "at_risk_ns", "durable_is_most")  # properties of a checkpoint, added to its fields
OMITTED = ("revision",)
# May be raw in JSON but not on a terminal: DEL, C1, invisible formats, line ends of Unicode. JSON escapes C0 itself.
_UNSAFE = re.compile(
    "[\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


class ReportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints that match a query."""

    host: str | None
    watched: Watched
    copies_left_out: Count  # matching copies of checkpoint files that were not requested (--kind copy)
    hung: tuple[Underway, ...]  # saves that hang now, if a recorder is running
    answer: Headline | None  # None: nothing has a verdict
    outliers: tuple[Outlier, ...]  # the one first that exceeds its median by most seconds
    jobs: tuple[JobCost, ...]  # the dearest first
    checkpoints: tuple[Checkpoint, ...]  # in the order of their start


def to_document(document: msgspec.Struct) -> dict[str, Any]:
    """Convert a struct to a document."""
    return {"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(document)}


def report_document(report: Report, hung: tuple[Underway, ...] = ()) -> dict[str, Any]:
    """Return the document of `report --json` and `list --json`."""
    found = answer.conclude(report)
    document = ReportDocument(
        host=report.host,
        watched=report.watched,
        copies_left_out=report.copies_left_out,
        hung=hung,
        answer=found.headline,
        outliers=found.outliers,
        jobs=found.costs,
        checkpoints=(),
    )
    return {**to_document(document), "checkpoints": [summary(checkpoint) for checkpoint in ordered(report.checkpoints)]}


def checkpoint_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the document of `show --json`: a checkpoint with streams, timeline, devices and measures."""
    body = summary(checkpoint)
    body |= {name: msgspec.to_builtins(getattr(checkpoint, name)) for name in DETAIL}
    body["timeline"] = list(map(msgspec.structs.asdict, checkpoint.timeline))
    return {"schema_version": SCHEMA_VERSION, "checkpoint": body}


def state_document(state: State) -> dict[str, Any]:
    """Return the document of `live --json`."""
    return {**to_document(msgspec.structs.replace(state, last=())), "last": list(map(summary, state.last))}


def dump(document: dict[str, Any]) -> str:
    """Return the document as JSON text that ends in a newline, without characters that control a terminal.

    NaN and infinity become null, lone surrogates the text of their escape.
    """
    try:
        packed = msgspec.json.encode(document)
    except UnicodeEncodeError:  # a surrogate somewhere
        packed = msgspec.json.encode(all_encodable(document))
    return _UNSAFE.sub(_escape, msgspec.json.format(packed, indent=2).decode()) + "\n"


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def summary(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of a checkpoint that all documents contain."""
    lean = msgspec.structs.replace(checkpoint, streams=(), timeline=(), devices=(), measures=None)
    body: dict[str, Any] = msgspec.to_builtins(lean)
    for name in (*DETAIL, *OMITTED):
        del body[name]
    body["blocked"] = list(map(msgspec.structs.asdict, checkpoint.blocked))
    body |= {name: getattr(checkpoint, name) for name in DERIVED}
    body["risks"] = list(map(msgspec.to_builtins, checkpoint.risks))
    return body
