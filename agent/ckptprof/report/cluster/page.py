"""The report of several nodes for a terminal: what their checkpoints cost, which node is slow, a line for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone, tzinfo

from ckptprof import figures, units
from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord, Straggler
from ckptprof.cluster.stragglers import SlowNode, clocks_off, slow_nodes
from ckptprof.model import Kind
from ckptprof.report import answer
from ckptprof.report.clean import clean, named
from ckptprof.report.cluster import rows
from ckptprof.report.cluster.wholes import answer_of, as_report
from ckptprof.report.rows import ENDS, MOST
from ckptprof.report.table import facts, paint, wrap
from ckptprof.verdicts import JobCost, Limit

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
    """Return the report as text that ends in a newline; a long one has the longest and the last, unless `whole`."""
    report = as_report(checkpoints, records)
    told = answer_of(checkpoints, report)
    offset = units.fixed_zone(report.watched.end_ns or 0, zone)
    pairs = [("" if n else "Answer", _cost(one, checkpoints)) for n, one in enumerate(told.costs[: answer.MAX_JOBS])]
    slow = slow_nodes(checkpoints)
    pairs += [("Slow node", _slow(one)) for one in slow[:_SHOWN]]
    if not slow or told.headline is None or told.headline.limit is not Limit.NONE:
        pairs += [("Limit" if key == "Answer" else key, text) for key, text in told.opening]
    lines = facts(pairs, width, colour=colour)
    lines += ["", *facts(_seen(checkpoints, records, unread, offset), width, colour=colour)]
    for title, chosen in _chosen(checkpoints, whole=whole):
        lines += ["", *([paint(title, "bold", colour=colour)] if title else [])]
        lines += rows.draw(chosen, offset, width, colour=colour)
    cost = answer.cost_lines(report, told.costs, width, colour=colour)
    lines += ["", *cost] if cost else []
    notes = [paint(line, "dim", colour=colour) for note in _notes(checkpoints) for line in wrap(note, width)]
    return "\n".join([*lines, *[""] * bool(notes), *notes, ""])


def table(checkpoints: Sequence[ClusterCheckpoint], *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return the line of each checkpoint alone, as text that ends in a newline; empty without checkpoints."""
    offset = units.fixed_zone(checkpoints[-1].whole.end_ns if checkpoints else 0, zone)
    return "".join(f"{line}\n" for line in rows.draw(checkpoints, offset, width, colour=colour))


def last(one: Straggler) -> str:
    """Return how long a node kept the others waiting, and why as far as that is known."""
    text = f"{clean(one.host)} ended {units.seconds(one.excess_seconds)} after the others"
    if one.is_by_size and one.bytes_ratio is not None:
        return f"{text}: it has {one.bytes_ratio:.1f} times their bytes"
    return text + (f"; its limit: {one.limit.value}" if one.limit not in (None, Limit.NONE, Limit.UNCLEAR) else "")


def _cost(cost: JobCost, checkpoints: Sequence[ClusterCheckpoint]) -> str:
    """Return how many checkpoints a job had, on how many nodes, and what they cost it."""
    nodes = max(len(one.nodes) + len(one.waited) for one in checkpoints if one.whole.job == cost.job)
    parts = []
    for kind, direction in ((Kind.SAVE, cost.saves), (Kind.RESTORE, cost.restores)):
        if direction is not None:
            text = f"{units.plural(direction.count, kind.value)} of {units.size(direction.bytes / direction.count)}"
            mean = direction.mean_seconds
            parts.append(text + ("" if mean is None else f" in {units.seconds(mean)}, in the mean"))
    text = f"{named(cost.job)}: on {units.plural(nodes, 'node')} {' and '.join(parts)}"
    if cost.stall_seconds is None:
        return f"{text}; how long they blocked training was not seen"
    text += f"; they blocked training for {units.seconds(cost.stall_seconds)}"
    text += "" if cost.share is None else f", {units.percent(cost.share)} of its run"
    return text + ("" if cost.gpu_seconds is None else f": {units.seconds(cost.gpu_seconds)} of GPU time")


def _slow(one: SlowNode) -> str:
    mean = one.excess_seconds / one.times
    text = f"{clean(one.host)} was the last in {one.times:,} of its {units.plural(one.saves, 'checkpoint')}"
    text += f", {units.seconds(mean)} after the others in the mean"
    text += "" if one.limit is None or one.limit is Limit.NONE else f" (its limit: {one.limit.value})"
    if one.waited_gpu_seconds is None:
        return text
    return f"{text}; they waited {units.seconds(one.waited_gpu_seconds)} of GPU time for it"


def _seen(
    checkpoints: Sequence[ClusterCheckpoint], records: Sequence[NodeRecord], unread: Sequence[str], zone: timezone
) -> list[tuple[str, str]]:
    hosts = sorted({one.host for one in records})
    watched = as_report(checkpoints, records).watched
    span = "" if watched.start_ns is None else f", {units.stamp(watched.start_ns, zone)} to "
    span += "" if watched.end_ns is None else f"{units.stamp(watched.end_ns, zone)} {units.offset_name(zone)}"
    pairs = [("Watched", f"{units.plural(len(hosts), 'node')} ({_named(hosts)}){span}")]
    pairs += [("Not read", clean(one)) for one in unread]
    partial = [one for one in checkpoints if one.is_partial]
    if partial:
        lacks = (
            f"{len(partial):,} of {units.plural(len(checkpoints), 'checkpoint')} have nodes that no database tells of"
        )
        pairs.append(("Not seen", f"{lacks}: what these moved and waited is in no figure"))
    waited = {host for one in checkpoints for host in one.waited}
    if waited:
        pairs.append(("Only waited", f"{_named(sorted(waited))}: how long is not known, and in no figure"))
    off = sorted(clocks_off(checkpoints).items(), key=lambda pair: -abs(pair[1]))
    if off:
        told = [f"{clean(host)} {_ahead(seconds)}" for host, seconds in off[:_SHOWN]]
        more = f" and {len(off) - _SHOWN} more" if len(off) > _SHOWN else ""
        pairs.append(("Clocks", f"by its own, {', '.join(told)}{more}: so much is taken off its times"))
    return pairs


def _ahead(seconds: float) -> str:
    return f"begins each save {units.seconds(abs(seconds))} {'after' if seconds >= 0 else 'before'} the others"


def _named(hosts: Sequence[str]) -> str:
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
        notes.append(f"{rows.SLOW} after a node: the last in three of its last ten, and more often than chance.")
    unsure = sum(one.is_within_clock_error for one in checkpoints)
    if unsure:
        notes.append(
            f"Of {units.plural(unsure, 'checkpoint')} no node is told to be the last: their clocks may be off by more."
        )
    notes.append("`ckptprof show ID` with the same databases has a line for each node.")
    return notes
