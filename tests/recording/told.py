"""What is told of a recording, as text: what golden files hold, and what `make shadow` compares between two trees.

    PYTHONPATH=TREE/agent:TREE/collectors python tests/recording/told.py TREE NAME...

prints a line of JSON for each capture: its name, the golden text, and everything else that is told of it. Of the tree
it needs only that `ckptprof/cli/replay.py` imports `replay` from somewhere, so modules may move between two trees.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
SUFFIX = ".ckptrec.gz"
_REASONS = re.compile(r": (?=[+-]\d+\.\d\d |no evidence)")
_FACTS = ("framework", "step", "status", "mode", "stall_ns")
_SIZES = ("bytes", "written_bytes", "unique_bytes", "storage_bytes", "files", "ranks", "cache", "level")
_RUN_DEPENDENT = ("id", "uid")


def captures() -> list[str]:
    """Return the names of all captures."""
    return sorted(path.name.removesuffix(SUFFIX) for path in STREAMS.glob(f"*{SUFFIX}"))


def replay_of(tree: Path) -> Callable[[Path, None], Any]:
    """Return the function behind `ckptprof replay`, wherever the tree keeps it."""
    source = (tree / "agent" / "ckptprof" / "cli" / "replay.py").read_text()
    found = re.search(r"from (ckptprof\.[\w.]+) import replay\b", source)
    assert found is not None, f"{tree}: cli/replay.py imports no `replay`"
    function: Callable[[Path, None], Any] = importlib.import_module(found[1]).replay
    return function


def told(replayed: Any) -> str:
    """Return what is told of a recording in the lines that a golden file holds; times from the first frame."""
    report = replayed.report
    start_ns = report.watched.start_ns
    events = [line for one in ordered(report.checkpoints) for line in _event(msgspec.to_builtins(one), start_ns)]
    rejected = sorted(_REASONS.split(line, maxsplit=1)[0] for line in replayed.rejected)
    damage = [f"damage: {replayed.damage}"] if replayed.damage else []
    return "\n".join([*(events or ["nothing"]), *rejected, *damage]) + "\n"


def everything(replayed: Any) -> str:
    """Return all that is told, but for what differs from run to run, and the reasons why the rest is nothing.

    What was not seen is left out: a tree that does not know a measure yet, and one that knows it and saw nothing, tell
    the same. Numbers have nine digits: sums in another order differ in the last of sixteen.
    """
    checkpoints = [seen(msgspec.to_builtins(one)) for one in ordered(replayed.report.checkpoints)]
    for one in checkpoints:
        for name in _RUN_DEPENDENT:
            del one[name]
    return json.dumps({"checkpoints": checkpoints, "rejected": sorted(replayed.rejected)}, indent=1, sort_keys=True)


def seen(value: Any) -> Any:
    """Return a document without what is null in its objects; a null in a list keeps its place."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: seen(item) for key, item in value.items() if item is not None}
    return [seen(item) for item in value] if isinstance(value, (list, tuple)) else value


def ordered(checkpoints: Iterable[Any]) -> list[Any]:
    """Return events in the order of their start, and those that start at once in an order of their own."""
    return sorted(checkpoints, key=lambda one: (one.start_ns, one.end_ns, one.kind.value, one.path or ""))


def _event(one: dict[str, Any], start_ns: int) -> list[str]:
    pattern, verdict = one["pattern"], one["verdict"]
    shares = {key: value for key, value in pattern.items() if key not in ("class", "size_histogram")}
    times = {"start": one["start_ns"], "end": one["end_ns"], "durable": one["durable_ns"]}
    moments = {key.removesuffix("_ns"): value for key, value in one["moments"].items()}
    lines = [
        f"{one['kind']} {one['path']}",
        f"  {_pairs({name: one[name] for name in _FACTS})} confidence={one['confidence']:.2f}",
        f"  {_pairs({key: _since(value, start_ns) for key, value in {**times, **moments}.items()})}",
        f"  {_pairs({name: one[name] for name in _SIZES})}",
        f"  pattern {pattern['class']} {_pairs(shares)}",
        f"  metadata {_pairs(one['metadata'])}",
        *(f"  overhead {extra['reason']} bytes={extra['bytes']}" for extra in one["overheads"]),
        *(f"  writer {_writer(writer, start_ns)}" for writer in one["writers"]),
        *(f"  limitations: {text}" for text in one["limitations"]),
    ]
    if verdict is not None:
        accounts = "".join(f", {part['limit']}={part['seconds']:.3f}{_waits(part)}" for part in verdict["accounts"])
        facts = _pairs({name: verdict[name] for name in ("confidence", "seconds", "cause")})
        lines.append(f"  verdict {verdict['limit']} {facts}{accounts}")
    return lines


def _waits(part: dict[str, Any]) -> str:
    waits = part.get("runnable_seconds", 0.0) if part["limit"] != "cpu" else 0.0
    return f"/{waits:.3f}" if waits >= 5e-4 else ""


def _writer(writer: dict[str, Any], start_ns: int) -> str:
    times = {name: _since(writer[name], start_ns) for name in ("start_ns", "end_ns")}
    facts = {name: writer[name] for name in ("rank", "role", "bytes")}
    return f"{writer['comm']}-{writer['pid']} {_pairs(facts | times)}"


def _since(at_ns: int | None, start_ns: int) -> int | None:
    return None if at_ns is None else at_ns - start_ns


def _pairs(values: dict[str, Any]) -> str:
    """Return what is known of these, one `name=value` after the other."""
    return " ".join(f"{name}={_rounded(value)}" for name, value in values.items() if value is not None)


def _rounded(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


def main(tree: Path, names: list[str]) -> None:
    """Print what a tree tells of the captures."""
    replay = replay_of(tree)
    for name in names or captures():
        replayed = replay(STREAMS / f"{name}{SUFFIX}", None)
        print(json.dumps([name, told(replayed), everything(replayed)]), flush=True)  # noqa: T201 - a tool


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
