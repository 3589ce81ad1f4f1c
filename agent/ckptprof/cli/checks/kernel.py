"""What `ckptprof doctor` looks at: the kernel's side of it, Python stacks by py-spy, and GPUs by NVML."""

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
from ckptprof.service.probing.apart import NoAnswerError, Say, apart
from ckptprof_collectors import hostfacts
from ckptprof_collectors.gpus.gpudirect import GpuDirect
from ckptprof_collectors.gpus.nvml import LIBRARY, Gpus
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, read_text
from ckptprof_collectors.networks.inetdiag import TcpSocket, TcpTable
from ckptprof_collectors.processes.pystacks import dump, parse

# include/uapi/linux/capability.h: bit numbers
CAPABILITIES = {"DAC_READ_SEARCH": 2, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "PERFMON": 38, "BPF": 39}
FOR_OTHERS = ("SYS_PTRACE", "DAC_READ_SEARCH")  # both, to read /proc/PID/io and fd of other users (measured)
_LOOKED_AT = 200  # processes of other users, before giving up
_PATIENCE_SECONDS = 5.0  # with a process that holds whoever reads of it
_MIB = 1 << 20
_WITHOUT_TCP = "only links show whether the server or the network limits a save"
_GPUS_SECONDS = 10.0  # a driver without persistence takes seconds to start
_TRIES = 3  # py-spy does not stop its target, so a look can fail
_WITHOUT = "whether a save blocks training is judged by the rhythm of its threads only"


def held_capabilities(fs: KernelFs) -> frozenset[str] | None:
    """Return those of `CAPABILITIES` that are effective for this process, None if that cannot be seen."""
    for line in (read_text(fs.proc / "self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            bits = int(line.split()[1], 16)
            return frozenset(name for name, bit in CAPABILITIES.items() if bits >> bit & 1)
    return None


def capabilities(fs: KernelFs, *, uid: int) -> Check:
    """Look at what this process may do."""
    held = held_capabilities(fs)
    user = "root" if uid == 0 else f"user {uid}"
    if held is None:
        return Check("capabilities", "warn", f"{user}; the capabilities cannot be seen", "mount /proc")
    missing = [f"CAP_{name}" for name in FOR_OTHERS if name not in held]
    if not missing:
        return Check("capabilities", "ok", f"{user}, with the capabilities to see the processes of all users")
    text = f"{user}, without {' and '.join(missing)}: only your own processes can be watched"
    return Check("capabilities", "warn", text, remedies.sight())


def other_processes(fs: KernelFs, *, uid: int, patience_seconds: float = _PATIENCE_SECONDS) -> Check:
    """Try what matters: the byte counters and open files of a process of another user."""
    tried: list[str] = []
    try:
        readable, refused = apart(
            lambda say: _tried(fs, uid, say, time.monotonic() + patience_seconds), str(fs.proc), heard=tried.append,
            patience_seconds=patience_seconds,
        )  # fmt: skip
    except (CkptprofError, OSError) as error:
        who = f"process {tried[-1]}" if tried else "a process"
        if isinstance(error, NoAnswerError) and error.hangs:
            text = f"{who} holds whoever reads its files in /proc: what other processes do was not tried"
            return Check("processes", "warn", text, "end it, or the file server that it waits for")
        text = f"{who} was not read within {patience_seconds:g} s: this host is too busy to tell"
        return Check("processes", "note", text, "try again when this host is less busy")
    if readable:
        return Check("processes", "ok", "byte counters and open files of other users' processes can be read")
    if refused:
        text = "byte counters and open files of other users' processes cannot be read: jobs of other users are not seen"
        return Check("processes", "warn", text, remedies.sight())
    return Check("processes", "note", "there is no process of another user, so it is not known whether one can be read")


def _tried(fs: KernelFs, uid: int, say: Say, until: float) -> tuple[int, int]:
    """Return how many could be read and how many not; the first that can be read ends it. Says whom it reads.

    Raises TimeoutError at `until` (time.monotonic), however often it has said something.
    """
    refused = 0
    with hostfacts.reading(fs.proc), contextlib.suppress(OSError):
        for pid in sorted(psutil.pids()):
            if time.monotonic() > until:
                break
            say(str(pid))
            with contextlib.suppress(psutil.Error, OSError):  # it ended meanwhile
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
            if refused >= _LOOKED_AT:
                break
    if not refused and time.monotonic() > until:
        raise TimeoutError("processes of other users were not read in time")
    return 0, refused


def io_accounting(fs: KernelFs) -> Check:
    """Look for CONFIG_TASK_IO_ACCOUNTING, without which nothing can be told by process."""
    if (fs.proc / "self/io").exists():
        return Check("io-accounting", "ok", "the kernel counts bytes by process")
    return Check(
        "io-accounting",
        "fail",
        "the kernel does not count bytes by process: no checkpoint can be found",
        "use a kernel built with CONFIG_TASK_IO_ACCOUNTING (as every distribution does)",
    )


def hidepid(fs: KernelFs) -> Check:
    """Look at how /proc is mounted."""
    try:
        with hostfacts.reading(fs.proc):
            mounts = psutil.disk_partitions(all=True)
    except OSError:
        mounts = []
    for options in [mount.opts.split(",") for mount in mounts if (mount.mountpoint, mount.fstype) == ("/proc", "proc")]:
        hiding = next((option for option in options if option.startswith("hidepid=")), "hidepid=0")
        if hiding in ("hidepid=0", "hidepid=off"):
            break
        held = held_capabilities(fs) or frozenset()
        if "SYS_PTRACE" in held:
            return Check("hidepid", "ok", f"/proc is mounted with {hiding}, and CAP_SYS_PTRACE overrides it")
        text = f"/proc is mounted with {hiding}: processes of other users are hidden"
        return Check("hidepid", "warn", text, remedies.mount("-o remount,hidepid=0 /proc"))
    return Check("hidepid", "ok", "/proc hides no process")


def block_devices(fs: KernelFs) -> Check:
    """Look at /proc/diskstats."""
    text = read_text(fs.proc / "diskstats")
    if text is None:
        fix = "in a container or unit, mount /proc whole (no ProcSubset=pid)"
        return Check("block-devices", "warn", "/proc/diskstats cannot be read: no device is watched", fix)
    number = sum(1 for line in text.splitlines() if line.split()[3:4] not in ([], ["0"]))
    return Check("block-devices", "ok", f"{len(text.splitlines())} block devices in sight, {number} of them in use")


def network(fs: KernelFs) -> Check:
    """Look whether the interfaces are the host's: in a network namespace of its own /proc/net/dev is quietly wrong."""
    try:
        with hostfacts.reading(fs.proc):
            names = list(psutil.net_io_counters(pernic=True, nowrap=False))
    except (OSError, ValueError):
        return Check("network", "warn", "/proc/net/dev cannot be read: no network interface is watched", "mount /proc")
    if [name for name in names if name != "lo"]:
        return Check("network", "ok", f"{len(names)} network interfaces in sight")
    return Check(
        "network",
        "warn",
        "the only interface is lo: this is a separate network namespace, or the host has no network",
        "start this container or unit with the network of the host (--network=host, PrivateNetwork=no)",
    )


def tcp(fs: KernelFs) -> Check:
    """Ask for the TCP sockets of this network namespace, as the sampler does."""
    if not fs.is_live:
        return Check("tcp", "note", f"TCP sockets are asked of the kernel itself, and not here: {_WITHOUT_TCP}")
    try:
        table = TcpTable(TcpSocket)
    except UnavailableError as error:
        return Check(
            "tcp", "note", f"{error}: {_WITHOUT_TCP}", "load the module tcp_diag, and allow AF_NETLINK sockets"
        )
    counts = [one.counts() for one in table.open()]
    table.close()
    if counts and all(one.busy_us is None for one in counts):
        text = f"the kernel does not count what TCP connections wait for (since 4.10): {_WITHOUT_TCP}"
        return Check("tcp", "note", text)
    return Check("tcp", "ok", f"what TCP connections wait for can be read, {len(counts)} of them in sight")


def pressure(fs: KernelFs) -> Check:
    """Look for PSI."""
    try:
        (fs.proc / "pressure/io").read_bytes()
    except OSError:
        text = "pressure (PSI) is off or cannot be read: time stalled on I/O and memory is not recorded"
        return Check("pressure", "note", text, "boot with psi=1 on the kernel's command line")
    return Check("pressure", "ok", "pressure (PSI) of I/O and memory can be read")


def delay_accounting(fs: KernelFs) -> Check:
    """Look at the switch of delay accounting (since 5.14)."""
    state = read_text(fs.proc / "sys/kernel/task_delayacct")
    if state == "1":
        return Check("delay-accounting", "ok", "the kernel counts the time that single threads wait for block I/O")
    text = (
        "the time that single threads wait for block I/O is not counted: verdicts at the level poll have less evidence"
    )
    return Check("delay-accounting", "note", text, remedies.setting("kernel.task_delayacct", "1"))


def udev(run: Path) -> Check:
    """Look for a udev daemon."""
    if (run / "udev/control").exists():
        return Check("udev", "ok", "udev reports devices that appear and disappear")
    return Check("udev", "note", "no udev daemon: devices that appear and disappear are found by reading again")


def birth_time(directory: Path, *, birth_ns: int | None) -> Check:
    """Judge what statx said of a directory's birth."""
    if birth_ns is not None:
        return Check("birth-time", "ok", f"the file system of {directory} keeps birth times of files")
    text = f"the file system of {directory} keeps no birth times: new files are recognised by other evidence"
    return Check("birth-time", "note", text)


def disk_free(directory: Path, *, free_bytes: int, total_bytes: int) -> Check:
    """Judge the room for recordings."""
    text = f"{units.size(free_bytes)} of {units.size(total_bytes)} free at {directory}"
    fix = f"free some space: `du -xsh {directory}` tells what ckptprof takes"
    if free_bytes < 64 * _MIB:
        return Check("disk-free", "fail", f"{text}: recording will stop", fix)
    if free_bytes < 1024 * _MIB:
        return Check("disk-free", "warn", f"{text}: it may fill up", fix)
    return Check("disk-free", "ok", text)


def clock(*, now_ns: int, newest_ns: int | None) -> Check:
    """Judge the wall clock, against the year this was written and the newest recorded instant."""
    keep = remedies.first_there("timedatectl set-ntp true", otherwise="run an NTP client")
    fix = f"set the clock, and keep it: {keep}"
    if now_ns < 1_700_000_000 * 1_000_000_000:
        return Check("clock", "warn", "the wall clock is years behind: times in reports will be wrong", fix)
    if newest_ns is not None and newest_ns > now_ns + 60 * 1_000_000_000:
        return Check("clock", "warn", "the wall clock is behind the newest record: it went back", fix)
    return Check("clock", "ok", "the wall clock is plausible")


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
        return [Check("gpudirect", "note", f"{text}: only its files show what cuFile transfers")]
    finally:
        collector.close()
    if not collector.hides:
        return [Check("gpudirect", "ok", "cuFile needs no driver here: it makes ordinary calls, which are seen")]
    named = f"nvidia-fs {told.driver}" if told.driver else "nvidia-fs"
    if told.counts:
        return [Check("gpudirect", "ok", f"{named} counts what cuFile moves past all calls")]
    text = f"{named} moves data past all calls, and its statistics are off: only its files tell of it"
    return [Check("gpudirect", "warn", text, remedies.parameter("nvidia_fs", "rw_stats_enabled", "1"))]
