"""What a recording is asked for: as the store answers the same question about the same checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ckptprof.model import CheckpointQuery, Kind, Report
from ckptprof.report.summary import selected
from ckptprof.service.commands.replaying import replay
from ckptprof.store.reader import StoreReader

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"


@pytest.fixture(scope="module", params=["framework-lightning-fit-moved", "stage-in.trace"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Report, StoreReader]]:
    """Return a recording, of two jobs or of copies: as it was replayed, and as it was stored."""
    db = str(tmp_path_factory.mktemp("selected") / "x.db")
    report = replay(STREAMS / f"{request.param}.ckptrec.gz", db).report
    with closing(StoreReader(db)) as reader:
        yield report, reader


@pytest.mark.parametrize(
    "kwargs",
    [
        {}, {"kind": Kind.COPY}, {"kind": Kind.SAVE}, {"kind": Kind.RESTORE}, {"limit": 1},
        {"limit": 1, "kind": Kind.COPY}, {"job": "nobody"}, {"job": "*"}, {"job": "[!x]*"}, {"job": "?*-[0-9]*"},
        {"since": 0.5}, {"until": 0.5}, {"since": 2.0}, {"since": 0.2, "until": 0.8, "limit": 1}, {"until": -1.0},
    ],
    ids=str,
)  # fmt: skip
def test_as_the_store_answers(both: tuple[Report, StoreReader], kwargs: dict[str, object]) -> None:
    """Kind, job, time and number; times are shares of what was watched."""
    report, reader = both
    start_ns, end_ns = report.watched.start_ns, report.watched.end_ns
    assert start_ns is not None
    assert end_ns is not None
    bounds = {
        f"{name}_ns": start_ns + round(float(str(kwargs[name])) * (end_ns - start_ns))
        for name in ("since", "until")
        if name in kwargs
    }
    others = {name: value for name, value in kwargs.items() if name not in ("since", "until")}
    query = CheckpointQuery(**bounds, **others)  # type: ignore[arg-type] # a table of cases

    found, stored = selected(report, query), reader.report(query)

    assert [one.uid for one in found.checkpoints] == [one.uid for one in stored.checkpoints]
    assert (found.watched, found.copies_left_out) == (stored.watched, stored.copies_left_out)
