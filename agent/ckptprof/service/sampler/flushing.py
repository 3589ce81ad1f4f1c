"""Which files are asked about again until the kernel has written them to their device: pure, no clock of its own.

Most frameworks never sync what they save: it is on stable storage when writeback, half a minute later, is through.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ckptprof_collectors.files.facts import Question
from ckptprof_collectors.files.views import View
from ckptprof_collectors.samples import FileFact

MAX_FILES = 64  # of one process, the largest
MAX_PROCESSES = 64
PERIOD_NS = 1_000_000_000
PATIENCE_NS = 120_000_000_000  # writeback begins after dirty_expire_centisecs, 30 seconds unless somebody set it
_COST_FACTOR = 20  # counting the pages of a file walks over all of them: at most a twentieth of a core goes there

_ProcessKey = tuple[int, int]
_FileKey = tuple[int, int]


@dataclass(slots=True)
class _Dirty:
    path: str
    size: int
    since_ns: int


@dataclass(slots=True)
class _Followed:
    view: View
    files: dict[_FileKey, _Dirty] = field(default_factory=dict)


class Flushing:
    """Takes every fact that is told, and asks about those files of which a part was not yet written."""

    def __init__(self) -> None:
        """Start with nothing to follow."""
        self._followed: dict[_ProcessKey, _Followed] = {}
        self._next_ns = 0
        self._spent_ns = 0

    def __len__(self) -> int:
        """Return how many files are followed."""
        return sum(len(followed.files) for followed in self._followed.values())

    def learn(self, now_ns: int, fact: FileFact) -> None:
        """Take one fact; one that does not tell changes nothing."""
        process, file = (fact.pid, fact.start_ticks), (fact.device, fact.inode)
        followed = self._followed.get(process)
        if fact.missing:
            if followed is not None:
                self._drop_path(process, followed, fact.path)
            return
        if fact.is_directory:
            return
        if not fact.unwritten_bytes:
            if followed is not None and fact.unwritten_bytes == 0:
                followed.files.pop(file, None)
                self._tidy(process, followed)
            return
        if followed is None:
            if len(self._followed) >= MAX_PROCESSES:
                return
            followed = self._followed[process] = _Followed(View(*process))
        known = followed.files.get(file)
        if known is not None:
            known.path, known.size = fact.path, fact.size
            return
        followed.files[file] = _Dirty(fact.path, fact.size, now_ns)
        if len(followed.files) > MAX_FILES:
            smallest = min(followed.files, key=lambda key: followed.files[key].size)
            del followed.files[smallest]

    def _drop_path(self, process: _ProcessKey, followed: _Followed, path: str) -> None:
        """Forget a file that is gone; one that has another name by now was told under that before, or will be."""
        for file, dirty in list(followed.files.items()):
            if dirty.path == path:
                del followed.files[file]
        self._tidy(process, followed)

    def _tidy(self, process: _ProcessKey, followed: _Followed) -> None:
        if not followed.files:
            self._followed.pop(process, None)

    def questions(self, now_ns: int, spent_ns: int) -> list[Question]:
        """Return what to ask now; `spent_ns` is what all answers took so far."""
        if not self._followed or now_ns < self._next_ns:
            return []
        cost_ns, self._spent_ns = spent_ns - self._spent_ns, spent_ns
        self._next_ns = now_ns + max(PERIOD_NS, _COST_FACTOR * cost_ns)
        asked = []
        for process, followed in list(self._followed.items()):
            for file, dirty in list(followed.files.items()):
                if now_ns - dirty.since_ns > PATIENCE_NS:
                    del followed.files[file]
            self._tidy(process, followed)
            if followed.files:
                keys = {os.fsencode(dirty.path): file for file, dirty in followed.files.items()}
                asked.append(
                    Question(*process, followed.view, tuple(keys), (), 0, contents=False, unwritten=True, keys=keys)
                )
        return asked
