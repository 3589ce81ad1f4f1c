"""The choice of programs, on the kernel that is here: the best that it takes, and by name what it does not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof_collectors.ebpf import hooks as tracehooks
from ckptprof_collectors.ebpf.hooks import (
    BLOCK_HOOKS,
    ESSENTIAL_HOOKS,
    OPTIONAL_HOOKS,
    AttachedObject,
    Hook,
    KernelTypes,
    load_and_attach,
)
from ckptprof_collectors.ebpf.libbpf import BpfError, BpfObject, find_libbpf, object_path
from ckptprof_collectors.ebpf.trace import EbpfTrace
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.samples import FileActivity, TraceHealth

pytestmark = [pytest.mark.root, pytest.mark.bpf]


class OldKernel(KernelTypes):
    """The types of this kernel without some of them."""

    def __init__(self, *missing: bytes) -> None:
        """Take these away."""
        super().__init__(KernelFs())
        for name in missing:
            assert name in self._data
            self._data = self._data.replace(name, b"\0" + b"x" * (len(name) - 2) + b"\0")


def hooked(types: KernelTypes, optional: tuple[Hook, ...] = OPTIONAL_HOOKS) -> AttachedObject:
    """Load the trace as it would be loaded on such a kernel."""
    return load_and_attach(find_libbpf(), object_path("trace"), types, (ESSENTIAL_HOOKS, optional))


def test_every_hook_of_this_kernel_is_taken() -> None:
    """Nothing is degraded here, and each hook says which program stands there."""
    found = hooked(KernelTypes(KernelFs()))
    try:
        assert found.degraded == []
        waiting = {"mapped-writes", "sends", "receives"}
        assert set(found.programs) == {hook.name for hook in ESSENTIAL_HOOKS + OPTIONAL_HOOKS} - waiting
        assert set(found.waiting) == waiting
    finally:
        found.close()


def test_a_kernel_without_typed_casts_gets_portable_programs() -> None:
    """Before 6.2 there is no bpf_rdonly_cast."""
    found = hooked(OldKernel(b"\0bpf_rdonly_cast\0"))
    try:
        assert found.programs["calls"] == "call_exit_portable"
        assert found.programs["timing"] == "call_enter_portable"
        assert found.degraded == []
    finally:
        found.close()


def test_a_refused_program_falls_back_to_the_portable_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the types promise and the kernel refuses is tried again without it."""
    wrong = Hook("mapped-writes", (("fault_dirty_page", b"\0task_struct\0"),), "pages written through mappings")
    monkeypatch.setattr(tracehooks, "OPTIONAL_HOOKS", (wrong,))

    found = hooked(KernelTypes(KernelFs()), (wrong,))
    try:
        assert found.programs == {"calls": "call_exit_portable"}
        assert any("pages written through mappings" in text and "refused" in text for text in found.degraded)
    finally:
        found.close()


def test_a_program_that_stands_apart_is_refused_alone() -> None:
    """The others stay the best that there are; the kernel says of this one what it is."""
    wrong = Hook(
        "sends", (("fault_dirty_page", b"\0task_struct\0"),), "what is sent", on_demand=True, is_separable=True
    )

    found = hooked(KernelTypes(KernelFs()), (OPTIONAL_HOOKS[0], wrong))
    try:
        assert found.programs == {"calls": "call_exit_typed", "timing": "call_enter_typed"}
        assert any("what is sent" in text and "refused" in text for text in found.degraded)
        assert not found.attach_on_demand("sends")
    finally:
        found.close()


def test_a_kernel_that_does_not_tell_what_is_sent_costs_nothing_else() -> None:
    """Before 6.3."""
    found = hooked(OldKernel(b"\0btf_trace_sock_send_length\0", b"\0btf_trace_sock_recv_length\0"))
    try:
        assert found.programs["calls"] == "call_exit_typed"
        assert [text for text in found.degraded if "6.3" not in text] == []
        assert len(found.degraded) == 2
    finally:
        found.close()


def test_a_missing_tracepoint_is_named_with_what_is_lost() -> None:
    """One sentence that a person understands."""
    found = hooked(OldKernel(b"\0btf_trace_io_uring_submit_req\0", b"\0btf_trace_balance_dirty_pages\0"))
    try:
        assert len(found.degraded) == 2
        assert "io_uring" in found.degraded[0]
        assert "dirty" in found.degraded[1]
    finally:
        found.close()


def test_a_kernel_without_the_essential_tracepoint_is_refused() -> None:
    """Without reads and writes there is no trace."""
    with pytest.raises(UnavailableError, match="reads and writes"):
        hooked(OldKernel(b"\0bpf_rdonly_cast\0", b"\0btf_trace_sys_exit\0"))


def test_a_kernel_without_types_is_refused(tmp_path: Path) -> None:
    """No BTF, no CO-RE."""
    with pytest.raises(UnavailableError, match="types"):
        KernelTypes(KernelFs(sys=tmp_path))


def test_the_devices_have_programs_of_their_own() -> None:
    """Issue and completion of requests."""
    found = load_and_attach(find_libbpf(), object_path("block"), KernelTypes(KernelFs()), (BLOCK_HOOKS, ()))
    try:
        assert found.programs == {"block-issue": "issue_of_request", "block-complete": "complete"}
    finally:
        found.close()


def test_the_portable_programs_count_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both variants see the same operations of the same job."""
    target = tmp_path / "data.bin"
    job = f"f = open({str(target)!r}, 'wb', buffering=0)\nfor _ in range(10): f.write(b'x' * 5000)\nf.close()"
    seen = []
    for portable in (False, True):
        if portable:
            monkeypatch.setattr(
                "ckptprof_collectors.ebpf.trace.KernelTypes", lambda _: OldKernel(b"\0bpf_rdonly_cast\0")
            )
        trace = EbpfTrace(KernelFs(), family_of=(os.getpid(),))
        try:
            assert trace.programs["calls"] == ("call_exit_portable" if portable else "call_exit_typed")
            subprocess.run([sys.executable, "-c", job], check=True)
            samples = [s for s in trace.read() if isinstance(s, FileActivity) and s.path == str(target)]
        finally:
            trace.close()
        (sample,) = samples
        assert sample.closed_ns is not None
        seen.append((sample.operations, sample.bytes, sample.consecutive_bytes, sample.sizes, sample.timed_operations))
    assert seen[0] == seen[1] == (10, 50_000, 50_000, ((4096, 10, 50_000),), 10)


@pytest.mark.parametrize(("code", "permission"), [(errno.EPERM, True), (errno.EINVAL, False)])
def test_a_kernel_that_refuses_every_program_is_named(
    monkeypatch: pytest.MonkeyPatch, *, code: int, permission: bool
) -> None:
    """Lockdown refuses as a missing privilege does; another refusal is not for want of one."""

    def refuse(_: BpfObject) -> None:
        raise BpfError(code, "trace: cannot be loaded: refused\nlibbpf: a long story", "a long story")

    monkeypatch.setattr(BpfObject, "load", refuse)

    with pytest.raises(UnavailableError, match=r"^trace: cannot be loaded: refused$") as caught:
        EbpfTrace(KernelFs())
    assert caught.value.permission is permission


def test_a_check_takes_nothing_that_is_to_be_told() -> None:
    """What is tried once the privileges are dropped leaves the first account of the trace for its first reading."""
    trace = EbpfTrace(KernelFs(), family_of=(os.getpid(),))
    try:
        trace.check()
        assert any(isinstance(sample, TraceHealth) for sample in trace.read())
    finally:
        trace.close()
