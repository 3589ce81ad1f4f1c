"""The sentence of a verdict: duration, limit, what most of the time was spent in, and the gain."""

from __future__ import annotations

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.accounts.outside import deleted_after
from ckptprof.diagnose.causes import WORDS, AttributedTime, Cause
from ckptprof.diagnose.rules.rule import CauseRule
from ckptprof.diagnose.tolerances import SLIGHT
from ckptprof.diagnose.verdict.gains import Gain
from ckptprof.diagnose.verdict.not_slow import TOO_SHORT
from ckptprof.model import Kind
from ckptprof.units import seconds
from ckptprof.verdicts import THROTTLED, Limit

WITHOUT = {
    Limit.GATHER: "without gathering",
    Limit.STAGING: "without that copy",
    Limit.SERIALIZE: "without it",
    Limit.CPU: "with a free CPU",
    Limit.PAGE_CACHE: "without these pauses",
    Limit.FLUSH: "with one sync at the end",
    Limit.DEVICE: "on a fast enough disk",
    Limit.NETWORK: "on a fast enough link",
    Limit.SERVER: "with a fast enough server",
    Limit.SMALL_IO: "in large operations",
    Limit.METADATA: "with few files",
    Limit.STRAGGLER: "with equally fast ranks",
    Limit.SINGLE_WRITER: "with all ranks writing",
    Limit.PREVIOUS_SAVE: "without that wait",
    Limit.CLEAN_UP: "with deletion in the background",
    Limit.PAGE_FAULT: "with reads instead of a mapping",
}
_FULL_SENTENCE_CAUSES = frozenset({Cause.LATE_RANK, Cause.MEMORY_GREW, Cause.PARSED})  # their texts name the subject
_OF_TRAINING = frozenset({Cause.PREVIOUS_SAVE, Cause.STATE_RECEIVED_BEFORE, Cause.BUSY_BEFORE})
OF_BEFORE = _OF_TRAINING | {Cause.MEMORY_GREW, Cause.UNKNOWN_BEFORE}


def duration_text(found: Accounting) -> str:
    """Return the duration, from when training stopped if that is earlier than the start; names a restore."""
    length = seconds(found.seconds)
    if any(one.cause in OF_BEFORE for one in found.accounts):
        length += " since training stopped for it"
    return f"restore of {length}" if found.context.checkpoint.kind is Kind.RESTORE else length


def clause_of(found: Accounting, one: AttributedTime) -> str:
    """Return the text of an account with its subject."""
    if one.single_writer or one.cause in _FULL_SENTENCE_CAUSES:
        return one.words
    if one.cause in _OF_TRAINING:
        return f"training was {one.clause}"
    verb = "reading" if found.context.checkpoint.kind is Kind.RESTORE else "writing"
    single = "single " if found.path.writer_threads == 1 and len(found.context.checkpoint.writers) == 1 else ""
    return f"the {single}{verb} thread was {one.clause}"


def sentence(found: Accounting, limit: Limit, promised: Gain | None, rule: CauseRule | None, why: str | None) -> str:
    """Return the sentence of a limit; `why`: the reason for `none` and `unclear`, or for a limit without an account."""
    if limit is Limit.UNCLEAR:
        return f"{duration_text(found)}, and it is unclear what limited it: {why}"
    if limit is Limit.NONE and why == TOO_SHORT:  # in any account
        return f"{duration_text(found)}: {why}"
    if limit is Limit.NONE:
        because = f": {why}" if found.context.checkpoint.bytes else ""
        return f"{duration_text(found)}, nothing was slow{because}"
    mine = [one for one in found.accounts if one.limit is limit]
    cleared = deleted_after(found.context) if limit is Limit.CLEAN_UP else None
    if cleared is not None:
        clause = f"{seconds(found.context.span)} and {cleared}: {WORDS[limit]}"
    elif why is None:
        wait = found.waited_for(limit)
        is_one = wait is not None and wait.cause is Cause.ONE_CONNECTION  # it may be that of all ranks
        called = "bound by one connection" if is_one else WORDS[limit]
        called = THROTTLED if rule is not None and rule.name == THROTTLED else called
        clause = f"{duration_text(found)}, {called}: {_spent(found, mine)}"
    else:
        clause = f"{duration_text(found)}, {WORDS[limit]}: {why}; in each, {_spent(found, mine)}"
    without, expected = (rule.without if rule else None) or WITHOUT[limit], promised and promised.expected_seconds
    if promised is not None and expected is None:
        clause += f"; how long it takes {without} is not known"
    elif expected is not None and found.seconds - expected >= SLIGHT * found.seconds:
        clause += f"; it takes about {seconds(expected)} {without}"
    elif found.of(limit) and why is None:
        clause += "; removing this limit would gain little"
    return clause


def _spent(found: Accounting, mine: list[AttributedTime]) -> str:
    first = clause_of(found, mine[0])
    clauses = [first if mine[0].cause is Cause.LATE_RANK else f"for {seconds(mine[0].seconds)} {first}"]
    clauses += [f"for {seconds(one.seconds)} {one.clause}" for one in mine[1:] if one.seconds >= SLIGHT * found.seconds]
    inside = found.runnable - found.of(Limit.CPU) if mine[0].limit is Limit.CPU else 0.0
    clauses += [f"for {seconds(inside)} within the work of other limits"] * (inside >= SLIGHT * found.seconds)
    return ", and ".join(clauses)
