"""What became of the wish for a level, as the header of a sampler tells it, in words for a person."""

from __future__ import annotations

import re

import msgspec

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.recording import Header
from ckptprof.service.options import Wish
from ckptprof_collectors.privileges import CAP_BPF, CAP_PERFMON, within_bounds

# What is missing in a container comes from who starts it: nothing that is typed inside gives it
CONTAINER = (
    "start this container with both CAP_BPF and CAP_PERFMON for its root user "
    "(--cap-add=BPF --cap-add=PERFMON, --capability=CAP_BPF,CAP_PERFMON)"
)
SHARE_PIDS = "start this container with the pids of the host (--pid=host, hostPID: true)"
BOTH = (
    "start this container with the pids of the host and, for its root user, CAP_BPF and CAP_PERFMON: all are required "
    "(--pid=host --cap-add=BPF --cap-add=PERFMON)"
)
_BLIND = "not monitored"
_STATUS = re.compile("watching at (trace|poll) level")
_ANYWAY = "`--level poll` works without; `ckptprof doctor` shows details"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """At which level an agent watches now: the document of its page /status."""

    program: str = "ckptprof"
    version: str
    pid: int
    wish: Wish
    level: str  # trace | poll
    reasons: tuple[str, ...]  # of poll: why there is no trace, empty if none was wished; of trace: what it does not see
    denied: bool  # nothing but a privilege is missing


def standing(header: Header, wish: Wish, sight: tuple[bool | None, tuple[str, ...]], *, pid: int) -> Standing:
    """Return it; `sight`: whether it is traced now, and what the trace told last, which may have failed meanwhile."""
    tracing, told = sight
    begun = header.level == "trace"
    level = "trace" if (begun if tracing is None else tracing) else "poll"
    reasons = told if begun and told else tuple(header.level_reason.split("; ")) if header.level_reason else ()
    return Standing(
        version=header.ckptprof,
        pid=pid,
        wish=wish,
        level=level,
        reasons=reasons if level == header.level else reasons[-1:],  # the last: that it failed, and why
        denied=header.level_denied,
    )


def refusal(wish: Wish, header: Header | None) -> CkptprofError | None:
    """Return the error to end with if nothing but the trace was wanted and it cannot be had; None: go on.

    No header at all, from a sampler that does not come up, is a fault of ours, which keeps nobody from training.
    """
    if wish != "trace" or header is None or header.level == "trace":
        return None
    text = f"the trace level is not available: {header.level_reason or 'reason unknown'}"
    if header.level_denied:
        remedy = of_container(header.level_reason) or "run it as root or with CAP_BPF and CAP_PERFMON"
        return PermissionDeniedError(text, hint=f"{remedy}; {_ANYWAY}")
    return CkptprofError(text, hint=_ANYWAY)


def of_container(reason: str) -> str | None:
    """Return how this container is to be started for a trace that is missing for this reason; None: it is not that."""
    foreign = needs_the_hosts_pids(reason)
    if within_bounds(CAP_BPF, CAP_PERFMON):
        return SHARE_PIDS if foreign else None
    return BOTH if foreign else CONTAINER


def needs_the_hosts_pids(reason: str) -> bool:
    """Return whether that is why there is no eBPF: this is a container with pids of its own."""
    return "share them" in reason


def status(header: Header) -> str:
    """Return one line for a service manager: the level and, of poll, why there is no better one."""
    why = f": {header.level_reason}" if header.level != "trace" and header.level_reason else ""
    return f"watching at {header.level} level{why}"


def of_status(line: str) -> str | None:
    """Return the level that the line of `status` tells, None if it tells none."""
    told = _STATUS.match(line)
    return None if told is None else told[1]


def describe(header: Header) -> list[str]:
    """Return which level works, and then what is not as good as it could be: one fact each."""
    lines = [f"{header.level} level"]
    for reason in header.level_reason.split("; ") if header.level_reason else ():
        if header.level == "trace":
            lines.append(reason if reason.startswith(_BLIND) else f"{_BLIND}: {reason}")
        else:
            lines.append(f"no trace level: {reason}")
    return lines
