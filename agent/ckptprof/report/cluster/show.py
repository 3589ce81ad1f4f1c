"""One checkpoint of several nodes for a terminal: what it cost, who was last, a line for each node."""

from __future__ import annotations

from datetime import timezone, tzinfo

from ckptprof import figures, units
from ckptprof.cluster.model import ClusterCheckpoint, NodePart
from ckptprof.model import Status
from ckptprof.report import account
from ckptprof.report.clean import clean, named, recorded
from ckptprof.report.cluster import rows
from ckptprof.report.cluster.page import last
from ckptprof.report.rows import place
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as lay


def render(one: ClusterCheckpoint, *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return it as text that ends in a newline."""
    offset = units.fixed_zone(one.whole.end_ns, zone)
    step = "" if one.whole.step is None else f" of step {one.whole.step:,}"
    title = f"{one.whole.kind.value.capitalize()} {one.whole.id}{step} by {named(one.whole.job)}"
    lines = [
        *(paint(line, "bold", colour=colour) for line in wrap(title, width)),
        "",
        *facts(_facts(one, offset), width, colour=colour),
        "",
    ]
    lines += lay([_row(one, part) for part in one.nodes], width, colour=colour)
    more = "`ckptprof show ID` with the database of a node and its id there tells all that was seen on it."
    return "\n".join([*lines, "", *(paint(line, "dim", colour=colour) for line in wrap(more, width)), ""])


def _facts(one: ClusterCheckpoint, zone: timezone) -> list[tuple[str, str]]:
    whole = one.whole
    spent_ns = figures.duration_ns(whole)
    moved = f"{units.size(whole.bytes)} in {units.plural(whole.files, 'file')}, in {units.duration(spent_ns)}"
    rate = figures.rate_bytes_per_second(whole)
    pairs = [("Moved", moved + ("" if rate is None else f": {units.rate(rate)}")), ("Last", _last(one))]
    if whole.verdict is not None:
        pairs += [("Limit", account.title(whole.verdict)), ("", recorded(whole.verdict.sentence))]
        pairs += [("To do", recorded(whole.verdict.remedy))] if whole.verdict.remedy else []
    if whole.stall_ns is not None:
        cost = whole.cost.gpu_seconds if whole.cost is not None else None
        gpus = "" if cost is None else f"; {units.seconds(cost)} of GPU time"
        pairs.append(("Cost", f"training was blocked for {units.duration(whole.stall_ns)}{gpus}"))
    if whole.status is Status.INCOMPLETE:
        pairs.append(("Status", "incomplete: do not count on it"))
    pairs.append(("Nodes", _nodes(one)))
    pairs += [("Only waited", ", ".join(map(clean, one.waited)))] if one.waited else []
    at = place(whole)
    if at is not None:
        pairs.append(("Path", at + ("" if one.place is None else f" ({one.place})")))
    pairs.append(("Time", f"{units.stamp(whole.start_ns, zone)} {units.offset_name(zone)}"))
    pairs += [("Run", clean(whole.run.key))] if whole.run is not None else []
    return pairs


def _last(one: ClusterCheckpoint) -> str:
    if one.straggler is not None:
        often = f"; the last in {one.straggler.times} of its last {one.straggler.saves}"
        return last(one.straggler) + often * (one.straggler.saves > 1)
    if one.spread_seconds is None:
        return "nobody knows: the clocks of its nodes are not synchronised" if len(one.nodes) > 1 else "one node alone"
    apart = f"all nodes ended within {units.seconds(one.spread_seconds)}"
    return f"{apart}, within clock error" if one.is_within_clock_error else f"{apart}: none was long after the others"


def _nodes(one: ClusterCheckpoint) -> str:
    text = f"{rows.nodes(one)} moved it, with {rows.ranks(one)} ranks"
    lacking = (one.nodes_expected or 0) - len(one.nodes) - len(one.waited)
    return f"{text}; no database tells of {units.plural(lacking, 'node')}" if one.is_partial else text


def _row(one: ClusterCheckpoint, part: NodePart) -> list[Cell]:
    spent_ns = max(0, part.end_ns - part.start_ns)
    ahead_ns = 0 if part.ahead_seconds is None else round(part.ahead_seconds * 1e9)
    last = "bold red" if one.straggler is not None and one.straggler.host == part.host else ""
    after = units.duration(max(0, part.end_ns - ahead_ns - one.whole.start_ns))
    return [
        Cell("NODE", clean(part.host), last, minimum=8),
        number("ID", part.id, str),
        number("DURATION", spent_ns, units.duration),
        Cell("ENDED", f"+{after}", last, right=True),
        number("SIZE", part.bytes, units.size),
        number("RATE", units.speed(part.bytes, spent_ns), units.rate, drop=3),
        number("RANKS", part.ranks or None, str, drop=5),
        number("STALL", part.stall_seconds, units.seconds, drop=4),
        Cell("LIMIT", part.limit and part.limit.value, drop=2),
        rows.clock(part.ahead_seconds, part.clock_bound_seconds, drop=6),
        Cell("DATABASE", clean(part.database), drop=1, minimum=11),
    ]
