"""What a file is of whose name does not say: `last.ckpt` was seen when it was saved, or lies beside others that say."""

from __future__ import annotations

import msgspec

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.event import is_weak, largest
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.frameworks.names import read_name
from ckptprof.model import Checkpoint


def recalled(candidate: Candidate, restore: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the restore with framework and step of the save that wrote its files, if all of them are of one."""
    found = {known.transfers.saved.get(part.path) for part in largest(candidate)}
    if len(found) != 1:
        return restore
    save = found.pop()
    if save is None:
        return restore
    step = restore.step if restore.step is not None or candidate.steps else save.step
    return msgspec.structs.replace(restore, framework=save.framework or restore.framework, step=step)


def named_as_its_like(candidate: Candidate, save: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the save of an alias alone with the framework of what was saved or restored beside it, if it is one."""
    if candidate.steps or not is_weak(save.framework) or not all(part.name.alias for part in largest(candidate)):
        return save
    folders = {part.path.rpartition("/")[0] for part in largest(candidate)}
    paths = (
        path for folder in folders for path in (*known.transfers.saved.in_folder(folder), *known.past.in_folder(folder))
    )
    frameworks = {read_name(path).framework for path in paths}
    found = {framework.name for framework in frameworks if framework is not None and not framework.weak}
    return msgspec.structs.replace(save, framework=found.pop()) if len(found) == 1 else save
