"""What a rule is: a cause that users reported, how it is told from its neighbours, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ckptprof.diagnose.causes import Spent
from ckptprof.model import Checkpoint, Kind
from ckptprof.verdicts import Limit

Applies = Callable[[Checkpoint, tuple[Spent, ...]], Spent | str | None]


@dataclass(frozen=True)
class Rule:
    """One cause; `applies` returns the account or the words that show it, None if it does not fit."""

    name: str  # short and stable
    limits: tuple[Limit, ...]  # that it explains
    applies: Applies
    exclusion: str  # what would speak against it
    remedy: str  # one concrete line
    reference: str  # where that was seen
    without: str | None = None  # as the sentence says it: "with CRC off about 17 s"
    remedy_of_restore: str | None = None  # if it is not the same
    instead: Callable[[Checkpoint], str | None] | None = (
        None  # the remedy where the checkpoint shows that it is another
    )

    def remedy_for(self, checkpoint: Checkpoint) -> str:
        """Return what to do about it."""
        other = self.instead(checkpoint) if self.instead is not None else None
        return other or (checkpoint.kind is Kind.RESTORE and self.remedy_of_restore) or self.remedy
