"""`ckptprof run`: one command, recorded from start to end, and reported."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ckptprof.detect.recognition import Judged
from ckptprof.errors import CkptprofError, StoreError
from ckptprof.model import Checkpoint, Gap, Report, Watched
from ckptprof.recording import Header
from ckptprof.report.live.state import MAX_LAST
from ckptprof.service.commands import levels
from ckptprof.service.commands.attended import BASE_HZ, BURST_HZ, OUR_STREAMS, TRAPPED, Attended, Joined, start_sampler
from ckptprof.service.options import SamplerOptions, Wish
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_beside, gpus_in_use
from ckptprof.service.recorder.loop import HASTE
from ckptprof.service.recorder.recorder import Audience, Recorder
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof.service.recorder.signals import SignalTrap
from ckptprof.service.recorder.storing import MAX_FOLDERS, open_writer
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store.location import default_path
from ckptprof.store.problems import StoreBusyError
from ckptprof.store.watched import watched
from ckptprof.store.writer import StoreFullError

STORE_SECONDS = 30.0


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    exit_code: int
    report: Report
    stored: bool  # everything reached the database
    rejected: tuple[Judged, ...] = ()  # events classified as no checkpoint


def record(
    what: Sequence[str] | int, db: str | None, *, level: Wish = "auto", screen: Audience | None = None
) -> Outcome:
    """Run a command (or attach to a pid) and record it, by default in the database of this user.

    Raises NotStartedError, StoreError for an unusable named database, and CkptprofError for an unavailable level; the
    command was not started then.
    """
    target = Joined(what) if isinstance(what, int) else what
    trap = SignalTrap(TRAPPED)  # before the store's thread: a thread that does not block them would receive them
    options = SamplerOptions(
        uid=new_uid(),
        level=level,
        only_family=True,
        among_others=isinstance(target, Joined),
        base_hz=BASE_HZ,
        burst_hz=BURST_HZ,
        monitor_pids=(os.getpid(),),
    )
    sampler = start_sampler(options)  # before anything slow is done
    try:
        writer, saved_paths = _open(db)
        diagnosis = Diagnosis(ceilings=ceilings_beside(db), gpus=gpus_in_use())
        return Run(writer, saved_paths, level, diagnosis, screen).execute(target, sampler, trap)
    finally:
        if sampler is not None:
            sampler.stop()
            if sampler.wait(5.0) is None:
                sampler.kill()
        trap.close()


def _open(db: str | None) -> tuple[WriterThread | None, tuple[str, ...]]:
    try:
        return open_writer(default_path() if db is None else db, shared=True)
    except StoreFullError as error:  # training goes first
        messages.warn(f"checkpoints are not stored, only reported at the end: {error}")
    except StoreBusyError as error:  # an agent, which records this command too
        messages.say(f"{error}: it stores the checkpoints of this run")
        messages.say("they are also reported at the end of this run; --db PATH stores them separately")
    except StoreError as error:
        if db is not None:  # a mistake of the user
            raise
        messages.warn(f"checkpoints are not stored, only reported at the end: {error}; {error.hint}")
    return None, ()


class Run:
    """One command under observation."""

    def __init__(
        self,
        writer: WriterThread | None,
        saved_paths: tuple[str, ...],
        level: Wish = "auto",
        diagnosis: Diagnosis | None = None,
        screen: Audience | None = None,
    ) -> None:
        self._level: Wish = level
        self._writer = writer
        if writer is not None:
            writer.keep_stored = True
        self._saved_paths = saved_paths
        self._recorder = Recorder(
            writer, None, saved_paths=saved_paths, diagnosis=diagnosis, live=screen, last=self._last
        )
        self._recorder.keep_checkpoints = True
        self._streams = OUR_STREAMS if screen is None else screen.streams
        self._lost = ""

    def execute(self, what: Sequence[str] | Joined, sampler: SamplerProcess | None, trap: SignalTrap) -> Outcome:
        """Run the command to its end, or monitor a running process; `sampler` None: without monitoring.

        Raises NotStartedError and the errors of `levels.refusal`, nothing once it runs.
        """
        attended = Attended(
            sampler,
            trap,
            self._recorder.take,
            level=self._level,
            keep_house=lambda: self._recorder.housekeeping(time.time_ns()),
        )

        def ready(header: Header | None) -> None:
            # Only root, which could have the trace level, gets the reason
            if header is not None and self._level == "auto" and os.geteuid() == 0 and header.level != "trace":
                level, *reasons = levels.describe(header)
                for line in (f"recorded at {level}", *reasons):
                    messages.say(line)
            if isinstance(what, Joined):
                messages.say(f"watching process {what.pid} and its descendants until it ends or Ctrl-C")

        try:
            exit_code = attended.execute(
                what, folders=self._saved_paths[:MAX_FOLDERS], ready=ready, streams=self._streams
            )
        except CkptprofError:
            self._close(trap)
            raise
        self._lost = attended.lost
        stored = self._close(trap)
        return Outcome(exit_code, self._report(stored=stored), stored, tuple(self._recorder.rejected))

    def _last(self) -> tuple[Checkpoint, ...]:
        found = self._recorder.checkpoints if self._writer is None else self._writer.stored
        return tuple(sorted(found, key=lambda one: (one.start_ns, one.id), reverse=True)[:MAX_LAST])

    def _close(self, trap: SignalTrap) -> bool:
        try:
            self._recorder.end(clean=not self._lost)
        except Exception as error:  # noqa: BLE001 - the command has run: its exit code matters more
            messages.warn(f"the last samples could not be processed: {type(error).__name__}: {error}")
        if self._writer is None:
            return False

        def hurried() -> bool:
            return any(signal.number in HASTE for signal in trap.take())

        stored = self._writer.close(STORE_SECONDS, hurried=hurried)
        if not stored:
            messages.warn("not everything could be stored; this report is complete")
        return stored

    def _report(self, *, stored: bool) -> Report:
        checkpoints: list[Checkpoint] = self._recorder.checkpoints
        if stored and self._writer is not None:
            checkpoints = self._writer.stored  # these have numbers
        session = self._recorder.session
        if session is None:
            return Report(host=None, watched=Watched(start_ns=None, end_ns=None), checkpoints=tuple(checkpoints))
        seen = watched([session], None, None)
        if self._lost:
            now_ns = time.time_ns()
            gap = Gap(session.end_ns, now_ns, f"the command was not monitored: {self._lost}")
            seen = Watched(start_ns=seen.start_ns, end_ns=now_ns, gaps=(*seen.gaps, gap))
        return Report(host=session.host, watched=seen, checkpoints=tuple(checkpoints))
