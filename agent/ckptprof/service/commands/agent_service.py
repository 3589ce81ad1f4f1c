"""`ckptprof agent`: records the whole host until a signal; restarts a lost sampler, and reports that."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import TYPE_CHECKING

import msgspec

from ckptprof.errors import CkptprofError
from ckptprof.export.http import MetricsServer
from ckptprof.export.listening import DEFAULT_PORT, Tls, guarded
from ckptprof.recording import Frame, Header
from ckptprof.service.commands import levels
from ckptprof.service.commands.systemd import Notifier, WatchdogFeeder
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_of_database, gpu_counter
from ckptprof.service.recorder.loop import Loop, SamplerLostError
from ckptprof.service.recorder.pending import load_pending
from ckptprof.service.recorder.recorder import Recorder, deadline_in
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof.service.recorder.signals import SignalTrap
from ckptprof.service.recorder.storing import MAX_FOLDERS, open_writer, truncated_saves
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.service.sampler_options import RequestedLevel, SamplerControl, SamplerOptions
from ckptprof.service.title import set_title
from ckptprof_collectors import heap
from ckptprof_collectors.privileges import RAISED, forbid_ptrace

if TYPE_CHECKING:
    from ckptprof.export.metrics import Metrics
    from ckptprof.export.textfile import Textfile
    from ckptprof.export.wsgi_pages import Pages

DRAIN_SECONDS = 2.0  # for the last frames
FINISH_SECONDS = 3.0  # to process them: the next start reports the rest
STOP_SECONDS = 4.0  # after a signal: then the process exits, and the next start continues from the stored state
STORE_SECONDS = 1.0  # to store the queue then
MAX_STUCK = 3  # samplers that do not exit when killed: then no other is started
STEADY_SECONDS = 600.0  # a sampler that ran this long was fine: the next one starts without a backoff
_BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_GC_THRESHOLD = 10_000  # net new objects: a save of thousands of files makes as many in a second, all in use


@dataclass(frozen=True)
class AgentOptions:
    """Sampling, storage and endpoints of the agent."""

    db: str | Path
    host: str = "127.0.0.1"
    port: int | None = None  # None: the default port; if it is in use, a warning and no metrics
    serve: bool = True
    job_names: bool = False  # in the metrics
    minimal: bool = False  # the fewest metrics
    base_hz: float = 10.0
    burst_hz: float = 25.0
    cpu_budget: float | None = 0.05  # share of one core; None: no limit
    level: RequestedLevel = "auto"
    tls_cert: Path | None = None  # None, as the next two: metrics on loopback only, in the clear
    tls_key: Path | None = None
    client_ca: Path | None = None
    textfile: Path | None = None  # the folder of node_exporter's textfile collector
    timeline_days: int = 30
    max_bytes: int = 1 << 30


class Agent:
    """The service: starts sampler and recorder, serves metrics, ends in order."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._notifier = Notifier()
        self._pulse = WatchdogFeeder(self._notifier, messages.warn)
        self._warned: set[str] = set()
        self._restarts = 0
        self._stuck_samplers: list[SamplerProcess] = []  # killed, but not ended: they hang in a system call
        self._failures = 0  # in a row
        self._sampler_started = 0.0
        self._ready = False
        self._saved_paths: tuple[str, ...] = ()
        self._url: str | None = None
        self._header: Header | None = None  # of the current sampler
        self._writer: WriterThread | None = None
        self._is_watching = False
        self._has_finished = threading.Event()  # everything is stored and closed

    def run(self) -> bool:
        """Record until a signal; return whether everything was stored. Raises CkptprofError at the start."""
        set_title("recorder")
        heap.limit_heap()
        forbid_ptrace()
        # before the first thread; the sampler and its successors still inherit what they need
        RAISED.drop_effective()
        tls = self._tls()
        trap = SignalTrap({SIGTERM, SIGINT, SIGHUP}, self._on_signal)  # blocked from here on, until `close`
        sampler = self._start_sampler()  # before anything slow is imported or opened
        writer: WriterThread | None = None
        server: MetricsServer | None = None
        textfile: Textfile | None = None
        try:
            writer, self._saved_paths = open_writer(
                self._options.db, retries=self._notifier.is_active, retention=self._retention()
            )
            self._writer = writer
            sampler.control(SamplerControl(folders=self._saved_paths[:MAX_FOLDERS]))
            from ckptprof.export.metrics import Metrics  # noqa: PLC0415 - prometheus_client takes 50 ms to import
            from ckptprof.export.wsgi_pages import Pages  # noqa: PLC0415 - likewise

            metrics = Metrics(job_names=self._options.job_names, minimal=self._options.minimal)
            recorder = self._recorder(writer, metrics)
            pages = Pages(
                metrics,
                status=lambda: self._status(metrics, recorder),
                health=lambda: recorder.health,
                in_clear=tls is None,
            )
            server = self._serve(pages, tls)
            textfile = self._textfile(pages)
            self._url = server.url if server is not None else None
            reduce_garbage_collection()
            self._watch(sampler, recorder, trap)
        finally:
            self._pulse.stop()
            sampler.kill()  # it has ended by now, unless something failed
            stored = writer is None or self._store(writer, trap)
            sampler.wait(2.0)
            for serving in (textfile, server):
                if serving is not None:
                    serving.close()
            trap.close()
            self._has_finished.set()
        return stored

    def _recorder(self, writer: WriterThread, metrics: Metrics) -> Recorder:
        return Recorder(
            writer,
            metrics,
            saved_paths=self._saved_paths,
            truncated=truncated_saves(self._options.db, time.time_ns()),
            pending=load_pending(self._options.db),
            report=lambda checkpoint: messages.info(messages.summary_line(checkpoint)),
            complain=self._warn_once,
            diagnosis=Diagnosis(self._warn_once, ceilings=ceilings_of_database(self._options.db), gpus=gpu_counter()),
        )

    def _store(self, writer: WriterThread, trap: SignalTrap) -> bool:
        self._notifier.stopping("storing the remaining data")
        stored = writer.close(STOP_SECONDS + STORE_SECONDS, hurried=lambda: bool(trap.pop_all()))
        if not stored:
            messages.warn("not everything could be stored before the exit")
        return stored

    def _start_sampler(self) -> SamplerProcess:
        options = self._options
        self._sampler_started = time.monotonic()
        with RAISED:  # its program may be in a folder that needs capabilities
            return SamplerProcess(
                SamplerOptions(
                    uid=new_uid(),
                    # Once it has worked, polling is better than nothing
                    level="auto" if self._header is not None and options.level == "trace" else options.level,
                    base_hz=options.base_hz,
                    burst_hz=options.burst_hz,
                    cpu_budget=options.cpu_budget,
                    monitor_pids=(os.getpid(),),
                )
            )

    def _retention(self) -> dict[str, int]:
        return {"timeline_days": self._options.timeline_days, "max_bytes": self._options.max_bytes}

    def _tls(self) -> Tls | None:
        options = self._options
        if not options.serve:
            return None
        tls = guarded(options.host, options.tls_cert, options.tls_key, options.client_ca)
        if tls is not None:
            tls.context()
        return tls

    def _serve(self, pages: Pages, tls: Tls | None) -> MetricsServer | None:
        options = self._options
        if not options.serve:
            return None
        port = DEFAULT_PORT if options.port is None else options.port
        server = MetricsServer(pages, host=options.host, port=port, tls=tls, complain=messages.warn)
        try:
            server.start()
        except CkptprofError as error:
            if options.port is not None:
                raise
            messages.warn(f"no metrics are served: {error}")
            return None
        return server

    def _textfile(self, pages: Pages) -> Textfile | None:
        if self._options.textfile is None:
            return None
        from ckptprof.export.textfile import Textfile  # noqa: PLC0415 - prometheus_client takes 50 ms to import

        textfile = Textfile(self._options.textfile, pages, messages.warn)
        textfile.start()
        return textfile

    def _status(self, metrics: Metrics, recorder: Recorder) -> bytes:
        """Return the document of /status as JSON; empty until the header of the sampler."""
        header = self._header
        if header is None:
            return b"{}"
        return msgspec.json.encode(
            levels.agent_status(
                header, self._options.level, metrics.coverage(), pid=os.getpid(), health=recorder.health
            )
        )

    def _report_level(self, header: Header) -> None:
        """Report level, database and metrics once, and each later change of level; raises CkptprofError."""
        options = self._options
        known, self._header = self._header, header
        if known is None:
            if (refused := levels.level_error(options.level, header)) is not None:
                raise refused
            level, *reasons = levels.describe(header)
            where = [f"metrics on {self._url}"] if self._url is not None else []
            for line in (f"watching this host at {level}", *reasons, f"storing in {options.db}", *where):
                messages.info(line)
        elif known.level != header.level:
            level, *reasons = levels.describe(header)
            for line in (f"now watching at {level}", *reasons):
                messages.warn(line)

    def _watch(self, sampler: SamplerProcess, recorder: Recorder, trap: SignalTrap) -> None:
        """Run until a signal."""

        def take(message: Header | Frame) -> None:
            if isinstance(message, Header):
                self._report_level(message)
            recorder.ingest(message)
            self._pulse.step()  # after each, so that a backlog is not one long step

        loop = Loop(sampler, trap, take)
        self._is_watching = True
        while True:
            lost = ""
            caught = []
            try:
                caught = loop.poll()
                lost = "the sampler ended" if loop.has_ended else ""
            except SamplerLostError as error:
                lost = str(error)
            if caught:
                break
            self._pulse.step()
            if lost:
                recorder.end(clean=False)
                replacement = self._replace_sampler(loop, lost, trap, recorder)
                if replacement is None:
                    return
                replacement.control(SamplerControl(folders=self._saved_paths[:MAX_FOLDERS]))
                loop = Loop(replacement, trap, take)
            if loop.housekeeping_due():
                self._housekeeping(recorder)
        is_late = deadline_in(FINISH_SECONDS)
        clean = loop.drain(DRAIN_SECONDS)
        recorder.end(clean=clean, hurried=lambda: recorder.is_behind or loop.is_hurried or is_late())

    def _on_signal(self) -> None:
        """Start the exit timer at the first signal, in a thread of its own."""
        if self._is_watching:
            self._is_watching = False
            threading.Thread(target=self._exit_if_stuck, name="end", daemon=True).start()

    def _exit_if_stuck(self) -> None:
        """Exit if analysing, storing or closing takes too long: what is open waits in the database."""
        if self._has_finished.wait(STOP_SECONDS):
            return
        messages.warn("exit before the end of the analysis: the next start continues from what was stored last")
        stored = self._writer is None or self._writer.close(STORE_SECONDS)
        os._exit(0 if stored else 1)

    def _housekeeping(self, recorder: Recorder) -> None:
        self._update_counts(recorder)
        if recorder.frames == 0:
            return
        if not self._ready:
            self._ready = True
            self._notifier.ready(levels.status_line(self._header) if self._header is not None else "")
            self._pulse.start()

    def _update_counts(self, recorder: Recorder) -> None:
        self._stuck_samplers = [sampler for sampler in self._stuck_samplers if sampler.wait(0.0) is None]
        recorder.housekeeping(time.time_ns(), sampler_restarts=self._restarts, samplers_stuck=len(self._stuck_samplers))

    def _replace_sampler(self, loop: Loop, reason: str, trap: SignalTrap, recorder: Recorder) -> SamplerProcess | None:
        """Start another sampler after a backoff; None if a signal came first."""
        messages.warn(f"{reason}: restarting the sampler")
        messages.warn("nothing is recorded until the new sampler runs")
        loop.sampler.kill()
        if loop.sampler.wait(2.0) is None:
            self._stuck_samplers.append(loop.sampler)
            messages.warn(f"sampler {loop.sampler.pid} does not exit: it hangs in a system call")
            if len(self._stuck_samplers) >= MAX_STUCK:
                messages.warn(f"{MAX_STUCK} samplers hang: nothing is recorded until one of them exits")
        if time.monotonic() - self._sampler_started > STEADY_SECONDS:
            self._failures = 0
        while True:
            wait_seconds = _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS) - 1)]
            self._failures += 1
            self._restarts += 1
            deadline = time.monotonic() + wait_seconds
            counted = 0.0
            while time.monotonic() < deadline or len(self._stuck_samplers) >= MAX_STUCK:
                time.sleep(0.1)
                self._pulse.step()
                if time.monotonic() - counted >= 1.0:
                    counted = time.monotonic()
                    self._update_counts(recorder)
                if trap.pop_all():
                    return None
            try:
                return self._start_sampler()
            except OSError as error:
                messages.warn(f"the sampler cannot be started: {error}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < 256:
            self._warned.add(text)
            messages.info(text)


def reduce_garbage_collection() -> None:
    """Collect garbage rarely, and never in objects of the start; call it after all imports and opens."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 10, 10)
