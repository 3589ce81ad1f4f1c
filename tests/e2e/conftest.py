"""Makes the tests' own module `recorder` and the demo's `truth` importable: both are in no package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples")]

from recorder import Recorder  # noqa: E402 - found by the line above


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """Give a recorder in a directory of its own; no setting of the outside reaches it."""
    made = Recorder(tmp_path)
    for setting in ("CKPTPROF_DB", "CKPTPROF_LEVEL"):
        made.environment.pop(setting, None)
    yield made
    made.close()
