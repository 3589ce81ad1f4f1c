"""Put libbpf and what it needs into a wheel: CKPTPROF_BUNDLE_LIBBPF=1 (or the path of a libbpf.so.1) at its build.

Without it the wheel is for any platform and libbpf is looked for on the target.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WANTED = "CKPTPROF_BUNDLE_LIBBPF"
INTO = "ckptprof_collectors/_lib"
NOTICE = "docs/bundled-libraries.md"
# Every target with this glibc or a newer one has these: a second C library in one process cannot work.
OF_GLIBC = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv))\.so")
SONAME = re.compile(r"lib[^/]+\.so\.\d+")


class BundleHook(BuildHookInterface[Any]):
    """The build hook; hatchling calls `initialize` before it packs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries and the platform that they are for; raises RuntimeError where there is no libbpf 1.x."""
        wanted = os.environ.get(WANTED, "")
        if version == "editable" or wanted in ("", "0"):
            return
        libraries = needed_by(Path(wanted) if "/" in wanted else system_libbpf())
        for soname, path in libraries.items():
            build_data["force_include"][str(path)] = f"{INTO}/{soname}"
        build_data["force_include"][str(Path(self.root) / NOTICE)] = f"{INTO}/NOTICE.md"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(list(libraries.values()))}"


def system_libbpf() -> Path:
    """Return where the dynamic linker finds libbpf.so.1; raises RuntimeError."""
    try:
        ctypes.CDLL("libbpf.so.1")
    except OSError as error:
        raise RuntimeError(f"{WANTED}: {error}; apt install libbpf1") from None
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").split()
    return next(Path(word) for word in maps if "/libbpf.so.1" in word)


def needed_by(library: Path) -> dict[str, Path]:
    """Return the library and all that it needs beyond glibc, soname -> file; raises RuntimeError."""
    done = subprocess.run(["ldd", library], capture_output=True, text=True, check=False)  # noqa: S603, S607 - the build's
    if done.returncode != 0:
        raise RuntimeError(f"{WANTED}: ldd {library}: {done.stdout}{done.stderr}")
    found = {"libbpf.so.1": library.resolve()}
    for line in done.stdout.splitlines():  # "\tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f...)"
        soname, _, rest = line.strip().partition(" => ")
        if OF_GLIBC.match(Path(soname).name) or not SONAME.fullmatch(soname):
            continue
        if not rest.startswith("/"):
            raise RuntimeError(f"{WANTED}: {library} needs {soname}, which is {rest}")
        found[soname] = Path(rest.rsplit(" (", 1)[0]).resolve()
    return found


def platform_tag(libraries: list[Path]) -> str:
    """Return the platform on which these libraries load: the newest symbols of glibc that they ask for decide."""
    machine = platform.machine()
    asked = [int(number) for path in libraries for number in re.findall(rb"\0GLIBC_2\.(\d+)", path.read_bytes())]
    return f"manylinux_2_{max(asked)}_{machine}" if asked else f"linux_{machine}"
