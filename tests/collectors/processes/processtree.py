"""A made-up /proc: what collectors read of processes that there are not."""

from __future__ import annotations

import os
from pathlib import Path

from ckptprof_collectors.kernelfs import KernelFs

STAT = "{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0 {start} 0 0\n"


class ProcessTree:
    """A made-up /proc of some processes."""

    def __init__(self, root: Path) -> None:
        """Begin without a process."""
        self.proc = root / "proc"
        self.proc.mkdir(exist_ok=True)
        self.fs = KernelFs(proc=self.proc)

    def process(self, pid: int, comm: str, *links: str, connection: int | None = None, children: str = "",
                arguments: str = "", ticks: int = 5) -> None:  # fmt: skip
        """Add a process with what its descriptors lead to; `connection`: what fdinfo says of the first."""
        folder = self.proc / str(pid)
        for name in ("fd", "fdinfo", f"task/{pid}"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "stat").write_text(STAT.format(pid=pid, comm=comm, user=ticks, system=1, start=10 * pid))
        (folder / "task" / str(pid) / "stat").symlink_to(folder / "stat")
        (folder / "io").write_text("".join(f"{name}: 0\n" for name in "abcdefg"))
        (folder / "statm").write_text("1 1 1 1 1 1 1\n")
        (folder / "cmdline").write_bytes(b"\0".join(map(os.fsencode, arguments.split())))
        (folder / "task" / str(pid) / "children").write_text(children)
        for number, link in enumerate(links):
            (folder / "fd" / str(number)).symlink_to(link)
            (folder / "fdinfo" / str(number)).write_text(
                "pos:\t0\nflags:\t02\n" + (f"fuse_connection:\t{connection}\n" if connection and not number else "")
            )
