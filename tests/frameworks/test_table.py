"""The table of frameworks and what is written of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptprof.frameworks.knowledge import Framework
from ckptprof.frameworks.table import BY_NAME, FRAMEWORKS

REPOSITORY = Path(__file__).parents[2]
ROWS = {
    cells[0]: cells
    for line in (REPOSITORY / "docs/frameworks.md").read_text().splitlines()
    if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split(" | ")]) == 6
}


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_document_says_what_the_entry_says(framework: Framework) -> None:
    """Durability and asynchronous writers, row by row; a job that is said to prove it exists."""
    _, names, _, durability, asynchronous, proof = ROWS[framework.name]

    assert names
    assert durability == framework.durability.value
    assert asynchronous == (", ".join(kind.value for kind in framework.asynchronous) or "no")
    assert proof.startswith("stream")
    assert "`" not in proof or (REPOSITORY / proof.split("`")[1]).is_file()


def test_the_document_knows_no_other_framework() -> None:
    """A row without an entry would promise what is not there."""
    assert set(ROWS) - {"framework"} == set(BY_NAME)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_an_entry_can_be_found_by_something(framework: Framework) -> None:
    """By files of its own, or by the program that uses another's."""
    assert framework.files or (framework.programs is not None and framework.extends)
    assert set(framework.extends) <= set(BY_NAME)
    assert 0 < framework.weight <= 0.6


def test_what_is_more_particular_stands_first() -> None:
    """Of two frameworks that a name fits, the first in the table is taken."""
    layers = [framework.layer for framework in FRAMEWORKS]

    assert [layer >= 3 for layer in layers] == sorted((layer >= 3 for layer in layers), reverse=True)
    assert [layer == 1 for layer in layers] == sorted(layer == 1 for layer in layers)
