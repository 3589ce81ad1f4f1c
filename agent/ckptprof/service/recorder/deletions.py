"""Which files were deleted, and when: a save is retained until its largest file is deleted, perhaps months later."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ckptprof.model import Checkpoint, Kind
from ckptprof.store.deletions import deletion_ns
from ckptprof_collectors.samples import FileEvent, Frame

MAX_DELETIONS = 4096  # retained for saves that are reported later, or again


class Deletions:
    """The latest deletions; `consume` yields each once, for the saves that are stored."""

    def __init__(self) -> None:
        self._deleted: dict[str, int] = {}  # path -> wall clock, the oldest first
        self._new: dict[str, int] = {}

    def ingest(self, frame: Frame) -> None:
        """Ingest deletions in watched folders, by any process; the paths of traced ones are a guess (unlinkat(2))."""
        for sample in frame.samples:
            if isinstance(sample, FileEvent) and sample.kind == "deleted":
                at_ns = sample.at_ns + frame.wall_ns - frame.at_ns
                for known in (self._deleted, self._new):
                    known.pop(sample.path, None)
                    known[sample.path] = at_ns
                    if len(known) > MAX_DELETIONS:
                        del known[next(iter(known))]

    def annotate(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Add the deletion of each save that was deleted before it is reported."""
        return [self._annotated(one) if self._deleted and one.kind is Kind.SAVE else one for one in checkpoints]

    def _annotated(self, save: Checkpoint) -> Checkpoint:
        path = save.path or ""
        files = [one for one in save.streams if one.path == path or one.path.startswith(f"{path}/")]
        if not files:
            return save
        largest = max(files, key=lambda one: one.bytes)
        deleted_ns = deletion_ns(largest.path, path, save.end_ns, self._deleted)
        if deleted_ns is None:
            return save
        return msgspec.structs.replace(save, moments=msgspec.structs.replace(save.moments, deleted_ns=deleted_ns))

    def consume(self) -> dict[str, int]:
        """Return the deletions since the last call: path to epoch nanoseconds."""
        new, self._new = self._new, {}
        return new
