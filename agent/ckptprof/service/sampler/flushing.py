"""Queries files again until the kernel has written them back to their device: pure, no clock of its own.

Most frameworks never sync what they save: it is on stable storage when writeback has ended, half a minute later.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice

from ckptprof_collectors.files.file_facts import FactQuery
from ckptprof_collectors.files.process_roots import ProcessKey
from ckptprof_collectors.samples import FileFact

MAX_FILES = 64  # of one process, the largest
MAX_PROCESSES = 64
PERIOD_NS = 1_000_000_000
STILL_NS = 4_000_000_000  # more, while the host writes nothing back: nothing gets clean, but a file may be deleted
PATIENCE_NS = 120_000_000_000  # writeback starts after dirty_expire_centisecs, by default 30 seconds
_MAX_PATHS = 4  # of one file
_COST_FACTOR = 20  # counting the dirty pages of a file walks over all its pages: at most a twentieth of a core

_ProcessKey = tuple[int, int]
_FileKey = tuple[int, int]


@dataclass(slots=True)
class _DirtyFile:
    size: int
    since_ns: int
    paths: dict[_ProcessKey, str]  # path per process that reported the file; the first is queried
    is_answered: bool = True  # the last query


class WritebackQuestions:
    """Receives every file fact, and queries again the files with dirty pages.

    Each file is queried through one of the processes that reported it: each of 64 ranks reports the files of all. If
    there is no answer, because that process has ended, the next process is queried.
    """

    def __init__(self) -> None:
        self._files: dict[_FileKey, _DirtyFile] = {}
        self._by_process: dict[_ProcessKey, set[_FileKey]] = {}  # by the first of its `paths`
        self._next_ns = self._spent_ns = 0
        self._written_bytes: int | None = None  # by the host, at the last query

    def __len__(self) -> int:
        return len(self._files)

    def ingest(self, now_ns: int, fact: FileFact) -> None:
        """Ingest one fact; one without a count of dirty pages changes nothing."""
        process, file = (fact.pid, fact.start_ticks), (fact.device, fact.inode)
        if fact.is_missing:
            for gone in [
                one for one in self._by_process.get(process, ()) if self._files[one].paths[process] == fact.path
            ]:
                self._pass_to_next(gone)
            return
        if fact.is_directory:
            return
        known = self._files.get(file)
        if known is not None and fact.unwritten_bytes == 0:
            self._drop(file)
        elif known is not None:
            known.size, known.is_answered = fact.size, known.is_answered or fact.unwritten_bytes is not None
            if process in known.paths or len(known.paths) < _MAX_PATHS:
                known.paths[process] = fact.path
        elif fact.unwritten_bytes:
            self._follow(file, _DirtyFile(fact.size, now_ns, {process: fact.path}), process)

    def _follow(self, file: _FileKey, dirty: _DirtyFile, process: _ProcessKey) -> None:
        if process not in self._by_process and len(self._by_process) >= MAX_PROCESSES:
            self._files.pop(file, None)
            return
        self._files[file] = dirty
        files = self._by_process.setdefault(process, set())
        files.add(file)
        if len(files) > MAX_FILES:
            self._drop(min(files, key=lambda one: (self._files[one].size, self._files[one].since_ns)))

    def _drop(self, file: _FileKey) -> _DirtyFile:
        dirty = self._files.pop(file)
        process = next(iter(dirty.paths))
        self._by_process[process].remove(file)
        if not self._by_process[process]:
            del self._by_process[process]
        return dirty

    def _pass_to_next(self, file: _FileKey) -> None:
        """Query the next process for a file, if there is one; the first is queried again when it reports the file."""
        dirty = self._drop(file)
        del dirty.paths[next(iter(dirty.paths))]
        if dirty.paths:
            self._follow(file, dirty, next(iter(dirty.paths)))

    def _has_next(self, dirty: _DirtyFile) -> bool:
        following = next(islice(dirty.paths, 1, None), None)
        return following is not None and (following in self._by_process or len(self._by_process) < MAX_PROCESSES)

    def questions(self, now_ns: int, spent_ns: int, written_bytes: int | None = None) -> list[FactQuery]:
        """Return the queries that are due.

        `spent_ns`: CPU time of all answers so far; `written_bytes`: written back so far by the host, None: unknown.
        """
        is_still = written_bytes is not None and written_bytes == self._written_bytes
        if not self._files or now_ns < self._next_ns + is_still * STILL_NS:
            return []
        self._written_bytes = written_bytes
        cost_ns, self._spent_ns = spent_ns - self._spent_ns, spent_ns
        self._next_ns = now_ns + max(PERIOD_NS, _COST_FACTOR * cost_ns)
        for file, dirty in list(self._files.items()):
            if file not in self._files:
                continue  # a file passed on by another process took its place
            if now_ns - dirty.since_ns > PATIENCE_NS:
                self._drop(file)
            elif not dirty.is_answered and self._has_next(dirty):
                self._pass_to_next(file)
            dirty.is_answered = False
        questions = []
        for process, files in self._by_process.items():
            newest_last = sorted(files, key=lambda one: (self._files[one].since_ns, one))
            keys = {os.fsencode(self._files[file].paths[process]): file for file in newest_last}
            view = ProcessKey(*process)
            questions.append(
                FactQuery(*process, view, tuple(keys), (), 0, read_contents=False, count_unwritten=True, keys=keys)
            )
        return questions
