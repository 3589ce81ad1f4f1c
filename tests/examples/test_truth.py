"""The measure itself: if `compare` were wrong, every proof that leans on it would be."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SECOND_NS = 1_000_000_000


@pytest.fixture(scope="module")
def truth() -> ModuleType:
    """Return examples/truth.py, which is no package."""
    path = Path(__file__).resolve().parents[2] / "examples" / "truth.py"
    spec = importlib.util.spec_from_file_location("truth", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault("truth", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def event(truth: ModuleType, start: float, end: float, kind: str = "save", size: int = 1000) -> object:
    """Return an event of the log."""
    return truth.Event(kind, 1, int(start * SECOND_NS), int(end * SECOND_NS), size, "/a/ckpt_1.npz", "npz")


def seen(start: float, end: float, kind: str = "save", size: int = 1000) -> dict[str, object]:
    """Return a checkpoint as ckptprof reports it."""
    edges = {"start_ns": int(start * SECOND_NS), "end_ns": int(end * SECOND_NS)}
    return {"kind": kind, **edges, "bytes": size, "pattern": {"class": "sequential-large"}}


def verdicts(comparison: Any) -> list[str]:
    """Return the verdicts in the order of time."""
    return [row.verdict for row in comparison.rows]


def test_an_event_seen_at_its_time_is_found_with_its_errors(truth: ModuleType) -> None:
    """Errors are signed: positive is later, or larger, than the log."""
    comparison = truth.compare([event(truth, 10, 12)], [seen(10.1, 11.8, size=1010)])

    (row,) = comparison.rows
    assert row.verdict == "found"
    assert (row.start_error_ms, row.end_error_ms, row.bytes_error_percent) == (100.0, -200.0, 1.0)
    assert comparison.median_edge_error_ms == 150.0
    assert comparison.faithful


def test_a_split_save_is_one_found_and_one_invented(truth: ModuleType) -> None:
    """Matching is one to one, and the larger half wins."""
    comparison = truth.compare([event(truth, 10, 14)], [seen(10, 11), seen(11.5, 14)])

    assert verdicts(comparison) == ["found", "invented"]
    assert not comparison.faithful


def test_two_saves_seen_as_one_are_one_found_and_one_missed(truth: ModuleType) -> None:
    """A merged burst does not count for both."""
    comparison = truth.compare([event(truth, 10, 12), event(truth, 13, 14)], [seen(10, 14)])

    assert verdicts(comparison) == ["found", "missed"]


def test_kinds_do_not_match_each_other(truth: ModuleType) -> None:
    """A restore that is reported as a save is missed and invented."""
    comparison = truth.compare([event(truth, 10, 12, kind="restore")], [seen(10, 12)])

    assert sorted(verdicts(comparison)) == ["invented", "missed"]


@pytest.mark.parametrize(("gap_seconds", "verdict"), [(0.4, ["found"]), (0.6, ["missed", "invented"])])
def test_a_near_miss_in_time_counts_only_so_far(truth: ModuleType, gap_seconds: float, verdict: list[str]) -> None:
    """Events that do not touch match within half a second."""
    comparison = truth.compare([event(truth, 10, 11)], [seen(11 + gap_seconds, 12)])

    assert verdict == verdicts(comparison)


def test_nothing_against_nothing_is_faithful(truth: ModuleType) -> None:
    """An empty log and an empty report agree, and have no medians."""
    comparison = truth.compare([], [])

    assert comparison.faithful
    assert (comparison.median_edge_error_ms, comparison.worst_bytes_error_percent) == (None, None)


def test_the_table_names_what_was_missed_and_invented(truth: ModuleType) -> None:
    """Every row is in it, and the sum of each verdict."""
    comparison = truth.compare([event(truth, 10, 12), event(truth, 20, 21)], [seen(10, 12), seen(30, 31)])

    text = truth.table(comparison)

    assert "1 found, 1 missed, 1 invented" in text
    assert sum(text.count(verdict) for verdict in ("  found", "  missed", "  invented")) == 3


def test_a_log_reads_back_what_was_timed(truth: ModuleType, tmp_path: Path) -> None:
    """The size is that of all files, and the times enclose the block."""
    directory, log = tmp_path / "ckpt", tmp_path / "truth.jsonl"
    writer = truth.TruthLog(log)
    with writer.event("save", step=3, path=directory, format_="npy"):
        directory.mkdir()
        (directory / "a").write_bytes(bytes(10))
        (directory / "b").write_bytes(bytes(5))

    (logged,) = truth.read_log(log)

    assert ("save", 3, 15, str(directory)) == (logged.kind, logged.step, logged.bytes, logged.path)
    assert logged.start_ns < logged.end_ns
