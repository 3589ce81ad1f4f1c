"""Starting, controlling and ending the sampler process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator

import msgspec
import psutil

from ckptprof.recording import Frame, Header, Unpacker
from ckptprof.service.sampler_options import SamplerControl, SamplerOptions

PIPE_BYTES = 1 << 20
READ_BYTES = 64 << 10  # a larger buffer would be a mapping of its own at each read
MAX_CONTROL_BYTES = 32 << 10  # a pipe takes 64 KiB
_F_SETPIPE_SZ = 1031  # include/uapi/linux/fcntl.h; in Python's fcntl since 3.10 under another name
# -I and -S keep the working directory, the user's site and PYTHON* variables out of a process that may have
# capabilities; the parent's search path is passed instead.
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from ckptprof.service.sampler.entry_point import main; main()"
)


def new_uid() -> str:
    """Return a unique name for one sampler process."""
    return str(uuid.uuid4())


class SamplerProcess:
    """The child process that samples; poll `fileno()` for its frames."""

    def __init__(self, options: SamplerOptions, *, witness: Iterable[int] = ()) -> None:
        """Start it; raises OSError. As a `witness` of these signals it stays in our process group."""
        self._witness_fd = -1
        child_fd = -1
        if numbers := tuple(sorted(witness)):
            self._witness_fd, child_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            options = msgspec.structs.replace(options, witness_fd=child_fd, witness_signals=numbers)
        path = [folder for folder in sys.path if folder.startswith("/")]  # "" means another folder there
        arguments = [sys.executable, "-I", "-S", "-c", _BOOT, json.dumps(path), msgspec.json.encode(options).decode()]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter with our own code
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=2,  # explicit, so that a /dev/null in its place is inherited too
                start_new_session=not numbers,  # signals of the terminal are for the command, not for us
                pass_fds=(child_fd,) if numbers else (),
                cwd="/",
            )
        except OSError:
            self._forget_witness()
            raise
        finally:
            if child_fd >= 0:
                os.close(child_fd)
        self._unpacker = Unpacker()
        self.pid = self._process.pid
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        self._fd = self._process.stdout.fileno()
        os.set_blocking(self._fd, False)
        with contextlib.suppress(OSError):  # the user's limit for pipes; the sampler's own queue is larger
            fcntl.fcntl(self._fd, _F_SETPIPE_SZ, PIPE_BYTES)
        self._pipe_bytes = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
        self.has_backlog = False  # the last read found the pipe half full: do not rest

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._fd

    def read(self) -> Iterator[Header | Frame] | None:
        """Return the received messages, possibly none; None at the end. Iteration raises RecordingError."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return iter(())
        self.has_backlog = 2 * len(data) >= min(self._pipe_bytes, READ_BYTES)
        return self._unpacker.feed(data) if data else None

    def witnessed(self) -> bytes:
        """Return the numbers of the signals that it received since the last call, a byte each."""
        if self._witness_fd >= 0:
            with contextlib.suppress(BlockingIOError):
                return os.read(self._witness_fd, 4096)
        return b""

    def cpu_seconds(self) -> float:
        """Return its CPU time so far, user and system; 0 once it has ended."""
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def _forget_witness(self) -> None:
        if self._witness_fd >= 0:
            os.close(self._witness_fd)
            self._witness_fd = -1

    def control(self, message: SamplerControl) -> None:
        """Send a control line; an ended sampler is detected elsewhere.

        Never blocks: if the folders exceed the pipe, the last ones, the oldest, are left out.
        """
        line = msgspec.json.encode(message) + b"\n"
        while len(line) > MAX_CONTROL_BYTES and message.folders:
            message = msgspec.structs.replace(message, folders=message.folders[: len(message.folders) // 2])
            line = msgspec.json.encode(message) + b"\n"
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line)
                self._process.stdin.flush()

    def stop(self) -> None:
        """Request its end after a last sample; its last frames are still to be read."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def wait(self, timeout_seconds: float) -> int | None:
        """Return its exit code; None after the timeout."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if self._process.returncode is not None and self._process.stdout is not None:
                self._process.stdout.close()
                self._forget_witness()
