"""The one sentence of a verdict: how long, what held most of it, what that is called, what would be gained."""

from __future__ import annotations

from dataclasses import replace

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.accounts.outside import deleted_after
from ckptprof.diagnose.causes import WITHOUT_CPU, WORDS, Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.sight import SLIGHT
from ckptprof.diagnose.verdict.gains import Gain
from ckptprof.diagnose.verdict.nothing import TOO_SHORT
from ckptprof.model import Kind
from ckptprof.units import percent, seconds
from ckptprof.verdicts import Limit

WITHOUT = {
    Limit.GATHER: "without gathering",
    Limit.STAGING: "without that copy",
    Limit.SERIALIZE: "without it",
    Limit.CPU: "with a free CPU",
    Limit.PAGE_CACHE: "without these pauses",
    Limit.FLUSH: "with one sync at the end",
    Limit.DEVICE: "on a fast enough device",
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
STORAGE = frozenset({Limit.FLUSH, Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO, Limit.METADATA})
_OF_JOB = frozenset({Limit.SERIALIZE, Limit.CPU, Limit.SINGLE_WRITER, Limit.GATHER, Limit.STAGING, Limit.STRAGGLER})
_BESIDE = (Limit.SERIALIZE, Limit.CPU, Limit.SINGLE_WRITER, Limit.PAGE_FAULT)
_CROWDED = 0.2  # of the path
_STORED = 0.15  # of the path: who looks for a slow storage looks in the wrong place
_WHOLE = frozenset({Cause.LATE_RANK, Cause.GREW, Cause.PARSED})  # whose texts name who did it
_OF_TRAINING = frozenset({Cause.PREVIOUS_SAVE, Cause.CAME_IN, Cause.BUSY_BEFORE})
OF_BEFORE = _OF_TRAINING | {Cause.GREW, Cause.UNTOLD_BEFORE}


def begin(found: Accounting) -> str:
    """Return the length, since when that is if not since its start, and that it is a restore if it is one."""
    length = seconds(found.seconds)
    if any(one.cause in OF_BEFORE for one in found.accounts):
        length += " since training stopped for it"
    return f"restore of {length}" if found.sight.checkpoint.kind is Kind.RESTORE else length


def subject(found: Accounting, one: Spent) -> str:
    """Return an account's text with who did it."""
    if one.alone or one.cause in _WHOLE:
        return one.words
    if one.cause in _OF_TRAINING:
        return f"training was {one.text}"
    verb = "reading" if found.sight.checkpoint.kind is Kind.RESTORE else "writing"
    single = "single " if found.path.together == 1 and len(found.sight.checkpoint.writers) == 1 else ""
    return f"the {single}{verb} thread was {one.text}"


def sentence(found: Accounting, limit: Limit, promised: Gain | None, rule: Rule | None, why: str | None) -> str:
    """Return the sentence of a limit; `why`: of `none` and `unclear`, and what shows a limit that has no account."""
    if limit is Limit.UNCLEAR:
        return f"{begin(found)}, and it is unclear what limited it: {why}"
    if limit is Limit.NONE and why == TOO_SHORT:  # whatever it went to
        return f"{begin(found)}: {why}"
    if limit is Limit.NONE:
        because = f": {why}" if found.sight.checkpoint.bytes else ""
        return f"{begin(found)}, nothing was slow{because}{_crowded(found, limit)}"
    mine = [one for one in found.accounts if one.limit is limit]
    cleared = deleted_after(found.sight) if limit is Limit.CLEAN_UP else None
    if cleared is not None:
        clause = f"{seconds(found.sight.span)} and {cleared}: {WORDS[limit]}"
    elif mine:
        is_one = limit is Limit.SINGLE_WRITER and found.waited_for(limit) is not None  # it may be that of all ranks
        called = "bound by one connection" if is_one else WORDS[limit]
        clause = f"{begin(found)}, {called}: {_spent(found, mine)}{_beside(found, limit)}"
    else:
        clause = f"{begin(found)}, {WORDS[limit]}{f': {why}' if why else ''}{_slow_by(found)}"
    clause += _crowded(found, limit)
    if promised is not None and found.seconds - promised.expected_seconds >= SLIGHT * found.seconds:
        without = (rule.without if rule else None) or WITHOUT[limit]
        clause += f"; {without} about {seconds(promised.expected_seconds)}"
    elif found.of(limit):
        clause += "; removing this limit would gain little"
    return f"{clause}{_comfort(found, limit)}"


def _spent(found: Accounting, mine: list[Spent]) -> str:
    """Return what a limit's time was spent in, each with its own seconds; what is short stands among the evidence."""
    if mine[0].limit is Limit.CPU:  # in its own code and in the kernel: it lacked the same
        several = len(mine) > 1 and mine[0].cause is not Cause.STARVED_AFTER
        both = replace(mine[0], text=WITHOUT_CPU) if several else mine[0]
        return f"for {seconds(found.of(Limit.CPU))} {subject(found, both)}"
    first = subject(found, mine[0])
    told = [first if mine[0].cause is Cause.LATE_RANK else f"for {seconds(mine[0].seconds)} {first}"]
    told += [f"for {seconds(one.seconds)} {one.text}" for one in mine[1:] if one.seconds >= SLIGHT * found.seconds]
    return ", and ".join(told)


def _crowded(found: Accounting, limit: Limit) -> str:
    waited = found.of(Limit.CPU)
    if limit is Limit.CPU or waited < _CROWDED * found.seconds:
        return ""
    return f"; for {seconds(waited)} it waited for a CPU"


def _slow_by(found: Accounting) -> str:
    slow = next((one for one in found.accounts if one.limit is not None and one.limit is not Limit.NONE), None)
    if slow is None or slow.seconds < SLIGHT * found.seconds:
        return ""
    return f"; in each, for {seconds(slow.seconds)} {subject(found, slow)}"


def _beside(found: Accounting, limit: Limit) -> str:
    busy = found.sight.device_busy
    if limit not in _BESIDE or busy is None or found.sight.remote:
        return ""
    return f" while the device was {percent(busy)} busy"


def _comfort(found: Accounting, limit: Limit) -> str:
    stored = sum(found.of(one) for one in STORAGE)
    if limit in _OF_JOB:
        known = found.path.time.calls_known and found.waited_for(limit) is None
        return "; storage is not the problem" if known and stored < _STORED * found.seconds else ""
    if limit in STORAGE and found.of(Limit.SERIALIZE) < SLIGHT * found.seconds and found.path.time.cpu_known:
        code = "loading" if found.sight.checkpoint.kind is Kind.RESTORE else "saving"
        return f"; the {code} code is not the problem"
    return ""
