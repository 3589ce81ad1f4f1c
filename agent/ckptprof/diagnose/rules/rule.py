"""What a rule is: a cause that users reported, how it is told from its neighbours, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.frameworks.table import libraries
from ckptprof.model import Checkpoint, Kind
from ckptprof.verdicts import Limit

Words = Callable[[Checkpoint, tuple[Spent, ...]], str | None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One cause: what shows it is the largest account of its limits, or of `causes`, or what `words` returns."""

    name: str  # short and stable
    limits: tuple[Limit, ...]  # that it explains
    when: Callable[[Checkpoint], bool] | None = None  # what has to hold of the checkpoint
    causes: tuple[Cause, ...] = ()  # what the account was spent in
    # what a person reads where it is more than an account, or an account; None if the rule does not fit
    words: Callable[[Checkpoint, tuple[Spent, ...]], Spent | str | None] | None = None
    exclusion: str  # what would speak against it
    remedy: str  # one concrete line, for any framework: it names no library
    reference: str  # where that was seen
    without: str | None = None  # as the sentence says it: "with CRC off about 17 s"
    remedy_of_restore: str | None = None  # if it is not the same
    remedies: Mapping[str, str] = field(default_factory=dict)  # by library: that of the first one that the job uses
    remedies_of_restore: Mapping[str, str] = field(default_factory=dict)  # if restores have a remedy of their own
    instead: Callable[[Checkpoint], str | None] | None = (
        None  # the remedy where the checkpoint shows that it is another
    )

    def shown(self, checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | str | None:
        """Return the account or the words that show it, None if it does not fit."""
        if self.when is not None and not self.when(checkpoint):
            return None
        if self.words is not None:
            return self.words(checkpoint, accounts)
        return spent_in(accounts, *self.causes) if self.causes else spent(accounts, *self.limits)

    def remedy_for(self, checkpoint: Checkpoint) -> str:
        """Return what to do about it."""
        other = self.instead(checkpoint) if self.instead is not None else None
        if other is not None:
            return other
        general, special = self.remedy, self.remedies
        if checkpoint.kind is Kind.RESTORE and self.remedy_of_restore is not None:
            general, special = self.remedy_of_restore, self.remedies_of_restore
        used = libraries(checkpoint.framework)
        return next((text for library, text in special.items() if library in used), general)


def spent(accounts: tuple[Spent, ...], *limits: Limit) -> Spent | None:
    """Return the largest account of these limits, None if there is none."""
    return next((one for one in accounts if one.limit in limits), None)


def spent_in(accounts: tuple[Spent, ...], *causes: Cause) -> Spent | None:
    """Return the largest account of these causes, None if there is none."""
    return next((one for one in accounts if one.cause in causes), None)
