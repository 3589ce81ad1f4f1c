"""The sampler: a small process that reads the kernel at an adaptive rate and streams frames to the recorder.

It imports neither SQL nor web code, and never blocks on its output: frames that the recorder does not read in time are
dropped and counted. It ends when its standard input is closed.

At the level `trace` the kernel counts for it, by eBPF, what every thread does to every file; see `tracing`.
"""

from __future__ import annotations

import mmap
import os
import select
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import msgspec

from ckptprof import __version__
from ckptprof.recording import Header, pack
from ckptprof.service.sampler import tracing
from ckptprof.service.sampler.activity import ProcessActivity
from ckptprof.service.sampler.burst_sampling import BurstSampling
from ckptprof.service.sampler.flushing import WritebackQuestions
from ckptprof.service.sampler.governor import Governor, used_by
from ckptprof.service.sampler.outputqueue import OutputQueue
from ckptprof.service.sampler.population import Population
from ckptprof.service.sampler.sampler_health import HealthCounters
from ckptprof.service.sampler.socket_ownership import SocketOwnership
from ckptprof.service.sampler.watched_folders import WAKING_BYTES, WatchedFolders
from ckptprof.service.sampler.watched_process import WatchedProcess
from ckptprof.service.sampler_options import SamplerControl, SamplerOptions
from ckptprof_collectors import heap, privileges, registry
from ckptprof_collectors.abandoned import ABANDONED
from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.collector import Collector
from ckptprof_collectors.devices.memory import HostMemory
from ckptprof_collectors.files.file_facts import FactFinder, FactQuery
from ckptprof_collectors.files.process_roots import HOST_PROCESS, OWN_PROCESS
from ckptprof_collectors.files.workers import WORKERS
from ckptprof_collectors.kernelfs import KernelFs, read_text
from ckptprof_collectors.privileges import RAISED
from ckptprof_collectors.processes.open_files import NVIDIA_FS
from ckptprof_collectors.processes.process import ProcessGone, candidate_folders
from ckptprof_collectors.samples import FileEvent, FileFact, FileLifeEvent, Frame, Sample, SamplerHealth, Unavailable

_SECOND_NS = 1_000_000_000
_HOST_FAST_HZ = 5.0
_HOST_FAST_FOR_NS = 2 * _SECOND_NS  # devices are read fast for this long after a burst: writeback follows it
EVENT_PAUSE_NS = 2_000_000  # after events that need no action: many of them cannot keep the loop busy
TRACED_EVENT_PAUSE_NS = 20_000_000  # where the trace itself reports that files are opened and closed
MAX_FIND_PAUSE_NS = 2 * _SECOND_NS  # however many processes there are: a new job is found within this time
_FLUSH_NS = _SECOND_NS // 2
_RELEASE_NS = 60 * _SECOND_NS  # without it 8 of 13 MB of its heap were free after minutes of package installs
_SLACK_NS = 5_000_000  # a slightly early tick, after a late one, must not skip the readings due with it
MAX_REPORTED_HUNG = 32
_BLOCKING_READ = "reading them blocks in the kernel (an exec or a mapping on a file server that does not answer)"
_FINAL_ANSWER_NS = 2 * _SECOND_NS


class Sampler:
    """The loop: owns the collectors and the clock."""

    def __init__(
        self,
        options: SamplerOptions,
        fs: KernelFs,
        output: OutputQueue,
        control_fd: int,
        *,
        attach: tracing.TraceFactory = tracing.attach,
    ) -> None:
        """Make the collectors; those that cannot work here are reported once, in the first frame."""
        self._options = options
        self._output = output
        self._control_fd = control_fd
        self._control_buffer = b""
        self._poll = select.poll()
        self._poll.register(control_fd, select.POLLIN | select.POLLHUP)
        self._page_bytes = mmap.PAGESIZE
        self._folders = WatchedFolders()
        for events_fd in self._folders.filenos():
            self._poll.register(events_fd, select.POLLIN)
        own = frozenset((os.getpid(), *options.monitor_pids))
        # the watched processes are children of the recorder
        self._starts_command = options.only_descendants and not options.attaches
        family_of = options.monitor_pids if self._starts_command else ()  # only processes that it starts from now on
        self._family = tracing.TracedFamily()
        self._tracing = tracing.Tracing(
            options.level, lambda: attach(fs, family_of=family_of, ignore=tuple(sorted(own))), self._poll
        )
        self._population = Population(fs, own, -1 if options.only_descendants else None)
        self._facts = FactFinder(on_open=self._folders.ignore_own_open)
        self._flushing = WritebackQuestions()
        self._collectors, unavailable = registry.make_collectors(fs)
        self._connections = SocketOwnership(fs, self._collectors)
        self._bypasses_calls = (fs.proc / NVIDIA_FS).exists()
        self._memory = next((one for one in self._collectors if isinstance(one, HostMemory)), None)
        self._pending: list[Sample] = list(unavailable)
        self._samples: list[Sample] = []  # of the tick in progress
        self._trace_samples: Sequence[Sample] = ()  # of the trace, not reported yet
        if self._folders.reason is not None:
            self._pending.append(Unavailable("folders", self._folders.reason))
        self._counters = HealthCounters()
        earlier_ns = used_by(options.monitor_pids) - used_by(())  # the recorder may have run for days
        self.governor = Governor(options.cpu_budget, lambda: used_by(options.monitor_pids) - earlier_ns)
        self.on_budget: Callable[[bool], None] = lambda _: None  # called with whether the budget is kept, on a change
        self._burst_sampling = BurstSampling(fs, self.governor)
        self._skipped: Frame | None = None
        self._next_host_ns = self._next_find_ns = self._next_sweep_ns = self._next_health_ns = self._next_release_ns = 0
        self._last_burst_ns = self._next_flush_ns = self._watched_ns = self._due_ns = 0
        self._slowdown = 1.0
        self._reported_hung: set[str] = set()
        self.stopping = False

    def header(self) -> Header:
        """Return the header of the frames of this sampler process."""
        return Header(
            uid=self._options.uid,
            host=os.uname().nodename,
            boot_id=read_text(KernelFs().proc / "sys/kernel/random/boot_id") or "",
            kernel=os.uname().release,
            ckptprof=__version__,
            level="trace" if self._tracing.is_active else "poll",
            level_reason=self._tracing.reason,
            level_denied=self._tracing.denied,
            at_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
            ticks_per_second=os.sysconf("SC_CLK_TCK"),
            page_size=self._page_bytes,
            cores=os.cpu_count(),
            monitor_pids=(os.getpid(), *self._options.monitor_pids),
            note=self._options.note,
        )

    def health(self) -> SamplerHealth:
        """Return the costs and failures of the sampler's own work so far."""
        lost = self._folders.lost_events
        return self._counters.snapshot(self._output, self._population, self._burst_sampling, self.governor, lost)

    def drop_privileges(self) -> bool:
        """Give up privileges that only attaching needed; return whether they are gone. Call before any thread starts.

        The remaining ones are used in ticks and by workers only.
        """
        dropped = privileges.drop_tracing(self._tracing.check)
        RAISED.drop_effective()
        return dropped

    def run(self) -> None:
        """Tick until the control pipe is closed, then sample a last time and send everything."""
        self._output.put(pack(self.header()))
        self._due_ns = time.monotonic_ns()
        self.resume()

    @property
    def is_calm(self) -> bool:
        """No bytes are being transferred, nor were recently."""
        return time.monotonic_ns() - self._last_burst_ns > _HOST_FAST_FOR_NS

    def release_loop(self) -> None:
        """After a read of one process blocked the loop: keep the samples read before, and forget that process."""
        self._pending = [*self._samples, *self._reported_trace_samples(), *self._pending]
        self._samples = []
        self._population.drop_blocking()

    def resume(self) -> None:
        """Tick as `run` does, in a new thread: the blocked tick is late, and is reported as such."""
        while not self.stopping and not self._output.is_broken:
            now_ns = time.monotonic_ns()
            if self._counters.record_tick(now_ns - self._due_ns):
                self._next_health_ns = now_ns  # reported in the frame that ends the gap
            with RAISED:
                period_ns = self.tick(now_ns)
            # An event may have woken the loop early: many of them must not postpone the next sample
            self._due_ns = min(max(self._due_ns + period_ns, now_ns + period_ns // 4), now_ns + period_ns)
            self._wait(self._due_ns)
        with RAISED:
            self._finish()

    def tick(self, now_ns: int) -> int:
        """Read what is due and send it; return the nanoseconds until the next tick."""
        wall_ns = time.time_ns()
        samples, self._pending = self._pending, []
        self._samples = samples
        WORKERS.replace_hung()
        ABANDONED.remove_ended()
        BLOCKING_PROCESSES.reading = 0
        read = []
        if self._tracing.is_active:  # first: a process that is found to have ended needs its last trace samples
            self._read_trace(now_ns, wall_ns - now_ns, samples)
            read.append(tracing.NAME)
        if now_ns >= self._next_find_ns:
            self._find_processes(now_ns, wall_ns - now_ns, samples)
        samples.extend(self._folder_events())
        if self._folders.opened is not None:
            self._population.alert(now_ns, mappings=self._folders.opened)
        self._folders.is_woken, self._folders.opened = False, None
        if self._population.watched or self._burst_sampling.is_busy:
            self._sample_watched(now_ns, wall_ns - now_ns, samples)
            read.append("processes")
        awake = self._population.rounds.awake.values()
        urgent = [one.activity for one in awake if one.activity.is_urgent(now_ns) and one.is_followed(now_ns)]
        if urgent:
            self._last_burst_ns = now_ns
        self._keep_budget(now_ns, saves=bool(urgent))
        if now_ns >= self._next_host_ns:
            fast = now_ns - self._last_burst_ns < _HOST_FAST_FOR_NS and self.governor.allows("timelines")
            rate = min(_HOST_FAST_HZ, self._options.base_hz) if fast else self._options.idle_hz
            self._next_host_ns = now_ns + int(_SECOND_NS / rate) - _SLACK_NS
            samples.extend(self._connections.follow(now_ns, self._population.watched))
            read += [collector.name for collector in self._collectors if self._read_collector(collector, samples)]
        samples.extend(self._consume_facts(now_ns))
        if now_ns >= self._next_health_ns:
            self._next_health_ns = now_ns + 5 * _SECOND_NS
            samples.append(self.health())
            samples.extend(self._new_hung())
        self._send(Frame(now_ns, wall_ns, tuple(read), tuple(samples)))
        self._samples = []
        if now_ns >= self._next_release_ns:
            self._next_release_ns = now_ns + _RELEASE_NS
            heap.release_free()
        return self._period_ns(now_ns, urgent)

    def _keep_budget(self, now_ns: int, *, saves: bool) -> None:
        was_within = self.governor.is_within
        self.governor.update(now_ns, saves=saves)
        if not self.governor.is_within:
            for allowance in self._population.others.values():
                allowance.drain(now_ns, _SECOND_NS)
        if self.governor.is_within != was_within:
            self.on_budget(self.governor.is_within)
            self._next_health_ns = now_ns  # what is left out from now on is of what comes next

    def _new_hung(self) -> list[Unavailable]:
        """File systems that do not answer, each once: files there are not observed."""
        now = {f"files on {domain or 'this host'}": "no answer for 1.5 s" for domain in WORKERS.hung_domains()}
        now.update((f"processes of user {user}", _BLOCKING_READ) for user in BLOCKING_PROCESSES.affected_users())
        fresh = [name for name in now if name not in self._reported_hung][
            : MAX_REPORTED_HUNG - len(self._reported_hung)
        ]
        self._reported_hung.update(fresh)
        return [Unavailable(name, now[name]) for name in fresh]

    def _period_ns(self, now_ns: int, urgent: Collection[ProcessActivity]) -> int:
        options = self._options
        is_complete, idle_hz = self._tracing.is_complete(now_ns), max(options.idle_hz, 2.0)
        if urgent and self.governor.allows("fast sampling"):
            counted = is_complete and not any(activity.has_mappings for activity in urgent)
            rate = options.burst_hz * (tracing.BURST_RATE_SHARE if counted else 1.0)
        elif self._population.watched:
            rate = options.base_hz * (tracing.RATE_SHARE if self._tracing.is_active else 1.0)
            if is_complete and not self._population.rounds.awake:
                rate = min(rate, idle_hz)
        else:
            rate = idle_hz
        if now_ns >= self._next_flush_ns:  # in a burst too: each flush wakes the recorder
            self._output.flush()
            self._next_flush_ns = now_ns + _FLUSH_NS
            self._slowdown = self._output.slowdown
        return int(_SECOND_NS / rate * max(self._slowdown, self.governor.slowdown))

    def _read_trace(self, now_ns: int, offset_ns: int, samples: list[Sample], *, last: bool = False) -> bool:
        started, used_ns = time.perf_counter_ns(), time.thread_time_ns()
        self._trace_samples = self._tracing.read(now_ns, previous=last)
        if self._options.attaches:
            self._trace_samples = self._family.filter_members(self._trace_samples, self._population.known)
        tracing.update_senders(self._trace_samples, self._population, now_ns)
        for question in tracing.update_watched(self._trace_samples, self._population, now_ns, offset_ns):
            self._request(question)
        if not self._tracing.is_active:  # it failed: files closed since then are unknown
            for watching in self._population.watched.values():
                watching.traced.forget_open_files()
        traced = self._trace_samples
        self._connections.record_files(traced, now_ns)
        reported = self._reported_trace_samples()
        samples.extend(reported)
        self._population.charge_others(traced, time.thread_time_ns() - used_ns)
        self._counters.set_failures(tracing.NAME, self._tracing.faults)
        self._counters.add_cost(tracing.NAME, time.perf_counter_ns() - started)
        return any(isinstance(sample, FileLifeEvent) and sample.kind == "mapped" for sample in reported)

    def _reported_trace_samples(self) -> list[Sample]:
        """Return the samples of the trace to report, each once."""
        samples, self._trace_samples = self._trace_samples, ()
        if self._options.attaches:
            self._tracing.select_processes(self._population.watched, 0)
        return self._tracing.filter_reported(
            samples, None if self._options.only_descendants else self._population.watched
        )

    def _find_processes(self, now_ns: int, offset_ns: int, samples: list[Sample]) -> None:
        started, used = time.perf_counter_ns(), time.thread_time_ns()
        complete, sweeps = self._tracing.is_complete(now_ns), now_ns >= self._next_sweep_ns
        try:
            gone = self._population.find(now_ns, samples, may_wait=complete or not sweeps)
        except OSError as error:  # no descriptor left, or no memory in the kernel: usually for a moment
            samples.extend(self._counters.record_failure("processes", error))
            gone = []
        for watching in gone:
            self._ask_last(watching, now_ns, offset_ns)
        if sweeps:
            trifles = self._tracing.small_reads()  # also while not used: the call clears them for the next sweep
            self._population.sweep(now_ns, samples, trifles if complete else None)
            self._next_sweep_ns = now_ns + _SECOND_NS
        cost_ns = time.perf_counter_ns() - started
        usual_ns = _SECOND_NS // 5 if self._options.only_descendants else _SECOND_NS // 2
        # Never more than 0.5 % of a core; by CPU time, since the clock also runs while other threads have the core
        pause_ns = max(usual_ns, min(200 * (time.thread_time_ns() - used), MAX_FIND_PAUSE_NS))
        self._next_find_ns = now_ns + pause_ns
        self._counters.add_cost("population", cost_ns)

    def _sample_watched(self, now_ns: int, offset_ns: int, samples: list[Sample]) -> None:
        started = time.perf_counter_ns()
        traced = self._tracing.is_active
        previous_ns, self._watched_ns = self._watched_ns, now_ns
        pause_ns = _SECOND_NS - _SLACK_NS if self._tracing.is_complete(now_ns) else 0  # it wakes the idle ones itself
        for watching in self._population.rounds.due(now_ns, self._population.watched, pause_ns):
            BLOCKING_PROCESSES.reading = watching.process.pid
            try:
                watching.sample_counters(now_ns, self._page_bytes, samples, previous_ns=previous_ns)
                self._population.rounds.describe(watching, now_ns, samples)
                watching.sample_training_thread(samples)
                if watching.is_training and not watching.places_known:
                    watching.places_known = True
                    for place in candidate_folders(watching.process):
                        self._folders.watch_place(place, watching.view)
                if traced or watching.traced.transferred_bytes:
                    watching.apply_traced()
                if watching.is_followed(now_ns):
                    hides = self._bypasses_calls and watching.is_training
                    watching.scan_if_due(now_ns, samples, traced=traced and not hides)
                while watching.new_files:
                    self._folders.watch_checkpoint(watching.new_files.pop(), watching.view)
                question = watching.question_if_due(now_ns, offset_ns, self._tracing.is_complete_since)
            except ProcessGone:
                self._population.forget(watching.process.pid, samples)
                self._ask_last(watching, now_ns, offset_ns)
                continue
            except OSError as error:
                samples.extend(self._counters.record_failure("processes", error))
                continue
            self._request(question)
        BLOCKING_PROCESSES.reading = 0
        self._counters.add_cost("processes", time.perf_counter_ns() - started)
        started = time.perf_counter_ns()
        awake = self._population.rounds.awake.values()
        bursting = [one for one in awake if one.activity.is_in_burst() and one.is_followed(now_ns)]
        samples.extend(self._burst_sampling.sample(now_ns, bursting, self._population.watched, traced=traced))
        BLOCKING_PROCESSES.reading = 0
        self._counters.add_cost("looks", time.perf_counter_ns() - started)

    def _request(self, question: FactQuery | None) -> None:
        if question is None:
            return
        if (question.folders or question.unshared_folders) and not self.governor.allows("folders"):
            question = replace(question, folders=(), unshared_folders=())
        self._facts.request(question)

    def _ask_last(self, watching: WatchedProcess, now_ns: int, offset_ns: int) -> None:
        self._request(watching.last_question(now_ns, offset_ns, self._tracing.is_complete_since))

    def _read_collector(self, collector: Collector, samples: list[Sample]) -> bool:
        started = time.perf_counter_ns()
        try:
            read_samples = collector.read()
            if read_samples is None:
                return False
            samples.extend(read_samples)
            self._counters.record_success(collector.name)
        except Exception as error:  # noqa: BLE001 - the one place that survives the failure of any collector
            samples.extend(self._counters.record_failure(collector.name, error))
            return False
        finally:
            self._counters.add_cost(collector.name, time.perf_counter_ns() - started)
        return True

    def _consume_facts(self, now_ns: int) -> list[FileFact]:
        facts = self._facts.consume()
        for fact in facts:
            watching = self._population.watched.get(fact.pid)
            if watching is None or watching.is_followed(now_ns):
                self._flushing.ingest(now_ns, fact)
            if watching is not None and not fact.is_missing and not fact.is_directory:
                watching.learn_folder(os.path.dirname(os.fsencode(fact.path)))
                if fact.size >= WAKING_BYTES:
                    self._folders.watch_checkpoint(os.fsencode(fact.path), watching.view)
        written_bytes = None if self._memory is None else self._memory.written_bytes
        for question in self._flushing.questions(now_ns, self._facts.cost.unwritten_ns, written_bytes):
            self._request(question)
        self._counters.set_failures("facts", self._facts.refused)
        return facts

    def _send(self, frame: Frame) -> None:
        """Queue a frame; of a run of empty ones only the last that read anything, just before the next that is not."""
        if not frame.samples:
            self._skipped = frame if frame.read else self._skipped
            return
        lost = self._output.dropped_count
        if self._skipped is not None:
            self._output.put(pack(self._skipped))
            self._skipped = None
        self._output.put(pack(frame))
        if self._output.dropped_count > lost:
            self._next_health_ns = frame.at_ns  # reported by the next frame

    def _wait(self, due_ns: int) -> None:
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            ready = {fd for fd, _ in self._poll.poll(left_ns / 1e6)}
            if self._control_fd in ready:
                with RAISED:
                    self._read_control()
                return
            if ready:
                now_ns = time.monotonic_ns()
                fast = self.governor.allows("fast sampling")
                with RAISED:
                    if self._tracing.fileno() in ready:  # a full ring buffer must not wait for the tick
                        mapped = self._read_trace(now_ns, time.time_ns() - now_ns, self._pending)
                        if mapped and fast:
                            due_ns = min(due_ns, now_ns + int(_SECOND_NS / self._options.burst_hz))
                    self._pending.extend(self._folder_events())
                complete, woken = self._tracing.is_complete(now_ns), self._folders.is_woken
                pause_ns = TRACED_EVENT_PAUSE_NS if complete else EVENT_PAUSE_NS
                if not fast:  # a complete trace shows at the tick what events would
                    pause_ns = _SECOND_NS if complete else int(_SECOND_NS / self._options.base_hz)
                if not (woken and fast):
                    self._pause(min(pause_ns, due_ns - now_ns))
                if woken and (fast or not complete):
                    return

    def _pause(self, calm_ns: int) -> None:
        """Let folder events wait for a while; commands and the trace end the pause, but not before EVENT_PAUSE_NS."""
        until_ns, urgent = time.monotonic_ns() + min(EVENT_PAUSE_NS, calm_ns), select.poll()
        for fd in (self._control_fd, self._tracing.fileno()):
            if fd >= 0:
                urgent.register(fd, select.POLLIN)
        urgent.poll(max(0, calm_ns) / 1e6)
        time.sleep(max(0, until_ns - time.monotonic_ns()) / 1e9)

    def _folder_events(self) -> list[FileEvent]:
        """Events of the watched folders; the writer of a file renamed into one learns the new name."""
        events = self._folders.consume()
        for event in events:
            for watching in self._population.watched.values() if event.kind == "renamed" else ():
                watching.learn_name((event.device, event.inode), os.fsencode(event.path), event.at_ns)
        return events

    def _read_control(self) -> None:
        """Apply the recorder's commands; EOF of the pipe stops the loop."""
        data = os.read(self._control_fd, 1 << 16)
        if not data:
            self.stopping = True
            return
        *lines, self._control_buffer = (self._control_buffer + data).split(b"\n")
        for line in lines:
            control = msgspec.json.decode(line, type=SamplerControl)
            if control.root_pid is not None:
                self._population.root_pid = control.root_pid
                self._population.subreaper_pid = control.subreaper_pid
                self._next_find_ns = 0
            view = OWN_PROCESS if self._starts_command else HOST_PROCESS
            self._folders.watch_tree((os.fsencode(folder) for folder in control.folders), view)

    def _finish(self) -> None:
        now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        samples: list[Sample] = self._pending
        names: tuple[str, ...] = ()
        traced = self._tracing.is_active
        if traced:
            self._read_trace(now_ns, wall_ns - now_ns, samples, last=True)
            names = (tracing.NAME,)
        samples.extend(self._burst_sampling.sample_last(now_ns))
        for watching in list(self._population.watched.values()):
            BLOCKING_PROCESSES.reading = watching.process.pid
            try:
                watching.sample_last(now_ns, self._page_bytes, samples)
                question = watching.question_if_due(
                    now_ns, wall_ns - now_ns, self._tracing.is_complete_since, force=True
                )
            except (ProcessGone, OSError) as error:
                if isinstance(error, ProcessGone):  # a save is truncated, not short, if its writer ended
                    self._population.forget(watching.process.pid, samples)
                question = watching.last_question(now_ns, wall_ns - now_ns, self._tracing.is_complete_since)
            self._request(question)
        BLOCKING_PROCESSES.reading = 0
        names += tuple(collector.name for collector in self._collectors if self._read_collector(collector, samples))
        self._send(Frame(now_ns, wall_ns, ("processes", *names), tuple(samples)))
        deadline_ns, last = now_ns + _FINAL_ANSWER_NS, list[Sample]()
        while self._facts.waiting and time.monotonic_ns() < deadline_ns:
            time.sleep(0.005)
            last.extend([*self._facts.consume(), *self._folders.consume()])
        last.append(self.health())
        self._send(Frame(time.monotonic_ns(), time.time_ns(), (), tuple(last)))
        self._output.flush_all(_FINAL_ANSWER_NS)
        self._facts.close()
        self._burst_sampling.close()
        self._tracing.close()
        self._folders.close()
        self._population.close()
        for collector in self._collectors:
            collector.close()
