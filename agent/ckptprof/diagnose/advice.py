"""The headline of a report: the limit that cost most time, and the first remedy."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.diagnose.causes import WORDS
from ckptprof.diagnose.tolerances import SLIGHT
from ckptprof.figures import duration_seconds, lost_seconds, of_all, stall_seconds
from ckptprof.model import Checkpoint, Kind
from ckptprof.units import plural, seconds
from ckptprof.verdicts import Headline, Limit, Verdict

_PLAIN = frozenset({Limit.NONE, Limit.UNCLEAR})


def first_advice(checkpoints: Sequence[Checkpoint]) -> Headline | None:
    """Find the limit that cost most time; None if nothing has a verdict.

    If nothing was slow, the limit is `none`. An unclear limit is reported only if no other is known.
    """
    pairs = [(one, one.verdict) for one in checkpoints if one.kind is not Kind.COPY and one.verdict is not None]
    if not pairs:
        return None
    decided = [one for one, _ in pairs]
    sums = dict.fromkeys((verdict.limit for _, verdict in pairs), 0.0)
    lost = dict(sums)  # in all accounts: the longest bar of the report
    for one, verdict in pairs:
        sums[verdict.limit] += lost_seconds(one) * _share(verdict, verdict.limit)
        for limit in {verdict.limit} if verdict.limit in _PLAIN else set(lost) - _PLAIN:
            lost[limit] += lost_seconds(one) * _share(verdict, limit)
    whole = sum(map(lost_seconds, decided))
    slow = [limit for limit in lost if limit not in _PLAIN]
    limit = max(slow or set(lost) - {Limit.NONE} or set(lost), key=lambda one: lost[one])
    mine = [one for one, verdict in pairs if verdict.limit is limit]
    if sums.get(Limit.NONE, 0.0) > sums[limit] and sums[limit] < SLIGHT * whole:
        return _of_minor_limit(limit, mine, decided, whole)
    remedies: dict[str, list[float]] = {}  # the time lost each time
    for one, verdict in pairs:
        if verdict.limit is limit and verdict.remedy is not None:
            remedies.setdefault(verdict.remedy, []).append(lost_seconds(one))
    return Headline(
        limit=limit,
        seconds=sums[limit],
        share=sums[limit] / whole if whole > 0 else 0.0,
        count=len(mine),
        sentence=_sentence(limit, mine, decided),
        remedy=max(remedies, key=lambda one: (sum(remedies[one]), len(remedies[one])), default=None),
    )


def _of_minor_limit(limit: Limit, mine: list[Checkpoint], decided: list[Checkpoint], whole: float) -> Headline:
    fast = [one for one in decided if one.verdict is not None and one.verdict.limit is Limit.NONE]
    stalls = of_all(mine, stall_seconds)
    subject = f"{_of(mine, decided)} {'was' if len(mine) == 1 else 'were'}"
    words = WORDS.get(limit, "unclear")
    lost = f" and took {seconds(_lost(mine, limit))} of it" if stalls else ""
    return Headline(
        limit=Limit.NONE,
        seconds=sum(map(lost_seconds, fast)),
        share=sum(map(lost_seconds, fast)) / whole,
        count=len(fast),
        sentence=f"Little was slow: {_blocked(decided)}; {subject} {words}{lost}.",
        remedy=None,
    )


def _sentence(limit: Limit, mine: list[Checkpoint], decided: list[Checkpoint]) -> str:
    if limit is Limit.NONE:
        return f"Nothing was slow: {_blocked(mine)}."
    part = _part(limit, mine, decided)
    of = _of(mine, decided)
    if limit is Limit.UNCLEAR:
        return f"It is unclear what limited {of}" + (f": {part}." if part else ".")
    were = "was" if len(mine) == 1 else "were"
    clause = f"{of} {were} {WORDS[limit]}" if limit is not Limit.PREVIOUS_SAVE else f"{of}: {WORDS[limit]}"
    return f"{clause}: {part}." if part else f"{clause}, alongside training: no time lost."


def _of(mine: list[Checkpoint], decided: list[Checkpoint]) -> str:
    if len(mine) < len(decided):
        return f"{len(mine):,} of {plural(len(decided), 'checkpoint')}"
    every = {1: "the only checkpoint", 2: "both checkpoints"}
    return every.get(len(mine), f"all {plural(len(mine), 'checkpoint')}")


def _share(verdict: Verdict, limit: Limit) -> float:
    """Return the share of a limit in the time that a verdict explains; all of it for a verdict without accounts."""
    own = sum(one.seconds for one in verdict.accounts if one.limit is limit)
    whole = limit in (Limit.NONE, Limit.UNCLEAR) or not own
    if whole or not verdict.seconds > 0:
        return 1.0 if limit is verdict.limit else 0.0
    return min(1.0, own / verdict.seconds)


def _lost(mine: list[Checkpoint], limit: Limit) -> float:
    stalls = ((one.verdict, stall_seconds(one) or 0.0) for one in mine)
    return sum(stall * _share(verdict, limit) for verdict, stall in stalls if verdict is not None)


def _part(limit: Limit, mine: list[Checkpoint], decided: list[Checkpoint]) -> str:
    own, every = of_all(mine, stall_seconds), of_all(decided, stall_seconds)
    if not own:
        duration = seconds(sum(of_all(mine, duration_seconds)))
        return f"{duration} in total; how long training was blocked is not known"
    if not sum(every):
        return ""
    lost, whole = seconds(_lost(mine, limit)), seconds(sum(every))
    same_unit = lost.split()[1:] == whole.split()[1:]
    part = f"all {whole} blocked" if lost == whole else f"{lost.split()[0] if same_unit else lost} of {whole} blocked"
    unknown = len(decided) - len(every)
    return part if not unknown else f"{part} ({plural(unknown, 'checkpoint')} not measured)"


def _blocked(mine: list[Checkpoint]) -> str:
    stalls = of_all(mine, stall_seconds)
    if not stalls:
        return f"{_named(mine)}; how long training was blocked is not known"
    text = f"{_named(mine)} blocked training for {seconds(sum(stalls))}"
    return text if len(stalls) == len(mine) else f"{text} ({len(stalls):,} measured)"


def _named(mine: list[Checkpoint]) -> str:
    saves = sum(1 for one in mine if one.kind is Kind.SAVE)
    names = [plural(saves, "save")] if saves else []
    if len(mine) > saves:
        names.append(plural(len(mine) - saves, "restore"))
    return " and ".join(names)
