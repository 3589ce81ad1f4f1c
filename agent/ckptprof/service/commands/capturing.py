"""`ckptprof capture`: the frames of a sampler, written to a file as they come."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM

from ckptprof.errors import CkptprofError
from ckptprof.recording import FileWriter, Header
from ckptprof.service.commands import levels
from ckptprof.service.commands.target import open_target
from ckptprof.service.options import SamplerOptions, Wish
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.loop import Loop, SamplerLostError
from ckptprof.service.recorder.samplerprocess import SamplerProcess, new_uid
from ckptprof.service.recorder.signals import SignalTrap
from ckptprof_collectors.samples import Frame, text

FLUSH_SECONDS = 1.0


class _Sink:
    """Writes the messages of one sampler, header first; until that comes, what is in the file stays."""

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path = path
        self._new = True
        try:
            fd = open_target(path, 0o640, new=True)
        except FileExistsError:
            if path.is_dir():
                raise CkptprofError(f"{path}: {os.strerror(errno.EISDIR)}", hint="give the path of a file") from None
            if not force:
                raise CkptprofError(f"{path}: exists already", hint="use --force to overwrite it") from None
            self._new = False
            fd = open_target(path, 0o640)
        self._stream = os.fdopen(fd, "wb")
        self._writer: FileWriter | None = None
        self.frames = 0

    @property
    def begun(self) -> bool:
        return self._writer is not None

    def take(self, message: Header | Frame) -> None:
        try:
            if isinstance(message, Header):
                if stat.S_ISREG(os.fstat(self._stream.fileno()).st_mode):
                    self._stream.truncate(0)
                self._writer = FileWriter(self._stream, message)
            elif self._writer is not None:
                self._writer.write(message)
                self.frames += 1
        except OSError as error:
            raise self._failure(error) from error

    def flush(self) -> None:
        try:
            if self._writer is not None:
                self._writer.flush()
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            self._stream.close()
        except OSError as error:
            raise self._failure(error) from error

    def clear_away(self) -> None:
        """Remove the file that was made for a recording that did not begin."""
        if self._new and not self.begun:
            self.path.unlink(missing_ok=True)

    def _failure(self, error: OSError) -> CkptprofError:
        return CkptprofError(f"{self.path}: {error.strerror}", hint="what was written before can be replayed")


def capture(  # noqa: PLR0913 - each is an option of the command line
    path: Path, *, seconds: float | None, note: str, force: bool, rate: float, level: Wish = "poll"
) -> None:
    """Write frames to `path` until the time is over or a signal comes; raises CkptprofError."""
    trap = SignalTrap({SIGTERM, SIGINT, SIGHUP})
    sink = _Sink(path, force=force)
    sampler = SamplerProcess(
        SamplerOptions(
            uid=new_uid(),
            level=level,
            base_hz=rate,
            burst_hz=2.5 * rate,
            monitor_pids=(os.getpid(),),
            note=text(os.fsencode(note)),
        )
    )
    started = time.monotonic()

    def take(message: Header | Frame) -> None:
        if isinstance(message, Header) and (refused := levels.refusal(level, message)) is not None:
            raise refused
        sink.take(message)

    try:
        _record(Loop(sampler, trap, take), sink, seconds)
    except SamplerLostError as error:
        hint = f"what came before is in {path}" if sink.begun else "nothing was written"
        raise CkptprofError(str(error), hint=hint) from error
    finally:
        sink.clear_away()
        sampler.kill()
        sampler.wait(2.0)
        trap.close()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    written = f"{path.stat().st_size} bytes in {path}" if sink.begun else "nothing was written"
    messages.say(f"{sink.frames} frames in {time.monotonic() - started:.0f} s, {written}")


def _record(loop: Loop, sink: _Sink, seconds: float | None) -> None:
    started = flushed = time.monotonic()
    try:
        while seconds is None or time.monotonic() - started < seconds:
            left = 1.0 if seconds is None else min(1.0, max(0.0, started + seconds - time.monotonic()))
            if loop.turn(left):
                break
            if loop.ended:
                raise SamplerLostError("the sampler ended before its time")
            if time.monotonic() - flushed > FLUSH_SECONDS:
                sink.flush()
                flushed = time.monotonic()
            _progress(sink, time.monotonic() - started)
        loop.drain(5.0)
    finally:
        sink.close()


def _progress(sink: _Sink, elapsed: float) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rrecording: {elapsed:.0f} s, {sink.frames} frames (Ctrl-C ends it)\x1b[K")
        sys.stderr.flush()
