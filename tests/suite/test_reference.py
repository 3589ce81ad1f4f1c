"""Each name that a user may meet stands in one row of one page; a new one without its row is found here.

Options and commands: the manual page, which is made of them (tests/cli/test_cli_manual.py); metrics
(tests/export/test_metrics.py), alerts (tests/dashboards), causes (tests/diagnose/test_remedies.py) and frameworks
(tests/frameworks/test_table.py) have tests of their own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckptprof import errors
from ckptprof.cli.shared.agent_settings import TYPES
from ckptprof.verdicts import Limit

ROOT = Path(__file__).resolve().parents[2]
CODES = {0, 4, 7, 8} | {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}
VARIABLE = re.compile(r"\bCKPTPROF_[A-Z_]+\b")
# Of tests, of building a wheel and of shells; SECURITY.md has the one of libbpf
NO_USERS = {"CKPTPROF_UPDATE_GOLDEN", "CKPTPROF_BUNDLE_LIBBPF", "CKPTPROF_COMPLETE", "CKPTPROF_LIBBPF"}


def rows(page: str, heading: str) -> list[str]:
    """Return the first cells of the tables of one section, without code marks."""
    section = (ROOT / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name.strip("` ") for cell in cells for name in cell.split(",")]


@pytest.mark.parametrize(
    ("names", "page", "heading"),
    [
        (sorted(TYPES), "docs/deployment.md", "Settings and retention"),
        (
            sorted("disk" if limit is Limit.DEVICE else limit.value for limit in Limit),
            "docs/diagnosis.md",
            "The limits",
        ),
    ],
    ids=["settings", "limits"],
)
def test_each_has_one_row(names: list[str], page: str, heading: str) -> None:
    """And no row is of something that there is not."""
    assert sorted(rows(page, heading)) == names


def test_the_manual_has_each_exit_code_and_variable() -> None:
    """All codes in one sentence, each variable with a paragraph of its own."""
    manual = (ROOT / "docs/ckptprof.1").read_text(encoding="utf-8")
    codes = manual.partition(".SH EXIT STATUS\n")[2].partition("\n.SH")[0].partition(".")[0]
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "agent").rglob("*.py")]

    assert {int(code) for code in re.findall(r"\b(\d) ", codes)} == CODES
    assert set(re.findall(r"^\.B (CKPTPROF_\w+)", manual, re.MULTILINE)) == (
        {name for text in sources for name in VARIABLE.findall(text)} - NO_USERS
    )
