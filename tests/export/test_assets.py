"""Where the assets are found: in the checkout, and in a wheel that was built and installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof.assets import asset
from ckptprof.errors import CkptprofError

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ("dashboards/ckptprof-node.json", "dashboards/rules/ckptprof.rules.yml", "systemd/ckptprof.service")


@pytest.mark.parametrize("name", ASSETS)
def test_a_checkout_has_them_two_folders_up(name: str) -> None:
    """An editable installation reads what is being edited."""
    assert asset(name) == ROOT / name


def test_an_installed_package_has_them_inside(tmp_path: Path) -> None:
    """`_assets` beside the module wins over whatever lies two folders up."""
    package = tmp_path / "lib" / "ckptprof"
    (package / "_assets" / "systemd").mkdir(parents=True)
    (tmp_path / "systemd").mkdir()
    assert asset("systemd", package=package) == package / "_assets" / "systemd"


def test_a_missing_asset_is_one_clear_error(tmp_path: Path) -> None:
    """The error names what is missing and where it was looked for."""
    with pytest.raises(CkptprofError, match=r"systemd/nothing is missing .*looked in") as caught:
        asset("systemd/nothing", package=tmp_path / "a" / "b")
    assert caught.value.hint


@pytest.mark.slow
def test_a_wheel_carries_them(tmp_path: Path) -> None:
    """Built from a copy of the tree, installed elsewhere, asked from there: every asset is in the package."""
    tree = tmp_path / "tree"
    leave = shutil.ignore_patterns(
        ".build",  # it holds a bootable tree, whose /dev/zero never ends
        ".git",
        ".venv*",
        ".*_cache",
        "__pycache__",
        ".hypothesis",
        "tests",
        "shared",
        "dist",
    )
    shutil.copytree(ROOT, tree, ignore=leave)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(tree)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    script = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "import ckptprof, ckptprof.assets as a\n"
        f"for name in {ASSETS!r}: print(a.asset(name))\n"
        "assert not any(p.name == 'tests' for p in a.asset('systemd').parent.parent.iterdir())\n"
    )
    asked = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    inside = target / "ckptprof" / "_assets"
    assert asked.stdout.split() == [str(inside / name) for name in ASSETS]
    for name in ASSETS:
        assert (inside / name).read_bytes() == (ROOT / name).read_bytes()
