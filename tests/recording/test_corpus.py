"""Recorded jobs, replayed at the level they were seen at: every save and restore found, none invented, as logged."""

from __future__ import annotations

import json
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint, Kind, Status
from ckptprof.recording import read_file

HERE = Path(__file__).resolve().parent
STREAMS = HERE.parent / "fixtures" / "streams"
LABELS: dict[str, dict[str, Any]] = json.loads((STREAMS / "labels.json").read_text())
STRICT = {name: label for name, label in LABELS.items() if "events" in label}  # the others: test_golden_captures.py
TRAINING = sorted(name for name, label in STRICT.items() if label["events"])
OTHERS = sorted(name for name, label in STRICT.items() if not label["events"])
WHOLE = sorted(name for name in TRAINING if all("status" not in event for event in LABELS[name]["events"]))
MAX_BYTES = 10_000_000
MIN_CAPTURES = 150
EDGE_NS = 250_000_000


@lru_cache
def replayed(name: str) -> tuple[Checkpoint, ...]:
    """Return what is found in a recording, copies too, as it was last told, in order of time."""
    header, frames = read_file(STREAMS / f"{name}.ckptrec.gz")
    detector = Detector(header)
    found = [checkpoint for frame in frames for checkpoint in detector.feed(frame)]
    latest = {checkpoint.uid: checkpoint for checkpoint in [*found, *detector.finish()]}
    return tuple(sorted(latest.values(), key=lambda checkpoint: checkpoint.start_ns))


def seen(name: str) -> tuple[Checkpoint, ...]:
    """Return the saves and restores that are found in a recording."""
    return tuple(checkpoint for checkpoint in replayed(name) if checkpoint.kind is not Kind.COPY)


def pairs(name: str) -> list[tuple[dict[str, Any], Checkpoint]]:
    """Return the events of a job's own log with what was found, one for one."""
    return list(zip(LABELS[name]["events"], seen(name), strict=True))


@pytest.mark.parametrize("name", TRAINING)
def test_every_save_and_restore_is_found_and_none_invented(name: str) -> None:
    """By kind, path, step, framework and whether it came to its end, and at the level that it was recorded at."""
    expected = [
        (e["kind"], e["path"], e["step"], e["framework"], e.get("status", Status.COMPLETE.value))
        for e in LABELS[name]["events"]
    ]

    assert [(c.kind.value, c.path, c.step, c.framework, c.status.value) for c in seen(name)] == expected
    assert {c.level.value for c in seen(name)} == {LABELS[name].get("level", "poll")}


@pytest.mark.parametrize("name", WHOLE)
def test_bytes_are_right(name: str) -> None:
    """Within 2 % of the sizes of the files."""
    for event, checkpoint in pairs(name):
        assert checkpoint.bytes == pytest.approx(event["bytes"], rel=0.02)


@pytest.mark.parametrize("name", WHOLE)
def test_edges_are_right(name: str) -> None:
    """Within 250 ms of the framework's call, each of them; in the median it is some milliseconds."""
    errors = [
        abs(shown - told)
        for event, checkpoint in pairs(name)
        for shown, told in ((checkpoint.start_ns, event["start_ns"]), (checkpoint.end_ns, event["end_ns"]))
    ]

    assert max(errors) < EDGE_NS
    assert statistics.median(errors) < EDGE_NS / 10


@pytest.mark.parametrize("name", WHOLE)
def test_classes_are_right(name: str) -> None:
    """Sequential-large; of what came by page faults the order is not known, and that is said."""
    for event, checkpoint in pairs(name):
        shown = checkpoint.pattern.class_.value if checkpoint.pattern.class_ else None

        assert shown == event.get("class", shown)
        assert shown is not None or any("page faults" in text for text in checkpoint.blind)


@pytest.mark.parametrize("name", TRAINING)
def test_timelines_add_up_and_stay_within_the_edges(name: str) -> None:
    """No byte is in the timeline twice, and none outside of the checkpoint."""
    for _, checkpoint in pairs(name):
        points = checkpoint.timeline

        assert all(checkpoint.start_ns <= point.start_ns <= point.end_ns <= checkpoint.end_ns + 1 for point in points)
        assert sum(point.bytes for point in points) <= 1.2 * checkpoint.bytes


@pytest.mark.parametrize("name", OTHERS)
def test_copies_archives_logs_and_data_sets_are_no_checkpoints(name: str) -> None:
    """Although some of them bear a checkpoint's name and first bytes."""
    assert seen(name) == ()


def test_replaying_twice_gives_the_same() -> None:
    """To the uid."""
    first = replayed("torch-dcp")
    replayed.cache_clear()

    assert replayed("torch-dcp") == first


def test_the_corpus_is_small_and_says_where_it_comes_from() -> None:
    """Captures of real jobs, with kernel, date and command, and with nothing of the host in them."""
    files = sorted(STREAMS.glob("*.ckptrec.gz"))

    assert sorted(file.name.removesuffix(".ckptrec.gz") for file in files) == sorted(LABELS)
    assert len(files) >= MIN_CAPTURES
    assert sum(file.stat().st_size for file in files) < MAX_BYTES
    assert all(label["kernel"] and label["date"] and label["command"] for label in LABELS.values())
    assert {read_file(file)[0].host for file in files} == {"recorded"}
