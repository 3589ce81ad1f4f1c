"""The headline of a report: the limit that cost most time, and the first remedy."""

from __future__ import annotations

from collections.abc import Sequence

from ckptprof.diagnose.causes import WORDS
from ckptprof.diagnose.losses import PLAIN, lost_to, won_seconds
from ckptprof.diagnose.tolerances import HARDLY_ANY, SLIGHT
from ckptprof.figures import duration_seconds, lost_seconds, of_all, stall_seconds
from ckptprof.model import Checkpoint, Kind
from ckptprof.units import NOT_OBSERVED, plural, rate, seconds
from ckptprof.verdicts import THROTTLED, Headline, Limit

_FEW_NAMES = 2  # checkpoints that a sentence names


def first_advice(checkpoints: Sequence[Checkpoint]) -> Headline | None:
    """Find the limit that cost most time, an unclear one only if no other is known; None if nothing has a verdict.

    A limit cost what was lost to it in the checkpoints that it limited; their number decides between equals.
    """
    decided = [one for one in checkpoints if one.kind is not Kind.COPY and one.verdict is not None]
    limited: dict[Limit, list[Checkpoint]] = {}
    for one in decided:
        if one.verdict is not None:
            limited.setdefault(one.verdict.limit, []).append(one)
    if not limited:
        return None
    lost = {limit: sum(lost_to(one, limit) for one in mine) for limit, mine in limited.items()}
    whole = sum(map(lost_seconds, decided))
    slow = [limit for limit in lost if limit not in PLAIN]
    limit = max(slow or set(lost) - {Limit.NONE} or lost, key=lambda one: (lost[one], len(limited[one])))
    if lost.get(Limit.NONE, 0.0) > lost[limit] and lost[limit] < SLIGHT * whole:
        limit = Limit.NONE
    remedies: dict[str, list[Checkpoint]] = {}
    for one in limited[limit]:
        if one.verdict is not None and one.verdict.remedy is not None:
            remedies.setdefault(one.verdict.remedy, []).append(one)
    best = max(remedies, key=lambda one: (_won(remedies[one]), _lost(remedies[one], limit)), default=None)
    is_promised = best is not None and limit in slow and any(of_all(decided, stall_seconds))
    return Headline(
        limit=limit,
        seconds=lost[limit],
        share=lost[limit] / whole if whole > 0 else 0.0,
        count=len(limited[limit]),
        sentence=_sentence(limit, limited[limit], decided),
        remedy=best,
        gain=_gain(remedies[best], decided, lost, limit) if best is not None and is_promised else None,
    )


def _lost(mine: list[Checkpoint], limit: Limit) -> float:
    return sum(lost_to(one, limit) for one in mine if stall_seconds(one) is not None)


def _won(mine: list[Checkpoint]) -> float:
    """Return the seconds blocked that their remedy wins, as far as that is known."""
    verdicts = ((one.verdict, stall_seconds(one) or 0.0) for one in mine)
    return sum(
        (won_seconds(found) or 0.0) * min(1.0, stall / found.seconds)
        for found, stall in verdicts
        if found is not None and found.seconds > 0
    )


def _gain(mine: list[Checkpoint], decided: list[Checkpoint], lost: dict[Limit, float], limit: Limit) -> str:
    won, whole = _won(mine), sum(of_all(decided, stall_seconds))
    where = f"in {_of(mine, decided)}, of the {seconds(whole)} blocked"
    is_known = won >= HARDLY_ANY * whole
    text = f"about {seconds(won)} {where}" if is_known else f"not known: at most {seconds(_lost(mine, limit))} {where}"
    after = max((one for one in lost if one not in {limit, *PLAIN}), key=lambda one: lost[one], default=None)
    if after is None or lost[after] < SLIGHT * whole:
        return text
    return f"{text}; the next limit is {after.word}, with {seconds(lost[after])}"


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
