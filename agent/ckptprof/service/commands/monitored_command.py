"""A command with a sampler, for `ckptprof run` and `ckptprof capture`, with the privileges of the caller.

The command comes first: when the sampler or the consumer of its frames fails, the command continues without
monitoring, and its exit code is always returned.
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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.recording import Frame, Header
from ckptprof.service.commands import levels
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.loop import ENDING_SIGNALS, Loop, SamplerLostError
from ckptprof.service.recorder.samplerprocess import SamplerProcess
from ckptprof.service.recorder.signals import CaughtSignal, SignalRelay, SignalTrap
from ckptprof.service.sampler_options import RequestedLevel, SamplerControl, SamplerOptions

NOT_FOUND = 127
NOT_EXECUTABLE = 126
SHELL = "/bin/sh"
_PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h
_PROC = Path("/proc")
FORWARDED: set[signal.Signals] = {
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
    signal.SIGALRM, signal.SIGXCPU,
}  # fmt: skip
TRAPPED = {*FORWARDED, signal.SIGCHLD}
START_SECONDS = 10.0  # without any CPU time of the sampler: it hangs
MAX_START_SECONDS = 60.0  # a busy host makes the start slow; training never waits longer
DRAIN_SECONDS = 10.0
BASE_HZ = 25.0
BURST_HZ = 50.0


class NotStartedError(CkptprofError):
    """The command could not be started; its exit code is that of a shell."""


class ChildCommand:
    """A running command."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        other_children: frozenset[int] = frozenset(),
        blocked: Iterable[int] = (),
    ) -> None:
        """Start it; `other_children`: not to be reaped; `blocked`: the signals blocked in the command.

        Raises NotStartedError.
        """
        self._other_children = other_children
        # If a parent ignored it (`trap '' CHLD`), the kernel would discard the exit code
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            if not arguments[0]:
                raise FileNotFoundError(errno.ENOENT, "")  # as execvp(3) does
            self.pid = _spawn(arguments, blocked)
        except OSError as error:
            raise _start_error(arguments[0], error) from error

    def has_ended(self) -> bool:
        """Whether it has ended; it stays a zombie, whose counters can still be read, until `reap`."""
        self._reap_orphans()
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _reap_orphans(self) -> None:
        while True:
            child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if child is None or child.si_pid == self.pid or child.si_pid in self._other_children:
                return
            os.waitpid(child.si_pid, os.WNOHANG)

    def reap(self) -> int:
        """Return its exit code; 128 plus the number of the signal that killed it."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send it a signal; ignored if it has just ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _spawn(arguments: Sequence[str], blocked: Iterable[int]) -> int:
    try:
        return _posix_spawn(arguments, blocked)
    except OSError as error:
        if error.errno != errno.ENOEXEC or (script := _plain_script(arguments[0])) is None:
            raise
    return _posix_spawn([SHELL, script, *arguments[1:]], blocked)  # as execvp(3) and every shell do


def _posix_spawn(arguments: Sequence[str], blocked: Iterable[int]) -> int:
    return os.posix_spawnp(
        arguments[0],
        list(arguments),
        os.environ,
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


def _start_error(argument: str, error: OSError) -> NotStartedError:
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


class AttachedProcess:
    """A running process in place of a command; it receives no signals from us."""

    def __init__(self, pid: int) -> None:
        """Open a pidfd, so that its pid is not reused in the meantime.

        Raises CkptprofError if there is no such process, PermissionDeniedError if this user cannot read it.
        """
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError as error:
            raise _no_process_error(pid) from error
        except OSError as error:
            if error.errno == errno.EINVAL or (_PROC / str(pid)).exists():  # Linux 6.9 has another errno
                raise CkptprofError(
                    f"{pid} is a thread, not a process", hint="give the pid of its process, as `ps` shows it"
                ) from error
            raise CkptprofError(f"process {pid} cannot be watched: {error.strerror}") from error
        try:
            (_PROC / str(pid) / "io").read_bytes()  # the counters that detection needs
        except PermissionError as error:
            os.close(self._fd)
            raise PermissionDeniedError(
                f"process {pid} cannot be watched by this user", hint="run as its owner or as root"
            ) from error
        except OSError as error:
            os.close(self._fd)
            raise _no_process_error(pid) from error
        self.is_detached = False  # a signal ended the monitoring

    def has_ended(self) -> bool:
        """Whether the process or its monitoring has ended."""
        return self.is_detached or bool(select.select([self._fd], [], [], 0)[0])

    def ingest(self, caught: list[CaughtSignal]) -> None:
        """Ingest signals; none is forwarded."""
        self.is_detached |= any(one.number in ENDING_SIGNALS for one in caught)

    def turn(self) -> None:
        """Do nothing: there is no output to forward."""

    def reap(self) -> int:
        """Close the pidfd; the exit code is 0, only its parent can read the real one."""
        os.close(self._fd)
        return 0


def _no_process_error(pid: int) -> CkptprofError:
    return CkptprofError(f"there is no process {pid}", hint="`pgrep -af python` lists running Python processes")


def start_sampler(options: SamplerOptions) -> SamplerProcess | None:
    """Start the sampler of a command; None, with a warning, if that fails."""
    try:
        return SamplerProcess(options, witness=FORWARDED)
    except OSError as error:
        messages.warn(f"the command is not monitored: the sampler cannot be started: {error}")
        return None


class MonitoredCommand:
    """A command, its sampler, and the signals for the command."""

    def __init__(
        self,
        sampler: SamplerProcess | None,
        trap: SignalTrap,
        on_message: Callable[[Header | Frame], None],
        *,
        level: RequestedLevel = "auto",
        housekeeping: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_message` gets each message, `housekeeping` is called about once a second; either may fail."""
        self._sampler = sampler
        self._trap = trap
        self._on_message = on_message
        self._level: RequestedLevel = level
        self._housekeeping = housekeeping
        self._loop = Loop(sampler, trap, self._ingest) if sampler is not None else None
        self._header: Header | None = None  # of the sampler
        self._is_starting = False  # the command has been started, or is about to be
        self.not_monitored_reason = ""  # why the command is not monitored, empty if it is

    def execute(
        self,
        target: Sequence[str] | AttachedProcess,
        *,
        folders: tuple[str, ...] = (),
        ready: Callable[[Header | None], None],
    ) -> int:
        """Run the command to its end, or monitor a running process, and return its exit code.

        `ready` is called just before it starts, with the header of the sampler, None without a sampler.

        Raises NotStartedError and the errors of `levels.level_error`, nothing once it runs.
        """
        # Become the parent of orphaned descendants, so that they are still known as descendants
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._await_sampler()
        self._is_starting = True
        ready(self._header)
        command = target if isinstance(target, AttachedProcess) else self._start(target)
        if self._sampler is not None:
            subreaper_pid = None if isinstance(target, AttachedProcess) else os.getpid()
            self._sampler.control(SamplerControl(root_pid=command.pid, subreaper_pid=subreaper_pid, folders=folders))
        self._watch(command)
        self._drain()
        return command.reap()

    def _start(self, arguments: Sequence[str]) -> ChildCommand:
        others = frozenset((self._sampler.pid,)) if self._sampler is not None else frozenset()
        return ChildCommand(arguments, other_children=others, blocked=self._trap.mask_before)

    def _ingest(self, message: Header | Frame) -> None:
        if isinstance(message, Header):
            self._header = message
            refused = levels.level_error(self._level, message)
            if refused is not None and not self._is_starting:
                return  # the command is not started
            if refused is not None:
                messages.warn(f"recorded at {message.level}: {refused}")
        self._on_message(message)

    def _await_sampler(self) -> None:
        """Wait for the sampler; raises NotStartedError if a signal arrives before the command runs.

        Raises CkptprofError if the trace level is required and not available. A silent sampler is waited for while it
        uses CPU time, a minute at most: then the command starts without it.
        """
        started = time.monotonic()
        caught = self._trap.pop_all()
        while self._loop is not None and not self.not_monitored_reason and self._header is None:
            caught += self._poll_sampler(self._loop, 0.1)
            waited_seconds = time.monotonic() - started
            if self._loop.silent_seconds > START_SECONDS or waited_seconds > MAX_START_SECONDS:
                messages.warn(f"the command starts without monitoring: no sampler after {waited_seconds:.0f} s")
                break
        for signal_caught in caught:
            if signal_caught.number in ENDING_SIGNALS:
                error = NotStartedError(
                    f"{signal.Signals(signal_caught.number).name} received before the command was started"
                )
                error.exit_code = 128 + signal_caught.number
                raise error
        if (refused := levels.level_error(self._level, self._header)) is not None:
            raise refused

    def _poll_sampler(self, loop: Loop, timeout_seconds: float) -> list[CaughtSignal]:
        """Process messages; continue without monitoring if the sampler is lost or the consumer fails."""
        try:
            caught = loop.poll(timeout_seconds)
            if loop.has_ended:
                self._stop_monitoring("the sampler ended")
            if loop.housekeeping_due():
                self._housekeeping()
        except SamplerLostError as error:
            self._stop_monitoring(str(error))
        except CkptprofError as error:  # has its own clear line
            self._stop_monitoring(str(error))
        except Exception as error:  # noqa: BLE001 - the command must outlive a fault of ours, and keep its exit code
            self._stop_monitoring(f"{type(error).__name__}: {error}")
        else:
            return caught
        return []

    def _stop_monitoring(self, reason: str) -> None:
        self.not_monitored_reason = reason
        messages.warn(f"the command is no longer monitored: {reason}")
        if self._sampler is not None:
            self._sampler.kill()
            self._sampler.wait(2.0)  # as a zombie it would hide ended orphans from us

    def _watch(self, command: ChildCommand | AttachedProcess) -> None:
        witnessed = self._sampler.witnessed if self._sampler is not None else bytes
        relay = command if isinstance(command, AttachedProcess) else SignalRelay(command.send, witnessed)
        patience_seconds = 0.5
        while not command.has_ended():
            if isinstance(command, AttachedProcess) and (self.not_monitored_reason or self._loop is None):
                return
            loop = self._loop if not self.not_monitored_reason else None
            relay.ingest(
                self._trap.wait(patience_seconds) if loop is None else self._poll_sampler(loop, patience_seconds)
            )
            patience_seconds = relay.turn() or 0.5

    def _drain(self) -> None:
        if self._loop is None or self.not_monitored_reason:
            return
        try:
            self._loop.drain(DRAIN_SECONDS)
        except CkptprofError as error:
            self.not_monitored_reason = str(error)
            messages.warn(f"the last samples are lost: {error}")
