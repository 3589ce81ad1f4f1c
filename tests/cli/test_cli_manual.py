"""ckptprof(1): it is made of the commands, as they are today, and `man` takes it without a warning."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.cli.manual import page

from ckptprof import __version__
from ckptprof.cli.main import COMMANDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ckptprof.1"


def test_the_manual_page_is_that_of_the_commands() -> None:
    """CKPTPROF_UPDATE_GOLDEN=1 writes it."""
    made = page(__version__)
    if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
        PAGE.write_text(made)

    assert PAGE.read_text() == made


@pytest.mark.programs("man")
def test_man_shows_it_without_a_warning() -> None:
    """Every command is a heading, and no line of an example is lost."""
    shown = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(PAGE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stderr == ""
    text = subprocess.run(
        ["man", "-l", "-P", "cat", str(PAGE)], capture_output=True, text=True, check=True,
        env={**os.environ, "MANWIDTH": "200", "GROFF_NO_SGR": "1"},
    ).stdout  # fmt: skip
    for name in COMMANDS:
        assert f"\n   {name}\n" in text
    assert "ckptprof report --fail-on 'stall_p95>60s'" in text
