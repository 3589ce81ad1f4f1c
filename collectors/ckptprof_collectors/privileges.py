"""Capabilities: effective only in the operations that need them (capget(2), capset(2), capabilities(7)).

Two operations need some: reading /proc and the files of other users' processes, in the sampler's tick and its workers;
and reading root's own files (a TLS key, measured ceilings), in the recorder. They run `with RAISED`. Code that parses
requests, frames or output of other programs has none. Each thread has its own sets, and starts with its starter's.

Those of eBPF are dropped once the programs are attached. They stay attached, and maps are read through descriptors.
Some kernels require a capability for that: before 5.19 (c8644cd0efe7, "refine kernel.unprivileged_bpf_disabled
behaviour") every bpf(2) call does while `kernel.unprivileged_bpf_disabled` is set. So the drop is tried, and undone if
reads fail.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

CAP_DAC_READ_SEARCH = 2
CAP_SYS_PTRACE = 19
CAP_SYS_ADMIN = 21  # include/uapi/linux/capability.h
CAP_PERFMON = 38
CAP_BPF = 39
TRACING_MASK = 1 << CAP_PERFMON | 1 << CAP_BPF
_VERSION_3 = 0x20080522  # 64 bits, in two halves
_PR_CAP_AMBIENT = 47  # include/uapi/linux/prctl.h
_PR_CAP_AMBIENT_LOWER = 3
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_READ = 23
_HALF = 0xFFFFFFFF
_LIBC = ctypes.PyDLL(None, use_errno=True)  # each call is shorter than a release of the GIL


@dataclass(frozen=True)
class Capabilities:
    """The three sets of a thread, as masks of bits."""

    effective: int
    permitted: int
    inheritable: int


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_CapabilityData = _Data * 2


def read_capabilities() -> Capabilities:
    """Read the capabilities of this thread; raises OSError."""
    data = _CapabilityData()
    _call("capget", ctypes.byref(_Header(_VERSION_3, 0)), data)
    low, high = data
    return Capabilities(
        effective=low.effective | high.effective << 32,
        permitted=low.permitted | high.permitted << 32,
        inheritable=low.inheritable | high.inheritable << 32,
    )


def are_in_bounding_set(*capabilities: int) -> bool:
    """Test for capabilities in the bounding set: a container may lack some.

    Those unknown to the kernel count as allowed.
    """
    return all(_LIBC.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) != 0 for capability in capabilities)


def set_capabilities(capabilities: Capabilities) -> None:
    """Set those of this thread, and of the threads that it starts from now on; raises OSError."""
    _call("capset", ctypes.byref(_Header(_VERSION_3, 0)), _to_data(capabilities))


def _to_data(capabilities: Capabilities) -> ctypes.Array[_Data]:
    data = _CapabilityData()
    for half, shift in zip(data, (0, 32), strict=True):
        half.effective = capabilities.effective >> shift & _HALF
        half.permitted = capabilities.permitted >> shift & _HALF
        half.inheritable = capabilities.inheritable >> shift & _HALF
    return data


class RaisedCapabilities:
    """`with RAISED` makes permitted capabilities effective in this thread; does nothing before `drop_effective`."""

    def __init__(self) -> None:
        self._sets: tuple[ctypes.Array[_Data], ctypes.Array[_Data]] | None = None  # at rest, and raised
        self._header = _Header(_VERSION_3, 0)
        self._thread = threading.local()

    def drop_effective(self) -> None:
        """Make none effective; they stay permitted, and inheritable by children. Root stays root: it owns files."""
        if os.geteuid() == 0:
            return
        try:
            before = read_capabilities()
            if before.permitted:
                set_capabilities(replace(before, effective=0))
                raised = replace(before, effective=before.permitted)
                self._sets = _to_data(replace(before, effective=0)), _to_data(raised)
        except OSError:  # a sandbox that refuses the call has its own mind about capabilities
            return

    def lower(self) -> None:
        """Make none effective in this thread."""
        if self._sets is not None:
            _LIBC.capset(ctypes.byref(self._header), self._sets[0])

    def __enter__(self) -> None:
        if self._sets is not None:
            depth = self._thread.depth = getattr(self._thread, "depth", 0) + 1
            if depth == 1:
                _LIBC.capset(ctypes.byref(self._header), self._sets[1])

    def __exit__(self, *_: object) -> None:
        if self._sets is not None:
            self._thread.depth -= 1
            if self._thread.depth == 0:
                self.lower()


RAISED = RaisedCapabilities()  # of this process


def forbid_ptrace() -> None:
    """Protect a process with capabilities from other processes of its user: no ptrace, memory access or core file.

    Not needed for root: only root may trace root's processes. Call it again after each exec.
    """
    with suppress(OSError):
        if os.geteuid() != 0 and read_capabilities().permitted:
            _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_tracing(check: Callable[[], object]) -> bool:
    """Drop CAP_BPF and CAP_PERFMON for good if `check` works without; return True if they are gone.

    `check` raises OSError if it needs them; then they stay. Root keeps them: an exec would restore them.
    """
    if os.geteuid() == 0:
        return False
    try:
        before = read_capabilities()
        if not before.permitted & TRACING_MASK:
            return True
        set_capabilities(replace(before, effective=before.effective & ~TRACING_MASK))
        try:
            check()
        except OSError:
            set_capabilities(before)
            return False
        for capability in (CAP_PERFMON, CAP_BPF):
            _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, capability, 0, 0)
        set_capabilities(
            Capabilities(*(mask & ~TRACING_MASK for mask in (before.effective, before.permitted, before.inheritable)))
        )
    except OSError:  # a sandbox that refuses the call has its own mind about capabilities
        return False
    return True


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
