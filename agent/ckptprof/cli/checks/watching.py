"""What `ckptprof doctor` asks who watches this host now: at which level it really runs, and why."""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Sequence

import msgspec

from ckptprof.cli.checks import remedies, trace
from ckptprof.errors import CkptprofError
from ckptprof.model import Session
from ckptprof.report.doctor import Check
from ckptprof.service.commands import levels
from ckptprof.service.commands.installation import Host
from ckptprof.service.commands.levels import Standing
from ckptprof.store.location import service_runs

_PATIENCE_SECONDS = 2.0
_MOST_BYTES = 1 << 20
_FAILED = "the trace failed"
_NOT_ASKED = "its page requires a client certificate: not asked"
_REFUSAL = "TLSV13_ALERT_CERTIFICATE_REQUIRED"  # as OpenSSL calls it


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


def everything(
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
        return found + trace.out_of_sight("watching-sight", standing.reasons, own)
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
    """Return what brings the trace to who polls."""
    if standing.reasons and standing.reasons[-1].startswith(_FAILED):
        return remedies.restart()
    if foreign := next(filter(levels.needs_the_hosts_pids, standing.reasons), None):
        return levels.of_container(foreign) or levels.SHARE_PIDS
    if standing.denied:
        return remedies.privileges()
    return _as_here(own)


def _as_here(own: Sequence[Check]) -> str:
    missing = trace.missing(own)
    if missing is None:  # what was in its way is not in ours
        return remedies.restart()
    if missing.id == "trace-privileges" and os.geteuid() != 0:
        return f"{remedies.as_root('ckptprof doctor')} finds more than this user can"
    return trace.as_told(missing)


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
    return Check("watching", "warn", text, _unasked() if trace.missing(own) is None else _as_here(own), newest.level)
