"""What a training script did to its checkpoints by its own clock, and how that compares with what ckptprof saw.

The log is JSON lines; one line is one save or restore, timed around the framework's own call. `compare` is pure: the
demo and the tests hold a report to the same measure with it.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NEARBY_NS = 500_000_000  # an event further than this from every event of the log was invented


@dataclass(frozen=True)
class Event:
    """One save or restore as the training script timed it; epoch nanoseconds around the framework's call."""

    kind: str  # save | restore
    step: int
    start_ns: int
    end_ns: int
    bytes: int  # sum of the sizes of its files
    path: str
    format: str
    framework: str | None = None  # the name ckptprof gives it; None: the job does not say
    ranks: int | None = None
    mode: str | None = None  # sync | async
    stall_ns: int | None = None  # how long an asynchronous save blocked the loop
    status: str = "complete"  # what is logged has come to its end


class TruthLog:
    """Appends events to a file as JSON lines, or only times them when there is no file."""

    def __init__(self, path: Path | None) -> None:
        """Remember where to write; nothing is opened yet."""
        self._path = path

    @contextlib.contextmanager
    def event(self, kind: str, *, step: int, path: Path, format_: str) -> Iterator[None]:
        """Time the block, then log it; the log itself is written outside of the timed part."""
        start_ns = time.time_ns()
        yield
        end_ns = time.time_ns()
        size = size_of(path)
        self.add(Event(kind, step, start_ns, end_ns, size, str(path), format_))

    def add(self, event: Event) -> None:
        """Print and log an event that was timed elsewhere."""
        seconds, name = (event.end_ns - event.start_ns) / 1e9, Path(event.path).name
        print(
            f"step {event.step}: {event.kind} of {event.bytes / 1e6:.0f} MB took {seconds:.2f} s ({name})", flush=True
        )
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(event)) + "\n")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory."""
    files = [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]
    return sum(entry.stat().st_size for entry in files)


def read_log(path: Path) -> list[Event]:
    """Return the events of a log in the order of their start; raises OSError, ValueError."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sorted((Event(**json.loads(line)) for line in lines), key=lambda event: event.start_ns)


@dataclass(frozen=True)
class Row:
    """One event of the log, or of ckptprof, or both where they are the same."""

    truth: Event | None
    seen: Mapping[str, Any] | None  # a checkpoint of `ckptprof report --json`

    @property
    def verdict(self) -> str:
        """Say found, missed or invented."""
        if self.truth is None:
            return "invented"
        return "missed" if self.seen is None else "found"

    @property
    def start_error_ms(self) -> float | None:
        """Return how much later than the log ckptprof puts the start."""
        return self._edge_error_ms("start_ns")

    @property
    def end_error_ms(self) -> float | None:
        """Return how much later than the log ckptprof puts the end."""
        return self._edge_error_ms("end_ns")

    @property
    def bytes_error_percent(self) -> float | None:
        """Return how many bytes too many ckptprof counts, in per cent of the files' size."""
        if self.truth is None or self.seen is None or not self.truth.bytes:
            return None
        return 100.0 * (int(self.seen["bytes"]) - self.truth.bytes) / self.truth.bytes

    @property
    def pattern_class(self) -> str | None:
        """Return the pattern class reported by ckptprof; None if not observed."""
        if self.seen is None:
            return None
        value = self.seen["pattern"]["class"]
        return None if value is None else str(value)

    def _edge_error_ms(self, edge: str) -> float | None:
        if self.truth is None or self.seen is None:
            return None
        return (int(self.seen[edge]) - int(getattr(self.truth, edge))) / 1e6


@dataclass(frozen=True)
class Comparison:
    """All rows in the order of their start."""

    rows: tuple[Row, ...]

    def of(self, verdict: str) -> list[Row]:
        """Return the rows that were found, missed or invented."""
        return [row for row in self.rows if row.verdict == verdict]

    @property
    def faithful(self) -> bool:
        """Tell whether every event was found and none invented."""
        return all(row.verdict == "found" for row in self.rows)

    @property
    def median_edge_error_ms(self) -> float | None:
        """Return the median of all starts' and ends' distances from the log, None if nothing was found."""
        edges = [edge for row in self.rows for edge in (row.start_error_ms, row.end_error_ms) if edge is not None]
        return statistics.median(abs(edge) for edge in edges) if edges else None

    @property
    def worst_bytes_error_percent(self) -> float | None:
        """Return the largest distance in bytes, None if nothing was found."""
        errors = [abs(row.bytes_error_percent) for row in self.rows if row.bytes_error_percent is not None]
        return max(errors) if errors else None


def compare(truth: Iterable[Event], checkpoints: Iterable[Mapping[str, Any]]) -> Comparison:
    """Match events of one kind that lie at the same time, one to one, the largest overlap first.

    Two events that do not touch still match when less than NEARBY_NS lies between them: a restore out of the page
    cache takes less time than one poll.
    """
    events, seen = list(truth), list(checkpoints)
    candidates = sorted(
        (
            (_overlap_ns(event, checkpoint), event_index, seen_index)
            for event_index, event in enumerate(events)
            for seen_index, checkpoint in enumerate(seen)
            if event.kind == checkpoint["kind"] and _overlap_ns(event, checkpoint) > -NEARBY_NS
        ),
        reverse=True,
    )
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for _, event_index, seen_index in candidates:
        if event_index not in partner and seen_index not in taken:
            partner[event_index] = seen_index
            taken.add(seen_index)
    rows = [Row(event, seen[partner[i]] if i in partner else None) for i, event in enumerate(events)]
    rows += [Row(None, checkpoint) for i, checkpoint in enumerate(seen) if i not in taken]
    return Comparison(tuple(sorted(rows, key=_start_ns)))


def _overlap_ns(event: Event, checkpoint: Mapping[str, Any]) -> int:
    """Return the time both share, negative: the time between them."""
    return min(event.end_ns, int(checkpoint["end_ns"])) - max(event.start_ns, int(checkpoint["start_ns"]))


def _start_ns(row: Row) -> int:
    return row.truth.start_ns if row.truth else int(row.seen["start_ns"]) if row.seen else 0


def table(comparison: Comparison) -> str:
    """Return the comparison as text: the log's own numbers, and how far ckptprof is from them."""
    head = ("kind", "step", "took s", "MB", "ckptprof", "start ms", "end ms", "bytes %", "pattern", "file")
    lines = [head, *(_cells(row) for row in comparison.rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    found, missed, invented = (len(comparison.of(verdict)) for verdict in ("found", "missed", "invented"))
    edge = comparison.median_edge_error_ms
    worst = comparison.worst_bytes_error_percent
    summary = f"{found} found, {missed} missed, {invented} invented"
    if edge is not None and worst is not None:
        summary += f"; edges {edge:.0f} ms off in the median, bytes {worst:.2f} % off at worst"
    return "\n".join([text[0], "-" * len(text[0]), *text[1:], "", summary])


def _cells(row: Row) -> Sequence[str]:
    if row.truth is not None:
        kind, step = row.truth.kind, str(row.truth.step)
        seconds, size = (row.truth.end_ns - row.truth.start_ns) / 1e9, row.truth.bytes
    else:
        seen = row.seen or {}
        kind, step = str(seen.get("kind")), "-"
        seconds, size = (int(seen["end_ns"]) - int(seen["start_ns"])) / 1e9, int(seen["bytes"])
    errors = (row.start_error_ms, row.end_error_ms)
    edges = ["-" if error is None else f"{error:+.0f}" for error in errors]
    percent = "-" if row.bytes_error_percent is None else f"{row.bytes_error_percent:+.2f}"
    pattern = (row.pattern_class or "not observed") if row.seen is not None else "-"
    path = row.truth.path if row.truth is not None else str((row.seen or {}).get("path"))
    name = ascii(Path(path).name)[1:-1]  # a name may hold escape codes
    return kind, step, f"{seconds:.2f}", f"{size / 1e6:.1f}", row.verdict, *edges, percent, pattern, name
