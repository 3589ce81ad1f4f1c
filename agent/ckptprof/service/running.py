"""`ckptprof run`: one command, watched from its first byte to its last, with whatever privileges there are.

The command comes first: when the recorder fails it goes on unwatched, and its exit code is always handed through.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, Signals

from ckptprof.model import Checkpoint, Report, Session, Watched
from ckptprof.service import messages
from ckptprof.service.command import Command, adopt_orphans
from ckptprof.service.keeper import Keeper
from ckptprof.service.loop import Loop, SamplerLostError
from ckptprof.service.recorder import Recorder
from ckptprof.service.sampler import Control, SamplerOptions
from ckptprof.service.sampling import SamplerProcess, new_uid
from ckptprof.service.signals import SignalTrap
from ckptprof.service.storing import MAX_FOLDERS, open_keeper
from ckptprof.store.problems import StoreFullError

FORWARDED: set[Signals] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH}
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


def record(arguments: Sequence[str], db: str | Path) -> Outcome:
    """Run a command and record it; raises NotStartedError, and StoreError for a database that cannot be one."""
    sampler = _start_sampler()  # before SQLAlchemy is imported
    trap = SignalTrap({*FORWARDED, SIGCHLD})  # before the store's thread: a thread that does not block them takes them
    try:
        keeper, saved_paths = _open(db)
        return Run(keeper, saved_paths, sampler).execute(arguments, trap)
    finally:
        if sampler is not None:
            sampler.stop()
            if sampler.wait(5.0) is None:
                sampler.kill()


def _start_sampler() -> SamplerProcess | None:
    options = SamplerOptions(
        uid=new_uid(), only_family=True, base_hz=BASE_HZ, burst_hz=BURST_HZ, monitor_pids=(os.getpid(),)
    )
    try:
        return SamplerProcess(options)
    except OSError as error:
        messages.warn(f"the command runs unwatched: the sampler cannot be started: {error}")
        return None


def _open(db: str | Path) -> tuple[Keeper | None, tuple[str, ...]]:
    try:
        return open_keeper(db)
    except StoreFullError as error:  # no reason to keep anybody from training
        messages.warn(f"nothing will be stored, only reported at the end: {error}")
        return None, ()


class Run:
    """One command under observation."""

    def __init__(self, keeper: Keeper | None, saved_paths: tuple[str, ...], sampler: SamplerProcess | None) -> None:
        """`keeper` is None when nothing can be stored, `sampler` when nothing can be seen."""
        self._keeper = keeper
        if keeper is not None:
            keeper.keep_stored = True
        self._sampler = sampler
        self._saved_paths = saved_paths
        self._recorder = Recorder(keeper, None, saved_paths=saved_paths)
        self._recorder.keep_checkpoints = True
        self._lost = ""

    def execute(self, arguments: Sequence[str], trap: SignalTrap) -> Outcome:
        """Run the command to its end; raises NotStartedError."""
        sampler = self._sampler
        adopt_orphans()
        loop = Loop(sampler, trap, self._recorder.take) if sampler is not None else None
        if loop is not None:
            self._await_sampler(loop)
        command = Command(arguments, others=frozenset((sampler.pid,)) if sampler is not None else frozenset())
        if sampler is not None:
            sampler.control(
                Control(root_pid=command.pid, subreaper_pid=os.getpid(), folders=self._saved_paths[:MAX_FOLDERS])
            )
        self._watch(command, loop, trap)
        if loop is not None and not self._lost:
            loop.drain(DRAIN_SECONDS)
        exit_code = command.reap()
        self._recorder.end(clean=not self._lost)
        return self._outcome(exit_code)

    def _await_sampler(self, loop: Loop) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self._recorder.session is None and time.monotonic() < deadline:
            try:
                loop.turn(0.1)
            except SamplerLostError as error:
                self._give_up(str(error))
                return
            if loop.ended:
                self._give_up("the sampler ended at once")
                return

    def _give_up(self, reason: str) -> None:
        self._lost = reason
        messages.warn(f"from here on the command runs unwatched: {reason}")

    def _watch(self, command: Command, loop: Loop | None, trap: SignalTrap) -> None:
        watching = loop is not None and not self._lost
        while not command.ended():
            caught = []
            if watching and loop is not None:
                try:
                    caught = loop.turn(0.5)
                except SamplerLostError as error:
                    self._give_up(str(error))
                if loop.ended and not self._lost:
                    self._give_up("the sampler ended")
                watching = not self._lost
                if loop.house_due():
                    self._recorder.housekeeping(time.time_ns())
            else:
                time.sleep(0.02)
                caught = trap.take()
            for signal in caught:
                if signal.number != SIGCHLD and not signal.from_terminal:
                    command.send(signal.number)

    def _outcome(self, exit_code: int) -> Outcome:
        checkpoints: list[Checkpoint] = self._recorder.checkpoints
        stored = True
        if self._keeper is not None:
            stored = self._keeper.close(STORE_SECONDS)
            if stored:
                checkpoints = self._keeper.stored
        session = self._recorder.session
        return Outcome(exit_code, _report(session, checkpoints), stored and self._keeper is not None)


def _report(session: Session | None, checkpoints: list[Checkpoint]) -> Report:
    watched = Watched(start_ns=None, end_ns=None)
    if session is not None:
        watched = Watched(start_ns=session.start_ns, end_ns=session.end_ns)
    return Report(host=session.host if session else None, watched=watched, checkpoints=tuple(checkpoints))
