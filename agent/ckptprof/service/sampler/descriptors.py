"""How many descriptors this process may have, and for what there are enough of them."""

from __future__ import annotations

import contextlib
import os

from ckptprof.service.sampler.threadlooks import descriptors_of

_EACH = 7  # kept for a process that is watched and trains; two for one that is only known
_SPARE = 48  # for the collectors, and what is open for a moment only
_OF_TRACE = ("anon_inode:bpf", "anon_inode:btf", "anon_inode:[perf_event]")


def most_kept(processes: int) -> int:
    """Return of how many of these processes descriptors can be kept; the files of others are opened for each read."""
    limit = open_limit()
    if limit is None:
        return processes
    spare = _SPARE + descriptors_of(limit) + _of_trace()
    return max(0, min(processes, (limit - spare) // _EACH))


def too_few_descriptors() -> str:
    """Return why nothing could be looked at beside this trace; nothing if there are descriptors for both."""
    limit, held = open_limit(), _of_trace()
    if limit is None or limit >= held + _SPARE:
        return ""
    return f"it holds {held} files open of a limit of open files of {limit} (LimitNOFILE=, ulimit -n)"


def open_limit() -> int | None:
    """Return how many descriptors this process may have; None: as many as it likes."""
    import resource  # noqa: PLC0415 - once, at the start

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _of_trace() -> int:
    """Return how many descriptors the trace holds: maps, programs, links, types, events."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the list's own descriptor is closed by now
            held += os.readlink(f"/proc/self/fd/{name}").startswith(_OF_TRACE)
    return held
