"""`ckptprof capture`: the frames of a sampler, written to a file as they come."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM

from ckptprof.errors import CkptprofError, PermissionDeniedError
from ckptprof.recording import FileWriter, Header
from ckptprof.service import levels, messages
from ckptprof.service.loop import Loop, SamplerLostError
from ckptprof.service.sampling import SamplerProcess, new_uid
from ckptprof.service.signals import SignalTrap
from ckptprof.service.steering import SamplerOptions
from ckptprof.service.tracing import Wish
from ckptprof_collectors.samples import Frame, text

FLUSH_SECONDS = 1.0


class _Sink:
    """Writes the messages of one sampler, header first."""

    def __init__(self, path: Path, *, force: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if force else os.O_EXCL)
        self.path = path
        try:
            self._stream = os.fdopen(os.open(path, flags, 0o640), "wb")
        except FileExistsError:
            raise CkptprofError(f"{path}: exists already", hint="use --force to overwrite it") from None
        except PermissionError as error:
            raise PermissionDeniedError(f"{path}: {error.strerror}") from error
        except OSError as error:
            raise CkptprofError(f"{path}: {error.strerror}") from error
        self._writer: FileWriter | None = None
        self.frames = 0

    def take(self, message: Header | Frame) -> None:
        try:
            if isinstance(message, Header):
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
            path.unlink(missing_ok=True)  # nothing is in it
            raise refused
        sink.take(message)

    try:
        _record(Loop(sampler, trap, take), sink, seconds)
    except SamplerLostError as error:
        raise CkptprofError(str(error), hint=f"what came before is in {path}") from error
    finally:
        sampler.kill()
        sampler.wait(2.0)
        trap.close()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    messages.say(f"{sink.frames} frames in {time.monotonic() - started:.0f} s, {path.stat().st_size} bytes in {path}")


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
