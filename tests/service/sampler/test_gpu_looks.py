"""When GPUs are asked about: while somebody writes, once after, and never where nobody can answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ckptprof.service.sampler import burst_sampling as module
from ckptprof.service.sampler.burst_sampling import GPUS_INTERVAL_NS, GpuSampling
from ckptprof_collectors.samples import GpuUse, Sample, Unavailable

SECOND_NS = 1_000_000_000


class Looker:
    """Answers at once, as a driver that is well."""

    def __init__(self, reason: str | None = None) -> None:
        """Nothing asked yet."""
        self.asked: list[tuple[int, ...]] = []
        self._reason = reason

    def request(self, starts: Mapping[int, int]) -> bool:
        """Take note of who is asked about."""
        self.asked.append(tuple(sorted(starts)))
        return self._reason is None

    def consume(self) -> list[GpuUse]:
        """Return one look for each question."""
        return [GpuUse(100, 100, 0, ())] if self.asked and self._reason is None else []

    def failure_reason(self) -> str | None:
        """Return why not."""
        return self._reason


def looked(monkeypatch: pytest.MonkeyPatch, looker: Looker, until_s: float) -> list[tuple[float, Sample]]:
    """Return what is told in 20 s, while a child of a trainer writes from second 2 until another, beside an idler."""
    monkeypatch.setattr(module, "GpuSampler", lambda: looker)
    looks, told = GpuSampling(), []
    watched: dict[int, Any] = {
        pid: SimpleNamespace(
            process=SimpleNamespace(pid=pid, parent_pid=parent, start_ticks=pid), is_training=True, is_interpreter=True,
            last_write_ns=-SECOND_NS,
        )
        for pid, parent in ((100, 1), (200, 100), (300, 1))
    }  # fmt: skip
    for tick in range(20 * 25):
        now_ns = tick * SECOND_NS // 25
        if 2 <= now_ns / SECOND_NS < until_s:
            watched[200].last_write_ns = now_ns
        told += [(now_ns / SECOND_NS, sample) for sample in looks.sample(now_ns, list(watched.values()), watched)]
    return told


def test_the_writer_and_the_trainer_above_it_are_asked_about_while_it_writes_and_once_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is, before; and the driver keeps what was."""
    looker = Looker()

    told = looked(monkeypatch, looker, 8.0)

    assert set(looker.asked) == {(100, 200)}
    assert 6 * SECOND_NS // GPUS_INTERVAL_NS <= len(looker.asked) <= 10 * SECOND_NS // GPUS_INTERVAL_NS + 1
    assert min(at_s for at_s, _ in told) >= 2.0


def test_that_a_driver_refuses_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else."""
    told = [sample for _, sample in looked(monkeypatch, Looker("NVML: Not Supported"), 8.0)]

    assert told == [Unavailable("gpus", "NVML: Not Supported")]
