"""What could not be seen of what a verdict rests on; each lowers its confidence."""

from __future__ import annotations

from ckptprof.diagnose.accounts.accounts import Accounting
from ckptprof.model import Mode
from ckptprof.units import plural

_LOOKS = 8  # at a thread: fewer are chance
_WAITED = 0.2  # of the path: what is behind shorter waits does not matter


def lacking(found: Accounting) -> tuple[str, ...]:
    """Return what was missing, each one clause."""
    sight, time = found.sight, found.path.time
    if sight.checkpoint.measures is None:
        return ("nothing was measured around it",)
    missing = []
    if sight.checkpoint.mode is Mode.ASYNC and sight.checkpoint.stall_ns is None:
        missing.append("for how long training was blocked")
    if found.path.thread is None:
        missing.append("what its threads did")
    else:
        if not time.calls_known:
            missing.append("what its threads were asleep in")
        elif not time.exact and time.looks < _LOOKS and found.seconds > 0:
            missing.append(f"more than {plural(time.looks, 'look')} at what its threads were in")
        if not time.cpu_known:
            missing.append("the time on CPU of its threads")
    if found.waiting > _WAITED * found.seconds:
        missing += _storage(found)
    return tuple(missing)


def _storage(found: Accounting) -> list[str]:
    sight = found.sight
    if sight.measures.mount is None:
        return ["the mount that its files are on"]
    if sight.remote:
        return [] if sight.link is not None else ["the network link to its server"]
    missing = []
    if sight.device is None:
        missing.append("the device under its files")
    elif sight.device.busy_seconds is None:
        missing.append("how busy the device was")
    return missing
