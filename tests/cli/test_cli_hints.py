"""Every command of ckptprof that it prints works: all of them in the sources, and those of a first day.

A hint is a command in backticks, or a text that begins with `ckptprof` and the name of a command. A new one is found
and executed by itself; what it leaves to the reader is a word in capitals that FILLED knows.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import typer
from tests.cli.recorded import recorded as database_of_saves
from tests.patience import PATIENCE_SECONDS

import ckptprof
from ckptprof.cli import main as cli
from ckptprof.cli import run
from ckptprof.errors import CkptprofError
from ckptprof.model import CheckpointQuery
from ckptprof.store import location
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
SOURCES = Path(ckptprof.__file__).parent
PROGRAM = Path(sys.executable).with_name("ckptprof")
FILLED = {
    "ID": "1",
    "CMD": "true",
    "FILE": "train.ckptrec.gz",
    "DIR": ".",
    "A": "before.db",
    "B": "after.db",
    "PATH": "after.db",
    "PID": "1",
    "$!": "1",
}
ROOT = Path(__file__).resolve().parents[2]
TREES = ("*.md", "docs/**/*.md", "systemd/*.md", "dashboards/**/*.yml")
PAGES = sorted(
    page
    for tree in TREES
    for page in ROOT.glob(tree)
    if page.name != "CHANGELOG.md" and "ckptprof " in page.read_text()
)
VALUE = "\0"  # in the place of a value that is only known when the hint is printed
# What is not executed here: it changes the host or lasts; what executes it
ELSEWHERE = {
    "agent": "tests/service/commands/test_agent_disturbed.py",
    "service install": "tests/systemd",
    "service uninstall": "tests/systemd",
    "ceiling": "tests/cli/test_cli_ceiling.py",
    "capture FILE": "tests/service/commands/test_capture_command.py",
}
MENTIONED = {"capture", "replay", "ceiling", "fleet"}  # "a file that `ckptprof capture` wrote": a name, no command line
SERVICE_STATUS = {0, 1, 3, 4}  # it runs, systemd does not answer here, it is not installed, it does not run
FOREIGN_OPTIONS = {"--now", "--upgrade"}  # of systemctl and pip


def texts(tree: ast.AST) -> Iterator[str]:
    """Return each text of a module that is none of its docstrings; VALUE stands for what is formatted into it."""
    own = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, own) and ast.get_docstring(node)
    }  # type: ignore[attr-defined] # what has a docstring begins with an expression
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)  # type: ignore[misc] # texts
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            yield node.value


def commands_in(text: str) -> list[str]:
    """Return the command lines of ckptprof that a text names."""
    found = re.findall(r"`((?:sudo )?(?:\S*/)?ckptprof [^`]*)`", text)
    first = text.split(maxsplit=2)[:2]
    if not found and first[:1] == ["ckptprof"] and first[1:] and first[1] in cli.COMMANDS:
        found = [text]
    return [command.removeprefix("sudo ") for command in found]


@functools.cache
def hints() -> list[str]:
    """Return all hints of the sources, each once; examples of --help have tests of their own."""
    found = set()
    sources = (path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    for source in (source for source in sources if "ckptprof " in source):
        for text in texts(ast.parse(source)):
            if not text.startswith("\n"):  # examples
                found |= {command for command in commands_in(text) if VALUE not in command}
    return sorted(found)


def arguments_of(command: str) -> list[str]:
    """Return what follows `ckptprof`, with values where a hint leaves them to the reader."""
    words = shlex.split(command)[1:]
    unknown = [word for word in words if re.fullmatch(r"[A-Z]+", word) and word not in FILLED]
    assert not unknown, f"{command}: FILLED does not know {unknown}"
    return [FILLED.get(word, word) for word in words]


def check(command: str) -> None:
    """Execute a hint, or parse it if ELSEWHERE executes it; the outcome is success."""
    arguments = arguments_of(command)
    assert arguments[0] in cli.COMMANDS or arguments == ["--help"], f"{command}: there is no such command"
    name = "--help" if "--help" in arguments else " ".join(arguments[: 2 if arguments[0] == "service" else 1])
    if len(arguments) == 1 and name in MENTIONED:
        return
    if name in ELSEWHERE or command.removeprefix("ckptprof ") in ELSEWHERE:
        cli.load_command(arguments[0]).make_context(f"ckptprof {arguments[0]}", arguments[1:])
        return
    if name == "capture":
        Path(arguments[1]).unlink()  # it is there for `replay`
    if name in ("run", "capture"):  # they change signals of their process
        code = subprocess.run(
            [PROGRAM, *arguments], check=False, capture_output=True, timeout=PATIENCE_SECONDS
        ).returncode
    else:
        code = cli.main(arguments)
    allowed = {"service status": SERVICE_STATUS, "doctor": {0, 4}, "plan": {0, 3}, "fleet": {0, 3}}.get(name, {0})
    assert code in allowed, f"{command}: exit code {code}"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recording, two databases of saves, restores and copies, and a script that trains."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").touch()
    shutil.copy(STREAMS / "framework-lightning-fit-moved.ckptrec.gz", folder / "train.ckptrec.gz")
    for name in ("before.db", "after.db"):
        for recording in (folder / "train.ckptrec.gz", STREAMS / "stage-in.trace.ckptrec.gz"):
            assert cli.main(["replay", str(recording), "--kind", "save", "--db", str(folder / name)]) in (0, 3)
    return folder


@pytest.fixture
def place(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with what hints name: a recording, two databases, and one of them as the reader's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CKPTPROF_DB", str(tmp_path / "after.db"))
    monkeypatch.setenv("PATH", f"{PROGRAM.parent}:{os.environ['PATH']}")
    for name in recorded.iterdir():
        shutil.copy(name, tmp_path)
    return tmp_path


def test_hints_are_found() -> None:
    """In whatever form they stand in the sources; a text about ckptprof is none."""
    source = 'x = f"see `ckptprof show ID`, {a}"; y = "ckptprof service install"; z = "ckptprof was not running"\n'
    source += 'w = f"`{sys.prefix}/bin/ckptprof agent` as root"\ndef f():\n "`ckptprof no-hint`"\n'

    found = [command for text in texts(ast.parse(source)) for command in commands_in(text)]

    assert found == ["ckptprof show ID", "ckptprof service install", f"{VALUE}/bin/ckptprof agent"]
    assert {"ckptprof show ID", "ckptprof run -- CMD", "ckptprof doctor", "ckptprof agent"} <= set(hints())


@pytest.mark.slow
@pytest.mark.parametrize("command", hints())
def test_a_hint_works(command: str, place: Path) -> None:
    """It is a command that there is, with options and arguments that it takes, and it does not fail."""
    check(command)


@pytest.mark.parametrize(
    "command", ["ckptprof frobnicate", "ckptprof show NUMBER", "ckptprof report --now", "ckptprof show 77"]
)
def test_a_hint_that_does_not_work_is_found(command: str, place: Path) -> None:
    """No such command, a word that nobody fills in, no such option, nothing there."""
    with pytest.raises(AssertionError):
        check(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_parses(page: Path) -> None:
    """A line to paste is whole; in a sentence, and in an alert, a command may stand without its arguments."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    pasted = [
        line for block in blocks for line in block.splitlines() if re.match(r"\s*(sudo )?(\S*/)?ckptprof \S", line)
    ]
    named = commands_in(re.sub(r"```.*?```", "", text, flags=re.DOTALL))

    for command in [*pasted, *named]:
        words = list(itertools.takewhile(lambda word: word not in ("|", "&&"), shlex.split(command, comments=True)))
        name, *arguments = [
            FILLED.get(word, word) for word in words[words.index("sudo") + 2 if "sudo" in words else 1 :]
        ]
        if name.startswith("-"):
            assert cli.main([name]) == 0
            continue
        assert name in cli.COMMANDS, command
        try:
            cli.load_command(name).make_context(f"ckptprof {name}", arguments)
        except typer.Exit:  # of --help
            continue
        except (cli._ArgumentError, CkptprofError) as error:
            if command in pasted or type(error).__name__ != "MissingParameter":
                pytest.fail(f"{command}: {error}")


def test_hints_name_options_that_there_are() -> None:
    """Of whichever command it is about."""
    known = set(FOREIGN_OPTIONS)
    for name in cli.COMMANDS:
        command = cli.load_command(name)
        known |= {
            option
            for one in command.get_params(command.make_context(name, [], resilient_parsing=True))
            for option in one.opts
        }
    named = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                named |= {one for text in texts(node) for one in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}

    assert {"--db", "--yes", "--force"} <= named
    assert named - known == set()


def test_other_names_are_told_of() -> None:
    """No name of another program is a command of ours, and none stands twice."""
    names = [name for line, _ in cli._SUGGESTIONS for name in line.split()]

    assert not set(names) & set(cli.COMMANDS)
    assert len(names) == len(set(names))


FIRST_DAY = [
    *(["report"], ["list"], ["show", "1"], ["plan"], ["diff", "a", "b"], ["doctor"]),
    *(["report", "--job", "nobody"], ["list", "--since", "now"], ["show", "77"], ["report", "--kind", "restore"]),
    *(["replay", "train.ckptrec.gz", "--kind", "restore"], ["replay", "train.ckptrec.gz", "--job", "nobody"]),
    *(["replay", "nothing.gz"], ["replay", "empty.db"], ["replay", "--kind", "copy", "train.ckptrec.gz"]),
    *(
        [],
        ["reprot"],
        ["dump"],
        ["status"],
        ["true", "-x"],
        ["zzz"],
        ["run"],
        ["run", "--limit"],
        ["service", "status"],
    ),
    *(["capture"], ["capture", "train.ckptrec.gz"], ["capture", "--", "true"], ["report", "--limit", "many"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("database", "service"),
    [
        pytest.param("none.db", False),
        pytest.param("none.db", True, marks=pytest.mark.slow),
        pytest.param("empty.db", False, marks=pytest.mark.slow),
        pytest.param("empty.db", True),
        pytest.param("after.db", False, marks=pytest.mark.slow),
        pytest.param("after.db", True, marks=pytest.mark.slow),
    ],
)
def test_what_is_printed_on_a_first_day_works(
    database: str, *, service: bool, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a database, with an empty one, with checkpoints; with a service and without: all that is named."""
    StoreWriter(place / "empty.db", ballast_bytes=0).close()
    monkeypatch.setattr(location, "UNIT_INVOCATION", place if service else place / "nowhere")
    monkeypatch.setenv("COLUMNS", "200")  # no command is broken into two lines
    printed = {}
    for arguments in FIRST_DAY:
        monkeypatch.setenv("CKPTPROF_DB", str(place / database))
        cli.main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        printed |= {command: arguments for line in (out + err).splitlines() for command in commands_in(line.strip())}
    assert printed

    monkeypatch.setenv("CKPTPROF_DB", str(place / "after.db"))  # of who did as the first hint says
    for command in printed.keys() - set(hints()):  # these are executed above
        check(command)


def test_what_is_printed_of_a_named_database_asks_that(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not the one that is asked by itself, which may not even be there."""
    monkeypatch.setenv("CKPTPROF_DB", str(place / "none.db"))
    monkeypatch.setenv("COLUMNS", "200")
    for arguments in (["report"], ["show", "1"], ["show", "77"], ["list", "--job", "nobody"], ["plan"]):
        cli.main([*arguments, "--db", "a copy.db" if arguments == ["report"] else "before.db"])
    cli.main(["report", "--db", "before.db"])
    out, err = capfd.readouterr()
    printed = {command for line in (out + err).splitlines() for command in commands_in(line.strip())}
    asking = {one for one in printed if shlex.split(one)[1] in ("report", "list", "show", "plan", "run")}

    assert {"ckptprof show 1 --all --db before.db", "ckptprof list --db before.db"} <= asking
    assert "ckptprof run --db 'a copy.db' -- CMD" in asking
    assert all("--db" in shlex.split(one) for one in asking)
    for command in printed:
        check(command)


AS_NOBODY = """
import contextlib, importlib, io, os, pkgutil, sys
import ckptprof, sqlalchemy.dialects.sqlite
for module in pkgutil.walk_packages(ckptprof.__path__, "ckptprof."):
    importlib.import_module(module.name)  # as another user there may be no way to them
from ckptprof.cli.main import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for line in sys.argv[1:]:
    main(line.split())
"""


@pytest.mark.root
@pytest.mark.parametrize(
    "database", [None, *(pytest.param(name, marks=pytest.mark.slow) for name in ("none.db", "after.db"))]
)
def test_what_is_printed_without_root_works(
    database: str | None, place: Path, make_reachable: Callable[[Path], None]
) -> None:
    """Of a user without privileges and without a database, with one, and without a home."""
    make_reachable(place)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CKPTPROF")}
    environment |= {"HOME": str(place), "COLUMNS": "400"} | ({"CKPTPROF_DB": str(place / database)} if database else {})
    asked = ["report", "list", "show 1", "plan", "doctor", "service install", "service status", "service uninstall"]

    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *asked],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env=environment,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    printed = {command for line in (done.stdout + done.stderr).splitlines() for command in commands_in(line.strip())}
    assert printed
    for command in printed:
        check(command)


@pytest.mark.slow
@pytest.mark.xdist_group("live")  # what is seen of a short job depends on the host
def test_the_first_hint_leads_to_the_first_report(tmp_path: Path) -> None:
    """Who has nothing recorded is told to run a command; having done so, the same question has an answer."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CKPTPROF")}
    environment |= {
        "COLUMNS": "400",
        "CKPTPROF_DB": str(tmp_path / "x.db"),
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
    }
    job = "import numpy, time; time.sleep(1); numpy.save('ckpt_1.npy', numpy.zeros(8_000_000)); time.sleep(1)"

    def pasted(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
            timeout=PATIENCE_SECONDS,
        )

    before = pasted("ckptprof report")
    command = next(one for one in commands_in(before.stderr) if one.startswith("ckptprof run"))
    ran = pasted(command.replace("CMD", shlex.join([sys.executable, "-c", job])))
    after = pasted("ckptprof report")
    next_ones = commands_in(ran.stderr + after.stdout)

    assert before.returncode == 6
    assert ran.returncode == 0, ran.stderr
    assert after.returncode == 0, after.stderr
    assert "ckpt_1.npy" in after.stdout
    assert {one: pasted(one.replace("ID", "1")).returncode for one in next_ones} == dict.fromkeys(next_ones, 0)


def test_a_run_ends_with_the_command_for_its_slowest_save(tmp_path: Path) -> None:
    """Ready to paste; the first of those that took as long; none where nothing was stored."""
    with StoreReader(database_of_saves(tmp_path / "ckptprof.db")) as reader:
        stored = reader.report(CheckpointQuery())
    unstored = tuple(msgspec.structs.replace(one, id=0) for one in stored.checkpoints)
    texts = []
    for number, report in enumerate((stored, msgspec.structs.replace(stored, checkpoints=unstored))):
        path = tmp_path / f"report-{number}.txt"
        target = os.open(path, os.O_WRONLY | os.O_CREAT)
        run._write(report, target, lambda _: ("", ""), json=False, no_color=True)
        texts.append(path.read_text().splitlines())

    assert "`ckptprof show 1` explains the slowest." in texts[0]
    assert not any("explains the slowest" in line for line in texts[1])
