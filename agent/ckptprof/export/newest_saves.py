"""The newest restorable save: of the node, and with --job-names of each run."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from ckptprof.export.columns import Labels, MetricColumn, collect, unlabelled
from ckptprof.export.labels import UNKNOWN, clean
from ckptprof.model import Checkpoint, Kind

RUNS_CAP = 16


def _columns(prefix: str) -> tuple[MetricColumn[Checkpoint], ...]:
    return (
        MetricColumn[Checkpoint](
            f"{prefix}newest_restorable_step",
            "Step of the newest restorable save.",
            lambda save: save.step,
            kind="gauge",
        ),
        MetricColumn[Checkpoint](
            f"{prefix}newest_restorable_timestamp_seconds",
            "Start of the newest restorable save.",
            lambda save: save.start_ns / 1e9,
            kind="gauge",
        ),
    )


_OF_NODE, _OF_RUN = _columns(""), _columns("run_")
_SAVES = MetricColumn[int]("run_saves_total", "Saves of a run with data from this node.", int)
_INFO = MetricColumn[Labels]("run_info", "The runs with the latest checkpoints; always 1.", lambda _: 1, kind="gauge")


class NewestSave:
    """The newest restorable save; saves may arrive again as revisions."""

    def __init__(self) -> None:
        self.save: Checkpoint | None = None
        self._earlier: Checkpoint | None = None

    def add(self, one: Checkpoint) -> None:
        """Add a checkpoint; a revision that is not restorable falls back to the previous save."""
        if self.save is not None and self.save.uid == one.uid:
            self.save = one if one.is_restorable else self._earlier
        elif one.is_restorable and (self.save is None or one.start_ns >= self.save.start_ns):
            self._earlier, self.save = self.save, one

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the node."""
        return collect(_OF_NODE, unlabelled(self.save))


class _Run:
    def __init__(self) -> None:
        self.saves = 0
        self.newest = NewestSave()
        self.info: Labels = {}


class Runs:
    """The RUNS_CAP runs with the latest checkpoints, by run key; `dropped` counts evictions."""

    def __init__(self) -> None:
        self.dropped = 0
        self._runs: dict[str, _Run] = {}  # least recent first

    def add(self, one: Checkpoint, *, is_first: bool) -> None:
        """Add a save or restore; `is_first`: not a revision."""
        if one.run is None or one.kind is Kind.COPY:
            return
        key = clean(one.run.key)
        run = self._runs.pop(key, None)
        if run is None:
            run = _Run()
            if len(self._runs) >= RUNS_CAP:
                del self._runs[next(iter(self._runs))]
                self.dropped += 1
        self._runs[key] = run
        run.saves += is_first and one.kind is Kind.SAVE
        run.newest.add(one)
        run.info = {
            "run": key,
            "training_job": clean(one.job),
            "hpc_job": UNKNOWN if one.run.job is None else clean(one.run.job),
            "nodes": UNKNOWN if one.run.nodes is None else str(one.run.nodes),
        }

    def collect(self) -> Iterator[Metric]:
        """Yield the families of runs."""
        yield from collect([_INFO], [(run.info, run.info) for run in self._runs.values()])
        yield from collect([_SAVES], [({"run": key}, run.saves) for key, run in self._runs.items()])
        newest = [({"run": key}, run.newest.save) for key, run in self._runs.items()]
        yield from collect(_OF_RUN, [(labels, save) for labels, save in newest if save is not None])
