"""The recorder's loop, shared by `agent`, `run` and `capture`: waits for frames, signals and housekeeping."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Iterator
from signal import SIGHUP, SIGINT, SIGQUIT, SIGTERM

from ckptprof.errors import CkptprofError, RecordingError
from ckptprof.recording import Frame, Header
from ckptprof.service.recorder.samplerprocess import SamplerProcess
from ckptprof.service.recorder.signals import CaughtSignal, SignalTrap

HOUSEKEEPING_SECONDS = 1.0
START_SECONDS = 90.0  # until its first message a sampler may compute for so long
SILENCE_SECONDS = 20.0  # a sampler without a message for so long hangs: it sends one at least every five seconds
GRACE_SECONDS = 0.5  # one Ctrl-C or `timeout` may arrive as two signals: only a later one means haste
REST_SECONDS = 0.25  # between two reads of more frequent frames: a wake-up costs more than a frame
STEP_SECONDS = 0.5  # of waiting frames: then it polls for signals
ENDING_SIGNALS = frozenset((SIGHUP, SIGINT, SIGQUIT, SIGTERM))


class SamplerLostError(Exception):
    """The sampler ended, hangs or sent an invalid message; the text says which."""


class Loop:
    """Waits for one sampler and for signals."""

    def __init__(
        self, sampler: SamplerProcess, trap: SignalTrap | None, on_message: Callable[[Header | Frame], None]
    ) -> None:
        self.sampler = sampler
        self._trap = trap
        self._on_message = on_message
        self.silent_seconds = self._cpu_seconds = 0.0  # while it starts only waits without CPU time are silent
        self._starting_seconds = START_SECONDS  # left
        self._waiting: Iterator[Header | Frame] | None = None  # received, not processed yet
        self._last_housekeeping = 0.0
        self._rest_seconds = REST_SECONDS
        self._read_at = self._rests_until = 0.0
        self.has_ended = False
        self.is_hurried = False  # another signal arrived while it drained

    def poll(self, timeout_seconds: float = HOUSEKEEPING_SECONDS) -> list[CaughtSignal]:
        """Wait once and process messages; return the signals. Raises SamplerLostError."""
        trap_fd = -1 if self._trap is None else self._trap.fileno()
        sampler_fd = -1 if self.has_ended else self.sampler.fileno()
        resting_seconds = min(self._rests_until - time.monotonic(), timeout_seconds)
        if self._waiting is None and resting_seconds > 0 and _readable((trap_fd,), resting_seconds) and self._trap:
            return self._trap.pop_all()
        started = time.monotonic()
        readable = _readable((sampler_fd, trap_fd), timeout_seconds if self._waiting is None else 0.0)
        if self._waiting is not None:
            self._process_waiting(self._waiting)
        elif sampler_fd in readable:
            self._read()
        elif not self.has_ended:
            # Only the time waited for counts: after Ctrl-Z or a pause of the machine only the clock has advanced
            waited_seconds = min(time.monotonic() - started, timeout_seconds)
            self.silent_seconds += waited_seconds
            self._starting_seconds -= waited_seconds
            cpu_seconds = self.sampler.cpu_seconds() if self._starting_seconds > 0 else 0.0
            if cpu_seconds > self._cpu_seconds:  # on a slow or crowded host the start takes longer
                self.silent_seconds, self._cpu_seconds = 0.0, cpu_seconds
            if self.silent_seconds > SILENCE_SECONDS:
                raise SamplerLostError(f"no message from the sampler for {SILENCE_SECONDS:.0f} s")
        return self._trap.pop_all() if self._trap is not None and trap_fd in readable else []

    def _read(self) -> None:
        self.silent_seconds = self._starting_seconds = 0.0
        read_at, self._read_at = self._read_at, time.monotonic()
        is_often = self._read_at - read_at < 1.5 * self._rest_seconds
        self._waiting = self.sampler.read()
        self._rests_until = self._read_at + self._rest_seconds if is_often and not self.sampler.has_backlog else 0.0
        if self._waiting is None:
            self.has_ended = True
            return
        self._process_waiting(self._waiting)

    def _process_waiting(self, waiting: Iterator[Header | Frame]) -> None:
        until = time.monotonic() + STEP_SECONDS
        try:
            for message in waiting:
                self._on_message(message)
                del message  # before the next one is made
                if time.monotonic() > until:
                    return
            self._waiting = None
        except RecordingError as error:
            raise SamplerLostError(str(error)) from error
        except CkptprofError:
            raise  # has its own clear line
        except Exception as error:  # the monitored command must outlive a fault of ours
            raise SamplerLostError(f"a frame could not be processed: {type(error).__name__}: {error}") from error

    def housekeeping_due(self) -> bool:
        """Whether a second has passed since it was last true."""
        now = time.monotonic()
        if now - self._last_housekeeping < HOUSEKEEPING_SECONDS:
            return False
        self._last_housekeeping = now
        return True

    def drain(self, patience_seconds: float) -> bool:
        """Stop the sampler and process its last frames; return whether it ended in time and without another signal."""
        self.sampler.stop()
        self._rest_seconds = self._rests_until = 0.0
        started = time.monotonic()
        while not self.has_ended and time.monotonic() - started < patience_seconds:
            try:
                caught = self.poll(0.2)
            except SamplerLostError:
                break
            if time.monotonic() - started > GRACE_SECONDS and any(signal.number in ENDING_SIGNALS for signal in caught):
                self.is_hurried = True
                break
        if not self.has_ended:
            self.sampler.kill()
        self.sampler.wait(2.0)
        return self.has_ended


def _readable(fds: Iterable[int], timeout_seconds: float) -> set[int]:
    """Wait until one of them can be read, and return those that can; negative ones are ignored."""
    poll = select.poll()  # select(2) accepts no descriptor above 1023, and a parent may pass us many
    for fd in fds:
        if fd >= 0:
            poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(timeout_seconds * 1000)}
