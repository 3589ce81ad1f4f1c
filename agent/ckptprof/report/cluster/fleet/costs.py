"""`ckptprof fleet cost` for a terminal."""

from __future__ import annotations

from ckptprof import units
from ckptprof.cluster.fleet.costs import CostRow, Costs
from ckptprof.report.clean import clean, named
from ckptprof.report.cluster.fleet import sheet
from ckptprof.report.cluster.fleet.sheet import Sheet, Table
from ckptprof.report.table import MISSING, Cell, Column

_REST = (
    Column("SAVES", right=True),
    Column("RESTORES", right=True, drop=7),
    Column("NODES", right=True, drop=5),
    Column("BLOCKED", right=True, drop=2),
    Column("GPU TIME", right=True),
    Column("SHARE", right=True),
    Column("A SAVE", right=True, drop=4),
    Column("RATE", right=True, drop=3),
    Column("PER GPU", right=True, drop=8),
    Column("TIER", drop=6),
)


def of(told: Costs) -> Sheet:
    """Return what checkpoints cost."""
    spent = [one.gpu_seconds for one in told.rows if one.gpu_seconds is not None]
    held = [one.stall_seconds for one in told.rows if one.stall_seconds is not None]
    text = f"{units.plural(told.checkpoints, 'checkpoint')} blocked training for {units.seconds(sum(held))}"
    text += f": {units.seconds(sum(spent))} of GPU time" if spent else "; how many GPUs waited is not known"
    unknown = sum(one.stalls_unknown for one in told.rows)
    seen = text if held else f"how long {units.plural(told.checkpoints, 'checkpoint')} blocked training was not seen"
    facts = [("Cost", seen)]
    facts += (
        [("Not seen", f"how long {units.plural(unknown, 'checkpoint')} blocked training")] if unknown and held else []
    )
    facts += _missing(told)
    notes = ["SHARE is of the GPU time that the runs had, of their time where no GPUs are known; SNIA asks for 5 %."]
    table = Table((Column(told.by.upper(), minimum=8), *_REST), [_row(one, told.by) for one in told.rows], "")
    return Sheet(facts, [table], notes)


def _missing(told: Costs) -> list[tuple[str, str]]:
    found = []
    if told.partial:
        lacks = f"{units.plural(told.partial, 'checkpoint')} had nodes that no database tells of"
        found.append(("Missing", f"{lacks}: what these waited is in no figure"))
    if told.waited:
        lacks = f"{units.plural(told.waited, 'checkpoint')} had nodes that only waited"
        found.append(("Missing", f"{lacks}: how long is not known, and in no figure"))
    return found


def _row(one: CostRow, by: str) -> list[Cell]:
    share = one.share if one.gpu_share is None else one.gpu_share
    return [
        Cell(named(one.job if by == "job" and one.job is not None else one.name)),
        sheet.count(one.saves),
        sheet.count(one.restores),
        sheet.count(one.nodes),
        sheet.seconds(one.stall_seconds),
        sheet.seconds(one.gpu_seconds),
        sheet.share(share, "yellow" if one.over_snia else ""),
        sheet.seconds(one.median_save_seconds),
        sheet.rate(one.bytes_per_second),
        sheet.rate(one.bytes_per_second_per_gpu),
        MISSING if one.tier is None else Cell(clean(one.tier)),
    ]
