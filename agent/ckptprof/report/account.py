"""The verdict on one checkpoint for a terminal: where its time went, the evidence, and its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from ckptprof import figures, units
from ckptprof.diagnose.losses import seconds_of, won_seconds
from ckptprof.model import Checkpoint, Kind
from ckptprof.report import certainty, checkpoint_facts
from ckptprof.report.clean import clean, clean_sentence
from ckptprof.report.pictures import chart, colours
from ckptprof.report.table import Cell, facts, number, paint, wrap
from ckptprof.report.table import render as render_table
from ckptprof.verdicts import Account, Limit, Verdict

_MAX_BAR = 40
_SIDE_BY_SIDE_CELLS = 132  # minimum width in cells for texts beside their bars
_ABOVE_CEILING = 1.05  # of a ceiling
_CEILING_TEXT = "the fastest rate measured on this path"
_MAX_ACCOUNTS = 8  # accounts; the rest is one line
_MIN_SHARE = 0.1  # of the whole: a smaller part has no bar on a short page, and of an account no text
_NO_SHARE = 0.005  # of the whole: the shown shares add up without it
_ASCII_BAR = "#"
_HATCH, _ASCII_HATCH = "\N{MEDIUM SHADE}", "/"  # of a bar: its work waited for a CPU
GPUS_FROM = {"ranks": ", assuming one per rank", "nvml": ", according to NVML"}
_TIERS = {"below": "below DGX Light", "light": "DGX Light", "medium": "DGX Medium", "high": "DGX High"}


def headline_facts(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """Return the first facts of a checkpoint: its limit, cost and remedy; empty for a copy."""
    verdict = checkpoint.verdict
    if checkpoint.kind is Kind.COPY:
        return []
    if verdict is None:
        return [("Limit", units.NOT_OBSERVED), ("Cost", _cost(checkpoint))]
    pairs = [("Limit", limit_title(verdict)), ("", clean_sentence(verdict.sentence)), ("Cost", _cost(checkpoint))]
    if verdict.remedy:
        pairs.append(("To do", clean_sentence(verdict.remedy)))
    gain = gain_text(verdict)
    if gain is not None:
        pairs.append(("Gain", gain))
    if verdict.alternative is not None:
        pairs.append(("Or", alternative_text(verdict)))
    return pairs


def _cost(checkpoint: Checkpoint) -> str:
    if checkpoint.stall_ns is None:
        return "how long training was blocked is not known"
    text = f"training was blocked for {units.duration(checkpoint.stall_ns)}"
    if (outside := checkpoint_facts.stall_outside(checkpoint)) is not None:
        text += f", including {outside} before the first byte or after the last"
    cost = checkpoint.cost
    if cost is None or cost.gpu_seconds is None or is_guessed(cost.gpus, cost.gpus_from):
        return text
    text += f"; {units.seconds(cost.gpu_seconds)} of GPU time"
    if cost.gpus is None:
        return text
    return f"{text} on {units.plural(cost.gpus, 'GPU')}{GPUS_FROM.get(cost.gpus_from or '', '')}"


def verdict_lines(checkpoint: Checkpoint, width: int, *, blocks: str = chart.BLOCKS, colour: bool) -> list[str]:
    """Return the accounts and the evidence in lines of at most `width` cells; empty without a verdict."""
    verdict = checkpoint.verdict
    if verdict is None:
        return []
    lines = _bars(checkpoint, merge_by_limit(verdict), width, blocks, colour=colour)
    for heading, texts in reasons(verdict):
        if texts:
            lines += [*[""] * bool(lines), paint(heading, "bold", colour=colour), *bullets(texts, width)]
    if verdict.reference:
        pairs = [("Reference", clean_sentence(verdict.reference))]
        lines += [*[""] * bool(lines), *facts(pairs, width, colour=colour)]
    return lines


def bar_lines(checkpoint: Checkpoint, width: int, *, blocks: str = chart.BLOCKS, colour: bool) -> list[str]:
    """Return a bar with text for each limit with a visible share."""
    if checkpoint.verdict is None:
        return []
    return _bars(checkpoint, merge_by_limit(checkpoint.verdict), width, blocks, least=_MIN_SHARE, colour=colour)


def limit_title(verdict: Verdict) -> str:
    """Return the limit and its confidence: `disk, likely (0.91)`."""
    if verdict.limit is Limit.UNCLEAR:
        named = " or ".join(limit.word for limit in verdict.candidates)
        return f"unclear, possibly {named}" if named else "unclear"
    word = certainty.confidence_word(verdict.limit, verdict.confidence)
    return f"{certainty.limit_name(verdict)}, {word} ({verdict.confidence:.2f})"


def cost_facts(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """Return the costs that are not in the summary line, as far as they are known."""
    cost = checkpoint.cost
    if cost is None:
        return []
    pairs = []
    spent_ns = figures.duration_ns(checkpoint)
    if checkpoint.stall_ns is not None and 0 <= checkpoint.stall_ns <= spent_ns > 0:
        pairs.append(("Blocked", f"{units.percent(checkpoint.stall_ns / spent_ns)} of the duration"))
    guessed = is_guessed(cost.gpus, cost.gpus_from)
    if cost.background_seconds:
        pairs.append(("In background", f"{units.seconds(cost.background_seconds)} alongside training"))
    if cost.bytes_per_second is not None and cost.bytes_per_second_per_gpu is not None and not guessed:
        rate = f"{units.rate(cost.bytes_per_second)}, {units.rate(cost.bytes_per_second_per_gpu)} per GPU"
        pairs.append(("Rate", rate + (f": {tier(cost.tier)}" if cost.tier is not None else "")))
    share = ceiling(cost.ceiling_share)
    if share is not None:
        pairs.append(("Ceiling", share))
    return pairs


def is_guessed(gpus: int | None, gpus_from: str | None) -> bool:
    """Return True if the number of GPUs is only that of a single rank, which may have none."""
    return gpus_from == "ranks" and (gpus is None or gpus <= 1)


def ceiling(share: float | None) -> str | None:
    """Describe a share of the maximum rate of a path; None if not known."""
    if share is None or not math.isfinite(share):
        return None
    return f"{'above' if share > _ABOVE_CEILING else f'{units.percent(min(1.0, share))} of'} {_CEILING_TEXT}"


def tier(word: str) -> str:
    """Return the full name of a tier."""
    return _TIERS.get(word.lower(), clean(word))


def merge_by_limit(verdict: Verdict) -> Verdict:
    """Merge the accounts of each limit into one that lists its parts with their seconds; the largest first."""
    parts = dict[Limit | None, list[Account]]()
    for one in _largest_first(verdict):
        parts.setdefault(one.limit, []).append(one)
    summed: list[Account] = []
    for limit, several in parts.items():
        runnable = sum(one.runnable_seconds for one in several)
        spent = sum(one.seconds for one in several)
        shown = [one for n, one in enumerate(several) if not n or one.seconds >= _MIN_SHARE * spent]
        text = shown[0].text
        if len(shown) > 1:  # a common ending is written once, at the end
            ends = {one.text.rpartition(": ")[2] for one in shown}
            same = f": {ends.pop()}" if len(ends) == 1 else ""
            text = "; ".join(f"{units.seconds(one.seconds)} {one.text.removesuffix(same)}" for one in shown) + same
        inside = seconds_of(verdict, Limit.CPU) - spent
        if limit is not Limit.CPU and runnable > _MIN_SHARE * spent:
            text += f"; {units.seconds(runnable)} of this waiting for a CPU (hatched)"
        if limit is Limit.CPU and inside > _MIN_SHARE * spent:
            text += f"; with {units.seconds(inside)} within the work of other limits (hatched)"
        summed.append(Account(limit=limit, seconds=spent, text=text, runnable_seconds=runnable))
    return msgspec.structs.replace(verdict, accounts=tuple(sorted(summed, key=lambda one: -one.seconds)))


def _largest_first(verdict: Verdict) -> list[Account]:
    known = [one for one in verdict.accounts if math.isfinite(one.seconds) and one.seconds > 0]
    return sorted(known, key=lambda one: -one.seconds)


def _bars(  # noqa: PLR0913 # as a drawing needs
    checkpoint: Checkpoint, verdict: Verdict, width: int, blocks: str, *, least: float = 0.0, colour: bool
) -> list[str]:
    every = _largest_first(verdict)
    if not every:
        return []
    whole = max((checkpoint.end_ns - checkpoint.start_ns) / 1e9, sum(one.seconds for one in every))
    ordered = [one for n, one in enumerate(every) if n < _MAX_ACCOUNTS and (one.seconds >= least * whole or not n)]
    most = min(_MAX_BAR, max(1, width - 34))
    full, hatch = (blocks[-1], _HATCH) if blocks == chart.BLOCKS else (_ASCII_BAR, _ASCII_HATCH)
    lengths = [max(1, round(one.seconds / ordered[0].seconds * most)) for one in ordered]
    hatched = [
        round(length * min(1.0, one.runnable_seconds / one.seconds))
        for one, length in zip(ordered, lengths, strict=True)
    ]
    rows = [
        [
            Cell("ACCOUNT", certainty.account_name(one.limit, checkpoint.verdict), "bold"),
            number("TIME", one.seconds, units.seconds),
            number("SHARE", one.seconds / whole, units.percent),
            Cell("", full * (length - waits) + hatch * waits, colours.terminal_style(one.limit), drop=1),
        ]
        for one, length, waits in zip(ordered, lengths, hatched, strict=True)
    ]
    header, *drawn = render_table(rows, width, colour=colour)
    lines = [] if least else [header]
    for i, (length, bar) in enumerate(zip(lengths, drawn, strict=True)):
        text = clean_sentence(ordered[i].text) if not least or not i or width >= _SIDE_BY_SIDE_CELLS else ""
        if width >= _SIDE_BY_SIDE_CELLS and text:
            text_cells = width - most - 34
            first, *more = wrap(text, text_cells)
            lines += [bar + " " * (most - length + 2) + first, *(" " * (width - text_cells) + part for part in more)]
        else:
            under = wrap(text, width - 4) if text else []
            lines += [bar, *(paint("    " + part, "dim", colour=colour) for part in under)]
    rest = sum(one.seconds for one in every[len(ordered) :])
    if rest >= _NO_SHARE * whole:
        line = f"and {units.seconds(rest)} ({units.percent(rest / whole)}) in {len(every) - len(ordered)} more"
        lines.append(line + ("" if least else ": --json has them"))
    return lines


def reasons(verdict: Verdict) -> list[tuple[str, tuple[str, ...]]]:
    """Return the evidence for a verdict, what it rules out, and what was not observed."""
    return [("Evidence", verdict.evidence), ("Ruled out", verdict.excluded), ("Not observed", verdict.missing)]


def gain_text(verdict: Verdict) -> str | None:
    """Describe the time that goes with the limit; None without a gain. At most that of the limit if it is not known."""
    won, now, cap = won_seconds(verdict), verdict.seconds, clean_sentence(verdict.capped_by or "")
    if won is None:
        most = f"not known: at most {units.seconds(seconds_of(verdict, verdict.limit))} of {units.seconds(now)}"
        return f"{most}, limited by {cap}" if cap else None
    if not math.isfinite(won) or units.seconds(now - won) == units.seconds(now):
        return None
    return f"about {units.seconds(won)} of {units.seconds(now)}" + (f", then limited by {cap}" if cap else "")


def alternative_text(verdict: Verdict) -> str:
    """Describe the second remedy with its gain; empty without one."""
    one = verdict.alternative
    won = units.seconds(won_seconds(verdict, one) or 0.0)
    return "" if one is None else f"{clean_sentence(one.remedy)}: gain about {won} of {units.seconds(verdict.seconds)}"


def bullets(texts: Iterable[str], width: int) -> list[str]:
    """Format texts as a list with hanging indents."""
    lines = []
    for text in texts:
        first, *more = wrap(clean_sentence(text), width - 2)
        lines += [f"- {first}", *(f"  {line}" for line in more)]
    return lines
