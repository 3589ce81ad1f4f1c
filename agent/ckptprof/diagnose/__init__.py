"""Pure: a checkpoint and what was measured around it to a verdict and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ckptprof.model import Checkpoint

if TYPE_CHECKING:
    from ckptprof.diagnose.ceilings import Ceilings


def diagnose(
    checkpoint: Checkpoint,
    history: Sequence[Checkpoint] = (),
    ceilings: Sequence[Ceilings] | None = None,
    gpus: int | None = None,
    seen_gpus: int | None = None,
) -> Checkpoint:
    """Return the checkpoint with its verdict and cost (`judging`)."""
    from ckptprof.diagnose import judging  # noqa: PLC0415 - the rules are many files, and a report needs none of them

    return judging.diagnose(checkpoint, history, ceilings, gpus, seen_gpus)
