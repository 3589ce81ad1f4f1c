"""Checks of `ckptprof doctor`: the kernel, Python stacks by py-spy, and GPUs by NVML."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

import psutil

from ckptprof import units
from ckptprof.cli.checks import remedies
from ckptprof.errors import CkptprofError
from ckptprof.report.doctor import Check
from ckptprof.service.probing.isolated import NoAnswerError, OnReport, run_isolated
from ckptprof_collectors import process_facts
from ckptprof_collectors.gpus.nvml import LIBRARY, NvmlGpus
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, read_text
from ckptprof_collectors.networks.inet_diag import TcpSocket, TcpTable
from ckptprof_collectors.processes.python_stacks import parse, run_py_spy

# include/uapi/linux/capability.h: bit numbers
CAPABILITIES = {"DAC_READ_SEARCH": 2, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "PERFMON": 38, "BPF": 39}
FOR_OTHERS = ("SYS_PTRACE", "DAC_READ_SEARCH")  # both, to read /proc/PID/io and fd of other users (measured)
_MAX_REFUSED = 200  # processes of other users, before giving up
_PATIENCE_SECONDS = 5.0  # for a process whose files block the reader
_MIB = 1 << 20
_WITHOUT_TCP = "only links show whether the server or the network limits a save"
_GPUS_SECONDS = 10.0  # a driver without persistence takes seconds to start
_TRIES = 3  # py-spy does not stop its target, so a sample can fail
_WITHOUT_STACKS = "only the rhythm of threads shows whether a save blocks training"


def effective_capabilities(fs: KernelFs) -> frozenset[str] | None:
    """Return the effective ones of `CAPABILITIES`; None if unknown."""
    for line in (read_text(fs.proc / "self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            bits = int(line.split()[1], 16)
            return frozenset(name for name, bit in CAPABILITIES.items() if bits >> bit & 1)
    return None


def capabilities(fs: KernelFs, *, uid: int) -> Check:
    """Check the capabilities to read other users' processes."""
    effective = effective_capabilities(fs)
    user = "root" if uid == 0 else f"user {uid}"
    if effective is None:
        return Check("capabilities", "warn", f"{user}; its capabilities are unknown", "mount /proc")
    missing = [f"CAP_{name}" for name in FOR_OTHERS if name not in effective]
    if not missing:
        return Check("capabilities", "ok", f"{user}, with the capabilities to read processes of all users")
    text = f"{user}, without {' and '.join(missing)}: only your own processes can be monitored"
    return Check("capabilities", "warn", text, remedies.process_access())


def other_processes(fs: KernelFs, *, uid: int, patience_seconds: float = _PATIENCE_SECONDS) -> Check:
    """Try to read byte counters and open files of another user's process."""
    tried: list[str] = []
    try:
        readable, refused = run_isolated(
            lambda say: _try_processes(fs, uid, say, time.monotonic() + patience_seconds), str(fs.proc),
            on_report=tried.append,
            patience_seconds=patience_seconds,
        )  # fmt: skip
    except (CkptprofError, OSError) as error:
        process = f"process {tried[-1]}" if tried else "a process"
        if isinstance(error, NoAnswerError) and error.hangs:
            text = f"{process} blocks any reader of its files in /proc: others were not tested"
            return Check("processes", "warn", text, "end it, or the file server that it waits for")
        text = f"{process} was not read within {patience_seconds:g} s: this host is too busy for the test"
        return Check("processes", "note", text, "try again when this host is less busy")
    if readable:
        return Check("processes", "ok", "byte counters and open files of other users' processes can be read")
    if refused:
        text = "counters and open files of other users' processes cannot be read: jobs of other users are not monitored"
        return Check("processes", "warn", text, remedies.process_access())
    return Check("processes", "note", "no process of another user is running: not tested")


def _try_processes(fs: KernelFs, uid: int, say: OnReport, until: float) -> tuple[int, int]:
    """Return the numbers of readable and refused processes; stop at the first readable one. Reports each pid first.

    Raises TimeoutError at `until` (time.monotonic).
    """
    refused = 0
    with process_facts.psutil_root(fs.proc), contextlib.suppress(OSError):
        for pid in sorted(psutil.pids()):
            if time.monotonic() > until:
                break
            say(str(pid))
            with contextlib.suppress(psutil.Error, OSError):  # it has ended
                process = psutil.Process(pid)
                if process.uids().effective == uid or not process.cmdline():  # the kernel's own threads have none
                    continue
                try:
                    process.io_counters()
                    process.num_fds()
                except psutil.AccessDenied:
                    refused += 1
                else:
                    return 1, refused
            if refused >= _MAX_REFUSED:
                break
    if not refused and time.monotonic() > until:
        raise TimeoutError("processes of other users were not read in time")
    return 0, refused


def io_accounting(fs: KernelFs) -> Check:
    """Check for CONFIG_TASK_IO_ACCOUNTING: counters per process need it."""
    if (fs.proc / "self/io").exists():
        return Check("io-accounting", "ok", "the kernel counts bytes by process")
    return Check(
        "io-accounting",
        "fail",
        "the kernel does not count bytes by process: no checkpoint can be found",
        "use a kernel built with CONFIG_TASK_IO_ACCOUNTING (as every distribution does)",
    )


def hidepid(fs: KernelFs) -> Check:
    """Check the mount options of /proc."""
    try:
        with process_facts.psutil_root(fs.proc):
            mounts = psutil.disk_partitions(all=True)
    except OSError:
        mounts = []
    for options in [mount.opts.split(",") for mount in mounts if (mount.mountpoint, mount.fstype) == ("/proc", "proc")]:
        hiding = next((option for option in options if option.startswith("hidepid=")), "hidepid=0")
        if hiding in ("hidepid=0", "hidepid=off"):
            break
        effective = effective_capabilities(fs) or frozenset()
        if "SYS_PTRACE" in effective:
            return Check("hidepid", "ok", f"/proc is mounted with {hiding}, and CAP_SYS_PTRACE overrides it")
        text = f"/proc is mounted with {hiding}: processes of other users are hidden"
        return Check("hidepid", "warn", text, remedies.mount("-o remount,hidepid=0 /proc"))
    return Check("hidepid", "ok", "/proc hides no process")


def block_devices(fs: KernelFs) -> Check:
    """Check that /proc/diskstats lists the counters of block devices."""
    text = read_text(fs.proc / "diskstats")
    if text is None:
        fix = "in a container or unit, mount /proc whole (no ProcSubset=pid)"
        return Check("block-devices", "warn", "/proc/diskstats cannot be read: no device is monitored", fix)
    number = sum(1 for line in text.splitlines() if line.split()[3:4] not in ([], ["0"]))
    return Check("block-devices", "ok", f"{len(text.splitlines())} block devices, {number} in use")


def network(fs: KernelFs) -> Check:
    """Check that the interfaces are the host's: a network namespace has its own /proc/net/dev."""
    try:
        with process_facts.psutil_root(fs.proc):
            names = list(psutil.net_io_counters(pernic=True, nowrap=False))
    except (OSError, ValueError):
        return Check(
            "network", "warn", "/proc/net/dev cannot be read: no network interface is monitored", "mount /proc"
        )
    if [name for name in names if name != "lo"]:
        return Check("network", "ok", f"{len(names)} network interfaces")
    return Check(
        "network",
        "warn",
        "the only interface is lo: a separate network namespace, or a host without a network",
        "start this container or unit with the network of the host (--network=host, PrivateNetwork=no)",
    )


def tcp(fs: KernelFs) -> Check:
    """Query the TCP sockets of this network namespace, as the sampler does."""
    if not fs.is_live:
        return Check("tcp", "note", f"TCP sockets come from the running kernel, not from this /proc: {_WITHOUT_TCP}")
    try:
        table = TcpTable(TcpSocket)
    except UnavailableError as error:
        return Check(
            "tcp", "note", f"{error}: {_WITHOUT_TCP}", "load the module tcp_diag, and allow AF_NETLINK sockets"
        )
    counts = [one.counts() for one in table.open_sockets()]
    table.close()
    if counts and all(one.busy_us is None for one in counts):
        text = f"the kernel does not count TCP waiting times (since 4.10): {_WITHOUT_TCP}"
        return Check("tcp", "note", text)
    return Check("tcp", "ok", f"TCP waiting times can be read ({len(counts)} connections)")


def pressure(fs: KernelFs) -> Check:
    """Check for pressure stall information (PSI)."""
    try:
        (fs.proc / "pressure/io").read_bytes()
    except OSError:
        text = "pressure (PSI) is off or cannot be read: time stalled on I/O and memory is not recorded"
        return Check("pressure", "note", text, "boot with psi=1 on the kernel's command line")
    return Check("pressure", "ok", "pressure (PSI) of I/O and memory can be read")


def delay_accounting(fs: KernelFs) -> Check:
    """Check the switch of delay accounting (since 5.14)."""
    state = read_text(fs.proc / "sys/kernel/task_delayacct")
    if state == "1":
        return Check("delay-accounting", "ok", "the kernel counts the block I/O wait of each thread")
    text = "the block I/O wait of threads is not counted: verdicts at poll level have less evidence"
    return Check("delay-accounting", "note", text, remedies.setting("kernel.task_delayacct", "1"))


def disk_free(directory: Path, *, free_bytes: int, total_bytes: int) -> Check:
    """Check the free space for the database in a directory."""
    text = f"{units.size(free_bytes)} of {units.size(total_bytes)} free at {directory}"
    fix = f"free some space: `du -xsh {directory}` shows what ckptprof uses"
    if free_bytes < 64 * _MIB:
        return Check("disk-free", "fail", f"{text}: recording will stop", fix)
    if free_bytes < 1024 * _MIB:
        return Check("disk-free", "warn", f"{text}: it may fill up", fix)
    return Check("disk-free", "ok", text)


def clock(*, now_ns: int, newest_ns: int | None) -> Check:
    """Check the wall clock against the year 2023 and the newest record."""
    sync_command = remedies.first_available("timedatectl set-ntp true", otherwise="run an NTP client")
    fix = f"set the clock and synchronise it: {sync_command}"
    if now_ns < 1_700_000_000 * 1_000_000_000:
        return Check("clock", "warn", "the wall clock is years behind: times in reports will be wrong", fix)
    if newest_ns is not None and newest_ns > now_ns + 60 * 1_000_000_000:
        return Check("clock", "warn", "the wall clock is behind the newest record: it was set back", fix)
    return Check("clock", "ok", "the wall clock is plausible")


def ptrace_scope(fs: KernelFs) -> Check:
    """Check Yama, which may prevent py-spy from reading processes that it did not start (ptrace(2))."""
    scope = read_text(fs.proc / "sys/kernel/yama/ptrace_scope")
    if scope in (None, "0"):
        return Check("ptrace-scope", "ok", "kernel.yama.ptrace_scope lets py-spy read Python stacks")
    text = f"kernel.yama.ptrace_scope is {scope}"
    if scope == "3":
        fix = "set it to 0 in /etc/sysctl.d and reboot: a running kernel cannot lower it"
        return Check("ptrace-scope", "warn", f"{text}: no process can read Python stacks, {_WITHOUT_STACKS}", fix)
    if "SYS_PTRACE" in (effective_capabilities(fs) or frozenset()):
        return Check("ptrace-scope", "ok", f"{text}, and CAP_SYS_PTRACE overrides it")
    fix = remedies.setting("kernel.yama.ptrace_scope", "0")
    return Check("ptrace-scope", "warn", f"{text}: Python stacks cannot be read, {_WITHOUT_STACKS}", fix)


def stacks(program: str | None) -> Check:
    """Try to read the Python stacks of a process: our own."""
    if program is None:
        return Check("py-spy", "warn", f"py-spy is not installed: {_WITHOUT_STACKS}", remedies.py_spy())
    complaint = ""
    for _ in range(_TRIES):
        try:
            raw, complaint, *_ = run_py_spy(program, os.getpid())
        except OSError as error:
            complaint = f"py-spy cannot be started: {error.strerror}"
            break
        if parse(raw):
            return Check("py-spy", "ok", f"{program} reads Python stacks")
    return Check(
        "py-spy", "warn", f"{complaint or 'py-spy returned no stack'}; {_WITHOUT_STACKS}", remedies.cover_host()
    )


def gpus(fs: KernelFs, driver: NvmlGpus) -> Check:
    """Check that NVML reports the utilisation of GPUs."""
    try:  # in a child process: a call to a failing driver may be unkillable
        number, has_library, reason = run_isolated(
            lambda _: (driver.count(), driver.has_library, driver.reason), LIBRARY, patience_seconds=_GPUS_SECONDS
        )
    except NoAnswerError:
        number, has_library, reason = None, True, f"NVML has not answered for {_GPUS_SECONDS:g} s"
    if number is not None:
        return Check("gpus", "ok", f"NVML reports the utilisation of {units.plural(number, 'GPU')}")
    if has_library:
        smi = shutil.which("nvidia-smi") is not None
        fix = "`nvidia-smi` shows what is wrong with the driver" if smi else "search the kernel log for NVRM"
        return Check("gpus", "warn", f"{reason}: GPU utilisation is not monitored", fix)
    if (fs.proc / "driver/nvidia").exists():
        fix = "in a container, set NVIDIA_DRIVER_CAPABILITIES=utility for the NVIDIA runtime"
        return Check("gpus", "warn", f"there is an NVIDIA driver, but no {LIBRARY}: its GPUs are not monitored", fix)
    return Check("gpus", "note", "no NVIDIA driver")
