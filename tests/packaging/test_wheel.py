"""The wheel, built from this tree and installed into an empty environment, is all that a user needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from tests.machine import need

import ckptprof

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, with none of its environment."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CKPTPROF_DB")}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    result = call(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT, cwd=directory
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return next(directory.glob("ckptprof-*.whl"))


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin directory of an environment that has the wheel and what it depends on, nothing else."""
    need("registry")
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory / "env", with_pip=True)
    bin_ = directory / "env" / "bin"
    result = call(bin_ / "python", "-m", "pip", "install", "--quiet", str(wheel), cwd=directory)
    assert result.returncode == 0, result.stderr
    return bin_


def test_the_wheel_holds_two_packages_and_the_assets(wheel: Path) -> None:
    """Nothing called agent or collectors lands at the top of a user's site-packages, and no test or example."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"ckptprof", "ckptprof_collectors", f"ckptprof-{ckptprof.__version__}.data"}
    assert [name for name in names if ".data/" in name] == [
        f"ckptprof-{ckptprof.__version__}.data/data/share/man/man1/ckptprof.1"
    ]
    assert {"ckptprof/py.typed", "ckptprof_collectors/py.typed", "ckptprof/model.py"} <= set(names)
    for kind in ("dashboards", "systemd"):
        shipped = {name.removeprefix("ckptprof/_assets/") for name in names if f"_assets/{kind}/" in name}
        tracked = {str(path.relative_to(ROOT)) for path in (ROOT / kind).rglob("*") if path.is_file()}
        assert {name for name in tracked if "__pycache__" not in name} == shipped
        assert shipped


def test_the_installed_command_helps_and_knows_its_version(scripts: Path) -> None:
    """`--help` and `version` work where nothing but the wheel is installed."""
    helped = call(scripts / "ckptprof", "--help", cwd=scripts)
    version = call(scripts / "ckptprof", "version", cwd=scripts)

    assert (helped.returncode, version.returncode) == (0, 0), helped.stderr + version.stderr
    assert "run" in helped.stdout
    assert version.stdout.split()[-1][0].isdigit()


def test_a_report_without_a_database_says_so(scripts: Path, tmp_path: Path) -> None:
    """The exit code is that of the database, and the line names the path."""
    result = call(scripts / "ckptprof", "report", "--db", tmp_path / "none.db", cwd=tmp_path)

    assert result.returncode == 6
    assert "none.db" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_installed_command_records(scripts: Path, tmp_path: Path) -> None:
    """The sampler child starts out of site-packages too: a run is recorded and can be read back."""
    database = tmp_path / "a.db"

    ran = call(scripts / "ckptprof", "run", "--db", database, "--", "sh", "-c", "sleep 1; exit 3", cwd=tmp_path)
    report = call(scripts / "ckptprof", "report", "--json", "--db", database, cwd=tmp_path)

    assert ran.returncode == 3, ran.stderr
    assert report.returncode == 3, report.stderr
    assert json.loads(report.stdout)["watched"]["start_ns"] is not None
