"""The verdict: the limit with most of the critical path, the evidence, and what is ruled out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.accounts.storage_waits import throttle
from ckptprof.diagnose.causes import WORDS, AttributedTime
from ckptprof.diagnose.context import or_zero
from ckptprof.diagnose.rules import RULES, CauseRule
from ckptprof.diagnose.tolerances import CLEARLY, FEW, LITTLE, MOST, NEARLY_ALL, PART
from ckptprof.diagnose.verdict import not_slow, sentences
from ckptprof.diagnose.verdict.gains import busy_rate, gain
from ckptprof.diagnose.verdict.save_series import back_to_back, waited_for
from ckptprof.model import LEFT_OUT, REUSED_MEMORY, Level, Mode
from ckptprof.units import MS, per_second, percent, plural, rate, seconds, size
from ckptprof.verdicts import THROTTLED, Alternative, Limit, Verdict

# Confidence: its initial value, and by how much each doubt lowers it
_EXACT = 0.92  # call times
_ESTIMATED = 0.78  # samples
_OF_UNCLEAR = 0.5  # at most
_ENOUGH = 0.6  # of the path: a limit with this share has full confidence
_BY_SHARE = 0.25  # of the confidence, for a limit with almost no time
_NEXT = 0.75  # of a limit's time: with more the second limit may really be the first
_BY_NEXT = 0.08
_BY_UNEXPLAINED = 0.3  # where all of the path is
_BY_GUESS = 0.12  # uncertain which storage was waited for
_BY_RIVAL = 0.04  # there is an alternative limit
_BY_MISSING = 0.07  # for each missing observation
_DIGITS = 3
_EITHER_OR = frozenset(
    {
        Limit.SERIALIZE, Limit.PAGE_CACHE, Limit.FLUSH, Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO,
        Limit.PAGE_FAULT,
    }
)  # fmt: skip
_WAITS = frozenset({Limit.FLUSH, Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO})
_MOST = 6  # entries shown to users
_NAMED = {
    Limit.SERIALIZE: "serialisation",
    Limit.METADATA: "file metadata",
    Limit.CLEAN_UP: "deletion",
    Limit.PAGE_CACHE: "the page cache",
    Limit.GATHER: "gathering",
    Limit.STRAGGLER: "waiting for one rank",
    Limit.NONE: "copying",
}


@dataclass(frozen=True)
class _Choice:
    limit: Limit
    reason: str | None  # why the limit is `none` or `unclear`, or the evidence of a limit that no account shows
    candidates: tuple[Limit, ...]


def verdict(found: Accounting) -> Verdict:
    """Decide on a limit, and describe it."""
    chained = _chained(found)
    if chained is not None:  # whatever was slow in it kept the next save waiting: a refinement of the longest account
        longest = found.bars[0][0]
        accounts = (replace(one, limit=Limit.PREVIOUS_SAVE) if one.limit is longest else one for one in found.accounts)
        found = replace(found, accounts=tuple(accounts))
    choice = _choose(found, chained)
    limit, missing, (rule, shown) = choice.limit, _not_observed(found, choice.limit), _rule(found, choice.limit)
    is_named = limit not in (Limit.NONE, Limit.UNCLEAR)
    promised = gain(found, limit, rule) if is_named and chained is None else None
    bound = throttle(found.context, found.waiting) if rule is not None and rule.name == THROTTLED else None
    return Verdict(
        limit=limit,
        sentence=sentences.sentence(found, limit, promised, rule, choice.reason),
        confidence=_confidence(found, choice, len(missing)),
        seconds=found.seconds,
        accounts=tuple(one.account for one in found.accounts),
        evidence=_evidence(found, limit, choice.reason, shown if is_named else None),
        excluded=_excluded(found, limit) if limit is not Limit.NONE else (),
        missing=missing,
        candidates=choice.candidates,
        expected_seconds=promised.expected_seconds if promised is not None else None,
        capped_by=promised.capped_by if promised is not None else None,
        cause=rule.name if rule else None,
        remedy=rule.remedy_for(found.context) if rule else None,
        reference=rule.reference if rule else None,
        throttle_bytes_per_second=None if bound is None else bound.bytes_per_second,
        alternative=_alternative(found, limit) if is_named and chained is None else None,
    )


def _alternative(found: Accounting, limit: Limit) -> Alternative | None:
    """Return the remedy of waits for a CPU, or of the work that waited; None if its gain is small."""
    other = next((one for one, _ in totals(found) if one is not limit), None) if limit is Limit.CPU else Limit.CPU
    rule = _rule(found, other)[0] if other is not None else None
    if other is None or rule is None:
        return None
    expected = gain(found, other, rule).expected_seconds
    if expected is None or found.seconds - expected < max(not_slow.LEAST_SECONDS, LITTLE * found.seconds):
        return None
    return Alternative(limit=other, remedy=rule.remedy_for(found.context), expected_seconds=expected)


def _rule(found: Accounting, limit: Limit) -> tuple[CauseRule | None, AttributedTime | str | None]:
    for rule in RULES:
        if limit in rule.limits:
            shown = rule.match(found.context, found.accounts)
            if shown is not None:
                return rule, shown
    return None, None


def totals(found: Accounting) -> list[tuple[Limit, float]]:
    """Return the limits with their seconds, largest first; without `none` and unexplained time."""
    return [(limit, spent) for limit, spent in found.bars if limit is not None and limit is not Limit.NONE]


def _chained(found: Accounting) -> str | None:
    if not found.bars:
        return None
    chained, longest = back_to_back(found.context), found.bars[0][0]
    is_known = longest not in (None, Limit.NONE, Limit.CPU) and found.share_of(longest) >= PART
    return waited_for(found.context) if chained is None and is_known else chained


def _choose(found: Accounting, chained: str | None) -> _Choice:
    """Choose the longest account, `none` if nothing was slow, `unclear` if it is unexplained, too short or a tie."""
    order = totals(found)
    names = tuple(limit for limit, _ in order)
    if chained is not None:
        return _Choice(Limit.PREVIOUS_SAVE, chained, tuple(one for one in names if one is not Limit.PREVIOUS_SAVE)[:1])
    top, largest = found.bars[0] if found.bars else (None, 0.0)
    fine = not_slow.why_not_slow(found, top)
    if fine is not None:
        return _Choice(Limit.NONE, fine, ())
    unsure = top is None or top is Limit.NONE or found.share_of(top) < PART
    background = not_slow.background_reason(found) if unsure else None
    if background is not None:
        return _Choice(Limit.NONE, background, ())
    if top is None or unsure:
        longest = next((one for one in found.accounts if one.limit is None), None)
        why = f"{seconds(largest)} unexplained" if longest is None or longest.seconds < MOST * largest else str(longest)
        if top is not None:
            why = f"no limit accounts for more than {percent(largest / found.seconds if found.seconds else 0.0)} of it"
        return _Choice(Limit.UNCLEAR, why, tuple(limit for limit, _ in order[:2] if found.share_of(limit) >= LITTLE))
    tie = _tie(order)
    if tie is not None:
        return tie
    wait = found.waited_for(top)
    return _Choice(top, None, (wait.rival,) if wait is not None and wait.rival is not None else names[1:2])


def _tie(order: list[tuple[Limit, float]]) -> _Choice | None:
    top, largest = order[0]
    if len(order) > 1 and top in _EITHER_OR and order[1][0] in _EITHER_OR and order[1][1] >= NEARLY_ALL * largest:
        second, other = order[1]
        why = f"{seconds(largest)} {WORDS[top]}, {seconds(other)} {WORDS[second]}"
        return _Choice(Limit.UNCLEAR, why, (top, second))
    return None


def _confidence(found: Accounting, choice: _Choice, missing: int) -> float:
    exact = found.context.checkpoint.level is Level.TRACE and found.path.time.is_exact
    sure = _EXACT if exact else _ESTIMATED
    own = found.of(choice.limit)
    if choice.limit is Limit.UNCLEAR:
        sure = min(sure, _OF_UNCLEAR)
    elif choice.reason == not_slow.IN_BACKGROUND and found.seconds:
        sure -= _BY_UNEXPLAINED * found.of(None) / found.seconds
    elif choice.limit is not Limit.NONE and choice.reason is None and own and found.seconds:
        sure *= 1 - _BY_SHARE * max(0.0, 1 - found.share_of(choice.limit) / _ENOUGH)
        others = [value for limit, value in totals(found) if limit is not choice.limit]
        if others and others[0] > _NEXT * own:
            sure -= _BY_NEXT
        sure -= _BY_UNEXPLAINED * found.of(None) / found.seconds
    wait = found.waited_for(choice.limit)
    if wait is not None:
        sure -= _BY_GUESS if not wait.sure else _BY_RIVAL if wait.rival is not None else 0.0
    observed = 1 - or_zero(found.context.measures.lost_share)
    return round(min(1.0, max(0.0, (sure - _BY_MISSING * missing) * observed)), _DIGITS)


def _evidence(found: Accounting, limit: Limit, why: str | None, shown: AttributedTime | str | None) -> tuple[str, ...]:
    """Return the evidence with numbers; `shown`: what a rule adds, unless it is an account that is listed here."""
    first = [why] if why else []
    is_named = limit not in (Limit.NONE, Limit.UNCLEAR)
    speaking = [one for one in found.accounts if one.limit is limit or not is_named]
    speaking, whole = speaking[: _MOST - len(first)], found.seconds
    texts = first + [f"{seconds(one.seconds)} ({percent(one.seconds / whole)}) {one.words}" for one in speaking]
    if limit in _WAITS:
        texts += _of_storage(found)
    return (*texts[:_MOST], *([str(shown)] if shown is not None and shown not in speaking else ()))


def _of_storage(found: Accounting) -> list[str]:
    context = found.context
    texts = []
    device = context.device
    if device is not None and not context.is_remote:
        if context.request_bytes is not None and context.device_operations_per_second is not None:
            requests = per_second(context.device_operations_per_second)
            texts.append(f"{device.device} did {requests} requests of {size(context.request_bytes)}")
        wait = device.write_wait_seconds if context.is_save else device.read_wait_seconds
        if wait is not None:
            texts.append(f"each request took {wait * MS:.1f} ms")
    shown, probed = or_zero(context.fastest_second), or_zero(context.probed)
    bound, busy = throttle(context, found.waiting), busy_rate(context)
    is_bounded = bound is not None and max(shown, probed) <= CLEARLY * or_zero(bound.bytes_per_second)
    with_throttle = f", with the throttle; {rate(busy)} while it had requests" if is_bounded and busy else ""
    if probed and (context.is_remote or probed >= shown):
        texts.append(f"`ckptprof ceiling` measured {rate(probed)} on this path{with_throttle}")
    elif shown and not context.is_remote:
        way = "written" if context.is_save else "read"
        texts.append(f"the most that it has {way} in one second is {size(shown)}{with_throttle}")
    return texts


def _excluded(found: Accounting, limit: Limit) -> tuple[str, ...]:
    wait = found.waited_for(limit)
    texts = list(wait.excluded) if wait is not None else []
    if found.seconds > 0:
        for other, words in _NAMED.items():
            spent = found.of(other)
            if other is not limit and (spent > 0 or other is Limit.SERIALIZE) and spent < LITTLE * found.seconds:
                if other is Limit.SERIALIZE and not found.path.time.cpu_known:
                    continue
                texts.append(f"{words} took only {seconds(spent)}")
        if limit not in _WAITS and found.path.time.calls_known and found.waiting < LITTLE * found.seconds:
            busy = found.context.busy_of(found.context.device) if not found.context.is_remote else None
            device_text = f", disk {percent(busy)} busy" if busy is not None else ""
            texts.append(f"reads, writes and syncs waited only {seconds(found.waiting)}{device_text}")
    return tuple(texts[:_MOST])


def _not_observed(found: Accounting, limit: Limit) -> tuple[str, ...]:
    context, time, is_known = found.context, found.path.time, found.path.thread is not None
    if context.checkpoint.measures is None:
        return ("any measurement of the host during the checkpoint",)
    few = time.calls_known and not time.is_exact and time.samples < FEW and found.seconds > 0
    waited, mount = found.waiting > LITTLE * found.seconds, context.measures.mount
    near, far = (waited and mount is not None and context.is_remote is is_far for is_far in (False, True))
    blocked = context.checkpoint.mode is Mode.ASYNC and context.checkpoint.stall_ns is None
    device_busy = None if context.device is None else context.device.busy_seconds
    rows = (
        *((True, sentence) for sentence in context.checkpoint.limitations if sentence.endswith(LEFT_OUT)),
        (limit is Limit.NONE and REUSED_MEMORY in context.checkpoint.limitations, REUSED_MEMORY),
        (blocked, "how long training was blocked"),
        (not is_known, "what its threads did"),
        (is_known and not time.calls_known, "which calls its threads waited in"),
        (is_known and few, f"more than {plural(time.samples, 'sample')} of its threads"),
        (is_known and not time.cpu_known, "the CPU time of its threads"),
        (waited and mount is None, "the mount that its files are on"),
        (far and context.link is None, "the network link to its server"),
        (near and context.device is None, "the disk under its files"),
        (near and context.device is not None and device_busy is None, "how busy the disk was"),
    )
    return tuple(text for is_missing, text in rows if is_missing)
