"""What the wheel is made of can be told, checked and made again: locks, an SBOM, and the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
# its build differs; `make fuzz`, `make steady`, `make site`, CKPTPROF_JOBS=all
UNLOCKED = ("torch", "fuzz", "steady", "site", "writers")
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
NOT_THE_SOURCE = shutil.ignore_patterns(".git", ".venv*", ".build", "__pycache__", ".*_cache", ".hypothesis", "dist")
OWN_FILES = re.compile(r"ckptprof_collectors/(bpf/.*\.o|_lib/lib.*)")
# A lock that names one wheel; who gets another by that name must get nothing at all
ONE = "thing==1.0 --hash=sha256:{}\n"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two folders with a wheel and a source distribution each, from two copies of the tree made differently."""
    folders = []
    for name, mask in (("one", 0o022), ("another/place", 0o077)):
        folder = tmp_path_factory.mktemp("build") / name
        shutil.copytree(ROOT, folder, ignore=NOT_THE_SOURCE)
        for path in (folder, *folder.rglob("*")):
            path.chmod(path.stat().st_mode & ~mask)
            os.utime(path, (time.time() - 10**8 * len(folders), time.time() + 1000 * len(folders)))
        command = f'umask {mask:o} && "$0" -m build --no-isolation --outdir ../made .'
        environment = {**os.environ, "TZ": ("UTC", "Asia/Kolkata")[len(folders)], "CKPTPROF_BUNDLE_LIBBPF": ""}
        done = subprocess.run(
            ["sh", "-c", command, sys.executable],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        folders.append(folder.parent / "made")
    return folders


def check_sbom(wheel: Path) -> dict[str, dict[str, Any]]:
    """Return the components of a wheel's SBOM by the file that each is; hold them to schema and contents."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if ".dist-info/sboms/" in name)
        text = archive.read(name).decode()
        digests = {
            path: hashlib.sha256(archive.read(path)).hexdigest()
            for path in archive.namelist()
            if OWN_FILES.fullmatch(path)
        }
    document = json.loads(text)
    found = {component["bom-ref"]: component for component in document["components"]}

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert {path: one["hashes"][0]["content"] for path, one in found.items()} == digests
    assert document["metadata"]["component"]["purl"].startswith("pkg:pypi/ckptprof@")
    assert set(document["dependencies"][0]["dependsOn"]) == set(found)
    return found


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(builds: list[Path]) -> None:
    """At another time, in another place and zone, with other rights of files."""
    one, another = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in builds)

    assert len(one) == 2
    assert sorted(one) == sorted(another)
    assert {name for name in one if one[name] != another[name]} == set()


@pytest.mark.slow
def test_the_wheel_lists_what_is_compiled_in_it(builds: list[Path]) -> None:
    """Each eBPF object, and nothing else: this wheel carries no library."""
    found = check_sbom(next(builds[0].glob("*.whl")))

    assert len(found) >= 4
    assert all(path.endswith(".bpf.o") for path in found)


@pytest.mark.slow
@pytest.mark.clang
def test_a_wheel_with_libbpf_lists_each_library(tmp_path: Path) -> None:
    """By the package and version that databases of faults know it by, with its licence."""
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT)
    environment = {**os.environ, "CKPTPROF_BUNDLE_LIBBPF": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    found = check_sbom(next(tmp_path.glob("*.whl")))
    libraries = {Path(path).name: one for path, one in found.items() if "/_lib/" in path}

    assert {"libbpf.so.1", "libelf.so.1", "libz.so.1"} <= set(libraries)
    for one in libraries.values():
        assert one["licenses"][0]["expression"] in (ROOT / "NOTICE.md").read_text(encoding="utf-8")
        if shutil.which("dpkg-query"):
            assert one["purl"].startswith("pkg:deb/")
            assert one["version"]


def declared() -> Iterator[Requirement]:
    """Yield what pyproject.toml asks for on Python 3.11 on Linux, but for what is not locked."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {name: lines for name, lines in project["dependency-groups"].items() if name not in UNLOCKED}
    for line in (*project["project"]["dependencies"], *(line for lines in groups.values() for line in lines)):
        if isinstance(line, str):
            requirement = Requirement(line)
            here = {"python_version": "3.11", "platform_machine": "x86_64", "extra": ""}
            if requirement.marker is None or requirement.marker.evaluate(here):
                yield requirement


def test_the_locks_fit_what_is_declared() -> None:
    """Each dependency is locked once, within its bounds and with hashes; PyTorch, whose build differs, is not."""
    texts = [(ROOT / ".ci" / "locks" / name).read_text(encoding="utf-8") for name in ("dev.txt", "all.txt")]
    locked = dict(found for text in texts for found in PINNED.findall(text))

    assert "torch" not in locked
    assert len(locked) == sum(len(PINNED.findall(text)) for text in texts)
    for text in texts:
        assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=[a-z0-9])", text.strip()))
    for requirement in declared():
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(locked[name], prereleases=True), requirement


def installing(
    folder: Path, lock: str, of_python: tuple[int, int] = sys.version_info[:2], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run .ci/install in a project whose lock is this one, with one wheel in reach and nothing else."""
    (folder / ".ci" / "locks").mkdir(parents=True)
    script = (ROOT / ".ci" / "install").read_text(encoding="utf-8")
    assert "!= (3, 11)" in script
    (folder / ".ci" / "install").write_text(script.replace("!= (3, 11)", f"!= {of_python}"))
    shutil.copy(ROOT / ".ci" / "pip", folder / ".ci")
    (folder / ".ci" / "install").chmod(0o755)
    (folder / ".ci" / "locks" / "dev.txt").write_text(lock)
    (folder / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n[dependency-groups]\ndev = []\n')
    reach = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_TARGET": str(folder / "into"),
        "PIP_CONFIG_FILE": os.devnull,
        **environment,
    }
    command = [folder / ".ci" / "install", sys.executable, "dev"]
    return subprocess.run(command, env={**os.environ, **reach}, capture_output=True, text=True, check=False)


@pytest.fixture
def thing(tmp_path: Path) -> str:
    """Put a wheel into a folder and return its hash."""
    path = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("thing-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_another_file_than_the_locked_one_is_not_installed(tmp_path: Path, thing: str) -> None:
    """It ends there: what the bounds allow may be just that file."""
    done = installing(tmp_path, ONE.format(thing[::-1]))

    assert done.returncode == 1
    assert "is not the one that .ci/locks/dev.txt names: nothing is installed" in done.stderr
    assert not list((tmp_path / "into").glob("thing*"))


def test_a_registry_without_a_locked_version_is_told(tmp_path: Path, thing: str) -> None:
    """Then the bounds of pyproject.toml are tried."""
    done = installing(tmp_path, ONE.format(thing).replace("1.0", "2.0"))

    assert "Not by .ci/locks/dev.txt" in done.stderr
    assert "THESE PACKAGES DO NOT MATCH" not in done.stderr


def test_who_reaches_no_registry_reads_one_line(tmp_path: Path, thing: str) -> None:
    """It names what is missing and what helps; nothing else is tried."""
    registry = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "1"}
    done = installing(tmp_path, ONE.format(thing).replace("1.0", "2.0"), **registry)

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "no package registry within reach, not installed: thing==2.0; run it again with a network" in line


def test_the_locked_file_is_installed(tmp_path: Path, thing: str) -> None:
    """The same wheel with its own hash; what comes after it, the project itself, has nothing to be built with here."""
    done = installing(tmp_path, ONE.format(thing))

    assert "Not by .ci/locks" not in done.stderr
    assert list((tmp_path / "into").glob("thing*"))


def test_another_python_goes_by_the_bounds(tmp_path: Path, thing: str) -> None:
    """It is told so, and nothing of the lock is installed."""
    done = installing(tmp_path, ONE.format(thing), of_python=(2, 7))

    assert "Not by .ci/locks/dev.txt" in done.stderr
    assert not list((tmp_path / "into").glob("thing*"))
