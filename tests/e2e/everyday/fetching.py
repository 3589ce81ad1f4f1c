"""Downloads, uploads and installs."""

from __future__ import annotations

import sys

from everyday.task import Place, Task, python, shell


def _pip_install(place: Place) -> None:
    place.run(sys.executable, "-m", "venv", "--without-pip", "venv")
    wheels = [str(wheel) for wheel in sorted((place.store / "wheels").glob("*.whl"))]
    place.run(
        sys.executable, "-m", "pip", "--python", place.folder / "venv/bin/python", "install", "-q", "--no-deps",
        "--no-index", "--disable-pip-version-check", *wheels,
    )  # fmt: skip


TASKS = (
    python("curl a model", "fetches.py", "curl", "{store}", needs=("curl",)),
    python("wget a model", "fetches.py", "wget", "{store}", needs=("wget",)),
    python("urllib fetches a model", "fetches.py", "urllib", "{store}"),
    python("urllib with torch loaded", "fetches.py", "urllib-torch", "{store}"),
    python("hub's cache", "fetches.py", "snapshot", "{store}"),
    python("hub's cache with torch loaded", "fetches.py", "snapshot-torch", "{store}"),
    python("upload", "fetches.py", "upload", "{store}"),
    python("upload with torch loaded", "fetches.py", "upload-torch", "{store}"),
    Task("pip install", _pip_install),
    shell(
        "dpkg -i",
        "mkdir -p root/var/lib/dpkg/{updates,info} && touch root/var/lib/dpkg/status && "
        "dpkg --root=$PWD/root --force-not-root --force-depends --force-script-chrootless --no-triggers -i "
        "$STORE/debs/*.deb",
        "dpkg",
    ),
    shell("apt-get download", "apt-get -qq -o APT::Sandbox::User=root download libllvm14 gcc-12", "apt-get"),
    shell(
        "npm install",
        'mkdir app && cd app && echo \'{"name":"app","version":"1.0.0"}\' > package.json && '
        "npm install --offline --no-audit --no-fund --cache ../cache $STORE/blobs-1.0.0.tgz",
        "npm",
        optional=True,
    ),
)
