"""The newest save that could be restored: of the node, and of each run where the names of jobs are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from ckptprof.export.columns import Column, Labels, collect, unlabelled
from ckptprof.export.labels import UNKNOWN, clean
from ckptprof.model import Checkpoint, Kind

RUNS_CAP = 16


def _columns(prefix: str) -> tuple[Column[Checkpoint], ...]:
    return (
        Column[Checkpoint](
            f"{prefix}newest_restorable_step",
            "Step of the newest save that is whole, as far as was seen.",
            lambda save: save.step,
            kind="gauge",
        ),
        Column[Checkpoint](
            f"{prefix}newest_restorable_timestamp_seconds",
            "When that save began: what was trained since then, a failure loses.",
            lambda save: save.start_ns / 1e9,
            kind="gauge",
        ),
    )


_OF_NODE, _OF_RUN = _columns(""), _columns("run_")
_SAVES = Column[int]("run_saves_total", "Saves of a run in which this node had a part.", int)
_INFO = Column[Labels]("run_info", "The runs whose checkpoints were told last; always 1.", lambda _: 1, kind="gauge")


class Newest:
    """The newest of saves as they are told, some of them again with more known of them."""

    def __init__(self) -> None:
        self.save: Checkpoint | None = None
        self._earlier: Checkpoint | None = None

    def add(self, one: Checkpoint) -> None:
        """Take a checkpoint; one that turns out not to be whole gives its place back to the one before it."""
        if self.save is not None and self.save.uid == one.uid:
            self.save = one if one.is_restorable else self._earlier
        elif one.is_restorable and (self.save is None or one.start_ns >= self.save.start_ns):
            self._earlier, self.save = self.save, one

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the node, if there is a save."""
        return collect(_OF_NODE, unlabelled(self.save))


class _Run:
    def __init__(self) -> None:
        self.saves = 0
        self.newest = Newest()
        self.info: Labels = {}


class Runs:
    """The RUNS_CAP runs told last, by the keys that all of their nodes have for them.

    `dropped` counts how often one gave its place to another.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._runs: dict[str, _Run] = {}  # the one told longest ago first

    def add(self, one: Checkpoint, *, is_first: bool) -> None:
        """Take a save or restore; `is_first`: it was not told before."""
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
        """Yield the families, if there is a run."""
        yield from collect([_INFO], [(run.info, run.info) for run in self._runs.values()])
        yield from collect([_SAVES], [({"run": key}, run.saves) for key, run in self._runs.items()])
        newest = [({"run": key}, run.newest.save) for key, run in self._runs.items()]
        yield from collect(_OF_RUN, [(labels, save) for labels, save in newest if save is not None])
