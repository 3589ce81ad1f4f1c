"""What is told to be done fits the framework: no remedy names a library that the job does not have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.diagnose.hand import restore, save
from tests.diagnose.libraries import WORDS, foreign

from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.rules import RULES, CauseRule
from ckptprof.frameworks.framework_table import FRAMEWORKS, libraries_of
from ckptprof.model import Level
from ckptprof.verdicts import Limit

DOCS = Path(__file__).resolve().parents[2] / "docs" / "diagnosis.md"
BEGIN, END = "<!-- remedies: written by tests/diagnose/test_remedies.py -->\n", "<!-- end of remedies -->\n"


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


def _rows() -> Iterator[str]:
    yield "| a job that saves by | has |\n|---|---|\n"
    having: dict[str, list[str]] = {}
    for one in FRAMEWORKS:
        had = ", ".join(sorted(libraries_of(one.name) - {one.name}))
        having.setdefault(had, []).append(one.name)
    for had, names in having.items():
        yield f"| {', '.join(sorted(names))} | {had or 'nothing else that is known'} |\n"
    yield "\n| limit | cause | remedy; *library*: how |\n|---|---|---|\n"
    for rule in (one for limit in Limit for one in RULES if one.limits[0] is limit):
        yield from _of(rule)


def _of(rule: CauseRule) -> Iterator[str]:
    name = rule.name + "".join(f"<br>not if {words}" for words in rule.vetoes)
    limits = (f"`{one.word}`" for one in rule.limits)
    yield f"| {', '.join(limits)} | {name} | {rule.remedy}{_special(rule.remedies)} |\n"
    if rule.remedy_of_restore is not None:
        yield f"| | of a restore | {rule.remedy_of_restore}{_special(rule.remedies_of_restore)} |\n"


def _special(remedies: object) -> str:
    assert isinstance(remedies, dict)  # each without the words that the remedy for any framework has before a colon
    return "".join(f"<br>*{name}*: {re.sub('^[^`;:(]+: ', '', text)}" for name, text in remedies.items())


def test_the_documented_remedies_are_those_of_the_rules() -> None:
    """Limit by framework; CKPTPROF_UPDATE_GOLDEN=1 writes it down."""
    text = DOCS.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "".join(_rows())
    if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
        DOCS.write_text(before + BEGIN + "\n" + table + "\n" + END + after, encoding="utf-8")

    assert f"{BEGIN}\n{table}\n{END}" in DOCS.read_text(encoding="utf-8")
