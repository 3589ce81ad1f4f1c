"""The README's installation and the tutorial, typed as they stand on a minimal Debian: no pip, and nothing prepared.

On this host's release and on one with a newer Python.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bootedmachine import RELEASE, REPOSITORY, Machine, booted, copy_of_tree, fetch, inside, tree, until

pytestmark = [
    pytest.mark.root,
    pytest.mark.nspawn,
    pytest.mark.registry,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # the first of them makes a Debian and installs into it
    pytest.mark.xdist_group("systemd"),
]

NEWER = "trixie"  # Debian 13, with Python 3.13
README = REPOSITORY / "README.md"
TUTORIAL = REPOSITORY / "docs/tutorial.md"
NEEDED = ("agent", "collectors", "dashboards", "systemd", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
OFFLINE = ("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "UV_OFFLINE=1", "UV_NO_INDEX=1", "UV_FIND_LINKS=/wheels")


def block(name: str) -> str:
    """Return the commands of a block of the README."""
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"<!-- {name}: begin -->\n```sh\n(.*?)```\n<!-- {name}: end -->", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return what makes a tree of a release, once, with a checkout in /checkout and what PyPI would give in /wheels."""
    made: dict[str, Path] = {}

    def root_of(release: str) -> Path:
        if release not in made:
            root = copy_of_tree(tmp_path_factory.mktemp(release), release)
            fetch(root, "hatchling", "pip", "pipx", "uv")
            next((root / "wheels").glob("ckptprof-*.whl")).unlink()
            (root / "checkout").mkdir()
            for name in NEEDED:
                source = REPOSITORY / name
                (shutil.copytree if source.is_dir() else shutil.copy)(source, root / "checkout" / name)
            inside(root, "useradd -m alice")
            made[release] = root
        return made[release]

    yield root_of
    for root in made.values():
        shutil.rmtree(root.parent)


@pytest.fixture(scope="module", params=[RELEASE, NEWER])
def machine(request: pytest.FixtureRequest, roots: Callable[[str], Path]) -> Iterator[Machine]:
    """Return a booted machine of a release."""
    if request.param != RELEASE:
        try:
            tree(request.param)
        except RuntimeError as error:
            pytest.xfail(f"the mirror of this host has no {request.param}: {error}")
    with booted(roots(request.param)) as machine:
        yield machine


def typed(machine: Machine, commands: str, user: str) -> str:
    """Type commands in the checkout, as root or as somebody else; return what they printed."""
    home = "/root" if user == "root" else f"/home/{user}"
    environment = ("env", *OFFLINE, f"HOME={home}")
    return machine.run(*environment, "sh", "-euc", f"cd /checkout; {commands}", user=None if user == "root" else user)


def test_a_user_installs_and_records(machine: Machine) -> None:
    """Without root; the report of a run is there afterwards."""
    save = "python3 -c 'import os, time; time.sleep(1)'"
    printed = typed(machine, f"{block('install')}\nckptprof run -- {save}\nckptprof list || test $? = 3", "trainer")

    assert re.search(r"^ckptprof \d+\.\d+", printed, re.MULTILINE)
    assert (machine.root / "home/trainer/.local/state/ckptprof/ckptprof.db").exists()


@pytest.mark.parametrize(("machine", "tool"), [(RELEASE, "pipx"), (NEWER, "uv tool")], indirect=["machine"])
def test_one_line_of_pipx_or_uv_does_the_same(tool: str, machine: Machine) -> None:
    """As the README names it."""
    line = f"{tool} install ."
    assert f"`{line}`" in README.read_text(encoding="utf-8")
    have = "test -d ~/tools || { python3 -m venv ~/tools; ~/tools/bin/pip install -q pipx uv; }"
    away = f"{line.replace(' install .', ' uninstall ckptprof')}"
    commands = f"{have}; PATH=$PATH:~/tools/bin; {line}; ~/.local/bin/ckptprof version; {away}"

    assert re.search(r"^ckptprof \d+\.\d+", typed(machine, commands, "reader"), re.MULTILINE)


TRAIN = """
import os, time, numpy
os.makedirs(f"checkpoints-{os.getpid()}")
weights = numpy.random.rand(4_000_000)
for step in range(1, 5):
    time.sleep(1)
    with open(f"checkpoints-{os.getpid()}/step_{step}.npy", "wb") as stream:
        numpy.save(stream, weights)
        os.fsync(stream.fileno())
"""
CODES = {"doctor": {0, 4}}  # of the others 0


def lines_of(section: str) -> list[str]:
    """Return the commands in all blocks of a section of the README, without their comments."""
    text = README.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize(("machine", "user"), [(RELEASE, "trainer"), (NEWER, "root")], indirect=["machine"])
def test_all_that_it_says_of_its_use_works(user: str, machine: Machine) -> None:
    """Each line of it as it stands there, one after the other, by a user with a job of their own, or by root."""
    lines = lines_of("Use it")
    assert "ckptprof show 3" in lines
    work = machine.root / "srv" / user  # its /tmp is of its own
    work.mkdir()
    (work / "train.py").write_text(TRAIN, encoding="utf-8")
    machine.run("chown", user, f"/srv/{user}")
    typed(machine, block("install"), user)
    asked = [f"ckptprof run --db {name}.db -- python train.py" for name in ("before", "after")]
    asked += lines
    shown = [line.replace("--pid 4242", "--pid $!") for line in asked]  # of a process that there is, and ends
    script = "".join(f"(\nsleep 9 &\n{line}\n) >out 2>&1 && code=0 || code=$?; echo $code\n" for line in shown)
    path = "export PATH=/opt/train/bin:$PATH:~/ckptprof-venv/bin"
    (work / "script").write_text(f"cd /srv/{user}\n{path}\n{script}", encoding="utf-8")

    codes = typed(machine, f"bash /srv/{user}/script", user).split()

    told = dict(zip(asked, map(int, codes), strict=True))
    good = {name: codes for line in asked for name, codes in CODES.items() if line.startswith(f"ckptprof {name}")}
    assert set(good) == set(CODES)
    for line, code in told.items():
        assert code in next((c for name, c in CODES.items() if line.startswith(f"ckptprof {name}")), {0}), (line, code)


def test_root_installs_the_service_and_a_user_reads_its_record(machine: Machine) -> None:
    """Who is in the group asks it without a word about databases; a second time nothing is changed."""
    printed = typed(machine, block("service"), "root")

    assert re.search(r"service\s+active,\s+watching\s+at", printed)
    assert "nothing to install" in typed(machine, "/opt/ckptprof/bin/ckptprof service install", "root")
    typed(machine, "/opt/ckptprof/bin/ckptprof list || test $? = 3", "alice")
    machine.run("/opt/ckptprof/bin/ckptprof", "service", "uninstall")
    assert "not installed" in machine.call("/opt/ckptprof/bin/ckptprof", "service", "status").stdout


def shown(command: str) -> str:
    """Return what the tutorial shows below a command, without its own figures: labels and headings."""
    after = TUTORIAL.read_text(encoding="utf-8").split(f"{command}\n", 1)[1].split("```", 1)[0]
    return re.split(r"(?m)^\w*[$#] ", after)[0]


def labels(text: str) -> set[str]:
    """Return the words in front of a line's figures, and the steps of the table's saves."""
    return {
        *re.findall(r"(?m)^(?:  )?([A-Z][a-z]+) {2,}\S", text),
        *re.findall(r"(?m)^ *\d+ +\S+ +save\?? +(\d+) ", text),
    }


@pytest.mark.parametrize("machine", [RELEASE], indirect=True)
def test_the_tutorial_is_followed_word_for_word(machine: Machine) -> None:
    """A first job, a first service, its report and its metrics: each command works, and says what the page shows."""
    program = re.findall(r"(?s)```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"))[0]
    typed(machine, block("service"), "root")
    (machine.root / "home/trainer/train.py").write_text(program, encoding="utf-8")
    job = "cd ~; PATH=/opt/ckptprof/bin:$PATH; ckptprof"
    ran = typed(machine, f"{job} run -- python3 train.py 2>&1", "trainer")
    detail = typed(machine, f"{job} show 1 --db ~/.local/state/ckptprof/ckptprof.db", "trainer")

    assert labels(shown("ckptprof run -- python3 train.py")) - labels(ran) <= {"Blocked"}  # this machine polls
    assert labels(shown("ckptprof show 1")) - labels(detail) <= {"Cost", "Mode", "Durable"}  # likewise
    machine.run("usermod", "-aG", "ckptprof", "alice")
    typed(machine, "cd ~; python3 train.py", "trainer")
    report = "/opt/ckptprof/bin/ckptprof report"
    promised = labels(shown(f"alice$ {report}"))
    until(report, lambda: promised <= labels(machine.call(*report.split(), user="alice").stdout))
    page = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:12578/metrics').read().decode())"
    metrics = machine.run("/usr/bin/python3", "-c", page)
    names = re.findall(r"(?m)^(ckptprof_\w+)", shown("(checkpoints_total|last)'"))
    assert names
    assert all(f"\n{name}{{" in metrics for name in names)
    machine.run("/opt/ckptprof/bin/ckptprof", "service", "uninstall")
