"""Plain English is held by `make lint`: counts may only fall, and some phrases are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("english.py")
MAXIMA = (
    "[tool.ckptprof.english] # why\n"
    '"tell" = 3\n"look" = 1\n"what it tells" = 1\n"Return whether" = 1\n"class names twice" = 1\n'
)
MODULE = '''"""Holds what it tells."""
class Look:
    """Return
    whether."""
    def tell(told): return "%s"
'''


def english(root: Path, phrase: str = "a whole sentence") -> tuple[int, str]:
    """Return the exit code and what is printed for two modules with the same class."""
    for name in ("agent/a.py", "collectors/b.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / "agent/a.py").write_text(MODULE % phrase)
    (root / "collectors/b.py").write_text("class Look:\n    ...\n")
    done = subprocess.run([sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_one_word_too_many_is_refused(tmp_path: Path) -> None:
    """In prose and in names, and each maximum for itself."""
    (tmp_path / "pyproject.toml").write_text(MAXIMA.replace('"look" = 1', '"look" = 2'))
    enough = english(tmp_path)
    (tmp_path / "pyproject.toml").write_text(MAXIMA)
    code, text = english(tmp_path)

    assert enough == (
        0,
        "tell 3 of 3; look 2 of 2; what it tells 1 of 1; Return whether 1 of 1; class names twice 1 of 1\n",
    )
    assert (code, text.startswith("look: 2, more than the 1 of [tool.ckptprof.english]")) == (1, True)


@pytest.mark.parametrize("phrase", ["out of sight", "in the mean"])
def test_a_phrase_is_refused_where_users_read_it(tmp_path: Path, phrase: str) -> None:
    """In a text that is printed and in a page; the line, or the page, is named."""
    (tmp_path / "pyproject.toml").write_text(MAXIMA.replace('"look" = 1', '"look" = 2'))
    code, text = english(tmp_path, phrase)
    english(tmp_path)
    (tmp_path / "README.md").write_text(f"Much is {phrase.replace(' ', chr(10), 1)}.\n")
    of_page = english(tmp_path)

    assert (code, f"agent/a.py:5: {phrase}" in text) == (1, True)
    assert (of_page[0], f"README.md: {phrase}" in of_page[1]) == (1, True)


def test_lint_holds_it() -> None:
    """Each change."""
    makefile = (SCRIPT.parents[2] / "Makefile").read_text()

    assert "tests/suite/english.py" in makefile.split("\nlint:")[1].split("\n\n")[0]
