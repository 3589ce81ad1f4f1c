"""The answer that a report opens with: what limited most of the lost time, and what to do first."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.diagnose.causes import WORDS
from ckptprof.diagnose.sight import SLIGHT
from ckptprof.figures import duration_seconds, lost_seconds, of_all, stall_seconds
from ckptprof.model import Checkpoint, Kind
from ckptprof.units import plural, seconds
from ckptprof.verdicts import Headline, Limit, Verdict

_CROWDED = 0.2  # of what training lost
_EACH = 1e-9  # seconds: where nothing was lost, the remedy that is told most often counts


def first_advice(checkpoints: Sequence[Checkpoint]) -> Headline | None:
    """Return what limited most of the lost time; None if nothing has a verdict.

    Nothing slow is an answer, too: its limit is `none`, then. What is unclear is told only if nothing else is known.
    """
    pairs = [(one, one.verdict) for one in checkpoints if one.kind is not Kind.COPY and one.verdict is not None]
    if not pairs:
        return None
    judged = [one for one, _ in pairs]
    sums: dict[Limit, float] = {}
    for one, told in pairs:
        sums[told.limit] = sums.get(told.limit, 0.0) + lost_seconds(one) * _share(told, told.limit)
    whole = sum(map(lost_seconds, judged))
    slow = [limit for limit in sums if limit not in (Limit.NONE, Limit.UNCLEAR)]
    limit = max(slow or set(sums) - {Limit.NONE} or set(sums), key=lambda one: sums[one])
    mine = [one for one, told in pairs if told.limit is limit]
    if sums.get(Limit.NONE, 0.0) > sums[limit] and sums[limit] < SLIGHT * whole:
        return _of_little(limit, mine, judged, whole)
    remedies: dict[str, float] = {}  # what most of the lost time asks for
    for one, told in pairs:
        if told.limit is limit and told.remedy is not None:
            remedies[told.remedy] = remedies.get(told.remedy, 0.0) + lost_seconds(one) + _EACH
    return Headline(
        limit=limit,
        seconds=sums[limit],
        share=sums[limit] / whole if whole > 0 else 0.0,
        count=len(mine),
        sentence=_sentence(limit, mine, judged),
        remedy=max(remedies, key=lambda one: remedies[one], default=None),
    )


def _of_little(limit: Limit, mine: list[Checkpoint], judged: list[Checkpoint], whole: float) -> Headline:
    fast = [one for one in judged if one.verdict is not None and one.verdict.limit is Limit.NONE]
    held = of_all(mine, stall_seconds)
    which = f"{_of(mine, judged)} {'was' if len(mine) == 1 else 'were'}"
    what = WORDS.get(limit, "unclear")
    lost = f" and took {seconds(_lost(mine, limit))} of it" if held else ""
    return Headline(
        limit=Limit.NONE,
        seconds=sum(map(lost_seconds, fast)),
        share=sum(map(lost_seconds, fast)) / whole,
        count=len(fast),
        sentence=f"Little was slow: {_blocked(judged)}; {which} {what}{lost}.",
        remedy=None,
    )


def _sentence(limit: Limit, mine: list[Checkpoint], judged: list[Checkpoint]) -> str:
    if limit is Limit.NONE:
        return f"Nothing was slow: {_blocked(mine)}."
    part = _part(limit, mine, judged)
    of = _of(mine, judged)
    if limit is Limit.UNCLEAR:
        return f"It is unclear what limited {of}" + (f": {part}." if part else ".")
    were = "was" if len(mine) == 1 else "were"
    what = f"{of} {were} {WORDS[limit]}" if limit is not Limit.PREVIOUS_SAVE else f"{of}: {WORDS[limit]}"
    return f"{what}: {part}." if part else f"{what}, alongside training: no time lost."


def _of(mine: list[Checkpoint], judged: list[Checkpoint]) -> str:
    if len(mine) < len(judged):
        return f"{len(mine):,} of {plural(len(judged), 'checkpoint')}"
    every = {1: "the only checkpoint", 2: "both checkpoints"}
    return every.get(len(mine), f"all {plural(len(mine), 'checkpoint')}")


def _share(verdict: Verdict, limit: Limit) -> float:
    """Return the share that a limit has of what a verdict explains; all of it of a verdict without an account."""
    own = sum(one.seconds for one in verdict.accounts if one.limit is limit)
    whole = limit in (Limit.NONE, Limit.UNCLEAR) or not own
    if whole or not verdict.seconds > 0:
        return 1.0 if limit is verdict.limit else 0.0
    return min(1.0, own / verdict.seconds)


def _lost(mine: list[Checkpoint], limit: Limit) -> float:
    """Return the seconds of stalls that were seen and that a limit holds; those of another one do not count."""
    held = ((one.verdict, stall_seconds(one) or 0.0) for one in mine)
    return sum(stall * _share(verdict, limit) for verdict, stall in held if verdict is not None)


def _part(limit: Limit, mine: list[Checkpoint], judged: list[Checkpoint]) -> str:
    """Return what is known to be lost by a limit, of what all lost: no more than was seen, empty if it is nothing."""
    own, every = of_all(mine, stall_seconds), of_all(judged, stall_seconds)
    if not own:
        took = seconds(sum(of_all(mine, duration_seconds)))
        return f"{took} in total; how long training was blocked is not known"
    if not sum(every):
        return ""
    lost, whole = seconds(_lost(mine, limit)), seconds(sum(every))
    same_unit = lost.split()[1:] == whole.split()[1:]
    part = f"all {whole} lost" if lost == whole else f"{lost.split()[0] if same_unit else lost} of {whole} lost"
    starved = _lost(mine, Limit.CPU) if limit is not Limit.CPU else 0.0
    part += f", and {seconds(starved)} more waiting for a CPU" if starved >= _CROWDED * sum(every) else ""
    unseen = len(judged) - len(every)
    return part if not unseen else f"{part} ({plural(unseen, 'checkpoint')} not measured)"


def _blocked(mine: list[Checkpoint]) -> str:
    stalls = of_all(mine, stall_seconds)
    if not stalls:
        return f"{_named(mine)}; how long training was blocked is not known"
    told = f"{_named(mine)} blocked training for {seconds(sum(stalls))}"
    return told if len(stalls) == len(mine) else f"{told} ({len(stalls):,} measured)"


def _named(mine: list[Checkpoint]) -> str:
    saves = sum(1 for one in mine if one.kind is Kind.SAVE)
    names = [plural(saves, "save")] if saves else []
    if len(mine) > saves:
        names.append(plural(len(mine) - saves, "restore"))
    return " and ".join(names)
