"""Objects of eBPF programs: opened, set up, loaded and attached by libbpf 1.x.

The only module that other packages import: it re-exports the loader and the map readers.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ckptprof_collectors.ebpf.libbpf_loader import BpfError, Libbpf, find_libbpf
from ckptprof_collectors.ebpf.maps import BpfMap, RingReader
from ckptprof_collectors.kernelfs import UnavailableError

CHECKSUMS = "CHECKSUMS"  # beside the objects, written by bpf/build.py: a line for each of its name, bytes and CRC-32
__all__ = [
    "BpfError",
    "BpfMap",
    "BpfObject",
    "Libbpf",
    "ProgramLink",
    "RingReader",
    "checksum",
    "find_libbpf",
    "object_path",
]

_OBJECTS = Path(__file__).parents[1] / "bpf"
_TARGETS = {"aarch64": "arm64"}  # machine of uname -> in the object's name, where they differ
_CONTEXT_ARGUMENTS = 12  # linux/bpf.h: MAX_BPF_FUNC_ARGS, the most that BPF_PROG_TEST_RUN takes for a raw tracepoint


def object_path(name: str, folder: Path = _OBJECTS, machine: str | None = None) -> Path:
    """Path of the object of `name` ("trace") for this machine; raises UnavailableError if there is none."""
    machine = machine or os.uname().machine
    path = folder / f"{name}.{_TARGETS.get(machine, machine)}.bpf.o"
    if not path.exists():
        raise UnavailableError(f"no eBPF programs for this machine: {path} is not there")
    return path


class _OpenOptions(ctypes.Structure):
    """The head of struct bpf_object_open_opts: libbpf reads no further than `size_bytes`."""

    _fields_ = (("size_bytes", ctypes.c_size_t), ("object_name", ctypes.c_char_p))


class _RunOptions(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf 1.0; later fields are past `size_bytes`."""

    _fields_ = (
        ("size_bytes", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("context_in", ctypes.c_void_p),
        ("context_out", ctypes.c_void_p),
        ("context_size_in", ctypes.c_uint32),
        ("context_size_out", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


class ProgramLink:
    """A program's attachment to its hook; it ends with `close`, with its object, or with this process."""

    def __init__(self, lib: Libbpf, pointer: int) -> None:
        self._lib = lib
        self._pointer: int | None = pointer

    def close(self) -> None:
        """Detach it; a second call does nothing."""
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self._lib.call.bpf_link__destroy(pointer)


class BpfObject:
    """One file of eBPF programs and maps: set up, then loaded once, then attached program by program.

    After a failed `load` it can only be closed; open it again to try other programs.
    """

    def __init__(self, lib: Libbpf, path: Path) -> None:
        """Open `path`; raises BpfError (ENOEXEC if it is damaged or no eBPF object)."""
        self._lib = lib
        self._name = path.name
        self._links: list[ProgramLink] = []
        self._maps: dict[str, BpfMap] = {}
        self._images: dict[str, bytearray] = {}
        self._mapped: dict[str, mmap.mmap] = {}
        self._loaded = False
        self._pointer: int | None = None
        try:
            image = path.read_bytes()
        except OSError as error:
            raise BpfError(error.errno or errno.EIO, f"{path}: {error.strerror}") from None
        if not _matches_checksum(image, path):
            reason = f"{path}: is not what {CHECKSUMS} beside it says: damaged, or not built by bpf/build.py"
            raise BpfError(errno.ENOEXEC, reason)
        stem = path.name.split(".")[0].encode()
        options = _OpenOptions(ctypes.sizeof(_OpenOptions), stem)
        lib.consume_log()
        pointer = lib.call.bpf_object__open_mem(image, len(image), ctypes.byref(options))
        self._pointer = lib.check_pointer(pointer, f"{path}: cannot be opened as an eBPF object")

    def _handle(self) -> int:
        if self._pointer is None:
            raise BpfError(errno.EBADF, f"{self._name}: is closed")
        return self._pointer

    def _program(self, name: str) -> int:
        found = self._lib.call.bpf_object__find_program_by_name(self._handle(), name.encode())
        if not found:
            raise BpfError(errno.ENOENT, f"{self._name}: has no program {name}")
        return int(found)

    def _map(self, name: str) -> int:
        found = self._lib.call.bpf_object__find_map_by_name(self._handle(), name.encode())
        if not found:
            raise BpfError(errno.ENOENT, f"{self._name}: has no map {name}")
        return int(found)

    def programs(self) -> list[str]:
        """Names of its programs: grouped by section, each in source order."""
        names: list[str] = []
        pointer = self._lib.call.bpf_object__next_program(self._handle(), None)
        while pointer:
            names.append(self._lib.call.bpf_program__name(pointer).decode())
            pointer = self._lib.call.bpf_object__next_program(self._handle(), pointer)
        return names

    def set_autoload(self, program: str, enabled: bool) -> None:  # noqa: FBT001 - reads best as libbpf's own call
        """Set whether `load` includes this program; raises BpfError (EINVAL once loaded)."""
        code = self._lib.call.bpf_program__set_autoload(self._program(program), enabled)
        self._lib.check(code, f"{self._name}: program {program}")

    def set_max_entries(self, name: str, entries: int) -> None:
        """Set how many entries a map holds (for a ring buffer: bytes) before `load`; raises BpfError."""
        code = self._lib.call.bpf_map__set_max_entries(self._map(name), entries)
        self._lib.check(code, f"{self._name}: size of map {name}")

    def section(self, name: str) -> memoryview:
        """Bytes of a section of global variables, such as `.bss`, `.data.control` or `.rodata.config`.

        Before `load`: the initial value, writable. After it, asked for again: the kernel's own memory, which is read
        and written without a system call; `.rodata*` is read-only then. It stays mapped while used. Raises BpfError.
        """
        if self._loaded:
            return memoryview(self._mapped[name] if name in self._mapped else self._map_section(name))
        if name not in self._images:
            size = ctypes.c_size_t()
            start = self._lib.call.bpf_map__initial_value(self._map(name), ctypes.byref(size))
            self._lib.check_pointer(start, f"{self._name}: {name} is no section of variables")
            self._images[name] = bytearray(ctypes.string_at(start, size.value))
        return memoryview(self._images[name])

    def _map_section(self, name: str) -> mmap.mmap:
        of = self.map(name)
        protection = mmap.PROT_READ if name.startswith(".rodata") else mmap.PROT_READ | mmap.PROT_WRITE
        # libbpf before 1.6 maps sections only for skeletons; BPF_F_MMAPABLE arrays are since Linux 5.5.
        try:
            mapped = mmap.mmap(of.fd, of.value_size, mmap.MAP_SHARED, protection)
        except OSError as error:
            code = error.errno or errno.EINVAL
            raise BpfError(code, f"{self._name}: {name} cannot be mapped: {error.strerror}") from None
        self._mapped[name] = mapped
        return mapped

    def load(self) -> None:
        """Give its maps and wanted programs to the kernel; raises BpfError with the end of the verifier's log."""
        for name, image in self._images.items():
            code = self._lib.call.bpf_map__set_initial_value(self._map(name), bytes(image), len(image))
            self._lib.check(code, f"{self._name}: section {name}")
        self._lib.consume_log()
        self._lib.check(self._lib.call.bpf_object__load(self._handle()), f"{self._name}: cannot be loaded")
        self._loaded = True

    def attach(self, program: str) -> ProgramLink:
        """Attach a loaded program to the hook that its section names; raises BpfError."""
        self._lib.consume_log()
        pointer = self._lib.call.bpf_program__attach(self._program(program))
        link = ProgramLink(
            self._lib, self._lib.check_pointer(pointer, f"{self._name}: program {program} cannot be attached")
        )
        self._links.append(link)
        return link

    def map(self, name: str) -> BpfMap:
        """Map of the loaded object, the same one each time; raises BpfError."""
        if name not in self._maps:
            pointer = self._map(name)
            if not self._loaded:
                raise BpfError(errno.EINVAL, f"{self._name}: map {name} is not loaded")
            self._maps[name] = BpfMap(self._lib, name, pointer)
        return self._maps[name]

    def run_once(self, program: str, arguments: Sequence[int] = ()) -> int:
        """Run a loaded raw tracepoint program with these arguments (else 0) and return its result; raises BpfError."""
        context = (ctypes.c_uint64 * _CONTEXT_ARGUMENTS)(*arguments)
        options = _RunOptions(ctypes.sizeof(_RunOptions))
        options.context_in, options.context_size_in = ctypes.addressof(context), ctypes.sizeof(context)
        descriptor = self._lib.call.bpf_program__fd(self._program(program))
        code = self._lib.call.bpf_prog_test_run_opts(descriptor, ctypes.byref(options))
        self._lib.check(code, f"{self._name}: program {program} cannot be run")
        return int(options.result)

    def close(self) -> None:
        """Detach and unload everything; a second call does nothing."""
        for link in self._links:
            link.close()
        self._links.clear()
        for of in self._maps.values():
            of.fd = -1  # the number may soon be another file's
        for mapped in self._mapped.values():
            with suppress(BufferError):  # a view is still used: unmapped with the last one
                mapped.close()
        self._mapped.clear()
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self._lib.call.bpf_object__close(pointer)


def _matches_checksum(image: bytes, path: Path) -> bool:
    """Test whether CHECKSUMS has the line of an object.

    libelf and libbpf trust the contents of a file, and libbpf 1.1 crashes (SIGSEGV) on some objects with a few damaged
    bytes: only verified objects may reach them.
    """
    try:
        lines = path.with_name(CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return checksum(path.name, image) in lines


def checksum(name: str, image: bytes) -> str:
    """Line of CHECKSUMS for an object."""
    return f"{name} {len(image)} {zlib.crc32(image):08x}"
