"""Finding libbpf 1.x and calling it through ctypes: no compiler, no extension module, no child process."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ckptprof_collectors.kernelfs import UnavailableError
from ckptprof_collectors.privileges import CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, read_capabilities

LIBRARY_VARIABLE = "CKPTPROF_LIBBPF"  # the path of the one library to use
BUNDLED_FOLDER = Path(__file__).parents[1] / "_lib"  # what a wheel built with CKPTPROF_BUNDLE_LIBBPF carries
_DEPENDENCIES = ("libz.so.1", "libzstd.so.1", "libelf.so.1")  # by libbpf, and by these themselves
LOG_CHARACTERS = 2000
_INSTALL = "install it (apt install libbpf1, dnf install libbpf) or use the wheel of ckptprof that carries it"
_OWN_ERRORS = 4000  # libbpf.h: LIBBPF_ERRNO__START
_LEVEL_DEBUG = 2  # libbpf.h: enum libbpf_print_level

# va_list is handed over by address on x86-64 (an array) and on arm64 (a structure of 32 bytes: AAPCS64, rule B.4).
_PrintFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

_POINTER, _INT, _U32, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p
_U32_POINTER = ctypes.POINTER(ctypes.c_uint32)
# name -> (result, arguments); each is in libbpf 1.0 (libbpf.map) and unchanged up to 1.6.
_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "libbpf_major_version": (_U32, ()),
    "libbpf_minor_version": (_U32, ()),
    "libbpf_num_possible_cpus": (_INT, ()),
    "libbpf_strerror": (_INT, (_INT, _TEXT, ctypes.c_size_t)),
    "libbpf_set_print": (_POINTER, (_POINTER,)),
    "bpf_object__open_mem": (_POINTER, (_TEXT, ctypes.c_size_t, _POINTER)),
    "bpf_object__load": (_INT, (_POINTER,)),
    "bpf_object__close": (None, (_POINTER,)),
    "bpf_object__next_program": (_POINTER, (_POINTER, _POINTER)),
    "bpf_object__find_program_by_name": (_POINTER, (_POINTER, _TEXT)),
    "bpf_object__find_map_by_name": (_POINTER, (_POINTER, _TEXT)),
    "bpf_program__name": (_TEXT, (_POINTER,)),
    "bpf_program__fd": (_INT, (_POINTER,)),
    "bpf_program__set_autoload": (_INT, (_POINTER, ctypes.c_bool)),
    "bpf_program__attach": (_POINTER, (_POINTER,)),
    "bpf_link__destroy": (_INT, (_POINTER,)),
    "bpf_map__fd": (_INT, (_POINTER,)),
    "bpf_map__type": (_INT, (_POINTER,)),
    "bpf_map__key_size": (_U32, (_POINTER,)),
    "bpf_map__value_size": (_U32, (_POINTER,)),
    "bpf_map__max_entries": (_U32, (_POINTER,)),
    "bpf_map__set_max_entries": (_INT, (_POINTER, _U32)),
    "bpf_map__initial_value": (_POINTER, (_POINTER, ctypes.POINTER(ctypes.c_size_t))),
    "bpf_map__set_initial_value": (_INT, (_POINTER, _TEXT, ctypes.c_size_t)),
    "bpf_map_lookup_elem": (_INT, (_INT, _POINTER, _POINTER)),
    "bpf_map_update_elem": (_INT, (_INT, _POINTER, _POINTER, ctypes.c_uint64)),
    "bpf_map_delete_elem": (_INT, (_INT, _POINTER)),
    "bpf_map_lookup_batch": (_INT, (_INT, _POINTER, _POINTER, _POINTER, _POINTER, _U32_POINTER, _POINTER)),
    "bpf_map_lookup_and_delete_batch": (_INT, (_INT, _POINTER, _POINTER, _POINTER, _POINTER, _U32_POINTER, _POINTER)),
    "bpf_prog_test_run_opts": (_INT, (_INT, _POINTER)),
    "ring_buffer__new": (_POINTER, (_INT, _POINTER, _POINTER, _POINTER)),
    "ring_buffer__consume": (_INT, (_POINTER,)),
    "ring_buffer__epoll_fd": (_INT, (_POINTER,)),
    "ring_buffer__free": (None, (_POINTER,)),
}


class BpfError(OSError):
    """An error of libbpf or the kernel; `errno` is the kernel's, `strerror` can be shown to users.

    ENOEXEC stands for every error of libbpf's own (no ELF file, relocation failed); `log` is the end of the output of
    libbpf and the verifier, at most 2,000 characters, "" if none.
    """

    def __init__(self, code: int, text: str, log: str = "") -> None:
        super().__init__(code, text)
        self.log = log

    @property
    def summary(self) -> str:
        """The error and its reason, on one line, without the log."""
        return str(self.strerror).split("\n", 1)[0]


class Libbpf:
    """One loaded libbpf; `path` is what it was loaded from, `version` is (major, minor).

    The functions of `_SIGNATURES` are called through `call`; a callback keeps their output from stderr.
    """

    def __init__(self, path: str) -> None:
        """Load it; raises UnavailableError if it cannot be loaded or is older than 1.0."""
        self.path = path
        try:
            self.call = ctypes.CDLL(path, use_errno=True)
        except OSError as error:
            raise UnavailableError(f"{path} cannot be loaded: {error}") from None
        try:  # since 0.6; a library without it is older
            self.version: tuple[int, int] = (self.call.libbpf_major_version(), self.call.libbpf_minor_version())
        except AttributeError:
            self.version = (0, 0)
        if self.version[0] < 1:
            raise UnavailableError(f"{path} is libbpf 0.x, of an old interface that is unusable: {_INSTALL}")
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(self.call, name)
            except AttributeError:
                raise UnavailableError(f"{path} has no {name}: {_INSTALL}") from None
            function.restype, function.argtypes = result, arguments
        self._log_lines: deque[str] = deque(maxlen=64)
        self._libc = ctypes.CDLL(None)
        self._libc.free.argtypes = (ctypes.c_void_p,)
        self._libc.vasprintf.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_void_p)
        try:
            self._print = _PrintFunction(self._log_callback)
        except MemoryError:  # a sandbox forbids executable memory, which libffi needs: no output then
            self.call.libbpf_set_print(None)
        else:
            self.call.libbpf_set_print(ctypes.cast(self._print, ctypes.c_void_p))

    def _log_callback(self, level: int, text_format: int, arguments: int) -> int:
        if level >= _LEVEL_DEBUG:
            return 0
        text = ctypes.c_void_p()
        if self._libc.vasprintf(ctypes.byref(text), text_format, arguments) >= 0:
            # A verifier's log can be megabytes: the reason is at its end.
            self._log_lines.append(ctypes.string_at(text.value or 0)[-2 * LOG_CHARACTERS :].decode(errors="replace"))
            self._libc.free(text)
        return 0

    def consume_log(self) -> str:
        """Consume the end of the log, at most 2,000 characters."""
        text = "".join(self._log_lines)
        self._log_lines.clear()
        return text[-LOG_CHARACTERS:].strip()

    def make_error(self, code: int, subject: str) -> BpfError:
        """Make the error for `code` (an errno or libbpf's own number, of either sign) of `subject`."""
        code = abs(code)
        log = self.consume_log()
        if code >= _OWN_ERRORS:
            text = ctypes.create_string_buffer(128)
            self.call.libbpf_strerror(code, text, len(text))
            reason, code = text.value.decode(errors="replace"), errno.ENOEXEC
        else:
            reason = os.strerror(code)
            if code == errno.EPERM:
                reason += f" ({_refusal_reason()})"
            elif code == errno.ESRCH and "valid kernel BTF" in log:
                reason = "this kernel has no description of its types (BTF, CONFIG_DEBUG_INFO_BTF)"
        return BpfError(code, f"{subject}: {reason}" + (f"\n{log}" if log else ""), log)

    def check_pointer(self, value: int | None, subject: str) -> int:
        """Check a pointer of libbpf; raises BpfError if it is NULL (libbpf 1.x sets errno then)."""
        if not value:
            raise self.make_error(ctypes.get_errno() or errno.EINVAL, subject)
        return value

    def check(self, code: int, subject: str) -> int:
        """Check a result of libbpf; raises BpfError if it is negative."""
        if code < 0:
            raise self.make_error(code, subject)
        return code


def _refusal_reason() -> str:
    """Explain EPERM: missing capabilities, or a kernel that refuses in spite of them."""
    try:
        effective = read_capabilities().effective
    except OSError:
        return "needs CAP_BPF and CAP_PERFMON"
    missing = [name for name, bit in (("CAP_BPF", CAP_BPF), ("CAP_PERFMON", CAP_PERFMON)) if not effective >> bit & 1]
    if missing and not effective >> CAP_SYS_ADMIN & 1:
        return f"lacks {' and '.join(missing)}"
    return "this kernel refuses it in spite of the capabilities: lockdown or a security policy"


def _is_privileged() -> bool:
    try:
        return os.geteuid() == 0 or read_capabilities().effective != 0
    except OSError:
        return True


def _is_writable_by_root_only(path: Path) -> bool:
    """Test whether only root can replace the file; a sticky folder protects root's files."""
    for each in (path, *path.parents):
        state = each.stat()
        if state.st_uid != 0 or (state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX):
            return False
    return True


def _checked_override(override: str) -> Path:
    """Check the path to load; raises UnavailableError if this process must not trust it."""
    path = Path(override)
    if not path.exists() or not _is_privileged():
        return path
    path = path.resolve()  # the checked file is the loaded one
    if not _is_writable_by_root_only(path):
        raise UnavailableError(f"{override} is not loaded: others than root can change it")
    return path


_loaded: dict[str, Libbpf] = {}  # for ever: the library holds the address of a callback


def _load(path: str, dependencies: Iterable[Path] = ()) -> Libbpf:
    if path not in _loaded:
        _load_dependencies(dependencies)
        _loaded[path] = Libbpf(path)
    return _loaded[path]


def _load_dependencies(libraries: Iterable[Path]) -> None:
    """Load the libraries that libbpf needs from its own folder, in the order of their dependencies.

    The dynamic linker takes a library of the same soname that is loaded already, so no rpath is needed.
    """
    waiting = list(libraries)
    while waiting:
        failed: list[Path] = []
        for library in waiting:
            try:
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            except OSError:  # noqa: PERF203 - retried after the others
                failed.append(library)
        if len(failed) == len(waiting):
            return  # the load of libbpf itself names the missing one
        waiting = failed


def _system_folders() -> list[Path]:
    triplet = f"{os.uname().machine}-linux-gnu"
    return [Path(root) / tail for root in ("/usr/lib", "/lib", "/usr/local/lib") for tail in (triplet, "")] + [
        Path("/usr/lib64"),
        Path("/usr/local/lib64"),
    ]


def find_libbpf(*, bundled: Path = BUNDLED_FOLDER, folders: Sequence[Path] | None = None) -> Libbpf:
    """Load libbpf 1.x: that of CKPTPROF_LIBBPF, else the bundled one, else the system's (or that of `folders` only).

    A process with privileges loads the CKPTPROF_LIBBPF file only if it is root's, and all others by their own path: the
    search path of the dynamic linker (LD_LIBRARY_PATH) is its caller's.

    Raises UnavailableError with the reason and what to install. Loaded once per process.
    """
    override = os.environ.get(LIBRARY_VARIABLE)
    if override:
        path = _checked_override(override)
        return _load(str(path), path.parent.glob("lib[ez]*.so.1") if path.parent.name == BUNDLED_FOLDER.name else ())
    refused: list[str] = []
    own = bundled / "libbpf.so.1"
    if own.exists():
        try:
            return _load(str(own), (path for path in bundled.glob("*.so*") if path != own))
        except UnavailableError as error:  # built for a newer glibc: the system's may work
            refused.append(str(error))
    searched = _system_folders() if folders is None else folders
    for folder in searched:
        with suppress(UnavailableError):
            if (folder / "libbpf.so.1").exists():
                needed = (folder / name for name in _DEPENDENCIES)
                return _load(str(folder / "libbpf.so.1"), [path for path in needed if path.exists()])
    if folders is None and not _is_privileged():
        with suppress(UnavailableError):
            return _load("libbpf.so.1")
    old = next((found for folder in searched for found in sorted(folder.glob("libbpf.so.0*"))), None)
    if old is not None:
        refused.append(f"{old} is libbpf 0.x, of an old interface that is unusable: {_INSTALL}")
    if not refused:
        refused.append(f"libbpf.so.1 is not there: {_INSTALL}")
    raise UnavailableError("; ".join(refused))
