"""Put libbpf and what it needs into a wheel: CKPTPROF_BUNDLE_LIBBPF=1 (or the path of a libbpf.so.1) at its build.

Without it the wheel is for any platform and libbpf is looked for on the target. Each wheel lists what is compiled in
it, the eBPF programs and these libraries, as an SBOM in CycloneDX (PEP 770).
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WANTED = "CKPTPROF_BUNDLE_LIBBPF"
INTO = "ckptprof_collectors/_lib"
NOTICE = "NOTICE.md"
PROGRAMS = "collectors/ckptprof_collectors/bpf"
SBOM = "ckptprof.cdx.json"
# soname -> under which licence it is in the wheel, as NOTICE says
LICENCES = {
    "libbpf.so.1": "BSD-2-Clause",
    "libelf.so.1": "LGPL-3.0-or-later",
    "libz.so.1": "Zlib",
    "libzstd.so.1": "BSD-3-Clause",
}
# Every target with this glibc or a newer one has these: a second C library in one process cannot work.
OF_GLIBC = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv))\.so")
SONAME = re.compile(r"lib[^/]+\.so\.\d+")


class BundleHook(BuildHookInterface[Any]):
    """The build hook; hatchling calls `initialize` before it packs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries and the platform that they are for; raises RuntimeError where there is no libbpf 1.x."""
        if version == "editable":
            return
        wanted = os.environ.get(WANTED, "")
        libraries: dict[str, Path] = {}
        if wanted not in ("", "0"):
            libraries = needed_by(Path(wanted) if "/" in wanted else system_libbpf())
            self._bundle(libraries, build_data)
        self._folder = tempfile.TemporaryDirectory(prefix="ckptprof-sbom-")
        sbom = Path(self._folder.name) / SBOM
        sbom.write_text(sbom_of(self.metadata.version, Path(self.root) / PROGRAMS, libraries), encoding="utf-8")
        build_data["sbom_files"].append(str(sbom))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove the file that has been packed."""
        if version != "editable":
            self._folder.cleanup()

    def _bundle(self, libraries: dict[str, Path], build_data: dict[str, Any]) -> None:
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


def sbom_of(version: str, programs: Path, libraries: dict[str, Path]) -> str:
    """Return the CycloneDX document of a wheel: the same for the same contents, so without a date or a random number.

    The Python code is the component that the document is about; what it depends on is in the wheel's metadata.
    """
    root = f"pkg:pypi/ckptprof@{version}"
    objects = sorted(programs.glob("*.bpf.o"))
    components = [
        _component(f"{INTO.partition('/')[0]}/bpf/{path.name}", path, version, "BSD-2-Clause OR GPL-2.0-only")
        for path in objects
    ]
    for soname, path in sorted(libraries.items()):
        package = package_of(path)
        licence = LICENCES.get(soname)
        component = _component(f"{INTO}/{soname}", path, package.get("version"), licence)
        if package:
            component |= {"purl": purl_of(package), "supplier": {"name": package["distribution"]}}
        components.append(component)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "ckptprof",
                "version": version,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [component["bom-ref"] for component in components]}],
    }
    return json.dumps(document, indent=1) + "\n"


def _component(place: str, path: Path, version: str | None, licence: str | None) -> dict[str, Any]:
    """Return the component of one file of the wheel; `place` is where it is there."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known = {"version": version} if version else {}
    licences: dict[str, Any] = {"licenses": [{"expression": licence}]} if licence else {}
    return {
        "type": "library",
        "bom-ref": place,
        "name": Path(place).name,
        **known,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        **licences,
        "properties": [{"name": "ckptprof:file", "value": place}],
    }


def package_of(library: Path) -> dict[str, str]:
    """Return the Debian package that a library is of, its version and source; empty elsewhere, or if it is of none."""
    wanted = "${source:Package}\n${Version}\n${Architecture}\n${binary:Package}\n"
    for path in (str(library), str(library).removeprefix("/usr")):  # of a time before /usr was merged
        owner = _told("dpkg-query", "--search", path).partition(": ")[0]
        fields = _told("dpkg-query", "--show", "--showformat", wanted, owner).splitlines() if owner else []
        if len(fields) == 4:
            release = platform.freedesktop_os_release()
            names = ("source", "version", "architecture", "name")
            found = dict(zip(names, fields, strict=True))
            distribution = {"distribution": release.get("NAME", "Debian"), "id": release.get("ID", "debian")}
            return found | distribution | {"release": release.get("VERSION_ID", "")}
    return {}


def purl_of(package: dict[str, str]) -> str:
    """Return the package URL by which databases of faults know a package of Debian or Ubuntu."""
    name = package["name"].partition(":")[0]
    version = package["version"].replace(":", "%3A").replace("+", "%2B")
    told = f"arch={package['architecture']}&distro={package['id']}-{package['release']}&upstream={package['source']}"
    return f"pkg:deb/{package['id']}/{name}@{version}?{told}"


def _told(*command: str) -> str:
    """Return what a program prints; nothing where there is no such program, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the build's
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
