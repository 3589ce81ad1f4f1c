"""The answer that a report opens with: what limited most of the lost time, and what to do first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof.diagnose.sight import stall_of
from ckptprof.diagnose.verdict.sentences import WORDS
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.units import percent, plural, seconds
from ckptprof.verdicts import Limit


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """What cost most, and what to do first."""

    limit: Limit
    seconds: float  # lost by it
    share: float  # of all lost time
    count: int  # checkpoints that it limited
    sentence: str
    remedy: str | None


def lost(checkpoint: Checkpoint) -> float:
    """Return the seconds that training lost by a checkpoint: its stall, or all of it where nothing tells."""
    held = stall_of(checkpoint)
    if held is not None:
        return held
    length = max(0, checkpoint.end_ns - checkpoint.start_ns) / 1e9
    return 0.0 if checkpoint.mode is Mode.ASYNC else length


def first_advice(checkpoints: Sequence[Checkpoint]) -> Headline | None:
    """Return what limited most of the lost time; None if nothing has a verdict.

    Nothing slow is an answer, too: its limit is `none`, then. What is unclear is told only if nothing else is known.
    """
    judged = [one for one in checkpoints if one.kind is not Kind.COPY and one.verdict is not None]
    if not judged:
        return None
    sums: dict[Limit, float] = {}
    for one in judged:
        if one.verdict is not None:
            sums[one.verdict.limit] = sums.get(one.verdict.limit, 0.0) + lost(one)
    whole = sum(sums.values())
    slow = [limit for limit in sums if limit not in (Limit.NONE, Limit.UNCLEAR)]
    limit = max(slow or set(sums) - {Limit.NONE} or set(sums), key=lambda one: sums[one])
    mine = [one for one in judged if one.verdict is not None and one.verdict.limit is limit]
    return Headline(
        limit=limit,
        seconds=sums[limit],
        share=sums[limit] / whole if whole > 0 else 0.0,
        count=len(mine),
        sentence=_sentence(limit, mine, judged, sums[limit]),
        remedy=_remedy(mine),
    )


def _sentence(limit: Limit, mine: list[Checkpoint], judged: list[Checkpoint], own: float) -> str:
    if limit is Limit.NONE:
        return f"Nothing was slow: {_blocked(mine)}."
    whole = sum(lost(one) for one in judged)
    did = "lost" if all(stall_of(one) is not None for one in judged) else "may have lost"
    part = f"{seconds(own)} of the {seconds(whole)} that training {did} ({percent(own / whole)})" if whole > 0 else ""
    of = f"{len(mine):,} of {plural(len(judged), 'checkpoint')}"
    if limit is Limit.UNCLEAR:
        return f"What limited {of} is unclear" + (f": {part}." if part else ".")
    were = "was" if len(mine) == 1 else "were"
    what = f"{of} {were} {WORDS[limit]}" if limit is not Limit.PREVIOUS_SAVE else f"{of}: {WORDS[limit]}"
    return f"{what}: {part}." if part else f"{what}, beside training: it lost nothing."


def _blocked(mine: list[Checkpoint]) -> str:
    stalls = [stall for one in mine if (stall := stall_of(one)) is not None]
    if not stalls:
        return f"{_named(mine)}; for how long training was blocked was not seen"
    seen = "" if len(stalls) == len(mine) else f", seen of {len(stalls):,} of them"
    return f"{_named(mine)} blocked training for {seconds(sum(stalls))}{seen}"


def _named(mine: list[Checkpoint]) -> str:
    saves = sum(1 for one in mine if one.kind is Kind.SAVE)
    names = [plural(saves, "save")] if saves else []
    if len(mine) > saves:
        names.append(plural(len(mine) - saves, "restore"))
    return " and ".join(names)


def _remedy(mine: list[Checkpoint]) -> str | None:
    """Return the remedy that most of the lost time asks for."""
    sums: dict[str, float] = {}
    for one in mine:
        if one.verdict is not None and one.verdict.remedy is not None:
            sums[one.verdict.remedy] = sums.get(one.verdict.remedy, 0.0) + lost(one) + 1e-9
    return max(sums, key=lambda one: sums[one], default=None)
