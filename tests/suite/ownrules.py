"""The suite's own rules beside other tests: its conftest, and what that imports."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def copy_rules(directory: Path) -> None:
    """Put them into a folder, which is to be the working directory of `python -m pytest`."""
    (directory / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (directory / "tests").mkdir()
    (directory / "tests/machine.py").write_text((TESTS / "machine.py").read_text())
