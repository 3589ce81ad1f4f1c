"""Each number of detection is held by a capture or a test: see constants.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_constant_of_detection_is_held_by_nobody() -> None:
    """A number that may be doubled and halved without its holder noticing is named here, and so is one without any."""
    done = subprocess.run(
        [sys.executable, str(HERE / "constants.py")],
        cwd=HERE.parents[1], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1180,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
