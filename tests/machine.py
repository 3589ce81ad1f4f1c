"""What this machine has and lets its tests do: each is tried once by a process, and missing with a reason.

It is the right that is asked for and not uid 0: the root of a container has few of root's rights.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib.util
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# linux/capability.h
CAPABILITIES = {
    "NET_ADMIN": 12, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "SYS_NICE": 23, "DAC_READ_SEARCH": 2, "PERFMON": 38, "BPF": 39,
}  # fmt: skip
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_FIRST_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_BPF = {"x86_64": 321, "aarch64": 280}  # bpf(2)
_BPF_PROG_LOAD, _RAW_TRACEPOINT = 5, 17  # include/uapi/linux/bpf.h
_RETURN_0 = struct.pack("=QQ", 0xB7, 0x95)  # r0 = 0; exit
_FAN_NONBLOCK = 0x2


def missing_programs(*names: str) -> str | None:
    """Tell which of these programs are not installed."""
    missing = [name for name in names if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def missing_root() -> str | None:
    """Tell whether this is not root, of whatever rights."""
    return None if os.geteuid() == 0 else "needs root"


def held(*names: str) -> bool:
    """Return whether this process has all these capabilities."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    effective = int(status["CapEff"], 16)
    return all(effective >> CAPABILITIES[name] & 1 for name in names)


def missing_capabilities(*names: str) -> str | None:
    """Tell which of these capabilities this process has not, or may not hand on."""
    if lacking := [f"CAP_{name}" for name in names if not held(name)]:
        return f"{'this root' if os.geteuid() == 0 else 'this user'} has not {' and '.join(lacking)}"
    return None


def _modules(*names: str) -> str | None:
    # Importing them takes seconds and hundreds of MB: finding them is enough at collection.
    missing = [name for name in names if not importlib.util.find_spec(name)]
    return f"not installed: {', '.join(missing)}" if missing else None


def _clang() -> str | None:
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        return "not installed: libbpf-dev"
    return _libbpf() or missing_programs("clang", "llvm-strip")


def _libbpf() -> str | None:
    try:
        ctypes.CDLL("libbpf.so.1")
    except OSError:
        return "not installed: libbpf1"
    return None


def _tried(*command: str) -> str | None:
    """Tell what a command that has to succeed says instead."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return missing_programs(command[0])
    if done.returncode == 0:
        return None
    return f"not allowed here: {(done.stderr.strip() or command[0]).splitlines()[0]}"


def _namespaces() -> str | None:
    return _tried("unshare", "--mount", "--pid", "--fork", "--mount-proc", "true")


def _mount() -> str | None:
    return _tried("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/tmp")  # seen by nobody else


def _device(path: str) -> str | None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def _fuse() -> str | None:
    return _device("/dev/fuse") or _mount()


def _loop() -> str | None:
    return _device("/dev/loop-control") or _mount()


def _fanotify() -> str | None:
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.fanotify_init(_FAN_NONBLOCK, os.O_RDONLY)
    if watch < 0:
        return f"fanotify_init: {os.strerror(ctypes.get_errno())}"
    os.close(watch)
    return None


def _nspawn() -> str | None:
    return missing_programs("systemd-analyze", "systemd-nspawn", "mmdebstrap") or _mount() or _namespaces()


def _bpf() -> str | None:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "needs a kernel with BTF"
    if str(Path("/proc/self/ns/pid").readlink()) != _FIRST_PIDS:
        return "the pids here are not the host's"
    code, licence = ctypes.create_string_buffer(_RETURN_0), ctypes.create_string_buffer(b"GPL")
    load = struct.pack("=IIQQIIQ", _RAW_TRACEPOINT, 2, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0)
    if (number := _BPF.get(platform.machine())) is None:
        return f"the calls of {platform.machine()} are not known"
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, _BPF_PROG_LOAD, ctypes.create_string_buffer(load, 128), 128)
    if descriptor < 0:
        return f"no program can be loaded: {os.strerror(ctypes.get_errno())}"
    os.close(descriptor)
    return _libbpf()


def _registry() -> str | None:
    asked = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-cache-dir"]
    refused = _tried(*asked, "--no-build-isolation", str(Path(__file__).resolve().parents[1]))
    return refused and "what ckptprof needs cannot be installed: no package registry is within reach"


_MODULES = {
    "torch": ("torch",),
    "orbax": ("jax", "orbax"),
    "frames": ("pandas", "polars", "pyarrow", "tensorboard"),
    "readers": ("duckdb", "opentelemetry", "perfetto", "pyarrow"),
    "writers": ("fastsafetensors", "runai_model_streamer", "tensorizer", "torch", "torch_checkpointing"),
    "frameworks": (
        "accelerate", "deepspeed", "h5py", "joblib", "keras", "lightning", "megatron", "torch", "transformers",
    ),
}  # fmt: skip
# By the name of its marker, whose arguments it is given: what tells why a test has to be left out
REQUIREMENTS: dict[str, Callable[..., str | None]] = {
    "root": missing_root,
    "capabilities": missing_capabilities,
    "programs": missing_programs,
    **{name: functools.partial(_modules, *modules) for name, modules in _MODULES.items()},
    "clang": _clang,
    "browser": functools.partial(missing_programs, "chromium"),
    "bpf": _bpf,
    "mount": _mount,
    "namespaces": _namespaces,
    "fuse": _fuse,
    "loop": _loop,
    "fanotify": _fanotify,
    "prometheus": functools.partial(missing_programs, "prometheus", "promtool"),
    "node_exporter": functools.partial(missing_programs, "prometheus-node-exporter"),
    "nspawn": _nspawn,
    "registry": _registry,
}


@functools.cache
def missing(name: str, *arguments: str) -> str | None:
    """Tell, for the reason of a skip, what this machine lacks; asked once by each process."""
    reason = REQUIREMENTS[name](*arguments)
    return reason and f"{name}: {reason}"


def required(name: str) -> bool:
    """Tell whether the environment forbids to skip for want of this."""
    wanted = {word.strip() for word in os.environ.get("CKPTPROF_REQUIRE", "").split(",")}
    return "all" in wanted or name in wanted


def need(name: str, *arguments: str) -> None:
    """Skip the test, or fail where skipping is forbidden, if this machine lacks it: a marker in a fixture's hand."""
    if reason := missing(name, *arguments):
        if required(name):
            pytest.fail(f"{reason}, and CKPTPROF_REQUIRE forbids to skip", pytrace=False)
        pytest.skip(reason)


def need_room(folder: str, bytes_: int) -> None:
    """Skip the test if a file system has not so much room: Docker gives 64 MB to /dev/shm."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        pytest.skip(f"{folder}: {os.strerror(error.errno or errno.ENOENT)}")
    if free < bytes_:
        pytest.skip(f"{folder} has room for {free >> 20} MiB of {bytes_ >> 20}")
