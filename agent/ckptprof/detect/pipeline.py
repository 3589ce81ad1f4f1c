"""From frames to checkpoints: a pure function of the samples, the same live and on replay."""

from __future__ import annotations

import itertools
from collections import deque

from ckptprof.detect.describe.checkpoint import Scene
from ckptprof.detect.describe.completeness import Fate
from ckptprof.detect.describe.revisions import Revisions
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.evidence import Context
from ckptprof.detect.events.gathering import QUIET_NS, Gatherer, is_endless, is_too_much, settled
from ckptprof.detect.events.past_events import PastEvents
from ckptprof.detect.recognition import Recogniser, Rejected
from ckptprof.detect.transfers.edges import SLACK_NS
from ckptprof.detect.transfers.file_facts import FileFacts
from ckptprof.detect.transfers.openings import Openings
from ckptprof.detect.transfers.parts import Parts
from ckptprof.detect.transfers.recent import RecentTransfers
from ckptprof.detect.transfers.reconcile import unexplained
from ckptprof.detect.transfers.streams import PolledStreams, Stream
from ckptprof.detect.transfers.traced_streams import TracedStreams
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.devices import Devices
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.host_counters import HostCounters
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory
from ckptprof.detect.world.trace_health import TraceHealthHistory
from ckptprof.detect.world.training_threads import TrainingThreads
from ckptprof.model import Checkpoint, Level
from ckptprof.recording import Header
from ckptprof_collectors.samples import Frame, ProcessIo, ProcessStat

_EVALUATE_NS = 500_000_000
_CROWD = 2000  # so many streams that wait are looked at less often, by one turn for each
_MAX_CROWDS = 9
_KEEP_NS = 120_000_000_000  # of counters, while nothing older is waiting
_BEFORE_NS = 10_000_000_000  # before the first sign of a file that is kept in mind
_FORGET_NS = 5_000_000_000  # what is old is looked for so often
_CLOSING_NS = 1_000_000_000  # who was met in close(2) so lately may still be in it
_LONGEST_CLOSING_NS = 900_000_000_000  # a server that hangs holds no judgement up for longer
_MAX_HISTORIES = 4096  # more than a sampler watches at once
_MAX_INTERVALS = 40_000  # of all of them, 330 bytes each: of more only the last two minutes are kept


class Detector:
    """Feed it frames in order; it returns checkpoints once they are over, and again when more is known of them."""

    def __init__(self, header: Header, *, saved_paths: tuple[str, ...] = ()) -> None:
        """Begin a recording; `saved_paths` are files and folders that were saved before it."""
        self._header = header
        self._is_traced = header.level == Level.TRACE.value
        self._clock = Clock()
        self._clock.set(header.at_ns, header.wall_ns)
        self._jobs = Jobs(header.monitor_pids)
        self._histories: dict[ProcessKey, ProcessHistory] = {}
        self._ended: dict[ProcessKey, int] = {}
        self._openings = Openings()
        self._streams = PolledStreams(self._returned_since, self._openings.opened_between)
        self._facts = FileFacts(self._kin, self._saves_itself, lambda process: self._scene.around.trains([process]))
        self._devices = Devices()
        self._memory = PastEvents(saved_paths)
        self._traced = TracedStreams()
        self._health = TraceHealthHistory()
        self._trainers = TrainingThreads()
        self._books = HostCounters(header.ticks_per_second)
        self._moves = RecentTransfers(self._streams)
        around = Context(
            self._jobs,
            self._histories,
            self._memory,
            self._traced,
            self._trainers,
            self._books.threads,
            self._moves,
            self._devices,
            self._ended,
        )
        self._aftermath = Revisions(self._jobs, self._traced, self._clock, self._books)
        fate = Fate(self._jobs, self._ended, self._aftermath.removals, self._is_written, self._is_changed)
        self._scene = Scene(
            header, around, self._devices, self._clock, self._health, self._aftermath, fate, self._books
        )
        self._waiting: list[Stream] = []
        parts = Parts(self._histories, self._clock, self._openings, self._traced, self._books.threads.met_until)
        self._gatherer = Gatherer(self._jobs, parts, self._traced)
        self._recogniser = Recogniser(self._scene)
        self._previous_tick_ns = header.at_ns
        self._previous_frame_ns = header.at_ns
        self._evaluated_ns = 0
        self._forgotten_ns = 0

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
        """Take one frame; return the checkpoints that are over with it, and revisions of earlier ones."""
        self._clock.set(frame.at_ns, frame.wall_ns)
        tick = FrameSamples()
        for sample in frame.samples:
            if not tick.sort(sample):
                self._devices.observe(frame.at_ns, sample)
                self._books.observe(frame.at_ns, sample)
        self._books.take(frame, tick)
        self._take(tick, frame.at_ns, counted="processes" in frame.read)
        crowded = 0 if self._facts.is_pressing else min(len(self._waiting) // _CROWD, _MAX_CROWDS)
        if frame.at_ns - self._evaluated_ns < _EVALUATE_NS * (1 + crowded):
            return []
        return self._aftermath.follow(self._evaluate(frame.at_ns), frame.at_ns)

    def _trace(self, tick: FrameSamples, at_ns: int) -> None:
        for activity in tick.activities:
            self._jobs.hear((activity.pid, activity.start_ticks), activity.comm, activity.parent_pid)
            self._traced.learn(activity, self._previous_frame_ns)
        for event in tick.lives:
            self._traced.happen(event)
            self._aftermath.happen(event)
            self._books.calls.happen(event)
            if event.kind == "unlinked" and event.path is not None:
                self._memory.vanished(event.path, self._jobs.job_of((event.pid, event.start_ticks)))
        for health in tick.healths:
            self._health.learn(at_ns, health)

    def _take(self, tick: FrameSamples, at_ns: int, *, counted: bool) -> None:
        for info in tick.infos:
            self._jobs.learn(info)
        for gone in tick.exits:
            self._bequeath((gone.pid, gone.start_ticks), at_ns)
        if counted:
            for process in tick.ios.keys() | tick.stats.keys():
                self._count(process, at_ns, tick.ios.get(process), tick.stats.get(process))
            self._previous_tick_ns = at_ns
        for event in tick.events:
            self._openings.learn(event)
        for scan in tick.scans:
            self._streams.scan(at_ns, scan)
        self._trace(tick, at_ns)
        self._previous_frame_ns = at_ns
        for gone in tick.exits:
            self._end((gone.pid, gone.start_ticks), at_ns)
        self._learn(tick, at_ns)

    def _learn(self, tick: FrameSamples, at_ns: int) -> None:
        for fact in tick.facts:
            self._aftermath.learn(at_ns, fact)
            self._facts.learn(at_ns, fact)
            if fact.missing:
                self._memory.vanished(fact.path)
        self._trainers.see(at_ns)
        for stat in tick.stats.values():
            self._trainers.learn_stat(at_ns, stat)
        for gone in tick.exits:
            self._trainers.end((gone.pid, gone.start_ticks), at_ns)
        for life in tick.lives:
            self._trainers.learn_life(life)
        for time in tick.times:
            self._trainers.learn_time(at_ns, time)
        for stacks in tick.stacks:
            self._trainers.learn_stacks(stacks)
        for use in tick.gpus:
            self._trainers.learn_gpu(use)

    def finish(self) -> list[Checkpoint]:
        """Judge what is left: the recording is over."""
        now_ns = self._previous_tick_ns
        self._streams.close_idle(now_ns + 1, 0)
        self._traced.take_idle()
        return self._aftermath.finish(self._evaluate(now_ns + 1_000_000_000_000))

    def _is_written(self, job: str, path: str) -> bool:
        """Return whether a job was seen writing a file of late, or somebody, as far as the file system tells."""
        if self._facts.knows(path):
            return True
        own = (process for process in self._histories if self._jobs.job_of(process) == job)
        streams = (stream for process in own for stream in self._traced.moved_by(process))
        return any(stream.writes and stream.path == path for stream in streams)

    def _is_changed(self, path: str, since_ns: int) -> bool:
        """Return whether the file system said of a file that it was written at that time or later."""
        changed_ns = self._facts.modified_ns(path)
        return changed_ns is not None and self._clock.mono(changed_ns) >= since_ns - SLACK_NS

    def _count(self, process: ProcessKey, at_ns: int, io: ProcessIo | None, stat: ProcessStat | None) -> None:
        history = self._histories.get(process)
        if history is None:
            if len(self._histories) >= _MAX_HISTORIES:
                self._drop_stalest(at_ns)
            history = self._histories[process] = ProcessHistory.empty()
        history.observe(at_ns, self._previous_tick_ns, io, stat, self._header.ticks_per_second)

    def _returned_since(self, process: ProcessKey, since_ns: int) -> int:
        """Return the bytes that the read calls of a process returned from a time on, as far as they were counted."""
        history = self._histories.get(process)
        return history.returned_bytes(since_ns, history.last_ns + 1) if history is not None else 0

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
        over = self._streams.take_done()
        self._waiting.extend(over)
        self._moves.note(over)
        polled_open = self._fuse(now_ns)
        self._facts.now_ns = now_ns
        met = {id(stream) for stream in self._waiting}
        self._waiting = self._facts.attach(self._waiting, polled_open, self._histories, self._clock, self._traced)
        self._moves.note([stream for stream in self._waiting if id(stream) not in met])  # found in their folders
        if not self._is_traced:  # the trace told of every reading, and by whom
            known = [*self._waiting, *polled_open]
            found = self._openings.unexplained(now_ns, known, self._histories, self._scene.around.may_restore)
            self._waiting += found
            self._moves.note(found)
        done: list[Checkpoint] = []
        if self._waiting:
            done = self._judge(now_ns, polled_open)
        done += self._recogniser.settle(now_ns)
        self._forget(now_ns)
        return done

    def _kin(self, process: ProcessKey) -> list[ProcessKey]:
        """Return the processes of a job that were met, its tools left out."""
        job = self._jobs.job_of(process)
        same = (other for other in self._histories if self._jobs.job_of(other) == job)
        return [other for other in same if not self._jobs.is_tool(other)]

    def _saves_itself(self, process: ProcessKey) -> bool:
        """Return whether it has a library for it or trains, and did not start the ranks that do."""
        return self._scene.around.may_save(process) and not self._jobs.starts_ranks(process)

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
        waiting = self._gatherer.await_sizes(self._waiting, now_ns)
        done: list[Checkpoint] = []
        for candidate in self._gatherer.gather(self._waiting, polled_open):
            if is_endless(candidate):
                self._recogniser.dismiss(settled(candidate))
                _tell(candidate)
                continue
            over = is_too_much(candidate) or self._gatherer.is_over(candidate, now_ns, self._ended)
            if not over or self._is_closing(candidate, now_ns):
                waiting.extend(candidate.streams())
                continue
            whole = settled(candidate)
            if whole.parts:
                done.extend(self._recogniser.judge(whole))
            _tell(candidate)
        self._waiting = waiting
        return sorted(done, key=lambda checkpoint: checkpoint.start_ns)

    def _is_closing(self, candidate: Candidate, now_ns: int) -> bool:
        """Return whether the close(2) that ends it still sends it to its server, or a sync still waits for it."""
        if not candidate.writes or now_ns - candidate.end_ns > _LONGEST_CLOSING_NS:
            return False
        since_ns = now_ns - _CLOSING_NS
        ends = itertools.product(candidate.processes, ("close", "sync"))
        return any(self._books.threads.is_in(process, word, since_ns) for process, word in ends)

    def _forget(self, now_ns: int) -> None:
        oldest_ns = min((stream.first_ns for stream in self._waiting), default=now_ns)
        keep_from_ns = min(now_ns - _KEEP_NS, oldest_ns - _BEFORE_NS)
        if now_ns - self._forgotten_ns < _FORGET_NS:
            return
        self._forgotten_ns = now_ns
        self._traced.forget_before(keep_from_ns)
        gone = [process for process, ended_ns in self._ended.items() if ended_ns < keep_from_ns]
        for process in gone:
            del self._ended[process]
            self._histories.pop(process, None)
        opened_ns = self._forget_intervals(keep_from_ns)
        self._jobs.forget(gone)
        self._facts.forget_before(keep_from_ns)
        self._moves.forget_before(keep_from_ns)
        self._trainers.forget_before(keep_from_ns)
        self._books.forget_before(keep_from_ns)
        self._openings.forget_before(min(keep_from_ns, opened_ns))

    def _forget_intervals(self, keep_from_ns: int) -> int:
        """Drop old intervals, but of a process with a file open since then; return from when on those are kept.

        A log or a data set is open for days: if many such hold too much, theirs go, too.
        """
        since_ns: dict[ProcessKey, int] = {}
        for stream in self._streams.open_streams():
            known_ns = since_ns.get(stream.process, keep_from_ns)
            since_ns[stream.process] = min(known_ns, stream.first_ns - _BEFORE_NS)
        if sum(len(history.intervals) for history in self._histories.values()) > _MAX_INTERVALS:
            since_ns = {}
        for process, history in self._histories.items():
            history.forget_before(since_ns.get(process, keep_from_ns))
        return min(since_ns.values(), default=keep_from_ns)


def _tell(candidate: Candidate) -> None:
    """Close the traced streams of a candidate that was judged: what is seen of them later is another one."""
    for stream in candidate.streams():
        if stream.trace is not None:
            stream.trace.tell()
