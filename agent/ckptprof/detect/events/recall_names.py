"""What a file is of whose name does not say: `last.ckpt` was seen when it was saved, or lies beside others that say."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ckptprof.detect.events.event import is_weak
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.frameworks.names import read_name
from ckptprof.model import Checkpoint


def recalled(paths: Collection[str], restore: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the restore with framework and step of the save that wrote its files, if all of them are of one."""
    found = {known.transfers.saved.get(path) for path in paths}
    if len(found) != 1:
        return restore
    save = found.pop()
    if save is None:
        return restore
    step = save.step if restore.step is None and not _says_step(paths) else restore.step
    return msgspec.structs.replace(restore, framework=save.framework or restore.framework, step=step)


def named_as_its_like(paths: Collection[str], save: Checkpoint, known: Knowledge) -> Checkpoint:
    """Return the save of an alias alone with the framework of what was saved or restored beside it, if it is one."""
    if _says_step(paths) or not is_weak(save.framework) or not all(read_name(path).alias for path in paths):
        return save
    folders = {path.rpartition("/")[0] for path in paths}
    beside = (
        path for folder in folders for path in (*known.transfers.saved.in_folder(folder), *known.past.in_folder(folder))
    )
    frameworks = {read_name(path).framework for path in beside}
    found = {framework.name for framework in frameworks if framework is not None and not framework.weak}
    return msgspec.structs.replace(save, framework=found.pop()) if len(found) == 1 else save


def _says_step(paths: Collection[str]) -> bool:
    return any(read_name(path).step is not None for path in paths)
