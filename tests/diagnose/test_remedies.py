"""What is told to be done fits the framework: no remedy names a library that the job does not have."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.diagnose.hand import restore, save
from tests.diagnose.libraries import WORDS, foreign

from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.rules import RULES
from ckptprof.frameworks.framework_table import FRAMEWORKS, libraries_of
from ckptprof.model import Level
from ckptprof.verdicts import Limit

DOCS = Path(__file__).resolve().parents[2] / "docs" / "diagnosis.md"


@pytest.mark.parametrize("limit", Limit)
def test_no_remedy_names_a_library_that_the_job_does_not_have(limit: Limit) -> None:
    """Each limit, each framework and none, saves and restores."""
    for rule in (one for one in RULES if limit in one.limits):
        for framework in (None, "unheard-of", *(one.name for one in FRAMEWORKS)):
            for plain in (save(Level.POLL, 1, None), restore(Level.POLL, 1, None)):
                checkpoint = msgspec.structs.replace(plain, framework=framework)
                assert not foreign(rule.remedy_for(gather_context(checkpoint)), framework), (rule.name, framework)


def test_the_remedy_of_a_framework_comes_before_the_general_one() -> None:
    """Of a library below it where it has none of its own."""
    told = {
        (rule, framework): one.remedy_for(
            gather_context(msgspec.structs.replace(save(Level.POLL, 1, None), framework=framework))
        )
        for rule, one in {one.name: one for one in RULES}.items()
        for framework in ("megatron", "torchtitan", "orbax", "numpy", None)
    }
    assert "Megatron" in told["planning", "megatron"]
    assert "DCP" in told["planning", "torchtitan"]
    assert told["planning", "orbax"] == told["planning", None]
    assert "savez_compressed" in told["compression", "numpy"]
    assert not any("checkpoint.save" in told[rule, "torchtitan"] for rule in ("gathered", "single-writer"))
    assert told["gil", "orbax"] == told["gil", None] != told["gil", "torchtitan"]


def test_libraries_of_remedies_are_known() -> None:
    """A remedy under a name that no framework has is never told, and each name has the words that it goes by."""
    had = frozenset().union(*(libraries_of(one.name) for one in FRAMEWORKS))
    named = {library for rule in RULES for library in (*rule.remedies, *rule.remedies_of_restore)}
    assert named <= had
    assert {library.removesuffix("-dcp") for library in named} <= set(WORDS)


def test_each_cause_is_documented_with_what_contradicts_it() -> None:
    """Remedies are not: `show` prints them."""
    page = DOCS.read_text(encoding="utf-8").partition("\n## Causes and remedies\n")[2].partition("\n## ")[0]
    for rule in RULES:
        rows = [row for row in page.splitlines() if row.startswith("|") and f"`{rule.name}`" in row.split("|")[2]]
        assert rows, rule.name
        assert all(f"not if {words}" in row for words in rule.vetoes for row in rows), rule.name
        assert len(rows) == 1
