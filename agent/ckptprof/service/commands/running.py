"""`ckptprof run`: one command, recorded from start to end, and reported."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof.detect.recognition import EventDecision
from ckptprof.errors import CkptprofError, StoreError
from ckptprof.model import Checkpoint, Gap, Report, Watched
from ckptprof.recording import Header
from ckptprof.service.commands import levels
from ckptprof.service.commands.monitored_command import (
    BASE_HZ,
    BURST_HZ,
    TRAPPED,
    AttachedProcess,
    MonitoredCommand,
    start_sampler,
)
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_of_database, gpu_counter
from ckptprof.service.recorder.loop import ENDING_SIGNALS
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof.service.recorder.signals import SignalTrap
from ckptprof.service.recorder.storing import MAX_FOLDERS, open_writer
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.service.sampler_options import RequestedLevel, SamplerOptions
from ckptprof.store.location import default_path
from ckptprof.store.problems import StoreBusyError
from ckptprof.store.recorded_time import summarize_recorded
from ckptprof.store.writer import StoreFullError

STORE_SECONDS = 30.0


@dataclass(frozen=True)
class RunOutcome:
    """Result of a run."""

    exit_code: int
    report: Report
    stored: bool  # everything reached the database
    rejected: tuple[EventDecision, ...] = ()  # events classified as no checkpoint


def record(target: Sequence[str] | int, db: str | None, *, level: RequestedLevel = "auto") -> RunOutcome:
    """Run a command (or attach to a pid) and record it, by default in the database of this user.

    Raises NotStartedError, StoreError for an unusable named database, and CkptprofError for an unavailable level; the
    command was not started then.
    """
    process = AttachedProcess(target) if isinstance(target, int) else target
    trap = SignalTrap(TRAPPED)  # before the store's thread: a thread that does not block them would receive them
    options = SamplerOptions(
        uid=new_uid(),
        level=level,
        only_descendants=True,
        attaches=isinstance(process, AttachedProcess),
        base_hz=BASE_HZ,
        burst_hz=BURST_HZ,
        monitor_pids=(os.getpid(),),
    )
    sampler = start_sampler(options)  # before anything slow is done
    try:
        writer, saved_paths = _open_store(db)
        diagnosis = Diagnosis(ceilings=ceilings_of_database(db), gpus=gpu_counter())
        return RecordedRun(writer, saved_paths, level, diagnosis).execute(process, sampler, trap)
    finally:
        if sampler is not None:
            sampler.stop()
            if sampler.wait(5.0) is None:
                sampler.kill()
        trap.close()


def _open_store(db: str | None) -> tuple[WriterThread | None, tuple[str, ...]]:
    try:
        return open_writer(default_path() if db is None else db, shared=True)
    except StoreFullError as error:  # training goes first
        messages.warn(f"checkpoints are not stored, only reported at the end: {error}")
    except StoreBusyError as error:  # an agent, which records this command too
        messages.info(f"{error}: it stores the checkpoints of this run")
        messages.info("its checkpoints are also reported at the end of this run; --db PATH stores them separately")
    except StoreError as error:
        if db is not None:  # a mistake of the user
            raise
        messages.warn(f"checkpoints are not stored, only reported at the end: {error}; {error.hint}")
    return None, ()


class RecordedRun:
    """One command under observation."""

    def __init__(
        self,
        writer: WriterThread | None,
        saved_paths: tuple[str, ...],
        level: RequestedLevel = "auto",
        diagnosis: Diagnosis | None = None,
    ) -> None:
        self._level: RequestedLevel = level
        self._writer = writer
        if writer is not None:
            writer.retains_stored = True
        self._saved_paths = saved_paths
        self._recorder = Recorder(writer, None, saved_paths=saved_paths, diagnosis=diagnosis)
        self._recorder.keep_checkpoints = True
        self._not_monitored_reason = ""

    def execute(
        self, target: Sequence[str] | AttachedProcess, sampler: SamplerProcess | None, trap: SignalTrap
    ) -> RunOutcome:
        """Run the command to its end, or monitor a running process; `sampler` None: without monitoring.

        Raises NotStartedError and the errors of `levels.level_error`, nothing once it runs.
        """
        attended = MonitoredCommand(
            sampler,
            trap,
            self._recorder.ingest,
            level=self._level,
            housekeeping=lambda: self._recorder.housekeeping(time.time_ns()),
        )

        def ready(header: Header | None) -> None:
            # Only root, which could have the trace level, gets the reason
            if header is not None and self._level == "auto" and os.geteuid() == 0 and header.level != "trace":
                level, *reasons = levels.describe(header)
                for line in (f"recorded at {level}", *reasons):
                    messages.info(line)
            if isinstance(target, AttachedProcess):
                messages.info(f"watching process {target.pid} and its descendants until it ends or Ctrl-C")

        try:
            exit_code = attended.execute(target, folders=self._saved_paths[:MAX_FOLDERS], ready=ready)
        except CkptprofError:
            self._close(trap)
            raise
        self._not_monitored_reason = attended.not_monitored_reason
        stored = self._close(trap)
        return RunOutcome(exit_code, self._report(stored=stored), stored, tuple(self._recorder.rejected))

    def _close(self, trap: SignalTrap) -> bool:
        try:
            self._recorder.end(clean=not self._not_monitored_reason)
        except Exception as error:  # noqa: BLE001 - the command has run: its exit code matters more
            messages.warn(f"the last samples could not be processed: {type(error).__name__}: {error}")
        if self._writer is None:
            return False

        def hurried() -> bool:
            return any(signal.number in ENDING_SIGNALS for signal in trap.pop_all())

        stored = self._writer.close(STORE_SECONDS, hurried=hurried)
        if not stored:
            messages.warn("not everything could be stored; this report is complete")
        return stored

    def _report(self, *, stored: bool) -> Report:
        checkpoints: list[Checkpoint] = self._recorder.checkpoints
        if stored and self._writer is not None:
            checkpoints = self._writer.stored_checkpoints  # these have numbers
        session = self._recorder.session
        if session is None:
            return Report(host=None, watched=Watched(start_ns=None, end_ns=None), checkpoints=tuple(checkpoints))
        monitored = summarize_recorded([session], None, None)
        if self._not_monitored_reason:
            now_ns = time.time_ns()
            gap = Gap(session.end_ns, now_ns, f"the command was not monitored: {self._not_monitored_reason}")
            monitored = Watched(start_ns=monitored.start_ns, end_ns=now_ns, gaps=(*monitored.gaps, gap))
        return Report(host=session.host, watched=monitored, checkpoints=tuple(checkpoints))
