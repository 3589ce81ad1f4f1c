"""Causes that the client of Lustre shows: a slow OST, stripes, hybrid I/O that does not switch, grant that ran out."""

from __future__ import annotations

import math

from ckptprof.diagnose.accounts.lustre import hybrid, was_in_pcc
from ckptprof.diagnose.accounts.targets import moved, name_of, slow_one, targets_of
from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule, spent, spent_in
from ckptprof.diagnose.rules.seen import fs_type
from ckptprof.diagnose.sight import MOST, look, some
from ckptprof.measures import ServerMeasure
from ckptprof.model import Checkpoint
from ckptprof.units import percent, size
from ckptprof.verdicts import Limit

_ONE = 0.9  # of the bytes: all but what names and markers are
_REQUEST_BYTES = 4 << 20  # the largest request of a client: with less grant it is written piece by piece, synchronously
_NEAR = 1.1  # times the size of a call: polling knows it as the mean of some
_LEAST_BYTES = 1 << 20  # of a threshold that is advised: smaller pieces do not gain by it
_UNSWITCHED = (
    "write with O_DIRECT in aligned pieces of 1 MiB and more: what goes through pipes, splice or sendfile is never "
    "switched, nor anything where the servers do no unaligned direct I/O"
)
_OF_THE_LINK = frozenset({Cause.LINK, Cause.LINK_SHAPED, Cause.CONGESTION, Cause.PATH})


def is_lustre(checkpoint: Checkpoint) -> bool:
    """Whether its files are on Lustre."""
    return fs_type(checkpoint) == "lustre"


def _keep_off(checkpoint: Checkpoint) -> str | None:
    """Return what to do about the one that is named."""
    sight = look(checkpoint)
    slow = slow_one(sight, 0.0)
    if slow is None or not is_lustre(checkpoint):
        return None
    return (
        f"have {name_of(slow)} looked at (there: `lctl get_param obdfilter.*-{slow.name}.brw_stats`, RAID rebuild, "
        f"disks); until then keep new files off it: on the MDS `lctl set_param osp.*-{slow.name}-*.max_create_count=0`"
    )


# One of several targets is slow: whoever has a stripe there waits for it.
SLOW_TARGET = Rule(
    name="slow-target",
    limits=(Limit.SERVER,),
    causes=(Cause.TARGET,),
    exclusion="all targets answer alike",
    remedy="have that target and its server looked at, and place new files elsewhere until then",
    reference="hpc/ior#371 (an OST that is failed over has half of its speed)",
    without="with all targets alike",
    instead=_keep_off,
)


def _on_one(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | Spent | None:
    """Say that nearly all went to one of several; where nobody counted that, the account."""
    held = spent(accounts, Limit.SERVER, Limit.NETWORK)
    sight = look(checkpoint)
    told = targets_of(sight)
    if not told or held is None:
        return held
    mount = sight.measures.mount
    there = (mount.settings or {}).get("osts", len(told)) if mount is not None else len(told)
    whole, first = sum(moved(one, writes=sight.writes) for one in told), moved(told[0], writes=sight.writes)
    if there < 2 or first < _ONE * whole or held.cause in _OF_THE_LINK:
        return None
    way = "went to" if sight.writes else "came from"
    return f"{percent(first / whole)} of the bytes {way} one of {there} OSTs, {name_of(told[0])}"


# A large file on one Lustre target.
STRIPES = Rule(
    name="stripes",
    limits=(Limit.SERVER, Limit.NETWORK),
    when=is_lustre,
    words=_on_one,
    exclusion="another file system, or the bytes went to several targets",
    remedy="stripe the directory before the first save: `lfs setstripe -c -1 -S 16M DIR`",
    reference="ornladios/ADIOS2#4621; E3SM#4280; darshan#444",
    without="over more targets",
)


def _grant(one: ServerMeasure) -> float:
    """Return the space that a target has promised; endless where it is not known.

    What dirty pages take of it is no longer available, and comes back with the answers to their requests.
    """
    gauges = one.gauges or {}
    if not gauges.keys() >= {"grant_bytes", "dirty_bytes"}:
        return math.inf
    return some(gauges["grant_bytes"]) + some(gauges["dirty_bytes"])


def _without_grant(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    sight = look(checkpoint)
    short = [one for one in targets_of(sight) if _grant(one) < _REQUEST_BYTES]
    if not short or not sight.writes:
        return None
    least = min(short, key=_grant)
    left = size(_grant(least))
    return (
        f"{name_of(least)} granted {left} of space in advance at the last look, less than one request: each write "
        "waits for it"
    )


# A target that is nearly full promises no space: nothing may stay in the client's cache.
GRANT = Rule(
    name="grant",
    limits=(Limit.SERVER,),
    when=is_lustre,
    words=_without_grant,
    exclusion="grant for many requests is left",
    remedy=(
        "look for OSTs that are nearly full (`lfs df -h`) and free space or place files elsewhere; on clients "
        "`lctl set_param osc.*.grant_shrink=0`"
    ),
    reference="Lustre LU-13131 (do not wait for grants for too long)",
    without="with grant",
)


def _not_switched(checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> str | None:
    """Say that the pieces that were written went through the page cache, though the client could pass it by."""
    known = hybrid(look(checkpoint))
    if known is None or known.switched >= MOST or spent_in(accounts, Cause.COPYING, Cause.DIRTY) is None:
        return None
    if not known.on:
        return "hybrid I/O is off: all that was written went through the page cache"
    text = f"hybrid I/O on, {percent(known.switched)} of the bytes switched"
    if known.piece_bytes and known.threshold_bytes and known.piece_bytes < known.threshold_bytes:
        text += f": the median write is {size(known.piece_bytes)}, the threshold {size(known.threshold_bytes)}"
    return text


def _switch(checkpoint: Checkpoint) -> str | None:
    """Return what would have switched these pieces."""
    known = hybrid(look(checkpoint))
    if known is None:
        return None
    piece, most = known.piece_bytes or 0.0, known.threshold_bytes or 0.0
    near = 1.0 if known.piece_is_exact else _NEAR
    lower = 1 << max(1, int(near * piece)).bit_length() - 1
    steps = [] if known.on else ["`lctl set_param llite.*.hybrid_io=1`"]
    if _LEAST_BYTES <= lower < most:
        steps.append(f"`lctl set_param llite.*.hybrid_io_write_threshold_bytes={lower}`")
    elif lower < most:
        steps.append(f"write in pieces of {size(most)} and more (`buffering=`, packed tensors)")
    return " and ".join(steps) or _UNSWITCHED


def _in_pcc(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    return (
        "its bytes came from PCC, on a disk of this host, not over the network"
        if was_in_pcc(look(checkpoint))
        else None
    )


# A restore from the persistent client cache says nothing of the servers.
IN_PCC = Rule(
    name="warm-pcc",
    limits=(Limit.NONE,),
    when=is_lustre,
    words=_in_pcc,
    exclusion="its bytes came from the servers",
    remedy=(
        "to test the servers themselves take the files out of PCC first: `lfs pcc detach FILE`; or restore on another "
        "node"
    ),
    reference="Lustre LU-10092 (persistent client cache)",
)

# The client could write large pieces past its page cache, and does not.
HYBRID = Rule(
    name="hybrid-io",
    limits=(Limit.PAGE_CACHE,),
    when=is_lustre,
    words=_not_switched,
    exclusion="most bytes were switched to direct I/O, or this client has no hybrid I/O",
    remedy="switch it on: `lctl set_param llite.*.hybrid_io=1`, or write with O_DIRECT",
    reference="Lustre LU-13802 (2.16); DDN hybrid I/O (x1.7 per thread)",
    without="past the page cache",
    instead=_switch,
)
