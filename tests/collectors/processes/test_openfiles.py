"""Open and mapped files of a process, with the kernel as oracle and hostile names."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.files.statx import FileStatus
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.processes import open_files
from ckptprof_collectors.processes.open_files import (
    MAX_FILES,
    MappingReader,
    OpenFileScanner,
    is_data_path,
    parse_fdinfo,
    parse_maps,
    read_mappings,
)
from ckptprof_collectors.processes.process import Process
from ckptprof_collectors.samples import FileScan, OpenFile

MIB = 1 << 20
HOSTILE = [
    b"a\nb",
    b"\x1b[2J\x1b]0;x\x07",
    b"\xff\xfe",
    b"<script>&\"'",
    b"a b\tc",
    b"x (deleted)",
    b"a\rb",
    b"\x85\xc2\xa0",
]


@contextlib.contextmanager
def looking() -> Iterator[OpenFileScanner]:
    """Look at this very process."""
    process = Process(KernelFs(), os.getpid())
    files = OpenFileScanner(process)
    try:
        yield files
    finally:
        files.close()
        process.close()


def found(scan: FileScan, path: Path) -> OpenFile:
    """Return the one descriptor on `path`."""
    status = path.stat()
    (file,) = [file for file in scan.files if (file.device, file.inode) == (status.st_dev, status.st_ino)]
    return file


def test_position_flags_and_size_are_the_kernels(tmp_path: Path) -> None:
    """lseek, fcntl and fstat say the same."""
    path = tmp_path / "step_1.pt"
    with looking() as files, path.open("wb") as stream:
        stream.write(bytes(5 * MIB))
        stream.flush()
        file = found(files.scan(), path)

        assert (file.position, file.size, file.path) == (5 * MIB, 5 * MIB, str(path))
        assert (file.fd, file.flags & os.O_ACCMODE) == (stream.fileno(), os.O_WRONLY)
        assert file.modified_ns == path.stat().st_mtime_ns


@pytest.mark.parametrize("flag", [os.O_APPEND, os.O_DIRECT, os.O_DSYNC])
def test_the_flags_of_opening_are_seen(tmp_path: Path, flag: int) -> None:
    """Appending, direct and synchronous descriptors are told apart from others."""
    path = tmp_path / "a"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | flag)
    except OSError:
        pytest.skip("this file system cannot be opened so")
    try:
        with looking() as files:
            assert found(files.scan(), path).flags & flag
    finally:
        os.close(fd)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_found_open_and_mapped(tmp_path: Path, name: bytes) -> None:
    """As text for people that never holds a surrogate, and as bytes for the file system."""
    raw = os.fsencode(tmp_path) + b"/" + name
    fd = os.open(raw, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, MIB)
        inode = os.fstat(fd).st_ino
        with looking() as files, mmap.mmap(fd, MIB):
            scan = files.scan(MappingReader(files.process))

            file, *_ = [file for file in scan.files if file.inode == inode]  # mmap keeps a descriptor of its own
            assert scan.mapped is not None
            (mapped,) = [file for file in scan.mapped if file.inode == inode]
            assert file.path == mapped.path == raw.decode("utf-8", "backslashreplace")
            assert files.raw_paths[file.device, file.inode] == raw
            assert (mapped.mapped_bytes, mapped.writable) == (MIB, True)
    finally:
        os.close(fd)


def test_a_descriptor_that_becomes_another_file_while_we_look_is_of_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the position in a small file that is read next is taken for that in the large one before."""
    large, small = tmp_path / "model.bin", tmp_path / "config.json"
    large.write_bytes(b"x" * MIB)
    small.write_bytes(b"y" * 20)
    with large.open("rb") as stream, small.open("rb") as other, looking() as files:
        stream.seek(MIB // 2)
        other.seek(0, os.SEEK_END)
        before = {file.path: file.position for file in files.scan().files}
        real = open_files.statx

        def late(name: bytes, *, dir_fd: int) -> FileStatus:
            status = real(name, dir_fd=dir_fd)
            if name == b"%d" % stream.fileno():
                os.dup2(other.fileno(), stream.fileno())
            return status

        monkeypatch.setattr(open_files, "statx", late)
        after = {file.path: file.position for file in files.scan().files}

    assert (before[str(large)], before[str(small)]) == (MIB // 2, 20)
    assert str(large) not in after


def test_what_is_no_regular_data_file_is_left_out(tmp_path: Path) -> None:
    """Pipes, sockets, FIFOs, folders, devices, code and pseudo files are none."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "lib.so.1").write_bytes(b"x")
    (tmp_path / "code.py").write_bytes(b"x")
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(looking())
        before = {file.fd for file in files.scan().files}
        for path, flags in ((tmp_path / "fifo", os.O_RDWR), (tmp_path, os.O_RDONLY), (Path("/dev/null"), os.O_WRONLY),
                            (tmp_path / "lib.so.1", os.O_RDONLY), (tmp_path / "code.py", os.O_RDONLY),
                            (Path("/proc/self/stat"), os.O_RDONLY)):  # fmt: skip
            stack.callback(os.close, os.open(path, flags))
        stack.enter_context(socket.socket())
        for fd in os.pipe():
            stack.callback(os.close, fd)

        assert {file.fd for file in files.scan().files} == before


def test_a_deleted_file_is_still_open() -> None:
    """The kernel marks its path; identity and size stay."""
    import tempfile  # noqa: PLC0415 - for this one

    with tempfile.NamedTemporaryFile(suffix=".pt") as stream, looking() as files:
        stream.write(bytes(4096))
        stream.flush()
        inode = os.fstat(stream.fileno()).st_ino
        os.unlink(stream.name)  # noqa: PTH108 - a name that tempfile will not find again
        (file,) = [file for file in files.scan().files if file.inode == inode]
        Path(stream.name).touch()

        assert (file.path, file.size) == (f"{stream.name} (deleted)", 4096)


def test_mappings_are_summed_by_file_and_small_or_executable_ones_left_out(tmp_path: Path) -> None:
    """Two windows on one file are one; a page of a small file is nothing."""
    (tmp_path / "big").write_bytes(bytes(4 * MIB))
    (tmp_path / "small").write_bytes(bytes(4096))
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(looking())
        big = stack.enter_context((tmp_path / "big").open("rb"))
        small = stack.enter_context((tmp_path / "small").open("rb"))
        for stream, length, offset in ((big, MIB, 0), (big, 2 * MIB, 2 * MIB), (small, 4096, 0)):
            stack.enter_context(mmap.mmap(stream.fileno(), length, access=mmap.ACCESS_READ, offset=offset))
        mapped = files.scan(MappingReader(files.process)).mapped

        assert mapped is not None
        ours = {file.path: file for file in mapped if file.path.startswith(str(tmp_path))}
        assert {path: file.mapped_bytes for path, file in ours.items()} == {str(tmp_path / "big"): 3 * MIB}
        assert not ours[str(tmp_path / "big")].writable


def test_mappings_are_read_again_only_once_the_memory_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped, touched or unmapped: each is seen, and once a second what changes no size, as another name does."""
    clock = [0]
    monkeypatch.setattr(open_files, "time", SimpleNamespace(monotonic_ns=lambda: clock[0], thread_time_ns=lambda: 0))
    reads: list[int] = []
    kernels = open_files.read_mappings
    monkeypatch.setattr(open_files, "read_mappings", lambda process: reads.append(process.pid) or kernels(process))
    folder = tmp_path / "77"
    folder.mkdir()
    line = b"7f0000000000-7f0000800000 r--s 00000000 08:01 5 /r/data.bin\n"
    seen: list[tuple[int, list[str]]] = []
    renamed = line.replace(b"data", b"other")
    for ticks, size, resident, maps, now_ns in (
        (1, 900, 90, b"", 1), (2, 900, 90, b"", 2), (2, 2900, 90, line, 3), (3, 2900, 90, line, 4),
        (4, 2900, 1090, line, 5), (5, 2900, 1090, renamed, open_files.MAX_AGE_NS), (5, 2900, 1090, renamed,
        2_000_000_000),
        (6, 900, 90, b"", 2_000_000_001),
    ):  # fmt: skip
        clock[0] = now_ns
        (folder / "stat").write_bytes(b"77 (x) S " + b"%d " % ticks * 40)
        (folder / "statm").write_bytes(b"%d 300 %d 1 0 70 0\n" % (size, resident))
        (folder / "maps").write_bytes(maps)
        (folder / "io").touch()
        if not seen:
            process = Process(KernelFs(proc=tmp_path), 77)
            mappings = MappingReader(process)
        process.read_stat(mmap.PAGESIZE)
        paths = [[file.path for file in mappings.read() or ()] for _ in range(3)][-1]
        seen.append((len(reads), paths))
        reads.clear()
    process.close()

    assert seen == [
        (1, []), (0, []), (1, ["/r/data.bin"]), (0, ["/r/data.bin"]), (1, ["/r/data.bin"]), (0, ["/r/data.bin"]),
        (1, ["/r/other.bin"]), (1, []),
    ]  # fmt: skip


def test_mappings_that_were_not_asked_for_are_none() -> None:
    """None is: not looked at; an empty tuple would be: there are none."""
    with looking() as files:
        assert files.scan().mapped is None


def test_a_name_cannot_forge_a_mapping() -> None:
    """A carriage return or another separator within a name starts no line of maps."""
    forged = b"7f0000000000-7f0040000000 r--s 00000000 08:01 666 /etc/shadow"
    for separator in (b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x85"):
        line = b"7f1000000000-7f1000100000 r--s 00000000 08:01 5 /r/a" + separator + forged + b"\n"

        assert list(parse_maps(line)) == [b"/r/a" + separator + forged]


def test_no_more_files_are_told_than_the_bound(tmp_path: Path) -> None:
    """A process with a thousand open files costs what 256 cost."""
    (tmp_path / "a").touch()
    fds = [os.open(tmp_path / "a", os.O_RDONLY) for _ in range(MAX_FILES + 50)]
    try:
        with looking() as files:
            assert len(files.scan().files) == MAX_FILES
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("above", ["model.bin", "/dev/null"])
def test_of_thousands_of_descriptors_no_more_are_listed_than_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    """Where those above are no files, all are: what is told is the same as if each look listed all of them."""
    (tmp_path / "model.bin").touch()
    (tmp_path / "below.bin").touch()
    listed: list[int] = []
    kernels = os.listdir

    def counted(folder: Any) -> list[str]:
        found = kernels(folder)
        listed.append(len(found))
        return found

    with contextlib.ExitStack() as stack:
        below = stack.enter_context((tmp_path / "below.bin").open("rb")).fileno()
        most = [os.open(tmp_path / above, os.O_RDONLY) for _ in range(3 * MAX_FILES)]
        stack.callback(lambda: [os.close(fd) for fd in most])
        files = stack.enter_context(looking())
        first = files.scan()
        monkeypatch.setattr(os, "listdir", counted)
        later = files.scan()
        most.append(os.dup(below))
        newest = files.scan()
        monkeypatch.undo()
        for _ in range(MAX_FILES + 100):
            os.close(most.pop())
        fewer = files.scan()

    def own(scan: FileScan) -> list[OpenFile]:
        """Return those of this test: pytest opens and writes others meanwhile."""
        return [file for file in scan.files if file.path.startswith(str(tmp_path))]

    assert own(later) == own(first)
    assert below in {file.fd for file in later.files} or above == "model.bin"
    assert newest.files[0].path == str(tmp_path / "below.bin")
    assert len(fewer.files) == MAX_FILES or above == "/dev/null"
    assert sum(listed) <= 2 * (2 * MAX_FILES + 2) or above == "/dev/null"


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (b"pos:\t123\nflags:\t0100001\nmnt_id:\t31\nino:\t5\n", (123, 0o100001)),
        (b"pos:\t0\nflags:\t02\n", (0, 2)),
        (b"", (None, None)),
        (b"pos:\tx\nflags:\t02\n", (None, None)),
        (b"flags:\t02\npos:\t1\n", (None, None)),
        (b"pos:\t5\nflags:\t9\n", (None, None)),
    ],
)
def test_fdinfo_is_understood_or_not_at_all(info: bytes, expected: tuple[int | None, int | None]) -> None:
    """A position that could not be read is None, not zero."""
    assert parse_fdinfo(info) == expected


@given(st.binary(max_size=300))
def test_any_maps_and_any_fdinfo_are_survived(raw: bytes) -> None:
    """Nothing is raised, and only absolute paths come out."""
    parse_fdinfo(raw)

    assert all(path.startswith(b"/") for path in parse_maps(raw))


@pytest.mark.parametrize(
    "path",
    [
        b"/r/a.pt",
        b"/r/model.safetensors",
        b"/r/\xff\n",
        b"/home/dev/x.bin",
        b"/dev/shm/tmpab12cd_4",
        b"/dev/shm/run/checkpoint-50/model.pt",
        b"/dev/shm/job/tmpab12cd_4/last.ckpt",
    ],
)
def test_data_files_are_data(path: bytes) -> None:
    """Whatever their names."""
    assert is_data_path(path)


@pytest.mark.parametrize(
    "path",
    [
        b"pipe:[1]",
        b"/dev/shm/x",
        b"/dev/shm/torch_1_tmpab12cd_4",
        b"/dev/shm/tmpab12cd_40",
        b"/memfd:x (deleted)",
        b"/usr/lib/libc.so.6",
        b"/a/b.py",
        b"[heap]",
    ],
)
def test_code_and_pseudo_files_are_none(path: bytes) -> None:
    """They are never looked at."""
    assert not is_data_path(path)


def test_mappings_of_a_process_that_may_not_be_read_are_none(tmp_path: Path) -> None:
    """As for a process of another user."""
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "stat").write_bytes(b"77 (x) S " + b"1 " * 40)
    (folder / "io").write_bytes(b"")
    process = Process(KernelFs(proc=tmp_path), 77)

    assert read_mappings(process) is None
    process.close()


def test_who_has_the_driver_of_gpudirect_storage_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on: it is open for as long as a process uses it."""
    with looking() as files, Path(os.devnull).open("rb") as device:
        before = files.scan()
        real, name = os.readlink, b"%d" % device.fileno()
        with monkeypatch.context() as patched:
            patched.setattr(
                open_files.os, "readlink", lambda at, **how: b"/dev/nvidia-fs3" if at == name else real(at, **how)
            )
            during = files.scan()
        after = files.scan()

    assert [one.gpudirect for one in (before, during, after)] == [False, True, True]
    assert not any(file.path.startswith("/dev/") for file in during.files)
