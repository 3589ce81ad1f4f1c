"""The time after the last byte of a restore in which training was still blocked: what was read was parsed."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.sight import NS, Sight
from ckptprof.model import Kind
from ckptprof.verdicts import Limit

_TEXT = "memory went on to grow after the last byte, as what was read was parsed"
_STARVED = "ready to parse what was read, but without a CPU: other threads had them, or its quota was used up"


def explain(sight: Sight, had_cpu: float) -> list[Spent]:
    """Return the accounts of that time; they add up to it. `had_cpu`: as `path` has it."""
    if sight.checkpoint.kind is not Kind.RESTORE:
        return []
    end_ns = sight.checkpoint.end_ns
    after = sum(max(0, one.end_ns - max(one.start_ns, end_ns)) for one in sight.checkpoint.blocked) / NS
    return [
        Spent(Cause.PARSED, Limit.SERIALIZE, after * had_cpu, _TEXT),
        Spent(Cause.STARVED, Limit.CPU, after * (1 - had_cpu), _STARVED),
    ]
