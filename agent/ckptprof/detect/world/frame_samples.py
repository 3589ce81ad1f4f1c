"""The samples of one frame that tell of processes and files, by kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.world.keys import ProcessKey
from ckptprof_collectors.samples import (
    FileActivity,
    FileEvent,
    FileFact,
    FileLifeEvent,
    FileScan,
    GpuUse,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    Sample,
    StackSample,
    ThreadLook,
    ThreadTime,
    TraceHealth,
)


@dataclass(slots=True)
class FrameSamples:
    """The samples of one frame that tell of processes, by kind."""

    ios: dict[ProcessKey, ProcessIo] = field(default_factory=dict)
    stats: dict[ProcessKey, ProcessStat] = field(default_factory=dict)
    scans: list[FileScan] = field(default_factory=list)
    exits: list[ProcessExit] = field(default_factory=list)
    facts: list[FileFact] = field(default_factory=list)
    infos: list[ProcessInfo] = field(default_factory=list)
    events: list[FileEvent] = field(default_factory=list)
    activities: list[FileActivity] = field(default_factory=list)
    lives: list[FileLifeEvent] = field(default_factory=list)
    healths: list[TraceHealth] = field(default_factory=list)
    times: list[ThreadTime] = field(default_factory=list)
    stacks: list[StackSample] = field(default_factory=list)
    looks: list[ThreadLook] = field(default_factory=list)
    gpus: list[GpuUse] = field(default_factory=list)

    def sort(self, sample: Sample) -> bool:
        """Put a sample where it belongs; return whether it was one of these."""
        if isinstance(sample, ProcessIo):
            self.ios[sample.pid, sample.start_ticks] = sample
        elif isinstance(sample, ProcessStat):
            self.stats[sample.pid, sample.start_ticks] = sample
        else:
            place = _PLACES.get(type(sample))
            if place is None:
                return False
            getattr(self, place).append(sample)
        return True


_PLACES: dict[type, str] = {
    FileScan: "scans",
    FileFact: "facts",
    FileEvent: "events",
    ProcessInfo: "infos",
    ProcessExit: "exits",
    FileActivity: "activities",
    FileLifeEvent: "lives",
    TraceHealth: "healths",
    ThreadTime: "times",
    StackSample: "stacks",
    ThreadLook: "looks",
    GpuUse: "gpus",
}
