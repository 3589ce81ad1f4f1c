"""What a traced call costs: writes and getpid alone, under the trace, under bpftrace and strace that count the same.

A writer in C, held on one CPU, writes the same 64 MiB of a file again and again with pwrite(2); its own clock counts,
not its start, and of 15 parts of a run the median. Each way is measured between two runs without it, seconds apart, and
compared with their mean; the ways take turns, and "none again" is the noise. bpftrace's one-liner counts calls and sums
bytes by process and descriptor for the eight read and write calls, which is the nearest that it has; strace runs with
-c -f.

The same of a send(2) and the recv(2) of its bytes, in one thread by a connection of loopback: without a trace, beside
one while nobody trains (no program stands at sends), while somebody else trains, and of a process that is followed;
by the CPU time of that thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from ckptprof_collectors.ebpf import trace as trace_module
from ckptprof_collectors.ebpf.hooks import ESSENTIAL_HOOKS, OPTIONAL_HOOKS, Hook
from ckptprof_collectors.ebpf.trace import EbpfTrace
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import TraceHealth
from contenders import StoppedError, proving
from figures import median, parser, show

C_SOURCE = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define BLOCKS 15
static char *buffer;
static long size, calls, region = 64L << 20, at;
static int fd, here = -1, there;
static int compare(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}
static int connected(void) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    int listening = socket(AF_INET, SOCK_STREAM, 0), room = 1 << 20, one = 1;
    here = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(here, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (bind(listening, (void *)&name, sizeof name) || listen(listening, 1)) return 0;
    getsockname(listening, (void *)&name, &length);
    if (connect(here, (void *)&name, sizeof name)) return 0;
    there = accept(listening, NULL, NULL);
    return !setsockopt(here, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}
static int filled(const char *path) {
    fd = open(path, O_RDWR | O_CREAT, 0600);
    if (size * calls * BLOCKS < region) region = size * calls * BLOCKS;
    for (long done = 0; done < region; done += 1 << 20) /* the pages are there: no run pays for them */
        if (pwrite(fd, buffer, region - done < 1 << 20 ? region - done : 1 << 20, done) < 0) return 0;
    return 1;
}
static int block(void) {
    long got;
    for (long call = 0; call < calls; call++) {
        if (!size) {
            syscall(SYS_getpid);
        } else if (here >= 0) {
            if (send(here, buffer, size, 0) != size) return 0;
            for (long left = size; left; left -= got)
                if ((got = recv(there, buffer, left, 0)) <= 0) return 0;
        } else {
            if (pwrite(fd, buffer, size, at) != size) return 0;
            at = at + 2 * size > region ? 0 : at + size;
        }
    }
    return 1;
}
int main(int argc, char **argv) {
    double cost[BLOCKS];
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[4]), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    size = atol(argv[2]), calls = atol(argv[3]) / BLOCKS + 1;
    buffer = memset(malloc(1 << 20), 7, 1 << 20);
    int sends = !strcmp(argv[1], "sends"), clock = sends ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    if (sends ? !connected() : size && !filled(argv[1])) return 1;
    for (int number = 0; number < BLOCKS; number++) {
        struct timespec from, to;
        clock_gettime(clock, &from);
        if (!block()) return 1;
        clock_gettime(clock, &to);
        cost[number] = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / calls;
    }
    qsort(cost, BLOCKS, sizeof *cost, compare);
    printf("%.2f\n", cost[BLOCKS / 2]);
    return 0;
}
"""
CALLS = ("read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev")
SENDS = "sends"  # the target of the writer that is no file
SENDS_PER_RUN = {64: 200_000, 64 << 10: 20_000}
CALLS_PER_RUN = {0: 1_000_000, 1: 200_000, 4096: 200_000, 64 << 10: 20_000, 1 << 20: 1_000}
SLOW_CALLS = 2_000  # under strace, which takes a hundred times as long
NAMES = {1: "1 B", 64: "64 B", 4096: "4 KiB", 64 << 10: "64 KiB", 1 << 20: "1 MiB"}
Way = Callable[[], contextlib.AbstractContextManager[Sequence[str]]]


def compiled(directory: Path) -> Path:
    """Return the writer; raises SystemExit without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        raise SystemExit("trace_cost needs a C compiler")
    source, program = directory / "writer.c", directory / "writer"
    source.write_text(C_SOURCE)
    subprocess.run([compiler, "-O2", "-Wall", "-o", str(program), str(source)], check=True)
    return program


@contextlib.contextmanager
def none() -> Iterator[Sequence[str]]:
    """Watch nothing."""
    yield ()


@contextlib.contextmanager
def traced() -> Iterator[Sequence[str]]:
    """Trace every process of the host, as the agent does; raises StoppedError if it counted no call."""
    trace = EbpfTrace(KernelFs())
    try:
        yield ()
        if not any(isinstance(one, TraceHealth) and one.calls for one in trace.read(final=True)):
            raise StoppedError("the trace counted no call")
    finally:
        trace.close()


@contextlib.contextmanager
def traced_portably() -> Iterator[Sequence[str]]:
    """Trace with the programs that older kernels get."""
    essential, optional = (tuple(map(portable, hooks)) for hooks in (ESSENTIAL_HOOKS, OPTIONAL_HOOKS))
    with mock.patch.multiple(trace_module, ESSENTIAL_HOOKS=essential, OPTIONAL_HOOKS=optional), traced() as prefix:
        yield prefix


def portable(hook: Hook) -> Hook:
    """Return the hook without its typed programs."""
    variants = tuple(variant for variant in hook.variants if not variant[0].endswith("_typed"))
    return dataclasses.replace(hook, variants=variants)


def bpftrace_one_liner() -> str:
    """Return the program: it says so when it is attached."""
    enters = ",".join(f"tracepoint:syscalls:sys_enter_{call}" for call in CALLS)
    exits = ",".join(f"tracepoint:syscalls:sys_exit_{call}" for call in CALLS)
    return (
        'BEGIN { printf("attached\\n"); }'
        f"{enters} {{ @fd[tid] = args->fd; }}"
        f"{exits} /args->ret > 0/ {{ @calls[pid, @fd[tid]] = count(); @bytes[pid, @fd[tid]] = sum(args->ret); }}"
    )


@contextlib.contextmanager
def by_bpftrace() -> Iterator[Sequence[str]]:
    """Count by bpftrace."""
    with_tracefs = "mount -t tracefs none /sys/kernel/tracing; mount -t debugfs none /sys/kernel/debug;"
    process = subprocess.Popen(  # in a mount namespace of its own: not every host has tracefs where bpftrace looks
        ["unshare", "--mount", "sh", "-c", f'{with_tracefs} exec bpftrace -e "$0"', bpftrace_one_liner()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "attached\n":
            if not line:
                raise SystemExit("bpftrace does not attach")
        time.sleep(0.2)  # BEGIN runs before the last of its probes
        with proving("bpftrace", (process,)):
            yield ()
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def by_strace() -> Iterator[Sequence[str]]:
    """Count by strace."""
    yield ("strace", "-c", "-f", "-o", "/dev/null", "--")


def ways() -> dict[str, Way]:
    """Return what can be compared on this host for writes."""
    found: dict[str, Way] = {"none again": none, "ckptprof trace": traced, "ckptprof trace, portable": traced_portably}
    if shutil.which("bpftrace"):
        found["bpftrace one-liner"] = by_bpftrace
    if shutil.which("strace"):
        found["strace -c -f"] = by_strace
    return found


def measure(
    program: Path, target: str, calls: Mapping[int, int], contenders: Mapping[str, Way], options: Any
) -> list[dict[str, Any]]:
    """Return the rows of one target: all sizes are measured inside one attachment, which is slow to make."""
    cpu = str(max(os.sched_getaffinity(0)))

    def cost(size: int, prefix: Sequence[str] = ()) -> float:
        count = max(100, int(calls[size] * options.scale))
        count = min(count, SLOW_CALLS) if prefix else count
        command = [*prefix, str(program), target, str(size), str(count), cpu]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    pairs: dict[tuple[str, int], list[tuple[float, float]]] = {(way, size): [] for way in contenders for size in calls}
    for _ in range(options.rounds):
        for way in random.sample(list(contenders), len(contenders)):
            before = [cost(size) for size in calls]
            with contenders[way]() as prefix:
                during = [cost(size, prefix) for size in calls]
            after = [cost(size) for size in calls]
            for size, alone, own, again in zip(calls, before, during, after, strict=True):
                pairs[way, size].append((own, (alone + again) / 2))
    what = "send and recv" if target == SENDS else f"pwrite in {Path(target).parent}"
    return [
        row(way, f"{what} {NAMES[size]}" if size else "getpid", pairs, size) for size in calls for way in contenders
    ]


def row(way: str, call: str, pairs: Mapping[tuple[str, int], list[tuple[float, float]]], size: int) -> dict[str, Any]:
    """Return one row of the table."""
    extra = median([own - alone for own, alone in pairs[way, size]])
    peer = pairs.get(("bpftrace one-liner", size))
    peers_extra = median([own - alone for own, alone in peer]) if peer else None
    return {
        "call": call,
        "how": way,
        "ns_alone": median([alone for _, alone in pairs[way, size]]),
        "ns_per_call": median([own for own, _ in pairs[way, size]]),
        "extra_ns": extra,
        "ratio": median([own / alone for own, alone in pairs[way, size]]),
        "extra_over_bpftrace": extra / peers_extra if peers_extra and "bpftrace" not in way else None,
    }


@contextlib.contextmanager
def following(watched: Mapping[int, int] | None) -> Iterator[Sequence[str]]:
    """Trace all, and count what these processes send and receive if one of them trains (3); None: our children's."""
    trace = EbpfTrace(KernelFs(), family_of=(os.getpid(),)) if watched is None else EbpfTrace(KernelFs())
    try:
        if watched is not None:
            trace.set_attended(watched, 64 << 10)
        yield ()
    finally:
        trace.close()


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--scale", type=float, default=1.0, help="times the usual number of calls in a run")
    arguments.add_argument("--sizes", type=int, nargs="*", default=list(CALLS_PER_RUN), choices=list(CALLS_PER_RUN))
    arguments.add_argument("--disk", type=Path, help="a directory on the disk to measure beside tmpfs; default: TMPDIR")
    options = arguments.parse_args()
    try:
        EbpfTrace(KernelFs()).close()
    except UnavailableError as error:
        raise SystemExit(f"no trace on this host: {error}") from error
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        memory, disk = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptprof-bench-", dir=place)))
            for place in (Path("/dev/shm"), options.disk)  # noqa: S108 - tmpfs is the point
        )
        program = compiled(disk)
        calls = {size: CALLS_PER_RUN[size] for size in options.sizes}
        rows += measure(program, str(memory / "file.bin"), calls, ways(), options)
        rows += measure(program, str(disk / "file.bin"), {one: calls[one] for one in calls if one}, ways(), options)
        beside: dict[str, Way] = {
            "none again": none,
            "nobody trains": lambda: following({}),
            "somebody else trains": lambda: following({os.getpid(): 3}),
            "followed": lambda: following(None),
        }
        rows += measure(program, SENDS, SENDS_PER_RUN, beside, options)
        show("trace_cost", rows, as_json=options.json)


if __name__ == "__main__":
    main()
