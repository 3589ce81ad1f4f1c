"""What is compared between two trees."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from told import seen  # noqa: E402 - found by the line above


def test_what_was_not_seen_is_no_difference() -> None:
    """A tree with a new measure that saw nothing tells what the one without it does; in a list null keeps its place."""
    before = {"seconds": 1.5, "threads": [{"pid": 1}], "pair": (None, 2)}
    after = {**before, "new": None, "threads": [{"pid": 1, "new": None}]}

    assert seen(before) == seen(after) == {"seconds": 1.5, "threads": [{"pid": 1}], "pair": [None, 2]}
    assert seen({**before, "new": 0}) != seen(before)
