"""`ckptprof run`: one command, watched from its first byte to its last, with whatever privileges there are.

The command comes first: when the recorder fails it goes on unwatched, and its exit code is always handed through.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import (
    SIGALRM,
    SIGCHLD,
    SIGHUP,
    SIGINT,
    SIGQUIT,
    SIGTERM,
    SIGUSR1,
    SIGUSR2,
    SIGWINCH,
    SIGXCPU,
    Signals,
)

from ckptprof.errors import CkptprofError
from ckptprof.model import Checkpoint, Gap, Report, Session, Watched
from ckptprof.recording import Frame, Header
from ckptprof.service.commands import levels
from ckptprof.service.commands.command import Command, NotStartedError, adopt_orphans
from ckptprof.service.options import Control, SamplerOptions, Wish
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_beside, gpus_in_use
from ckptprof.service.recorder.loop import HASTE, Loop, SamplerLostError
from ckptprof.service.recorder.recorder import Recorder
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof.service.recorder.signals import Caught, Relay, SignalTrap
from ckptprof.service.recorder.storing import MAX_FOLDERS, open_writer
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store.watched import watched

FORWARDED: set[Signals] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM, SIGXCPU}
START_SECONDS = 10.0
DRAIN_SECONDS = 10.0
STORE_SECONDS = 30.0
BASE_HZ = 25.0
BURST_HZ = 50.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    exit_code: int
    report: Report
    stored: bool  # everything reached the database


def record(arguments: Sequence[str], db: str | Path, *, level: Wish = "auto") -> Outcome:
    """Run a command and record it.

    Raises NotStartedError, StoreError for a database that cannot be one, and CkptprofError for a level that cannot be
    had; then the command was not started.
    """
    trap = SignalTrap({*FORWARDED, SIGCHLD})  # before the store's thread: one that does not block them would take them
    sampler = _start_sampler(level)  # before SQLAlchemy is imported
    try:
        writer, saved_paths = _open(db)
        diagnosis = Diagnosis(ceilings=ceilings_beside(db), gpus=gpus_in_use())
        return Run(writer, saved_paths, sampler, level, diagnosis).execute(arguments, trap)
    finally:
        if sampler is not None:
            sampler.stop()
            if sampler.wait(5.0) is None:
                sampler.kill()
        trap.close()


def _start_sampler(level: Wish) -> SamplerProcess | None:
    options = SamplerOptions(
        uid=new_uid(), level=level, only_family=True, base_hz=BASE_HZ, burst_hz=BURST_HZ, monitor_pids=(os.getpid(),)
    )
    try:
        return SamplerProcess(options, witness=FORWARDED)
    except OSError as error:
        messages.warn(f"the command runs unwatched: the sampler cannot be started: {error}")
        return None


def _open(db: str | Path) -> tuple[WriterThread | None, tuple[str, ...]]:
    from ckptprof.store.lock import StoreBusyError  # noqa: PLC0415 - imports SQLAlchemy: the sampler is started first
    from ckptprof.store.problems import StoreFullError  # noqa: PLC0415

    try:
        return open_writer(db, shared=True)
    except StoreFullError as error:  # no reason to keep anybody from training
        messages.warn(f"nothing will be stored, only reported at the end: {error}")
    except StoreBusyError as error:  # an agent, which sees this command too
        messages.say(f"{error}: that one stores this run's checkpoints")
        messages.say("they are also reported at the end of this run; --db PATH stores them separately")
    return None, ()


class Run:
    """One command under observation."""

    def __init__(
        self,
        writer: WriterThread | None,
        saved_paths: tuple[str, ...],
        sampler: SamplerProcess | None,
        level: Wish = "auto",
        diagnosis: Diagnosis | None = None,
    ) -> None:
        """`writer` is None when nothing can be stored, `sampler` when nothing can be seen."""
        self._level: Wish = level
        self._header: Header | None = None
        self._writer = writer
        if writer is not None:
            writer.keep_stored = True
        self._sampler = sampler
        self._saved_paths = saved_paths
        self._recorder = Recorder(writer, None, saved_paths=saved_paths, diagnosis=diagnosis)
        self._recorder.keep_checkpoints = True
        self._lost = ""

    def execute(self, arguments: Sequence[str], trap: SignalTrap) -> Outcome:
        """Run the command to its end; raises NotStartedError and what `levels` refuses, nothing once it runs."""
        sampler = self._sampler
        adopt_orphans()
        loop = Loop(sampler, trap, self._take) if sampler is not None else None
        try:
            self._await_sampler(loop, trap)
            others = frozenset((sampler.pid,)) if sampler is not None else frozenset()
            command = Command(arguments, others=others, blocked=trap.mask_before)
        except CkptprofError:
            self._close(trap)
            raise
        if sampler is not None:
            folders = self._saved_paths[:MAX_FOLDERS]
            sampler.control(Control(root_pid=command.pid, subreaper_pid=os.getpid(), folders=folders))
        self._watch(command, loop, trap)
        if loop is not None and not self._lost:
            loop.drain(DRAIN_SECONDS)
        exit_code = command.reap()
        stored = self._close(trap)
        return Outcome(exit_code, self._report(stored=stored), stored)

    def _take(self, message: Header | Frame) -> None:
        if isinstance(message, Header):
            self._header = message
        self._recorder.take(message)

    def _await_sampler(self, loop: Loop | None, trap: SignalTrap) -> None:
        """Let the sampler come up; raises NotStartedError if a signal asks us to end before the command runs.

        Raises CkptprofError too if nothing but the trace level would do, and it cannot be had.
        """
        deadline = time.monotonic() + START_SECONDS
        caught = trap.take()
        while loop is not None and not self._lost and self._recorder.session is None and time.monotonic() < deadline:
            caught += self._look(loop, 0.1)
        for signal in caught:
            if signal.number in HASTE:
                error = NotStartedError(f"{Signals(signal.number).name} came before the command was started")
                error.exit_code = 128 + signal.number
                raise error
        if (refused := levels.refusal(self._level, self._header)) is not None:
            raise refused
        # Who is not root knows to see less
        if self._header is not None and self._level == "auto" and os.geteuid() == 0 and self._header.level != "trace":
            level, *reasons = levels.describe(self._header)
            for line in (f"recorded at {level}", *reasons):
                messages.say(line)

    def _look(self, loop: Loop, timeout_seconds: float) -> list[Caught]:
        """Take in what comes; go on without the sampler if that is lost, and without the recorder if that fails."""
        try:
            caught = loop.turn(timeout_seconds)
            if loop.ended:
                self._give_up("the sampler ended")
            if loop.house_due():
                self._recorder.housekeeping(time.time_ns())
        except SamplerLostError as error:
            self._give_up(str(error))
        except Exception as error:  # noqa: BLE001 - the command must outlive a fault of ours, and keep its exit code
            self._give_up(f"{type(error).__name__}: {error}")
        else:
            return caught
        return []

    def _give_up(self, reason: str) -> None:
        self._lost = reason
        messages.warn(f"from here on the command runs unwatched: {reason}")
        if self._sampler is not None:
            self._sampler.kill()
            self._sampler.wait(2.0)  # as a zombie it would hide ended orphans from us

    def _watch(self, command: Command, loop: Loop | None, trap: SignalTrap) -> None:
        """Wait until the command has ended."""
        relay = Relay(command.send, self._sampler.witnessed if self._sampler is not None else bytes)
        patience_seconds = 0.5
        while not command.ended():
            seeing = loop if not self._lost else None
            relay.take(trap.wait(patience_seconds) if seeing is None else self._look(seeing, patience_seconds))
            patience_seconds = relay.turn() or 0.5

    def _close(self, trap: SignalTrap) -> bool:
        """Judge and store what is left; return whether everything is stored."""
        try:
            self._recorder.end(clean=not self._lost)
        except Exception as error:  # noqa: BLE001 - as above
            messages.warn(f"the last that was seen could not be judged: {type(error).__name__}: {error}")
        if self._writer is None:
            return False

        def hurried() -> bool:
            return any(signal.number in HASTE for signal in trap.take())

        stored = self._writer.close(STORE_SECONDS, hurried=hurried)
        if not stored:
            messages.warn("not everything could be stored; what was found is in this report")
        return stored

    def _report(self, *, stored: bool) -> Report:
        checkpoints: list[Checkpoint] = self._recorder.checkpoints
        if stored and self._writer is not None:
            checkpoints = self._writer.stored  # these have numbers
        session = self._recorder.session
        if session is None:
            return Report(host=None, watched=Watched(start_ns=None, end_ns=None), checkpoints=tuple(checkpoints))
        return Report(host=session.host, watched=_watched(session, self._lost), checkpoints=tuple(checkpoints))


def _watched(session: Session, lost: str) -> Watched:
    seen = watched([session], None, None)
    if not lost:
        return seen
    now_ns = time.time_ns()
    gap = Gap(session.end_ns, now_ns, f"the command ran unwatched: {lost}")
    return Watched(start_ns=seen.start_ns, end_ns=now_ns, gaps=(*seen.gaps, gap))
