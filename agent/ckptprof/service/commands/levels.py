"""What became of the wish for a level, as the header of a sampler tells it, in words for a person."""

from __future__ import annotations

import msgspec

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.recording import Header
from ckptprof.service.options import Wish

_BLIND = "out of sight"
_ANYWAY = "`--level poll` does without, `ckptprof doctor` tells more"


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
    text = f"the trace level cannot be had: {header.level_reason or 'no reason is known'}"
    if header.level_denied:
        return PermissionDeniedError(text, hint=f"run it as root or with CAP_BPF and CAP_PERFMON; {_ANYWAY}")
    return CkptprofError(text, hint=_ANYWAY)


def status(header: Header) -> str:
    """Return one line for a service manager: the level and, of poll, why there is no better one."""
    why = f": {header.level_reason}" if header.level != "trace" and header.level_reason else ""
    return f"watching at {header.level} level{why}"


def describe(header: Header) -> list[str]:
    """Return which level works, and then what is not as good as it could be: one fact each."""
    lines = [f"{header.level} level"]
    for reason in header.level_reason.split("; ") if header.level_reason else ():
        if header.level == "trace":
            lines.append(reason if reason.startswith(_BLIND) else f"{_BLIND}: {reason}")
        else:
            lines.append(f"no trace level: {reason}")
    return lines
