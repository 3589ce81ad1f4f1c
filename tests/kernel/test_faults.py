"""What the trace does when something is missing, full or taken away: a named state, never a crash, never a leftover."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kernel.tracer import Seen, Tracer, order_seen
from tests.patience import LIFETIME, wait_until

from ckptprof_collectors.ebpf.hooks import OBJECTS
from ckptprof_collectors.ebpf.trace import EbpfTrace
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import FileActivity, FileLifeEvent, TraceHealth

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

MANY = """
import os, sys, time
count, size, closes = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "close"
files = []
for number in range(count):
    fd = os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY)
    os.write(fd, bytes(size))
    files.append(fd)
    if closes:
        os.close(fd)
"""
THREADS = """
import os, sys, threading
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for _ in sys.stdin:
    for _ in range(600):
        one = threading.Thread(target=os.write, args=(fd, bytes(70_000)))
        one.start()
        one.join()
    print(600, flush=True)
"""
TRACED = f"""
import os, sys, time
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.ebpf.trace import EbpfTrace
trace = EbpfTrace(KernelFs())
trace.read()
print("attached", flush=True)
time.sleep({LIFETIME})
"""
MAPS = """
import mmap, sys
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ).close()
"""
NAMES = ("call_exit_", "call_enter_", "family_grows", "uring_submit", "issue_of", "complete")  # of programs


@pytest.fixture
def own() -> Iterator[Callable[..., Tracer]]:
    """Give traces with settings of the test's own, closed when it ends."""
    made: list[EbpfTrace] = []

    def trace(**settings: Any) -> Tracer:
        made.append(EbpfTrace(KernelFs(), family_of=(os.getpid(),), **settings))
        return Tracer(made[-1])

    yield trace
    for one in made:
        one.close()


def many(place: Path, count: int, size: int, how: str) -> list[str | Path]:
    """Return a command line that writes so many files."""
    return [sys.executable, "-c", MANY, place, str(count), str(size), how]


def held(pid: int) -> set[int]:
    """Return the programs in the kernel of which a process has a descriptor: no other test's are among them."""
    infos = "".join(path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir() if path.exists())
    return {int(number) for number in re.findall(r"^prog_id:\s*(\d+)$", infos, re.MULTILINE)}


def ours(bpftool: str) -> set[int]:
    """Return the programs in the kernel that carry our names."""
    listed = json.loads(subprocess.run([bpftool, "--json", "prog", "list"], capture_output=True, check=True).stdout)
    return {program["id"] for program in listed if program.get("name", "?").startswith(NAMES)}


def test_a_full_map_loses_detail_and_never_totals(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """With room for 64 sessions and 300 files open: the rest is lost by number and byte, and nothing else is."""
    tracer = own(max_sessions=64, small_per_window=1_000_000, small_reads_per_window=1_000_000)
    place = on("ext4")

    seen = tracer.run(many(place, 300, 70_000, "keep"))

    order = order_seen(seen.where(lambda session: session.writes and session.bytes == 70_000))
    health = seen.health[-1]
    assert 0 < order.operations <= 64
    assert health.lost_operations >= 300 - order.operations
    assert health.lost_bytes >= (300 - order.operations) * 70_000
    # what was read by Python itself is in both sums too: no more than its own small files
    assert order.bytes + health.lost_bytes < 300 * 70_000 + (16 << 20)


def test_room_comes_back_when_files_are_closed(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """A map for 64 sessions is enough for 300 files one after the other."""
    tracer = own(max_sessions=64, small_per_window=1_000_000, small_reads_per_window=1_000_000)
    place = on("ext4")

    seen = tracer.run(many(place, 300, 70_000, "close"))

    order = order_seen(seen.where(lambda session: session.writes and str(session.path).startswith(f"{place}/")))
    assert (order.operations, order.bytes) == (300, 300 * 70_000)
    assert seen.health[-1].lost_operations == 0


def test_threads_that_end_without_closing_give_their_room_back(
    own: Callable[..., Tracer], on: Callable[[str], Path]
) -> None:
    """A map for 1,024 sessions is enough for 1,800 threads that each write a file of their process once and end."""
    tracer = own(max_sessions=1024)
    seen = Seen()
    with subprocess.Popen([sys.executable, "-c", THREADS, on("ext4") / "one"], stdin=-1, stdout=-1, bufsize=0) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        for _ in range(3):
            job.stdin.write(b"\n")
            assert job.stdout.readline() == b"600\n"
            seen.take(tracer.trace.read())
        job.stdin.close()
    seen.take(tracer.trace.read(final=True))

    order = order_seen(seen.where(lambda session: session.writes and str(session.path).endswith("/one")))
    assert (order.operations, order.bytes) == (1800, 1800 * 70_000)
    assert (seen.health[-1].lost_operations, seen.regressions) == (0, [])


def test_a_full_ring_keeps_sessions_for_the_next_reading(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """With a ring of one page and no reader, files that were closed wait in the map; lost events are counted."""
    tracer = own(ring_bytes=4096, small_per_window=1_000_000, small_reads_per_window=1_000_000)
    place = on("ext4")
    with tracer.watch() as seen:
        subprocess.run(many(place, 300, 70_000, "close"), check=True)

    order = order_seen(seen.where(lambda session: session.writes and session.bytes == 70_000))
    assert (order.operations, order.bytes) == (300, 300 * 70_000)
    assert seen.health[-1].lost_events > 0


def test_a_storm_of_small_files_is_counted(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """Of thousands of tiny files some are told and the rest is counted: none goes unnoticed."""
    tracer = own(small_per_window=20)
    place = on("tmpfs")

    seen = tracer.run(many(place, 3000, 100, "close"))

    told = len(seen.where(lambda session: session.writes and session.bytes == 100))
    health = seen.health[-1]
    assert told < 3000
    assert told + health.lost_sessions >= 3000
    assert health.lost_bytes >= (3000 - told) * 100


def test_what_a_data_loader_reads_is_counted(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """Thousands of files of 100 KB that are only read cost a few records, and their operations and bytes stay known."""
    tracer = own(small_per_window=1_000_000, small_reads_per_window=5)
    place = on("tmpfs")
    (place / "sample.jpg").write_bytes(bytes(100_000))
    name = str(place / "sample.jpg")  # after a pause: what an interpreter reads as it starts has been told by then
    loader = f"import time\ntime.sleep(0.3)\nfor _ in range(2000): open({name!r}, 'rb', buffering=0).read()"

    seen = tracer.run([sys.executable, "-c", loader])

    told = len(seen.of(place / "sample.jpg", writes=False))
    health = seen.health[-1]
    assert 0 < told < 1000
    assert health.lost_sessions >= 2000 - told
    assert health.lost_bytes >= (2000 - told) * 100_000


def test_large_files_are_told_in_a_storm_of_small_ones(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """What a checkpoint consists of is never among what is shed."""
    tracer = own(small_per_window=0)
    place = on("ext4")

    seen = tracer.run(many(place, 100, 1 << 17, "close"))

    order = order_seen(seen.where(lambda session: session.writes and str(session.path).startswith(f"{place}/")))
    assert (order.operations, order.bytes) == (100, 100 << 17)


def test_two_traces_at_once_are_both_exact(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """Neither takes anything from the other, and one that is closed leaves the other as it is."""
    first, second, third = own(), own(), own()
    place = on("ext4")
    with second.watch() as seen_second, third.watch():
        seen_first = first.run(many(place, 20, 100_000, "close"))
    third.trace.close()
    later = first.run(many(place, 20, 100_000, "close"))

    for seen in (seen_first, seen_second, later):
        order = order_seen(seen.where(lambda session: session.writes and str(session.path).startswith(f"{place}/")))
        assert (order.operations, order.bytes) == (20, 2_000_000)


def test_nothing_stays_when_the_agent_is_killed(program: Callable[[str], str]) -> None:
    """After kill -9 of a process that traces, the kernel has none of its programs, maps and links."""
    bpftool = program("bpftool")
    process = subprocess.Popen([sys.executable, "-c", TRACED], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"attached\n"
    attached = held(process.pid) & ours(bpftool)

    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not attached & ours(bpftool))  # programs are freed after a grace period
    process.stdout.close()

    assert len(attached) >= 4


def test_a_missing_object_is_named(tmp_path: Path) -> None:
    """A directory without objects is a reason, not a crash."""
    with pytest.raises(UnavailableError, match=r"trace\.\w+\.bpf\.o"):
        EbpfTrace(KernelFs(), objects=tmp_path)


def test_a_broken_block_object_costs_the_devices_only(tmp_path: Path) -> None:
    """Files are traced all the same, and what is out of sight is said."""
    objects = tmp_path / "bpf"
    shutil.copytree(OBJECTS, objects)
    for path in objects.glob("block.*.bpf.o"):
        path.write_bytes(path.read_bytes()[:1000])

    trace = EbpfTrace(KernelFs(), objects=objects)
    try:
        assert [line for line in trace.degraded if "devices" in line]
        assert "calls" in trace.programs
        assert not [name for name in trace.programs if name.startswith("block")]
    finally:
        trace.close()


def test_health_names_every_hook(own: Callable[..., Tracer], tmp_path: Path) -> None:
    """Each hook tells which variant stands there, or why none does."""
    tracer = own()

    seen = tracer.run(["true"])

    health = seen.health[-1]
    assert isinstance(health, TraceHealth)
    assert {"calls", "timing", "family"} <= set(health.programs)
    assert health.degraded == tracer.trace.degraded
    assert all(isinstance(sample, FileActivity) for sample in seen.sessions.values())


def test_processes_that_the_family_does_not_hold_are_out_of_sight(
    own: Callable[..., Tracer], on: Callable[[str], Path]
) -> None:
    """What someone else writes, started before, is not seen; nor is what this process writes itself."""
    place = on("ext4")
    stranger = subprocess.Popen(
        [sys.executable, "-c", f"input(); open({str(place / 'foreign')!r}, 'wb').write(bytes(1 << 20))"],
        stdin=subprocess.PIPE,
    )
    tracer = own()
    with tracer.watch() as seen:
        stranger.communicate(b"\n")
        (place / "own").write_bytes(bytes(1 << 20))

    assert not seen.where(lambda session: str(session.path).startswith(f"{place}/"))


def test_what_programs_map_as_they_start_wakes_nobody(own: Callable[..., Tracer], on: Callable[[str], Path]) -> None:
    """The names of a language and code are known by their own names; a data file wakes its reader at once."""
    place, trace = on("ext4"), own().trace
    woken = {}
    for name in ("locale-archive", "a.pyc", "b.mo", "c.so", "archive", "step10.archive", "model.so.bin"):
        (place / name).write_bytes(bytes(1 << 20))
        trace.read()
        subprocess.run([sys.executable, "-c", MAPS, place / name], check=True)
        woken[name] = bool(select.select([trace.fileno()], [], [], 0)[0])
    events = [sample for sample in trace.read() if isinstance(sample, FileLifeEvent) and sample.kind == "mapped"]

    assert [name for name, is_woken in woken.items() if is_woken] == ["archive", "step10.archive", "model.so.bin"]
    assert str(place / "model.so.bin") in {event.path for event in events}
