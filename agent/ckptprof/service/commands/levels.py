"""The level in force, and why, in words; from the header of a sampler."""

from __future__ import annotations

import re

import msgspec

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.recording import Header
from ckptprof.service.options import Wish
from ckptprof_collectors.privileges import CAP_BPF, CAP_PERFMON, within_bounds

# Only the container runtime can grant these
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
    """The document of /status: the level of an agent, and why."""

    program: str = "ckptprof"
    version: str
    pid: int
    wish: Wish
    level: str  # trace | poll
    reasons: tuple[str, ...]  # poll: why there is no trace, empty if none was requested; trace: its limitations
    denied: bool  # only a privilege is missing


def standing(header: Header, wish: Wish, sight: tuple[bool | None, tuple[str, ...]], *, pid: int) -> Standing:
    """`sight`: whether the trace runs now (None: not known yet), and its latest limitations."""
    tracing, told = sight
    begun = header.level == "trace"
    level = "trace" if (begun if tracing is None else tracing) else "poll"
    reasons = told if begun and told else tuple(header.level_reason.split("; ")) if header.level_reason else ()
    return Standing(
        version=header.ckptprof,
        pid=pid,
        wish=wish,
        level=level,
        reasons=reasons if level == header.level else reasons[-1:],  # the last: why the trace failed
        denied=header.level_denied,
    )


def refusal(wish: Wish, header: Header | None) -> CkptprofError | None:
    """Return the error if the trace level is required and not available; None: continue.

    No header at all, from a sampler that does not start, is our fault and must not stop training.
    """
    if wish != "trace" or header is None or header.level == "trace":
        return None
    text = f"the trace level is not available: {header.level_reason or 'reason unknown'}"
    if header.level_denied:
        remedy = of_container(header.level_reason) or "run it as root or with CAP_BPF and CAP_PERFMON"
        return PermissionDeniedError(text, hint=f"{remedy}; {_ANYWAY}")
    return CkptprofError(text, hint=_ANYWAY)


def of_container(reason: str) -> str | None:
    """Return how to start this container so that the trace works; None if the container is not the reason."""
    foreign = needs_the_hosts_pids(reason)
    if within_bounds(CAP_BPF, CAP_PERFMON):
        return SHARE_PIDS if foreign else None
    return BOTH if foreign else CONTAINER


def needs_the_hosts_pids(reason: str) -> bool:
    """Whether a PID namespace of its own is the reason for no eBPF."""
    return "share them" in reason


def status(header: Header) -> str:
    """One line for the service manager: the level and, for poll, the reason."""
    why = f": {header.level_reason}" if header.level != "trace" and header.level_reason else ""
    return f"watching at {header.level} level{why}"


def of_status(line: str) -> str | None:
    """Parse the level from a line of `status`; None if there is none."""
    told = _STATUS.match(line)
    return None if told is None else told[1]


def describe(header: Header) -> list[str]:
    """Return the level, then its limitations, one line each."""
    lines = [f"{header.level} level"]
    for reason in header.level_reason.split("; ") if header.level_reason else ():
        if header.level == "trace":
            lines.append(reason if reason.startswith(_BLIND) else f"{_BLIND}: {reason}")
        else:
            lines.append(f"no trace level: {reason}")
    return lines
