"""Python's collection of garbage in a process that stays: seldom, and never of what its start has made."""

from __future__ import annotations

import gc

_YOUNG = 10_000  # objects more than were given back: a save of thousands of files makes as many in a second, all in use


def collect_seldom() -> None:
    """Call it when all is imported and opened."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 10, 10)
