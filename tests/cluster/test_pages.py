"""What a reader sees of several nodes: no line is too wide, no name harms a terminal."""

from __future__ import annotations

import unicodedata
from datetime import timezone

import msgspec
import pytest
from tests.cluster.nodes import NOBODY_KNOWS, Job

from ckptprof.cluster.merging import merge
from ckptprof.cluster.model import NodeRecord
from ckptprof.report.clean import width as cells
from ckptprof.report.cluster import nodes_report

HOSTILE = "node\x1b[2J\u202e\n\x07"


def _records() -> list[NodeRecord]:
    """Return nodes with everything that a page has a line for, one of a hostile name."""
    records, _ = Job(
        nodes=8, saves=70, late_s={1: 4.0}, ahead_s={2: 5.0}, clocks={2: NOBODY_KNOWS}, lost={3: [4]}, ends={4: 60}
    ).seen()
    return [
        msgspec.structs.replace(one, host=HOSTILE, database=f"/{HOSTILE}.db") if n == 1 else one
        for n, one in enumerate(records)
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("whole", [True, False], ids=["all", "ends"])
def test_nothing_is_too_wide_or_harms(width: int, *, whole: bool) -> None:
    """Pages, tables and lines for pipes."""
    records = _records()
    merged = merge(records)
    unread = [f"{HOSTILE}.db is damaged"]

    text = nodes_report.render(
        merged, records, unread, width=width, colour=False, zone=timezone.utc, whole=whole
    ) + nodes_report.table(merged, width=width, colour=False, zone=timezone.utc)
    text += "".join(
        nodes_report.render_checkpoint(one, width=width, colour=False, zone=timezone.utc) for one in merged[:5]
    )

    assert max(map(cells, text.splitlines())) <= width
    assert {unicodedata.category(one) for one in text} & {"Cf", "Cs", "Co"} == set()
    assert {one for one in text if unicodedata.category(one) == "Cc"} == {"\n"}
    assert {line.count("\t") for line in nodes_report.tabs(merged, timezone.utc).splitlines()} == {16}


def test_a_page_tells_what_was_not_seen() -> None:
    """Nodes that only waited, that no database tells of, clocks that are off, databases that could not be read."""
    records = _records()

    text = nodes_report.render(merge(records), records, ["x.db is damaged"], width=200, colour=False, zone=timezone.utc)

    assert "Not read     x.db is damaged" in text
    assert "Missing      10 of 70 checkpoints have nodes" in text
    assert "Only waited  train-node-3:" in text
    assert "by its own clock, train-node-2 starts each save 5.0" in text
    assert "The 10 that took longest" in text
    assert "The last 10 of 70" in text


def test_clocks_that_nobody_vouches_for_and_agree_are_not_told() -> None:
    """Starts of saves differ by more from save to save than between the nodes in the middle."""
    records, _ = Job(nodes=4, clocks=dict.fromkeys(range(4), NOBODY_KNOWS)).seen()

    text = nodes_report.render(merge(records), records, [], width=200, colour=False, zone=timezone.utc)

    assert "starts each save" not in text
