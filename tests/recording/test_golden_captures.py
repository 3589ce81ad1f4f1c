"""What is told of each capture is what was looked at before; CKPTPROF_UPDATE_GOLDEN=1 writes down what is told now."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ckptprof.service.commands.replaying import replay

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from told import STREAMS, SUFFIX, captures, told  # noqa: E402 - found by the line above

GOLDEN = HERE.parent / "golden" / "captures"


@pytest.mark.parametrize("name", captures())
def test_the_same_is_told_as_before(name: str) -> None:
    """To the nanosecond: a replay is a function of the recording and the code."""
    golden = GOLDEN / f"{name}.txt"
    text = told(replay(STREAMS / f"{name}{SUFFIX}", None))
    if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")

    assert text == golden.read_text(encoding="utf-8")


def test_each_golden_text_is_of_a_capture() -> None:
    """One that is left of a capture long gone holds nothing."""
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == captures()
