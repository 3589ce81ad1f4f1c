"""One checkpoint for a terminal: its limit, timeline, access pattern and the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone, tzinfo

from ckptprof import figures, units
from ckptprof.model import Checkpoint, DeviceShare, Kind, Level, Pattern, Status, Stream
from ckptprof.report import account, certainty, checkpoint_facts, mount
from ckptprof.report.clean import clean, clean_sentence, named
from ckptprof.report.pictures import chart
from ckptprof.report.rows import KIND_STYLE, LOW_CONFIDENCE, location
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table
from ckptprof.verdicts import Limit

MAX_ROWS = 40  # of streams or writers; a sharded checkpoint has thousands, and --json has them all
_CHART_ROWS = 6
_INDENT = "  "
_BRIEF = (
    "Status", "Risk", "Path", "Time", "Transferred", "Mode", "Page cache", "Durable", "After a crash", "Slowest rank",
    "Slowest process",
)  # fmt: skip
_ENGINE = ("Engine", "nvfs: the driver of GPUDirect Storage, between GPU and storage, without read and write calls")
_LEVELS = {Level.TRACE: "trace (every operation)", Level.POLL: "poll (counters and file positions, sampled)"}


def brief(  # noqa: PLR0913 # as a drawing needs
    checkpoint: Checkpoint, note: str = "", *, width: int, colour: bool, zone: tzinfo, blocks: str = chart.BLOCKS
) -> str:
    """Return limit, cost, remedy and main facts of a checkpoint: about a screen; ends in a newline.

    `note`: for its title; `blocks`: the nine levels of a chart.
    """
    offset = units.fixed_zone(checkpoint.end_ns, zone)
    bars = account.bar_lines(checkpoint, width - len(_INDENT), blocks=blocks, colour=colour)
    brief_facts = [pair for pair in _facts(checkpoint, offset) if pair[0] in _BRIEF]
    brief_facts = [(key, text.partition(": ")[0] if key == "Mode" else text) for key, text in brief_facts]
    unobserved = ", ".join(key.lower() for key, text in brief_facts if text == units.NOT_OBSERVED)
    pairs = [pair for pair in brief_facts if pair[1] != units.NOT_OBSERVED] + [("Not observed", unobserved)] * bool(
        unobserved
    )
    lines = [*_title(checkpoint, width, note, colour=colour), *_first(checkpoint, bars, width, colour=colour)]
    lines += ["", *facts(pairs, width, colour=colour)]
    own = f" {checkpoint.id}" if checkpoint.id else ""
    more = f"`ckptprof show{own} --all` shows the evidence and all details."
    lines += [paint(line, "dim", colour=colour) for line in wrap(more, width)]
    return "\n".join([*lines, ""])


def render(  # noqa: PLR0913 # as a drawing needs
    checkpoint: Checkpoint, note: str = "", *, width: int, colour: bool, zone: tzinfo, blocks: str = chart.BLOCKS
) -> str:
    """Return all facts of a checkpoint as text that ends in a newline; `note` and `blocks` as for `brief`."""
    offset = units.fixed_zone(checkpoint.end_ns, zone)
    inner = width - len(_INDENT)
    sections: list[tuple[str, list[str]]] = [
        ("Where its time went", account.verdict_lines(checkpoint, inner, blocks=blocks, colour=colour)),
        ("Other costs", facts(account.cost_facts(checkpoint), inner, colour=colour)),
        ("Details", facts(_facts(checkpoint, offset), inner, colour=colour)),
        ("Timeline", checkpoint_facts.moments(checkpoint, inner, colour=colour)),
        (
            "Bandwidth over time",
            chart.draw(checkpoint.timeline, inner, _CHART_ROWS, blocks=blocks, colour=colour)
            or wrap("not observed", inner),
        ),
        (
            "Access pattern",
            facts(pattern_facts(checkpoint.pattern), inner, colour=colour) if checkpoint.sent is None else [],
        ),
        (
            "Operation sizes",
            render_table(size_rows(checkpoint.pattern, max(8, inner - 44), blocks[-1]), inner, colour=colour),
        ),
        ("Streams", _streams(checkpoint, inner, colour=colour)),
        ("Readers" if checkpoint.kind is Kind.RESTORE else "Writers", _writers(checkpoint, inner, colour=colour)),
        ("Disks and links during the checkpoint", _devices(checkpoint, inner, colour=colour)),
        ("Mount during the checkpoint", mount.lines(checkpoint, inner, colour=colour)),
        ("Detection signals", _evidence(checkpoint, inner, colour=colour)),
        ("Limitations", account.bullets(checkpoint.limitations, inner)),
    ]
    lines = _title(checkpoint, width, note, colour=colour)
    first = _lead(checkpoint, width, colour=colour)
    lines += ["", *first] if first else []
    for title, body in sections:
        if body:
            lines += ["", paint(title, "bold", colour=colour)]
            lines += [(_INDENT + line).rstrip() for line in body]
    return "\n".join([*lines, ""])


def ending(checkpoint: Checkpoint, *, width: int, colour: bool) -> str:
    """Repeat the first lines, to be printed below a long text; empty for a copy."""
    lines = _lead(checkpoint, width, colour=colour)
    return "\n".join(["", *_title(checkpoint, width, colour=colour), *lines, ""]) if lines else ""


def _first(checkpoint: Checkpoint, bars: list[str], width: int, *, colour: bool) -> list[str]:
    lead, verdict = account.headline_facts(checkpoint), checkpoint.verdict
    if not lead:
        return []
    own = 1 if verdict is None else 2  # the limit, and its sentence where there is one
    accounts = () if verdict is None else account.merge_by_limit(verdict).accounts
    # the bars alone say it where their longest is that of the limit, but not why a save waited for another
    longest = accounts[0].limit if accounts else None
    is_drawn = bars and verdict is not None and longest is verdict.limit is not Limit.PREVIOUS_SAVE
    limit = lead[: 1 if is_drawn else own]
    keys = max(len(key) for key, _ in lead) + len(_INDENT)
    lines = ["", *_painted(checkpoint, facts(limit, width, colour=colour, keys=keys), colour=colour)]
    lines += [_INDENT + line for line in bars]
    return [*lines, *facts(lead[own:], width, colour=colour, keys=keys)]


def _lead(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    return _painted(checkpoint, facts(account.headline_facts(checkpoint), width, colour=colour), colour=colour)


def _painted(checkpoint: Checkpoint, lines: list[str], *, colour: bool) -> list[str]:
    verdict = checkpoint.verdict
    if verdict is None:
        return lines
    named, style = account.limit_title(verdict), "bold" if certainty.is_probable(verdict) else "yellow"
    painted = paint(named, "bold green" if verdict.limit is Limit.NONE else style, colour=colour)
    return [line.replace(named, painted, 1) if i < 2 else line for i, line in enumerate(lines)]


def _title(checkpoint: Checkpoint, width: int, note: str = "", *, colour: bool) -> list[str]:
    name = f"{checkpoint.kind.value.capitalize()} {checkpoint.id or '(not stored)'}"
    parts = [(name, f"bold {KIND_STYLE[checkpoint.kind]}"), (named(checkpoint.job), "")]
    if checkpoint.step is not None:
        parts.append((f"step {checkpoint.step}", ""))
    if checkpoint.framework is not None:
        parts.append((clean(checkpoint.framework), ""))
    if checkpoint.status is Status.INCOMPLETE:
        parts.append(("incomplete", "bold red"))
    if checkpoint.confidence < LOW_CONFIDENCE:
        parts.append(("low confidence that it is a checkpoint", "yellow"))
    parts += [(note, "yellow")] if note else []
    lines = wrap(", ".join(text for text, _ in parts), width)
    for text, style in parts:
        lines = [line.replace(text, paint(text, style, colour=colour), 1) if style else line for line in lines]
    return lines


def _facts(checkpoint: Checkpoint, zone: timezone) -> list[tuple[str, str]]:
    spent_ns = figures.duration_ns(checkpoint)
    speed = figures.rate_bytes_per_second(checkpoint)
    end = units.stamp(checkpoint.end_ns, zone, "%H:%M:%S.%f")[:-3]
    start = units.stamp(checkpoint.start_ns, zone, "%Y-%m-%d %H:%M:%S.%f")[:-3]
    sent = checkpoint.sent
    contents = f" in {units.plural(checkpoint.files, 'file')}"
    if sent is not None:
        parts = f" in {units.plural(sent.parts, 'part')}" if sent.parts else ""
        contents = parts + (f" over {units.plural(sent.connections, 'connection')}" if sent.connections else "")
    transferred = f"{units.size(checkpoint.bytes)}{contents}"
    transferred += f" in {units.duration(spent_ns)}, {units.rate(speed)}" if speed is not None else ""
    if (
        checkpoint_facts.is_transferred_again(checkpoint)
        and checkpoint.kind is Kind.SAVE
        and checkpoint.unique_bytes is not None
    ):
        again = units.size(checkpoint.bytes - checkpoint.unique_bytes)
        reasons = ", ".join(clean(overhead.reason) for overhead in checkpoint.overheads if overhead.reason != "staging")
        transferred += f"; {again} more than once{f' ({reasons})' if reasons else ''}"  # as a copy under a further name
    class_ = checkpoint.pattern.class_
    not_observed = units.NOT_OBSERVED
    own = {
        Kind.SAVE: checkpoint_facts.save_facts(checkpoint, zone),
        Kind.RESTORE: checkpoint_facts.restore_facts(checkpoint),
        Kind.COPY: [],
    }
    return [
        *checkpoint_facts.status(checkpoint),
        ("Path", location(checkpoint) or not_observed),
        ("Time", f"{start} to {end} {units.offset_name(zone)}"),
        ("Transferred", transferred),
        ("Pattern", not_observed if class_ is None else class_.value),
        *([] if checkpoint.kind is Kind.COPY else [("Ranks", units.count(checkpoint.ranks))]),
        *_of_nodes(checkpoint),
        *own[checkpoint.kind],
        ("Confidence", f"{checkpoint.confidence:.2f} that it is a checkpoint"),
        ("Level", _LEVELS[checkpoint.level]),
    ]


def _of_nodes(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    run, place, clock = checkpoint.run, checkpoint.place, checkpoint.clock
    pairs = []
    if run is not None:
        node = "" if run.node is None or run.nodes is None else f", node {run.node + 1} of {run.nodes}"
        otherwise = "" if run.conflict is None else f"; its environment differs: {clean(run.conflict)}"
        pairs.append(("Run", clean(run.key) + node + otherwise))
    if place is not None and place.shared:
        pairs.append(("Place", clean(place.key)))
    if run is not None and clock is not None:
        off = "error bound unknown"
        off = off if clock.bound_ns is None else f"within {units.duration(clock.bound_ns)}"
        unknown = "not synchronised: offset unknown"
        pairs.append(("Clock", f"synchronised, {off}" if clock.synchronised else unknown))
    return pairs


def pattern_facts(pattern: Pattern) -> list[tuple[str, str]]:
    """Return the access pattern: the shares of bytes and operations, and their sizes."""

    def both(by_bytes: float | None, by_operations: float | None) -> str:
        if by_bytes is None and by_operations is None:
            return units.NOT_OBSERVED
        first = "bytes not observed" if by_bytes is None else f"{units.percent(by_bytes)} of bytes"
        last = "operations not observed" if by_operations is None else f"{units.percent(by_operations)} of operations"
        return f"{first}, {last}"

    order, large = units.percent(pattern.order_known_share_bytes), units.percent(pattern.large_share_bytes)
    mean, median = units.size(pattern.mean_operation_bytes), units.size(pattern.median_operation_bytes)
    shares = (pattern.buffered_share_bytes, pattern.direct_share_bytes, pattern.mapped_share_bytes)
    buffered, direct, mapped = map(units.percent, shares)
    return [
        *[_ENGINE] * (pattern.engine is not None),
        ("Order known for", order if pattern.order_known_share_bytes is None else f"{order} of bytes"),
        ("Sequential", both(pattern.sequential_share_bytes, pattern.sequential_share_operations)),
        ("Consecutive", both(pattern.consecutive_share_bytes, pattern.consecutive_share_operations)),
        ("In long runs", large if pattern.large_share_bytes is None else f"{large} of bytes"),
        ("Operations", units.count(pattern.operations)),
        ("Operation size", f"mean {mean}, median {median} (weighted by bytes)"),
        ("Kind of I/O", f"buffered {buffered}, direct {direct}, mapped {mapped}"),
    ]


def size_rows(pattern: Pattern, bar_cells: int = 0, block: str = "") -> list[list[Cell]]:
    """Return a row for each size of operations, with a bar of its bytes; damaged ones are left out."""
    bounds = sorted(
        (int(low), *pair) for low, pair in (pattern.size_histogram or {}).items() if low.isdecimal() and len(pair) == 2
    )
    most = max((transferred for _, _, transferred in bounds), default=0)
    return [
        [
            Cell("SIZE", f"from {units.size(low)}"),
            number("OPERATIONS", operations, units.count),
            number("BYTES", transferred, units.size),
            Cell("", block * (-(-transferred * bar_cells // most) if most else 0), "cyan", drop=1),
        ]
        for low, operations, transferred in bounds
    ]


def streams(checkpoint: Checkpoint, chosen: Sequence[Stream]) -> list[list[Cell]]:
    """Return a row for each of the chosen streams."""
    path = checkpoint.path or ""  # shown above, under Path
    is_file = any(stream.path == path for stream in checkpoint.streams)
    folder = f"{path.rpartition('/')[0] if is_file else path.rstrip('/')}/" if path else ""
    return [
        [
            Cell("AT", checkpoint_facts.offset_text(stream.start_ns, checkpoint), right=True),
            number("DURATION", stream.end_ns - stream.start_ns, units.duration),
            number("BYTES", stream.bytes, units.size),
            number("FILE SIZE", stream.size, units.size, drop=4),
            Cell("PATTERN", stream.class_ and stream.class_.value, drop=2),
            Cell("PROCESS", f"{clean(stream.comm)} {stream.pid}", drop=1, minimum=10),
            Cell("SOURCE", clean(stream.observed_by), drop=3),
            Cell("PATH", clean(stream.path.removeprefix(folder)), minimum=16),
        ]
        for stream in chosen
    ]


def _streams(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    last_ns = checkpoint.moments.last_data_ns
    lines = [
        *render_table(streams(checkpoint, checkpoint.streams[:MAX_ROWS]), width, colour=colour),
        *_rest(len(checkpoint.streams)),
    ]
    if last_ns is None or all(stream.end_ns <= last_ns for stream in checkpoint.streams):
        return lines
    lasts = "A stream ends when its file is synced, closed or renamed; the last byte was written at"
    more = wrap(f"{lasts} {checkpoint_facts.offset_text(last_ns, checkpoint)}.", width)
    return [*lines, *(paint(line, "dim", colour=colour) for line in more)]


def _writers(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    def since(at_ns: int) -> str:
        return checkpoint_facts.offset_text(at_ns, checkpoint)

    rows = [
        [
            number("PID", writer.pid, str),
            Cell("PROGRAM", clean(writer.comm), minimum=12),
            number("RANK", writer.rank, str),
            Cell("ROLE", writer.role and clean(writer.role), optional=True),
            number("BYTES", writer.bytes, units.size),
            number("SHARE", writer.bytes / checkpoint.bytes if checkpoint.bytes > 0 else None, units.percent, drop=1),
            number("FROM", writer.start_ns, since, drop=3, optional=True),
            number("UNTIL", writer.end_ns, since, drop=2, optional=True),
        ]
        for writer in checkpoint.writers[:MAX_ROWS]
    ]
    return render_table(rows, width, colour=colour) + _rest(len(checkpoint.writers))


def _devices(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    from ckptprof.diagnose.context import gather_context  # noqa: PLC0415 # 10 ms, for this table alone

    spent_seconds = (checkpoint.end_ns - checkpoint.start_ns) / 1e9
    has_requests = any(device.requests is not None for device in checkpoint.devices)
    context, rows = gather_context(checkpoint), []
    measured = {one.device: context.busy_of(one) for one in context.measures.devices}  # as the verdict has it
    for device in sorted(checkpoint.devices, key=lambda share: (share.under is None, share.device)):
        busy = None if device.busy_seconds is None or spent_seconds <= 0 else device.busy_seconds / spent_seconds
        busy = measured.get(device.device, busy)
        rows.append(
            [
                Cell("NAME", clean(device.device), minimum=8),
                Cell("KIND", clean(device.kind), drop=2),
                Cell("READ", units.size(device.read_bytes), right=True),
                Cell("WRITTEN", units.size(device.written_bytes), right=True),
                number("BUSY", busy and min(1.0, busy), units.percent),
                *(_requests(device) if has_requests else ()),
                Cell("USED BY", "other data" if device.under is None else clean(device.under), drop=1, minimum=12),
            ]
        )
    return render_table(rows, width, colour=colour)


def _requests(device: DeviceShare) -> list[Cell]:
    return [
        number("REQUESTS", device.requests, units.count, drop=3),
        number("MEAN SIZE", device.mean_request_bytes, units.size, drop=5),
        number("SEQUENTIAL", device.sequential_share_bytes, units.percent, drop=7),
        number("P50", device.latency_p50_seconds, units.latency, drop=6),
        number("P99", device.latency_p99_seconds, units.latency, drop=4),
    ]


def _evidence(checkpoint: Checkpoint, width: int, *, colour: bool) -> list[str]:
    lines = []
    weighed = [item for item in checkpoint.evidence if item.weight or item.name not in checkpoint_facts.REASONS]
    for item in sorted(weighed, key=lambda evidence: -abs(evidence.weight)):
        weight = " " * 5  # for reasons that do not affect the decision
        if item.weight:
            weight = paint(f"{item.weight:+5.1f}", "green" if item.weight > 0 else "red", colour=colour)
        first, *more = wrap(f"{clean(item.name)}: {clean_sentence(item.text)}", width - 7)
        lines += [f"{weight}  {first}", *(" " * 7 + line for line in more)]
    return lines


def _rest(number: int) -> list[str]:
    return [f"and {units.count(number - MAX_ROWS)} more: --json has them all"] if number > MAX_ROWS else []
