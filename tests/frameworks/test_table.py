"""The table of frameworks and what is written of it; CKPTPROF_UPDATE_GOLDEN=1 writes the document's rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.detect.framework_streams import at
from tests.detect.stage import MIB

from ckptprof.frameworks.file_names import identify_framework, parse_name
from ckptprof.frameworks.framework_entry import Framework
from ckptprof.frameworks.framework_table import BY_NAME, FRAMEWORKS

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = REPOSITORY / "docs/frameworks.md"
RULE = "|---|---|---|---|---|---|\n"


def row(framework: Framework) -> str:
    """Return the line of the document that says what the entry says."""
    asynchronous = ", ".join(framework.asynchronous) or "no"
    proof = "; ".join(("stream", *(f"`{job}`" for job in framework.proven_by)))
    cells = (framework.name, framework.names, framework.completed_by, framework.durability, asynchronous, proof)
    return f"| {' | '.join(cells)} |\n"


def test_the_document_says_what_the_entries_say() -> None:
    """A row for each entry, in the order of the table, and no other."""
    text = DOCUMENT.read_text()
    before, after = text.index(RULE) + len(RULE), text.index("\n\n", text.index(RULE)) + 1
    rows = "".join(row(framework) for framework in FRAMEWORKS)

    if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
        DOCUMENT.write_text(text[:before] + rows + text[after:])
    else:
        assert text[before:after] == rows, "CKPTPROF_UPDATE_GOLDEN=1 pytest tests/frameworks/test_table.py writes them"


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_an_entry_shows_what_it_says(framework: Framework) -> None:
    """Names for the document, jobs that exist, and a save whose files it knows by their names and first bytes."""
    assert framework.names
    assert all((REPOSITORY / job).is_file() for job in framework.proven_by)
    assert framework.saves
    for save in framework.saves:
        files = [(f"/run/{at(file.path, 500)}", int(file.mib * MIB), file.magic) for file in save.files]
        assert identify_framework(files, [save.program]) == framework.name


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_names_that_are_not_to_last_are_told_from_final_ones(framework: Framework) -> None:
    """A file that is written beside its place has a temporary name, and none under its last one."""
    for file in (file for save in framework.saves for file in save.files):
        assert not parse_name(f"/run/{at(file.path, 500)}").temporary
        if file.temporary is not None and Path(file.temporary).parent == Path(file.path).parent:
            assert parse_name(f"/run/{at(file.temporary, 500)}").temporary


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
