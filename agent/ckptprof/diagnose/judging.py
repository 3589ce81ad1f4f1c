"""One checkpoint: from what was measured around it to its verdict and its cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof.diagnose.accounts.accounts import account
from ckptprof.diagnose.ceilings import Ceilings
from ckptprof.diagnose.cost import cost
from ckptprof.diagnose.sight import look
from ckptprof.diagnose.verdict.verdict import verdict
from ckptprof.model import Checkpoint, Kind


def diagnose(
    checkpoint: Checkpoint,
    history: Sequence[Checkpoint] = (),
    ceilings: Sequence[Ceilings] | None = None,
    gpus: int | None = None,
    seen_gpus: int | None = None,
) -> Checkpoint:
    """Return the checkpoint with its verdict and cost; a copy as it is: nobody waits for it.

    `history`: earlier checkpoints of any job, `ceilings`: what `ckptprof ceiling` measured on this host, `gpus`: of the
    job on this host, if that is given, `seen_gpus`: as NVML tells. What is missing or contradicts itself lowers the
    confidence and raises nothing.
    """
    if checkpoint.kind is Kind.COPY:
        return msgspec.structs.replace(checkpoint, verdict=None, cost=None)
    sight = look(checkpoint, history, ceilings)
    found = account(sight)
    return msgspec.structs.replace(checkpoint, verdict=verdict(found), cost=cost(found, gpus, seen_gpus))
