"""What `ckptprof doctor` says: one line for each check, and under it the command that fixes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ckptprof.report.clean import clean
from ckptprof.report.table import paint, wrap

SCHEMA_VERSION = 1
_STYLES = {"ok": "green", "note": "blue", "warn": "yellow", "fail": "red"}
_STATUS_CELLS = 6
_BESIDE = 30  # cells that a text beside its check needs
_FIX = "fix: "


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at on this host."""

    id: str  # a short stable word
    status: str  # ok | note (nothing that this version needs is missing) | warn (less is seen) | fail (does not work)
    text: str  # what was found, one sentence
    fix: str | None = None  # the command or setting that changes it


def degraded(checks: Sequence[Check]) -> bool:
    """Return whether anything that ckptprof uses is missing."""
    return any(check.status in ("warn", "fail") for check in checks)


def document(checks: Sequence[Check], *, version: str, host: str) -> dict[str, Any]:
    """Return the document of `doctor --json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "version": version,
        "host": host,
        "status": "degraded" if degraded(checks) else "ok",
        "checks": msgspec.to_builtins(list(checks)),
    }


def render(checks: Sequence[Check], *, width: int, colour: bool) -> str:
    """Return the checks as text that ends in a newline, the verdict last."""
    id_cells = max((len(check.id) for check in checks), default=0) + 2
    left = _STATUS_CELLS + id_cells
    beside = width - left >= _BESIDE
    lines = []
    for check in checks:
        head = paint(f"{check.status:<{_STATUS_CELLS}}", _STYLES[check.status], colour=colour) + check.id
        indent = " " * (left if beside else 2)
        texts = wrap(clean(check.text), width - len(indent))
        lines += [head + " " * (id_cells - len(check.id)) + texts.pop(0)] if beside else [head]
        lines += [indent + line for line in texts]
        if check.fix is not None:
            first, *more = wrap(clean(check.fix), width - len(indent) - len(_FIX))
            lines.append(indent + paint(_FIX, "bold", colour=colour) + first)
            lines += [indent + " " * len(_FIX) + line for line in more]
    return "\n".join([*lines, "", *wrap(_verdict(checks), width), ""])


def _verdict(checks: Sequence[Check]) -> str:
    failed = [check.id for check in checks if check.status == "fail"]
    warned = [check.id for check in checks if check.status == "warn"]
    if not failed and not warned:
        return "All that this version of ckptprof uses is in sight."
    parts = [f"does not work: {', '.join(failed)}"] * bool(failed) + [f"limited: {', '.join(warned)}"] * bool(warned)
    return f"Degraded; {'; '.join(parts)}."
