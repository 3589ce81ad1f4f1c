"""A plan for a terminal: the recommendation, its inputs, a comparison of rules, and the storage required.

Also what the restarts cost that a plan has to reckon with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone, tzinfo

import msgspec

from ckptprof import units
from ckptprof.diagnose.plan import lasting
from ckptprof.diagnose.plan.basis import Origin, SourcedFigure, is_measured
from ckptprof.diagnose.plan.checkpoint_plan import (
    Advice,
    CheckpointPlan,
    IntervalRule,
    StorageDemand,
)
from ckptprof.diagnose.plan.notice import Notice
from ckptprof.diagnose.restarts import JobRestarts, MonthOfRestarts, Restart
from ckptprof.model import Watched
from ckptprof.report import account
from ckptprof.report.clean import clean, named, shorten_end
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table

_INDENT = "  "
_RULES_TITLE = (
    "Rules (M: time between failures, C: cost of a save, R: recovery, T: interval; STALL: share of T, REDONE and LOST: "
    "share of the whole time)"
)
_ENOUGH_FOR_P99 = 100  # saves; of fewer it is the slowest
_SAME_INTERVAL = 0.1  # of an interval: rules that differ by less say the same

_JOB_CELLS = 60
_RESTARTS_NOTE = (
    "REDONE: training since the save that the job went on from. DOWN: from the last sign of life of the job to the "
    "first step; WAITING until the next process, START-UP until it restores, WARM-UP until the first step, which is "
    "worked out from the steps of the next save. -: not observed."
)
_OVER_NOTE = "STEP 0: from no save, it started over."
_GAP_NOTE = "*: nothing was recorded for a part of WAITING; the job may have ended later."


class RestartsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What restarts cost."""

    host: str | None
    watched: Watched
    jobs: tuple[JobRestarts, ...]  # that were restarted, the one that lost most first


def render(plan: CheckpointPlan, *, width: int, colour: bool) -> str:
    """Return the plan as text that ends in a newline."""
    inner = width - len(_INDENT)
    sections = [("Inputs", facts(_basis(plan), inner, colour=colour))]
    if plan.advice is None:
        advice = [("Save every", f"unknown: {clean(plan.missing or units.NOT_OBSERVED)}")]
    else:
        advice = _advice(plan, plan.advice)
        sections += [
            ("Failures, as published", _rates(plan, inner, colour=colour)),
            (_RULES_TITLE, _rules(plan, inner, colour=colour)),
            ("Storage", facts(_storage(plan), inner, colour=colour)),
            ("Storage tiers (DGX, sync save)", _tiers(plan, inner, colour=colour) if _has_gpus(plan) else []),
            ("Notes", account.bullets(plan.notes, inner)),
        ]
    if plan.notice is not None:
        advice.append(("Notice", _notice(plan.notice)))
    lines = facts(advice, width, colour=colour)
    for title, body in sections:
        if body:
            lines += ["", *(paint(line, "bold", colour=colour) for line in wrap(title, width))]
            lines += [_INDENT + line for line in body]
    return "\n".join([*lines, ""])


def _advice(plan: CheckpointPlan, advice: Advice) -> list[tuple[str, str]]:
    steps = "" if advice.steps is None else f", which is every {units.plural(advice.steps, 'step')}"
    pairs = [("Save every", _seconds(advice.interval_seconds) + steps), ("Reason", clean(advice.reason))]
    if advice.good_from_seconds is not None and advice.good_until_seconds is not None:
        span = f"{_seconds(advice.good_from_seconds)} to {_seconds(advice.good_until_seconds)}"
        pairs.append(("As good", f"{span}: at most 0.5 % more time lost"))
    if advice.losses is not None:
        lost = advice.losses
        parts = f"{_share(lost.stall_share)} blocked by saves, "
        parts += f"{_share(lost.redone_share)} redone after failures, "
        parts += f"{_share(lost.restart_share)} in restarts"
        price = advice.lost_price_per_day
        if price is not None:
            parts += f"; a price of {price:,.0f} a day, {30 * price:,.0f} a month"
        pairs.append(("Time lost", f"{_share(lost.lost_share)}: {parts}"))
    if plan.basis.interval is not None:
        pairs.append(("Today", _today(plan, advice, plan.basis.interval)))
    return pairs


def _notice(notice: Notice) -> str:
    slowest = "the slowest" if notice.saves < _ENOUGH_FOR_P99 else "99 %"
    of = f"{slowest} of {units.plural(notice.saves, 'save')} recorded" if notice.saves else "a save"
    step = f", the step under way included ({_seconds(notice.step_seconds)})" if notice.step_seconds else ""
    is_enough = notice.needed_seconds <= notice.notice_seconds
    text = f"{_seconds(notice.notice_seconds)} {'is enough' if is_enough else 'is too short'}: {of} "
    text += (
        f"{'is' if notice.saves < _ENOUGH_FOR_P99 else 'are'} complete after {_seconds(notice.needed_seconds)}{step}"
    )
    if notice.saves and not is_enough:
        text += f"; {notice.in_time:,} of {notice.saves:,} would be in time"
    if notice.restarts:
        of = f"{notice.saved_in_notice:,} of {units.plural(notice.restarts, 'recorded restart')}"
        text += f"; {of} went on from a save of the last {_seconds(notice.notice_seconds)} before the end"
    return text


def _rates(plan: CheckpointPlan, width: int, *, colour: bool) -> list[str]:
    rows = [
        [
            number("GPU-HOURS", 100 * round(rate.published.gpu_hours / 100), units.count),
            number("FAILURE", rate.mttf_seconds, _seconds),
            number("SAVE EVERY", rate.interval_seconds, _seconds),
            number("LOST", rate.lost_share, _share, drop=1, optional=True),
            Cell("SOURCE", rate.published.source, minimum=20, cut=shorten_end),
        ]
        for rate in plan.rates
    ]
    return render_table(rows, width, colour=colour)


def _today(plan: CheckpointPlan, advice: Advice, interval: SourcedFigure) -> str:
    text = f"every {_seconds(interval.value)} ({_origin(interval)})"
    lost, gained = advice.lost_today_share, advice.gained_gpu_hours_per_day
    if plan.basis.cost is None:
        return text
    if lost is None:
        return f"{text}: impossible, a save blocks training for {_seconds(plan.basis.cost.value)}"
    text += f": {_share(lost)} lost"
    good_from, good_until = advice.good_from_seconds, advice.good_until_seconds
    if good_from is not None and good_until is not None and good_from <= interval.value <= good_until:
        return f"{text}; as good, no change needed"
    if gained is not None and gained > 0 and _has_gpus(plan):
        hours = f"{gained:,.3g}" if gained < 999.5 else f"{gained:,.0f}"
        text += f"; the recommended interval saves {hours} GPU-hours a day"
    return text


def _basis(plan: CheckpointPlan) -> list[tuple[str, str]]:
    basis = plan.basis
    pairs = []
    if plan.job is not None:
        pairs.append(("Job", f"{clean(plan.job)}, {units.plural(plan.saves, 'complete save')} recorded"))
    if basis.gpus is not None:
        pairs.append(("GPUs", f"{basis.gpus.value:,.0f} ({_origin(basis.gpus)})"))
    if plan.advice is not None or basis.mttf.origin is not Origin.ASSUMED:
        pairs.append(("Failure every", f"{_seconds(basis.mttf.value)} ({_origin(basis.mttf)})"))
    if basis.size is not None:
        pairs.append(("Checkpoint size", f"{units.size(basis.size.value)} ({_origin(basis.size)})"))
    rest = (
        ("Save blocks training", basis.cost),
        ("Save written after", basis.duration),
        ("Restart", basis.restart),
        ("Restore", basis.restore),
        ("Step", basis.step),
    )
    pairs += [(title, f"{_seconds(figure.value)} ({_origin(figure)})") for title, figure in rest if figure is not None]
    unknown = [title.lower() for title, figure in (("Size", basis.size), ("Cost of a save", basis.cost)) if not figure]
    return [*pairs, ("Unknown", ", ".join(unknown))] if unknown else pairs


def _rules(plan: CheckpointPlan, width: int, *, colour: bool) -> list[str]:
    rows = []
    for rule, names in _merge_similar(plan.rules):
        style = "bold green" if rule.advised else ""
        saves = rule.saves_per_day
        a_day = units.count(round(saves)) if saves >= 1 else f"{saves:.2f}" if saves >= 0.01 else "<0.01"
        is_possible = rule.stall_share is None or rule.stall_share < 1
        rows.append(
            [
                Cell("RULE", ("> " if rule.advised else "  ") + clean(names), style),
                number("INTERVAL", rule.interval_seconds, _seconds, style),
                Cell("A DAY", a_day, right=True, drop=3),
                number("STALL", rule.stall_share, _share, drop=1)
                if is_possible
                else Cell("STALL", "too short", "red", right=True, drop=1),
                number("REDONE", rule.redone_share, _share, drop=2),
                number("LOST", rule.lost_share, _share, style),
                Cell("FORMULA", clean(rule.source), drop=4, minimum=28, cut=shorten_end),
            ]
        )
    return render_table(rows, width, colour=colour)


def _merge_similar(rules: tuple[IntervalRule, ...]) -> list[tuple[IntervalRule, str]]:
    groups: list[list[IntervalRule]] = []
    for rule in rules:
        same = (one for one in groups if abs(one[0].interval_seconds / rule.interval_seconds - 1) <= _SAME_INTERVAL)
        mine = next(same, None)
        groups.append([rule]) if mine is None else mine.append(rule)
    merged = []
    for group in groups:
        names = [one.name.replace(", ", " ") for one in group]
        merged.append((next((one for one in group if one.advised), group[0]), ", ".join(dict.fromkeys(names))))
    return merged


def _storage(plan: CheckpointPlan) -> list[tuple[str, str]]:
    traffic = plan.traffic
    if traffic is None:
        return []
    saves = next((rule.saves_per_day for rule in plan.rules if rule.advised), None)
    a_day = "" if saves is None or saves < 1 else f" in {units.plural(round(saves), 'save')}"
    average = units.rate(traffic.average_bytes_per_second)
    within = f"to finish within {_seconds(traffic.burst_seconds)}, 5 % of the interval"
    burst = f"{units.rate(traffic.burst_bytes_per_second)} {within}"
    if traffic.burst_bytes_per_second_per_gpu is not None and _has_gpus(plan):
        tier = f"tier {traffic.needed_tier} is enough" if traffic.needed_tier is not None else "more than tier High"
        burst += f"; {units.rate(traffic.burst_bytes_per_second_per_gpu)} per GPU: {tier}"
    pairs = [("Per day", f"{units.size(traffic.bytes_per_day)}{a_day}, {average} on average"), ("While saving", burst)]
    if traffic.measured_bytes_per_second is not None:
        speed_text = _speed(plan, traffic.measured_bytes_per_second, traffic)
        pairs.append(("Now" if is_measured(plan.basis.duration) else "As given", speed_text))
    one, size = traffic.published, plan.basis.size
    if one is not None and size is not None:
        offered = f"{one.model} is written at {units.rate(one.bytes_per_second)} (median of MLPerf Storage v3.0, 2026)"
        taken = f"this one in {_seconds(size.value / one.bytes_per_second)}"
        pairs.append(("In the field", f"{offered}, {taken}; 85,000 saves needed well below 1 TB/s (VAST, 2025)"))
    return [*pairs, *_filling(plan), *_entries(plan), *_wear(plan)]


def _has_gpus(plan: CheckpointPlan) -> bool:
    """Check that the number of GPUs is not just guessed from ranks, which may have none: tiers are per GPU."""
    return plan.basis.gpus is not None and plan.basis.gpus.origin is not Origin.ASSUMED


def _speed(plan: CheckpointPlan, speed: float, traffic: StorageDemand) -> str:
    missing = traffic.burst_bytes_per_second / speed
    verdict = "fast enough" if missing <= 1.005 else f"{missing:,.3g} times this rate is needed"
    own = is_measured(plan.basis.duration) and is_measured(plan.basis.size)
    of = "median rate of the saves" if own else "size divided by the duration of a save"
    text = f"{units.rate(speed)}, {of}: {verdict}"
    if plan.basis.gpus is None or not _has_gpus(plan):
        return text
    tier = f"reaches tier {traffic.reached_tier}" if traffic.reached_tier is not None else "slower than tier Light"
    return f"{text}; {units.rate(speed / plan.basis.gpus.value)} per GPU: {tier}"


def _filling(plan: CheckpointPlan) -> list[tuple[str, str]]:
    filling = plan.filling
    if filling is None:
        return []
    free = f"{units.size(filling.free_bytes)} free, enough for {units.plural(filling.fitting, 'checkpoint')}"
    if filling.retain is not None and filling.retained_bytes is not None:
        needed = units.size(filling.retained_bytes)
        free += f"; {units.count(filling.retain)} retained and one being written need {needed}"
    if filling.full_after_seconds is None:
        return [("Directory", f"{free}: this job never fills it")]
    if not filling.fitting:
        return [("Directory", f"{units.size(filling.free_bytes)} free: not enough for one checkpoint")]
    days = filling.full_after_seconds / units.DAY_SECONDS
    after = f"{days:,.1f} days" if days >= 2 else _seconds(filling.full_after_seconds)
    return [("Directory", f"{free}: full after {after}, when the next save does not fit")]


def _entries(plan: CheckpointPlan) -> list[tuple[str, str]]:
    if plan.entries is None:
        return []
    files, after = plan.entries.files, plan.entries.many_after_seconds
    text = f"{units.plural(files, 'file')} in one save at most"
    if files > lasting.MANY_ENTRIES:
        text += "; more than 100,000 in one directory slow file systems down (WEKA)"
    elif after is not None:
        days = after / units.DAY_SECONDS
        text += f"; 100,000 saves side by side, from which file systems slow down (WEKA), after {days:,.0f} days"
    return [("Entries", text)]


def _wear(plan: CheckpointPlan) -> list[tuple[str, str]]:
    if plan.wear is None:
        return []
    writes, size = f"{plan.wear.drive_writes_per_day:,.3g}", units.size(plan.wear.capacity_bytes)
    years = f"{plan.wear.years:,.3g} years"
    rated = "drives rated for 1 a day over 5 years (assumed)"
    if plan.wear.years >= lasting.RATED_YEARS:
        return [("Endurance", f"{writes} drive writes a day of {size}: {rated} are enough for {years}")]
    return [("Endurance", f"{writes} drive writes a day of {size}: {rated} are worn out after {years}")]


def _tiers(plan: CheckpointPlan, width: int, *, colour: bool) -> list[str]:
    rows = [
        [
            Cell("TIER", tier.name),
            number("GPU WRITE", tier.write_bytes_per_second_per_gpu, units.rate),
            number("GPU READ", tier.read_bytes_per_second_per_gpu, units.rate, drop=1),
            number("SAVE", tier.save_seconds, _seconds),
            number("RESTORE", tier.restore_seconds, _seconds),
        ]
        for tier in plan.tiers
    ]
    return render_table(rows, width, colour=colour)


def _origin(figure: SourcedFigure) -> str:
    text = f": {clean(figure.text)}" if figure.text else ""
    return f"{figure.origin.value}{text}"


def _share(share: float) -> str:
    return units.percent(round(share, 6) or share)  # it does not end in .0 by chance of floats


def _seconds(value: float) -> str:
    return units.duration(value * units.NS)


def render_restarts(jobs: Sequence[JobRestarts], *, width: int, colour: bool, zone: tzinfo) -> str:
    """Return the restarts of each job as text that ends in a newline."""
    lines: list[str] = []
    for job in jobs:
        offset = units.fixed_zone(job.restarts[-1].seen_ns, zone)
        title = f"What restarts cost {shorten_end(named(job.job), _JOB_CELLS)}"
        lines += [*(paint(line, "bold", colour=colour) for line in wrap(title, width))]
        lines += [*facts(_totals(job), width, colour=colour, indent="  "), ""]
        lines += [*render_table([_restart_cells(one, offset) for one in job.restarts], width, colour=colour), ""]
        if len(job.months) > 1:
            lines += [*render_table([_month_cells(one) for one in job.months], width, colour=colour), ""]
    every = [one for job in jobs for one in job.restarts]
    notes = [_RESTARTS_NOTE, *[_OVER_NOTE] * any(one.save is None for one in every)]
    notes += [_GAP_NOTE] * any(one.in_gap for one in every)
    return "\n".join([*lines, *(paint(line, "dim", colour=colour) for note in notes for line in wrap(note, width)), ""])


def _totals(job: JobRestarts) -> list[tuple[str, str]]:
    number_of, known = len(job.restarts), sum(one.ended_ns is not None for one in job.restarts)
    pairs = [("Restarts", f"{units.count(number_of)} in {units.seconds(job.observed_seconds)}, planned ones included")]
    if known < number_of:
        pairs.append(("Unknown", f"when the job ended before {units.count(number_of - known)} of them"))
    if known:
        each = f"; {units.seconds((job.redone_seconds + job.down_seconds) / known)} each" if known > 1 else ""
        redone, down = units.seconds(job.redone_seconds), units.seconds(job.down_seconds)
        pairs.append(("Lost", f"{redone} of training redone, {down} without training{each}"))
    if job.used_share is not None:
        blocked = f"saves blocked {units.seconds(job.blocked_seconds)}"
        pairs.append(("Used well", f"{units.percent(job.used_share)} of the time; {blocked}"))
    return pairs


def _restart_cells(one: Restart, zone: timezone) -> list[Cell]:
    ended = None if one.ended_ns is None else units.stamp(one.ended_ns, zone) + "*" * one.in_gap
    return [
        Cell("ENDED", ended),
        number("REDONE", one.redone_seconds, units.seconds),
        number("DOWN", one.down_seconds, units.seconds),
        number("WAITING", one.waiting_seconds, units.seconds, drop=1),
        number("START-UP", one.starting_seconds, units.seconds, drop=2),
        number("RESTORE", one.restoring_seconds, units.seconds, drop=3),
        number("WARM-UP", one.warming_seconds, units.seconds, drop=4),
        number("FROM SAVE", one.save, str, drop=5),
        number("STEP", one.step, units.count, drop=6, optional=True),
    ]


def _month_cells(one: MonthOfRestarts) -> list[Cell]:
    return [
        Cell("MONTH", one.month),
        number("RESTARTS", one.restarts, units.count),
        number("REDONE", one.redone_seconds, units.seconds),
        number("DOWN", one.down_seconds, units.seconds),
    ]
