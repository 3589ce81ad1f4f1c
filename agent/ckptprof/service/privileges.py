"""Giving up the capabilities of eBPF once the programs are attached (capget(2), capset(2), capabilities(7)).

What is attached stays attached, and a map is read through its descriptor. Whether that asks for a capability depends
on the kernel: before 5.19 (c8644cd0efe7, "refine kernel.unprivileged_bpf_disabled behaviour") every bpf(2) call does
while `kernel.unprivileged_bpf_disabled` is set. So it is tried, and taken back where it does not work.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

CAP_DAC_READ_SEARCH = 2
CAP_SYS_PTRACE = 19
CAP_SYS_ADMIN = 21  # include/uapi/linux/capability.h
CAP_PERFMON = 38
CAP_BPF = 39
OF_TRACING = 1 << CAP_PERFMON | 1 << CAP_BPF
_VERSION_3 = 0x20080522  # 64 bits, in two halves
_PR_CAP_AMBIENT = 47  # include/uapi/linux/prctl.h
_PR_CAP_AMBIENT_LOWER = 3
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_READ = 23
_HALF = 0xFFFFFFFF


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


_Halves = _Data * 2


def held() -> Capabilities:
    """Return those of this thread; raises OSError."""
    halves = _Halves()
    _call("capget", ctypes.byref(_Header(_VERSION_3, 0)), halves)
    low, high = halves
    return Capabilities(
        effective=low.effective | high.effective << 32,
        permitted=low.permitted | high.permitted << 32,
        inheritable=low.inheritable | high.inheritable << 32,
    )


def within_bounds(*capabilities: int) -> bool:
    """Return whether this process and what it starts may come to hold each: a container may have none of them to give.

    What the kernel does not know, it does not bound.
    """
    library = ctypes.CDLL(None, use_errno=True)
    return all(library.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) != 0 for capability in capabilities)


def become(wanted: Capabilities) -> None:
    """Set those of this thread, and of the threads that it starts from now on; raises OSError."""
    halves = _Halves()
    for half, shift in zip(halves, (0, 32), strict=True):
        half.effective = wanted.effective >> shift & _HALF
        half.permitted = wanted.permitted >> shift & _HALF
        half.inheritable = wanted.inheritable >> shift & _HALF
    _call("capset", ctypes.byref(_Header(_VERSION_3, 0)), halves)


def hide() -> None:
    """Let no other process of this user look into one that holds capabilities: no ptrace, no memory, no core file.

    Root needs none of it: only root may look into what is root's. It is to be called again after each exec.
    """
    with suppress(OSError):
        if os.geteuid() != 0 and held().permitted:
            _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def drop_tracing(check: Callable[[], object]) -> bool:
    """Give up CAP_BPF and CAP_PERFMON for good if `check` works without; return whether they are gone.

    `check` raises OSError where it needs them; then they stay. Root stays root: it would get them back by executing.
    """
    if os.geteuid() == 0:
        return False
    try:
        before = held()
        if not before.permitted & OF_TRACING:
            return True
        become(replace(before, effective=before.effective & ~OF_TRACING))
        try:
            check()
        except OSError:
            become(before)
            return False
        _lower_ambient()
        become(Capabilities(*(mask & ~OF_TRACING for mask in (before.effective, before.permitted, before.inheritable))))
    except OSError:  # a sandbox that refuses the call has its own mind about capabilities
        return False
    return True


def rest_tracing() -> None:
    """Use CAP_BPF and CAP_PERFMON no longer, but keep them to hand on: for a parent whose child needs them again."""
    if os.geteuid() == 0:
        return
    try:
        before = held()
        if before.effective & OF_TRACING:
            become(replace(before, effective=before.effective & ~OF_TRACING))
    except OSError:
        return


def _lower_ambient() -> None:
    for capability in (CAP_PERFMON, CAP_BPF):
        _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, capability, 0, 0)


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
