"""Each number of the decision table is held by a capture or a test of detection: see weights.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# of tests/detect those that hold what no capture does: all of them take twice the time
HOLDERS = (
    "events/test_recognition.py", "events/test_copies.py", "transfers/test_traced_patterns.py",
    "events/test_rejections.py", "events/test_pass_through.py", "transfers/test_reconcile.py",
    "events/test_polled_staging.py", "events/test_received.py", "events/test_decisive_signals.py",
)  # fmt: skip


@pytest.mark.slow
def test_nothing_of_the_decision_table_is_held_by_nobody() -> None:
    """A weight, a need, a bound, a rule or a name in one, that may be doubled, halved and removed, is named here."""
    tests = [f"tests/detect/{name}" for name in HOLDERS]

    done = subprocess.run(
        [sys.executable, str(HERE / "weights.py"), *tests],
        cwd=HERE.parents[1], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[done.stdout.find("held by nobody:") :]
