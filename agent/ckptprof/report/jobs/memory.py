"""The memory of jobs at their saves for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

import msgspec

from ckptprof import units
from ckptprof.diagnose.plan.memory import JobMemory, SaveMemory
from ckptprof.measures import MemoryMeasure
from ckptprof.model import Watched
from ckptprof.report.clean import named, shorten_end
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table

_NOTE = (
    "BEFORE: anonymous memory of the job's processes, the least in the minute before training stopped; TAKES: at most "
    "more until the save ends; STAYS: more before the next. SHARED, LOCKED, DIRTY: of the host. USED: no page cache."
)


class MemoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of jobs at their saves."""

    host: str | None
    watched: Watched
    jobs: tuple[JobMemory, ...]  # one entry for each start of its processes; the one that is killed first before others


def render(jobs: Sequence[JobMemory], *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return the memory of each job as text that ends in a newline."""
    lines: list[str] = []
    for job in jobs:
        lines.append(paint(shorten_end(f"Memory of {named(job.job)} at its saves", width), "bold", colour=colour))
        lines += [*facts(_facts(job, zone), width, colour=colour, indent="  "), ""]
        lines += [*render_table([_cells(one) for one in job.saves], width, colour=colour), ""]
    return "\n".join([*lines, *(paint(line, "dim", colour=colour) for line in wrap(_NOTE, width)), ""])


def _facts(job: JobMemory, zone: tzinfo) -> list[tuple[str, str]]:
    last = job.saves[-1]
    limit, used, size = last.memory.limit_bytes, last.memory.used_peak_bytes, job.growth_bytes
    growth = "not steady, or too slow to matter" if size is None else f"{units.size(size)} from save to save"
    of = f"{units.size(limit)} of {'its cgroup' if last.memory.is_of_cgroup else 'the host'}"
    pairs = [
        (f"Save {last.save}", f"at most {units.size(used)} of {of} in use"),
        ("Growth", growth),
    ]
    if job.killed_ns is not None:
        at = units.stamp(job.killed_ns, units.fixed_zone(job.killed_ns, zone))
        later = units.duration(max(0, job.killed_ns - last.start_ns))
        pairs.append(("Killed", f"{at} for lack of memory, {later} after the start of save {last.save}"))
    elif job.saves_left is not None:
        pairs.append(("Forecast", f"killed in about {units.plural(job.saves_left, 'save')}"))
    return pairs


def _cells(one: SaveMemory) -> list[Cell]:
    memory, host = one.memory, one.host or MemoryMeasure()
    return [
        number("SAVE", one.save, str),
        number("STEP", one.step, units.count, drop=6, optional=True),
        number("BEFORE", memory.before_bytes, units.size),
        number("TAKES", one.taken_bytes, units.size),
        number("STAYS", one.stayed_bytes, units.size),
        number("SHARED", host.shared_peak_bytes, units.size, drop=3),
        number("LOCKED", host.locked_peak_bytes, units.size, drop=5),
        number("DIRTY", host.dirty_max_bytes, units.size, drop=4),
        number("USED", memory.used_peak_bytes, units.size, drop=1),
        number("LIMIT", memory.limit_bytes, units.size, drop=2),
    ]
