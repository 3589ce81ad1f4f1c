"""How long a command waits for its sampler, and what happens if that does not come up."""

from __future__ import annotations

from signal import SIGUSR1
from types import SimpleNamespace
from typing import Any

import pytest
from tests.service.test_levels import header

from ckptprof.service.commands import monitored_command
from ckptprof.service.commands.monitored_command import MonitoredCommand
from ckptprof.service.recorder.signals import SignalTrap


class Starting:
    """A sampler that comes up after a time, and may be on a CPU until then; its loop, and its clock."""

    def __init__(self, comes_s: float, *, runs: bool) -> None:
        """Begin to start now."""
        self.now, self._comes_s, self._runs = 0.0, comes_s, runs
        self.has_ended = False
        self.attended: Any = None

    @property
    def silent_seconds(self) -> float:
        """Return how long it has had no time on a CPU."""
        return 0.0 if self._runs else self.now

    def poll(self, timeout_seconds: float) -> list[Any]:
        """Let the time pass; nobody signals."""
        self.now += timeout_seconds
        if self.now > self._comes_s:
            self.attended._ingest(header("trace"))
        return []

    def housekeeping_due(self) -> bool:
        """Return whether a second is over."""
        return False


@pytest.mark.parametrize(("comes_s", "runs", "waited"), [(20.0, True, True), (20.0, False, False), (90.0, True, False)])
def test_a_sampler_is_waited_for_as_long_as_it_runs_but_not_for_ever(
    comes_s: float,
    runs: bool,  # noqa: FBT001 - a case
    waited: bool,  # noqa: FBT001 - a case
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Beside busy loops it takes longer than ten seconds for two of CPU; else the command begins, at trace, too."""
    trap, loop = SignalTrap({SIGUSR1}), Starting(comes_s, runs=runs)
    monkeypatch.setattr(monitored_command, "time", SimpleNamespace(monotonic=lambda: loop.now))
    command: Any = MonitoredCommand(None, trap, lambda _: None, level="trace")
    command._loop, loop.attended = loop, command
    try:
        command._await_sampler()
    finally:
        trap.close()

    assert (command._header is not None) == waited
    assert ("starts without monitoring" in capfd.readouterr().err) != waited
