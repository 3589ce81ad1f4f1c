"""What is known beside a candidate itself when it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.events.past_events import PastEvents
from ckptprof.detect.transfers.recent import RecentTransfers
from ckptprof.detect.transfers.traced_streams import TracedStreams
from ckptprof.detect.world.devices import Devices
from ckptprof.detect.world.jobs import Jobs
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory
from ckptprof.detect.world.process_kinds import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES
from ckptprof.detect.world.threads import ThreadLooks
from ckptprof.detect.world.training_threads import TrainingThreads


@dataclass(frozen=True)
class Context:
    """The books of the detector, as its signs read them."""

    jobs: Jobs
    histories: dict[ProcessKey, ProcessHistory]
    memory: PastEvents
    traced: TracedStreams
    trainers: TrainingThreads
    threads: ThreadLooks = field(default_factory=ThreadLooks)
    moves: RecentTransfers = field(default_factory=RecentTransfers)
    devices: Devices = field(default_factory=Devices)
    ended: dict[ProcessKey, int] = field(default_factory=dict)  # processes that are gone, and since when
    memo: dict[int, str | None] = field(default_factory=dict)  # of the candidate that is being judged: its framework

    def runtimes(self, processes: list[ProcessKey]) -> frozenset[str] | None:
        """Return what some processes have loaded, short-lived forks what their parent has; None: none was described."""
        infos = [info for process in processes if (info := self.jobs.forked_by(process)) is not None]
        return frozenset(name for info in infos for name in info.runtimes) if infos else None

    def trains(self, processes: list[ProcessKey]) -> bool:
        """Return whether one of them has a library for training loaded, holds a GPU, or carries a rank."""
        loaded = self.runtimes(processes) or frozenset()
        return bool(loaded & (TRAINING_RUNTIMES | GPU_RUNTIMES)) or any(
            self.jobs.rank(process) is not None for process in processes
        )

    def is_alien(self, processes: list[ProcessKey]) -> bool:
        """Return whether they were described, and none has any library of machine learning loaded."""
        loaded = self.runtimes(processes)
        return loaded is not None and not loaded & (TRAINING_RUNTIMES | GPU_RUNTIMES | NUMERIC_RUNTIMES)

    def may_save(self, process: ProcessKey) -> bool:
        """Return whether it has a library for it, or trains."""
        return bool(self.runtimes([process])) or self.trains([process])

    def may_restore(self, process: ProcessKey, path: str) -> bool:
        """Return whether it may have read what was seen being saved: with a library for it, and as no tool."""
        if not self.memory.was_saved(path):
            return False
        loaded = self.runtimes([process])
        return bool(loaded and loaded & (TRAINING_RUNTIMES | GPU_RUNTIMES | NUMERIC_RUNTIMES)) and not (
            self.jobs.is_tool(process)
        )

    def programs(self, processes: list[ProcessKey]) -> frozenset[str]:
        """Return the programs that they run, as far as they were described."""
        infos = (self.jobs.info(process) for process in processes)
        return frozenset(info.program for info in infos if info is not None)
