"""What PyPI would be given, and the version in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import ckptprof

ROOT = Path(__file__).resolve().parents[2]
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
    f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
ENDS = (".tar.gz", "-py3-none-any.whl")
SECTION = re.compile(r"^## \[(.*?)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


def test_the_version_is_a_release_of_the_changelog_or_on_its_way_to_the_next() -> None:
    """A release has its section, dated; in between the version is a .dev of a later one."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, *releases = SECTION.findall(text)
    number, _, developing = ckptprof.__version__.partition(".dev")
    numbers = [tuple(map(int, name.split("."))) for name, _ in releases]

    assert unreleased == ("Unreleased", "")
    assert all(date for _, date in releases)
    assert numbers == sorted(set(numbers), reverse=True)
    if developing:
        assert tuple(map(int, number.split("."))) > max(numbers, default=(0,))
    else:
        assert releases[0][0] == number


def test_a_release_moves_version_and_changelog(tmp_path: Path) -> None:
    """Two commits and a tag; what was unreleased is the section of the version."""
    versioned = (
        "agent/ckptprof/__init__.py", "deploy/kustomize/base/kustomization.yaml", "deploy/README.md", "docs/ckptprof.1",
    )  # fmt: skip
    files = (*versioned, "CHANGELOG.md", ".ci/release")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", *arguments], cwd=tmp_path, text=True, env=PLAIN)

    git("init", "-q")
    git("add", *files)
    git("commit", "-q", "-m", "All")
    subprocess.run([tmp_path / ".ci/release", "7.0.0", "7.1.0"], cwd=tmp_path, check=True, env=PLAIN)

    assert git("log", "--format=%s").splitlines() == ["Begin 7.1.0", "Release 7.0.0", "All"]
    assert '"7.0.0"' in git("show", f"v7.0.0:{versioned[0]}")
    assert "newTag: 7.0.0" in git("show", f"v7.0.0:{versioned[1]}")
    for name in versioned:
        assert ckptprof.__version__.removesuffix(".dev0") in (ROOT / name).read_text()
        assert "7.0.0" in git("show", f"v7.0.0:{name}")
        assert ckptprof.__version__.removesuffix(".dev0") not in git("show", f"v7.0.0:{name}")
        assert git("status", "--porcelain", name) == ""
    assert '"7.1.0.dev0"' in (tmp_path / files[0]).read_text()
    before = SECTION.findall((ROOT / "CHANGELOG.md").read_text())
    after = SECTION.findall((tmp_path / "CHANGELOG.md").read_text())
    assert [name for name, _ in after] == ["Unreleased", "7.0.0", *(name for name, _ in before[1:])]


@pytest.mark.slow
def test_pypi_would_take_source_and_wheel(tmp_path: Path) -> None:
    """By twine and check-wheel-contents; the source holds what its own wheel is built from."""
    for command in (
        ("build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)),  # the wheel is built from the source
        ("twine", "check", "--strict", *(f"{tmp_path}/ckptprof-{ckptprof.__version__}{end}" for end in ENDS)),
        ("check_wheel_contents", f"{tmp_path}/ckptprof-{ckptprof.__version__}{ENDS[1]}"),
    ):
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "systemd/ckptprof.service", "tests/conftest.py"} <= names
    assert not {name for name in names if name.startswith((".venv", ".build", ".ci", ".git/"))}
