"""One tick of the sampler with 10, 200 and 2,000 watched processes against the same reads in C and by psutil.

Every contender looks at the same idle processes, in turns of one run, in a tight loop: what is compared is the work,
not the cold caches that follow a sleep. A tick reads io, stat and statm of each process that is watched, and io of each
that is not; the host's files are left out. "C" opens once and does the same preads, without making numbers of what did
not change; psutil makes Process objects once and calls io_counters, cpu_times and memory_info.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from ckptprof.service.sampler.population import Population
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import Sample
from contenders import sleepers
from figures import median, parser, show

C_SOURCE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
struct kept { int fd; char last[1024]; ssize_t length; };
static const char *names[] = {"io", "stat", "statm"};
int main(int argc, char **argv) {
    int files = atoi(argv[1]), rounds = atoi(argv[2]), count = argc - 3, changed = 0, at = 0;
    struct kept *all = calloc((size_t)count * files, sizeof *all);
    for (int i = 0; i < count; i++)
        for (int f = 0; f < files; f++) {
            char path[64];
            snprintf(path, sizeof path, "/proc/%s/%s", argv[i + 3], names[f]);
            all[at++].fd = open(path, O_RDONLY);
        }
    for (int round = 0; round < rounds; round++) {
        struct timespec from, to;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        for (int i = 0; i < at; i++) {
            char buffer[1024];
            ssize_t length = pread(all[i].fd, buffer, sizeof buffer, 0);
            if (length != all[i].length || memcmp(buffer, all[i].last, length > 0 ? length : 0)) {
                memcpy(all[i].last, buffer, length > 0 ? length : 0);
                all[i].length = length;
                changed++;
            }
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        printf("%ld\n", (to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec);
    }
    return changed < 0;
}
"""


def compiled(directory: Path) -> Path | None:
    """Return the C program, None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    source, program = directory / "reads.c", directory / "reads"
    source.write_text(C_SOURCE)
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return program


def timed(work: Callable[[], object], rounds: int) -> list[int]:
    """Return the CPU time of each of so many calls in ns."""
    costs = []
    for _ in range(rounds):
        before = time.thread_time_ns()
        work()
        costs.append(time.thread_time_ns() - before)
    return costs


def population(pids: Sequence[int], *, watched: bool) -> Population:
    """Return a population that holds these processes only."""
    made = Population(KernelFs(), frozenset(), None)
    for pid in pids:
        made._add(pid, 1)  # noqa: SLF001 - `find` would take in the whole host
        if watched and pid in made.known:
            made.watch(made.known[pid], 1, keep=True)
    return made


def tick_of(people: Population) -> Callable[[], None]:
    """Return what a sampler does at each tick with those it watches."""
    size = resource.getpagesize()

    def tick() -> None:
        samples: list[Sample] = []
        now_ns = time.monotonic_ns()
        for watching in people.watched.values():
            watching.sample_counters(now_ns, size, samples)
            watching.scan_if_due(now_ns, samples)
            watching.question_if_due(now_ns, 0, lambda _: False)

    return tick


def by_psutil(pids: Sequence[int], *, watched: bool) -> Callable[[], None]:
    """Return the same by psutil."""
    processes = [psutil.Process(pid) for pid in pids]

    def tick() -> None:
        for process in processes:
            process.io_counters()
            if watched:
                process.cpu_times()
                process.memory_info()

    return tick


def measure(count: int, rounds: int, program: Path | None, *, watched: bool) -> dict[str, Any]:
    """Return the row of one number of processes."""
    costs: dict[str, list[float]] = {"ours": [], "c": [], "psutil": []}
    with sleepers(count) as pids:
        people = population(pids, watched=watched)
        assert len(people.known) == count, "processes have ended"
        now = iter(range(10**9, 10**18, 10**9))
        ours = tick_of(people) if watched else lambda: people.sweep(next(now), [])
        theirs = by_psutil(pids, watched=watched)
        for _ in range(rounds):
            inner = max(3, 2000 // max(count, 1))
            costs["ours"].append(median(timed(ours, inner)) / 1e3)
            costs["psutil"].append(median(timed(theirs, max(2, inner // 8))) / 1e3)
            if program is not None:
                command = [str(program), "3" if watched else "1", str(inner), *map(str, pids)]
                lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                costs["c"].append(median([int(line) for line in lines]) / 1e3)
        people.close()
    per_c = [a / b for a, b in zip(costs["ours"], costs["c"], strict=False)]
    return {
        "what": "tick, watched" if watched else "sweep, not watched",
        "processes": count,
        "ckptprof_us": median(costs["ours"]),
        "c_us": median(costs["c"]) if costs["c"] else None,
        "psutil_us": median(costs["psutil"]),
        "ratio_to_c": median(per_c) if per_c else None,
        "ratio_to_psutil": median([a / b for a, b in zip(costs["ours"], costs["psutil"], strict=True)]),
    }


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--counts", type=int, nargs="*", default=[10, 200, 2000])
    arguments.add_argument("--rounds", type=int, default=9)
    options = arguments.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1:] * 2)
    with tempfile.TemporaryDirectory(prefix="ckptprof-bench-") as directory:
        program = compiled(Path(directory))
        rows = [
            measure(count, options.rounds, program, watched=watched)
            for watched in (True, False)
            for count in options.counts
        ]
    show("tick", rows, as_json=options.json)


if __name__ == "__main__":
    main()
