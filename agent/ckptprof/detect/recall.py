"""What a restore is of, when its names do not say: `last.ckpt` was seen when it was saved."""

from __future__ import annotations

import msgspec

from ckptprof.detect.candidates import Candidate
from ckptprof.detect.character import largest
from ckptprof.detect.memory import Memory
from ckptprof.model import Checkpoint


def recalled(candidate: Candidate, restore: Checkpoint, memory: Memory) -> Checkpoint:
    """Return the restore with framework and step of the save that wrote its files, if all of them are of one."""
    found = {memory.known(part.stream.path) for part in largest(candidate)}
    if len(found) != 1:
        return restore
    save = found.pop()
    if save is None:
        return restore
    step = restore.step if restore.step is not None or candidate.steps else save.step
    return msgspec.structs.replace(restore, framework=save.framework or restore.framework, step=step)
