"""Checks of `ckptprof doctor` for the level `trace`: requirements, a real attempt, and the current recorder."""

from __future__ import annotations

import http.client
import os
import re
import ssl
from collections.abc import Sequence

import msgspec

from ckptprof.cli.checks import remedies
from ckptprof.cli.checks.kernel import effective_capabilities
from ckptprof.errors import CkptprofError
from ckptprof.model import Session
from ckptprof.report.doctor import Check
from ckptprof.service.commands import levels
from ckptprof.service.commands.installation import ServiceHost
from ckptprof.service.commands.levels import AgentStatus
from ckptprof.service.sampler import tracing
from ckptprof.store.location import is_service_running
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, has_host_pids, read_text

NEWER = "boot a newer kernel: eBPF works on kernels with BTF, 5.10 or newer"
NOTHING = "none on this host: all requirements are met, but the kernel still refuses eBPF"
_POLLING = (
    "polling is used, which misses sizes and offsets of single calls and files open for less than one poll, "
    "and has less exact checkpoint start and end times"
)
_NOT_MONITORED = "not monitored: "
_SINCE = re.compile(r"since (\d+\.\d+)")
_PERMISSION = re.compile(r"lacks|not permitted|CAP_|set-user-ID")
_PATIENCE_SECONDS = 2.0
_MOST_BYTES = 1 << 20
_FAILED = "the trace failed"
_NOT_QUERIED = "its page requires a client certificate: not queried"
_REFUSAL = "TLSV13_ALERT_CERTIFICATE_REQUIRED"  # as OpenSSL calls it


def run_checks(fs: KernelFs) -> list[Check]:
    """Run all checks of tracing; none raises."""
    pieces = [check_btf(fs), privileges(fs), libbpf(), lockdown(fs)]
    return [*pieces, *try_attach(fs, pieces=pieces)]


def check_btf(fs: KernelFs) -> Check:
    """Check for kernel type information (BTF)."""
    release = read_text(fs.proc / "sys/kernel/osrelease") or "of unknown version"
    if os.access(fs.sys / "kernel/btf/vmlinux", os.R_OK):
        return Check("trace-btf", "ok", f"the kernel ({release}) has type information (BTF), which eBPF programs need")
    text = f"the kernel ({release}) has no type information (BTF): no eBPF program can be loaded"
    fix = "boot a kernel of 5.10 or newer with CONFIG_DEBUG_INFO_BTF=y: Debian 11, RHEL 8.2, or newer"
    if has_host_pids(fs) is False:
        fix = f"mount the host's /sys/kernel/btf into this container; if the host has none, {fix}"
    return Check("trace-btf", "warn", text, fix)


def privileges(fs: KernelFs) -> Check:
    """Check the capabilities for attaching."""
    effective = effective_capabilities(fs) or frozenset()
    missing = [f"CAP_{name}" for name in ("BPF", "PERFMON") if name not in effective]
    if not missing or "SYS_ADMIN" in effective:
        return Check("trace-privileges", "ok", "eBPF programs can be attached")
    text = f"eBPF programs cannot be attached without {' and '.join(missing)}"
    return Check("trace-privileges", "warn", text, remedies.tracing())


def libbpf() -> Check:
    """Check for libbpf, which loads the programs."""
    from ckptprof_collectors.ebpf.libbpf_loader import BUNDLED_FOLDER, find_libbpf  # noqa: PLC0415 - ctypes, for this command only

    try:
        found = find_libbpf()
    except UnavailableError as error:
        return Check("trace-libbpf", "warn", str(error), remedies.libbpf())
    number = ".".join(map(str, found.version))
    where = "bundled" if found.path.startswith(str(BUNDLED_FOLDER)) else found.path
    return Check("trace-libbpf", "ok", f"libbpf {number} ({where})")


def lockdown(fs: KernelFs) -> Check:
    """Check the kernel's lockdown; `confidentiality` forbids reading its memory (kernel_lockdown(7))."""
    text = read_text(fs.sys / "kernel/security/lockdown")
    degree = re.search(r"\[(\w+)\]", text or "")
    if degree is None:
        text = "the lockdown state is unknown; the next check tries to attach"
        return Check("trace-lockdown", "note", text)
    if degree[1] == "confidentiality":
        text = "the kernel is locked down for confidentiality: eBPF programs can read nothing"
        return Check("trace-lockdown", "warn", text, "boot with lockdown=integrity, or without lockdown")
    return Check("trace-lockdown", "ok", f"lockdown of the kernel: {degree[1]}, which allows eBPF programs")


def try_attach(
    fs: KernelFs, attach: tracing.TraceFactory = tracing.attach, *, pieces: Sequence[Check] = ()
) -> list[Check]:
    """Attach the programs briefly, limited to our own processes.

    `pieces`: the checks of requirements.
    """
    if not fs.is_live:
        return [Check("trace", "note", "not tried: this is not the /proc of this machine")]
    try:
        tracer = attach(fs, family_of=(os.getpid(),), ignore=())
    except UnavailableError as error:
        text = f"no trace: {tracing.first_line(error)}; {_POLLING}"
        fix = _combine_remedies(remedy_for_refusal(str(error), first_failed(pieces)), pieces)
        return [Check("trace", "warn", text, fix)]
    except Exception as error:  # noqa: BLE001 - doctor must report any failure
        text = f"no trace: {type(error).__name__}: {tracing.first_line(error)}; {_POLLING}"
        return [Check("trace", "fail", text, NEWER)]
    programs: dict[str, str] = getattr(tracer, "programs", {})
    degraded = tuple(tracer.degraded)
    tracer.close()
    hooks = ", ".join(f"{hook} ({variant})" for hook, variant in programs.items()) or "everything"
    works = Check("trace", "ok", f"the trace level works: {hooks}")
    return [works, *check_coverage("trace-coverage", degraded, pieces)]


def check_coverage(name: str, degraded: Sequence[str], pieces: Sequence[Check]) -> list[Check]:
    """Return one check per remedy, with everything that it would add."""
    by_remedy: dict[str, list[str]] = {}
    for sentence in degraded:
        by_remedy.setdefault(remedy(sentence, pieces), []).append(sentence.removeprefix(_NOT_MONITORED))
    return [Check(name, "note", f"{_NOT_MONITORED}{'; '.join(texts)}", fix) for fix, texts in by_remedy.items()]


def first_failed(checks: Sequence[Check]) -> Check | None:
    """Return the first check of tracing that did not pass; None: all passed."""
    return next((check for check in checks if check.id.startswith("trace") and check.status in ("warn", "fail")), None)


def _combine_remedies(fix: str, pieces: Sequence[Check]) -> str:
    """Combine a remedy with those of other failed checks that it also needs."""
    named = {*re.findall("`(trace-[a-z]+)`", fix), *(["trace-privileges"] if "CAP_BPF" in fix else [])}
    more = [f"`{one.id}`" for one in pieces if one.status in ("warn", "fail") and one.id not in named]
    return f"{fix}, and with it what {' and '.join(more)} name{'s' if len(more) == 1 else ''}" if more else fix


def refer_to(check: Check) -> str:
    """Refer to the remedy of another check."""
    return f"as `{check.id}` says: {check.fix}" if check.fix is not None else f"see `{check.id}`"


def remedy(sentence: str, pieces: Sequence[Check] = ()) -> str:
    """Return the remedy for a degradation."""
    if (since := _SINCE.search(sentence)) is not None:
        return f"boot a kernel of {since[1]} or newer"
    if _PERMISSION.search(sentence) is not None:
        return remedies.cover_host()
    found = first_failed(pieces)
    return NEWER if found is None else refer_to(found)


def remedy_for_refusal(reason: str, found: Check | None) -> str:
    """Return the remedy for this reason of refusing eBPF programs."""
    if levels.needs_host_pids(reason):
        return levels.container_remedy(reason) or levels.SHARE_PIDS
    if found is not None:
        return refer_to(found)
    return remedies.cover_host() if _PERMISSION.search(reason) is not None else NOTHING


class CertificateRequired:
    """The page of an agent that requires a client certificate."""


def query_agent(host: str, port: int) -> AgentStatus | CertificateRequired | None:
    """Query the agent at this address for its status; None if there is none, or another program."""
    plain = http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
    try:
        return _read_status(plain)
    except (ConnectionRefusedError, TimeoutError):
        return None
    except (OSError, http.client.HTTPException):  # perhaps TLS; unverified: we send no secret
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        secure = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_SECONDS, context=trusting)
    try:
        return _read_status(secure)
    except ssl.SSLError as error:
        return CertificateRequired() if error.reason == _REFUSAL else None
    except (OSError, http.client.HTTPException):
        return None


def _read_status(connection: http.client.HTTPConnection) -> AgentStatus | None:
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        answer = msgspec.json.decode(response.read(_MOST_BYTES), type=AgentStatus)
    except (ValueError, msgspec.MsgspecError):
        return None
    finally:
        connection.close()
    return answer if answer.program == "ckptprof" else None


def check_recorder(
    standing: AgentStatus | CertificateRequired | None,
    newest: Session | None,
    own: Sequence[Check],
    *,
    is_written: bool,
) -> list[Check]:
    """Return the checks of the current recorder of this host.

    `newest`, `is_written`: from the database. `own`: results of this command's attempt to trace.
    """
    if standing is None:
        return [_check_by_database(newest, own, ", and does not answer", is_written=is_written)]
    if isinstance(standing, CertificateRequired):
        if (by_systemd := _check_service_status()) is not None:
            return [by_systemd]
        by_database = _check_by_database(newest, own, is_written=is_written)
        return [msgspec.structs.replace(by_database, text=f"{by_database.text} ({_NOT_QUERIED})")]
    recorder = f"{'the service' if is_service_running() else 'an agent'} (pid {standing.pid}) monitors this host"
    if standing.health != "ok":
        fix = "it uses more CPU than it gets: give this host more, or set CPUWeight= by `systemctl edit ckptprof`"
        return [
            Check("watching", "warn", f"{recorder} at {standing.level} level, {standing.health}", fix, standing.level)
        ]
    if standing.level == "trace":
        found = [Check("watching", "ok", f"{recorder} at trace level", level="trace")]
        return found + check_coverage("watching-coverage", standing.reasons, own)
    if standing.requested_level == "poll":
        return [Check("watching", "warn", f"{recorder} at poll level, as configured", _poll_remedy(), "poll")]
    reason = "; ".join(standing.reasons) or "no reason reported"
    return [Check("watching", "warn", f"{recorder} at poll level: {reason}", _remedy(standing, own), "poll")]


def qualify_own_trace(found: Sequence[Check], own: Sequence[Check]) -> list[Check]:
    """Return this command's checks of tracing; success is only a note if the recorder polls.

    `found`: the checks of the recorder.
    """
    if not any(one.level == "poll" for one in found):
        return list(own)
    here = "works for this command, but the recorder of this host polls: see `watching`"
    return [Check(one.id, "note", here) if one.id == "trace" and one.status == "ok" else one for one in own]


def _check_service_status() -> Check | None:
    """Return the check of the service by its systemd status text; None without one."""
    if not is_service_running():
        return None
    try:
        status = ServiceHost().properties().get("StatusText")
    except CkptprofError:
        status = None
    if not status:
        return None
    text, level = f"the service reports: {status} ({_NOT_QUERIED})", levels.parse_status_line(status)
    if level != "poll":
        return Check("watching", "ok", text, level=level)
    return Check("watching", "warn", text, f"{remedies.as_root('journalctl -u ckptprof')} shows why it polls", level)


def _poll_remedy() -> str:
    if is_service_running():
        return remedies.set_level()
    return "end it and start it with `--level auto`"


def _remedy(standing: AgentStatus, own: Sequence[Check]) -> str:
    if standing.reasons and standing.reasons[-1].startswith(_FAILED):
        return remedies.restart()
    if foreign := next(filter(levels.needs_host_pids, standing.reasons), None):
        return levels.container_remedy(foreign) or levels.SHARE_PIDS
    if standing.denied:
        return remedies.privileges()
    return _own_remedy(own)


def _own_remedy(own: Sequence[Check]) -> str:
    lacking = first_failed(own)
    if lacking is None:  # its obstacle does not affect this command
        return remedies.restart()
    if lacking.id == "trace-privileges" and os.geteuid() != 0:
        return f"{remedies.as_root('ckptprof doctor')} checks more than this user can"
    return refer_to(lacking)


def _check_by_database(newest: Session | None, own: Sequence[Check], silent: str = "", *, is_written: bool) -> Check:
    """Check the recorder by its database, if it serves no page; `silent`: added text for a running service."""
    if not is_written:
        if is_service_running():
            text = f"the service runs{silent}: its level is unknown"
            return Check("watching", "note", text, f"{remedies.as_root('journalctl -u ckptprof')} shows it")
        if remedies.has_service_failed():
            text = "the service has failed, and no agent monitors this host"
            return Check(
                "watching", "warn", text, "`journalctl -u ckptprof` shows why; `ckptprof config` checks its settings"
            )
        return Check(
            "watching", "note", "neither the service nor an agent monitors this host", remedies.start_recording()
        )
    if newest is None:
        return Check("watching", "note", "an agent writes to this database; its level is unknown")
    text = f"an agent writes to this database at {newest.level} level"
    if newest.level == "trace":
        return Check("watching", "ok", text, level="trace")
    # It may be configured to poll: then a plain restart changes nothing
    return Check(
        "watching", "warn", text, _poll_remedy() if first_failed(own) is None else _own_remedy(own), newest.level
    )
