"""What loops read again and again, raw from a kept descriptor, and the same by psutil: microseconds each, best of many.

Both end in numbers. psutil's objects are made once; a raw read that finds the same bytes as before is told apart by
`unchanged`: there the numbers are not made again.
"""

from __future__ import annotations

import os
import timeit
from collections.abc import Callable

import psutil

from ckptprof_collectors.devices import diskstats
from ckptprof_collectors.kernelfs import KeptFile, KernelFs
from ckptprof_collectors.linetable import LineTable
from ckptprof_collectors.networks import nics
from ckptprof_collectors.processes.process import Process, parse_io, parse_stat
from figures import parser, show

PAGE = os.sysconf("SC_PAGE_SIZE")
REPEATS = 15


def best_us(function: Callable[[], object], number: int) -> float:
    """Return the microseconds of one call in the best of several rounds: a busy host only adds to it."""
    return min(timeit.repeat(function, number=number, repeat=REPEATS)) / number * 1e6


def rows(number: int) -> list[dict[str, object]]:
    """Measure each."""
    pid = os.getpid()
    process, known = Process(KernelFs(), pid), psutil.Process(pid)
    files = {name: KeptFile(f"/proc/self/{name}") for name in ("io", "stat", "statm", "net/dev")}
    files["diskstats"] = KeptFile("/proc/diskstats")
    disks, links = LineTable(diskstats.name_of), LineTable(nics.name_of)

    def stat_by_psutil() -> None:
        with known.oneshot():
            known.cpu_times()
            known.status()
            known.num_threads()
            known.memory_info()

    contenders: tuple[tuple[str, Callable[[], object], Callable[[], object], Callable[[], object]], ...] = (
        (
            "/proc/PID/io", process.read_io, lambda: parse_io(pid, 1, files["io"].read()), known.io_counters,
        ),
        (
            "/proc/PID/stat and statm", lambda: process.read_stat(PAGE),
            lambda: parse_stat(pid, 1, files["stat"].read(), files["statm"].read(), PAGE), stat_by_psutil,
        ),
        (
            "/proc/diskstats", lambda: disks.update(files["diskstats"].read()),
            lambda: [diskstats.parse_line(line) for line in files["diskstats"].read().split(b"\n")],
            lambda: psutil.disk_io_counters(perdisk=True, nowrap=False),
        ),
        (
            "/proc/net/dev", lambda: links.update(files["net/dev"].read()),
            lambda: [nics.parse_line(line) for line in files["net/dev"].read().split(b"\n")],
            lambda: psutil.net_io_counters(pernic=True, nowrap=False),
        ),
    )  # fmt: skip
    measured = []
    for what, unchanged, raw, by_psutil in contenders:
        cost = {
            "unchanged_us": best_us(unchanged, number), "raw_us": best_us(raw, number),
            "psutil_us": best_us(by_psutil, number),
        }  # fmt: skip
        measured.append({"read": what, **cost, "ratio": cost["raw_us"] / cost["psutil_us"]})
    return measured


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--number", type=int, default=1000, help="calls in a round")
    options = arguments.parse_args()
    show("reads", rows(options.number), as_json=options.json)


if __name__ == "__main__":
    main()
