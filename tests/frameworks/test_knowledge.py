"""What is known here and what the collectors know for themselves are one; marks of names are found by their words."""

from __future__ import annotations

import pytest

from ckptprof.frameworks.framework_entry import TemporaryPattern
from ckptprof.frameworks.framework_table import FRAMEWORKS
from ckptprof.frameworks.program_names import (
    GPU_RUNTIMES,
    INTERPRETERS,
    LAUNCHERS,
    NUMERIC_RUNTIMES,
    RANK_VARIABLES,
    TOOLS,
    TRAINING_RUNTIMES,
)
from ckptprof_collectors.processes import process, programs


def test_every_runtime_that_is_collected_is_known() -> None:
    """And no other: the collectors see it in the memory map of a process, `gpu` in its devices."""
    collected = {name for _, name in process.RUNTIME_MARKS} | {"gpu"}

    assert collected == TRAINING_RUNTIMES | NUMERIC_RUNTIMES | GPU_RUNTIMES


def test_ranks_are_collected_from_the_variables_that_tell_them() -> None:
    """A variable that is not read tells nothing."""
    assert {name for pair in RANK_VARIABLES for name in pair if name} <= programs.ENVIRONMENT_KEYS


def test_interpreters_that_are_looked_into_are_known() -> None:
    """The collectors read Python's arguments of those alone."""
    assert {name.decode() for name in process._INTERPRETERS} <= set(INTERPRETERS)


def test_no_launcher_is_taken_for_a_tool() -> None:
    """What starts ranks would be taken for what copies files."""
    assert not LAUNCHERS & TOOLS


@pytest.mark.parametrize(
    "temporary", [one for framework in FRAMEWORKS for one in framework.temporary], ids=lambda one: one.word
)
def test_the_word_of_a_temporary_name_is_in_its_mark(temporary: TemporaryPattern) -> None:
    """Names without any of the words are not looked at."""
    assert temporary.word == temporary.word.lower()
    assert temporary.word in temporary.mark.pattern.replace("\\", "")
