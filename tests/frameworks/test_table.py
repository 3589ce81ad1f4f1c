"""The table of frameworks, its examples, and the document of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.detect.framework_streams import at
from tests.detect.stage import MIB
from tests.frameworks.example_table import EXAMPLES

from ckptprof.frameworks.file_names import identify_framework, parse_name
from ckptprof.frameworks.framework_entry import Framework
from ckptprof.frameworks.framework_table import BY_NAME, FRAMEWORKS

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = REPOSITORY / "docs/frameworks.md"
JOB = re.compile(r"`((?:examples|tests)/[^`]+)`")


def test_the_document_has_a_row_for_each_entry() -> None:
    """In the order of the table, and no other; the jobs that it names exist."""
    rows = [line.split(" | ") for line in DOCUMENT.read_text().splitlines() if line.count(" | ") == 5]

    assert [row[0].removeprefix("| ") for row in rows[1:]] == [framework.name for framework in FRAMEWORKS]
    assert all((REPOSITORY / job).is_file() for row in rows for job in JOB.findall(row[5]))


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_an_entry_knows_its_example(framework: Framework) -> None:
    """A save whose files it knows by their names and first bytes."""
    assert EXAMPLES[framework.name]
    for save in EXAMPLES[framework.name]:
        files = [(f"/run/{at(file.path, 500)}", int(file.mib * MIB), file.magic) for file in save.files]
        assert identify_framework(files, [save.program]) == framework.name


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_names_that_are_not_to_last_are_told_from_final_ones(framework: Framework) -> None:
    """A file that is written beside its place has a temporary name, and none under its last one."""
    for file in (file for save in EXAMPLES[framework.name] for file in save.files):
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
