"""A rule: a cause that users reported, how it is distinguished from others, and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from ckptprof.diagnose.causes import AttributedTime, Cause
from ckptprof.diagnose.context import CheckpointContext, or_zero
from ckptprof.diagnose.tolerances import MOST, PART, SLIGHT
from ckptprof.frameworks.framework_table import libraries_of
from ckptprof.measures import UsageMeasure
from ckptprof.model import Kind, Mode
from ckptprof.units import percent, size
from ckptprof.verdicts import Limit

is_remote: Callable[[CheckpointContext], bool] = attrgetter("is_remote")
is_save: Callable[[CheckpointContext], bool] = attrgetter("is_save")
Saving = Callable[[CheckpointContext], tuple[float, str] | None]
Words = Callable[[CheckpointContext, tuple[AttributedTime, ...]], AttributedTime | str | None]


@dataclass(frozen=True, kw_only=True)
class CauseRule:
    """One cause. It matches the largest account of its limits, or of `causes`, or what `words` returns."""

    name: str  # short and stable
    limits: tuple[Limit, ...]  # that it explains
    condition: Callable[[CheckpointContext], bool] | None = None  # condition on the checkpoint
    causes: tuple[Cause, ...] = ()  # what the account was spent in
    # observations that contradict the remedy, in words: with any of them the rule does not apply
    vetoes: Mapping[str, Callable[[CheckpointContext], bool]] = field(default_factory=dict)
    # text for users if it is more than an account, or an account; None if the rule does not match
    words: Words | None = None
    remedy: str  # one concrete line, for any framework: it names no library
    reference: str  # URL of users' reports
    without: str | None = None  # for the sentence: "with CRC off about 17 s"
    # the share of the limit's time that the remedy saves, with its text for users; None if the rule does not match
    saving: Saving | None = None
    remedy_of_restore: str | None = None  # if it differs
    remedies: Mapping[str, str] = field(default_factory=dict)  # by library: the first one that the job uses counts
    remedies_of_restore: Mapping[str, str] = field(default_factory=dict)  # if restores have a remedy of their own
    special_remedy: Callable[[CheckpointContext], str | None] | None = None  # a remedy that depends on the checkpoint

    def match(self, context: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> AttributedTime | str | None:
        """Return the account or the text that matches, None if the rule does not apply."""
        if self.condition is not None and not self.condition(context):
            return None
        if any(is_observed(context) for is_observed in self.vetoes.values()):
            return None
        if self.saving is not None:
            found = self.saving(context)
            return None if found is None else found[1]
        if self.words is not None:
            return self.words(context, accounts)
        return largest_of_causes(accounts, *self.causes) if self.causes else largest_of_limits(accounts, *self.limits)

    def remedy_for(self, context: CheckpointContext) -> str:
        """Return the remedy for a checkpoint."""
        other = self.special_remedy(context) if self.special_remedy is not None else None
        if other is not None:
            return other
        general, special = self.remedy, self.remedies
        if is_restore(context) and self.remedy_of_restore is not None:
            general, special = self.remedy_of_restore, self.remedies_of_restore
        used = libraries_of(context.checkpoint.framework)
        return next((text for library, text in special.items() if library in used), general)


def number_of(user: UsageMeasure) -> str:
    """Return how many processes a use adds up, and whose they are."""
    whose = "that it started" if user.started_by_writer else "of others"
    return f"in {user.count:,} process{'es' * (user.count != 1)} {whose}"


def mostly(limit: Limit | None, cause: Cause) -> Words:
    """Match the largest account of a limit, or of unexplained time, if it has this cause."""

    def words(_: CheckpointContext, accounts: tuple[AttributedTime, ...]) -> AttributedTime | None:
        largest = largest_of_limits(accounts, limit)
        return largest if largest is not None and largest.cause is cause else None

    return words


def largest_of_limits(accounts: tuple[AttributedTime, ...], *limits: Limit | None) -> AttributedTime | None:
    """Return the largest account of these limits, None if there is none."""
    return next((one for one in accounts if one.limit in limits), None)


def largest_of_causes(accounts: tuple[AttributedTime, ...], *causes: Cause) -> AttributedTime | None:
    """Return the largest account of these causes, None if there is none."""
    return next((one for one in accounts if one.cause in causes), None)


def stack_share_in(name: str) -> Saving:
    """Match if most samples of the writing thread's own code, by its stack, are in `name`."""

    def saving(context: CheckpointContext) -> tuple[float, str] | None:
        shares = context.stacks()
        own = sum(shares.get(one, 0.0) for one in ("pickle", "crc", "compress", "copy", "gather", "other"))
        if not shares.get(name) or shares[name] < MOST * own:
            return None
        return shares[name] / own, f"{percent(shares[name])} of the stack samples of the writing thread were in {name}"

    return saving


def is_restore(context: CheckpointContext) -> bool:
    """Apply to restores only."""
    return context.checkpoint.kind is Kind.RESTORE


def in_background(context: CheckpointContext, *roles: str) -> bool:
    """Return True if writers with these roles wrote most of it, alongside training."""
    mine = sum(one.bytes for one in context.checkpoint.writers if one.role in roles)
    return context.checkpoint.mode is Mode.ASYNC and mine * 2 > context.checkpoint.bytes


def memory_pressure(context: CheckpointContext, _accounts: tuple[AttributedTime, ...]) -> str | None:
    """Match a shortage of memory."""
    total, available = or_zero(context.memory.total_bytes), context.memory.available_min_bytes
    if total and available is not None and 0 <= available < SLIGHT * total:
        return f"only {size(available)} of {size(total)} of memory was available"
    if or_zero(context.memory.memory_some_share) >= SLIGHT:
        return f"processes waited for memory {percent(min(1.0, or_zero(context.memory.memory_some_share)))} of the time"
    return None


def extra_writes(*reasons: str) -> Saving:
    """Match many bytes written in addition to the checkpoint, for one of these reasons."""

    def saving(context: CheckpointContext) -> tuple[float, str] | None:
        checkpoint = context.checkpoint
        found = [one for one in checkpoint.overheads if one.reason in reasons]
        extra, unique = sum(one.bytes for one in found), (checkpoint.unique_bytes or checkpoint.bytes)
        if not found or extra < PART * unique:
            return None
        text = f"{size(extra)} written in addition to the {size(unique)} of the checkpoint"
        return extra / max(1, extra + unique), text

    return saving
