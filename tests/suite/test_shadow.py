"""The summary of `make shadow`: what differs between two trees, by column."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

from tests.recording import shadow
from tests.recording.shadow import ROOT, columns, summary


def save(start: int, **more: Any) -> dict[str, Any]:
    """Return what is told of a checkpoint."""
    told = {"kind": "save", "path": f"/c/{start}", "start_ns": start, "end_ns": start + 5, "bytes": 9, "mode": "sync"}
    return {**told, "pattern": {"class": "mixed"}, "verdict": {"limit": "device", "cause": "x"}, **more}


def test_each_column_counts_the_checkpoints_in_which_it_differs() -> None:
    """Whatever else differs in them; what has no column counts where nothing else does."""
    old = [save(10), save(20), save(30), save(40)]
    new = [
        save(10, pattern={"class": "random"}, confidence=1),
        save(20, pattern={"class": "random"}, verdict={"limit": "none", "cause": "x"}, end_ns=26),
        save(30, files=2),
        save(40),
    ]

    assert columns(old, new) == {"class": 2, "limit": 1, "edges": 1, "other": 1, "event": 0}


def test_a_checkpoint_that_one_tree_alone_tells_is_an_event() -> None:
    """On either side; one of another kind at the same time is the same."""
    old = [save(10), save(20, kind="restore"), save(30)]
    new = [save(20), save(30), save(50), save(70)]

    assert columns(old, new) == {"event": 3, "kind": 1}


def test_nothing_is_said_too() -> None:
    """0 limits is what one wants to read."""
    said = summary(Counter({"class": 4}))

    assert said == "0 event, 0 kind, 0 edges, 4 class, 0 limit, 0 cause, 0 mode, 0 stall, 0 bytes, 0 other"


def test_the_command_compares_two_folders() -> None:
    """Of one capture, here."""
    command = [sys.executable, shadow.__file__, str(ROOT), str(ROOT), "--only", "cp.trace"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == f"0 of 1 captures differ between {ROOT} and {ROOT}\n"
