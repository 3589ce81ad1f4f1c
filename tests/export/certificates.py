"""Certificates of a test: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]


def authority(folder: Path, name: str) -> None:
    """Make NAME.crt and NAME.key, which can sign others."""
    command = ["openssl", "req", "-x509", *_KEY, "-subj", f"/CN={name}"]
    subprocess.run(
        [*command, "-keyout", f"{name}.key", "-out", f"{name}.crt"], cwd=folder, check=True, capture_output=True
    )


def signed(folder: Path, name: str, by: str) -> None:
    """Make NAME.crt and NAME.key for this host's loopback, signed by an authority."""
    command = ["openssl", "req", "-x509", *_KEY, "-CA", f"{by}.crt", "-CAkey", f"{by}.key", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(
        [*command, "-keyout", f"{name}.key", "-out", f"{name}.crt"], cwd=folder, check=True, capture_output=True
    )


def all_of(folder: Path) -> None:
    """Make an authority `ca`, a `server` and a `client` of it."""
    authority(folder, "ca")
    for name in ("server", "client"):
        signed(folder, name, "ca")
