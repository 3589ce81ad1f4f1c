"""The output of `ckptprof doctor`: what works, suggestions, and fixes; in full a line for each check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from ckptprof.bounds import one_of
from ckptprof.report import document as documents
from ckptprof.report.clean import clean
from ckptprof.report.table import facts, paint, wrap

_STYLES = {"ok": "green", "note": "blue", "warn": "yellow", "fail": "red"}
_STATUS_CELLS = 6
_MIN_TEXT_CELLS = 30  # minimum cells for a text beside its check
_FIX = "fix: "
_REFERENCE = re.compile(r"^as `[a-z-]+` says: |, and with it what .*$")  # a remedy that another check has, too
_LONGEST = 200  # characters of a sentence in a group; --all has the rest


class Check(msgspec.Struct, frozen=True):
    """One check of this host."""

    id: str  # a short stable word
    status: Annotated[str, one_of("ok", "note", "warn", "fail")]
    # note: nothing that is needed is missing; warn: less is observed; fail: it does not work
    text: str  # what was found, one sentence
    fix: str | None = None  # the command or setting that changes it
    level: str | None = None  # trace | poll: at which the agent watches that it is about; None: of none, or not known


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of this host."""

    version: str  # of ckptprof
    host: str
    status: Annotated[str, one_of("ok", "degraded")]
    checks: tuple[Check, ...]


def degraded(checks: Sequence[Check], *, is_root: bool = True) -> bool:
    """Return True if a check failed, or warned as root: other users can `run` without what only root has."""
    return any(check.status == "fail" or (is_root and check.status == "warn") for check in checks)


def document(checks: Sequence[Check], *, version: str, host: str, is_root: bool = True) -> dict[str, Any]:
    """Return the document of `doctor --json`."""
    status = "degraded" if degraded(checks, is_root=is_root) else "ok"
    return documents.to_document(DoctorDocument(version=version, host=host, status=status, checks=tuple(checks)))


def groups(checks: Sequence[Check], *, width: int, colour: bool, is_root: bool) -> str:
    """Return what works, suggestions, and each fix once, as text that ends in a newline."""
    works = [one.id for one in checks if one.status == "ok"]
    noted = [one.id for one in checks if one.status == "note" and one.fix is None]
    mended: dict[str, list[Check]] = {}  # each remedy with the checks that it mends, what does not work first
    for one in sorted(checks, key=lambda one: ("fail", "warn", "note", "ok").index(one.status)):
        if one.status != "ok" and one.id not in noted:
            mended.setdefault(_REFERENCE.sub("", one.fix or ""), []).append(one)
    lines = [paint("Works", "bold green", colour=colour), *_indented(", ".join(works), width)]
    if noted:
        lines += _indented(f"Not applicable: {', '.join(noted)}", width)
    if mended:
        pairs = [(str(n), _suggestion(*several)) for n, several in enumerate(mended.values(), 1)]
        typed = [(str(n), clean(fix)) for n, fix in enumerate(mended, 1) if fix]
        lines += ["", paint("Suggestions", "bold yellow", colour=colour)]
        lines += facts(pairs, width, colour=colour, indent="  ")
        lines += ["", paint("How to fix", "bold cyan", colour=colour)] if typed else []
        lines += facts(typed, width, colour=colour, indent="  ")
    return "\n".join(
        [
            *lines,
            "",
            *wrap(f"{_verdict(checks, is_root=is_root)} `ckptprof doctor --all` lists every check.", width),
            "",
        ]
    )


def _indented(text: str, width: int) -> list[str]:
    return [f"  {line}" for line in wrap(clean(text), width - 2)]


def _suggestion(first: Check, *others: Check) -> str:
    text = clean(first.text)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0]} ..."
    also = f" (also {', '.join(one.id for one in others)})" if others else ""
    mark = "failed: " if first.status == "fail" else ""
    return f"{first.id}: {mark}{text}{also}"


def render(checks: Sequence[Check], *, width: int, colour: bool) -> str:
    """Return the checks as text that ends in a newline, the conclusion last."""
    id_cells = max((len(check.id) for check in checks), default=0) + 2
    left = _STATUS_CELLS + id_cells
    is_side_by_side = width - left >= _MIN_TEXT_CELLS
    lines = []
    for check in checks:
        head = paint(f"{check.status:<{_STATUS_CELLS}}", _STYLES[check.status], colour=colour) + check.id
        indent = " " * (left if is_side_by_side else 2)
        texts = wrap(clean(check.text), width - len(indent))
        lines += [head + " " * (id_cells - len(check.id)) + texts.pop(0)] if is_side_by_side else [head]
        lines += [indent + line for line in texts]
        if check.fix is not None:
            first, *more = wrap(clean(check.fix), width - len(indent) - len(_FIX))
            lines.append(indent + paint(_FIX, "bold", colour=colour) + first)
            lines += [indent + " " * len(_FIX) + line for line in more]
    return "\n".join([*lines, "", *wrap(_verdict(checks, is_root=True), width), ""])


def _verdict(checks: Sequence[Check], *, is_root: bool) -> str:
    failed = [check.id for check in checks if check.status == "fail"]
    warned = [check.id for check in checks if check.status == "warn"]
    if not failed and not warned:
        return "Everything that ckptprof needs is available."
    if not failed and not is_root:
        return "`ckptprof run -- CMD` can record your own jobs."
    parts = [f"failed: {', '.join(failed)}"] * bool(failed) + [f"limited: {', '.join(warned)}"] * bool(warned)
    return f"Degraded; {'; '.join(parts)}."
