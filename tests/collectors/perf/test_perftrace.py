"""Perf events in place of eBPF: what real programs move is told to the byte, and what is lost is counted."""

from __future__ import annotations

import errno
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.descriptors import held
from tests.machine import need
from tests.patience import wait_until

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.perf.trace import PerfTrace
from ckptprof_collectors.samples import FileActivity, FileLifeEvent, OperationKind, Sample, TraceHealth

MIB = 1 << 20
REFUSED = """
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.perf.trace import PerfTrace
try:
    PerfTrace(KernelFs())
except UnavailableError as error:
    print(error.permission, error)
"""
pytestmark = pytest.mark.root


class Held(subprocess.Popen[bytes]):
    """A Python program that stands still wherever it says `hold()`, and at its end."""

    def __init__(self, code: str) -> None:
        """Start it."""
        hold = "import os\ndef hold():\n os.write(1, b'.')\n os.read(0, 1)\n"
        super().__init__(
            [sys.executable, "-c", f"{hold}{code}\nhold()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def done(self) -> bool:
        """Return whether it stands still or has ended; does not wait."""
        assert self.stdout is not None
        return bool(select.select([self.stdout], [], [], 0)[0])

    def stand(self) -> None:
        """Wait until it stands still."""
        assert self.stdout is not None
        assert self.stdout.read(1) == b"."

    def go_on(self) -> None:
        """Let it go on."""
        assert self.stdin is not None
        self.stdin.write(b".")


class Watch:
    """A trace of what this process starts, and all that it said."""

    def __init__(self, **options: Any) -> None:
        """Begin."""
        self.trace = PerfTrace(KernelFs(), family_of=(os.getpid(),), **options)
        self.samples: list[Sample] = []

    def read(self) -> None:
        """Read once."""
        self.samples += self.trace.read()

    def run(self, *command: str, stdin: bytes = b"") -> None:
        """Run a command to its end, reading as the sampler does."""
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            while process.poll() is None:
                select.select([self.trace.fileno()], [], [], 0.02)
                self.read()
        self.read()

    def python(self, code: str, *others: Watch) -> None:
        """Run a Python program that closes its files when all that it did before has been read, by others too."""
        with Held(code) as process:
            while not process.done():
                select.select([self.trace.fileno()], [], [], 0.02)
                for one in (self, *others):
                    one.read()
            for one in (self, *others):
                one.read()
            process.go_on()
            while process.poll() is None:
                select.select([self.trace.fileno()], [], [], 0.02)
                for one in (self, *others):
                    one.read()
        for one in (self, *others):
            one.read()

    def of(self, path: Path, *, writes: bool = True) -> list[FileActivity]:
        """Return the last samples of the sessions of a file."""
        found = {s.session: s for s in self.samples if isinstance(s, FileActivity)}
        return [s for s in found.values() if s.path == str(path) and s.writes is writes]

    def health(self) -> TraceHealth:
        """Return the trace's account of itself."""
        self.trace._swept_ns = 0
        self.read()
        return [sample for sample in self.samples if isinstance(sample, TraceHealth)][-1]


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    """Return a maker of traces, which are closed with the test."""
    need("perf")
    made: list[Watch] = []

    def make(**options: Any) -> Watch:
        made.append(Watch(**options))
        return made[-1]

    yield make
    for one in made:
        one.trace.close()


@pytest.mark.xdist_group("live")  # a program that has ended is told of only by who looked in time
def test_dd_is_told_to_the_byte(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """Operations, bytes, their order, their sizes, who made them and when; and that the file was synced."""
    out, one = tmp_path / "out", watch()
    before_ns = time.monotonic_ns()
    one.run("dd", "if=/dev/zero", f"of={out}", "bs=1M", "count=40", "conv=fsync")
    (session,) = one.of(out)
    (synced,) = [s for s in one.samples if isinstance(s, FileLifeEvent)]
    status = out.stat()

    assert (session.operations, session.bytes, session.size) == (40, 40 * MIB, 40 * MIB)
    assert session.consecutive_bytes == session.sequential_bytes == session.large_bytes == 40 * MIB
    assert (session.first_offset, session.end_offset, session.low_offset) == (0, 40 * MIB, 0)
    assert session.sizes == ((MIB, 40, 40 * MIB),)
    assert (session.device, session.inode, session.comm, session.direct_bytes) == (
        status.st_dev,
        status.st_ino,
        "dd",
        0,
    )
    assert session.kinds == OperationKind.READ_WRITE
    assert session.timed_operations == 40
    assert 0 < (session.call_ns or 0) <= session.last_ns - session.first_ns
    assert before_ns < session.first_ns < session.last_ns <= (session.closed_ns or 0) < time.monotonic_ns()
    assert (synced.kind, synced.path, synced.inode) == ("synced", str(out), status.st_ino)
    assert synced.at_ns >= session.last_ns
    assert (synced.duration_ns or 0) > 0


def test_calls_that_fail_are_counted(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """With the error of the last one, and when that was."""
    path, one = tmp_path / "model.bin", watch()
    one.python(f"""
import contextlib, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))
fd = os.open({str(path)!r}, os.O_CREAT | os.O_RDWR)
for _ in range(5):
    with contextlib.suppress(OSError):
        os.write(fd, bytes(100_000))
""")
    (session,) = one.of(path)

    assert (session.operations, session.bytes) == (3, 250_000)
    assert (session.failed_operations, session.error) == (2, errno.EFBIG)
    assert session.last_ns < (session.failed_ns or 0)


def test_random_writes_are_told_as_such(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """In the order in which they were made; and the reads of the same descriptor apart from them."""
    out, one = tmp_path / "out", watch()
    numbers = random.Random(7)  # noqa: S311 - no secret
    places = [numbers.randrange(4096) for _ in range(500)]
    one.python(
        f"import os, random, time\nr = random.Random(7)\nfd = os.open({str(out)!r}, os.O_RDWR | os.O_CREAT)\n"
        "for _ in range(500): os.pwrite(fd, bytes(4096), r.randrange(4096) * 4096)\n"
        "for at in range(100): os.pread(fd, 1000, at * 1000)\nos.read(fd, 5)"
    )
    (written,), (read,) = one.of(out), one.of(out, writes=False)
    ends = [0, *(place + 1 for place in places)]

    assert (written.operations, written.bytes) == (500, 500 * 4096)
    assert written.sequential_operations == 1 + sum(p >= e for p, e in zip(places[1:], ends[1:], strict=False))
    assert written.consecutive_operations == 1 + sum(p == e for p, e in zip(places[1:], ends[1:], strict=False))
    assert (written.low_offset, written.high_offset) == (min(places) * 4096, max(ends) * 4096)
    assert written.kinds == OperationKind.POSITIONED
    assert (read.operations, read.bytes, read.consecutive_operations) == (101, 100_005, 100)


@pytest.mark.xdist_group("live")  # a program that has ended is told of only by who looked in time
def test_positions_are_followed(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """Through seeks, appending, descriptors that are duplicated, and of a file that was open before."""
    out, log, inherited, one = tmp_path / "out", tmp_path / "log", tmp_path / "inherited", watch()
    log.write_bytes(bytes(1000))
    code = (
        f"import os, time\nfd = os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT)\nos.write(fd, bytes(100))\n"
        "os.dup2(fd, 50)\nos.write(50, bytes(100))\nos.close(fd)\ncopy = os.dup(50)\nos.write(copy, bytes(100))\n"
        "os.close(copy)\nos.lseek(50, 5000, 0)\nos.write(50, bytes(100))\n"
        "os.lseek(50, -100, 1)\nos.write(50, bytes(100))\n"
        f"log = os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND)\nos.write(log, bytes(10))\nos.write(log, bytes(10))\n"
        "os.write(1, bytes(10))\nos.write(1, bytes(10))\ntime.sleep(0.3)"
    )
    with inherited.open("wb") as stream:
        stream.write(bytes(300))
        stream.flush()
        with subprocess.Popen([sys.executable, "-c", code], stdout=stream) as process:
            while process.poll() is None:
                select.select([one.trace.fileno()], [], [], 0.02)
                one.read()
    one.read()
    (session,), (appended,), (standard,) = one.of(out), one.of(log), one.of(inherited)

    assert (session.operations, session.bytes, session.consecutive_operations) == (5, 500, 3)
    assert (session.sequential_operations, session.high_offset, session.end_offset) == (4, 5100, 5100)
    assert (appended.first_offset, appended.end_offset, appended.consecutive_operations) == (1000, 1020, 2)
    assert (standard.first_offset, standard.end_offset, standard.bytes) == (300, 320, 20)


def test_copies_inside_the_kernel_count_on_both_sides(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """Sendfile, copy_file_range and splice; threads are told apart."""
    source, out, one = tmp_path / "source", tmp_path / "out", watch()
    source.write_bytes(bytes(4 * MIB))
    one.python(
        "import os, threading, time\n"
        f"a, b = os.open({str(source)!r}, os.O_RDONLY), os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT)\n"
        "os.sendfile(b, a, None, 1 << 20)\nos.copy_file_range(a, b, 1 << 20)\nos.lseek(a, 0, 0)\n"
        "thread = threading.Thread(target=os.write, args=(b, bytes(1 << 20)))\nthread.start()\nthread.join()"
    )
    read, *others = one.of(source, writes=False)
    copied, written = sorted(one.of(out), key=lambda session: session.first_ns)

    assert others == []
    assert (read.bytes, copied.bytes, written.bytes) == (2 * MIB, 2 * MIB, MIB)
    assert read.kinds == copied.kinds == OperationKind.SENDFILE | OperationKind.COPY_RANGE
    assert copied.tid != written.tid
    assert (written.first_offset, written.end_offset) == (2 * MIB, 3 * MIB)


@pytest.mark.xdist_group("live")  # who reads has to come in time
def test_a_file_of_a_few_milliseconds_is_seen(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """The opening wakes the reader, who else comes every 20 s here: most such files are told, the rest is counted."""
    one = watch()
    code = (
        f"import os, time\nfor n in range(10):\n with open({str(tmp_path)!r} + f'/{{n}}', 'wb') as out:\n"
        "  for _ in range(8): out.write(bytes(1 << 20)); time.sleep(0.005)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while process.poll() is None:
            select.select([one.trace.fileno()], [], [], 0.1 if one.samples else 20)
            one.read()
    one.read()
    told = [session for n in range(10) for session in one.of(tmp_path / str(n))]

    assert len(told) >= 7
    assert all(session.bytes == 8 * MIB for session in told)
    assert sum(session.bytes for session in told) + one.health().lost_bytes >= 80 * MIB


def test_what_overflows_is_counted(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """A small ring that nobody reads: no crash, and what is told and what is lost come to all that was done."""
    out, one = tmp_path / "out", watch(ring_bytes=64 << 10)
    code = (
        f"fd = os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT)\nhold()\nfor n in range(20000): os.pwrite(fd, b'x', n)\n"
    )
    with Held(code) as process:
        process.stand()
        one.read()
        process.go_on()
        process.stand()
        one.read()
        process.go_on()
    one.read()
    health = one.health()

    assert health.lost_events > 0
    assert health.lost_operations >= health.lost_events // 2
    assert sum(session.operations for session in one.of(out)) + health.lost_operations >= 20_000


def test_work_is_bounded(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """Of more events than may be worked on in the time the rest waits in the ring, and is told later."""
    out, one = tmp_path / "out", watch(per_second=1000)
    one.trace._allowed_ns = 1 << 62
    code = f"fd = os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT)\nfor n in range(9000): os.pwrite(fd, b'x', n)\n"
    with Held(code) as process:
        process.stand()
        one.trace._drain(time.monotonic_ns())
        at_first = one.trace._files.operations

        def told() -> bool:
            one.read()
            return sum(s.operations for s in one.of(out)) + one.health().lost_operations >= 9000

        wait_until(told)
        process.go_on()

    assert 0 <= at_first <= 4000


def test_others_are_left_out_and_everybody_is_not(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """Of a family: only what it starts from now on. Without one everybody counts but who is ignored."""
    family, everybody = watch(), PerfTrace(KernelFs(), ignore=(os.getpid(),))
    try:
        (tmp_path / "own").write_bytes(bytes(MIB))
        family.python(
            f"import os, time\nfd = os.open({str(tmp_path / 'child')!r}, os.O_WRONLY | os.O_CREAT)\n"
            "for n in range(30): os.write(fd, bytes(1 << 20))"
        )
        samples = everybody.read()
    finally:
        everybody.close()
    seen = {s.path for s in family.samples if isinstance(s, FileActivity)}

    assert str(tmp_path / "child") in seen
    assert str(tmp_path / "own") not in seen
    assert os.getpid() not in {s.pid for s in samples if isinstance(s, FileActivity)}


def test_two_at_once_see_the_same(watch: Callable[..., Watch], tmp_path: Path) -> None:
    """Neither takes anything from the other."""
    out, one, two = tmp_path / "out", watch(), watch()
    one.python(
        f"import os, time\nfd = os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT)\n"
        "for n in range(100): os.write(fd, bytes(1000))",
        two,
    )

    assert [(s.operations, s.bytes) for s in one.of(out)] == [(100, 100_000)]
    assert [(s.operations, s.bytes) for s in two.of(out)] == [(100, 100_000)]


@pytest.mark.perf
def test_nothing_stays_open(tmp_path: Path) -> None:
    """Neither after a use nor after a refusal; a second close does nothing."""
    before = held()
    for options in ({}, {"family_of": (os.getpid(),)}):
        trace = PerfTrace(KernelFs(), **options)
        trace.read()
        trace.close()
        trace.close()
    with pytest.raises(UnavailableError):
        PerfTrace(KernelFs(sys=tmp_path))

    assert held() <= before


def test_without_tracefs_there_is_none(tmp_path: Path) -> None:
    """The reason says where it was looked for; it is no want of privileges."""
    with pytest.raises(UnavailableError, match="no tracefs") as refusal:
        PerfTrace(KernelFs(sys=tmp_path))

    assert not refusal.value.permission


@pytest.mark.parametrize("text", [b"", b"nothing", b"field:long id; offset:12; size:4;"])
def test_tracepoints_of_another_layout_are_refused(tmp_path: Path, text: bytes) -> None:
    """Whatever is found there."""
    for name in ("sys_enter", "sys_exit"):
        folder = tmp_path / "kernel/tracing/events/raw_syscalls" / name
        folder.mkdir(parents=True)
        (folder / "format").write_bytes(text)
        (folder / "id").write_text("1")

    with pytest.raises(UnavailableError, match="laid out"):
        PerfTrace(KernelFs(sys=tmp_path))


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all,+dac_read_search",
             "--ambient-caps=-all,+dac_read_search"],
            marks=pytest.mark.capabilities("DAC_READ_SEARCH"), id="nobody",
        ),
        pytest.param(
            ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-bpf,-perfmon,-sys_admin"],
            id="root-without-capabilities",
        ),
    ],
)  # fmt: skip
def test_a_missing_privilege_is_told_as_such(prefix: list[str]) -> None:
    """In one line."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False, cwd="/"
    )

    assert done.stderr == ""
    assert done.stdout.startswith("True perf events: ")
    assert len(done.stdout.splitlines()) == 1


def test_a_machine_of_another_kind_is_refused() -> None:
    """The numbers of its calls are not known."""
    done = subprocess.run(
        ["setarch", "linux32", sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False
    )

    assert done.stdout.startswith("False perf events: the calls of ")


def test_it_says_what_it_does_not_see(watch: Callable[..., Watch]) -> None:
    """And why it is used."""
    degraded = watch(reason="there is no BTF").trace.degraded

    assert degraded[0] == "the trace is made by perf events, because there is no BTF"
    for word in ("io_uring", "libaio", "mappings", "renames", "held back", "requests to devices", "milliseconds"):
        assert any(word in sentence for sentence in degraded)
