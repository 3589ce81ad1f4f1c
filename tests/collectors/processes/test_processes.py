"""Processes, with the kernel as oracle; recycled pids; and what hostile or half-gone /proc entries do."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.descriptors import held
from tests.patience import LIFETIME, wait_until

from ckptprof_collectors import process_facts
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes.open_files import MappingReader, OpenFileScanner
from ckptprof_collectors.processes.process import (
    KernelThread,
    Process,
    ProcessGone,
    _in_other_network,
    candidate_folders,
    descendants,
    describe,
    list_pids,
    parse_io,
    parse_stat,
    read_parent,
    runs_interpreter,
)

MIB = 1 << 20
STAT = b"%d (%s) S 1 1 1 0 -1 %d 11 0 12 0 31 32 0 0 20 0 7 0 4711 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
IO = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"


@pytest.fixture
def own() -> Iterator[Process]:
    """Return this very process, opened."""
    process = Process(KernelFs(), os.getpid())
    yield process
    process.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a child that waits."""
    with subprocess.Popen(["sleep", LIFETIME]) as child:
        yield child
        child.kill()


def tree(root: Path, pid: int = 77, *, comm: bytes = b"python3", flags: int = 0, io: bytes = IO) -> KernelFs:
    """Return a /proc made by hand with one process."""
    folder = root / str(pid)
    folder.mkdir()
    (folder / "stat").write_bytes(STAT % (pid, comm, flags))
    (folder / "statm").write_bytes(b"1000 200 50 1 0 300 0\n")
    (folder / "io").write_bytes(io)
    return KernelFs(proc=root)


def test_bytes_written_and_read_are_counted_to_the_byte(own: Process, tmp_path: Path) -> None:
    """What this test moves is what the counters say, as /proc/self/io is read by somebody else."""
    own.read_io()
    before = own.io
    (tmp_path / "a").write_bytes(bytes(3 * MIB))
    (tmp_path / "a").read_bytes()

    assert own.read_io()
    after = own.io

    assert before is not None
    assert after is not None
    assert 3 * MIB <= after.write_chars - before.write_chars < 3 * MIB + 4096
    assert 3 * MIB <= after.read_chars - before.read_chars < 3 * MIB + 64 * 1024
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    assert after.write_chars <= int(fields["wchar"]) < after.write_chars + 64 * 1024


def test_identity_and_parent_are_those_of_the_stat_file(own: Process) -> None:
    """Start time and parent, as the kernel tells them elsewhere."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()

    assert (own.start_ticks, own.parent_pid) == (int(fields[19]), os.getppid())


def test_pages_of_a_mapping_that_is_read_count_as_resident_file_memory(own: Process, tmp_path: Path) -> None:
    """Statm's shared pages grow by what is touched."""
    (tmp_path / "a").write_bytes(bytes(32 * MIB))
    own.read_stat(mmap.PAGESIZE)
    before = own.stat
    with (tmp_path / "a").open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) == 0
        own.read_stat(mmap.PAGESIZE)
        after = own.stat

    assert before is not None
    assert after is not None
    assert before.rss_file_bytes is not None
    assert after.rss_file_bytes is not None
    assert after.rss_file_bytes - before.rss_file_bytes == pytest.approx(32 * MIB, rel=0.1)
    assert after.threads >= 1


def test_unchanged_counters_are_told_as_unchanged(sleeper: subprocess.Popen[bytes]) -> None:
    """A second look at a process that sleeps gives nothing to store; before that it has read its libraries."""
    process = Process(KernelFs(), sleeper.pid)
    wait_until(lambda: not process.read_io())

    assert not process.read_io()
    process.close()


def test_a_process_that_ended_is_never_taken_for_its_successor(sleeper: subprocess.Popen[bytes]) -> None:
    """Every read of kept descriptors says that it is gone, whoever has its pid now."""
    process = Process(KernelFs(), sleeper.pid)
    files = OpenFileScanner(process)
    sleeper.kill()
    sleeper.wait()

    for read in (process.read_io, lambda: process.read_stat(4096), lambda: files.scan(MappingReader(process)),
                 process.check_alive, lambda: describe(process), lambda: OpenFileScanner(process)):  # fmt: skip
        with pytest.raises(ProcessGone):
            read()
    assert (process.make_exit().pid, process.make_exit().start_ticks) == (sleeper.pid, process.start_ticks)
    files.close()
    process.close()


@pytest.mark.root
def test_a_zombie_still_counts() -> None:
    """A child that ended and was not waited for keeps its last counters; the kernel shows them to root only."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        process = Process(KernelFs(), child.pid)

        assert process.read_io()
        assert process.read_stat(4096)
        assert process.stat is not None
        assert process.stat.state == "Z"
        process.close()


def test_a_pid_that_is_not_there_is_gone() -> None:
    """4194304 is the kernel's greatest pid."""
    with pytest.raises(ProcessGone):
        Process(KernelFs(), 4_194_305)


def test_no_descriptor_is_left_open(sleeper: subprocess.Popen[bytes]) -> None:
    """Opening, reading, relaxing and closing give back what they took; a second close does nothing."""
    before = held()
    process = Process(KernelFs(), sleeper.pid)
    process.read_stat(4096)
    process.close_statm()
    files = OpenFileScanner(process)
    files.close()
    process.close()
    process.close()

    assert held() <= before


@pytest.mark.parametrize("comm", [b"a b", b"a) R 1 (", b"((", b"))", b"\xff\x1b[2J", b""])
def test_a_command_may_hold_brackets_spaces_and_any_bytes(tmp_path: Path, comm: bytes) -> None:
    """Fields are counted from the last bracket."""
    process = Process(tree(tmp_path, comm=comm), 77)

    assert process.read_stat(4096)
    assert process.stat is not None
    assert (process.start_ticks, process.stat.threads, process.stat.user_ticks) == (4711, 7, 31)
    assert (process.stat.rss_bytes, process.stat.rss_file_bytes) == (200 * 4096, 50 * 4096)
    process.close()


def test_a_real_process_with_brackets_in_its_name_is_read() -> None:
    """The kernel takes any name that a thread gives itself."""
    script = "open('/proc/self/comm','w').write('x) Z 1 (y'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = Process(KernelFs(), child.pid)

        assert process.parent_pid == os.getpid()
        assert describe(process).comm == "x) Z 1 (y"
        process.close()
        child.kill()


@pytest.mark.parametrize("raw", [b"", b"rchar: 1\n", IO.replace(b"7", b"x"), b"\n" * 20, b"garbage " * 20])
def test_broken_counters_are_none(raw: bytes) -> None:
    """A file that is not complete tells nothing."""
    assert parse_io(1, 1, raw) is None


def test_whole_counters_are_all_there() -> None:
    """In the kernel's order."""
    io = parse_io(1, 2, IO)

    assert io is not None
    assert (io.read_chars, io.write_chars, io.read_syscalls, io.write_syscalls) == (1, 2, 3, 4)
    assert (io.read_bytes, io.write_bytes, io.cancelled_write_bytes) == (5, 6, 7)


@given(st.binary(max_size=400), st.binary(max_size=60))
def test_any_stat_file_is_survived(raw: bytes, memory: bytes) -> None:
    """It is parsed or it is None."""
    sample = parse_stat(1, 1, raw, memory, 4096)

    assert sample is None or sample.pid == 1


@pytest.mark.parametrize("content", [b"", b"77", b"77 (x) S 1", b"77 (x) S one two three " + b"x " * 40])
def test_a_process_whose_stat_cannot_be_understood_is_gone(tmp_path: Path, content: bytes) -> None:
    """It is not an error of ours, and leaves no descriptor."""
    fs = tree(tmp_path)
    (tmp_path / "77" / "stat").write_bytes(content)
    before = held()

    with pytest.raises(ProcessGone):
        Process(fs, 77)
    assert held() <= before


def test_memory_that_cannot_be_seen_is_none(tmp_path: Path) -> None:
    """An empty statm is not zero bytes."""
    fs = tree(tmp_path)
    (tmp_path / "77" / "statm").write_bytes(b"")
    process = Process(fs, 77)
    process.read_stat(4096)

    assert process.stat is not None
    assert (process.stat.rss_bytes, process.stat.rss_file_bytes) == (None, None)
    process.close()


def test_a_program_is_described_by_its_script_and_its_known_keys_only(tmp_path: Path) -> None:
    """The environment holds secrets: nothing but the known keys leaves it, cut to length."""
    script = tmp_path / "train.py"
    script.write_text("print(flush=True); input()")
    environment = {**os.environ, "RANK": "3", "WORLD_SIZE": "8", "API_TOKEN": "secret", "SLURM_JOB_NAME": "x" * 999}
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-u", str(script), "--key=secret"], stdin=-1, stdout=-1, env=environment
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = Process(KernelFs(), child.pid)
        info = describe(process)

        assert runs_interpreter(process.folder)
        assert (info.program, info.uid, info.parent_pid) == ("train.py", os.getuid(), os.getpid())
        assert {key: info.environment[key] for key in ("RANK", "WORLD_SIZE")} == {"RANK": "3", "WORLD_SIZE": "8"}
        assert len(info.environment["SLURM_JOB_NAME"]) == 256
        assert "secret" not in repr(info)
        process.close()
        child.kill()


def test_the_runtimes_of_a_process_are_those_it_has_mapped() -> None:
    """This test's process comes to numpy by importing it."""
    script = "import numpy; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = Process(KernelFs(), child.pid)

        assert "numpy" in describe(process).runtimes
        assert "torch" not in describe(process).runtimes
        process.close()
        child.kill()


def test_a_zombie_is_what_it_was() -> None:
    """Its memory is gone, and with it script, libraries and environment; of one that is new its parent is told."""
    with subprocess.Popen(
        [sys.executable, "-c", "import numpy; print(flush=True); input()"], stdin=-1, stdout=-1
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = Process(KernelFs(), child.pid)
        living = describe(process)
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert describe(process, living) == living
        assert (describe(process).runtimes, describe(process).parent_pid) == ((), os.getpid())
        process.close()


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (b"python3\0train.py\0", "train.py"),
        (b"/usr/bin/python3.11\0-u\0-W\0ignore\0/x/y/train.py\0--a\0", "train.py"),
        (b"python3\0-m\0torch.distributed.run\0train.py\0", "torch.distributed.run"),
        (b"python3\0-c\0import x\0", "python3"),
        (b"python3\0", "python3"),
        (b"/usr/bin/cp\0a\0b\0", "cp"),
        (b"", "python3"),
        (b"\0\0\0", "python3"),
        (b"python3\0/x/\xff\n\x1b.py\0", "\\xff\n\x1b.py"),
    ],
)
def test_the_program_is_the_script_of_an_interpreter(tmp_path: Path, command: bytes, program: str) -> None:
    """Else the executable; else the name the kernel has."""
    fs = tree(tmp_path)
    (tmp_path / "77" / "cmdline").write_bytes(command)
    (tmp_path / "77" / "comm").write_bytes(b"python3\n")
    process = Process(fs, 77)

    assert describe(process).program == program
    process.close()


def test_what_cannot_be_read_of_a_process_is_left_empty(tmp_path: Path) -> None:
    """No maps, no environment, no cgroup: no error."""
    process = Process(tree(tmp_path), 77)
    info = describe(process)

    assert (info.runtimes, info.environment, info.cgroup) == ((), {}, None)
    assert candidate_folders(process) == []
    process.close()


def test_megabytes_of_arguments_hold_nobody_up() -> None:
    """Whoever has an environment or a command line of more than is ever read is described without it."""
    large = {"RANK": "3", **{f"A{number}": "x" * 100_000 for number in range(4)}}
    arguments = ["/bin/sleep", LIFETIME, *["0"] * (process_facts.MAX_ARGUMENT_BYTES // 2)]
    for command, environment in ((["/bin/sleep", LIFETIME], large), (arguments, {"RANK": "3"})):
        with subprocess.Popen(command, env=environment) as child:
            wait_until(Path(f"/proc/{child.pid}/environ").read_bytes)  # exec returns before it has filled them in
            process = Process(KernelFs(), child.pid)
            info = describe(process)
            process.close()
            child.kill()

        assert info.program == "sleep"
        assert info.environment == ({} if environment is large else {"RANK": "3"})


def test_places_are_the_working_folder_and_the_paths_among_the_arguments(tmp_path: Path) -> None:
    """Absolute and relative ones, after an equals sign too."""
    fs = tree(tmp_path)
    (tmp_path / "77" / "cmdline").write_bytes(b"python3\0train.py\0--dir\0/ckpt/a\0--out=./b\0--n=5\0../c\0")
    (tmp_path / "77" / "cwd").symlink_to("/work/x")
    process = Process(fs, 77)

    assert candidate_folders(process) == [b"/ckpt/a", b"/work/x/b", b"/work/c", b"/work/x"]
    process.close()


def test_the_kernels_own_threads_are_told_by_their_flag(tmp_path: Path) -> None:
    """PF_KTHREAD; no counters are opened, which a user may not read of them."""
    fs = tree(tmp_path, flags=0x00200000)
    (tmp_path / "77" / "io").unlink()

    with pytest.raises(KernelThread):
        Process(fs, 77)
    assert (read_parent(fs, 77), read_parent(fs, 78)) == (1, None)


def test_pids_are_the_numbers_in_proc(tmp_path: Path) -> None:
    """Whatever else is there."""
    for name in ("1", "22", "self", "3x", "sys"):
        (tmp_path / name).mkdir()

    assert sorted(list_pids(KernelFs(proc=tmp_path))) == [1, 22]
    assert os.getpid() in list_pids(KernelFs())


@given(st.dictionaries(st.integers(1, 30), st.integers(0, 30)), st.sets(st.integers(1, 30), max_size=3))
def test_descendants_are_closed_under_parenthood(parents: dict[int, int], roots: set[int]) -> None:
    """Whoever has a parent inside is inside, nobody else but the roots is; circles end."""
    inside = descendants(parents, roots)

    assert roots <= inside
    assert all(pid in inside for pid, parent in parents.items() if parent in inside)
    assert all(pid in roots or parents[pid] in inside for pid in inside)


def test_of_one_that_keeps_no_descriptors_the_same_is_read() -> None:
    """Nothing stays open; once it has ended, or its pid is another's, it is gone."""
    fs = KernelFs()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"!")
        child.stdout.read(1)
        wait_until(lambda: psutil.Process(child.pid).status() == "sleeping")  # from here on it does nothing
        before = held()
        kept, lean = Process(fs, child.pid), Process(fs, child.pid, keeps_open=False)
        for process in (kept, lean):
            assert process.read_io()
            assert process.read_stat(4096)
            process.check_alive()
        assert (lean.io, lean.stat) == (kept.io, kept.stat)
        kept.close()
        assert held() <= before
        lean.start_ticks += 1  # as of the one that had this pid before
        for read in (lean.read_io, lean.check_alive, lambda: lean.read_stat(4096)):
            with pytest.raises(ProcessGone):
                read()
        lean.start_ticks -= 1
        child.kill()
    with pytest.raises(ProcessGone):
        lean.read_io()


def test_a_process_of_the_same_network_is_told_from_one_of_another(tmp_path: Path) -> None:
    """By the links of their namespaces; where these may not be read it is not known."""
    own = Process(KernelFs(), os.getpid())
    assert describe(own).in_other_network is False
    own.close()
    for pid, link in (("self", "net:[1]"), ("7", "net:[2]")):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns/net").symlink_to(link)
    (tmp_path / "8").mkdir()
    found = [_in_other_network(os.fsencode(tmp_path / pid)) for pid in ("7", "8")]
    assert found == [True, None]
