"""The recorder's loop, shared by `agent`, `run` and `capture`: waits for frames and signals, and keeps house."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from ckptprof.errors import RecordingError
from ckptprof.recording import Frame, Header
from ckptprof.service.sampling import SamplerProcess
from ckptprof.service.signals import Caught, SignalTrap

HOUSEKEEPING_SECONDS = 1.0
SILENCE_SECONDS = 20.0  # a sampler that says nothing for so long hangs: it speaks at least every five seconds


class SamplerLostError(Exception):
    """The sampler ended, hangs or talks nonsense; its text says which."""


class Loop:
    """Waits for one sampler and for signals."""

    def __init__(
        self, sampler: SamplerProcess, trap: SignalTrap | None, take: Callable[[Header | Frame], None]
    ) -> None:
        """`take` is given each message."""
        self.sampler = sampler
        self._trap = trap
        self._take = take
        self._heard = time.monotonic()
        self._kept_house = 0.0
        self.ended = False

    def turn(self, timeout_seconds: float = HOUSEKEEPING_SECONDS) -> list[Caught]:
        """Wait for something once and take it in; return the signals. Raises SamplerLostError."""
        waiting: list[SamplerProcess | SignalTrap] = [] if self.ended else [self.sampler]
        if self._trap is not None:
            waiting.append(self._trap)
        readable = select.select(waiting, [], [], timeout_seconds)[0]
        if self.sampler in readable:
            self._read()
        elif not self.ended and time.monotonic() - self._heard > SILENCE_SECONDS:
            raise SamplerLostError(f"the sampler has said nothing for {SILENCE_SECONDS:.0f} s")
        return self._trap.take() if self._trap is not None and self._trap in readable else []

    def _read(self) -> None:
        self._heard = time.monotonic()
        try:
            messages = self.sampler.read()
        except RecordingError as error:
            raise SamplerLostError(str(error)) from error
        if messages is None:
            self.ended = True
            return
        for message in messages:
            self._take(message)

    def house_due(self) -> bool:
        """Return whether a second has passed since it last said so."""
        now = time.monotonic()
        if now - self._kept_house < HOUSEKEEPING_SECONDS:
            return False
        self._kept_house = now
        return True

    def drain(self, patience_seconds: float) -> bool:
        """Ask the sampler to end and take in its last frames; return whether it ended in time."""
        self.sampler.stop()
        deadline = time.monotonic() + patience_seconds
        while not self.ended and time.monotonic() < deadline:
            try:
                if self.turn(0.2) and self._trap is not None:
                    break  # a signal: somebody has no patience at all
            except SamplerLostError:
                break
        if not self.ended:
            self.sampler.kill()
        self.sampler.wait(2.0)
        return self.ended
