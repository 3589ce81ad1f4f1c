"""`ckptprof fleet` for a terminal: each answer as facts, a table or two, and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timezone
from typing import Any, NamedTuple

from ckptprof import units
from ckptprof.cluster.answers import (
    Collision,
    Collisions,
    CostRow,
    Costs,
    FleetAnswer,
    LimitRow,
    Limits,
    NewestRow,
    NewestSteps,
    NodeRow,
    Nodes,
    StragglerNode,
    Stragglers,
)
from ckptprof.report.clean import clean, named
from ckptprof.report.cluster.nodes_report import SLOW, clock
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as lay

MOST = 50  # rows that are shown; --json has them all


class Sheet(NamedTuple):
    """An answer, ready for layout; all texts are cleaned."""

    facts: list[tuple[str, str]]
    tables: Sequence[tuple[str, list[list[Cell]]]]  # rows under a title, which may be empty
    nothing: str  # in the place of a table without rows
    notes: Sequence[str]


def render(result: FleetAnswer, zone: timezone, *, width: int, colour: bool) -> str:
    """Return an answer as text that ends in a newline."""
    sheet = _SHEETS[type(result)](result, zone)
    lines = facts([*sheet.facts, *(("Not read", clean(one)) for one in result.unread)], width, colour=colour)
    for title, rows in sheet.tables:
        lines += [""] * bool(lines)
        lines += [paint(line, "bold", colour=colour) for line in wrap(title, width)] if title else []
        lines += lay(rows[:MOST], width, colour=colour) or wrap(sheet.nothing, width)
        if len(rows) > MOST:
            lines += wrap(f"and {len(rows) - MOST:,} more: --json has them all", width)
    notes = [paint(line, "dim", colour=colour) for note in sheet.notes for line in wrap(note, width)]
    return "\n".join([*lines, *[""] * bool(notes), *notes, ""])


def _stragglers(result: Stragglers, _zone: timezone) -> Sheet:
    text = f"{units.count(result.of_several)} of {units.plural(result.checkpoints, 'checkpoint')} spanned several nodes"
    if result.within_clock_error:
        text += f"; for {units.count(result.within_clock_error)} the last node is not known: within clock error"
    notes = [f"{SLOW} after a node: last in at least three of its last ten checkpoints, more often than by chance."]
    if any(one.by_size for one in result.nodes):
        notes.append("A node that is last only because it has more bytes is not slow.")
    nothing = "No node delayed the others beyond clock error and chance."
    return Sheet([("Based on", text)], [("", [*map(_straggler, result.nodes)])], nothing, notes if result.nodes else ())


def _straggler(one: StragglerNode) -> list[Cell]:
    return [
        Cell("NODE", clean(one.host) + SLOW * one.is_slow, "bold red" * one.is_slow, minimum=8),
        number("LAST", one.times, units.count),
        number("OF", one.saves, units.count),
        number("AFTER OTHERS", one.excess_seconds, units.seconds),
        number("WORST", one.max_seconds, units.seconds, drop=3),
        number("GPU TIME WAITED", one.waited_gpu_seconds, units.seconds, drop=2),
        Cell("LIMIT", one.limit and one.limit.word, drop=1),
        Cell("JOBS", ", ".join(map(clean, one.jobs)), drop=4, minimum=12),
    ]


def _costs(result: Costs, _zone: timezone) -> Sheet:
    spent = [one.gpu_seconds for one in result.rows if one.gpu_seconds is not None]
    stalls = [one.stall_seconds for one in result.rows if one.stall_seconds is not None]
    text = f"{units.plural(result.checkpoints, 'checkpoint')} blocked training for {units.seconds(sum(stalls))}"
    text += f": {units.seconds(sum(spent))} of GPU time" if spent else "; the number of waiting GPUs is not known"
    unknown_text = f"how long {units.plural(result.checkpoints, 'checkpoint')} blocked training is not known"
    found = [("Cost", text if stalls else unknown_text)]
    unknown = sum(one.stalls_unknown for one in result.rows)
    if unknown and stalls:
        found.append(("Not known", f"how long {units.plural(unknown, 'checkpoint')} blocked training"))
    if result.partial:
        lacks = f"{units.plural(result.partial, 'checkpoint')} had nodes without a database here"
        found.append(("Missing", f"{lacks}: their waits are in no figure"))
    if result.waited:
        lacks = f"{units.plural(result.waited, 'checkpoint')} had nodes that only waited"
        found.append(("Missing", f"{lacks}: for how long is not known, and in no figure"))
    note = (
        "SHARE: of the GPU time of the runs, or of their time if their GPUs are not known; SNIA recommends at most 5 %."
    )
    return Sheet(found, [("", [_cost(one, result.by) for one in result.rows])], "", [note])


def _cost(one: CostRow, by: str) -> list[Cell]:
    share = one.share if one.gpu_share is None else one.gpu_share
    return [
        Cell(by.upper(), named(one.job if by == "job" and one.job is not None else one.name), minimum=8),
        number("SAVES", one.saves, units.count),
        number("RESTORES", one.restores, units.count, drop=7),
        number("NODES", one.nodes, units.count, drop=5),
        number("BLOCKED", one.stall_seconds, units.seconds, drop=2),
        number("GPU TIME", one.gpu_seconds, units.seconds),
        number("SHARE", share, units.percent, "yellow" if one.exceeds_snia else ""),
        number("A SAVE", one.median_save_seconds, units.seconds, drop=4),
        number("RATE", one.bytes_per_second, units.rate, drop=3),
        number("PER GPU", one.bytes_per_second_per_gpu, units.rate, drop=8),
        Cell("TIER", one.tier and clean(one.tier), drop=6),
    ]


def _limits(result: Limits, zone: timezone) -> Sheet:
    tables = []
    for one in result.periods:
        at_ns, word = (one.until_ns, "Before") if one.since_ns is None else (one.since_ns, "From")
        count = units.plural(one.count, "checkpoint")
        title = f"{word} {units.stamp(at_ns, zone)} {units.offset_name(zone)}: {count}"
        tables.append((title if len(result.periods) > 1 else "", [*map(_limit, one.limits)]))
    note = "LOST: training time lost, at most. GAIN: time saved without that limit."
    return Sheet([("Based on", units.plural(result.checkpoints, "checkpoint"))], tables, "No checkpoint.", [note])


def _limit(one: LimitRow) -> list[Cell]:
    return [
        Cell("STORAGE", one.storage and clean(one.storage), minimum=12),
        Cell("LIMIT", one.limit and one.limit.word),
        number("COUNT", one.count, units.count),
        number("LOST", one.lost_seconds, units.seconds),
        number("OF ALL", one.lost_share, units.percent, drop=3),
        number("MEDIAN", one.median_seconds, units.seconds, drop=1),
        number("RATE", one.bytes_per_second, units.rate, drop=2),
        number("GAIN", one.gain_seconds, units.seconds, drop=4),
        number("NODES", one.nodes, units.count, drop=6),
        number("JOBS", one.jobs, units.count, drop=5),
    ]


def _newest(result: NewestSteps, zone: timezone) -> Sheet:
    late = sum(one.is_overdue or one.saved_ns is None for one in result.jobs)
    found = [("Overdue", f"{units.count(late)} of {units.plural(len(result.jobs), 'job')}")]
    notes = [
        "AGE: from the start of the newest complete save of a job to the last record of its nodes.",
        "A save is overdue after 2 times the usual interval; whether a job has ended is not known.",
    ]
    if result.restarts:
        each = units.seconds(result.node_seconds / result.restarts)
        found.append(("Restarts", f"{units.count(result.restarts)}: one per {each} of node time"))
        notes.append("BEST: Daly's interval, from the stall of a save and the time between restarts of as many nodes.")
    return Sheet(found, [("", [_newest_row(one, zone) for one in result.jobs])], "No job saves.", notes)


def _newest_row(one: NewestRow, zone: timezone) -> list[Cell]:
    late, saved_ns = "bold red" * bool(one.is_overdue), one.saved_ns
    age = number("AGE", one.age_seconds, units.seconds, late)
    return [
        Cell("JOB", named(one.job), late, minimum=8),
        number("STEP", one.step, str),
        age if saved_ns is not None else age._replace(text="none", style="bold red"),
        Cell("SAVED", None if saved_ns is None else units.stamp(saved_ns, zone, "%m-%d %H:%M"), drop=4),
        number("EVERY", one.interval_seconds, units.seconds, drop=1),
        number("BEST", one.optimal_interval_seconds, units.seconds, drop=2),
        number("UNUSABLE", one.unusable, units.count, drop=6),
        number("RESTARTS", one.restarts, units.count, drop=5),
        number("RESUMED IN", one.resumed_seconds, units.seconds, drop=7),
        number("NODES", one.nodes, units.count, drop=8),
        Cell("PATH", one.path and clean(one.path), drop=3, minimum=11),
    ]


def _collisions(result: Collisions, _zone: timezone) -> Sheet:
    found = [("Based on", units.plural(result.checkpoints, "checkpoint"))]
    if result.elsewhere:
        where = "on local disks, in object stores or on unknown storage"
        found.append(("Not compared", f"{units.plural(result.elsewhere, 'save')} {where}"))
    nothing = "No two jobs saved at the same time on storage that they share."
    notes = (
        "COST: how much longer saves took that overlapped with another job's than those that did not.",
        "SHIFT: how much later the second job should save, to be midway between two saves of the first.",
        "No SHIFT: the intervals differ, and the saves overlap by chance.",
    )
    return Sheet(found, [("", [*map(_collision, result.pairs)])], nothing, notes if result.pairs else ())


def _collision(one: Collision) -> list[Cell]:
    first, second = one.first, one.second
    met = f"{first.met:,}/{first.saves:,}, {second.met:,}/{second.saves:,}"
    return [
        Cell("JOB", named(first.job), minimum=8),
        Cell("OVERLAPS WITH", named(second.job), minimum=8),
        Cell("SAVES", met, right=True, drop=3),
        number("TOGETHER", one.overlap_seconds, units.seconds),
        number("COST", one.cost_seconds, units.seconds),
        number("ALONE", first.median_alone_seconds, units.seconds, drop=4),
        number("OVERLAPPED", first.median_met_seconds, units.seconds, drop=5),
        number("SHIFT", one.shift_seconds, units.seconds),
        Cell("STORAGE", one.storage and clean(one.storage), drop=1, minimum=12),
    ]


def _nodes(result: Nodes, zone: timezone) -> Sheet:
    odd = sum(bool(one.odd) for one in result.nodes)
    silent = sum(one.silent_seconds is not None for one in result.nodes)
    hosts = len({one.host for one in result.nodes})
    found = [("Nodes", f"{units.count(hosts)}; {units.count(odd)} unusual")]
    if silent:
        found.append(("Silent", f"{units.plural(silent, 'node')}, while other nodes of their runs kept saving"))
    if result.partial:
        found.append(("Missing", f"{units.plural(result.partial, 'checkpoint')} had nodes without a database here"))
    note = "UNUSUAL: different from most nodes, a clock that is wrong or not synchronised, or silent while others save."
    return Sheet(found, [("", [_node(one, zone) for one in result.nodes])], "No node.", [note])


def _node(one: NodeRow, zone: timezone) -> list[Cell]:
    odd = [*one.odd, *([] if one.silent_seconds is None else [f"silent {units.seconds(one.silent_seconds)}"])]
    until_ns, own = one.observed_until_ns, clock(one.ahead_seconds, one.clock_bound_seconds, drop=1)
    if own.text is None and one.is_clock_synchronised is not None:
        own = own._replace(text="not synchronised", style="yellow")
    return [
        Cell("NODE", clean(one.host), "yellow" * bool(odd), minimum=8),
        Cell("VERSION", one.version and clean(one.version), drop=3),
        Cell("LEVEL", one.level and clean(one.level), drop=4),
        Cell("KERNEL", one.kernel and clean(one.kernel), drop=5, minimum=8),
        own,
        Cell("LAST RECORD", None if until_ns is None else units.stamp(until_ns, zone, "%Y-%m-%d %H:%M"), drop=2),
        number("CHECKPOINTS", one.checkpoints, units.count, drop=6),
        number("GAPS", one.gaps, units.count, drop=7),
        Cell("UNUSUAL", ", ".join(odd) or None, "yellow"),
        Cell("DATABASE", clean(one.database), drop=8, minimum=11),
    ]


_SHEETS: dict[type, Callable[[Any, timezone], Sheet]] = {
    Stragglers: _stragglers,
    Costs: _costs,
    Limits: _limits,
    NewestSteps: _newest,
    Collisions: _collisions,
    Nodes: _nodes,
}
