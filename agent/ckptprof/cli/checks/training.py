"""What `ckptprof doctor` looks at for what training did meanwhile: Python stacks by py-spy, and GPUs by NVML."""

from __future__ import annotations

import os
import shutil

from ckptprof import units
from ckptprof.cli.checks import remedies
from ckptprof.cli.checks.kernel import held_capabilities
from ckptprof.report.doctor import Check
from ckptprof.service.probing.apart import NoAnswerError, apart
from ckptprof_collectors.gpus.gpudirect import GpuDirect
from ckptprof_collectors.gpus.nvml import LIBRARY, Gpus
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, read_text
from ckptprof_collectors.processes.pystacks import dump, find_program, parse

_GPUS_SECONDS = 10.0  # a driver without persistence takes seconds to start
_TRIES = 3  # py-spy does not stop its target, so a look can fail
_WITHOUT = "whether a save blocks training is judged by the rhythm of its threads only"


def everything(fs: KernelFs) -> list[Check]:
    """Return all of them; none raises."""
    return [ptrace_scope(fs), stacks(find_program()), gpus(fs, Gpus()), *gpudirect(fs)]


def ptrace_scope(fs: KernelFs) -> Check:
    """Look at Yama, which may keep py-spy from reading processes that it did not start (ptrace(2))."""
    scope = read_text(fs.proc / "sys/kernel/yama/ptrace_scope")
    if scope in (None, "0"):
        return Check("ptrace-scope", "ok", "kernel.yama.ptrace_scope lets py-spy read Python stacks")
    text = f"kernel.yama.ptrace_scope is {scope}"
    if scope == "3":
        fix = "set it to 0 in /etc/sysctl.d and reboot: a running kernel cannot lower it"
        return Check("ptrace-scope", "warn", f"{text}: no process can read Python stacks, {_WITHOUT}", fix)
    if "SYS_PTRACE" in (held_capabilities(fs) or frozenset()):
        return Check("ptrace-scope", "ok", f"{text}, and CAP_SYS_PTRACE overrides it")
    fix = remedies.setting("kernel.yama.ptrace_scope", "0")
    return Check("ptrace-scope", "warn", f"{text}: Python stacks cannot be read, {_WITHOUT}", fix)


def stacks(program: str | None) -> Check:
    """Try what matters: the Python stacks of a process, here our own."""
    if program is None:
        return Check("py-spy", "warn", f"py-spy is not installed: {_WITHOUT}", remedies.py_spy())
    complaint = ""
    for _ in range(_TRIES):
        try:
            raw, complaint, *_ = dump(program, os.getpid())
        except OSError as error:
            complaint = f"py-spy cannot be started: {error.strerror}"
            break
        if parse(raw):
            return Check("py-spy", "ok", f"{program} reads Python stacks")
    return Check("py-spy", "warn", f"{complaint or 'py-spy returned no stack'}; {_WITHOUT}", remedies.as_service())


def gpus(fs: KernelFs, driver: Gpus) -> Check:
    """Look whether the NVIDIA driver tells how busy its GPUs are."""
    try:  # in a process of its own: a call to a driver in trouble may not even be killed
        number, has_library, reason = apart(
            lambda _: (driver.count(), driver.has_library, driver.reason), LIBRARY, patience_seconds=_GPUS_SECONDS
        )
    except NoAnswerError:
        number, has_library, reason = None, True, f"NVML has not answered for {_GPUS_SECONDS:g} s"
    if number is not None:
        return Check("gpus", "ok", f"NVML shows the use of {units.plural(number, 'GPU')}")
    if has_library:
        smi = shutil.which("nvidia-smi") is not None
        fix = "`nvidia-smi` shows what is wrong with the driver" if smi else "look for NVRM in the kernel's log"
        return Check("gpus", "warn", f"{reason}: the use of GPUs is not seen", fix)
    if (fs.proc / "driver/nvidia").exists():
        fix = "in a container, set NVIDIA_DRIVER_CAPABILITIES=utility for the NVIDIA runtime"
        return Check("gpus", "warn", f"there is an NVIDIA driver, but no {LIBRARY}: its GPUs are not seen", fix)
    return Check("gpus", "note", "no NVIDIA driver: the use of GPUs is not read")


def gpudirect(fs: KernelFs) -> list[Check]:
    """Look whether GPUDirect Storage can move data past all calls here, and whether its driver counts that."""
    try:
        collector = GpuDirect(fs)
    except UnavailableError:
        return []
    try:
        told = collector.look()
    except OSError as error:
        text = f"the statistics of nvidia-fs cannot be read ({error.strerror})"
        return [Check("gpudirect", "note", f"{text}: what cuFile moves by it is told by its files alone")]
    finally:
        collector.close()
    if not collector.hides:
        return [Check("gpudirect", "ok", "cuFile needs no driver here: it makes ordinary calls, which are seen")]
    named = f"nvidia-fs {told.driver}" if told.driver else "nvidia-fs"
    if told.counts:
        return [Check("gpudirect", "ok", f"{named} counts what cuFile moves past all calls")]
    text = f"{named} moves data past all calls, and its statistics are off: only its files tell of it"
    return [Check("gpudirect", "warn", text, remedies.parameter("nvidia_fs", "rw_stats_enabled", "1"))]
