"""The facts of a checkpoint: its moments, stall, durability, write amplification, and the source of its bytes."""

from __future__ import annotations

from datetime import timezone

from ckptprof import figures, units
from ckptprof.model import CUT_AT_END, CUT_AT_START, CUT_BETWEEN, Checkpoint, Frailty, Kind, Metadata, Risk, Status
from ckptprof.report.clean import clean, clean_sentence
from ckptprof.report.table import facts, paint, wrap

INCOMPLETE = "incomplete: interrupted or never committed; do not restore from it"
PARTLY_OBSERVED = "incomplete: only part of it was observed"
_CUTS = (CUT_AT_START, CUT_AT_END, CUT_BETWEEN)
_FRAILTIES = frozenset(frailty.value for frailty in Frailty)
REASONS = (
    "mode",
    "incomplete",
    *_CUTS,
    *(risk.value for risk in Risk),
    *_FRAILTIES,
)  # shown next to what they are reasons for
_NOUNS = {
    "created": "creation", "first data": "first byte", "last data": "last byte", "synced": "sync",
    "committed": "commit", "cleaned up": "cleanup", "durable": "durability",
}  # fmt: skip
_TOGETHER_NS = 10_000_000  # if ranks end so close to each other, none is the slowest
_NOTHING_BEYOND = 0.005  # of the checkpoint: less is headers and metadata
_TWICE = 1.01  # bytes transferred divided by distinct bytes, above which some count as repeated
_SOURCES = {
    "cold": "{} of {} came from a disk or the network",
    "warm": "from the page cache; {} of {} came from a disk or the network",
    "partly": "{} of {} came from a disk or the network, the rest from the page cache",
}


def offset_text(at_ns: int, checkpoint: Checkpoint) -> str:
    """Return the time since the start of the checkpoint: +0.21 s."""
    later_ns = at_ns - checkpoint.start_ns
    return f"+{units.duration(later_ns)}" if later_ns >= 0 else f"-{units.duration(-later_ns)}"


def moments(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    """Return the moments of a save in order of time, and those that were not observed; empty for other kinds."""
    if checkpoint.kind is not Kind.SAVE:
        return []
    course, bound, sent = checkpoint.moments, checkpoint.durable_is_most, checkpoint.sent
    verb = "written" if sent is None else "sent"
    rows = (
        *((("created", checkpoint.start_ns, "the first file was created or opened"),) if sent is None else ()),
        ("first data", course.first_data_ns, f"the first byte was {verb}"),
        ("last data", course.last_data_ns, f"the last byte was {verb}"),
        ("synced", course.synced_ns, "the last fsync, or similar call, returned"),
        ("committed", course.committed_ns, "complete: marker written, last rename or last close"),
        ("cleaned up", course.cleaned_ns, "the last old checkpoint was deleted"),
        ("durable", checkpoint.durable_ns, "all of it on stable storage" + ", at the latest" * bool(bound)),
        *((("deleted", course.deleted_ns, "its largest file was deleted"),) if course.deleted_ns is not None else ()),
    )
    observed = sorted(((at_ns, name, text) for name, at_ns, text in rows if at_ns is not None), key=lambda one: one[0])
    times = [offset_text(at_ns, checkpoint) for at_ns, _, _ in observed]
    cells = max(map(len, times))
    pairs = [(f"{at:>{cells}}  {name}", text) for at, (_, name, text) in zip(times, observed, strict=True)]
    *others, last = [_NOUNS[name] for name, at_ns, _ in rows if at_ns is None] or [""]
    lines = facts(pairs, width, colour=colour)
    if last:
        missing = f"{', '.join(others)} or {last}" if others else last
        lines += [paint(line, "dim", colour=colour) for line in wrap(f"No {missing} observed.", width)]
    return lines


def save_facts(checkpoint: Checkpoint, zone: timezone) -> list[tuple[str, str]]:
    """Return the facts of a save: mode, durability, write amplification."""
    return [
        (
            "Mode",
            units.NOT_OBSERVED if checkpoint.mode is None else _because(checkpoint, checkpoint.mode.value, "mode"),
        ),
        ("Durable", _durable(checkpoint, zone)),
        *_uploads(checkpoint, zone),
        ("At risk", _at_risk(checkpoint)),
        *([("After a crash", "; ".join(losses))] if (losses := frailties(checkpoint)) else []),
        ("Amplification", _amplification(checkpoint)),
        ("File operations", _metadata(checkpoint.metadata)),
        *_straggler_facts(checkpoint),
    ]


def restore_facts(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """Return the source of the bytes of a restore, and its slowest rank."""
    source = _SOURCES.get(checkpoint.cache or "")
    if source is None or checkpoint.storage_bytes is None:
        source_text = units.NOT_OBSERVED
    else:
        distinct = checkpoint.bytes if checkpoint.unique_bytes is None else checkpoint.unique_bytes
        source_text = f"{checkpoint.cache}: {source.format(units.size(checkpoint.storage_bytes), units.size(distinct))}"
    pairs = [("Page cache", source_text)] if checkpoint.sent is None else []
    unique = checkpoint.unique_bytes
    if unique and is_transferred_again(checkpoint):
        number = len(checkpoint.writers)
        readers = "1 process" if number == 1 else f"{units.count(number)} processes"
        times = f"{checkpoint.bytes / unique:.2f}"
        pairs.append(("Read again", f"{units.size(unique)} read {times} times by {readers}"))
    return [*pairs, *_straggler_facts(checkpoint)]


def risk(checkpoint: Checkpoint) -> str:
    """Return why it may not restore correctly; empty without such a risk."""
    return "; ".join(clean_sentence(one.text) for one in checkpoint.risks)


def frailties(checkpoint: Checkpoint) -> list[str]:
    """List what a crash may cost, because of the order of a save's calls."""
    return [clean_sentence(one.text) for one in checkpoint.evidence if one.name in _FRAILTIES]


def status(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """Return a row for each warning: incomplete or truncated, and its risks."""
    warnings = []
    if checkpoint.status is Status.INCOMPLETE:
        reasons = {evidence.name for evidence in checkpoint.evidence}
        is_cut = not reasons.isdisjoint(_CUTS) and "incomplete" not in reasons  # truncated, but seemingly complete
        why = (
            _because(checkpoint, PARTLY_OBSERVED, *_CUTS) if is_cut else _because(checkpoint, INCOMPLETE, "incomplete")
        )
        warnings.append(("Status", why))
    if checkpoint.risks:
        warnings.append(("Risk", f"may not restore correctly: {risk(checkpoint)}"))
    return warnings


def _because(checkpoint: Checkpoint, word: str, *reasons: str) -> str:
    texts = [clean_sentence(evidence.text) for evidence in checkpoint.evidence if evidence.name in reasons]
    return "; ".join([word, *texts])


def amplification(checkpoint: Checkpoint) -> float | None:
    """Return the bytes written divided by the distinct bytes of a save; None: not known."""
    if checkpoint.kind is not Kind.SAVE or checkpoint.written_bytes is None or not checkpoint.unique_bytes:
        return None
    return checkpoint.written_bytes / checkpoint.unique_bytes


def is_transferred_again(checkpoint: Checkpoint) -> bool:
    """Return True if some bytes were transferred more than once: for a copy, or by ranks that read the same."""
    return bool(checkpoint.unique_bytes) and checkpoint.bytes >= _TWICE * (checkpoint.unique_bytes or 0)


OUTSIDE = "Blocked can exceed duration: training also paused before the first byte or after the last."


def stall_outside(checkpoint: Checkpoint) -> str | None:
    """Return by how much the stall exceeds the duration, as text; None if it does not."""
    spent_ns = figures.duration_ns(checkpoint)
    if checkpoint.stall_ns is None or units.duration(checkpoint.stall_ns) == units.duration(spent_ns):
        return None
    return units.duration(checkpoint.stall_ns - spent_ns) if checkpoint.stall_ns > spent_ns else None


def _durable(checkpoint: Checkpoint, zone: timezone) -> str:
    if checkpoint.durable_ns is None:
        return units.NOT_OBSERVED
    last_ns = checkpoint.moments.last_data_ns or checkpoint.end_ns
    later = units.duration(max(0, checkpoint.durable_ns - last_ns))
    at = units.stamp(checkpoint.durable_ns, zone, "%H:%M:%S.%f")[:-3]
    when = f"at most {later} after the last write, by {at}"
    return _on_return(checkpoint, when if checkpoint.durable_is_most else f"{later} after the last write, at {at}")


def _uploads(checkpoint: Checkpoint, zone: timezone) -> list[tuple[str, str]]:
    last_ns = checkpoint.moments.last_data_ns or checkpoint.end_ns
    uploads = () if checkpoint.measures is None else checkpoint.measures.uploads
    pairs = []
    for one in uploads:
        later = units.duration(max(0, one.end_ns - last_ns))
        size, where = units.size(one.bytes), f"{clean(one.remote)} port {one.port}"
        at = units.stamp(one.end_ns, zone, "%H:%M:%S.%f")[:-3]
        pairs.append(("Uploaded", f"{size} to the object store at {where}, {later} after the last write ({at})"))
    return pairs


def _on_return(checkpoint: Checkpoint, when: str) -> str:
    cost = checkpoint.cost
    if cost is None or cost.durable_on_return is None:
        return f"on disk {when}"
    rate = None if cost.durable_bytes_per_second is None else units.rate(cost.durable_bytes_per_second)
    if cost.durable_on_return:
        return f"on return, {when}" + (f"; {rate}" if rate else "")
    return f"not on return: {when}" + (f"; with fsync about {rate}" if rate else "")


def _at_risk(checkpoint: Checkpoint) -> str:
    risk_ns = checkpoint.at_risk_ns
    if risk_ns is None:
        return units.NOT_OBSERVED
    if risk_ns == 0:
        return "never: durable before it was marked complete"
    since_when = "its end" if checkpoint.moments.committed_ns is None else "its commit"
    most = "at most " if checkpoint.durable_is_most else ""
    return f"{most}{units.duration(risk_ns)}, from {since_when} until it was durable"


def _amplification(checkpoint: Checkpoint) -> str:
    factor = amplification(checkpoint)
    if factor is None or checkpoint.written_bytes is None or checkpoint.unique_bytes is None:
        return units.NOT_OBSERVED
    reasons = [
        f"{units.size(overhead.bytes)} {clean(overhead.reason)}, {clean_sentence(overhead.text)}"
        for overhead in checkpoint.overheads
    ]
    if not reasons and abs(factor - 1) <= _NOTHING_BEYOND:
        return "1.00x: nothing written beyond the checkpoint"
    whole = f"{factor:.2f}x: {units.size(checkpoint.written_bytes)} written for {units.size(checkpoint.unique_bytes)}"
    return "; ".join([whole, *reasons])


def _metadata(metadata: Metadata) -> str:
    counts = (
        ("created", metadata.created),
        ("renamed", metadata.renamed),
        ("deleted", metadata.unlinked),
        ("synced", metadata.synced),
    )
    counted = [f"{units.count(number)} {word}" for word, number in counts if number]
    parts = [("at least " if metadata.at_least else "") + ", ".join(counted)] if counted else []
    if metadata.data_call_ns is not None:
        parts.append(f"{units.duration(metadata.data_call_ns)} in write calls")
    return "; ".join(parts) if parts else units.NOT_OBSERVED


def _straggler_facts(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    timed = [(writer.end_ns, writer) for writer in checkpoint.writers if writer.end_ns is not None]
    if len(timed) < 2:
        return []
    first_ns = min(end_ns for end_ns, _ in timed)
    last_ns, last = max(timed, key=lambda pair: pair[0])
    if last_ns - first_ns < _TOGETHER_NS:
        return []
    name = f"{clean(last.comm)} {last.pid}".strip()
    name = name if last.rank is None else f"rank {last.rank} ({name})"
    text = (
        f"{name} finished at {offset_text(last_ns, checkpoint)}, {units.duration(last_ns - first_ns)} after the first"
    )
    return [("Slowest rank" if last.rank is not None else "Slowest process", text)]
