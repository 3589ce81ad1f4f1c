"""Paths of dashboards, rules and units, in the installed package or a checkout."""

from __future__ import annotations

from pathlib import Path

from ckptprof.errors import CkptprofError

_PACKAGE = Path(__file__).resolve().parent


def asset(name: str, *, package: Path = _PACKAGE) -> Path:
    """Return the file or folder of assets called `name`, such as "systemd/ckptprof.service".

    A wheel has them in `_assets` next to this module; a checkout two folders above the package. Raises CkptprofError if
    missing.
    """
    inside = package / "_assets"
    root = inside if inside.is_dir() else package.parent.parent
    path = root / name
    if not path.exists():
        raise CkptprofError(
            f"{name} is missing from this installation of ckptprof (looked in {root})",
            hint="install the wheel again, or run from a complete checkout",
        )
    return path
