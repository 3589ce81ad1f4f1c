"""The answer that opens a report, what to do first, and the cost of checkpoints for each job.

The diagnosis is imported where it is used: `--help` of a command does not need its rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from ckptprof import units
from ckptprof.model import LATE, Checkpoint, Kind, Report, Watched
from ckptprof.report import account, certainty, checkpoint_facts
from ckptprof.report.clean import NAMELESS, clean, clean_sentence, named, shorten_end
from ckptprof.report.outliers import Outlier, find_outliers
from ckptprof.report.summary import ordered
from ckptprof.report.table import facts, paint, wrap
from ckptprof.verdicts import Cost, DirectionCost, Headline, JobCost, Limit

MAX_JOBS = 5  # jobs whose costs are listed; --json has all
_JOB_CELLS = 60
_SAMPLES_PER_SECOND = 10
_MIN_LOST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """The conclusions from all checkpoints of a report."""

    headline: Headline | None  # what limited most of the lost time
    costs: tuple[JobCost, ...]  # of each job, the dearest first
    outliers: tuple[Outlier, ...]  # the one first that exceeds its median by most
    opening: tuple[tuple[str, str], ...]  # lateness, the answer, the outlier and what to do first, in words


def conclude(report: Report, others: Sequence[Checkpoint] = ()) -> ReportAnswer:
    """Return the first advice, the cost of checkpoints for each job, and warnings; `others` as for outliers."""
    from ckptprof.diagnose.advice import first_advice  # noqa: PLC0415 # see above
    from ckptprof.diagnose.job_costs import job_costs  # noqa: PLC0415 # see above

    costs = job_costs(report.checkpoints, report.watched)
    found = first_advice(report.checkpoints)
    if found is not None and found.limit is Limit.NONE:
        found = msgspec.structs.replace(found, **{"remedy": None, **_advise_fewer_saves(costs)})
    outliers = find_outliers(report.checkpoints, others)
    opening = _opening(report.checkpoints, found, outliers, report.watched)
    return ReportAnswer(found, costs, outliers, (*_late(report.checkpoints), *opening))


def with_gpus(report: Report, gpus: int | None) -> Report:
    """Recalculate the cost of each checkpoint for this number of GPUs; None leaves the report as it is."""
    if gpus is None:
        return report
    from ckptprof.diagnose import tiers  # noqa: PLC0415 # see above

    updated = []
    for one in report.checkpoints:
        known = one.cost if one.cost is not None else Cost()
        each = None if known.bytes_per_second is None else known.bytes_per_second / gpus
        cost = msgspec.structs.replace(
            known,
            gpus=gpus,
            gpus_from="given",
            gpu_seconds=None if one.stall_ns is None else one.stall_ns / 1e9 * gpus,
            bytes_per_second_per_gpu=each,
            tier=tiers.word(one.kind, each),
        )
        updated.append(msgspec.structs.replace(one, cost=cost))
    return msgspec.structs.replace(report, checkpoints=tuple(updated))


def _late(checkpoints: Sequence[Checkpoint]) -> list[tuple[str, str]]:
    late = [item.text for one in ordered(checkpoints) for item in one.evidence if item.name == LATE]
    if not late:
        return []
    text = f"{units.count(len(late))} of {units.plural(len(checkpoints), 'checkpoint')}: {late[-1]}"
    return [("Late", f"{text}; `ckptprof show ID` shows the limitations")]


def _opening(
    checkpoints: Sequence[Checkpoint], found: Headline | None, outliers: Sequence[Outlier], watched: Watched
) -> list[tuple[str, str]]:
    more = f"; {units.plural(len(outliers) - 1, 'more outlier')}" if len(outliers) > 1 else ""
    slowest = [("Slowest", f"{one.sentence}{more}") for one in outliers[:1]]
    if found is None:
        return slowest
    span = ((watched.end_ns or 0) - (watched.start_ns or 0)) / 1e9
    lost = sum(one.lost_samples for one in watched.gaps)
    share = min(1.0, lost / _SAMPLES_PER_SECOND / span) if span > 0 else 0.0  # at most: a trace has more samples
    text = f"{units.plural(lost, 'sample')}: checkpoints may be missing, and their times wrong"
    pairs = [("Lost", text)] if share >= _MIN_LOST_SHARE else []
    is_plain = found.limit in (Limit.NONE, Limit.UNCLEAR)
    verdicts = [one.verdict for one in checkpoints if one.verdict and one.verdict.limit is found.limit]
    sentence = clean_sentence(found.sentence)
    if not is_plain and verdicts:
        word = certainty.confidence_word(found.limit, median(one.confidence for one in verdicts))
        head, colon, rest = sentence.partition(": ")
        name = certainty.account_name(found.limit, verdicts[0])
        sentence = f"{head} ({word if name in head else f'{name}, {word}'}){colon}{rest}"
    pairs += [("Answer", sentence), *slowest]
    if found.remedy is not None:
        pairs.append(("Do first", clean_sentence(found.remedy)))
    if found.gain is not None:
        pairs.append(("Gain", clean_sentence(found.gain)))
    return pairs


def risks(checkpoints: Sequence[Checkpoint]) -> str:
    """List the checkpoints that may not restore correctly, with the reason for the last; empty if there are none."""
    risky = [one for one in ordered(checkpoints) if one.risks]
    if not risky:
        return ""
    last = risky[-1]
    name = f"{last.kind.value} {last.id}" if last.id else f"a {last.kind.value}"
    more = "" if len(risky) == 1 else f" (nor {len(risky) - 1} before it)"
    return f"{name} may not restore correctly{more}: {checkpoint_facts.risk(last)}"


def _advise_fewer_saves(every: Sequence[JobCost]) -> dict[str, str]:
    from ckptprof.diagnose.plan.checkpoint_plan import LEAST_SAVES  # noqa: PLC0415 # see above

    cost = _most_blocked(every)
    if cost is None:
        return {}
    of_job = f" --job {shlex.quote(cost.job)}" if len(every) > 1 else ""  # else it plans for the newest
    plan = f"`ckptprof plan --mttf 3h{of_job}` calculates the best interval for one failure every 3 hours"
    if cost.saves is None or cost.saves.complete < LEAST_SAVES:
        plan = f"with at least {LEAST_SAVES} complete saves, {plan}"
    subject, how = "Saving", ""
    if cost.saves is not None:
        subject = subject if cost.restores is None or not cost.restores.stall_seconds else "Saving and restoring"
        how = f": {units.plural(cost.saves.count, 'save')}{_interval(cost.saves, cost.interval_seconds)}"
    return {
        "sentence": f"{subject} blocked {cost.job or NAMELESS} for {units.percent(cost.share)} of its run{how}.",
        "remedy": f"save less often, or asynchronously: {plan}",
    }


def _most_blocked(every: Sequence[JobCost]) -> JobCost | None:
    from ckptprof.diagnose.job_costs import saves_share  # noqa: PLC0415 # see above
    from ckptprof.diagnose.tolerances import SNIA_SHARE  # noqa: PLC0415 # likewise

    shares = [(share, one) for one in every if (share := saves_share(one)) is not None and share > SNIA_SHARE]
    return max(shares, key=lambda pair: (pair[0], pair[1].job), default=(0.0, None))[1]


def costs_answer_first(answer: ReportAnswer) -> tuple[JobCost, ...]:
    """Return the costs of each job, starting with the job of the answer."""
    is_plain = answer.headline is not None and answer.headline.limit is Limit.NONE
    first = _most_blocked(answer.costs) if is_plain else None
    return answer.costs if first is None else (first, *(one for one in answer.costs if one is not first))


def cost_lines(report: Report, every: Sequence[JobCost], width: int, *, colour: bool) -> list[str]:
    """Return the costs of each job as far as they are known; empty without any diagnosis."""
    if not any(one.verdict is not None or one.cost is not None for one in report.checkpoints):
        return []
    lines = []
    for one in every[:MAX_JOBS]:
        title = f"What checkpoints cost {shorten_end(named(one.job), _JOB_CELLS)}"
        lines += ["", *(paint(line, "bold", colour=colour) for line in wrap(title, width))]
        lines += facts(job_facts(one), width, colour=colour, indent="  ")
    if len(every) > MAX_JOBS:
        lines += ["", f"and {units.plural(len(every) - MAX_JOBS, 'job')} more: --json has them all"]
    return lines[1:]


def job_facts(cost: JobCost) -> list[tuple[str, str]]:
    """Return the costs of one job as far as they are known."""
    pairs = [("Blocked", _blocked(cost))]
    if cost.gpu_seconds and cost.gpus is not None and not account.is_guessed(cost.gpus, cost.gpus_from):
        gpus = f"{units.plural(cost.gpus, 'GPU')}{account.GPUS_FROM.get(cost.gpus_from or '', '')}"
        pairs.append(("GPU time", f"{units.seconds(cost.gpu_seconds)} blocked on {gpus}"))
    if cost.background_seconds:
        pairs.append(("In background", f"{units.seconds(cost.background_seconds)} alongside training"))
    for kind, direction in ((Kind.SAVE, cost.saves), (Kind.RESTORE, cost.restores)):
        if direction is not None:
            interval = cost.interval_seconds if kind is Kind.SAVE else None
            pairs.append((f"{kind.value.capitalize()}s", _direction(kind, direction, cost, interval)))
    if cost.saves is not None and cost.saves.durable_known:
        pairs.append(("Durable", _durable(cost.saves)))
    return pairs


def _durable(saves: DirectionCost) -> str:
    known, were = saves.durable_known, saves.durable_on_return
    rate = saves.durable_bytes_per_second
    text = "Saves return after the data is on disk" if were else "Saves return before the data is on disk"
    if 0 < were < known:
        text = f"{units.count(were)} of {units.plural(known, 'save')} returned after the data was on disk"
    if rate is not None:
        text += f" ({units.rate(rate)})" if were else f" (about {units.rate(rate)} including sync)"
    return f"{text}; known for {units.count(known)} of {units.count(saves.count)}" if known < saves.count else text


def _blocked(cost: JobCost) -> str:
    if cost.stall_seconds is None:
        return "how long training was blocked is not known"
    text = units.seconds(cost.stall_seconds)
    measured = cost.count - cost.stalls_unknown
    if measured < cost.stalls_unknown:  # too few for a share
        return f"{text} ({measured:,} of {units.plural(cost.count, 'checkpoint')} measured)"
    if cost.share is not None and cost.run_seconds is not None:
        text += f", {units.percent(cost.share)} of a run of {units.seconds(cost.run_seconds)}"
        text += "" if cost.judgement is None else f": {clean(cost.judgement)}"
    if cost.stalls_unknown:
        text += f" ({units.plural(cost.stalls_unknown, 'checkpoint')} not measured)"
    return text


def _interval(saves: DirectionCost, median_seconds: float | None) -> str:
    middle = "a median of " if saves.count > 2 else ""
    return "" if median_seconds is None else f", {middle}{units.seconds(median_seconds)} apart"


def _direction(kind: Kind, direction: DirectionCost, cost: JobCost, interval: float | None) -> str:
    text, broken_off = units.plural(direction.count, kind.value), direction.count - direction.complete
    text += f" ({units.count(broken_off)} incomplete)" if broken_off else ""
    text += _interval(direction, interval)
    if direction.max_seconds is not None:
        text += f", {units.seconds(direction.max_seconds)}{' at most' if direction.complete > 1 else ''}"
        text += f" ({units.count(direction.complete)} complete)" if broken_off else ""
    if direction.bytes_per_second is not None:
        middle = "median rate " if direction.complete > 1 else ""
        text += f"; {middle}{units.rate(direction.bytes_per_second)}"
    if direction.bytes_per_second_per_gpu is not None and not account.is_guessed(cost.gpus, cost.gpus_from):
        remark = account.GPUS_FROM.get(cost.gpus_from or "", "")
        text += f", {units.rate(direction.bytes_per_second_per_gpu)} per GPU{remark}"
        text += "" if direction.tier is None else f": {account.tier(direction.tier)}"
    share = account.ceiling(direction.ceiling_share)
    return text if share is None else f"{text}; {share}"
