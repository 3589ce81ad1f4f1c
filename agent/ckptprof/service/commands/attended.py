"""One command beside a sampler, for `ckptprof run` and `ckptprof capture`: with whatever privileges there are.

The command comes first: when the sampler or what takes its frames fails, it goes on unwatched, and its exit code is
always handed through.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
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
from ckptprof.recording import Frame, Header
from ckptprof.service.commands import levels
from ckptprof.service.commands.command import OUR_STREAMS, Command, NotStartedError, adopt_orphans
from ckptprof.service.commands.joined import Joined
from ckptprof.service.options import Control, SamplerOptions, Wish
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.loop import HASTE, Loop, SamplerLostError
from ckptprof.service.recorder.samplerprocess import SamplerProcess
from ckptprof.service.recorder.signals import Caught, Relay, SignalTrap

FORWARDED: set[Signals] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM, SIGXCPU}
TRAPPED = {*FORWARDED, SIGCHLD}
START_SECONDS = 10.0  # in which the sampler does not run at all: it hangs
MOST_START_SECONDS = 60.0  # beside busy neighbours it takes long, and nobody's training waits longer
DRAIN_SECONDS = 10.0
BASE_HZ = 25.0
BURST_HZ = 50.0


def start_sampler(options: SamplerOptions) -> SamplerProcess | None:
    """Start the sampler of a command; None if it cannot be started, which is told."""
    try:
        return SamplerProcess(options, witness=FORWARDED)
    except OSError as error:
        messages.warn(f"the command runs unwatched: the sampler cannot be started: {error}")
        return None


class Attended:
    """A command, its sampler, and the signals that are for the command."""

    def __init__(
        self,
        sampler: SamplerProcess | None,
        trap: SignalTrap,
        take: Callable[[Header | Frame], None],
        *,
        level: Wish = "auto",
        keep_house: Callable[[], None] = lambda: None,
    ) -> None:
        """`take` is given each message, and `keep_house` is called about once a second; either may fail."""
        self._sampler = sampler
        self._trap = trap
        self._take_message = take
        self._level: Wish = level
        self._keep_house = keep_house
        self._loop = Loop(sampler, trap, self._take) if sampler is not None else None
        self._header: Header | None = None  # of the sampler, when it is up
        self._begun = False  # the command has been started, or is about to be
        self.lost = ""  # why the command runs unwatched, if it does

    def execute(
        self,
        what: Sequence[str] | Joined,
        *,
        folders: tuple[str, ...] = (),
        ready: Callable[[Header | None], None],
        streams: Mapping[int, int] = OUR_STREAMS,
    ) -> int:
        """Run the command to its end and return its exit code; or follow what runs already.

        `ready` is called just before it starts, with the header of the sampler, None if that is not up; `streams` are
        for the command, as `Command` takes them.

        Raises NotStartedError and what `levels` refuses, nothing once it runs.
        """
        adopt_orphans()
        self._await_sampler()
        self._begun = True
        ready(self._header)
        command = what if isinstance(what, Joined) else self._start(what, streams)
        if self._sampler is not None:
            heir = None if isinstance(what, Joined) else os.getpid()
            self._sampler.control(Control(root_pid=command.pid, subreaper_pid=heir, folders=folders))
        self._watch(command)
        self._drain()
        return command.reap()

    def _start(self, arguments: Sequence[str], streams: Mapping[int, int]) -> Command:
        others = frozenset((self._sampler.pid,)) if self._sampler is not None else frozenset()
        return Command(arguments, others=others, blocked=self._trap.mask_before, streams=streams)

    def _take(self, message: Header | Frame) -> None:
        if isinstance(message, Header):
            self._header = message
            refused = levels.refusal(self._level, message)
            if refused is not None and not self._begun:
                return  # nothing begins
            if refused is not None:
                messages.warn(f"recorded at {message.level}: {refused}")
        self._take_message(message)

    def _await_sampler(self) -> None:
        """Let the sampler come up; raises NotStartedError if a signal asks us to end before the command runs.

        Raises CkptprofError too if nothing but the trace level would do, and it says that it cannot be had. One that
        says nothing is waited for as long as it runs, for a minute at most: then the command begins before it.
        """
        began = ran = time.monotonic()
        cpu_seconds = 0.0
        caught = self._trap.take()
        while self._loop is not None and not self.lost and self._header is None:
            caught += self._look(self._loop, 0.1)
            now, before, cpu_seconds = time.monotonic(), cpu_seconds, self._loop.sampler.cpu_seconds()
            if cpu_seconds > before:
                ran = now
                self._loop.hold_patience()
            if now - ran > START_SECONDS or now - began > MOST_START_SECONDS:
                messages.warn(f"the command begins unwatched: after {now - began:.0f} s the sampler is not up yet")
                break
        for signal in caught:
            if signal.number in HASTE:
                error = NotStartedError(f"{Signals(signal.number).name} came before the command was started")
                error.exit_code = 128 + signal.number
                raise error
        if (refused := levels.refusal(self._level, self._header)) is not None:
            raise refused

    def _look(self, loop: Loop, timeout_seconds: float) -> list[Caught]:
        """Take in what comes; go on without the sampler if that is lost, and without what takes frames if it fails."""
        try:
            caught = loop.turn(timeout_seconds)
            if loop.ended:
                self._give_up("the sampler ended")
            if loop.house_due():
                self._keep_house()
        except SamplerLostError as error:
            self._give_up(str(error))
        except CkptprofError as error:  # has its own clear line
            self._give_up(str(error))
        except Exception as error:  # noqa: BLE001 - the command must outlive a fault of ours, and keep its exit code
            self._give_up(f"{type(error).__name__}: {error}")
        else:
            return caught
        return []

    def _give_up(self, reason: str) -> None:
        self.lost = reason
        messages.warn(f"from here on the command runs unwatched: {reason}")
        if self._sampler is not None:
            self._sampler.kill()
            self._sampler.wait(2.0)  # as a zombie it would hide ended orphans from us

    def _watch(self, command: Command | Joined) -> None:
        heard = self._sampler.witnessed if self._sampler is not None else bytes
        relay = command if isinstance(command, Joined) else Relay(command.send, heard)
        patience_seconds = 0.5
        while not command.ended():
            if isinstance(command, Joined) and (self.lost or self._loop is None):
                return
            seeing = self._loop if not self.lost else None
            relay.take(self._trap.wait(patience_seconds) if seeing is None else self._look(seeing, patience_seconds))
            patience_seconds = relay.turn() or 0.5

    def _drain(self) -> None:
        if self._loop is None or self.lost:
            return
        try:
            self._loop.drain(DRAIN_SECONDS)
        except CkptprofError as error:
            self.lost = str(error)
            messages.warn(f"the last that was seen is lost: {error}")
