"""The README's installation, typed as it stands there on a minimal Debian: no pip, PEP 668, and nothing prepared.

On this host's release and on one with a newer Python.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from bootedmachine import RELEASE, REPOSITORY, Machine, booted, copy_of_tree, fetch, tree

pytestmark = [
    pytest.mark.root, pytest.mark.nspawn, pytest.mark.slow, pytest.mark.xdist_group("systemd"), pytest.mark.timeout(600)
]  # fmt: skip

NEWER = "trixie"  # Debian 13, with Python 3.13
README = REPOSITORY / "README.md"
NEEDED = ("agent", "collectors", "dashboards", "systemd", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
OFFLINE = ("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "UV_OFFLINE=1", "UV_NO_INDEX=1", "UV_FIND_LINKS=/wheels")


def block(name: str) -> str:
    """Return the commands of a block of the README."""
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"<!-- {name}: begin -->\n```sh\n(.*?)```\n<!-- {name}: end -->", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module", params=[RELEASE, NEWER])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Return a booted machine with a checkout in /checkout, and what PyPI would give in /wheels."""
    if request.param != RELEASE:
        try:
            tree(request.param)
        except RuntimeError as error:
            pytest.xfail(f"the mirror of this host has no {request.param}: {error}")
    work = tmp_path_factory.mktemp("readme")
    root = copy_of_tree(work, request.param)
    fetch(root, "hatchling", "pip", "pipx", "uv")
    next((root / "wheels").glob("ckptprof-*.whl")).unlink()
    (root / "checkout").mkdir()
    for name in NEEDED:
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / "checkout" / name)
    with booted(root) as machine:
        machine.run("useradd", "-m", "alice")
        yield machine
    shutil.rmtree(work)


def typed(machine: Machine, commands: str, user: str) -> str:
    """Type commands in the checkout, as root or as somebody else; return what they printed."""
    home = "/root" if user == "root" else f"/home/{user}"
    environment = ("env", *OFFLINE, f"HOME={home}")
    return machine.run(*environment, "sh", "-euc", f"cd /checkout; {commands}", user=None if user == "root" else user)


def test_pip_of_the_system_refuses(machine: Machine) -> None:
    """The oracle: this is the machine on which `pip install .` does not work."""
    assert machine.call("python3", "-m", "pip", "--version").returncode != 0
    assert list(machine.root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"))


def test_the_newer_machine_has_a_newer_python(machine: Machine) -> None:
    """The oracle of the second machine."""
    newer = tuple(map(int, machine.run("/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])").split()))

    assert newer >= ((3, 13) if "trixie" in machine.run("cat", "/etc/os-release") else (3, 11))


def test_a_user_installs_and_records(machine: Machine) -> None:
    """Without root; the report of a run is there afterwards."""
    save = "python3 -c 'import os, time; time.sleep(1)'"
    printed = typed(machine, f"{block('install')}\nckptprof run -- {save}\nckptprof list || test $? = 3", "trainer")

    assert re.search(r"^ckptprof \d+\.\d+", printed, re.MULTILINE)
    assert (machine.root / "home/trainer/.local/state/ckptprof/ckptprof.db").exists()


@pytest.mark.parametrize("tool", ["pipx", "uv tool"])
def test_one_line_of_pipx_or_uv_does_the_same(tool: str, machine: Machine) -> None:
    """As the README names it."""
    line = f"{tool} install ."
    assert f"`{line}`" in README.read_text(encoding="utf-8")
    have = "test -d ~/tools || { python3 -m venv ~/tools; ~/tools/bin/pip install -q pipx uv; }"
    away = f"{line.replace(' install .', ' uninstall ckptprof')}"
    commands = f"{have}; PATH=$PATH:~/tools/bin; {line}; ~/.local/bin/ckptprof version; {away}"

    assert re.search(r"^ckptprof \d+\.\d+", typed(machine, commands, "reader"), re.MULTILINE)


def test_root_installs_the_service_and_a_user_reads_its_record(machine: Machine) -> None:
    """Who is in the group asks it without a word about databases; a second time nothing is changed."""
    printed = typed(machine, block("service"), "root")

    assert re.search(r"service\s+active,\s+watching\s+at", printed)
    assert "nothing to install" in typed(machine, "/opt/ckptprof/bin/ckptprof service install", "root")
    typed(machine, "/opt/ckptprof/bin/ckptprof list || test $? = 3", "alice")
    machine.run("/opt/ckptprof/bin/ckptprof", "service", "uninstall")
    assert "not installed" in machine.call("/opt/ckptprof/bin/ckptprof", "service", "status").stdout
