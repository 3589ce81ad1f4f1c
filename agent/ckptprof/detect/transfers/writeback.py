"""The looks at how much of a file is not yet written to storage."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.detect.transfers.model.tolerances import MAX_FILES
from ckptprof.detect.world.bounded import Bounded
from ckptprof.detect.world.keys import FileKey
from ckptprof_collectors.samples import FileFact


@dataclass(slots=True)
class Looks:
    """What was seen of one file since it was last modified. Times are CLOCK_MONOTONIC, of the frames that told."""

    modified_ns: int  # wall clock
    at_ns: int = 0
    unwritten_bytes: int = 0  # when last looked at
    dirty_ns: int | None = None  # the last look at which something was unwritten
    clean_ns: int | None = None  # the first look after that at which nothing was


class Writeback:
    """The looks at the files that were seen last."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._looks: Bounded[FileKey, Looks] = Bounded(MAX_FILES)
        self.version = 0  # rises with each look

    def note(self, at_ns: int, fact: FileFact) -> None:
        """Take one fact, if it tells how much of a file is unwritten."""
        if fact.unwritten_bytes is None or fact.missing or fact.is_directory:
            return
        file = (fact.device, fact.inode)
        looks = self._looks.get(file)
        if looks is None or looks.modified_ns != fact.modified_ns:
            looks = Looks(fact.modified_ns)
        self._looks[file] = looks
        looks.at_ns, looks.unwritten_bytes = at_ns, fact.unwritten_bytes
        if fact.unwritten_bytes:
            looks.dirty_ns, looks.clean_ns = at_ns, None
        elif looks.clean_ns is None:
            looks.clean_ns = at_ns
        self.version += 1

    def of(self, file: FileKey) -> Looks | None:
        """Return what was seen of a file."""
        return self._looks.get(file)

    def forget_before(self, at_ns: int) -> None:
        """Drop what was last looked at before `at_ns`."""
        self._looks.forget_before(at_ns, lambda looks: looks.at_ns)
