"""What `ckptprof doctor` looks at for the level `trace`: what it takes, a real try, and who watches this host now."""

from __future__ import annotations

import http.client
import os
import re
import ssl
from collections.abc import Sequence

import msgspec

from ckptprof.cli.checks import remedies
from ckptprof.cli.checks.kernel import held_capabilities
from ckptprof.errors import CkptprofError
from ckptprof.model import Session
from ckptprof.report.doctor import Check
from ckptprof.service.commands import levels
from ckptprof.service.commands.installation import Host
from ckptprof.service.commands.levels import Standing
from ckptprof.service.sampler import tracing
from ckptprof.store.location import service_runs
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, has_the_hosts_pids, read_text

NEWER = "boot a newer kernel: eBPF works with any kernel that has BTF, from 5.10 on"
NOTHING = "none on this host: what eBPF needs is there, and the kernel refuses it all the same"
_POLLING = (
    "polling is used, which cannot show the size and offset of single calls, nor files that are open for less than one "
    "poll, and knows the edges of a checkpoint less exactly"
)
_OUT_OF_SIGHT = "not monitored: "
_SINCE = re.compile(r"since (\d+\.\d+)")
_PERMISSION = re.compile(r"lacks|not permitted|CAP_|set-user-ID")
_PATIENCE_SECONDS = 2.0
_MOST_BYTES = 1 << 20
_FAILED = "the trace failed"
_NOT_ASKED = "its page requires a client certificate: not asked"
_REFUSAL = "TLSV13_ALERT_CERTIFICATE_REQUIRED"  # as OpenSSL calls it


def everything(fs: KernelFs) -> list[Check]:
    """Return all checks of the trace; none raises."""
    pieces = [types(fs), privileges(fs), libbpf(), lockdown(fs)]
    return [*pieces, *attached(fs, pieces=pieces)]


def types(fs: KernelFs) -> Check:
    """Look for the kernel's own types (BTF), which the programs are fitted to."""
    release = read_text(fs.proc / "sys/kernel/osrelease") or "of unknown version"
    if os.access(fs.sys / "kernel/btf/vmlinux", os.R_OK):
        return Check("trace-btf", "ok", f"the kernel ({release}) has type information (BTF), which eBPF programs need")
    text = f"the kernel ({release}) has no type information (BTF): no eBPF program can be loaded"
    fix = "boot a kernel of 5.10 or newer with CONFIG_DEBUG_INFO_BTF=y: Debian 11, RHEL 8.2, or newer"
    if has_the_hosts_pids(fs) is False:
        fix = f"show this container the /sys/kernel/btf of its host; if that has none, {fix}"
    return Check("trace-btf", "warn", text, fix)


def privileges(fs: KernelFs) -> Check:
    """Look at the capabilities that attaching takes."""
    held = held_capabilities(fs) or frozenset()
    missing = [f"CAP_{name}" for name in ("BPF", "PERFMON") if name not in held]
    if not missing or "SYS_ADMIN" in held:
        return Check("trace-privileges", "ok", "eBPF programs can be attached")
    text = f"eBPF programs cannot be attached without {' and '.join(missing)}"
    return Check("trace-privileges", "warn", text, remedies.tracing())


def libbpf() -> Check:
    """Look for the library that loads the programs."""
    from ckptprof_collectors.ebpf.library import BUNDLED, find_libbpf  # noqa: PLC0415 - ctypes, for this command only

    try:
        found = find_libbpf()
    except UnavailableError as error:
        return Check("trace-libbpf", "warn", str(error), remedies.libbpf())
    number = ".".join(map(str, found.version))
    where = "bundled" if found.path.startswith(str(BUNDLED)) else found.path
    return Check("trace-libbpf", "ok", f"libbpf {number} ({where})")


def lockdown(fs: KernelFs) -> Check:
    """Look at the kernel's lockdown, whose stricter degree lets nobody read its memory (kernel_lockdown(7))."""
    text = read_text(fs.sys / "kernel/security/lockdown")
    degree = re.search(r"\[(\w+)\]", text or "")
    if degree is None:
        text = "whether the kernel is locked down cannot be seen; the next check tries it"
        return Check("trace-lockdown", "note", text)
    if degree[1] == "confidentiality":
        text = "the kernel is locked down for confidentiality: eBPF programs can read nothing"
        return Check("trace-lockdown", "warn", text, "boot with lockdown=integrity, or without lockdown")
    return Check("trace-lockdown", "ok", f"lockdown of the kernel: {degree[1]}, which lets eBPF programs read")


def attached(fs: KernelFs, attach: tracing.Maker = tracing.attach, *, pieces: Sequence[Check] = ()) -> list[Check]:
    """Attach the programs for a moment, seeing only what we start ourselves, and say what came of it.

    `pieces`: the checks of what it takes.
    """
    if not fs.is_live:
        return [Check("trace", "note", "not tried: this is not the /proc of this machine")]
    try:
        tracer = attach(fs, family_of=(os.getpid(),), ignore=())
    except UnavailableError as error:
        text = f"no trace: {tracing.first_line(error)}; {_POLLING}"
        return [Check("trace", "warn", text, _at_once(mended(str(error), missing(pieces)), pieces))]
    except Exception as error:  # noqa: BLE001 - doctor is where one looks when something is wrong
        text = f"no trace: {type(error).__name__}: {tracing.first_line(error)}; {_POLLING}"
        return [Check("trace", "fail", text, NEWER)]
    programs: dict[str, str] = getattr(tracer, "programs", {})
    degraded = tuple(tracer.degraded)
    tracer.close()
    hooks = ", ".join(f"{hook} ({variant})" for hook, variant in programs.items()) or "everything"
    return [Check("trace", "ok", f"the trace level works: {hooks}"), *out_of_sight("trace-sight", degraded, pieces)]


def out_of_sight(name: str, degraded: Sequence[str], pieces: Sequence[Check]) -> list[Check]:
    """Return a check for each remedy, with all that it would bring into sight."""
    unseen: dict[str, list[str]] = {}
    for sentence in degraded:
        unseen.setdefault(remedy(sentence, pieces), []).append(sentence.removeprefix(_OUT_OF_SIGHT))
    return [Check(name, "note", f"{_OUT_OF_SIGHT}{'; '.join(texts)}", fix) for fix, texts in unseen.items()]


def missing(checks: Sequence[Check]) -> Check | None:
    """Return the first check of what a trace takes, and of the trace itself, that did not go well; None: all did."""
    return next((check for check in checks if check.id.startswith("trace") and check.status in ("warn", "fail")), None)


def _at_once(fix: str, pieces: Sequence[Check]) -> str:
    """Return a remedy with those of other checks that it takes as well: each alone changes nothing."""
    told = {*re.findall("`(trace-[a-z]+)`", fix), *(["trace-privileges"] if "CAP_BPF" in fix else [])}
    more = [f"`{one.id}`" for one in pieces if one.status in ("warn", "fail") and one.id not in told]
    return f"{fix}, and with it what {' and '.join(more)} name{'s' if len(more) == 1 else ''}" if more else fix


def as_told(check: Check) -> str:
    """Return the remedy that another check names."""
    return f"as `{check.id}` says: {check.fix}" if check.fix is not None else f"see `{check.id}`"


def remedy(sentence: str, pieces: Sequence[Check] = ()) -> str:
    """Return what would bring into sight what a degradation says is out of it."""
    if (since := _SINCE.search(sentence)) is not None:
        return f"boot a kernel of {since[1]} or newer"
    if _PERMISSION.search(sentence) is not None:
        return remedies.as_service()
    found = missing(pieces)
    return NEWER if found is None else as_told(found)


def mended(reason: str, found: Check | None) -> str:
    """Return what would let eBPF programs in, that were kept out for this reason."""
    if levels.needs_the_hosts_pids(reason):
        return levels.of_container(reason) or levels.SHARE_PIDS
    if found is not None:
        return as_told(found)
    return remedies.as_service() if _PERMISSION.search(reason) is not None else NOTHING


class Guarded:
    """The page of an agent that requires a client certificate."""


def ask(host: str, port: int) -> Standing | Guarded | None:
    """Return what the agent at this address says of itself; None if there is none, or something else."""
    plain = http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
    try:
        return _answer(plain)
    except (ConnectionRefusedError, TimeoutError):
        return None
    except (OSError, http.client.HTTPException):  # it may speak TLS; who it is does not matter, it is told no secret
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        secure = http.client.HTTPSConnection(host, port, timeout=_PATIENCE_SECONDS, context=trusting)
    try:
        return _answer(secure)
    except ssl.SSLError as error:
        return Guarded() if error.reason == _REFUSAL else None
    except (OSError, http.client.HTTPException):
        return None


def _answer(connection: http.client.HTTPConnection) -> Standing | None:
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        answer = msgspec.json.decode(response.read(_MOST_BYTES), type=Standing)
    except (ValueError, msgspec.MsgspecError):
        return None
    finally:
        connection.close()
    return answer if answer.program == "ckptprof" else None


def watched(
    standing: Standing | Guarded | None, newest: Session | None, own: Sequence[Check], *, is_written: bool
) -> list[Check]:
    """Return what is to be said of who watches this host.

    `newest`, `is_written`: what the database tells. `own`: what this command found when it tried the trace.
    """
    if standing is None:
        return [_unanswered(newest, own, ", and does not answer", is_written=is_written)]
    if isinstance(standing, Guarded):
        if (said := _service_says()) is not None:
            return [said]
        known = _unanswered(newest, own, is_written=is_written)
        return [msgspec.structs.replace(known, text=f"{known.text} ({_NOT_ASKED})")]
    who = f"{'the service' if service_runs() else 'an agent'} (pid {standing.pid}) watches this host"
    if standing.level == "trace":
        found = [Check("watching", "ok", f"{who} at trace level", level="trace")]
        return found + out_of_sight("watching-sight", standing.reasons, own)
    if standing.wish == "poll":
        return [Check("watching", "warn", f"{who} at poll level, as it was asked to", _unasked(), "poll")]
    reason = "; ".join(standing.reasons) or "it does not say why"
    return [Check("watching", "warn", f"{who} at poll level: {reason}", _remedy(standing, own), "poll")]


def beside(found: Sequence[Check], own: Sequence[Check]) -> list[Check]:
    """Return what this command found of the trace; where who watches polls, that it works here is no good news.

    `found`: what is said of who watches.
    """
    if not any(one.level == "poll" for one in found):
        return list(own)
    here = "works for this command, and not for who watches this host: see `watching`"
    return [Check(one.id, "note", here) if one.id == "trace" and one.status == "ok" else one for one in own]


def _service_says() -> Check | None:
    """Return what a service whose page is guarded reports to systemd; None if it reports nothing."""
    if not service_runs():
        return None
    try:
        said = Host().state().get("StatusText")
    except CkptprofError:
        said = None
    if not said:
        return None
    text, level = f"the service says: {said} ({_NOT_ASKED})", levels.of_status(said)
    if level != "poll":
        return Check("watching", "ok", text, level=level)
    return Check("watching", "warn", text, f"{remedies.as_root('journalctl -u ckptprof')} tells why it polls", level)


def _unasked() -> str:
    if service_runs():
        return remedies.level()
    return "end it and start it with `--level auto`"


def _remedy(standing: Standing, own: Sequence[Check]) -> str:
    if standing.reasons and standing.reasons[-1].startswith(_FAILED):
        return remedies.restart()
    if foreign := next(filter(levels.needs_the_hosts_pids, standing.reasons), None):
        return levels.of_container(foreign) or levels.SHARE_PIDS
    if standing.denied:
        return remedies.privileges()
    return _as_here(own)


def _as_here(own: Sequence[Check]) -> str:
    lacking = missing(own)
    if lacking is None:  # what was in its way is not in ours
        return remedies.restart()
    if lacking.id == "trace-privileges" and os.geteuid() != 0:
        return f"{remedies.as_root('ckptprof doctor')} finds more than this user can"
    return as_told(lacking)


def _unanswered(newest: Session | None, own: Sequence[Check], silent: str = "", *, is_written: bool) -> Check:
    """Judge by the database: one that serves nothing, or elsewhere, writes there all the same; `silent`: if it does."""
    if not is_written:
        if service_runs():
            text = f"the service runs{silent}: at which level it watches is not known"
            return Check("watching", "note", text, f"{remedies.as_root('journalctl -u ckptprof')} tells it")
        if remedies.service_failed():
            text = "the service has failed, and no agent watches this host"
            return Check(
                "watching", "warn", text, "`journalctl -u ckptprof` tells why; `ckptprof config` checks its settings"
            )
        return Check("watching", "note", "neither the service nor an agent watches this host", remedies.as_watcher())
    if newest is None:
        return Check("watching", "note", "an agent writes to this database; at which level it watches is not known")
    text = f"an agent writes to this database at {newest.level} level"
    if newest.level == "trace":
        return Check("watching", "ok", text, level="trace")
    # It may have been asked to poll: to begin again as before would then change nothing
    return Check("watching", "warn", text, _unasked() if missing(own) is None else _as_here(own), newest.level)
