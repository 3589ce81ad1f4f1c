"""The checkpoints of several nodes as a table, and as lines for pipes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone, tzinfo

from ckptprof import figures, units
from ckptprof.cluster.model import ClusterCheckpoint
from ckptprof.model import Status
from ckptprof.report import certainty, tabbed
from ckptprof.report.clean import clean, named, shorten_end
from ckptprof.report.rows import KIND_STYLE, WIDE, place
from ckptprof.report.table import MISSING, NOTHING, Cell, Column
from ckptprof.report.table import render as lay

_COLUMNS = (
    Column("ID", right=True),
    Column("TIME", drop=1),
    Column("KIND"),
    Column("STEP", right=True, drop=8, returns=True),
    Column("DURATION", right=True),
    Column("NODES", right=True),
    Column("RANKS", right=True, drop=7),
    Column("LIMIT", drop=3),
    Column("STALL", right=True, drop=6),
    Column("SIZE", right=True, drop=5),
    Column("RATE", right=True, drop=9),
    Column("LAST", drop=2, minimum=12),
    Column("WHO", drop=10, minimum=12, cut=shorten_end),
    Column("PATH", drop=4, minimum=11),
)
SLOW = "!"


def draw(checkpoints: Sequence[ClusterCheckpoint], zone: timezone, width: int, *, colour: bool) -> list[str]:
    """Return the table of checkpoints, its header first; nothing of none."""
    days = {units.stamp(one.whole.start_ns, zone)[:10] for one in checkpoints}
    clock = "%H:%M:%S" if len(days) == 1 else "%Y-%m-%d %H:%M:%S" if width >= WIDE else "%m-%d %H:%M"
    return lay(_COLUMNS, [_row(one, zone, clock) for one in checkpoints], width, colour=colour)


def tabs(checkpoints: Sequence[ClusterCheckpoint], zone: tzinfo) -> str:
    """Return a line for each, its fields separated by tabs: those of one node, then nodes, ranks and the straggler."""
    lines = []
    for one in checkpoints:
        last = NOTHING if one.straggler is None else clean(one.straggler.host)
        lines.append([*tabbed.fields(one.whole, zone), nodes(one), ranks(one), last])
    return "".join("\t".join(line) + "\n" for line in lines)


def nodes(one: ClusterCheckpoint) -> str:
    """Return how many nodes moved the bytes, of how many: 64, 63/64."""
    return _of(len(one.nodes), one.nodes_expected)


def ranks(one: ClusterCheckpoint) -> str:
    """Return how many ranks moved the bytes, of how many."""
    return _of(one.ranks_seen, one.ranks_expected) if one.ranks_seen else NOTHING


def _of(seen: int, expected: int | None) -> str:
    return f"{seen}/{expected}" if expected is not None and seen != expected else str(seen)


def _row(one: ClusterCheckpoint, zone: timezone, clock: str) -> list[Cell]:
    whole, last = one.whole, one.straggler
    rate, limit = figures.rate_bytes_per_second(whole), certainty.short(whole.verdict)
    kind = Cell(whole.kind.value, KIND_STYLE[whole.kind])
    at = place(whole)
    return [
        Cell(str(whole.id), "bold"),
        Cell(units.stamp(whole.start_ns, zone, clock)),
        Cell("incomplete", "bold red") if whole.status is Status.INCOMPLETE else kind,
        MISSING if whole.step is None else Cell(str(whole.step)),
        Cell(units.duration(figures.duration_ns(whole))),
        Cell(nodes(one), "yellow" if one.is_partial else ""),
        Cell(ranks(one)),
        MISSING if limit is None else Cell(limit),
        MISSING if whole.stall_ns is None else Cell(units.duration(whole.stall_ns)),
        Cell(units.size(whole.bytes)),
        MISSING if rate is None else Cell(units.rate(rate)),
        MISSING if last is None else Cell(clean(last.host) + SLOW * last.is_slow, "bold red" * last.is_slow),
        Cell(named(whole.job)),
        MISSING if at is None else Cell(at),
    ]
