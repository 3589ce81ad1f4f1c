"""The screen of `ckptprof live`: a state as lines, for any size of terminal.

A value that was not observed is `-`. Progress is estimated from the previous checkpoint, so it has a `~`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone, tzinfo
from typing import Any

import msgspec

from ckptprof import units
from ckptprof.diagnose.job_costs import job_costs
from ckptprof.model import Kind, Point, Report, Watched
from ckptprof.report import certainty, rows
from ckptprof.report.clean import ELLIPSIS, clean, named, pad, shorten_end, width
from ckptprof.report.live.state import Device, State, Underway
from ckptprof.report.outliers import find_outliers
from ckptprof.report.pictures import colours, overview
from ckptprof.report.pictures.chart import ASCII_BLOCKS, BLOCKS, draw
from ckptprof.report.summary import summarise
from ckptprof.report.table import GAP, Cell, facts, number, paint, render, wrap
from ckptprof.report.terminal import texts_of_saves

KEYS = "q quit  \N{UPWARDS ARROW}\N{DOWNWARDS ARROW} choose  enter show  s sort  f freeze"
_GUTTER = 2  # cells before each line, for the mark of the chosen one
_RESERVED_LINES = 6  # lines reserved for the newest checkpoints, if the screen has them,
_LAST_LINES = 10  # and before anything is drawn
_LEAST_CHART = 3  # lines; at most half of the screen
_KEY_CELLS, _LEAST_CELLS = 10, 50  # of what is drawn
_LATEST = 30  # samples beside a device
_BAR = 12  # cells of a progress
_QUIET_NS = 2_000_000_000  # without I/O: what is shown is about a second old,
_STALE_SHARE = 8  # or an eighth of the age of the checkpoint: a long one is evaluated less often
_ASCII = str.maketrans(
    f"{BLOCKS}▓░─│└┴·{ELLIPSIS}\N{UPWARDS ARROW}\N{DOWNWARDS ARROW}", f"{ASCII_BLOCKS[:-1]}#%,-|++.~jk"
)
_LINKS = ("nic", "rdma")


@dataclass(frozen=True)
class ScreenOptions:
    """How to draw a state."""

    width: int
    height: int
    zone: tzinfo
    chosen: str | None = None  # the uid of a checkpoint
    colour: bool = False
    unicode: bool = True
    recent: Mapping[str, Sequence[Point]] = field(default_factory=dict)  # bytes of each device, the newest last


def frame(state: State, options: ScreenOptions) -> list[str]:
    """Return the screen: at most `height` lines of at most `width` cells."""
    if not options.unicode:
        state = _plain(state)
    cells = max(1, options.width - _GUTTER)
    zone = units.fixed_zone(state.at_ns, options.zone)
    head = [*_head(state, zone, cells), *(shorten_end(clean(note), cells) for note in state.notes)]
    going_on = _in_progress(state, cells, options)
    # the newest checkpoints keep some lines: devices with least traffic are dropped first
    free = options.height - len(head) - len(going_on) - _RESERVED_LINES - 4
    devices = _devices(state, cells, max(0, free), options)
    above = [*head, *([""] if going_on else []), *going_on, *([""] if devices else []), *devices]
    above += _over_time(state, cells, options.height - len(above) - min(len(state.last) + 4, _LAST_LINES + 2), options)
    last = _last(state, zone, options.height - len(above) - 2, options)
    lines = [" " * _GUTTER + line if line else "" for line in above] + ([""] if last else []) + last
    keys = " " * _GUTTER + paint(shorten_end(KEYS, cells), "dim", colour=options.colour)
    lines = [*lines[: max(0, options.height - 1)], keys][: options.height]
    return lines if options.unicode else [line.translate(_ASCII) for line in lines]


def _head(state: State, zone: timezone, cells: int) -> list[str]:
    host = clean(state.host) if state.host is not None else "unknown host"
    parts = [f"ckptprof live on {host}"]
    parts += [f"level {clean(state.level)}"] if state.level is not None else []
    if state.since_ns is not None:
        parts.append(f"watched for {units.duration(state.at_ns - state.since_ns)}")
    parts += [f"lost {units.count(state.dropped_frames)} samples"] if state.dropped_frames else []
    now = f"{units.stamp(state.at_ns, zone)} {units.offset_name(zone)}"
    first = shorten_end(parts[0], cells)
    for part in parts[1:]:
        if width(first) + 3 + width(part) > cells:
            break
        first += f"   {part}"
    if cells - width(first) - len(GAP) >= width(now):
        first = pad(first, cells - width(now)) + now
    return [first]


def _in_progress(state: State, cells: int, options: ScreenOptions) -> list[str]:
    if not state.underway:
        text = f"no save or restore in progress{_next_save(state)}" if state.level is not None else ""  # not known
        return [paint(shorten_end(text, cells), "dim", colour=options.colour)] if text else []
    most = max(1, options.height // 3)
    drawn = [_progress_row(one, state.at_ns) for one in state.underway[:most]]
    lines = render(drawn, cells, colour=options.colour)
    more = len(state.underway) - most
    lines += [shorten_end(f"and {units.count(more)} more", cells)] if more > 0 else []
    for one in state.underway[:most]:
        if one.hung is not None:
            text = f"{named(one.job)} hangs: {clean(one.hung)}"
            lines += [paint(line, "red", colour=options.colour) for line in wrap(text, cells)]
    partial = [(one.job, one.so_far) for one in state.underway[:most] if one.so_far is not None]
    for job, so_far in partial[: max(0, most - len(drawn))]:
        spent = (f"{units.seconds(one.seconds)} {clean(one.text)}" for one in so_far.accounts)
        line = "   ".join([f"{named(job)}: {units.seconds(so_far.seconds)} so far", *spent])
        lines.append(paint(shorten_end(line, cells), "dim", colour=options.colour))
    return lines


def _next_save(state: State) -> str:
    """Return when the newest job saves again, by its usual interval; empty if that is not known."""
    cost = next((one for one in job_costs(state.last) if one.job == state.last[0].job), None)
    saves = [one.start_ns for one in state.last if cost is not None and one.job == cost.job and one.kind is Kind.SAVE]
    if state.level is None or cost is None or cost.interval_seconds is None or not saves:
        return ""
    due = (max(saves) - state.at_ns) / 1e9 + cost.interval_seconds
    when = f"in {units.seconds(due)}" if due > 0 else f"{units.seconds(-due)} late"
    return f"; {named(cost.job)}: next save {when} (usually every {units.seconds(cost.interval_seconds)})"


def _over_time(state: State, cells: int, most: int, options: ScreenOptions) -> list[str]:
    """Return the stalls, and the rate of the device with most traffic, over time: what fits into `most` lines."""
    if cells < _LEAST_CELLS:
        return []
    report = Report(host=state.host, watched=Watched(start_ns=None, end_ns=state.at_ns), checkpoints=state.last)
    texts = texts_of_saves(summarise(report))
    costs = job_costs(state.last, report.watched)
    drawn = overview.lines(report, costs, texts, cells, _KEY_CELLS, colour=options.colour)
    lines = ["", *drawn] if drawn and len(drawn) < most else []
    slow = [("Slowest", f"{one.sentence}; see `ckptprof show {one.id}`") for one in find_outliers(state.last)[:1]]
    lines += facts(slow, cells, colour=options.colour, keys=_KEY_CELLS) if lines else []
    name = max(options.recent, key=lambda one: sum(point.bytes for point in options.recent[one]), default="")
    height = min(options.height // 2, most - len(lines) - 4)
    if height >= _LEAST_CHART and (chart := draw(options.recent.get(name, ()), cells, height, colour=options.colour)):
        lines += [
            "",
            paint(shorten_end(f"{clean(name)}, from the first sample on", cells), "bold", colour=options.colour),
        ]
        lines += chart
    return lines


def _progress_row(one: Underway, now_ns: int) -> list[Cell]:
    spent_ns, quiet_ns = max(0, one.last_ns - one.start_ns), now_ns - one.last_ns
    share = None if not one.usual_bytes else min(1.0, one.bytes / one.usual_bytes)
    is_quiet = quiet_ns >= max(_QUIET_NS, spent_ns // _STALE_SHARE)
    full = 0 if share is None else int(share * _BAR)
    likely = certainty.short_limit(one.so_far) if quiet_ns <= spent_ns else None  # of the time before the quiet
    return [
        Cell("NOW", named(one.job), "bold", cut=shorten_end, minimum=8),
        Cell("KIND", one.kind.value, rows.KIND_STYLE[one.kind], drop=2),
        number("STEP", one.step, str, drop=3, optional=True),
        Cell("FRAMEWORK", one.framework and clean(one.framework), drop=9, optional=True),
        number("RANKS", one.ranks, units.count, drop=5, optional=True),
        number("SO FAR", one.bytes, units.size),
        Cell("OF", None if share is None else f"~{share * 100:.0f} %", right=True, drop=1, optional=True),
        Cell("PROGRESS", None if share is None else "█" * full + "·" * (_BAR - full), "cyan", drop=8, optional=True),
        number("RATE", units.speed(one.bytes, spent_ns), units.rate, drop=5, optional=True),
        number("ELAPSED", spent_ns, units.duration),
        number("IDLE", quiet_ns if is_quiet else None, units.duration, drop=4, optional=True),
        number("BLOCKED", one.stall_ns, units.duration, "yellow", drop=6, optional=True),
        Cell("LIKELY", likely, colours.verdict_style(one.so_far), drop=2, optional=True),
        Cell("MOST BY", one.largest_writer and clean(one.largest_writer), drop=9, optional=True),
        Cell("PATH", one.path and clean(one.path), drop=7, minimum=11, optional=True),
    ]


def _devices(state: State, cells: int, most: int, options: ScreenOptions) -> list[str]:
    ordered = sorted(state.devices, key=lambda one: (one.kind in _LINKS, -(total_rate(one) or 0.0), one.name))
    busy = [one for one in ordered if total_rate(one)] or ordered
    if most < 2 or not busy:
        return []
    return render([_device(one, options) for one in busy[: most - 1]], cells, colour=options.colour)


def total_rate(device: Device) -> float | None:
    """Return the bytes per second of a device in both directions; None if neither was observed."""
    known = [one for one in (device.read_bytes_per_second, device.written_bytes_per_second) if one is not None]
    return sum(known) if known else None


def _device(one: Device, options: ScreenOptions) -> list[Cell]:
    busy = None if one.busy_share is None else round(one.busy_share, 2)
    speeds = [point.bytes / (point.end_ns - point.start_ns) for point in options.recent.get(one.name, ())]
    top = max(speeds, default=0.0)
    line = "".join(BLOCKS[math.ceil(speed / top * 8)] for speed in speeds[-_LATEST:]) if top else None
    return [
        Cell("NAME", clean(one.name), cut=shorten_end, minimum=6),
        number("WRITTEN", one.written_bytes_per_second, units.rate, optional=True),
        number("READ", one.read_bytes_per_second, units.rate, drop=1, optional=True),
        number("BUSY", busy, units.percent, drop=2, optional=True),
        Cell("RECENT", line, "cyan", drop=4, optional=True),
    ]


def _last(state: State, zone: timezone, lines: int, options: ScreenOptions) -> list[str]:
    if lines < 2 or not state.last:
        return []
    report = Report(host=state.host, watched=Watched(start_ns=None, end_ns=state.at_ns), checkpoints=state.last)
    place = next((i for i, one in enumerate(state.last) if one.uid == options.chosen), 0)
    lines -= len(state.last) >= lines  # for the number of the others
    first = max(0, place - lines + 2)
    shown = state.last[first : first + lines - 1]
    older = state.last[first + len(shown) :]
    chosen = replace(rows.select_rows(report, whole=True), checkpoints=shown)
    drawn = rows.draw(report, chosen, zone, max(1, options.width - _GUTTER), colour=options.colour)
    marks = ["  ", *("> " if one.uid == options.chosen else "  " for one in shown)]
    marks += ["  "] * (len(drawn) - len(marks))
    drawn = [(mark + line).rstrip() for mark, line in zip(marks, drawn, strict=True)][:lines]
    slow = ", ".join(str(one.id) for one in older if one.uid in chosen.slow)
    text = f"  and {units.count(len(older))} more" + f", outliers among them: {slow}" * bool(slow)
    return [*drawn, *([shorten_end(text, options.width)] if older else [])]


def _plain(value: Any) -> Any:
    if type(value) is str:
        return clean(value).encode("ascii", "backslashreplace").decode()
    if type(value) is tuple:
        return tuple(map(_plain, value))
    if isinstance(value, msgspec.Struct):
        fields = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value
