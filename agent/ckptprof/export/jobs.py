"""The names of jobs, which only an agent that is asked for them exports: those whose checkpoints were told last."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from ckptprof.export.columns import Column, Labels, collect
from ckptprof.export.labels import UNKNOWN, clean
from ckptprof.model import Checkpoint, Kind

JOBS_CAP = 16
_INFO = Column[Labels](
    "training_job_info", "The jobs whose checkpoints were told last; always 1.", lambda _: 1, kind="gauge"
)


class JobNames:
    """The last JOBS_CAP jobs; `dropped` counts how often one gave its place to another."""

    def __init__(self) -> None:
        self.dropped = 0
        self._jobs: dict[str, Labels] = {}  # the one told longest ago first

    def add(self, checkpoint: Checkpoint) -> None:
        """Take the job of a save or restore; what this one does not tell of it stays as it was."""
        if checkpoint.kind is Kind.COPY:
            return
        name = clean(checkpoint.job)
        labels = self._jobs.pop(name, {"training_job": name, "framework": UNKNOWN, "ranks": UNKNOWN}).copy()
        if checkpoint.framework is not None:
            labels["framework"] = clean(checkpoint.framework)
        if checkpoint.ranks is not None:
            labels["ranks"] = str(checkpoint.ranks)
        if len(self._jobs) >= JOBS_CAP:
            del self._jobs[next(iter(self._jobs))]
            self.dropped += 1
        self._jobs[name] = labels

    def collect(self) -> Iterator[Metric]:
        """Yield the family, if there is a job."""
        return collect([_INFO], [(labels, labels) for labels in self._jobs.values()])
