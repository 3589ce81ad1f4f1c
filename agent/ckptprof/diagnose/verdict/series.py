"""What the earlier saves of a job tell: how often it saves, and whether one save waits for the one before."""

from __future__ import annotations

import itertools
import statistics

from ckptprof.diagnose.sight import MOST, NS, Sight, some
from ckptprof.figures import duration_seconds as took
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.units import seconds

_MOMENT = 0.3  # seconds
_SAVES = 9  # how often a job saved before that may have been another run
_SHARE = 0.05  # of the save before
_HELD = 0.2  # of the save before
_AT_ONCE = 0.05  # seconds: no step of training fits between
_LEAST = 0.5  # seconds; of shorter saves one that follows another is chance
_LIKE = 2.0  # the sizes of the saves of one series differ by less


def saves(sight: Sight) -> list[Checkpoint]:
    """Return the job's saves, this one last if it is one."""
    before = [one for one in sight.history if one.kind is Kind.SAVE]
    return [*before, sight.checkpoint] if sight.checkpoint.kind is Kind.SAVE else before


def interval(sight: Sight) -> float | None:
    """Return the usual seconds from the start of one save to the start of the next; None: not known."""
    starts = [one.start_ns for one in saves(sight)][-_SAVES:]
    apart = [(later - earlier) / NS for earlier, later in itertools.pairwise(starts) if later > earlier]
    return statistics.median(apart) if apart else None


def stall_share(sight: Sight) -> float | None:
    """Return the share of the interval that training is blocked by a save; None: not known."""
    apart = interval(sight)
    if not apart:
        return None
    held = sight.checkpoint.stall_ns
    return (sight.span if held is None else held / NS) / apart


def back_to_back(sight: Sight) -> str | None:
    """Return what shows that saves wait for each other, None if they do not.

    Only a save in the background can be waited for: one that blocks training cannot still be going on at the next.
    """
    chain = saves(sight)
    if sight.checkpoint.kind is not Kind.SAVE or len(chain) < 2 or not _in_background(chain[-1]):
        return None
    follows = [_follows(earlier, later) for earlier, later in itertools.pairwise(chain)]
    in_row = len(list(itertools.takewhile(bool, reversed(follows))))
    if in_row >= 2:
        return f"the last {in_row + 1} saves each started as soon as the previous one ended"
    before = sight.measures.before
    held = max(some(sight.checkpoint.stall_ns), before.held_ns if before is not None else 0) / NS
    if in_row == 1 and held >= _HELD * took(chain[-2]) > 0:
        return "it started as soon as the previous save ended, and training was blocked until then"
    return None


def waited_for(sight: Sight) -> str | None:
    """Return what shows that a save waited for the one before it alone, training blocked or not; None if not.

    Another thread or process than the one that trains writes them, so that training was to go on meanwhile; but it came
    to the next save before the one before was done, and that began as soon as it was. For a save whose slowness is
    known: else it is a host that was short of processors.
    """
    chain = saves(sight)
    if sight.checkpoint.kind is not Kind.SAVE or len(chain) < 2:
        return None
    earlier, later = chain[-2:]
    if not (_by_another(earlier) and _by_another(later)) or took(earlier) < _LEAST:
        return None
    alike = max(earlier.bytes, later.bytes) <= _LIKE * min(earlier.bytes, later.bytes)
    gap = (later.start_ns - earlier.end_ns) / NS
    if not alike or not -_AT_ONCE - _SHARE * took(earlier) <= gap <= max(_AT_ONCE, _SHARE * took(earlier)):
        return None
    return f"it started as soon as the previous save ended, which took {seconds(took(earlier))} in the background"


def _by_another(save: Checkpoint) -> bool:
    whole = sum(one.bytes for one in save.writers)
    other = sum(one.bytes for one in save.writers if one.role in ("thread", "child", "daemon"))
    return other > whole / 2


def _follows(earlier: Checkpoint, later: Checkpoint) -> bool:
    gap = (later.start_ns - earlier.end_ns) / NS
    return _in_background(earlier) and -MOST * took(earlier) <= gap <= max(_MOMENT, _SHARE * took(earlier))


def _in_background(save: Checkpoint) -> bool:
    if save.mode is not None:
        return save.mode is Mode.ASYNC
    return any(one.role in ("thread", "child", "daemon") for one in save.writers)
