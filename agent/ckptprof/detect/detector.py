"""From frames to checkpoints: a pure function of the samples, the same live and on replay."""

from __future__ import annotations

from collections import deque

from ckptprof.detect.assemble import Scene
from ckptprof.detect.blind import HealthBook
from ckptprof.detect.candidates import CERTAIN_GAP_NS, Candidate, Part, group, name_of
from ckptprof.detect.devices import DeviceBook
from ckptprof.detect.edges import Clock, read_edges, write_edges
from ckptprof.detect.evidence import Surroundings
from ckptprof.detect.facts import FactBook
from ckptprof.detect.fusion import faulted_before, mapped_openings, unexplained
from ckptprof.detect.intervals import History
from ckptprof.detect.jobs import JobBook
from ckptprof.detect.lives import is_temporary
from ckptprof.detect.memory import Memory
from ckptprof.detect.openings import OpeningBook
from ckptprof.detect.recognition import Recogniser, Rejected
from ckptprof.detect.sizes import part_bytes, traced_bytes_of
from ckptprof.detect.streams import ProcessKey, Stream, StreamBook
from ckptprof.detect.tick import Tick
from ckptprof.detect.tracebook import TraceBook
from ckptprof.detect.trainers import TrainerBook
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof_collectors.samples import Frame, ProcessIo, ProcessStat

QUIET_NS = 2_600_000_000  # after its last sign of life a candidate is judged: later than the sampler's second look
_EVALUATE_NS = 500_000_000
_CROWD = 2000  # so many streams that wait are looked at less often, by one turn for each
_MAX_CROWDS = 9
_KEEP_NS = 120_000_000_000  # of counters, while nothing older is waiting
_MAX_HISTORIES = 4096  # more than a sampler watches at once


class Detector:
    """Feed it frames in order; it returns checkpoints once they are over and all that will be known of them is."""

    def __init__(self, header: Header, *, saved_paths: tuple[str, ...] = ()) -> None:
        """Begin a recording; `saved_paths` are files and folders that were saved before it."""
        self._header = header
        self._clock = Clock()
        self._clock.set(header.at_ns, header.wall_ns)
        self._jobs = JobBook(header.monitor_pids)
        self._histories: dict[ProcessKey, History] = {}
        self._ended: dict[ProcessKey, int] = {}
        self._streams = StreamBook()
        self._facts = FactBook()
        self._openings = OpeningBook()
        self._devices = DeviceBook()
        self._memory = Memory(saved_paths)
        self._traced = TraceBook()
        self._health = HealthBook()
        self._trainers = TrainerBook()
        around = Surroundings(self._jobs, self._histories, self._memory, self._traced, self._trainers)
        self._scene = Scene(header, around, self._devices, self._clock, self._health)
        self._waiting: list[Stream] = []
        self._parts: dict[int, tuple[int, Part]] = {}  # of the traced streams that wait: with the version they are of
        self._recogniser = Recogniser(self._scene)
        self._previous_tick_ns = header.at_ns
        self._previous_frame_ns = header.at_ns
        self._evaluated_ns = 0

    @property
    def rejected(self) -> deque[Rejected]:
        """The last candidates that were not recognised."""
        return self._recogniser.rejected

    @property
    def active(self) -> bool:
        """Whether something is going on that may become a checkpoint."""
        return (
            bool(self._waiting)
            or bool(self._streams.open_streams())
            or self._traced.is_moving(self._previous_frame_ns - QUIET_NS)
        )

    def feed(self, frame: Frame) -> list[Checkpoint]:
        """Take one frame; return the checkpoints that are complete with it."""
        self._clock.set(frame.at_ns, frame.wall_ns)
        tick = Tick()
        for sample in frame.samples:
            if not tick.sort(sample):
                self._devices.observe(frame.at_ns, sample)
        self._take(tick, frame.at_ns, counted="processes" in frame.read)
        crowded = min(len(self._waiting) // _CROWD, _MAX_CROWDS)
        if frame.at_ns - self._evaluated_ns < _EVALUATE_NS * (1 + crowded):
            return []
        return self._evaluate(frame.at_ns)

    def _trace(self, tick: Tick, at_ns: int) -> None:
        for activity in tick.activities:
            self._jobs.hear((activity.pid, activity.start_ticks), activity.comm, activity.parent_pid)
            self._traced.learn(activity, self._previous_frame_ns)
        for event in tick.lives:
            self._traced.happen(event)
        for health in tick.healths:
            self._health.learn(at_ns, health)

    def _take(self, tick: Tick, at_ns: int, *, counted: bool) -> None:
        for info in tick.infos:
            self._jobs.learn(info)
        for gone in tick.exits:
            self._bequeath((gone.pid, gone.start_ticks), at_ns)
        if counted:
            for process in tick.ios.keys() | tick.stats.keys():
                self._count(process, at_ns, tick.ios.get(process), tick.stats.get(process))
            self._previous_tick_ns = at_ns
        for scan in tick.scans:
            self._streams.scan(at_ns, scan)
        self._trace(tick, at_ns)
        self._previous_frame_ns = at_ns
        for gone in tick.exits:
            self._end((gone.pid, gone.start_ticks), at_ns)
        self._learn(tick, at_ns)

    def _learn(self, tick: Tick, at_ns: int) -> None:
        for event in tick.events:
            self._openings.learn(event)
        for fact in tick.facts:
            self._facts.learn(at_ns, fact)
        self._trainers.see(at_ns)
        for stat in tick.stats.values():
            self._trainers.learn_stat(at_ns, stat)
        for life in tick.lives:
            self._trainers.learn_life(life)
        for time in tick.times:
            self._trainers.learn_time(at_ns, time)
        for stacks in tick.stacks:
            self._trainers.learn_stacks(stacks)

    def finish(self) -> list[Checkpoint]:
        """Judge what is left: the recording is over."""
        now_ns = self._previous_tick_ns
        self._streams.close_idle(now_ns + 1, 0)
        self._traced.take_idle()
        return self._evaluate(now_ns + 1_000_000_000_000)

    def _count(self, process: ProcessKey, at_ns: int, io: ProcessIo | None, stat: ProcessStat | None) -> None:
        history = self._histories.get(process)
        if history is None:
            if len(self._histories) >= _MAX_HISTORIES:
                self._drop_stalest(at_ns)
            history = self._histories[process] = History.empty()
        history.observe(at_ns, self._previous_tick_ns, io, stat, self._header.ticks_per_second)

    def _drop_stalest(self, at_ns: int) -> None:
        """Forget the half that was read longest ago: of those that the sampler let go, nobody tells the end."""
        by_age = sorted(self._histories, key=lambda key: self._histories[key].last_ns)
        for process in by_age[: _MAX_HISTORIES // 2]:
            self._streams.end(process, at_ns)
            del self._histories[process]
            self._ended.pop(process, None)

    def _bequeath(self, process: ProcessKey, at_ns: int) -> None:
        parent = self._jobs.parent(process)
        own, heir = self._histories.get(process), self._histories.get(parent) if parent is not None else None
        if own is not None and own.last_io is not None and heir is not None:
            heir.inherit(at_ns, own.last_io)

    def _end(self, process: ProcessKey, at_ns: int) -> None:
        self._streams.end(process, at_ns)
        self._traced.end(process, at_ns)
        self._jobs.end(process)
        self._ended[process] = at_ns

    def _evaluate(self, now_ns: int) -> list[Checkpoint]:
        self._evaluated_ns = now_ns
        self._streams.close_idle(now_ns, QUIET_NS)
        self._waiting.extend(self._streams.take_done())
        polled_open = self._fuse(now_ns)
        self._waiting = self._facts.attach(self._waiting, polled_open, self._histories, self._clock, self._traced)
        found = self._openings.unexplained(now_ns, [*self._waiting, *polled_open], self._histories)
        self._waiting += unexplained(found, self._traced) if self._traced else found
        done: list[Checkpoint] = []
        if self._waiting:
            done = self._judge(now_ns, polled_open)
        self._forget(now_ns)
        return done

    def _fuse(self, now_ns: int) -> list[Stream]:
        """Take what the trace saw in place of what polling saw of the same; return the open streams that are left."""
        polled_open = self._streams.open_streams()
        if not self._traced:
            return polled_open
        polled_open = unexplained(polled_open, self._traced)
        self._waiting = unexplained(self._waiting, self._traced)
        done = self._traced.take_done(now_ns)
        waiting = {id(stream) for stream in self._waiting}
        self._waiting += [stream for stream in done if id(stream) not in waiting]
        # one that was opened again goes back to the book
        self._waiting = [stream for stream in self._waiting if stream.trace is None or not stream.trace.is_open]
        return polled_open

    def _judge(self, now_ns: int, polled_open: list[Stream]) -> list[Checkpoint]:
        by_job: dict[tuple[str, bool, bool], list[Part]] = {}
        parts_before, self._parts = self._parts, {}
        jobs: dict[ProcessKey, tuple[str, bool]] = {}
        for stream in self._waiting:
            part = self._part(stream, parts_before)
            if part is not None:  # a `cp` that the job started is no writer of its saves
                job, tool = jobs.get(stream.process) or jobs.setdefault(
                    stream.process, (self._jobs.job_of(stream.process), self._jobs.is_tool(stream.process))
                )
                by_job.setdefault((job, stream.writes, tool), []).append(part)
            elif stream.trace is not None:
                stream.trace.told = True
        still_open = self._still_open({job for job, _, _ in by_job}, polled_open)
        waiting: list[Stream] = []
        done: list[Checkpoint] = []
        for (job, writes, _), parts in sorted(by_job.items(), key=lambda item: min(part.start_ns for part in item[1])):
            for candidate in group(job, parts):
                last_sign_ns = max(max(part.end_ns, part.stream.last_ns) for part in candidate.parts)
                unfinished = (job, writes, candidate.unit) in still_open and now_ns - last_sign_ns < 60 * 1_000_000_000
                if unfinished or now_ns - last_sign_ns < self._patience_ns(candidate):
                    waiting.extend(part.stream for part in candidate.parts)
                else:
                    done.extend(self._recogniser.judge(candidate))
                    _tell(candidate)
        self._waiting = waiting
        return sorted(done, key=lambda checkpoint: checkpoint.start_ns)

    def _still_open(self, jobs: set[str], polled_open: list[Stream]) -> set[tuple[str, bool, str]]:
        """Return (job, direction, unit) of the files that are open, of the jobs that something waits of."""
        found = {(self._jobs.job_of(stream.process), stream.writes, name_of(stream).unit) for stream in polled_open}
        for process in self._traced.open_processes():
            job = self._jobs.job_of(process)
            if job in jobs:
                names = ((stream, name_of(stream)) for stream in self._traced.open_of(process))
                found.update((job, stream.writes, name.unit) for stream, name in names if not name.never)
        return found

    def _patience_ns(self, candidate: Candidate) -> int:
        """Return how long more files of it may follow: those of a step's folder come even after a long barrier."""
        folder = any(part.name.certain and "#" not in part.name.unit for part in candidate.parts)
        more = folder and not any(part.name.commit for part in candidate.parts)
        more = more or any(part.temporary for part in candidate.parts)
        alive = any(process not in self._ended for process in candidate.processes)
        return CERTAIN_GAP_NS if more and alive else QUIET_NS

    def _part(self, stream: Stream, before: dict[int, tuple[int, Part]]) -> Part | None:
        """Return the stream with its edges and bytes; None if it carries nothing that could be of a checkpoint."""
        if stream.trace is not None:
            version, part = before.get(id(stream), (-1, None))
            if version != stream.trace.version or part is None or part.stream is not stream or stream.mapping:
                part = self._traced_part(stream)
            if part is not None:
                self._parts[id(stream)] = (stream.trace.version, part)
            return part
        name = name_of(stream)
        history = self._histories.get(stream.process)
        if (name.never and not name.commit) or history is None:
            return None
        if stream.writes:
            edges = write_edges(stream, history, self._clock, self._openings)
        else:
            edges = read_edges(stream, history, self._openings)
        size = part_bytes(stream, history, edges)
        if size <= 0:
            return None
        return Part(stream, name, edges[0], edges[1], size)

    def _traced_part(self, stream: Stream) -> Part | None:
        name = name_of(stream)
        size = traced_bytes_of(stream)
        if (name.never and not name.commit) or size <= 0 or stream.trace is None:
            return None
        start_ns, end_ns = stream.trace.edges()
        if not stream.writes and stream.trace.totals.faulted_bytes:
            size, end_ns = self._mapped(stream, size, end_ns)
        if size <= 0:
            return None
        return Part(stream, name, start_ns, end_ns, size, temporary=is_temporary(stream.path))

    def _mapped(self, stream: Stream, size: int, end_ns: int) -> tuple[int, int]:
        """Return bytes and end of a mapped file's reading: its pages count once, however often it was opened."""
        openings = mapped_openings(stream, self._traced)
        before = faulted_before(stream, openings)
        if before:
            return min(size, max(0, stream.size - before)), end_ns
        history = self._histories.get(stream.process)
        if stream.mapping is None or history is None:
            return size, end_ns
        edges = read_edges(stream.mapping, history, self._openings)
        elsewhere = sum(traced_bytes_of(other) for other in openings[1:])
        touched = part_bytes(stream.mapping, history, edges) - elsewhere
        return (touched, max(end_ns, edges[1])) if touched > size else (size, end_ns)

    def _forget(self, now_ns: int) -> None:
        oldest = min((stream.first_ns for stream in [*self._waiting, *self._streams.open_streams()]), default=now_ns)
        keep_from_ns = min(now_ns - _KEEP_NS, oldest - 10_000_000_000)
        self._traced.forget_before(keep_from_ns)
        for process, history in list(self._histories.items()):
            history.forget_before(keep_from_ns)
            ended_ns = self._ended.get(process)
            if ended_ns is not None and ended_ns < keep_from_ns:
                del self._histories[process], self._ended[process]
        self._facts.forget_before(keep_from_ns)
        self._trainers.forget_before(keep_from_ns)
        self._openings.forget_before(keep_from_ns)


def _tell(candidate: Candidate) -> None:
    """Close the traced streams of a candidate that was judged: what is seen of them later is another one."""
    for part in candidate.parts:
        if part.stream.trace is not None:
            part.stream.trace.told = True
