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
from ckptprof.report.table import NOTHING, Cell, number
from ckptprof.report.table import render as lay

SLOW = "!"


def draw(checkpoints: Sequence[ClusterCheckpoint], zone: timezone, width: int, *, colour: bool) -> list[str]:
    """Return the table of checkpoints, its header first; nothing of none."""
    days = {units.stamp(one.whole.start_ns, zone)[:10] for one in checkpoints}
    clock = "%H:%M:%S" if len(days) == 1 else "%Y-%m-%d %H:%M:%S" if width >= WIDE else "%m-%d %H:%M"
    return lay([_row(one, zone, clock) for one in checkpoints], width, colour=colour)


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


def clock(ahead_seconds: float | None, bound_seconds: float | None, *, drop: int) -> Cell:
    """Return by how much the clock of a node is off; seconds, None: not known."""
    if ahead_seconds is not None:
        sign = "+" if ahead_seconds >= 0 else "-"
        return Cell("CLOCK", f"{sign}{units.seconds(abs(ahead_seconds))}", "yellow", right=True, drop=drop)
    return Cell(
        "CLOCK", None if bound_seconds is None else f"within {units.seconds(bound_seconds)}", right=True, drop=drop
    )


def _of(seen: int, expected: int | None) -> str:
    return f"{seen}/{expected}" if expected is not None and seen != expected else str(seen)


def _row(one: ClusterCheckpoint, zone: timezone, clock: str) -> list[Cell]:
    whole, last = one.whole, one.straggler
    is_cut = whole.status is Status.INCOMPLETE
    slow = SLOW if last is not None and last.is_slow else ""
    return [
        number("ID", whole.id, str, "bold"),
        Cell("TIME", units.stamp(whole.start_ns, zone, clock), drop=1),
        Cell("KIND", "incomplete" if is_cut else whole.kind.value, "bold red" if is_cut else KIND_STYLE[whole.kind]),
        number("STEP", whole.step, str, drop=8, returns=True),
        number("DURATION", figures.duration_ns(whole), units.duration),
        Cell("NODES", nodes(one), "yellow" if one.is_partial else "", right=True),
        Cell("RANKS", ranks(one), right=True, drop=7),
        Cell("LIMIT", certainty.short(whole.verdict), drop=3),
        number("STALL", whole.stall_ns, units.duration, drop=6),
        number("SIZE", whole.bytes, units.size, drop=5),
        number("RATE", figures.rate_bytes_per_second(whole), units.rate, drop=9),
        Cell("LAST", None if last is None else clean(last.host) + slow, "bold red" if slow else "", drop=2, minimum=12),
        Cell("WHO", named(whole.job), drop=10, minimum=12, cut=shorten_end),
        Cell("PATH", place(whole), drop=4, minimum=11),
    ]
