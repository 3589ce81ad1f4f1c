"""`ckptprof capture`: the frames of a sampler, written to a file as they come."""

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
from ckptprof.service.commands.attended import BASE_HZ, BURST_HZ, TRAPPED, Attended, start_sampler
from ckptprof.service.commands.target import open_target
from ckptprof.service.options import SamplerOptions, Wish
from ckptprof.service.progress import Progress
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.loop import Loop, SamplerLostError
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof.service.recorder.signals import SignalTrap
from ckptprof_collectors.samples import Frame, text

FLUSH_SECONDS = 1.0
HOST_HZ = 10.0
_NAME_CELLS = 60  # of the command that is recorded


@dataclass(frozen=True)
class Wanted:
    """How to record; by default at the rate of `ckptprof run`, or 10 per second for a whole host."""

    seconds: float | None = None  # None: until a signal, or until the command ends
    note: str = ""
    force: bool = False
    quiet: bool = False
    rate: float | None = None
    level: Wish = "auto"

    def sampling(self, *, base_hz: float, burst_hz: float, only_family: bool) -> SamplerOptions:
        """Options of the sampler."""
        return SamplerOptions(
            uid=new_uid(),
            level=self.level,
            only_family=only_family,
            base_hz=self.rate or base_hz,
            burst_hz=2.5 * self.rate if self.rate else burst_hz,
            monitor_pids=(os.getpid(),),
            note=text(os.fsencode(self.note)),
        )


class _Recording:
    """One recording, from its first line on stderr to its summary.

    An existing file keeps its contents until the header arrives.
    """

    def __init__(self, path: Path, wanted: Wanted, what: str) -> None:
        self._path = path
        self._wanted = wanted
        self._what = what  # is recorded
        self._new = True
        try:
            fd = open_target(path, 0o640, new=True)
        except FileExistsError:
            if path.is_dir():
                raise CkptprofError(f"{path}: {os.strerror(errno.EISDIR)}", hint="give the path of a file") from None
            if not wanted.force:
                raise CkptprofError(f"{path}: already exists", hint="use --force to overwrite it") from None
            self._new = False
            fd = open_target(path, 0o640)
        self._stream = os.fdopen(fd, "wb")
        self._writer: FileWriter | None = None
        self._started: float | None = None
        self._frames = 0
        self._size_bytes = 0  # as of the last flush; 0 of what is no regular file
        self._failed = False

    @property
    def begun(self) -> bool:
        return self._writer is not None

    @property
    def _is_empty(self) -> bool:
        return not self.begun or (self._failed and not self._size_bytes)

    @property
    def _seconds(self) -> float:
        return 0.0 if self._started is None else time.monotonic() - self._started

    @property
    def over(self) -> bool:
        return self._wanted.seconds is not None and self._seconds >= self._wanted.seconds

    @property
    def patience_seconds(self) -> float:
        """Timeout for the next frame, so that neither the end nor a flush is late."""
        return 1.0 if self._wanted.seconds is None else min(1.0, max(0.0, self._wanted.seconds - self._seconds))

    def so_far(self) -> str:
        seconds, frames = f"{self._seconds:.0f} s", units.plural(self._frames, "frame")
        return f"recorded {seconds}, {frames}, {units.size(self._size_bytes)}"

    def begin(self, header: Header, until: str) -> None:
        self._started = time.monotonic()  # without the start of the sampler
        level, *reasons = levels.describe(header)
        for line in (f"recording {self._what} at {level} to {self._path}, {until}", *reasons):
            self._say(line)

    def take(self, message: Header | Frame) -> None:
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

    def clear_away(self) -> None:
        """Remove the file of a recording that did not start."""
        if self._new and not self.begun:
            self._path.unlink(missing_ok=True)

    def end(self) -> None:
        if self._is_empty:
            self._say("nothing was recorded")
            return
        self._say(f"{self.so_far()} in {self._path}")
        self._say(f"`ckptprof replay {shlex.quote(str(self._path))}` reports its checkpoints")

    def _say(self, text: str) -> None:
        if not self._wanted.quiet:
            messages.say(text)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            hint = "nothing was written" if self._is_empty else "the part written so far can be replayed"
            raise CkptprofError(f"{self._path}: {error.strerror}", hint=hint) from error


def capture_host(path: Path, wanted: Wanted) -> None:
    """Write frames of the whole host to `path` until the time has passed or a signal arrives; raises CkptprofError."""
    recording = _Recording(path, wanted, "this host")
    trap = SignalTrap({SIGTERM, SIGINT, SIGHUP})
    sampler = SamplerProcess(wanted.sampling(base_hz=HOST_HZ, burst_hz=2.5 * HOST_HZ, only_family=False))
    until = "until Ctrl-C" if wanted.seconds is None else f"for {wanted.seconds:g} s, or until Ctrl-C"
    progress = Progress(quiet=wanted.quiet)

    def take(message: Header | Frame) -> None:
        if isinstance(message, Header):
            if (refused := levels.refusal(wanted.level, message)) is not None:
                raise refused
            recording.take(message)
            recording.begin(message, until)
        else:
            recording.take(message)

    try:
        _record(Loop(sampler, trap, take), recording, progress)
    except SamplerLostError as error:
        hint = f"the recording so far is in {path}" if recording.begun else "nothing was written"
        raise CkptprofError(str(error), hint=hint) from error
    finally:
        recording.clear_away()
        sampler.kill()
        sampler.wait(2.0)
        trap.close()
        progress.clear()
    recording.end()


def _record(loop: Loop, recording: _Recording, progress: Progress) -> None:
    flushed = time.monotonic()
    try:
        while not recording.over:
            if loop.turn(recording.patience_seconds):
                break
            if loop.ended:
                raise SamplerLostError("the sampler ended early")
            if time.monotonic() - flushed > FLUSH_SECONDS:
                recording.flush()
                flushed = time.monotonic()
            if recording.begun:
                progress.tell(f"{recording.so_far()} (Ctrl-C ends it)")
        loop.drain(5.0)
    finally:
        recording.close()


def capture_command(path: Path, wanted: Wanted, arguments: Sequence[str]) -> int:
    """Write frames of one command and its descendants to `path` until it ends; return its exit code.

    If the time passes before, the command continues. Raises NotStartedError and CkptprofError, nothing once it runs.
    """
    name = shorten_end(clean(shlex.join(arguments)), _NAME_CELLS)
    recording = _Recording(path, wanted, f"{name} and its descendants")
    trap = SignalTrap(TRAPPED)
    sampler = start_sampler(wanted.sampling(base_hz=BASE_HZ, burst_hz=BURST_HZ, only_family=True))
    until = "until it ends" if wanted.seconds is None else f"for {wanted.seconds:g} s"

    def ready(header: Header | None) -> None:
        if header is not None:
            recording.begin(header, until)

    def take(message: Header | Frame) -> None:
        if not recording.over:
            recording.take(message)

    attended = Attended(sampler, trap, take, level=wanted.level, keep_house=recording.flush)
    try:
        exit_code = attended.execute(arguments, ready=ready)
    except CkptprofError:
        recording.clear_away()
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
    recording.end()
    return exit_code
