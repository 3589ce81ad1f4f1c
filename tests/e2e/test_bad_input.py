"""Jobs that save in ways which make it hard to see: one event each all the same, or what was out of sight is said."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from everyday.rounds import Office
from everyday.task import PROGRAMS

pytestmark = [
    pytest.mark.root,
    pytest.mark.bpf,
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]

LEVELS = ("trace", "poll")
SETTLE_SECONDS = 14
MOST_MEMORY_BYTES = 400 << 20


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Callable[..., dict[str, list[dict[str, Any]]]]]:
    """Return what runs one bad job under an agent of each level and returns what each reported of it."""
    office = Office(tmp_path, LEVELS)

    def run(what: str, **settings: str) -> dict[str, list[dict[str, Any]]]:
        command = [sys.executable, str(PROGRAMS / "badjobs.py"), what, str(tmp_path / "job"), str(tmp_path / "truth")]
        with office.watched():
            subprocess.run(
                command, check=False, stdout=subprocess.DEVNULL, env={**office.recorder("poll").environment, **settings}
            )
            time.sleep(SETTLE_SECONDS)
        assert max(office.memory_bytes.values()) < MOST_MEMORY_BYTES
        return {
            level: [
                finding.checkpoint
                for finding in office.findings(level)
                if Path(finding.checkpoint["path"] or "/").is_relative_to(tmp_path)
            ]
            for level in LEVELS
        }

    yield run
    for level in LEVELS:
        office.recorder(level).close()


@pytest.mark.parametrize("level", LEVELS)
def test_a_writer_that_dies_leaves_a_save_that_is_incomplete(
    seen: Callable[..., dict[str, list[dict[str, Any]]]], level: str
) -> None:
    """The save before it is whole, and is told so."""
    found = sorted(seen("dies")[level], key=lambda one: int(one["start_ns"]))

    assert [(one["kind"], one["step"], one["status"]) for one in found] == [
        ("save", 1, "complete"),
        ("save", 2, "incomplete"),
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_a_rank_that_comes_late_is_of_the_same_save(
    seen: Callable[..., dict[str, list[dict[str, Any]]]], level: str
) -> None:
    """Three seconds after the first one ended."""
    found = seen("late-rank")[level]

    assert [(one["kind"], one["step"], one["ranks"]) for one in found] == [("save", 300, 2)]
    assert found[0]["bytes"] == pytest.approx(160 << 20, rel=0.02)


def test_thousands_of_writers_that_end_at_once_are_one_save(
    seen: Callable[..., dict[str, list[dict[str, Any]]]], record_property: Callable[[str, object], None]
) -> None:
    """At trace level all count, or it is said what did not; polling may see few of them, and never two saves."""
    found = seen("short-lived-writers", BAD_WRITERS="2000")

    record_property("figure", f"2000 writers: files {[(level, [o['files'] for o in f]) for level, f in found.items()]}")
    (traced,) = found["trace"]
    assert (traced["kind"], traced["step"]) == ("save", 100)
    assert traced["files"] >= 1900 or traced["blind"]
    assert len(found["poll"]) <= 1


def test_a_hundred_thousand_files_are_one_save(
    seen: Callable[..., dict[str, list[dict[str, Any]]]], record_property: Callable[[str, object], None]
) -> None:
    """Within bounded memory; what was only counted is said."""
    found = seen("many-files", BAD_FILES="100000")

    record_property("figure", f"100000 files: files {[(level, [o['files'] for o in f]) for level, f in found.items()]}")
    (traced,) = found["trace"]
    assert (traced["kind"], traced["step"]) == ("save", 200)
    assert traced["files"] >= 99_000 or traced["blind"]
    assert len(found["poll"]) <= 1
