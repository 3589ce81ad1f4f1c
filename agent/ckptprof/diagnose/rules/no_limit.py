"""Causes of a verdict that names no limit: nothing was slow, or nothing tells what was."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_restore
from ckptprof.diagnose.sight import NS, some
from ckptprof.model import Checkpoint, Level
from ckptprof.units import seconds
from ckptprof.verdicts import Limit

_TIMEOUT_SECONDS = 600  # of NCCL's collectives, unless somebody sets another (torch.distributed)
_MEASURE = "measure the path once (`ckptprof ceiling DIR`)"


def _as_long_as_a_timeout(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    took = max(0, checkpoint.end_ns - checkpoint.start_ns) / NS
    many = some(checkpoint.ranks) >= 2
    return (
        f"it took {seconds(took)}, and NCCL gives up after {_TIMEOUT_SECONDS} s"
        if many and took >= _TIMEOUT_SECONDS
        else None
    )


# A save longer than the collective timeout kills the ranks that wait for it.
TIMEOUT = Rule(
    name="timeout",
    limits=(Limit.UNCLEAR,),
    words=_as_long_as_a_timeout,
    exclusion="shorter than ten minutes",
    remedy="raise the timeout of the collectives until the cause is found",
    remedies={
        "torch": "raise the timeout (`init_process_group(timeout=timedelta(hours=2))`) until the cause is found",
    },
    reference="DeepSpeed#7533; torchtune#2093; accelerate#2912; ai2cm/ace#851",
)


def _without_a_limit(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    whole = sum(one.seconds for one in accounts)
    return f"{seconds(whole)} without a limit that holds most of it" if whole > 0 else None


def _what_was_not_done(checkpoint: Checkpoint) -> str:
    """Return how to see more: nothing of what was there already."""
    processes = checkpoint.measures.processes if checkpoint.measures is not None else ()
    steps = [] if checkpoint.level is Level.TRACE else ["watch at --level trace"]
    steps += [] if any(one.stacks for one in processes) else ["install py-spy"]
    return f"look closer: {', '.join([*steps, _MEASURE])}"


# The disk is fine and the save is slow: more has to be seen.
UNEXPLAINED = Rule(
    name="unexplained",
    limits=(Limit.UNCLEAR,),
    words=_without_a_limit,
    exclusion="a limit holds most of the time",
    remedy=f"look closer: watch at --level trace, install py-spy, {_MEASURE}",
    reference="pytorch/torchtitan#1301",
    instead=_what_was_not_done,
)


def _from_the_page_cache(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    return "its bytes came from the page cache, not from storage" if checkpoint.cache == "warm" else None


# A restore from the page cache says nothing of the storage.
WARM = Rule(
    name="warm",
    limits=(Limit.NONE,),
    when=is_restore,
    words=_from_the_page_cache,
    exclusion="its bytes were fetched",
    remedy=(
        "to test the storage itself drop the cache first: `echo 3 > /proc/sys/vm/drop_caches`; or restore on "
        "another node"
    ),
    reference="argonne-lcf/dlio_benchmark#277",
)
