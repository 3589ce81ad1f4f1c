"""How the service stands on this host, by systemd's word."""

from __future__ import annotations

import os
import re

from ckptprof.report.service import Standing
from ckptprof.service.commands.environment import here
from ckptprof.service.commands.installation import Host, is_outdated
from ckptprof.store.location import SERVICE_DATABASE

_ARGUMENTS = re.compile(r"argv\[\]=(.*?) ;")


def standing(host: Host) -> Standing:
    """Return it; raises CkptprofError if systemd does not answer."""
    state = host.state()
    started = _ARGUMENTS.search(state.get("ExecStart", ""))
    runs = started[1] if started is not None else None
    from_here = None if runs is None else runs.startswith(f"{here().command} ")
    return Standing(
        installed=state.get("LoadState") == "loaded",
        enabled=state.get("UnitFileState") == "enabled",
        active=state.get("ActiveState") == "active",
        state=state.get("ActiveState", "unknown"),
        status=state.get("StatusText") or None,
        unit=state.get("FragmentPath") or None,
        runs=runs,
        from_here=from_here,
        outdated=bool(from_here) and state.get("ActiveState") == "active" and is_outdated(state),
        user=host.has_user(),
        database=str(SERVICE_DATABASE),
        readable=os.access(SERVICE_DATABASE, os.R_OK),
    )
