"""The headline of a report: the limit that cost most time, and the first remedy."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.diagnose.causes import WORDS
from ckptprof.diagnose.tolerances import HARDLY_ANY, MOST, SLIGHT
from ckptprof.figures import duration_seconds, lost_seconds, of_all, stall_seconds
from ckptprof.model import Checkpoint, Kind
from ckptprof.units import NOT_OBSERVED, plural, rate, seconds
from ckptprof.verdicts import THROTTLED, Headline, Limit, Verdict

_FEW_NAMES = 2  # checkpoints that a sentence names
_PLAIN = frozenset({Limit.NONE, Limit.UNCLEAR})


def first_advice(checkpoints: Sequence[Checkpoint]) -> Headline | None:
    """Find the limit that cost most time, an unclear one only if no other is known; None if nothing has a verdict."""
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
        limit = Limit.NONE
        mine = [one for one, verdict in pairs if verdict.limit is limit]
    remedies: dict[str, list[Checkpoint]] = {}
    for one, verdict in pairs:
        if verdict.limit is limit and verdict.remedy is not None:
            remedies.setdefault(verdict.remedy, []).append(one)
    best = max(remedies, key=lambda one: (_won(remedies[one]), sum(map(lost_seconds, remedies[one]))), default=None)
    return Headline(
        limit=limit,
        seconds=sums[limit],
        share=sums[limit] / whole if whole > 0 else 0.0,
        count=len(mine),
        sentence=_sentence(limit, mine, decided),
        remedy=best,
        gain=_gain(remedies[best], decided, lost, limit)
        if best is not None and limit in slow and any(of_all(decided, stall_seconds))
        else None,
    )


def _won(mine: list[Checkpoint]) -> float:
    """Return the seconds blocked that their remedy wins, as far as that is known."""
    known = [(one, one.verdict) for one in mine if one.verdict is not None and one.verdict.expected_seconds is not None]
    return sum(
        (stall_seconds(one) or 0.0) * (1 - (v.expected_seconds or 0.0) / v.seconds) for one, v in known if v.seconds > 0
    )


def _gain(mine: list[Checkpoint], decided: list[Checkpoint], lost: dict[Limit, float], limit: Limit) -> str:
    won, own, whole = _won(mine), sum(of_all(mine, stall_seconds)), sum(of_all(decided, stall_seconds))
    where = f"in {_of(mine, decided)}, of the {seconds(whole)} blocked"
    if won < HARDLY_ANY * whole:
        return f"not known: at most {seconds(own)} {where}"
    text = f"about {seconds(won)} {where}"
    left = {one: spent - won * (one is limit) for one, spent in lost.items()}
    most = max(left, key=lambda one: left[one])
    if most is Limit.NONE or won >= MOST * whole:
        return text
    return f"{text}; {seconds(whole - won)} remain, {seconds(min(left[most], whole - won))} of it {most.word}"


def _sentence(limit: Limit, mine: list[Checkpoint], decided: list[Checkpoint]) -> str:
    if limit is Limit.NONE:
        return f"{'Little' if len(mine) < len(decided) else 'Nothing'} was slow: {_blocked(decided)}."
    part = _part(limit, mine, decided)
    of = _of(mine, decided)
    if limit is Limit.UNCLEAR:
        return f"It is unclear what limited {of}" + (f": {part}." if part else ".")
    were = "was" if len(mine) == 1 else "were"
    words = THROTTLED if {one.verdict and one.verdict.cause for one in mine} == {THROTTLED} else WORDS[limit]
    rates = {rate(one.verdict.throttle_bytes_per_second) for one in mine if one.verdict is not None}
    words += f" to {rates.pop()}" if words == THROTTLED and len(rates) == 1 and rates != {NOT_OBSERVED} else ""
    clause = f"{of} {were} {words}"
    return f"{clause}: {part}." if part else f"{clause}, alongside training: no time lost."


def _of(mine: list[Checkpoint], decided: list[Checkpoint]) -> str:
    if len(mine) <= _FEW_NAMES and (len(mine) == len(decided) or all(one.id for one in mine)):
        return " and ".join(f"{one.kind.value} {one.id or ''}".strip() for one in mine)
    noun = "checkpoint" if len({one.kind for one in decided}) > 1 else decided[0].kind.value
    return f"{'all' if len(mine) == len(decided) else f'{len(mine):,} of'} {plural(len(decided), noun)}"


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
    part = f"{'all' if lost == whole else lost} of the {whole} that training was blocked"
    part = part if limit is not Limit.UNCLEAR else f"training was blocked for {whole}"
    return part + (f" ({plural(unknown, 'checkpoint')} not measured)" if (unknown := len(decided) - len(every)) else "")


def _blocked(mine: list[Checkpoint]) -> str:
    stalls = of_all(mine, stall_seconds)
    if not stalls:
        return f"{plural(len(mine), 'checkpoint')}; how long training was blocked is not known"
    text = f"{plural(len(mine), 'checkpoint')} blocked training for {seconds(sum(stalls))}"
    return text if len(stalls) == len(mine) else f"{text} ({len(stalls):,} measured)"
