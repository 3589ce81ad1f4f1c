"""Holds what is told of a recording against its label: what the job itself logged, or what is known to be right."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "fixtures" / "streams" / "labels.json"
NEARBY_NS = 500_000_000
EDGE_NS = 250_000_000
BYTES_SHARE = 0.02
MOST_OF_TIMELINE = 1.2  # of the bytes
WORDS = ("step", "framework", "mode", "status", "cache")
TRACED_WORDS = ("ranks",)
BLOCKED_SHARES = {"trace": 0.15, "poll": 0.3}
LEAST_BLOCKED_SECONDS = 0.2  # an error of less is nobody's


def differences(label: Mapping[str, Any], seen: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each thing that is told otherwise; `seen` are saves and restores by their start."""
    left, lines = list(seen), []
    for event in sorted(label["truth"], key=lambda event: bool(event.get("optional"))):  # both answers are right
        one = next((one for one in left if _is_of(event, one)), None)
        if one is None:
            lines += [] if event.get("optional") else [f"missed: {_name(event)}"]
            continue
        left.remove(one)
        lines += [f"{_name(event)}: {text}" for text in _wrong(event, one, exact=label.get("exact", False))]
        limit = one["verdict"]["limit"] if one["verdict"] else None
        if limit not in event.get("limits", (limit,)):
            lines.append(f"{_name(event)}: limited by {limit} instead of {' or '.join(event['limits'])}")
    return lines + [f"invented: {_name(one)}" for one in left]


def read() -> dict[str, dict[str, Any]]:
    """Return the label of each capture."""
    labels: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return labels


def add(labels: Mapping[str, Mapping[str, Any]]) -> None:
    """Add labels, or replace them; another worker may be doing the same."""
    with FILE.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = json.dumps(json.load(file) | labels, indent=1, sort_keys=True) + "\n"
        file.seek(0)
        file.truncate()
        file.write(text)


def _is_of(event: Mapping[str, Any], one: Mapping[str, Any]) -> bool:
    if event["kind"] != one["kind"]:
        return False
    if "start_ns" in event:
        return bool(one["start_ns"] <= event["end_ns"] + NEARBY_NS and event["start_ns"] <= one["end_ns"] + NEARBY_NS)
    return event.get("step") in (None, one["step"])


def _wrong(event: Mapping[str, Any], one: Mapping[str, Any], *, exact: bool) -> list[str]:
    words = WORDS + (TRACED_WORDS if one["level"] == "trace" else ())
    lines = [
        f"{word} {one[word]} instead of {event[word]}"
        for word in words
        if event.get(word) is not None and one[word] != event[word]
    ]
    path = Path(one["path"] or "/")
    if "path" in event and Path(event["path"]) not in (path, *([path.parent] if one["files"] == 1 else [])):
        lines.append(f"path {one['path']}")
    if event.get("bytes") and abs(one["bytes"] / event["bytes"] - 1) > BYTES_SHARE:
        lines.append(f"{one['bytes']} bytes instead of {event['bytes']}")
    lines += _inexact(event, one) if exact else []
    held = event.get("blocked_seconds", 0.0)
    if held >= LEAST_BLOCKED_SECONDS:
        told = None if one["stall_ns"] is None else one["stall_ns"] / 1e9
        if told is None or abs(told - held) > BLOCKED_SHARES[one["level"]] * held:
            lines.append(f"blocked for {told if told is None else f'{told:.2f}'} s instead of {held:.2f} s")
    return lines


def _inexact(event: Mapping[str, Any], one: Mapping[str, Any]) -> list[str]:
    """Return what differs where the job logs the first and the last byte: edges, class, the sum of the timeline."""
    lines = [
        f"{edge} {(one[f'{edge}_ns'] - event[f'{edge}_ns']) / 1e9:+.2f} s"
        for edge in ("start", "end")
        if abs(one[f"{edge}_ns"] - event[f"{edge}_ns"]) > EDGE_NS
    ]
    if "class" in event and one["pattern"]["class"] != event["class"]:
        lines.append(f"{one['pattern']['class']} instead of {event['class']}")
    inside = all(one["start_ns"] <= a <= b <= one["end_ns"] + 1 for a, b, _ in one["timeline"])
    if not inside or sum(point[2] for point in one["timeline"]) > MOST_OF_TIMELINE * one["bytes"]:
        lines.append("a timeline that does not fit")
    return lines


def _name(event: Mapping[str, Any]) -> str:
    step = "" if event.get("step") is None else f" {event['step']}"
    return f"{event['kind']}{step}"
