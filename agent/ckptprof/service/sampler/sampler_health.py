"""Costs, lateness and failures of the sampler's own work."""

from __future__ import annotations

import time

from ckptprof.service.sampler.burst_sampling import BurstSampling
from ckptprof.service.sampler.governor import Governor
from ckptprof.service.sampler.outputqueue import OutputQueue
from ckptprof.service.sampler.population import Population
from ckptprof_collectors.abandoned import ABANDONED
from ckptprof_collectors.blocking_processes import BLOCKING_PROCESSES
from ckptprof_collectors.files.workers import WORKERS
from ckptprof_collectors.process_facts import own_memory_bytes
from ckptprof_collectors.samples import CollectorFault, SamplerHealth

_LATE_NS = 5_000_000
_STARVED_NS = 250_000_000  # two and a half ticks of a training process: shorter events may be missed


class HealthCounters:
    """Counts since the sampler started."""

    def __init__(self) -> None:
        self._ticks = self._late = self._lateness_ns = self._starved_ns = 0
        self._read_ns: dict[str, int] = {}
        self._faults: dict[str, int] = {}
        self._last_reasons: dict[str, str] = {}

    def record_tick(self, lateness_ns: int) -> bool:
        """Count one tick and its lateness; return whether health is to be reported at once."""
        self._ticks += 1
        self._late += lateness_ns > _LATE_NS
        self._lateness_ns += max(0, lateness_ns)
        if lateness_ns < _STARVED_NS:
            return False
        self._starved_ns += lateness_ns
        return True

    def add_cost(self, name: str, spent_ns: int) -> None:
        """Add time spent on one kind of reading."""
        self._read_ns[name] = self._read_ns.get(name, 0) + spent_ns

    def record_failure(self, name: str, error: Exception) -> list[CollectorFault]:
        """Count a failure; return it for the report, once for each reason."""
        reason = f"{type(error).__name__}: {error}"
        self._faults[name] = self._faults.get(name, 0) + 1
        if self._last_reasons.get(name) == reason:
            return []
        self._last_reasons[name] = reason
        return [CollectorFault(name, reason)]

    def record_success(self, name: str) -> None:
        """Record that a collector works again: its next failure is reported."""
        self._last_reasons.pop(name, None)

    def set_failures(self, name: str, failures: int) -> None:
        """Set the total of failures that `name` counts itself."""
        if failures:
            self._faults[name] = failures

    def snapshot(
        self, output: OutputQueue, population: Population, sampling: BurstSampling, governor: Governor, lost: int
    ) -> SamplerHealth:
        """Return the current health of the whole sampler; `lost`: events of folders."""
        return SamplerHealth(
            ticks=self._ticks,
            late_ticks=self._late,
            lateness_ns=self._lateness_ns,
            dropped_frames=output.dropped_count,
            cpu_ns=time.process_time_ns(),
            rss_bytes=own_memory_bytes(),
            watched_processes=len(population.watched),
            known_processes=len(population.known),
            read_ns=dict(self._read_ns),
            faults=dict(self._faults),
            hung_lookups=len(WORKERS.hung_domains()) + len(BLOCKING_PROCESSES),
            refused_lookups=WORKERS.refused + sampling.missed,
            starved_ns=self._starved_ns,
            abandoned=ABANDONED.count(),
            left_out=governor.left_out | {"files": sum(one.refused for one in population.others.values())},
            lost_folder_events=lost,
        )
