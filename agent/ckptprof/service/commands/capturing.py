"""`ckptprof capture`: the frames of a sampler, written to a file as they arrive."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM

from ckptprof import units
from ckptprof.errors import CkptprofError
from ckptprof.recording import FileWriter, Header
from ckptprof.report.clean import clean, shorten_end
from ckptprof.service.commands import levels
from ckptprof.service.commands.monitored_command import BASE_HZ, BURST_HZ, TRAPPED, MonitoredCommand, start_sampler
from ckptprof.service.commands.output_file import open_output
from ckptprof.service.progress_line import ProgressLine
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.loop import Loop, SamplerLostError
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof.service.recorder.signals import SignalTrap
from ckptprof.service.sampler_options import RequestedLevel, SamplerOptions
from ckptprof_collectors.samples import Frame, text

FLUSH_SECONDS = 1.0
HOST_HZ = 10.0
_NAME_CELLS = 60  # of the command that is recorded


@dataclass(frozen=True)
class CaptureOptions:
    """How to record; by default at the rate of `ckptprof run`, or 10 per second for a whole host."""

    seconds: float | None = None  # None: until a signal, or until the command ends
    note: str = ""
    force: bool = False
    quiet: bool = False
    rate: float | None = None
    level: RequestedLevel = "auto"

    def sampler_options(self, *, base_hz: float, burst_hz: float, only_family: bool) -> SamplerOptions:
        """Options of the sampler."""
        return SamplerOptions(
            uid=new_uid(),
            level=self.level,
            only_descendants=only_family,
            base_hz=self.rate or base_hz,
            burst_hz=2.5 * self.rate if self.rate else burst_hz,
            monitor_pids=(os.getpid(),),
            note=text(os.fsencode(self.note)),
        )


class _Recording:
    """One recording, from its first line on stderr to its summary.

    An existing file keeps its contents until the header arrives.
    """

    def __init__(self, path: Path, options: CaptureOptions, subject: str) -> None:
        self._path = path
        self._options = options
        self._subject = subject  # what is recorded
        self._is_new = True
        try:
            fd = open_output(path, 0o640, new=True)
        except FileExistsError:
            if path.is_dir():
                raise CkptprofError(f"{path}: {os.strerror(errno.EISDIR)}", hint="give the path of a file") from None
            if not options.force:
                raise CkptprofError(f"{path}: already exists", hint="use --force to overwrite it") from None
            self._is_new = False
            fd = open_output(path, 0o640)
        self._stream = os.fdopen(fd, "wb")
        self._writer: FileWriter | None = None
        self._started: float | None = None
        self._frames = 0
        self._size_bytes = 0  # at the last flush; 0 if not a regular file
        self._failed = False

    @property
    def has_started(self) -> bool:
        return self._writer is not None

    @property
    def _is_empty(self) -> bool:
        return not self.has_started or (self._failed and not self._size_bytes)

    @property
    def _seconds(self) -> float:
        return 0.0 if self._started is None else time.monotonic() - self._started

    @property
    def has_ended(self) -> bool:
        return self._options.seconds is not None and self._seconds >= self._options.seconds

    @property
    def timeout_seconds(self) -> float:
        """Timeout for the next frame, so that neither the end nor a flush is late."""
        return 1.0 if self._options.seconds is None else min(1.0, max(0.0, self._options.seconds - self._seconds))

    def summary(self) -> str:
        seconds, frames = f"{self._seconds:.0f} s", units.plural(self._frames, "frame")
        return f"recorded {seconds}, {frames}, {units.size(self._size_bytes)}"

    def start(self, header: Header, until: str) -> None:
        self._started = time.monotonic()  # without the start of the sampler
        level, *reasons = levels.describe(header)
        for line in (f"recording {self._subject} at {level} to {self._path}, {until}", *reasons):
            self._say(line)

    def write(self, message: Header | Frame) -> None:
        """Write a message, the header first; raises CkptprofError."""
        if self._started is None:
            self._started = time.monotonic()
        with self._writing():
            if isinstance(message, Header):
                if stat.S_ISREG(os.fstat(self._stream.fileno()).st_mode):
                    self._stream.truncate(0)
                self._writer = FileWriter(self._stream, message)
            elif self._writer is not None:
                self._writer.write(message)
                self._frames += 1

    def flush(self) -> None:
        """Flush to the file; raises CkptprofError."""
        with self._writing():
            if self._writer is not None:
                self._writer.flush()
                self._size_bytes = os.fstat(self._stream.fileno()).st_size

    def close(self) -> None:
        """Finish the file; a second call does nothing. Raises CkptprofError."""
        with self._writing():
            if self._writer is not None and not self._stream.closed:
                self._writer.close()
                self._stream.flush()
                self._size_bytes = os.fstat(self._stream.fileno()).st_size
            self._stream.close()

    def remove_unused(self) -> None:
        """Remove the file of a recording that did not start."""
        if self._is_new and not self.has_started:
            self._path.unlink(missing_ok=True)

    def report(self) -> None:
        if self._is_empty:
            self._say("nothing was recorded")
            return
        self._say(f"{self.summary()} in {self._path}")
        self._say(f"`ckptprof replay {shlex.quote(str(self._path))}` reports its checkpoints")

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            messages.info(text)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            hint = "nothing was written" if self._is_empty else "the part written so far can be replayed"
            raise CkptprofError(f"{self._path}: {error.strerror}", hint=hint) from error


def capture_host(path: Path, options: CaptureOptions) -> None:
    """Write frames of the whole host to `path` until the time has passed or a signal arrives; raises CkptprofError."""
    recording = _Recording(path, options, "this host")
    trap = SignalTrap({SIGTERM, SIGINT, SIGHUP})
    sampler = SamplerProcess(options.sampler_options(base_hz=HOST_HZ, burst_hz=2.5 * HOST_HZ, only_family=False))
    until = "until Ctrl-C" if options.seconds is None else f"for {options.seconds:g} s, or until Ctrl-C"
    progress = ProgressLine(quiet=options.quiet)

    def take(message: Header | Frame) -> None:
        if isinstance(message, Header):
            if (refused := levels.level_error(options.level, message)) is not None:
                raise refused
            recording.write(message)
            recording.start(message, until)
        else:
            recording.write(message)

    try:
        _record(Loop(sampler, trap, take), recording, progress)
    except SamplerLostError as error:
        hint = f"the recording so far is in {path}" if recording.has_started else "nothing was written"
        raise CkptprofError(str(error), hint=hint) from error
    finally:
        recording.remove_unused()
        sampler.kill()
        sampler.wait(2.0)
        trap.close()
        progress.clear()
    recording.report()


def _record(loop: Loop, recording: _Recording, progress: ProgressLine) -> None:
    flushed = time.monotonic()
    try:
        while not recording.has_ended:
            if loop.poll(recording.timeout_seconds):
                break
            if loop.has_ended:
                raise SamplerLostError("the sampler ended early")
            if time.monotonic() - flushed > FLUSH_SECONDS:
                recording.flush()
                flushed = time.monotonic()
            if recording.has_started:
                progress.show(f"{recording.summary()} (Ctrl-C ends it)")
        loop.drain(5.0)
    finally:
        recording.close()


def capture_command(path: Path, options: CaptureOptions, arguments: Sequence[str]) -> int:
    """Write frames of one command and its descendants to `path` until it ends; return its exit code.

    If the time passes before, the command continues. Raises NotStartedError and CkptprofError, nothing once it runs.
    """
    name = shorten_end(clean(shlex.join(arguments)), _NAME_CELLS)
    recording = _Recording(path, options, f"{name} and its descendants")
    trap = SignalTrap(TRAPPED)
    sampler = start_sampler(options.sampler_options(base_hz=BASE_HZ, burst_hz=BURST_HZ, only_family=True))
    until = "until it ends" if options.seconds is None else f"for {options.seconds:g} s"

    def ready(header: Header | None) -> None:
        if header is not None:
            recording.start(header, until)

    def take(message: Header | Frame) -> None:
        if not recording.has_ended:
            recording.write(message)

    attended = MonitoredCommand(sampler, trap, take, level=options.level, housekeeping=recording.flush)
    try:
        exit_code = attended.execute(arguments, ready=ready)
    except CkptprofError:
        recording.remove_unused()
        raise
    finally:
        if sampler is not None:
            sampler.stop()
            if sampler.wait(5.0) is None:
                sampler.kill()
        trap.close()
    try:
        recording.close()
    except CkptprofError as error:  # the command has run: its exit code matters more
        messages.warn(str(error))
    recording.report()
    return exit_code
