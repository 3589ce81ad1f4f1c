"""What is known beside a candidate itself when it is judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.devices import DeviceBook
from ckptprof.detect.intervals import History
from ckptprof.detect.jobs import JobBook
from ckptprof.detect.lineage import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES
from ckptprof.detect.memory import Memory
from ckptprof.detect.moves import MoveBook
from ckptprof.detect.streams import ProcessKey
from ckptprof.detect.threadbook import ThreadBook
from ckptprof.detect.tracebook import TraceBook
from ckptprof.detect.trainers import TrainerBook


@dataclass(frozen=True)
class Surroundings:
    """The books of the detector, as its signs read them."""

    jobs: JobBook
    histories: dict[ProcessKey, History]
    memory: Memory
    traced: TraceBook
    trainers: TrainerBook
    threads: ThreadBook = field(default_factory=ThreadBook)
    moves: MoveBook = field(default_factory=MoveBook)
    devices: DeviceBook = field(default_factory=DeviceBook)
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
