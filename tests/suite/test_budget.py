"""The budget of lines: `make lint` fails with one line too many, and `make budget` only lowers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("budget.py")
ROOT = SCRIPT.parents[2]
TABLE = '[tool.ckptprof.lines] # why\n"agent" = 5\n"agent/room" = 2\n"tests" = 9\n\n[tool.other]\n"agent" = 1\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Give a repository of 5 + 2 + 3 lines that count, one file of which nobody has added."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name, lines in {
        "agent/a.py": 4,
        "agent/b.sql": 1,
        "agent/c.md": 99,
        "agent/room/d.js": 2,
        "tests/e.py": 3,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n" * lines)
    (tmp_path / "pyproject.toml").write_text(TABLE)
    (tmp_path / ".gitignore").write_text("made.py\n")
    (tmp_path / "agent/made.py").write_text("x\n" * 99)
    subprocess.run(["git", "-C", str(tmp_path), "add", "agent/a.py", "tests"], check=True)
    return tmp_path


def budget(tree: Path, *options: str) -> tuple[int, str]:
    """Return the exit code and what is printed."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options, str(tree)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_one_line_too_many_is_refused(tree: Path) -> None:
    """By the package, its figure and what to do; as many as the figure are well, and what is left is named."""
    enough = budget(tree)
    with (tree / "agent/room/d.js").open("a") as stream:
        stream.write("x\n")
    code, text = budget(tree)

    assert enough == (0, "7 lines of product, 3 of others; below the figures, which `make budget` lowers: tests 6\n")
    assert code == 1
    assert text.startswith(
        "agent/room: 3 lines, 1 over its figure of 2 in pyproject.toml: remove as many there, or raise"
    )


def test_figures_are_lowered_and_never_raised(tree: Path) -> None:
    """To what is reached, in their table alone."""
    (tree / "agent/more.css").write_text("x\n")
    code, _ = budget(tree, "--lower")

    assert code == 1
    assert (tree / "pyproject.toml").read_text() == TABLE.replace('"tests" = 9', '"tests" = 3')


def test_a_tree_without_figures_fails(tree: Path) -> None:
    """A table that was renamed or removed allows nothing."""
    (tree / "pyproject.toml").write_text(TABLE.replace("ckptprof.lines", "ckptprof.other"))

    assert budget(tree)[0] == 1


def test_lint_holds_the_budget() -> None:
    """As CI runs it; each root that counts is in the table, so that a new package is nobody's."""
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    figures = (ROOT / "pyproject.toml").read_text().partition("[tool.ckptprof.lines]")[2]

    assert lint is not None
    assert "tests/suite/budget.py" in lint[1]
    assert all(
        f'"{root}" = ' in figures for root in ("agent", "collectors", "dashboards", "deploy", "tests", "benchmarks")
    )
