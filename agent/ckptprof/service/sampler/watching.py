"""One watched process: its counters at each tick, its files while it moves bytes, the facts about them afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ckptprof.service.sampler.activity import ACTIVE_BYTES, SECOND_LOOK_NS, Activity
from ckptprof.service.sampler.folders import folders_of
from ckptprof.service.sampler.shares import Allowance
from ckptprof.service.sampler.traced import HELD_BYTES, Traced
from ckptprof_collectors.files.facts import Question
from ckptprof_collectors.files.workers import WORKERS
from ckptprof_collectors.processes.openfiles import Mappings, OpenFiles
from ckptprof_collectors.processes.process import Process, ProcessGone, describe, is_interpreter, places, starters
from ckptprof_collectors.processes.threads import ThreadClock
from ckptprof_collectors.samples import FileActivity, FileScan, ProcessInfo, ReadBefore, Sample

_ENDED = frozenset("ZXx")  # states of /proc/PID/stat: a zombie, and dead
_WRITABLE = os.O_WRONLY | os.O_RDWR
MAX_KNOWN_FILES = 512
MAX_FOLDERS = 48
_DESCRIBE_AGAIN_NS = (500_000_000, 1_500_000_000, 4_000_000_000, 15_000_000_000, 60_000_000_000)
_SLACK_NS = 50_000_000  # file systems stamp with the clock of the last timer tick
AWAKE_NS = 2_000_000_000  # so long after its counters changed it does not stand still yet,
AWAKE_TRAINING_NS = 60_000_000_000  # and who trains: ranks wait for each other
SHARE = 0.01  # of a core, for one process: one with tens of thousands of open files is looked at more seldom,
SAVED_NS = 30_000_000  # but not at once: a save may be over by then
MAPPINGS_SHARE = 0.005  # for reads of its mappings alone: meanwhile its counters and open files are read all the same


class Watching:
    """What is kept about one watched process; every method raises ProcessGone once it has ended."""

    def __init__(self, process: Process, now_ns: int, *, keep: bool, born_since_ns: int | None = None) -> None:
        """Begin to watch at `now_ns`; `keep`: it is watched whether or not it turns out to train.

        `born_since_ns`: it was not there then, and what it has written since was not looked at.
        """
        self.process = process
        self.view = WORKERS.views.note(process.pid, process.start_ticks)  # for when it has ended
        self.keep = keep
        self.since_ns = now_ns
        self.activity = Activity(look_since_ns=now_ns)
        self.allowance = Allowance(SHARE, SAVED_NS)
        self._for_mappings = Allowance(MAPPINGS_SHARE, SAVED_NS)
        self._awake = True
        self.woken: list[Watching] = []  # where it puts itself when it wakes
        self._changed_ns = now_ns  # when its counters were last seen to change
        self.traced = Traced()  # stays empty without a trace
        self.info: ProcessInfo | None = None
        self.interpreter = is_interpreter(process)
        self._described = 0
        self._described_ns = 0
        self._describe_next_ns = now_ns
        self._files: OpenFiles | None = None
        self._highest = 0  # descriptor of its open files
        self._listed_ns = 0  # when the folders of what it wrote were asked for last
        self._mappings = Mappings(process)
        self._previous = (0, 0, 0)  # bytes moved, file-backed memory, at_ns
        self._positions: dict[tuple[int, int], int] = {}
        self._written: dict[tuple[int, int], bytes] = {}
        self._caught = False  # whether a large file was among those
        self._folders: dict[bytes, bool] = {}  # and whether it counts only if it is nobody else's
        self.placed = False  # whether the sampler has been told where it may come to save
        self.fresh_files: list[bytes] = []  # seen being written, to be taken and cleared by the sampler
        self.wrote_ns = 0  # when it was last seen writing to a file
        self._wrote_bytes = 0  # since the tick before, to whatever
        self._previous_wrote = 0
        self._born_since_ns = born_since_ns
        self._clock: ThreadClock | None = None
        self._clock_denied = False

    @property
    def awake(self) -> bool:
        """Whether it moves or runs: then it is read at each tick."""
        return self._awake

    @awake.setter
    def awake(self, awake: bool) -> None:
        if awake and not self._awake:
            self.woken.append(self)
        self._awake = awake

    @property
    def trains(self) -> bool:
        """Whether it has a runtime of machine learning mapped, or a rank."""
        info = self.info
        return info is not None and (bool(info.runtimes) or "RANK" in info.environment)

    def note(self, activity: FileActivity) -> None:
        """Take in what the trace tells of it."""
        self.traced.note(activity)
        self.awake = True

    def alert(self, now_ns: int, *, mappings: bool) -> None:
        """Begin a burst before its first byte."""
        self.activity.alert(now_ns, mappings=mappings)
        self.awake = True

    def sends(self, now_ns: int, until_ns: int) -> None:
        """Look at it as at who writes to a file: no counter of it may tell of what it sends."""
        self.activity.alert(now_ns, mappings=False, until_ns=until_ns)
        self.wrote_ns = until_ns
        self.awake = True

    def settle(self, now_ns: int) -> None:
        """Take note, after it was read, whether it stands still."""
        activity = self.activity
        still_ns = AWAKE_TRAINING_NS if self.trains else AWAKE_NS
        self.awake = now_ns - self._changed_ns < still_ns or activity.in_burst() or activity.second_look_ns is not None

    def tick(self, now_ns: int, page_bytes: int, samples: list[Sample], *, previous_ns: int = 0) -> None:
        """Read the counters and append what changed to `samples`; `previous_ns` is when others were read before."""
        process = self.process
        told = len(samples)
        if process.read_io() and process.io is not None:
            samples.append(process.io)
        if process.read_stat(page_bytes) and process.stat is not None:
            samples.append(process.stat)
        if len(samples) > told:
            self._changed_ns = now_ns
            if 0 < self._previous[2] < previous_ns:
                samples.append(ReadBefore(process.pid, process.start_ticks, self._previous[2]))
        io, stat = process.io, process.stat
        moved = max(io.write_chars, io.write_bytes) + max(io.read_chars, io.read_bytes) if io else 0
        resident = stat.rss_file_bytes or 0 if stat else 0
        last_moved, last_resident, last_ns = self._previous
        self._previous = (moved, resident, now_ns)
        moved_bytes = max(moved - last_moved, self.traced.moved_bytes)  # io_uring counts in no counter of the process
        wrote = max(io.write_chars, io.write_bytes) if io else 0
        self._wrote_bytes, self._previous_wrote = wrote - self._previous_wrote, wrote
        if last_ns:
            self.activity.observe(now_ns, last_ns, moved_bytes, resident - last_resident)
        elif self._born_since_ns is not None and wrote >= ACTIVE_BYTES:
            self.activity.met_late(now_ns, self._born_since_ns)

    def time(self, samples: list[Sample], *, traced: bool) -> None:
        """Append the times of the thread that trains, if it is one that does; while polling with what it moved."""
        if self._clock is None:
            if not self.trains or self._clock_denied:
                return
            try:
                self._clock = ThreadClock(self.process)
            except OSError:  # the kernel keeps none, or no descriptor is left
                self._clock_denied = True
                return
        time = self._clock.read(moved=not traced)
        if time is not None:
            samples.append(time)
        if not self.process.keeps:
            self._clock.close()
            self._clock = None

    def last_tick(self, now_ns: int, page_bytes: int, samples: list[Sample]) -> None:
        """Read the counters a last time; one that has ended is gone, whether its parent took note of that or not."""
        self.tick(now_ns, page_bytes, samples)
        if self.traced.moved_bytes:
            self.learn_traced()
        if self.process.stat is not None and self.process.stat.state in _ENDED:
            raise ProcessGone

    def learn_traced(self) -> None:
        """Take over what the trace has told since the last tick, in the place of a scan of the open files."""
        activity = self.activity
        if activity.in_burst():
            activity.looked(fruitful=self.traced.moved_bytes > 0)
        if self.traced.written_bytes >= ACTIVE_BYTES:
            self.wrote_ns = self._previous[2]
        looking = activity.in_burst() or activity.second_look_ns is not None
        for key, path, large in self.traced.take():
            if large:
                self._caught = True
                if key not in self._written:
                    self.fresh_files.append(path)
            if large or looking:  # small files are logs, but for those beside a checkpoint
                self._remember(key, path)
        activity.holds_written_file = self.traced.holds_written_file

    def renamed(self, old: bytes, new: bytes, now_ns: int) -> None:
        """Look again at large files that were given another name, as a checkpoint is when it is complete."""
        moved = self.traced.renamed(old, new)
        for key, path in moved:
            self._remember(key, path)
        if moved:
            self.activity.look_again(now_ns)
            self.awake = True

    def found_named(self, key: tuple[int, int], path: bytes, now_ns: int) -> None:
        """Look again, under the name that it has now, at a file that was seen being written under another."""
        if self._written.get(key, path) != path:
            self._remember(key, path)
            self.activity.look_again(now_ns)
            self.awake = True

    def describe_due(self, now_ns: int) -> bool:
        """Return whether to find out what it runs: some times while it imports, and at a burst if still unknown.

        Who did nothing since it was described is what it was.
        """
        if now_ns < self._describe_next_ns or self._changed_ns <= self._described_ns:
            return False
        return self._described <= len(_DESCRIBE_AGAIN_NS) or (self.activity.in_burst() and not self.trains)

    def describe(self, now_ns: int, samples: list[Sample]) -> None:
        """Find out what it runs."""
        wait_ns = _DESCRIBE_AGAIN_NS[min(self._described, len(_DESCRIBE_AGAIN_NS) - 1)]
        self._describe_next_ns = now_ns + wait_ns
        self._described += 1
        self._described_ns = now_ns
        info = describe(self.process, self.info)
        self.note_view()
        if info != self.info:
            if self.info is None:
                samples.extend(starters(self.process))
            self.info = info
            samples.append(info)

    def scan_if_due(self, now_ns: int, samples: list[Sample], *, traced: bool = False) -> None:
        """Read the open files while a burst lasts; of a traced process its mappings alone: calls are counted."""
        activity = self.activity
        mappings = activity.mappings_due(now_ns) and self._for_mappings.left_ns(now_ns) > 0
        if not activity.scan_due(now_ns) or (traced and not mappings):
            return
        spent_ns = self._mappings.spent_ns
        if traced:
            mapped = self._mappings.look()
            scan, raw_paths = FileScan(self.process.pid, self.process.start_ticks, (), mapped), self._mappings.raw_paths
        else:
            scan, raw_paths = self._scan_all(mappings=mappings)
        spent_ns = self._mappings.spent_ns - spent_ns
        self._for_mappings.spend(spent_ns)
        self.allowance.spend(-spent_ns)  # of which it is a part otherwise
        activity.scanned(now_ns, fruitful=bool(scan.mapped) or any(file.size >= HELD_BYTES for file in scan.files))
        if mappings:
            activity.mappings_read(now_ns, found=bool(scan.mapped))
        samples.append(scan)
        for one in scan.mapped or ():
            if one.writable:
                self._remember((one.device, one.inode), raw_paths.get((one.device, one.inode)))
        if not traced:
            self._note_descriptors(scan, raw_paths)

    def _scan_all(self, *, mappings: bool) -> tuple[FileScan, dict[tuple[int, int], bytes]]:
        files = self._files or OpenFiles(self.process, self._highest)
        self._files = files if self.process.keeps else None
        try:
            return files.scan(self._mappings if mappings else None), files.raw_paths
        finally:
            self._highest = files.highest
            if self._files is None:
                files.close()

    def _note_descriptors(self, scan: FileScan, raw_paths: dict[tuple[int, int], bytes]) -> None:
        holds = False
        for file in scan.files:
            key = (file.device, file.inode)
            first = self._positions.setdefault(key, file.position if file.flags & os.O_APPEND else 0)
            if file.flags & _WRITABLE and not file.path.endswith(" (deleted)"):
                if file.size >= HELD_BYTES and key in raw_paths:
                    self._caught = True
                    if key not in self._written:
                        self.fresh_files.append(raw_paths[key])
                self._remember(key, raw_paths.get(key))
                holds = holds or max(file.position, 0) - first >= HELD_BYTES
        self.activity.holds_written_file = holds or self.traced.holds_written_file
        if holds and self._wrote_bytes >= ACTIVE_BYTES:
            self.wrote_ns = self._previous[2]

    def _remember(self, key: tuple[int, int], path: bytes | None) -> None:
        if path is None or self._written.get(key) == path or len(self._written) >= MAX_KNOWN_FILES:
            return  # known already: its folders were looked at when it was met, not at each of 25 scans a second
        self._written[key] = path
        folder, above = folders_of(path)
        self.learn_folder(folder)
        if above is not None:
            self.learn_folder(above, unless_shared=True)

    def question_if_due(
        self, now_ns: int, wall_minus_monotonic_ns: int, names_all: Callable[[int], bool], *, force: bool = False
    ) -> Question | None:
        """Return what to ask of the file system now: after a burst, shortly after that again, and within a long one.

        What is beside small files is not asked where the trace `names_all` since a time; what it has lost then is asked
        for until that was done a while after it.
        """
        activity = self.activity
        ends = activity.ends(now_ns)
        if ends:
            self._relax()
        midway = not ends and not force and activity.midway_due(now_ns)
        due = ends or midway or activity.second_look_due(now_ns)
        if not due and not (force and (activity.in_burst() or activity.second_look_ns is not None)):
            return None
        self.note_view()
        named = names_all(max(activity.look_since_ns, self._listed_ns - SECOND_LOOK_NS))
        if not named:
            self._listed_ns = now_ns
        folders = self._beside(named=named) if self._caught or named else self._places()
        question = self._asking(folders, wall_minus_monotonic_ns, midway=midway)
        if activity.second_look_ns is None and not activity.in_burst():
            self._written.clear()
            self._caught = False
        return question

    def _beside(self, *, named: bool) -> Mapping[bytes, bool]:
        return self._folders if self._caught or not named else {}

    def _places(self) -> dict[bytes, bool]:
        folders = dict(self._folders)
        for place in places(self.process):
            for where in (place, os.path.dirname(place) or b"/"):
                folders.setdefault(where, True)
        folders.pop(b"/", None)
        return folders

    def note_view(self) -> None:
        """Keep in mind which root it has now: it may have got another since it was met."""
        WORKERS.views.note(self.process.pid, self.process.start_ticks)

    def _asking(
        self, folders: Mapping[bytes, bool], wall_minus_monotonic_ns: int, *, midway: bool = False
    ) -> Question | None:
        if not self._written and not folders:
            return None
        return Question(
            pid=self.process.pid,
            start_ticks=self.process.start_ticks,
            view=self.view,
            files=tuple(self._written.values()),
            folders=tuple(folder for folder, unless_shared in folders.items() if not unless_shared),
            since_ns=self.activity.look_since_ns + wall_minus_monotonic_ns - _SLACK_NS,
            unwritten=True,
            unshared=tuple(folder for folder, unless_shared in folders.items() if unless_shared),
            midway=midway,
        )

    def last_question(self, wall_minus_monotonic_ns: int, names_all: Callable[[int], bool]) -> Question | None:
        """Return what to ask when the process has ended, from what is already known of it."""
        activity = self.activity
        if self.traced.moved_bytes:
            self.learn_traced()
        if not activity.in_burst() and activity.second_look_ns is None and not self._written:
            return None
        return self._asking(self._beside(named=names_all(activity.look_since_ns)), wall_minus_monotonic_ns)

    def learn_folder(self, folder: bytes, *, unless_shared: bool = False) -> None:
        """Take note of a folder in which a file of this process was found, or of one above it."""
        if folder in self._folders or len(self._folders) < MAX_FOLDERS:
            self._folders[folder] = unless_shared and self._folders.get(folder, True)

    def _relax(self) -> None:
        self._positions.clear()
        self.traced.relax()
        self.activity.holds_written_file = False
        if self._clock is not None:
            self._clock.relax()
        if self._files is not None:
            self._files.close()
            self._files = None

    def end(self) -> None:
        """Give back all descriptors but those that every known process has."""
        self._relax()
        if self._clock is not None:
            self._clock.close()
        self.process.relax()

    def close(self) -> None:
        """Give all descriptors back."""
        self.end()
        self.process.close()
