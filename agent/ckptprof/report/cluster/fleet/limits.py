"""`ckptprof fleet limits` for a terminal."""

from __future__ import annotations

from datetime import timezone

from ckptprof import units
from ckptprof.cluster.fleet.limits import LimitRow, Limits, Period
from ckptprof.report.cluster.fleet import sheet
from ckptprof.report.cluster.fleet.sheet import Sheet, Table
from ckptprof.report.table import Cell, Column

_COLUMNS = (
    Column("STORAGE", minimum=12),
    Column("LIMIT"),
    Column("COUNT", right=True),
    Column("LOST", right=True),
    Column("OF ALL", right=True, drop=3),
    Column("MEDIAN", right=True, drop=1),
    Column("RATE", right=True, drop=2),
    Column("GAIN", right=True, drop=4),
    Column("NODES", right=True, drop=6),
    Column("JOBS", right=True, drop=5),
)


def of(told: Limits, zone: timezone) -> Sheet:
    """Return what limited checkpoints on each storage."""
    tables = [
        Table(_COLUMNS, [*map(_row, one.limits)], "No checkpoint.", _title(one, zone) if len(told.periods) > 1 else "")
        for one in told.periods
    ]
    note = "LOST is the time that training lost at most; GAIN is by how much they would be shorter without that limit."
    return Sheet([("Seen", units.plural(told.checkpoints, "checkpoint"))], tables, [note])


def _title(one: Period, zone: timezone) -> str:
    at = one.until_ns if one.since_ns is None else one.since_ns
    before = "Before" if one.since_ns is None else "From"
    return f"{before} {units.stamp(at, zone)} {units.offset_name(zone)}: {units.plural(one.count, 'checkpoint')}"


def _row(one: LimitRow) -> list[Cell]:
    return [
        sheet.text(one.storage),
        sheet.limit(one.limit),
        sheet.count(one.count),
        sheet.seconds(one.lost_seconds),
        sheet.share(one.lost_share),
        sheet.seconds(one.median_seconds),
        sheet.rate(one.bytes_per_second),
        sheet.seconds(one.gain_seconds),
        sheet.count(one.nodes),
        sheet.count(one.jobs),
    ]
