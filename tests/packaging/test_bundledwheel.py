"""A wheel built with CKPTPROF_BUNDLE_LIBBPF loads eBPF objects where the system has no libbpf."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.clang]

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("libbpf.so.1", "libelf.so.1", "libz.so.1")
OPEN_ALL = """
import json, pathlib, ckptprof_collectors
from contextlib import closing
from ckptprof_collectors.ebpf.libbpf import BpfObject, find_libbpf
lib = find_libbpf()
package = pathlib.Path(ckptprof_collectors.__file__).parent
programs = {}
for path in sorted(package.glob("bpf/*.bpf.o")):
    with closing(BpfObject(lib, path)) as opened:
        programs[path.name] = opened.programs()
maps = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps({"path": lib.path, "package": str(package), "programs": programs, "maps": sorted(maps)}))
"""


def call(*command: str | Path, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, with `extra` in its environment."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHONPATH", "CKPTPROF"))}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env={**environment, **extra})


def build(into: Path, wanted: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel that carries the libbpf that `wanted` names."""
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", into, ROOT)
    return call(*command, cwd=into, CKPTPROF_BUNDLE_LIBBPF=wanted)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel."""
    folder = tmp_path_factory.mktemp("bundled")
    result = build(folder, "1")
    assert result.returncode == 0, result.stdout + result.stderr
    return next(folder.glob("ckptprof-*.whl"))


def test_it_is_for_this_platform_and_says_whose_the_libraries_are(wheel: Path) -> None:
    """Pip refuses it where the C library is too old, and the licences travel with the libraries."""
    with zipfile.ZipFile(wheel) as archive:
        programs = {Path(name).name for name in archive.namelist() if "/bpf/" in name}
        names = {name for name in archive.namelist() if "/_lib/" in name}
        notice = archive.read("ckptprof_collectors/_lib/NOTICE.md").decode()

    assert "-py3-none-manylinux_2_" in wheel.name
    assert wheel.name.endswith(f"_{os.uname().machine}.whl")
    kept = ROOT / "collectors" / "ckptprof_collectors" / "bpf"
    assert programs == {path.name for path in kept.glob("*.bpf.o")} | {"CHECKSUMS"}
    assert {f"ckptprof_collectors/_lib/{name}" for name in (*LIBRARIES, "NOTICE.md")} <= names
    for name in names - {"ckptprof_collectors/_lib/NOTICE.md"}:
        assert Path(name).name in notice


def test_its_library_opens_every_object(wheel: Path, tmp_path: Path) -> None:
    """In an empty environment the libraries beside the package are what is mapped, and none of the system's."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    installed = call(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr

    result = call(python, "-c", OPEN_ALL, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert seen["package"].startswith(str(tmp_path))
    assert seen["path"] == f"{seen['package']}/_lib/libbpf.so.1"
    mapped = [path for path in seen["maps"] if Path(path).name.startswith(("libbpf", "libelf"))]
    assert sorted(mapped) == [f"{seen['package']}/_lib/{name}" for name in ("libbpf.so.1", "libelf.so.1")]
    assert len(seen["programs"]) >= 4
    assert all(seen["programs"].values())


def test_a_build_that_cannot_bundle_fails(tmp_path: Path) -> None:
    """A wheel that was to carry libbpf and does not would fail on somebody else's host: it is not built."""
    result = build(tmp_path, str(tmp_path / "none" / "libbpf.so.1"))

    assert result.returncode != 0
    assert "CKPTPROF_BUNDLE_LIBBPF: ldd" in result.stdout + result.stderr
    assert not list(tmp_path.glob("*.whl"))
