"""How long a command waits for its sampler, and what happens if that does not come up."""

from __future__ import annotations

import time
from signal import SIGUSR1
from typing import Any

import pytest
from tests.service.test_levels import header

from ckptprof.service.commands import attended
from ckptprof.service.commands.attended import Attended
from ckptprof.service.recorder.signals import SignalTrap


class Starting:
    """A sampler that comes up after a time, and may be on a CPU until then; and the loop that listens to it."""

    def __init__(self, comes_s: float, *, runs: bool) -> None:
        """Begin to start now."""
        self._began, self._comes_s, self._runs = time.monotonic(), comes_s, runs
        self.sampler, self.ended = self, False
        self.attended: Any = None

    def cpu_seconds(self) -> float:
        """Return the time that it has had on a CPU."""
        return time.monotonic() - self._began if self._runs else 0.0

    def turn(self, timeout_seconds: float) -> list[Any]:
        """Wait a moment; nobody signals."""
        time.sleep(min(timeout_seconds, 0.02))
        if time.monotonic() - self._began > self._comes_s:
            self.attended._take(header("trace"))
        return []

    def house_due(self) -> bool:
        """Return whether a second is over."""
        return False

    def hold_patience(self) -> None:
        """Take it as alive."""


@pytest.mark.parametrize(("comes_s", "runs", "waited"), [(0.6, True, True), (0.6, False, False), (5.0, True, False)])
def test_a_sampler_is_waited_for_as_long_as_it_runs_but_not_for_ever(
    comes_s: float,
    runs: bool,  # noqa: FBT001 - a case
    waited: bool,  # noqa: FBT001 - a case
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Beside busy loops it takes longer than ten seconds for two of CPU; else the command begins, at trace, too."""
    monkeypatch.setattr(attended, "START_SECONDS", 0.3)
    monkeypatch.setattr(attended, "MOST_START_SECONDS", 1.2)
    trap, loop = SignalTrap({SIGUSR1}), Starting(comes_s, runs=runs)
    command: Any = Attended(None, trap, lambda _: None, level="trace")
    command._loop, loop.attended = loop, command
    try:
        command._await_sampler()
    finally:
        trap.close()

    assert (command._header is not None) == waited
    assert ("begins unwatched" in capfd.readouterr().err) != waited
