"""The verdict: the limit that holds most of the critical path, what speaks for it, and what excludes its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.diagnose.causes import WORDS, Spent
from ckptprof.diagnose.rules import RULES, Rule
from ckptprof.diagnose.sight import MS, pace
from ckptprof.diagnose.verdict import nothing, sentences
from ckptprof.diagnose.verdict.gains import gain
from ckptprof.diagnose.verdict.series import back_to_back, waited_for
from ckptprof.model import Level, Mode
from ckptprof.units import per_second, percent, plural, rate, seconds, size
from ckptprof.verdicts import Limit, Verdict

_ALIKE = 0.9  # of the largest; what holds as much as that contradicts it, if one excludes the other
_CROWDED = 0.1  # of the path: no host makes what holds less so slow
_PERHAPS = 0.2  # of the path: what holds less is no candidate
_DISAGREE = 0.25  # of the path: so much more is spent than there was
# Confidence: what it begins with, and by how much each doubt lowers it
_EXACT = 0.92  # call times
_ESTIMATED = 0.78  # looks
_OF_UNCLEAR = 0.5  # at most
_ENOUGH = 0.6  # of the path: a limit that holds as much is as sure as it can be
_BY_SHARE = 0.25  # of it, for a limit that holds next to nothing
_NEXT = 0.75  # of a limit's time: the next one may be the first
_BY_NEXT = 0.08
_BY_UNEXPLAINED = 0.3  # where all of the path is
_BY_GUESS = 0.12  # which storage was waited for
_BY_RIVAL = 0.04  # it may be another one
_BY_MISSING = 0.07  # each thing that was not seen
_DIGITS = 3
_EITHER_OR = frozenset(
    {
        Limit.SERIALIZE, Limit.PAGE_CACHE, Limit.FLUSH, Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO,
        Limit.PAGE_FAULT,
    }
)  # fmt: skip
_WAITS = frozenset({Limit.FLUSH, Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO})
_LITTLE = 0.2  # of the path: an account that is excluded by its size
_MOST = 6  # of what a person reads
_NAMED = {
    Limit.SERIALIZE: "serialisation",
    Limit.METADATA: "file metadata",
    Limit.CLEAN_UP: "deletion",
    Limit.PAGE_CACHE: "the page cache",
    Limit.GATHER: "gathering",
    Limit.STRAGGLER: "waiting for one rank",
    Limit.NONE: "copying",
}
_LOOKS = 8  # at a thread: fewer are chance
_WAITED = 0.2  # of the path: what is behind shorter waits does not matter


@dataclass(frozen=True)
class _Choice:
    """What was decided, before it is put into words."""

    limit: Limit
    why: str | None  # of `none` and `unclear`; what shows a limit that has no account
    candidates: tuple[Limit, ...]


def verdict(found: Accounting) -> Verdict:
    """Return what the accounts say."""
    choice = _choose(found)
    limit, missing, (rule, shown) = choice.limit, _lacking(found), _rule(found, choice.limit)
    is_named = limit not in (Limit.NONE, Limit.UNCLEAR)
    promised = gain(found, limit) if is_named else None
    return Verdict(
        limit=limit,
        sentence=sentences.sentence(found, limit, promised, rule, choice.why),
        confidence=_confidence(found, choice, len(missing)),
        seconds=found.seconds,
        accounts=tuple(one.account for one in found.accounts),
        evidence=_evidence(found, limit, choice.why, shown if is_named else None),
        excluded=_excluded(found, limit) if is_named else (),
        lacking=missing,
        candidates=choice.candidates,
        expected_seconds=promised.expected_seconds if promised is not None else None,
        capped_by=promised.capped_by if promised is not None else None,
        cause=rule.name if rule else None,
        remedy=rule.remedy_for(found.sight) if rule else None,
        reference=rule.reference if rule else None,
    )


def _rule(found: Accounting, limit: Limit) -> tuple[Rule | None, Spent | str | None]:
    for rule in RULES:
        if limit in rule.limits:
            shown = rule.shown(found.sight, found.accounts)
            if shown is not None:
                return rule, shown
    return None, None


def totals(found: Accounting) -> list[tuple[Limit, float]]:
    """Return the limits with their seconds, largest first; without what limits nothing or explains nothing."""
    sums: dict[Limit, float] = {}
    for one in found.accounts:
        if one.limit is not None and one.limit is not Limit.NONE:
            sums[one.limit] = sums.get(one.limit, 0.0) + one.seconds
    return sorted(sums.items(), key=lambda pair: -pair[1])


def _of_its_own(found: Accounting) -> list[tuple[Limit, float]]:
    """Return the limits but for the wait for a processor; that alone where nothing would be slow without it."""
    order = totals(found)
    others = [pair for pair in order if pair[0] is not Limit.CPU]
    waited = found.of(Limit.CPU)
    if waited < max(nothing.MOMENT_SECONDS, nothing.LEAST_SHARE * found.seconds):
        return others
    least = max(nothing.MOMENT_SECONDS, _CROWDED * found.seconds)
    slow = others and others[0][1] >= least and found.share_of(others[0][0]) >= nothing.LEAST_SHARE
    return others if slow else [(Limit.CPU, waited)]


def _choose(found: Accounting) -> _Choice:
    order = _of_its_own(found)
    names = tuple(limit for limit, _ in order)
    chained = back_to_back(found.sight)
    if chained is None and names and names[0] is not Limit.CPU and found.share_of(names[0]) >= nothing.LEAST_SHARE:
        chained = waited_for(found.sight)
    if chained is not None:
        return _Choice(Limit.PREVIOUS_SAVE, chained, tuple(one for one in names if one is not Limit.PREVIOUS_SAVE)[:1])
    top = names[0] if names else None
    fine = nothing.reason(found, top)
    if fine is not None:
        return _Choice(Limit.NONE, fine, ())
    held = order[0][1] if order else 0.0
    unexplained = found.of(None)
    unsure = top is None or found.share_of(top) < nothing.LEAST_SHARE or unexplained > held
    beside = nothing.beside_training(found) if unsure else None
    if beside is not None:
        return _Choice(Limit.NONE, beside, ())
    short_of_cpus = top is Limit.CPU and found.share_of(top) >= nothing.LEAST_SHARE  # as who was waited for beside it
    if top is None or (unsure and not short_of_cpus):
        why = f"{seconds(unexplained)} unexplained"
        if top is not None and unexplained <= held:
            why = f"no limit accounts for more than {percent(held / found.seconds if found.seconds else 0.0)} of it"
        return _Choice(Limit.UNCLEAR, why, tuple(limit for limit, _ in order[:2] if found.share_of(limit) >= _PERHAPS))
    contradiction = _contradiction(found, order)
    if contradiction is not None:
        return contradiction
    wait = found.waited_for(top)
    return _Choice(top, None, (wait.rival,) if wait is not None and wait.rival is not None else names[1:2])


def _contradiction(found: Accounting, order: list[tuple[Limit, float]]) -> _Choice | None:
    """Return that it is unclear, where two limits exclude each other and hold alike, or the numbers disagree."""
    top, held = order[0]
    surplus = found.path.time.surplus
    if surplus > _DISAGREE * found.seconds and top in _EITHER_OR:
        stored = found.storage.limit if found.storage is not None else None
        both = tuple(dict.fromkeys(one for one in (top, Limit.SERIALIZE, stored) if one is not None))[:2]
        if len(both) == 2:
            over = percent(surplus / found.seconds)
            return _Choice(Limit.UNCLEAR, f"CPU time and time in calls exceed the duration by {over}", both)
    if len(order) > 1 and top in _EITHER_OR and order[1][0] in _EITHER_OR and order[1][1] >= _ALIKE * held:
        second, other = order[1]
        why = f"{seconds(held)} {WORDS[top]}, {seconds(other)} {WORDS[second]}"
        return _Choice(Limit.UNCLEAR, why, (top, second))
    return None


def _confidence(found: Accounting, choice: _Choice, missing: int) -> float:
    exact = found.sight.checkpoint.level is Level.TRACE and found.path.time.exact
    sure = _EXACT if exact and not (choice.limit is Limit.NONE and nothing.is_paused(found)) else _ESTIMATED
    own = found.of(choice.limit)
    if choice.limit is Limit.UNCLEAR:
        sure = min(sure, _OF_UNCLEAR)
    elif choice.why == nothing.IN_BACKGROUND and found.seconds:
        sure -= _BY_UNEXPLAINED * found.of(None) / found.seconds
    elif choice.limit is not Limit.NONE and own and found.seconds:
        sure *= 1 - _BY_SHARE * max(0.0, 1 - found.share_of(choice.limit) / _ENOUGH)
        others = [value for limit, value in _of_its_own(found) if limit is not choice.limit]
        if others and others[0] > _NEXT * own:
            sure -= _BY_NEXT
        sure -= _BY_UNEXPLAINED * found.of(None) / found.seconds
    wait = found.waited_for(choice.limit)
    if wait is not None:
        sure -= _BY_GUESS if not wait.sure else _BY_RIVAL if wait.rival is not None else 0.0
    return round(min(1.0, max(0.0, sure - _BY_MISSING * missing)), _DIGITS)


def _evidence(found: Accounting, limit: Limit, why: str | None, shown: Spent | str | None) -> tuple[str, ...]:
    """Return what speaks for it, with numbers; `shown`: what a rule adds, unless it is an account that is told here."""
    first = [why] if why else []
    speaking = list(found.accounts)
    if limit is Limit.PREVIOUS_SAVE:  # and what makes each of them slow
        speaking = [one for one in speaking if one.limit is not Limit.NONE]
    elif limit not in (Limit.NONE, Limit.UNCLEAR):
        speaking = [one for one in speaking if one.limit is limit]
    speaking, whole = speaking[: _MOST - len(first)], found.seconds
    told = first + [f"{seconds(one.seconds)} ({percent(one.seconds / whole)}) {one.words}" for one in speaking]
    if limit in _WAITS:
        told += _of_storage(found)
    return (*told[:_MOST], *([str(shown)] if shown is not None and shown not in speaking else ()))


def _of_storage(found: Accounting) -> list[str]:
    sight = found.sight
    told = []
    device = sight.device
    if device is not None and not sight.remote:
        if sight.request_bytes is not None and sight.device_operations is not None:
            requests = per_second(pace(sight.device_operations, device.seconds))
            told.append(f"{device.device} did {requests} requests of {size(sight.request_bytes)}")
        wait = device.write_wait_seconds if sight.writes else device.read_wait_seconds
        if wait is not None:
            told.append(f"each request took {wait * MS:.1f} ms")
        shown = device.shown_bytes_per_second
        if shown:
            told.append(f"its highest observed rate is {rate(shown)}")
    if sight.probed:
        told.append(f"`ckptprof ceiling` measured {rate(sight.probed)} on this path")
    return told


def _excluded(found: Accounting, limit: Limit) -> tuple[str, ...]:
    wait = found.waited_for(limit)
    told = list(wait.excluded) if wait is not None else []
    if found.seconds > 0:
        for other, words in _NAMED.items():
            spent = found.of(other)
            if other is not limit and (spent > 0 or other is Limit.SERIALIZE) and spent < _LITTLE * found.seconds:
                if other is Limit.SERIALIZE and not found.path.time.cpu_known:
                    continue
                told.append(f"{words} took only {seconds(spent)}")
        if limit not in _WAITS and found.path.time.calls_known and found.waiting < _LITTLE * found.seconds:
            busy = found.sight.device_busy if not found.sight.remote else None
            room = f", device {percent(busy)} busy" if busy is not None else ""
            told.append(f"reads, writes and syncs waited only {seconds(found.waiting)}{room}")
    return tuple(told[:_MOST])


def _lacking(found: Accounting) -> tuple[str, ...]:
    sight, time, is_known = found.sight, found.path.time, found.path.thread is not None
    if sight.checkpoint.measures is None:
        return ("any measurement of the host during the checkpoint",)
    few = time.calls_known and not time.exact and time.looks < _LOOKS and found.seconds > 0
    waited, mount = found.waiting > _WAITED * found.seconds, sight.measures.mount
    near, far = (waited and mount is not None and sight.remote is is_far for is_far in (False, True))
    blocked = sight.checkpoint.mode is Mode.ASYNC and sight.checkpoint.stall_ns is None
    device_busy = None if sight.device is None else sight.device.busy_seconds
    rows = (
        (blocked, "how long training was blocked"),
        (not is_known, "what its threads did"),
        (is_known and not time.calls_known, "which calls its threads waited in"),
        (is_known and few, f"more than {plural(time.looks, 'sample')} of its threads"),
        (is_known and not time.cpu_known, "the CPU time of its threads"),
        (waited and mount is None, "the mount that its files are on"),
        (far and sight.link is None, "the network link to its server"),
        (near and sight.device is None, "the device under its files"),
        (near and sight.device is not None and device_busy is None, "how busy the device was"),
    )
    return tuple(text for is_missing, text in rows if is_missing)
