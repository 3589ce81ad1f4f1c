"""The report of several nodes for a terminal: costs, slow nodes, and a line for each checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone, tzinfo

from ckptprof import figures, units
from ckptprof.cluster.model import ClusterCheckpoint, NodePart, NodeRecord, Straggler
from ckptprof.cluster.stragglers import SlowNode, clocks_off, slow_nodes
from ckptprof.model import Kind, Status
from ckptprof.report import account, answer, certainty
from ckptprof.report.clean import clean, clean_sentence, named, shorten_end
from ckptprof.report.cluster.cluster_document import answer_of, merge_into_report
from ckptprof.report.rows import ENDS, KIND_STYLE, MOST, clock_for, fields, location
from ckptprof.report.table import NOTHING, Cell, facts, number, paint, wrap
from ckptprof.report.table import render as lay
from ckptprof.verdicts import JobCost, Limit

SLOW = "!"
_SHOWN = 5  # nodes that are named for one reason


def render(  # noqa: PLR0913 # each argument is one choice of the caller
    checkpoints: Sequence[ClusterCheckpoint],
    records: Sequence[NodeRecord],
    unread: Sequence[str],
    *,
    width: int,
    colour: bool,
    zone: tzinfo,
    whole: bool = False,
) -> str:
    """Return the report as text that ends in a newline; a long one lists the longest and the last, unless `whole`."""
    report = merge_into_report(checkpoints, records)
    conclusion = answer_of(checkpoints, report)
    offset = units.fixed_zone(report.watched.end_ns or 0, zone)
    pairs = [
        ("" if n else "Answer", _cost(one, checkpoints)) for n, one in enumerate(conclusion.costs[: answer.MAX_JOBS])
    ]
    slow = slow_nodes(checkpoints)
    pairs += [("Slow node", _slow_node_text(one)) for one in slow[:_SHOWN]]
    if not slow or conclusion.headline is None or conclusion.headline.limit is not Limit.NONE:
        pairs += [("Limit" if key == "Answer" else key, text) for key, text in conclusion.opening]
    lines = facts(pairs, width, colour=colour)
    lines += ["", *facts(_watched_facts(checkpoints, records, unread, offset), width, colour=colour)]
    for title, chosen in _chosen(checkpoints, whole=whole):
        lines += ["", *([paint(title, "bold", colour=colour)] if title else [])]
        lines += _table(chosen, offset, width, colour=colour)
    cost = answer.cost_lines(report, conclusion.costs, width, colour=colour)
    lines += ["", *cost] if cost else []
    notes = [paint(line, "dim", colour=colour) for note in _notes(checkpoints) for line in wrap(note, width)]
    return "\n".join([*lines, *[""] * bool(notes), *notes, ""])


def table(checkpoints: Sequence[ClusterCheckpoint], *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return only the line of each checkpoint, as text that ends in a newline; empty without checkpoints."""
    offset = units.fixed_zone(checkpoints[-1].whole.end_ns if checkpoints else 0, zone)
    return "".join(f"{line}\n" for line in _table(checkpoints, offset, width, colour=colour))


def straggler_text(one: Straggler) -> str:
    """Describe how long a node delayed the others, and the cause if known."""
    text = f"{clean(one.host)} ended {units.seconds(one.excess_seconds)} after the others"
    if one.is_by_size and one.bytes_ratio is not None:
        return f"{text}: it has {one.bytes_ratio:.1f} times their bytes"
    return text + (f"; its limit: {one.limit.word}" if one.limit not in (None, Limit.NONE, Limit.UNCLEAR) else "")


def _cost(cost: JobCost, checkpoints: Sequence[ClusterCheckpoint]) -> str:
    nodes = max(len(one.nodes) + len(one.waited) for one in checkpoints if one.whole.job == cost.job)
    parts = []
    for kind, direction in ((Kind.SAVE, cost.saves), (Kind.RESTORE, cost.restores)):
        if direction is not None:
            text = f"{units.plural(direction.count, kind.value)} of {units.size(direction.bytes / direction.count)}"
            mean = direction.mean_seconds
            parts.append(text + ("" if mean is None else f" ({units.seconds(mean)} on average)"))
    text = f"{named(cost.job)}: on {units.plural(nodes, 'node')} {' and '.join(parts)}"
    if cost.stall_seconds is None:
        return f"{text}; how long they blocked training is not known"
    text += f"; they blocked training for {units.seconds(cost.stall_seconds)}"
    text += "" if cost.share is None else f", {units.percent(cost.share)} of its run"
    return text + ("" if cost.gpu_seconds is None else f": {units.seconds(cost.gpu_seconds)} of GPU time")


def _slow_node_text(one: SlowNode) -> str:
    mean = one.excess_seconds / one.times
    text = f"{clean(one.host)} was the last in {one.times:,} of its {units.plural(one.saves, 'checkpoint')}"
    text += f", {units.seconds(mean)} after the others on average"
    text += "" if one.limit is None or one.limit is Limit.NONE else f" (its limit: {one.limit.word})"
    if one.waited_gpu_seconds is None:
        return text
    return f"{text}; {units.seconds(one.waited_gpu_seconds)} of GPU time was spent waiting for it"


def _watched_facts(
    checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord], unread: Sequence[str], zone: timezone
) -> list[tuple[str, str]]:
    hosts = sorted({one.host for one in records})
    watched = merge_into_report(checkpoints, records).watched
    span = "" if watched.start_ns is None else f", {units.stamp(watched.start_ns, zone)} to "
    span += "" if watched.end_ns is None else f"{units.stamp(watched.end_ns, zone)} {units.offset_name(zone)}"
    pairs = [("Watched", f"{units.plural(len(hosts), 'node')} ({_host_list(hosts)}){span}")]
    pairs += [("Not read", clean(one)) for one in unread]
    partial = [one for one in checkpoints if one.is_partial]
    if partial:
        lacks = f"{len(partial):,} of {units.plural(len(checkpoints), 'checkpoint')} have nodes without a database here"
        pairs.append(("Missing", f"{lacks}: their bytes and waits are in no figure"))
    waited = {host for one in checkpoints for host in one.waited}
    if waited:
        pairs.append(("Only waited", f"{_host_list(sorted(waited))}: for how long is not known, and in no figure"))
    off = sorted(clocks_off(checkpoints).items(), key=lambda pair: -abs(pair[1]))
    if off:
        offsets = [
            f"{clean(host)} starts each save {units.seconds(abs(s))} {'after' if s >= 0 else 'before'} the others"
            for host, s in off[:_SHOWN]
        ]
        more = f" and {len(off) - _SHOWN} more" if len(off) > _SHOWN else ""
        pairs.append(("Clocks", f"by its own clock, {', '.join(offsets)}{more}: times are corrected by this"))
    return pairs


def _host_list(hosts: Sequence[str]) -> str:
    shown = ", ".join(map(clean, hosts[:_SHOWN]))
    return shown if len(hosts) <= _SHOWN else f"{shown} and {len(hosts) - _SHOWN:,} more"


def _chosen(checkpoints: Sequence[ClusterCheckpoint], *, whole: bool) -> list[tuple[str, Sequence[ClusterCheckpoint]]]:
    if whole or len(checkpoints) <= MOST:
        return [("", checkpoints)]
    longest = sorted(checkpoints, key=lambda one: -figures.duration_ns(one.whole))[:ENDS]
    return [
        (f"The {ENDS} that took longest", sorted(longest, key=lambda one: one.whole.id)),
        (f"The last {ENDS} of {len(checkpoints):,}", checkpoints[-ENDS:]),
    ]


def _notes(checkpoints: Sequence[ClusterCheckpoint]) -> list[str]:
    notes = []
    if any(one.straggler is not None and one.straggler.is_slow for one in checkpoints):
        notes.append(
            f"{SLOW} after a node: last in at least three of its last ten checkpoints, more often than by chance."
        )
    unsure = sum(one.is_within_clock_error for one in checkpoints)
    if unsure:
        notes.append(
            f"The last node of {units.plural(unsure, 'checkpoint')} is not known: clock error exceeds the difference."
        )
    notes.append("`ckptprof show ID` with the same databases shows a line for each node.")
    return notes


def _table(checkpoints: Sequence[ClusterCheckpoint], zone: timezone, width: int, *, colour: bool) -> list[str]:
    clock_format = clock_for((one.whole.start_ns for one in checkpoints), zone, width)
    return lay([_row(one, zone, clock_format) for one in checkpoints], width, colour=colour)


def tabs(checkpoints: Sequence[ClusterCheckpoint], zone: tzinfo) -> str:
    """Return a tab-separated line for each: the fields of one host, then nodes, ranks and the straggler."""
    lines = []
    for one in checkpoints:
        last = NOTHING if one.straggler is None else clean(one.straggler.host)
        lines.append([*fields(one.whole, zone), nodes(one), ranks(one), last])
    return "".join("\t".join(line) + "\n" for line in lines)


def nodes(one: ClusterCheckpoint) -> str:
    """Return the number of nodes with data, and of how many: 64, 63/64."""
    return _fraction(len(one.nodes), one.nodes_expected)


def ranks(one: ClusterCheckpoint) -> str:
    """Return the number of ranks with data, and of how many."""
    return _fraction(one.ranks_observed, one.ranks_expected) if one.ranks_observed else NOTHING


def clock(ahead_seconds: float | None, bound_seconds: float | None, *, drop: int) -> Cell:
    """Return the clock offset of a node; seconds, None: not known."""
    if ahead_seconds is not None:
        sign = "+" if ahead_seconds >= 0 else "-"
        return Cell("CLOCK", f"{sign}{units.seconds(abs(ahead_seconds))}", "yellow", right=True, drop=drop)
    return Cell(
        "CLOCK", None if bound_seconds is None else f"within {units.seconds(bound_seconds)}", right=True, drop=drop
    )


def _fraction(observed: int, expected: int | None) -> str:
    return f"{observed}/{expected}" if expected is not None and observed != expected else str(observed)


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
        Cell("LIMIT", certainty.short_limit(whole.verdict), drop=3),
        number("BLOCKED", whole.stall_ns, units.duration, drop=6),
        number("SIZE", whole.bytes, units.size, drop=5),
        number("RATE", figures.rate_bytes_per_second(whole), units.rate, drop=9),
        Cell("LAST", None if last is None else clean(last.host) + slow, "bold red" if slow else "", drop=2, minimum=12),
        Cell("JOB", named(whole.job), drop=10, minimum=12, cut=shorten_end),
        Cell("PATH", location(whole), drop=4, minimum=11),
    ]


def render_checkpoint(one: ClusterCheckpoint, *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return one checkpoint as text that ends in a newline."""
    offset = units.fixed_zone(one.whole.end_ns, zone)
    step = "" if one.whole.step is None else f" of step {one.whole.step:,}"
    title = f"{one.whole.kind.value.capitalize()} {one.whole.id}{step} by {named(one.whole.job)}"
    lines = [
        *(paint(line, "bold", colour=colour) for line in wrap(title, width)),
        "",
        *facts(_facts(one, offset), width, colour=colour),
        "",
    ]
    lines += lay([_node(one, part) for part in one.nodes], width, colour=colour)
    more = "`ckptprof show ID` with the database of a node and its ID there shows all details of that node."
    return "\n".join([*lines, "", *(paint(line, "dim", colour=colour) for line in wrap(more, width)), ""])


def _facts(one: ClusterCheckpoint, zone: timezone) -> list[tuple[str, str]]:
    whole = one.whole
    spent_ns = figures.duration_ns(whole)
    transferred = f"{units.size(whole.bytes)} in {units.plural(whole.files, 'file')}, in {units.duration(spent_ns)}"
    rate = figures.rate_bytes_per_second(whole)
    pairs = [("Transferred", transferred + ("" if rate is None else f": {units.rate(rate)}")), ("Last", _last(one))]
    if whole.verdict is not None:
        pairs += [("Limit", account.limit_title(whole.verdict)), ("", clean_sentence(whole.verdict.sentence))]
        pairs += [("To do", clean_sentence(whole.verdict.remedy))] if whole.verdict.remedy else []
    if whole.stall_ns is not None:
        cost = whole.cost.gpu_seconds if whole.cost is not None else None
        gpus = "" if cost is None else f"; {units.seconds(cost)} of GPU time"
        pairs.append(("Cost", f"training was blocked for {units.duration(whole.stall_ns)}{gpus}"))
    if whole.status is Status.INCOMPLETE:
        pairs.append(("Status", "incomplete: do not restore from it"))
    lacking = (one.nodes_expected or 0) - len(one.nodes) - len(one.waited)
    missing = f"; no database of {units.plural(lacking, 'node')}" if one.is_partial else ""
    pairs.append(("Nodes", f"{nodes(one)} with data, {ranks(one)} ranks{missing}"))
    pairs += [("Only waited", ", ".join(map(clean, one.waited)))] if one.waited else []
    at = location(whole)
    if at is not None:
        pairs.append(("Path", at + ("" if one.place is None else f" ({one.place})")))
    pairs.append(("Time", f"{units.stamp(whole.start_ns, zone)} {units.offset_name(zone)}"))
    pairs += [("Run", clean(whole.run.key))] if whole.run is not None else []
    return pairs


def _last(one: ClusterCheckpoint) -> str:
    if one.straggler is not None:
        often = f"; the last in {one.straggler.times} of its last {one.straggler.saves}"
        return straggler_text(one.straggler) + often * (one.straggler.saves > 1)
    if one.spread_seconds is None:
        return "not known: the clocks of its nodes are not synchronised" if len(one.nodes) > 1 else "one node only"
    apart = f"all nodes ended within {units.seconds(one.spread_seconds)}"
    return f"{apart}, within clock error" if one.is_within_clock_error else f"{apart}: no straggler"


def _node(one: ClusterCheckpoint, part: NodePart) -> list[Cell]:
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
        number("BLOCKED", part.stall_seconds, units.seconds, drop=4),
        Cell("LIMIT", part.limit and part.limit.word, drop=2),
        clock(part.ahead_seconds, part.clock_bound_seconds, drop=6),
        Cell("DATABASE", clean(part.database), drop=1, minimum=11),
    ]
