"""No sampler is started beside three that hang in the kernel; one that ends makes room for another."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ckptprof.service.commands.agent_service import MAX_STUCK, Agent, AgentOptions


class Unkillable:
    """Stands for a sampler in an uninterruptible call: it does not end when killed, until it is let go."""

    pid = 7

    def __init__(self) -> None:
        """Hang."""
        self.ended = threading.Event()

    def kill(self) -> None:
        """Nothing comes of it."""

    def wait(self, timeout_seconds: float) -> int | None:
        """Return an exit code once it is let go."""
        return -9 if self.ended.wait(min(timeout_seconds, 0.01)) else None


class Holder:
    """Stands for what `_replace_sampler` needs of a loop, a trap and a recorder."""

    def __init__(self, sampler: Unkillable, events: list[str]) -> None:
        """Take the sampler that was lost."""
        self.sampler = sampler
        self.events = events

    def pop_all(self) -> list[Any]:
        """No signal comes."""
        return []

    def housekeeping(self, _: int, *, sampler_restarts: int, samplers_stuck: int) -> None:
        """Let one go, as soon as all are said to be stuck."""
        assert sampler_restarts == 1
        if samplers_stuck == MAX_STUCK:
            self.events.append("let go")
            self.sampler.ended.set()


def test_three_that_hang_are_not_made_four(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The fourth is started when one of them has ended, and the number is told meanwhile."""
    agent: Any = Agent(AgentOptions(db="unused", serve=False))
    samplers = [Unkillable() for _ in range(MAX_STUCK)]
    events: list[str] = []

    def start() -> str:
        events.append("started")
        return "another"

    monkeypatch.setattr(agent, "_start_sampler", start)
    agent._stuck_samplers = list(samplers[:-1])
    holder = Holder(samplers[-1], events)
    got = agent._replace_sampler(holder, "it hangs", holder, holder)

    assert got == "another"
    assert events == ["let go", "started"]
    assert "nothing is recorded until one of them exits" in capfd.readouterr().err
