"""Every framework of the table, by a stream written from its own source: two saves and a restore, at both levels."""

from __future__ import annotations

import pytest
from tests.detect.framework_streams import END_S, EVERY_S, FIRST_S, STEPS, at, stage_of
from tests.detect.stage import MIB, SECOND_NS
from tests.frameworks.example_saves import SMALL, ExampleFile, ExampleSave, files_of_ranks
from tests.frameworks.example_table import EXAMPLES

from ckptprof.model import Kind, Level, Status

ROOT = "/ckpt/run"
SAVES = [
    pytest.param(name, save, id=f"{name}-{save.variant}".rstrip("-"))
    for name, saves in EXAMPLES.items()
    for save in saves
]


def big_bytes(save: ExampleSave) -> int:
    """Return the bytes of its files, without the small ones that polling may miss."""
    return sum(int(file.mib * MIB) for file in save.files if file.mib != SMALL)


@pytest.mark.parametrize("trace", [True, False], ids=["trace", "poll"])
@pytest.mark.parametrize(("framework", "save"), SAVES)
def test_a_framework_is_reported_as_its_engineers_would(framework: str, save: ExampleSave, *, trace: bool) -> None:
    """One event for each save and restore, with framework, step, ranks, files, bytes, path and edges."""
    stage = stage_of(save, ROOT, trace=trace)
    stage.faults = trace

    found = stage.play(END_S)

    assert [(event.kind, event.framework, event.step) for event in found] == [
        *((Kind.SAVE, framework, step) for step in STEPS),
        (Kind.RESTORE, framework, STEPS[-1]),
    ]
    for event in found:
        assert (event.ranks, event.status) == (save.ranks, Status.COMPLETE)
        assert event.bytes == pytest.approx(big_bytes(save), rel=0.02, abs=64 << 10)
    for number, event in enumerate(found[:2]):
        start_s = (event.start_ns - stage.wall(0)) / SECOND_NS
        assert start_s == pytest.approx(FIRST_S + number * EVERY_S, abs=0.01 if trace else 0.1)
        assert event.path == f"{ROOT}/{at(save.name, STEPS[number])}".rstrip("/")
        assert event.level is (Level.TRACE if trace else Level.POLL)
        if trace:
            assert event.files == len(save.files)
    saved, restored = f"{ROOT}/{at(save.name, STEPS[-1])}".rstrip("/"), found[2].path or ""
    assert restored.startswith(saved) or saved.startswith(f"{restored}/")  # or the folder of it and of its copy


def test_ranks_write_files_of_their_own() -> None:
    """Two ranks that share a temporary name would be one file; a hole that nobody fills is refused."""
    first, second = files_of_ranks(ExampleFile("r{rank}/s{step}_{rank1:03}.pt", 1, temporary=".{rank}.tmp"))

    assert (first.path, first.temporary, first.rank) == ("r0/s{step}_001.pt", ".0.tmp", 0)
    assert (second.path, second.temporary, second.rank) == ("r1/s{step}_002.pt", ".1.tmp", 1)
    assert at(second.path, 5) == "r1/s5_002.pt"
    with pytest.raises(ValueError, match="rank"):
        at("model_{rank}.pt", 5)
