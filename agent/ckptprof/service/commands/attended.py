"""One command beside a sampler, for `ckptprof run` and `ckptprof capture`: with whatever privileges there are.

The command comes first: when the sampler or what takes its frames fails, it goes on unwatched, and its exit code is
always handed through.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.recording import Frame, Header
from ckptprof.service.commands import levels
from ckptprof.service.options import Control, SamplerOptions, Wish
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.loop import HASTE, Loop, SamplerLostError
from ckptprof.service.recorder.samplerprocess import SamplerProcess
from ckptprof.service.recorder.signals import Caught, Relay, SignalTrap

NOT_FOUND = 127
NOT_EXECUTABLE = 126
SHELL = "/bin/sh"
OUR_STREAMS: Mapping[int, int] = MappingProxyType({})  # it has all of ours
_PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h
_PROC = Path("/proc")
FORWARDED: set[signal.Signals] = {
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
    signal.SIGALRM, signal.SIGXCPU,
}  # fmt: skip
TRAPPED = {*FORWARDED, signal.SIGCHLD}
START_SECONDS = 10.0  # in which the sampler does not run at all: it hangs
MOST_START_SECONDS = 60.0  # beside busy neighbours it takes long, and nobody's training waits longer
DRAIN_SECONDS = 10.0
BASE_HZ = 25.0
BURST_HZ = 50.0


class NotStartedError(CkptprofError):
    """The command could not be started; the exit code is the one that a shell would give."""


class Command:
    """A running command."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        others: frozenset[int] = frozenset(),
        blocked: Iterable[int] = (),
        streams: Mapping[int, int] = OUR_STREAMS,
    ) -> None:
        """Start it; `others` are children that somebody else waits for, `blocked` the signals that it is to block.

        `streams` are descriptors of ours by the number that each is to have in it. Raises NotStartedError.
        """
        self._others = others
        # Who ignored it before us (`trap '' CHLD`) would have the kernel throw the exit code away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            if not arguments[0]:
                raise FileNotFoundError(errno.ENOENT, "")  # as execvp(3) says
            self.pid = _spawn(arguments, blocked, streams)
        except OSError as error:
            raise _not_started(arguments[0], error) from error

    def ended(self) -> bool:
        """Return whether it has ended; it stays a zombie, whose counters can still be read, until `reap`."""
        self._reap_orphans()
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _reap_orphans(self) -> None:
        while True:
            child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if child is None or child.si_pid == self.pid or child.si_pid in self._others:
                return
            os.waitpid(child.si_pid, os.WNOHANG)

    def reap(self) -> int:
        """Return its exit code, 128 and the signal's number if it was killed by one."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send it a signal; one that has just ended does not mind."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _spawn(arguments: Sequence[str], blocked: Iterable[int], streams: Mapping[int, int]) -> int:
    try:
        return _posix_spawn(arguments, blocked, streams)
    except OSError as error:
        if error.errno != errno.ENOEXEC or (script := _plain_script(arguments[0])) is None:
            raise
    return _posix_spawn([SHELL, script, *arguments[1:]], blocked, streams)  # as execvp(3) and every shell do


def _posix_spawn(arguments: Sequence[str], blocked: Iterable[int], streams: Mapping[int, int]) -> int:
    return os.posix_spawnp(
        arguments[0],
        list(arguments),
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, its) for its, ours in streams.items()],
        setsigmask=blocked,
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two, the command must not
    )


def _plain_script(name: str) -> str | None:
    """Return the path of a script without a first line that names its interpreter; None for a foreign binary."""
    path = shutil.which(name)
    if path is None:
        return None
    with Path(path).open("rb") as stream:
        return None if b"\0" in stream.read(80) else path


def _not_started(argument: str, error: OSError) -> NotStartedError:
    name = os.fsencode(argument).decode("utf-8", "backslashreplace")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if argument and shutil.which(argument):
            wrong = NotStartedError(f"{name}: the interpreter in its first line does not exist")
        else:
            wrong = NotStartedError(f"{name}: no such command", hint="give its path, or add its folder to PATH")
        wrong.exit_code = NOT_FOUND
    else:
        reason = "not a program for this machine" if error.errno == errno.ENOEXEC else error.strerror
        wrong = NotStartedError(f"{name}: cannot be executed: {reason}", hint="check its mode and its first line")
        wrong.exit_code = NOT_EXECUTABLE
    return wrong


class Joined:
    """A process that runs already; it stands where `run` has its command, and is sent nothing."""

    def __init__(self, pid: int) -> None:
        """Take hold of it, so that no later process can take its number.

        Raises CkptprofError where there is no such process, and PermissionDeniedError where this user may not see it.
        """
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError as error:
            raise _none(pid) from error
        except OSError as error:
            if error.errno == errno.EINVAL or (_PROC / str(pid)).exists():  # 6.9 has another word for it
                raise CkptprofError(
                    f"{pid} is a thread, not a process", hint="give the pid of its process, as `ps` shows it"
                ) from error
            raise CkptprofError(f"process {pid} cannot be watched: {error.strerror}") from error
        try:
            (_PROC / str(pid) / "io").read_bytes()  # what its checkpoints are found by
        except PermissionError as error:
            os.close(self._fd)
            raise PermissionDeniedError(
                f"process {pid} cannot be watched by this user", hint="run as its owner or as root"
            ) from error
        except OSError as error:
            os.close(self._fd)
            raise _none(pid) from error
        self.left = False  # we were told to go

    def ended(self) -> bool:
        """Return whether it is over, for it or for us."""
        return self.left or bool(select.select([self._fd], [], [], 0)[0])

    def take(self, caught: list[Caught]) -> None:
        """Take signals in: they are for us, and none is handed on."""
        self.left |= any(one.number in HASTE for one in caught)

    def turn(self) -> None:
        """Hand on nothing."""

    def reap(self) -> int:
        """Let it go; how it ended is for its own parent to know."""
        os.close(self._fd)
        return 0


def _none(pid: int) -> CkptprofError:
    return CkptprofError(f"there is no process {pid}", hint="`pgrep -af python` lists running Python processes")


def start_sampler(options: SamplerOptions) -> SamplerProcess | None:
    """Start the sampler of a command; None if it cannot be started, which is told."""
    try:
        return SamplerProcess(options, witness=FORWARDED)
    except OSError as error:
        messages.warn(f"the command is not monitored: the sampler cannot be started: {error}")
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
        # The parent of descendants whose own parent ends, so that they are still seen as descendants
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
                messages.warn(f"the command starts without monitoring: no sampler after {now - began:.0f} s")
                break
        for one in caught:
            if one.number in HASTE:
                error = NotStartedError(f"{signal.Signals(one.number).name} received before the command was started")
                error.exit_code = 128 + one.number
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
        messages.warn(f"the command is no longer monitored: {reason}")
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
            messages.warn(f"the last samples are lost: {error}")
