"""The files of a Lustre client as its versions write them, made from the formats of lustre-release: counters that move.

2.10 has all of it in /proc/fs/lustre, 2.15 and 2.17 the counters in debugfs and the settings in sysfs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import MountInfo

MIB = 1 << 20
HEX = "ffff88105db50000"
_IMPORT = """import:
    name: {name}
    target: {target}_UUID
    state: {state}
    connect_flags: [ write_grant, server_lock, version ]
    connection:
       failover_nids: [ {quote}{nid}{quote} ]
       current_connection: {quote}{nid}{quote}
       connection_attempts: 1
    rpcs:
       inflight: 0
       unregistering: 0
       timeouts: {timeouts}
       avg_waittime: 6054 usec
"""


def lustre_mount(name: str = "scratch", at: str = "/ckpt", minor: int = 40) -> MountInfo:
    """Return a mount of it."""
    source = f"10.0.0.1@o2ib:10.0.0.2@o2ib:/{name}"
    return MountInfo(minor, 0, minor, "/", at, "lustre", source, None, "10.0.0.1", ("10.0.0.1", "10.0.0.2"))


@dataclass
class LustreTree:
    """One mount of one file system; what was counted is written by `flush`."""

    root: Path
    version: str = "2.15.5"
    osts: int = 16
    name: str = "scratch"
    hex: str = HEX
    network: str = "o2ib"
    settings: Mapping[str, int] = field(default_factory=dict)  # of llite, beside the counters
    _counts: dict[str, dict[str, tuple[int, str, int]]] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Make the folders, and what does not move."""
        (self.root / "proc/self").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/self/mountinfo").touch()
        self.write("version", f"{self.version}\n" if self._minor >= 12 else f"lustre: {self.version}\n", settings=True)
        self._folders = {"llite": f"llite/{self.name}-{self.hex}", "MDT0000": self._folder("MDT0000", "mdc")}
        self._folders.update((ost, self._folder(ost, "osc")) for ost in self.names)
        for name, value in self.settings.items():
            self.write(f"{self._folders['llite']}/{name}", f"{value}\n", settings=True)
        for number, (target, folder) in enumerate(self._folders.items()):
            if target != "llite":
                self.write(f"{folder}/max_rpcs_in_flight", "8\n", settings=True)
                self.connect(target, f"10.0.3.{number}@{self.network}")
        for ost in self.names:
            self.gauge(ost, "cur_grant_bytes", 27815936)
        self._changed.update(self._folders)
        self.flush()

    @property
    def names(self) -> list[str]:
        """Those of the OSTs."""
        return [f"OST{number:04x}" for number in range(self.osts)]

    @property
    def fs(self) -> KernelFs:
        """Where a collector finds it."""
        return KernelFs(proc=self.root / "proc", sys=self.root / "sys")

    @property
    def _minor(self) -> int:
        return int(self.version.split(".")[1])

    def _folder(self, target: str, kind: str) -> str:
        return f"{kind}/{self.name}-{target}-{kind}-{self.hex}"

    def write(self, path: str, content: str, *, settings: bool = False) -> Path:
        """Write a file where this version has it."""
        new = "sys/fs/lustre" if settings else "sys/kernel/debug/lustre"
        file = self.root / (new if self._minor >= 12 else "proc/fs/lustre") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    def gauge(self, target: str, name: str, value: int) -> None:
        """Set a setting or a gauge of a target."""
        self.write(f"{self._folders[target]}/{name}", f"{value}\n", settings=True)

    def connect(self, target: str, nid: str, *, state: str = "FULL", timeouts: int = 0) -> None:
        """Set the connection of a target."""
        folder, quote = self._folders[target], '"' if self._minor > 15 else ""
        name = folder.partition("/")[2]
        content = _IMPORT.format(name=name, target=f"{self.name}-{target}", state=state, nid=nid, quote=quote,
                                 timeouts=timeouts)  # fmt: skip
        self.write(f"{folder}/import", content)

    def count(self, who: str, counter: str, times: int, total: int, unit: str = "usec") -> None:
        """Add to a counter."""
        counters = self._counts.setdefault(who, {})
        old = counters.get(counter, (0, unit, 0))
        counters[counter] = (old[0] + times, unit, old[2] + total)
        self._changed.add(who)

    def wrote(self, ost: str, requests: int, size: int, each_us: int, *, reads: bool = False, active: int = 1) -> None:
        """Count requests to an OST, each of so many bytes, with so many at a time."""
        kind = "read" if reads else "write"
        self.count(ost, f"{kind}_bytes", requests, requests * size, "bytes")
        for counter in (f"ost_{kind}", "req_waittime"):
            self.count(ost, counter, requests, requests * each_us)
        self.count(ost, "req_active", requests, requests * active, "reqs")

    def clear(self, who: str) -> None:
        """Begin its counters anew, as any write to the file does."""
        self._counts.pop(who, None)
        self._changed.add(who)

    def flush(self) -> None:
        """Write what was counted; what has not been counted has no line."""
        for who in self._changed:
            self.write(f"{self._folders[who]}/stats", self._stats(self._counts.get(who, {})))
        self._changed.clear()

    def _stats(self, counters: Mapping[str, tuple[int, str, int]]) -> str:
        width, plural = (35, "s") if self._minor > 14 else (25, "")
        lines = [f"{'snapshot_time':{width}} 1710759783.271040288 secs.nsecs"]
        for name, (times, unit, total) in counters.items():
            unit_ = f"{unit}{plural}" if unit == "usec" else unit
            mean = total // max(times, 1)
            sums = "" if unit in ("regs", "calls") else f" {mean} {mean} {total} {mean * total}"
            lines.append(f"{name:{width}} {times} samples [{unit_}]{sums}")
        return "\n".join(lines) + "\n"
