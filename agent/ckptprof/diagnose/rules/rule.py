"""What a rule is: a cause that users reported, how it is told from its neighbours, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.sight import SLIGHT, Sight, some
from ckptprof.frameworks.table import libraries
from ckptprof.model import Kind, Mode
from ckptprof.units import percent, size
from ckptprof.verdicts import Limit

MUCH = 0.3  # of a checkpoint's bytes: less beside it is not why it took long
_SHOWN = 0.4  # of the looks in its own code: nothing else was shown as often
_LOW = 0.08  # of all memory: the kernel reclaims

Words = Callable[[Sight, tuple[Spent, ...]], Spent | str | None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One cause: what shows it is the largest account of its limits, or of `causes`, or what `words` returns."""

    name: str  # short and stable
    limits: tuple[Limit, ...]  # that it explains
    when: Callable[[Sight], bool] | None = None  # what has to hold of the checkpoint
    causes: tuple[Cause, ...] = ()  # what the account was spent in
    # what a person reads where it is more than an account, or an account; None if the rule does not fit
    words: Words | None = None
    remedy: str  # one concrete line, for any framework: it names no library
    reference: str  # where that was seen
    without: str | None = None  # as the sentence says it: "with CRC off about 17 s"
    remedy_of_restore: str | None = None  # if it is not the same
    remedies: Mapping[str, str] = field(default_factory=dict)  # by library: that of the first one that the job uses
    remedies_of_restore: Mapping[str, str] = field(default_factory=dict)  # if restores have a remedy of their own
    instead: Callable[[Sight], str | None] | None = None  # the remedy where the checkpoint shows that it is another

    def shown(self, sight: Sight, accounts: tuple[Spent, ...]) -> Spent | str | None:
        """Return the account or the words that show it, None if it does not fit."""
        if self.when is not None and not self.when(sight):
            return None
        if self.words is not None:
            return self.words(sight, accounts)
        return spent_in(accounts, *self.causes) if self.causes else spent(accounts, *self.limits)

    def remedy_for(self, sight: Sight) -> str:
        """Return what to do about it."""
        other = self.instead(sight) if self.instead is not None else None
        if other is not None:
            return other
        general, special = self.remedy, self.remedies
        if is_restore(sight) and self.remedy_of_restore is not None:
            general, special = self.remedy_of_restore, self.remedies_of_restore
        used = libraries(sight.checkpoint.framework)
        return next((text for library, text in special.items() if library in used), general)


def spent(accounts: tuple[Spent, ...], *limits: Limit) -> Spent | None:
    """Return the largest account of these limits, None if there is none."""
    return next((one for one in accounts if one.limit in limits), None)


def spent_in(accounts: tuple[Spent, ...], *causes: Cause) -> Spent | None:
    """Return the largest account of these causes, None if there is none."""
    return next((one for one in accounts if one.cause in causes), None)


def stacks_in(name: str) -> Words:
    """Say that most looks at the stack of the writing thread, of those in its own code, showed this."""

    def words(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
        shares = sight.stacks()
        own = sum(shares.get(one, 0.0) for one in ("pickle", "crc", "compress", "copy", "gather", "other"))
        if not shares.get(name) or shares[name] < _SHOWN * own:
            return None
        return f"{percent(shares[name])} of the stack samples of the writing thread were in {name}"

    return words


def is_far(sight: Sight) -> bool:
    """Whether its files are behind a network."""
    return sight.remote


def is_restore(sight: Sight) -> bool:
    """Whether it reads."""
    return sight.checkpoint.kind is Kind.RESTORE


def is_save(sight: Sight) -> bool:
    """Whether it writes."""
    return sight.writes


def in_background(sight: Sight, *roles: str) -> bool:
    """Whether most was written beside training, by something of these roles."""
    mine = sum(one.bytes for one in sight.checkpoint.writers if one.role in roles)
    return sight.checkpoint.mode is Mode.ASYNC and mine * 2 > sight.checkpoint.bytes


def pressed(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
    """Return that memory was short."""
    total, available = some(sight.memory.total_bytes), sight.memory.available_min_bytes
    if total and available is not None and 0 <= available < _LOW * total:
        return f"only {size(available)} of {size(total)} of memory was available"
    if some(sight.memory.memory_some_share) >= SLIGHT:
        return f"processes waited for memory {percent(min(1.0, some(sight.memory.memory_some_share)))} of the time"
    return None


def written_beyond(*reasons: str) -> Words:
    """Say that many bytes were written beyond the checkpoint for one of these reasons."""

    def words(sight: Sight, _accounts: tuple[Spent, ...]) -> str | None:
        checkpoint = sight.checkpoint
        found = [one for one in checkpoint.overheads if one.reason in reasons]
        extra, unique = sum(one.bytes for one in found), (checkpoint.unique_bytes or checkpoint.bytes)
        if not found or extra < MUCH * unique:
            return None
        return f"{size(extra)} written in addition to the {size(unique)} of the checkpoint"

    return words
