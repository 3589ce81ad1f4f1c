"""Loads and attaches the eBPF programs hook by hook: the best variant that this kernel accepts, reports the missing."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

from ckptprof_collectors.ebpf.libbpf import BpfError, BpfObject, Libbpf, ProgramLink
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError

OBJECTS = Path(__file__).parents[1] / "bpf"
_PERMISSION_ERRORS = (errno.EPERM, errno.EACCES)


@dataclass(frozen=True)
class Hook:
    """A hook in the kernel, with its alternative programs, best first, and what they provide."""

    name: str
    variants: tuple[tuple[str, bytes], ...]  # (program, name that it needs in the kernel's BTF)
    provides: str  # one sentence
    on_demand: bool = False  # attached only while needed
    is_separable: bool = False  # if the kernel rejects the programs, the other hooks are tried without it

    @property
    def programs(self) -> list[str]:
        return [program for program, _ in self.variants]


ESSENTIAL_HOOKS = (
    Hook(
        "calls",
        (("call_exit_typed", b"\0bpf_rdonly_cast\0"), ("call_exit_portable", b"\0btf_trace_sys_exit\0")),
        "reads and writes",
    ),
)
OPTIONAL_HOOKS = (
    Hook(
        "timing",
        (("call_enter_typed", b"\0bpf_rdonly_cast\0"), ("call_enter_portable", b"\0btf_trace_sys_enter\0")),
        "the time spent in calls, and when files are closed",
    ),
    Hook(
        "io_uring",
        (
            ("uring_submit_request", b"\0btf_trace_io_uring_submit_req\0"),
            ("uring_submit_ring", b"\0btf_trace_io_uring_submit_sqe\0"),
            ("uring_submit_entry", b"\0btf_trace_io_uring_submit_sqe\0"),
        ),
        "reads and writes by io_uring",
    ),
    Hook(
        "dirty-pauses",
        (("pause_of_12", b"\0btf_trace_balance_dirty_pages\0"), ("pause_of_8", b"\0btf_trace_balance_dirty_pages\0")),
        "how long writers are blocked because too much is dirty",
    ),
    Hook("family", (("family_grows", b"\0btf_trace_sched_process_fork\0"),), "children of the traced processes"),
    Hook("family-ends", (("family_shrinks", b"\0btf_trace_sched_process_exit\0"),), "which of them have ended"),
    Hook(
        "mapped-writes",
        (
            ("fault_dirty", b"\0btf_trace_writeback_dirty_folio\0"),
            ("fault_dirty_page", b"\0btf_trace_writeback_dirty_page\0"),
        ),
        "pages that are written through mappings",
        on_demand=True,
    ),
    Hook(
        "mapped-reads",
        (("fault_around", b"\0btf_trace_mm_filemap_map_pages\0"),),
        "pages that are read through mappings (the kernel reports them since 6.12)",
    ),
    Hook(
        "mapped-misses",
        (("fault_page", b"\0btf_trace_mm_filemap_fault\0"),),
        "pages of mappings that were not in memory (the kernel reports them since 6.12)",
    ),
    Hook(
        "sends",
        (("sent_typed", b"\0btf_trace_sock_send_length\0"),),
        "what processes send over TCP (the kernel reports it since 6.3)",
        on_demand=True,
        is_separable=True,
    ),
    Hook(
        "receives",
        (("received_typed", b"\0btf_trace_sock_recv_length\0"),),
        "what processes receive over TCP (the kernel reports it since 6.3)",
        on_demand=True,
        is_separable=True,
    ),
)
SOCKET_HOOKS = ("sends", "receives")
BLOCK_HOOKS = (
    Hook(
        "block-issue",
        (("issue_of_queue", b"\0btf_trace_block_rq_issue\0"), ("issue_of_request", b"\0btf_trace_block_rq_issue\0")),
        "sizes and order of the requests to devices",
    ),
    Hook("block-complete", (("complete", b"\0btf_trace_block_rq_complete\0"),), "latencies of the requests to devices"),
)


@dataclass
class AttachedObject:
    """A loaded object and its attached programs."""

    object: BpfObject
    programs: dict[str, str] = field(default_factory=dict)  # hook -> program that is attached
    degraded: list[str] = field(default_factory=list)
    waiting: dict[str, Hook] = field(default_factory=dict)  # hooks on demand, loaded and not attached
    links: dict[str, ProgramLink] = field(default_factory=dict)  # of hooks on demand
    loaded: frozenset[str] = frozenset()  # programs

    def attach(self, hook: Hook, usable: list[str]) -> BpfError | None:
        """Attach the first usable program that the kernel accepts; return the error if it accepts none."""
        failure: BpfError | None = None
        for program in usable:
            try:
                link = self.object.attach(program)
            except BpfError as error:  # noqa: PERF203 - three turns, once
                failure = error
            else:
                self.programs[hook.name] = program
                self.links[hook.name] = link
                return None
        return failure

    def attach_on_demand(self, name: str) -> bool:
        """Attach a waiting hook now; return whether it is attached."""
        if name in self.links:
            return True
        hook = self.waiting.get(name)
        if hook is None:
            return False
        failure = self.attach(hook, [program for program in hook.programs if program in self.loaded])
        if failure is not None:
            del self.waiting[name]
            self.degraded.append(f"not monitored: {hook.provides}: {failure.summary}")
        return failure is None

    def release(self, name: str) -> None:
        """Detach a hook on demand; does nothing if it is not attached."""
        link = self.links.pop(name, None)
        if link is not None:
            link.close()
            del self.programs[name]

    def close(self) -> None:
        self.object.close()


class KernelTypes:
    """The names in the kernel's own type information (BTF)."""

    def __init__(self, fs: KernelFs) -> None:
        """Open /sys/kernel/btf/vmlinux; raises UnavailableError where there is none."""
        path = fs.sys / "kernel/btf/vmlinux"
        try:
            self._data = path.read_bytes()
        except OSError as error:
            text = f"this kernel has no type information ({path}: {error.strerror}): no eBPF program can be loaded"
            raise UnavailableError(text) from None

    def has_name(self, name: bytes) -> bool:
        """Test whether a type, function or tracepoint of this name (between zero bytes) exists."""
        return name in self._data


@dataclass(frozen=True)
class LoadSettings:
    """Settings fixed at the load of an object."""

    config: bytes = b""  # the section .rodata.config
    sizes: dict[str, int] = field(default_factory=dict)  # map -> entries


def load_and_attach(
    lib: Libbpf,
    path: Path,
    types: KernelTypes,
    hooks: tuple[tuple[Hook, ...], tuple[Hook, ...]],
    settings: LoadSettings | None = None,
) -> AttachedObject:
    """Load an object and attach its hooks, essential and optional; raises UnavailableError if an essential is refused.

    First with the best programs for the kernel's types; if it rejects these, without the separable hooks, then with the
    most portable programs; if it rejects those, with the essential ones alone.
    """
    essential, optional = hooks
    available = {
        hook: [program for program, name in hook.variants if types.has_name(name)] for hook in essential + optional
    }
    attempts = [available]
    if any(hook.is_separable for hook in available):
        attempts.append({hook: [] if hook.is_separable else programs for hook, programs in available.items()})
    attempts.append({hook: _portable(programs) for hook, programs in available.items()})
    attempts.append({hook: _portable(programs) if hook in essential else [] for hook, programs in available.items()})
    refusals: list[BpfError] = []
    for attempt in attempts:
        programs_to_load = {program for programs in attempt.values() for program in programs}
        opened = _load(lib, path, programs_to_load, settings or LoadSettings(), refusals)
        if opened is not None:
            return _attach_all(AttachedObject(opened, loaded=frozenset(programs_to_load)), attempt, essential, refusals)
        if refusals and refusals[-1].errno in (*_PERMISSION_ERRORS, errno.ENOEXEC, errno.ENOENT):
            break
    raise _unavailable(refusals[-1])


def _portable(programs: list[str]) -> list[str]:
    return [program for program in programs if not program.endswith("_typed")]


def _load(
    lib: Libbpf, path: Path, programs_to_load: set[str], settings: LoadSettings, refusals: list[BpfError]
) -> BpfObject | None:
    try:
        opened = BpfObject(lib, path)
    except BpfError as error:
        refusals.append(error)
        return None
    try:
        for program in opened.programs():
            opened.set_autoload(program, program in programs_to_load or program == "read_clock")
        if settings.config:
            opened.section(".rodata.config")[:] = settings.config
        for name, entries in settings.sizes.items():
            opened.set_max_entries(name, entries)
        opened.load()
    except BpfError as error:
        refusals.append(error)
        opened.close()
        return None
    return opened


def _attach_all(
    hooked: AttachedObject, attempt: dict[Hook, list[str]], essential: tuple[Hook, ...], refusals: list[BpfError]
) -> AttachedObject:
    for hook, programs in attempt.items():
        if hook.on_demand and programs:
            hooked.waiting[hook.name] = hook
            continue
        failure = hooked.attach(hook, programs)
        if hook.name in hooked.programs:
            hooked.links.pop(hook.name)
            continue
        if hook in essential:
            hooked.close()
            raise _unavailable(failure or BpfError(errno.ENOENT, f"the kernel has no hook for {hook.provides}"))
        reason = failure.summary if failure is not None else "this kernel has no tracepoint for it"
        if failure is None and refusals:
            reason = f"the kernel refused the program: {refusals[-1].summary}"
        hooked.degraded.append(f"not monitored: {hook.provides}: {reason}")
    return hooked


def _unavailable(error: BpfError) -> UnavailableError:
    reason = UnavailableError(error.summary)
    reason.permission = error.errno in _PERMISSION_ERRORS
    return reason
