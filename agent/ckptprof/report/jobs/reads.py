"""Who reads the saves of each job, for a terminal, and its document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timezone, tzinfo
from statistics import median

import msgspec

from ckptprof import units
from ckptprof.diagnose.reads import JobReads, SaveReads
from ckptprof.model import Watched
from ckptprof.report.clean import clean, named, shorten_end
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table

_JOB_CELLS = 60
_READERS = 3  # jobs, named in the total
_LAST = 10  # saves, besides those that were read
_NOTE = (
    "FIRST READ: from the end of the save to its first read; READER: the job of that read. USES: resume: a restart "
    "went on from it; branch: the reader then saved as another job; reread: by the processes that wrote it; read: no "
    "save followed; copy: by a program that does not train. AGE: of the save when its largest file was deleted or "
    "overwritten. -: not observed."
)


class ReadsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Who read which saves."""

    host: str | None
    watched: Watched
    jobs: tuple[JobReads, ...]  # that saved, the one with most unread bytes first


def render(jobs: Sequence[JobReads], *, width: int, colour: bool, zone: tzinfo, whole: bool) -> str:
    """Return the saves of each job, with their readers, as text that ends in a newline."""
    lines = [*wrap(_headline(jobs), width), ""]
    for job in jobs:
        offset = units.fixed_zone(job.saves[-1].saved_ns, zone)
        title = f"Who reads the saves of {shorten_end(named(job.job), _JOB_CELLS)}"
        lines += [*(paint(line, "bold", colour=colour) for line in wrap(title, width))]
        lines += [*facts(_totals(job), width, colour=colour, indent="  "), ""]
        shown = [one for at, one in enumerate(job.saves) if whole or one.reads or at >= len(job.saves) - _LAST]
        lines += [*render_table([_cells(one, offset) for one in shown], width, colour=colour), ""]
        if left_out := len(job.saves) - len(shown):
            lines += [*wrap(f"{units.plural(left_out, 'older save')} without a read: --all lists all.", width), ""]
    return "\n".join([*lines, *(paint(line, "dim", colour=colour) for line in wrap(_NOTE, width)), ""])


def _headline(jobs: Sequence[JobReads]) -> str:
    read, saves = sum(job.read_saves for job in jobs), sum(len(job.saves) for job in jobs)
    total = sum(save.written_bytes for job in jobs for save in job.saves)
    unread = units.size(sum(job.unread_bytes for job in jobs))
    return (
        f"{units.count(read)} of {units.plural(saves, 'save')} read back ({units.percent(read / saves)}); "
        f"{unread} of {units.size(total)} written for saves that no process has read"
    )


def _totals(job: JobReads) -> list[tuple[str, str]]:
    reads = [one for save in job.saves for one in save.reads]
    firsts = [save.reads[0] for save in job.saves if save.reads]
    share = f"{units.count(job.read_saves)} read ({units.percent(job.read_share)})"
    pairs = [("Saves", f"{units.count(len(job.saves))}, {share}")]
    if firsts:
        caches = Counter(one.cache or "unknown cache" for one in firsts)
        delay = units.seconds(median(one.delay_seconds for one in firsts))
        pairs.append(("First read", f"{delay} after the save (median): {_counts(caches)}"))
        jobs = list(dict.fromkeys(one.job for one in reads))
        more = f" and {len(jobs) - _READERS:,} more" if len(jobs) > _READERS else ""
        readers = ", ".join(shorten_end(named(one), _JOB_CELLS) for one in jobs[:_READERS]) + more
        pairs.append(
            ("Reads", f"{units.count(len(reads))}: {_counts(Counter(one.use for one in reads))}; by {readers}")
        )
    unread = len(job.saves) - job.read_saves
    if unread:
        text = f"{units.plural(unread, 'save')}, {units.size(job.unread_bytes)} written"
        ages = [one.age_seconds for one in job.saves if one.age_seconds is not None and not one.reads]
        if ages:
            gone = f"{units.count(job.gone_unread)} gone ({units.size(job.gone_unread_bytes)})"
            text += f"; {gone}, at an age of {units.seconds(median(ages))} (median)"
        pairs.append(("Never read", text))
    return pairs


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{units.count(count)} {name}" for name, count in found.most_common())


def _cells(save: SaveReads, zone: timezone) -> list[Cell]:
    first = save.reads[0] if save.reads else None
    uses = ", ".join(dict.fromkeys(one.use for one in save.reads))
    return [
        number("SAVE", save.save, str),
        number("STEP", save.step, units.count, drop=4, optional=True),
        Cell("SAVED", units.stamp(save.saved_ns, zone), drop=5),
        number("READS", len(save.reads), units.count),
        number("FIRST READ", None if first is None else first.delay_seconds, units.seconds),
        Cell("CACHE", None if first is None else first.cache, drop=3),
        Cell("READER", None if first is None else named(first.job), minimum=12, cut=shorten_end, drop=2),
        Cell("USES", uses or None, drop=1),
        Cell("GONE", save.gone),
        number("AGE", save.age_seconds, units.seconds),
        Cell("PATH", None if save.path is None else clean(save.path), minimum=12, drop=6),
    ]
