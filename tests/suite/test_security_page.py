"""docs/SECURITY.md promises nothing that no test holds."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_promise_names_a_test_that_is_there() -> None:
    """Each row of the table of promises has at least one, and each of them is defined where it is said to be."""
    page = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    table = page.partition("| against | promise | test |\n")[2].partition("\n\n")[0].splitlines()[1:]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row) for row in table]

    assert len(named) > 15
    for row, tests in zip(table, named, strict=True):
        assert tests, row
        for path, name in tests:
            assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)
