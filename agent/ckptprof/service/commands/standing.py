"""How the service stands on this host, by systemd's word."""

from __future__ import annotations

import os

from ckptprof.report.service import Standing
from ckptprof.service.commands.environment import here
from ckptprof.service.commands.installation import Host, is_outdated
from ckptprof.store.location import SERVICE_DATABASE


def standing(host: Host) -> Standing:
    """Return it; raises CkptprofError if systemd does not answer."""
    state = host.state()
    runs = state.get("ExecStart", "").partition("argv[]=")[2].partition(" ;")[0] or None
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
