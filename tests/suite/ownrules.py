"""The suite's own rules beside other tests: its conftest, and what that imports."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def copy_rules(directory: Path) -> None:
    """Put them into a folder, which is to be the working directory of `python -m pytest`."""
    (directory / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (directory / "tests").mkdir()
    for name in ("leftovers.py", "machine.py"):
        (directory / "tests" / name).write_text((TESTS / name).read_text())
