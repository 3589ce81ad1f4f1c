"""The level in force, and why, in words; from the header of a sampler."""

from __future__ import annotations

import re

import msgspec

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.recording import Header
from ckptprof.service.sampler_options import RequestedLevel
from ckptprof_collectors.privileges import CAP_BPF, CAP_PERFMON, are_in_bounding_set

# Only the container runtime can grant these
ADD_CAPABILITIES = (
    "start this container with both CAP_BPF and CAP_PERFMON for its root user "
    "(--cap-add=BPF --cap-add=PERFMON, --capability=CAP_BPF,CAP_PERFMON)"
)
SHARE_PIDS = "start this container with the pids of the host (--pid=host, hostPID: true)"
SHARE_PIDS_AND_CAPABILITIES = (
    "start this container with the pids of the host and, for its root user, CAP_BPF and CAP_PERFMON: all are required "
    "(--pid=host --cap-add=BPF --cap-add=PERFMON)"
)
_NOT_MONITORED = "not monitored"
_STATUS = re.compile("watching at (trace|poll) level")
_ALTERNATIVES = "`--level poll` works without; `ckptprof doctor` shows details"


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The document of /status: the level of an agent, and why."""

    program: str = "ckptprof"
    version: str
    pid: int
    requested_level: RequestedLevel
    level: str  # trace | poll
    reasons: tuple[str, ...]  # poll: why there is no trace, empty if none was requested; trace: its limitations
    denied: bool  # only a privilege is missing
    health: str = "ok"  # or by how much the recorder is behind


def agent_status(
    header: Header,
    requested: RequestedLevel,
    trace_state: tuple[bool | None, tuple[str, ...]],
    *,
    pid: int,
    health: str,
) -> AgentStatus:
    """`trace_state`: whether the trace is attached (None: not known yet), and its latest limitations."""
    tracing, limitations = trace_state
    started_tracing = header.level == "trace"
    level = "trace" if (started_tracing if tracing is None else tracing) else "poll"
    reasons = (
        limitations
        if started_tracing and limitations
        else tuple(header.level_reason.split("; "))
        if header.level_reason
        else ()
    )
    return AgentStatus(
        version=header.ckptprof,
        pid=pid,
        requested_level=requested,
        level=level,
        reasons=reasons if level == header.level else reasons[-1:],  # the last: why the trace failed
        denied=header.level_denied,
        health=health,
    )


def level_error(requested: RequestedLevel, header: Header | None) -> CkptprofError | None:
    """Return the error if the trace level is required and not available; None: continue.

    No header at all, from a sampler that does not start, is our fault and must not stop training.
    """
    if requested != "trace" or header is None or header.level == "trace":
        return None
    text = f"the trace level is not available: {header.level_reason or 'reason unknown'}"
    if header.level_denied:
        remedy = container_remedy(header.level_reason) or "run it as root or with CAP_BPF and CAP_PERFMON"
        return PermissionDeniedError(text, hint=f"{remedy}; {_ALTERNATIVES}")
    return CkptprofError(text, hint=_ALTERNATIVES)


def container_remedy(reason: str) -> str | None:
    """Return how to start this container so that the trace works; None if the container is not the reason."""
    foreign = needs_host_pids(reason)
    if are_in_bounding_set(CAP_BPF, CAP_PERFMON):
        return SHARE_PIDS if foreign else None
    return SHARE_PIDS_AND_CAPABILITIES if foreign else ADD_CAPABILITIES


def needs_host_pids(reason: str) -> bool:
    """Whether a PID namespace of its own is the reason for no eBPF."""
    return "share them" in reason


def status_line(header: Header) -> str:
    """One line for the service manager: the level and, for poll, the reason."""
    why = f": {header.level_reason}" if header.level != "trace" and header.level_reason else ""
    return f"watching at {header.level} level{why}"


def parse_status_line(line: str) -> str | None:
    """Parse the level from a line of `status`; None if there is none."""
    match = _STATUS.match(line)
    return None if match is None else match[1]


def describe(header: Header) -> list[str]:
    """Return the level, then its limitations, one line each."""
    lines = [f"{header.level} level"]
    for reason in header.level_reason.split("; ") if header.level_reason else ():
        if header.level == "trace":
            lines.append(reason if reason.startswith(_NOT_MONITORED) else f"{_NOT_MONITORED}: {reason}")
        else:
            lines.append(f"no trace level: {reason}")
    return lines
