"""One watched process: counters at each tick, open files during bursts, queries for file facts afterwards."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise

from ckptprof.service.sampler.activity import ACTIVE_BYTES, SECOND_SAMPLE_NS, ProcessActivity
from ckptprof.service.sampler.shares import CpuAllowance
from ckptprof.service.sampler.traced_activity import LARGE_FILE_BYTES, TracedActivity
from ckptprof.service.sampler.watched_folders import folders_of
from ckptprof_collectors.files.file_facts import FactQuery
from ckptprof_collectors.files.workers import WORKERS
from ckptprof_collectors.processes.open_files import MappingReader, OpenFileScanner
from ckptprof_collectors.processes.process import (
    Process,
    ProcessGone,
    candidate_folders,
    describe,
    describe_launchers,
    runs_interpreter,
)
from ckptprof_collectors.processes.thread_clock import ThreadClock
from ckptprof_collectors.samples import FileActivity, FileScan, PreviousRead, ProcessInfo, Sample

_ENDED = frozenset("ZXx")  # states of /proc/PID/stat: a zombie, and dead
_WRITABLE = os.O_WRONLY | os.O_RDWR
MAX_KNOWN_FILES = 512
MAX_FOLDERS = 48
_DESCRIBE_AGAIN_NS = (500_000_000, 1_500_000_000, 4_000_000_000, 15_000_000_000, 60_000_000_000)
_SLACK_NS = 50_000_000  # file systems stamp with the clock of the last timer tick
AWAKE_AFTER_CHANGE_NS = 2_000_000_000  # after the last change of its counters a process becomes idle,
AWAKE_TRAINING_NS = 60_000_000_000  # and one that trains: ranks wait for each other
SHARE = 0.01  # of a core, for one process: one with tens of thousands of open files is read less often,
SAVED_NS = 30_000_000  # but not at first: its save may be short
MAPPINGS_SHARE = 0.005  # for reads of its mappings alone, so that its counters and open files are still read
FACTS_SHARE = 0.01  # for the file system's answers about a candidate: above it, only those after a burst are requested
OTHERS_SHARE = 0.004  # for files, descriptors and threads of all processes together that are no candidates
OTHERS_SAVED_NS = 100_000_000  # four thousand files: a tree that is unpacked has more
RHYTHM_BURSTS = 3
LARGE_WRITE_BYTES = 64 << 10  # on average, where no file was observed
ALIKE_FACTOR = 2  # the largest is at most so many times the smallest
_DESCRIBE_BURST_NS = 1_000_000_000  # within a burst of what is not known to train
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JAX_PROCESS_ID")


class WatchedProcess:
    """State of one watched process; every method raises ProcessGone once it has ended."""

    def __init__(
        self, process: Process, now_ns: int,
        *, keep: bool, born_since_ns: int | None = None, others: CpuAllowance | None = None,
    ) -> None:  # fmt: skip
        """Start to watch at `now_ns`; `keep`: watch it whether or not it trains.

        `born_since_ns`: it started after that, and files written since then are not known yet. `others`: the CPU time
        that all processes share that are no candidates; None: it has an allowance of its own.
        """
        self.process = process
        self.view = WORKERS.views.record(process.pid, process.start_ticks)  # for when it has ended
        self.is_required = keep
        self.since_ns = now_ns
        self.activity = ProcessActivity(sample_since_ns=now_ns)
        self.allowance = CpuAllowance(SHARE, SAVED_NS)
        self.is_candidate = self.has_signs = keep  # for another one's sake, or by what it is or does itself
        self._bursts: deque[tuple[int, int]] = deque(maxlen=RHYTHM_BURSTS)  # of large writes: start, bytes
        self._facts_allowance = CpuAllowance(FACTS_SHARE, SAVED_NS)
        self._others_allowance = others or CpuAllowance(OTHERS_SHARE, OTHERS_SAVED_NS)
        self._mappings_allowance = CpuAllowance(MAPPINGS_SHARE, SAVED_NS)
        self._awake = True
        self.woken: list[WatchedProcess] = []  # the shared list to which it adds itself when it becomes active
        self.changed_ns = now_ns  # last observed change of its counters
        self.traced = TracedActivity()  # stays empty without a trace
        self.info: ProcessInfo | None = None
        self.is_interpreter = runs_interpreter(process.folder)
        self._described = 0
        self._described_ns = 0
        self._describe_next_ns = now_ns
        self._files: OpenFileScanner | None = None
        self._highest_descriptor = 0  # number among its open descriptors
        self._listed_ns = 0  # when the folders of its written files were last queried
        self._mappings = MappingReader(process)
        self._previous = (0, 0, 0)  # bytes transferred, file-backed memory, at_ns
        self._positions: dict[tuple[int, int], int] = {}
        self._written: dict[tuple[int, int], bytes] = {}
        self._has_large_file = False  # among the written ones
        self._folders: dict[bytes, bool] = {}  # folder -> whether it counts only if no other user may write to it
        self.places_known = False  # the folders where it may save are watched
        self.new_files: list[bytes] = []  # written files, consumed by the sampler
        self.last_write_ns = 0  # last observed write to a file
        self.last_wrote_ns = 0  # last write of a tick's worth of a burst, to any target
        self._wrote_bytes = self._burst_wrote_bytes = 0  # since the tick before and the last burst, to any target
        self._previous_wrote = self._previous_writes = self._burst_writes = 0
        self._born_since_ns = born_since_ns
        self._clock: ThreadClock | None = None
        self._clock_denied = False

    @property
    def is_awake(self) -> bool:
        """It transfers bytes or uses CPU: it is read at each tick."""
        return self._awake

    @is_awake.setter
    def is_awake(self, awake: bool) -> None:
        if awake and not self._awake:
            self.woken.append(self)
        self._awake = awake

    @property
    def is_training(self) -> bool:
        """It has a machine-learning runtime mapped, or a rank."""
        info = self.info
        return info is not None and (bool(info.runtimes) or "RANK" in info.environment)

    @property
    def rank(self) -> int | None:
        """The rank that its environment gives it."""
        environment = self.info.environment if self.info is not None else {}
        values = (environment.get(name, "") for name in _RANKS)
        return next((int(value) for value in values if value.isascii() and value.isdigit()), None)

    @property
    def payer(self) -> CpuAllowance:
        """The CPU time that following its files is charged to."""
        return self._facts_allowance if self.is_candidate else self._others_allowance

    def update_signs(self) -> None:
        """Decide whether it may save checkpoints by what it runs or does itself: then it is a candidate for good."""
        self.has_signs |= self.is_training or self.rank is not None or has_rhythm(self._bursts)
        self.is_candidate |= self.has_signs

    def is_followed(self, now_ns: int) -> bool:
        """Whether its files and threads are followed: those of a candidate are, of others while that costs little."""
        return self.is_candidate or self._others_allowance.left_ns(now_ns) > 0

    def ingest(self, activity: FileActivity) -> None:
        """Ingest a trace sample of this process."""
        self.traced.ingest(activity)
        self.is_awake = True

    def alert(self, now_ns: int, *, mappings: bool) -> None:
        """Start a burst before its first byte."""
        self.activity.alert(now_ns, mappings=mappings)
        self.is_awake = True

    def record_sending(self, now_ns: int, until_ns: int) -> None:
        """Treat it as a writer of files: its own counters may not include what it sends."""
        self.activity.alert(now_ns, mappings=False, until_ns=until_ns)
        self.last_write_ns = until_ns
        self.is_awake = True

    def update_awake(self, now_ns: int) -> None:
        """Update, after a read, whether it is active or idle."""
        activity = self.activity
        still_ns = AWAKE_TRAINING_NS if self.is_training else AWAKE_AFTER_CHANGE_NS
        is_used = activity.is_in_burst() or activity.second_sample_ns is not None
        self.is_awake = is_used or now_ns - self.changed_ns < still_ns

    def sample_counters(self, now_ns: int, page_bytes: int, samples: list[Sample], *, previous_ns: int = 0) -> None:
        """Read the counters and append what changed to `samples`; `previous_ns` is when others were read before."""
        process = self.process
        count_before = len(samples)
        if process.read_io() and process.io is not None:
            samples.append(process.io)
        if process.read_stat(page_bytes) and process.stat is not None:
            samples.append(process.stat)
        if len(samples) > count_before:
            self.changed_ns = now_ns
            if 0 < self._previous[2] < previous_ns:
                samples.append(PreviousRead(process.pid, process.start_ticks, self._previous[2]))
        io, stat = process.io, process.stat
        transferred = max(io.write_chars, io.write_bytes) + max(io.read_chars, io.read_bytes) if io else 0
        resident = stat.rss_file_bytes or 0 if stat else 0
        last_transferred, last_resident, last_ns = self._previous
        self._previous = (transferred, resident, now_ns)
        transferred_bytes = max(
            transferred - last_transferred, self.traced.transferred_bytes
        )  # io_uring counts in no counter of the process
        wrote = max(io.write_chars, io.write_bytes) if io else 0
        self._wrote_bytes, self._previous_wrote = wrote - self._previous_wrote, wrote
        self._burst_wrote_bytes += self._wrote_bytes
        if last_ns and self._wrote_bytes >= ACTIVE_BYTES:
            self.last_wrote_ns = now_ns
        writes = io.write_syscalls if io else 0
        self._burst_writes, self._previous_writes = self._burst_writes + writes - self._previous_writes, writes
        if last_ns:
            self.activity.observe(now_ns, last_ns, transferred_bytes, resident - last_resident)
        elif self._born_since_ns is not None and wrote >= ACTIVE_BYTES:
            self.activity.sample_since(now_ns, self._born_since_ns)

    def sample_training_thread(self, samples: list[Sample]) -> None:
        """Append CPU times and I/O of the main thread of a process that may train."""
        if self._clock is None:
            if not (self.is_training or self.has_signs) or self._clock_denied:
                return
            try:
                self._clock = ThreadClock(self.process)
            except OSError:  # the kernel keeps none, or no descriptor is left
                self._clock_denied = True
                return
        if (thread_time := self._clock.read()) is not None:
            samples.append(thread_time)
        if not self.process.keeps_open:
            self._clock.close()
            self._clock = None

    def sample_last(self, now_ns: int, page_bytes: int, samples: list[Sample]) -> None:
        """Read the counters a last time; a zombie counts as ended."""
        self.sample_counters(now_ns, page_bytes, samples)
        if self.traced.transferred_bytes:
            self.apply_traced()
        if self.process.stat is not None and self.process.stat.state in _ENDED:
            raise ProcessGone

    def apply_traced(self) -> None:
        """Apply the trace samples since the last tick, instead of a scan of the open files."""
        activity = self.activity
        if activity.is_in_burst():
            activity.record_sample(fruitful=self.traced.transferred_bytes > 0)
        if self.traced.written_bytes >= ACTIVE_BYTES:
            self.last_write_ns = self._previous[2]
        samples_files = activity.is_in_burst() or activity.second_sample_ns is not None
        for key, path, large in self.traced.consume_written():
            if large:
                self._has_large_file = True
                if key not in self._written:
                    self.new_files.append(path)
            if large or samples_files:  # small files are logs, except those next to a checkpoint
                self._remember(key, path)
        activity.has_written_file_open = self.traced.has_written_file_open

    def rename(self, old: bytes, new: bytes, now_ns: int) -> None:
        """Query large files again after a rename, as a complete checkpoint gets its final name."""
        renamed = self.traced.rename(old, new)
        for key, path in renamed:
            self._remember(key, path)
        if renamed:
            self.activity.schedule_second_sample(now_ns)
            self.is_awake = True

    def learn_name(self, key: tuple[int, int], path: bytes, now_ns: int) -> None:
        """Query a written file again under its new name."""
        if self._written.get(key, path) != path:
            self._remember(key, path)
            self.activity.schedule_second_sample(now_ns)
            self.is_awake = True

    def describe_due(self, now_ns: int) -> bool:
        """Return True a few times during its imports, and in a burst if not known to train; not while it is idle."""
        if self.changed_ns <= self._described_ns:
            return False
        if self.activity.is_in_burst() and not self.is_training:
            return now_ns - self._described_ns >= _DESCRIBE_BURST_NS
        return now_ns >= self._describe_next_ns and self._described <= len(_DESCRIBE_AGAIN_NS)

    def describe(self, now_ns: int, samples: list[Sample]) -> None:
        """Find out which program and framework it runs; append the changes to `samples`."""
        wait_ns = _DESCRIBE_AGAIN_NS[min(self._described, len(_DESCRIBE_AGAIN_NS) - 1)]
        self._describe_next_ns = now_ns + wait_ns
        self._described += 1
        self._described_ns = now_ns
        info = describe(self.process, self.info)
        self.record_view()
        if info != self.info:
            if self.info is None:
                samples.extend(describe_launchers(self.process))
            self.info = info
            self.is_interpreter = runs_interpreter(self.process.folder)  # it may have been found before its exec(2)
            self.update_signs()
            samples.append(info)

    def scan_if_due(self, now_ns: int, samples: list[Sample], *, traced: bool = False) -> None:
        """Read the open files while a burst lasts; of a traced process its mappings alone: calls are counted."""
        activity = self.activity
        mappings = activity.mappings_due(now_ns) and self._mappings_allowance.left_ns(now_ns) > 0
        if not activity.scan_due(now_ns) or (traced and not mappings):
            return
        start_ns, spent_ns = time.thread_time_ns(), self._mappings.spent_ns
        if traced:
            mapped = self._mappings.read()
            scan, raw_paths = FileScan(self.process.pid, self.process.start_ticks, (), mapped), self._mappings.raw_paths
        else:
            scan, raw_paths = self._scan_all(mappings=mappings)
        spent_ns = self._mappings.spent_ns - spent_ns
        self._mappings_allowance.spend(spent_ns)
        self.allowance.spend(-spent_ns)  # counted in the other allowance
        activity.record_scan(
            now_ns, fruitful=bool(scan.mapped) or any(file.size >= LARGE_FILE_BYTES for file in scan.files)
        )
        if mappings:
            activity.record_mappings(now_ns, found=bool(scan.mapped))
        samples.append(scan)
        for one in scan.mapped or ():
            if one.writable:
                self._remember((one.device, one.inode), raw_paths.get((one.device, one.inode)))
        if not traced:
            self._record_descriptors(scan, raw_paths)
        if not self.is_candidate:
            self._others_allowance.spend(time.thread_time_ns() - start_ns)

    def _scan_all(self, *, mappings: bool) -> tuple[FileScan, dict[tuple[int, int], bytes]]:
        files = self._files or OpenFileScanner(self.process, self._highest_descriptor)
        self._files = files if self.process.keeps_open else None
        try:
            return files.scan(self._mappings if mappings else None), files.raw_paths
        finally:
            self._highest_descriptor = files.highest
            if self._files is None:
                files.close()

    def _record_descriptors(self, scan: FileScan, raw_paths: dict[tuple[int, int], bytes]) -> None:
        has_written_open = False
        for file in scan.files:
            key = (file.device, file.inode)
            first = self._positions.setdefault(key, file.position if file.flags & os.O_APPEND else 0)
            if file.flags & _WRITABLE and not file.path.endswith(" (deleted)"):
                if file.size >= LARGE_FILE_BYTES and key in raw_paths:
                    self._has_large_file = True
                    if key not in self._written:
                        self.new_files.append(raw_paths[key])
                self._remember(key, raw_paths.get(key))
                has_written_open = has_written_open or max(file.position, 0) - first >= LARGE_FILE_BYTES
        self.activity.has_written_file_open = has_written_open or self.traced.has_written_file_open
        if has_written_open and self._wrote_bytes >= ACTIVE_BYTES:
            self.last_write_ns = self._previous[2]

    def _remember(self, key: tuple[int, int], path: bytes | None) -> None:
        if path is None or self._written.get(key) == path or len(self._written) >= MAX_KNOWN_FILES:
            return  # known already: its folders were learnt at the first scan, not at each of 25 a second
        self._written[key] = path
        folder, above = folders_of(path)
        self.learn_folder(folder)
        if above is not None:
            self.learn_folder(above, unless_shared=True)

    def question_if_due(
        self,
        now_ns: int,
        wall_minus_monotonic_ns: int,
        is_complete_since: Callable[[int], bool],
        *,
        force: bool = False,
    ) -> FactQuery | None:
        """Return the query that is due, if any: after a burst, shortly after that again, and within a long one.

        Folders of small files are not listed where the trace `is_complete_since` the last listing; after a loss they
        are listed until one listing came a while after it. A query within a burst can wait: another one follows it.
        """
        activity = self.activity
        start_ns, has_ended = activity.burst_since_ns, activity.end_if_idle(now_ns)
        if has_ended and start_ns is not None:
            self._forget_open_files()
            least_bytes = max(LARGE_FILE_BYTES, LARGE_WRITE_BYTES * self._burst_writes)
            if self._has_large_file or self._burst_wrote_bytes >= least_bytes:
                self._bursts.append((start_ns, self._burst_wrote_bytes))
                self.update_signs()
            self._burst_wrote_bytes = self._burst_writes = 0
        midway = not has_ended and not force and activity.midway_due(now_ns)
        due = has_ended or (midway and self.payer.left_ns(now_ns) > 0) or activity.second_sample_due(now_ns)
        if not due and not (force and (activity.is_in_burst() or activity.second_sample_ns is not None)):
            return None
        self.record_view()
        named = is_complete_since(max(activity.sample_since_ns, self._listed_ns - SECOND_SAMPLE_NS))
        if not named:
            self._listed_ns = now_ns
        folders = self._sibling_folders(named=named) if self._has_large_file or named else self._candidate_folders()
        question = self._make_question(folders, now_ns, wall_minus_monotonic_ns)
        if activity.second_sample_ns is None and not activity.is_in_burst():
            self._written.clear()
            self._has_large_file = False
        return question

    def _sibling_folders(self, *, named: bool) -> Mapping[bytes, bool]:
        return self._folders if self._has_large_file or not named else {}

    def _candidate_folders(self) -> dict[bytes, bool]:
        folders = dict(self._folders)
        for place in candidate_folders(self.process):
            for where in (place, os.path.dirname(place) or b"/"):
                folders.setdefault(where, True)
        folders.pop(b"/", None)
        return folders

    def record_view(self) -> None:
        """Record its current root: it may have changed since the process was found."""
        WORKERS.views.record(self.process.pid, self.process.start_ticks)

    def _make_question(
        self, folders: Mapping[bytes, bool], now_ns: int, wall_minus_monotonic_ns: int
    ) -> FactQuery | None:
        if not self._written and not folders:
            return None
        if not self.is_followed(now_ns):
            self._others_allowance.refused += 1
            return None
        return FactQuery(
            pid=self.process.pid,
            start_ticks=self.process.start_ticks,
            view=self.view,
            files=tuple(self._written.values()),
            folders=tuple(folder for folder, unless_shared in folders.items() if not unless_shared),
            since_ns=self.activity.sample_since_ns + wall_minus_monotonic_ns - _SLACK_NS,
            count_unwritten=True,
            unshared_folders=tuple(folder for folder, unless_shared in folders.items() if unless_shared),
            spend=self.payer.spend,
        )

    def last_question(
        self, now_ns: int, wall_minus_monotonic_ns: int, is_complete_since: Callable[[int], bool]
    ) -> FactQuery | None:
        """Return the query after the process has ended, from its known files; None if there are none."""
        activity = self.activity
        if self.traced.transferred_bytes:
            self.apply_traced()
        if not activity.is_in_burst() and activity.second_sample_ns is None and not self._written:
            return None
        return self._make_question(
            self._sibling_folders(named=is_complete_since(activity.sample_since_ns)), now_ns, wall_minus_monotonic_ns
        )

    def learn_folder(self, folder: bytes, *, unless_shared: bool = False) -> None:
        """Record a folder of a file of this process, or the folder above it."""
        if folder in self._folders or len(self._folders) < MAX_FOLDERS:
            self._folders[folder] = unless_shared and self._folders.get(folder, True)

    def _forget_open_files(self) -> None:
        self._positions.clear()
        self.traced.forget_open_files()
        self.activity.has_written_file_open = False
        if self._clock is not None:
            self._clock.close_io()
        if self._files is not None:
            self._files.close()
            self._files = None

    def stop(self) -> None:
        """Close all descriptors except those that every known process has."""
        self._forget_open_files()
        if self._clock is not None:
            self._clock.close()
        self.process.close_statm()

    def close(self) -> None:
        """Close all descriptors."""
        self.stop()
        self.process.close()


def has_rhythm(bursts: Collection[tuple[int, int]]) -> bool:
    """Test whether the last bursts (start, bytes) wrote alike at intervals alike, as saves do."""
    starts, sizes = zip(*bursts, strict=True) if bursts else ((), ())
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    return len(sizes) == RHYTHM_BURSTS and all(max(some) <= ALIKE_FACTOR * min(some) for some in (sizes, gaps))
