"""Every framework of the table, by a stream written from its own source: two saves and a restore, at both levels."""

from __future__ import annotations

import pytest
from tests.detect.framework_saves import SAVES
from tests.detect.framework_streams import END_S, EVERY_S, FIRST_S, SMALL, STEPS, Save, at, stage_of
from tests.detect.stage import MIB, SECOND_NS

from ckptprof.frameworks.table import FRAMEWORKS
from ckptprof.model import Kind, Level, Status

ROOT = "/ckpt/run"


def big_bytes(save: Save) -> int:
    """Return the bytes of its files, without the small ones that polling may miss."""
    return sum(int(file.mib * MIB) for file in save.files if file.mib != SMALL)


@pytest.mark.parametrize("trace", [True, False], ids=["trace", "poll"])
@pytest.mark.parametrize("save", SAVES, ids=[f"{save.framework}-{save.variant}".rstrip("-") for save in SAVES])
def test_a_framework_is_reported_as_its_engineers_would(save: Save, *, trace: bool) -> None:
    """One event for each save and restore, with framework, step, ranks, files, bytes, path and edges."""
    stage = stage_of(save, ROOT, trace=trace)
    stage.faults = trace

    found = stage.play(END_S)

    assert [(event.kind, event.framework, event.step) for event in found] == [
        *((Kind.SAVE, save.framework, step) for step in STEPS),
        (Kind.RESTORE, save.framework, STEPS[-1]),
    ]
    for event in found:
        assert (event.ranks, event.status) == (save.ranks, Status.COMPLETE)
        assert event.bytes == pytest.approx(big_bytes(save), rel=0.02, abs=64 << 10)
    for number, event in enumerate(found[:2]):
        start_s = (event.start_ns - stage.wall(0)) / SECOND_NS
        assert start_s == pytest.approx(FIRST_S + number * EVERY_S, abs=0.01 if trace else 0.1)
        assert event.path == f"{ROOT}/{at(save.path, STEPS[number])}".rstrip("/")
        assert event.level is (Level.TRACE if trace else Level.POLL)
        if trace:
            assert event.files == len(save.files)
    assert (found[2].path or "").startswith(f"{ROOT}/{at(save.path, STEPS[-1])}".rstrip("/"))


def test_every_framework_of_the_table_has_a_stream() -> None:
    """Adding one is one entry and one test."""
    assert {framework.name for framework in FRAMEWORKS} == {save.framework for save in SAVES}
