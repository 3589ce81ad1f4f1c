"""The memory of jobs at their saves for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

import msgspec

from ckptprof import units
from ckptprof.diagnose.memory import JobMemory, SaveMemory
from ckptprof.measures import JobMemoryMeasure, MemoryMeasure
from ckptprof.model import Watched
from ckptprof.report.clean import named, shorten_end
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table

_JOB_CELLS = 60
_MOST_ROWS = 20
_NOTE = (
    "BEFORE: anonymous memory of the job's processes, the least in the minute before training stopped for the save; "
    "PEAK: at most more until its end; STAYED: more before the next save. SHARED (tmpfs, shared memory; growth), "
    "LOCKED and DIRTY: of the host. USED: of the limit, without page cache. -: not observed."
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
        title = f"Memory of {shorten_end(named(job.job), _JOB_CELLS)} at its saves"
        lines += [*(paint(line, "bold", colour=colour) for line in wrap(title, width))]
        lines += [*facts(_facts(job, zone), width, colour=colour, indent="  "), ""]
        lines += [*render_table([_cells(one) for one in job.saves[-_MOST_ROWS:]], width, colour=colour), ""]
    return "\n".join([*lines, *(paint(line, "dim", colour=colour) for line in wrap(_NOTE, width)), ""])


def _in_use(memory: JobMemoryMeasure) -> str:
    if memory.limit_bytes is None or memory.used_peak_bytes is None:
        return f"limit {units.NOT_OBSERVED}"
    whose = "its cgroup" if memory.is_of_cgroup else "the host"
    return f"at most {units.size(memory.used_peak_bytes)} of {units.size(memory.limit_bytes)} of {whose} in use"


def _facts(job: JobMemory, zone: tzinfo) -> list[tuple[str, str]]:
    last = job.saves[-1]
    pairs = [(f"Save {last.save}", _in_use(last.memory))]
    grows = None if job.growth_bytes is None else f"grows by {units.size(job.growth_bytes)} from save to save"
    if job.killed_ns is not None:
        at = units.stamp(job.killed_ns, units.fixed_zone(job.killed_ns, zone))
        later = units.duration(max(0, job.killed_ns - last.start_ns))
        reason = "" if grows is None else f"; it {grows}"
        return [("Killed", f"{at}, {later} after the start of save {last.save}: no memory left{reason}"), *pairs]
    if grows is None:
        return [*pairs, ("Forecast", "none: it does not grow steadily from save to save")]
    if job.saves_left is None or job.left_bytes is None:
        return [*pairs, ("Forecast", f"{grows}; not killed within 1,000 saves")]
    when = f"killed in about {units.plural(job.saves_left, 'save')}"
    return [*pairs, ("Forecast", f"{when}: {grows}, {units.size(max(0, job.left_bytes))} left")]


def _cells(one: SaveMemory) -> list[Cell]:
    memory, host = one.memory, one.host or MemoryMeasure()
    return [
        number("SAVE", one.save, str),
        number("STEP", one.step, units.count, drop=6, optional=True),
        number("BEFORE", memory.before_bytes, units.size),
        number("PEAK", _more(memory.before_bytes, memory.peak_bytes), _signed),
        number("STAYED", one.stayed_bytes, _signed),
        number("SHARED", _more(host.shared_before_bytes, host.shared_peak_bytes), _signed, drop=3),
        number("LOCKED", host.locked_peak_bytes, units.size, drop=5),
        number("DIRTY", host.dirty_max_bytes, units.size, drop=4),
        number("USED", memory.used_peak_bytes, units.size, drop=1),
        number("LIMIT", memory.limit_bytes, units.size, drop=2),
    ]


def _more(before: int | None, then: int | None) -> int | None:
    return None if before is None or then is None else then - before


def _signed(size_bytes: float) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{units.size(abs(size_bytes))}"
