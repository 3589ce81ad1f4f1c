"""The command line as a whole: help, versions, errors, exit codes, pipes and what it costs."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, get_type_hints

import pytest
import typer
from tests.cli.recorded import recorded
from tests.patience import PATIENCE_SECONDS

import ckptprof
from ckptprof.cli import main as cli
from ckptprof.errors import StoreError

CLI = Path(cli.__file__).parent
PROGRAM = [sys.executable, "-m", "ckptprof"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the console script's function in a process of its own."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=PATIENCE_SECONDS,
    )


def test_help_lists_every_command() -> None:
    """Without importing one of them."""
    done = run("--help", COLUMNS="200")

    assert done.returncode == 0
    for name, text in cli.COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert text.split(".", maxsplit=1)[0][:40] in done.stdout


def test_no_command_is_help() -> None:
    """Someone who types the bare name learns what there is."""
    assert run().stdout == run("--help").stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_table_says_what_the_module_says(name: str) -> None:
    """The static table cannot drift from the modules that it stands for."""
    path = CLI / f"{name}.py"
    if not path.exists():
        pytest.fail(f"command {name} has no module")
    tree = ast.parse(path.read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "command")

    assert (ast.get_docstring(tree) or "").splitlines()[0] == cli.COMMANDS[name]
    assert (ast.get_docstring(function) or "").splitlines()[0] == cli.COMMANDS[name]


def test_version() -> None:
    """In all three forms."""
    assert run("version").stdout == run("--version").stdout == f"ckptprof {ckptprof.__version__}\n"
    assert json.loads(run("version", "--json").stdout)["version"] == ckptprof.__version__


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["show", "--help"]])
def test_start_imports_nothing_heavy(arguments: list[str]) -> None:
    """What makes it cheap: none of these is loaded, and few in all; typer alone loads 140."""
    code = f"import sys\nfrom ckptprof.cli.main import main\nmain({arguments!r})\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (said,) = done.stderr.splitlines()  # nothing else
    loaded = set(said.split())

    assert loaded.isdisjoint({"rich", "sqlalchemy", "sqlite3", "psutil", "pydantic", "prometheus_client", "pyudev"})
    assert "ckptprof.cli.main" in loaded
    assert len(loaded) < 220


class _ValidationError(ValueError):
    def errors(self) -> list[dict[str, object]]:
        """Return the parts, as pydantic does."""
        message = "'x' is not one of 'a', 'b'"
        return [{"type": "value_error", "msg": f"Value error, {message}", "ctx": {"error": ValueError(message)}}]


def test_no_word_of_the_parser_stays_in_a_message() -> None:
    """The versions of typer that parse by pydantic say which of its errors it was."""
    error = typer.BadParameter("Value error, 'x' is not one of 'a', 'b'.", param_hint="--level")
    error.__cause__ = _ValidationError()
    assert cli._message(error) == "invalid value for --level: 'x' is not one of 'a', 'b'"


def test_nothing_is_left_to_look_through_as_it_ends() -> None:
    """The interpreter's last collection of garbage passes over all that it finds: of SQLAlchemy that is 0.1 s."""
    code = (
        "import atexit, gc, sys\nfrom ckptprof.cli.main import entry\nsys.argv = ['ckptprof', '--version']\n"
        "atexit.register(lambda: print(len(gc.get_objects()), file=sys.stderr))\nentry()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert int(done.stderr) < 1000  # of 17,000


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["reprot"], "there is no command 'reprot'", "did you mean `ckptprof report`?"),
        (["dump"], "there is no command 'dump'", "`ckptprof export` writes checkpoints as CSV"),
        (["LS", "-l"], "there is no command 'LS'", "`ckptprof list` prints one line for each checkpoint"),
        (["restore"], "there is no command 'restore'", "`ckptprof --help` lists the commands"),
        (["sh", "-c", "a b"], "there is no command 'sh'", "`ckptprof run -- sh -c 'a b'` profiles that command"),
        (["zzz"], "there is no command 'zzz'", "`ckptprof --help` lists the commands"),
        (["\x1b[2J"], r"there is no command '\x1b[2J'", "`ckptprof --help` lists the commands"),
        (["report", "--nope"], "no such option: --nope", "`ckptprof report --help` lists the options"),
        (["report", "--bogus"], "no such option: --bogus", "`ckptprof report --help` lists the options"),
        (["report", "--sinc", "1h"], "no such option: --sinc", "did you mean --since?"),
        (["report", "--limit"], "option '--limit' requires an argument", "`ckptprof report --help` lists the options"),
        (["report", "--limit", "0"], "--limit must be a whole number from 1, not '0'", None),
        (["report", "--limit", "x"], "--limit must be a whole number from 1, not 'x'", None),
        (["report", "--limit", "9" * 20], "--limit must be at most 9223372036854775807", None),
        (["list", "--limit", "9" * 20], "--limit must be at most", None),
        (["plan", "--limit", "9" * 20], "--limit must be at most", None),
        (["report", "--job", "\udcff"], "--job is not UTF-8", "only paths may contain other bytes"),
        (["live", "--once", "--job", "\udcff"], "--job is not UTF-8", "only paths may contain other bytes"),
        (["report", "--db", ""], "--db is empty", "give the path of a file"),
        (["replay", "x.gz", "--db", ""], "--db is empty", "give the path of a file"),
        (["report", "--kind", "dump"], "invalid value for '--kind'", "`ckptprof report --help` lists the options"),
        (["report", "extra"], "got unexpected extra argument", "`ckptprof report --help` lists the options"),
        (
            ["fleet"],
            "missing argument 'stragglers|cost|limits|newest|collisions|nodes|compact'. Choose from: strag",
            "`ckptprof fleet",
        ),
        (["completion"], "missing argument 'shell'. Choose from: bash, zsh, fish", "`ckptprof completion --help`"),
        (["show"], "missing", "`ckptprof show --help` lists the options"),
        (["show", "x"], "ID must be a whole number from 0, not 'x'", None),
        (["show", "99999999999999999999"], "ID must be at most 9223372036854775807", None),
        (["report", "--since", "teatime"], "--since 'teatime' is not a time", "write 2h, 30m, 7d, now"),
        (["report", "--fail-on", "stall>"], "--fail-on 'stall>' is not a condition", "write NAME"),
        (["report", "--gpus", "0"], "--gpus must be a whole number from 1, not '0'", None),
        (["agent", "--rate", "nan"], "--rate must be a number from 0.5 to 100, not 'nan'", None),
        (["capture", "x.gz", "--seconds", "soon"], "--seconds must be a number from 0.1, not 'soon'", None),
        (["capture", "x.gz", "train.py"], "unexpected argument 'train.py'", "to record a command, write `ckptprof"),
        (["capture", "--", "python", "train.py"], "no file was given", "write `ckptprof capture FILE -- CMD`"),
        (["capture", "x.gz", "--"], "no command was given", "write `ckptprof capture FILE -- CMD`"),
        (["replay", "x.gz", "--since", "teatime"], "--since 'teatime' is not a time", "write 2h, 30m, 7d, now"),
        (
            ["plan", "--failures"],
            "option '--failures' requires an argument",
            "`ckptprof plan --help` lists the options",
        ),
        (["report", "--since", "1h", "--until", "2h"], "--since 1h is not before --until 2h", None),
        (["completion", "tcsh"], "invalid value for", "`ckptprof completion --help` lists the options"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, hint: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is one clear line and a hint on stderr, nothing on stdout, and exit code 2."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()

    assert code == 2
    assert out == ""
    first, *more = err.splitlines()
    assert first.lower().startswith(f"ckptprof: {message}".lower())
    assert [line.split(": ")[0] for line in more] == (["hint"] if hint else [])
    assert hint is None or more[0].startswith(f"hint: {hint}")
    assert hint is None or "\\x0a" not in first


def _fails_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def invoke(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_invoke", invoke)


def test_errors_of_ours_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the error's own exit code, and nothing that a terminal would obey."""
    _fails_with(monkeypatch, StoreError("no database at /tmp/\x1b[31m\nx", hint="make\u202e one"))

    assert cli.main([]) == 6
    assert capsys.readouterr().err == "ckptprof: no database at /tmp/\\x1b[31m\\x0ax\nhint: make\\u{202e} one\n"


def test_surprises_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And say how to see where they happened; with the switch the traceback follows."""
    _fails_with(monkeypatch, RuntimeError("odd \udcff"))
    monkeypatch.delenv(cli.DEBUG, raising=False)

    assert cli.main([]) == 1
    err = capsys.readouterr().err
    assert err == "ckptprof: RuntimeError: odd \\u{dcff}\nhint: set CKPTPROF_DEBUG=1 to see where it happened\n"
    monkeypatch.setenv(cli.DEBUG, "1")
    assert cli.main([]) == 1
    assert "Traceback (most recent call last):" in capsys.readouterr().err


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As shells count SIGINT."""
    _fails_with(monkeypatch, KeyboardInterrupt())

    assert cli.main([]) == 130
    assert capsys.readouterr().err == "ckptprof: interrupted\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`ckptprof --help | true` says nothing and exits as a program that SIGPIPE ended."""
    with subprocess.Popen([*PROGRAM, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
        process.wait(timeout=PATIENCE_SECONDS)

    assert complaint == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("given", "own", "handed_on"),
    [
        (["python", "train.py", "--lr", "3", "--json"], False, ["python", "train.py", "--lr", "3", "--json"]),
        (["--", "python", "--help"], False, ["python", "--help"]),
        (["--json", "--", "--odd", "-x"], True, ["--odd", "-x"]),
        (["--json", "sh", "-c", "exit 3", "--", "--json"], True, ["sh", "-c", "exit 3", "--", "--json"]),
    ],
)
def test_options_of_the_command_stay_its_own(
    given: list[str],
    own: bool,  # noqa: FBT001 # a table of cases
    handed_on: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`ckptprof run` takes its own options before the command and hands on all that follows its name."""
    seen: list[tuple[bool, list[str]]] = []

    def command(
        arguments: Annotated[list[str], typer.Argument()], *, json: Annotated[bool, typer.Option("--json")] = False
    ) -> None:
        seen.append((json, arguments))
        raise typer.Exit(7)

    module = ModuleType("ckptprof.cli.run")
    module.EXAMPLES = ""  # type: ignore[attr-defined] # likewise
    module.command = command  # type: ignore[attr-defined] # a module of the test's own
    command.__annotations__ = get_type_hints(command, localns=globals(), include_extras=True)
    monkeypatch.setitem(sys.modules, "ckptprof.cli.run", module)

    assert cli.main(["run", *given]) == 7
    assert seen == [(own, handed_on)]


ORDINARY = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("nope 2>/dev/full", 2, 0),
        ("nope >/dev/full 2>/dev/full", 2, 0),
        ("nope 2>&-", 2, 0),
        ("version >/dev/full", 1, 2),
        ("version >&-", 0, 0),
        ("list --db nowhere.db >/dev/full", 6, None),
        ("list --help >/dev/full", 1, 2),
        ("doctor --db nowhere.db >/dev/full", 1, 2),
        ("run -q --level poll --db x.db -- sh -c 'exit 7' >/dev/full", 7, None),
        ("run --level poll --db x.db -- sh -c 'exit 7' 2>/dev/full", 7, 0),
    ],
)
def test_what_cannot_be_written_has_its_own_code(
    tmp_path: Path, line: str, code: int, said: int | None, unbuffered: str
) -> None:
    """Not the interpreter's 120, and no traceback, whatever it keeps back until its end."""
    program = " ".join(map(shlex.quote, PROGRAM))
    environment = ORDINARY | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {})
    done = subprocess.run(
        ["sh", "-c", f"{program} {line}"], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )

    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said is None or len(done.stderr.splitlines()) == said
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "report", "report --json", "report --html -", "list", "show 1 --all", "sql --csv 'SELECT 1'", "export -o -",
        "export -f perfetto", "diff x.db x.db", "plan --mttf 3h", "fleet nodes --json", "live --once", "doctor",
        "completion bash", "--help",
    ],
)  # fmt: skip
def test_a_full_disk_below_standard_output_is_said(tmp_path: Path, command: str) -> None:
    """By one line, what to do, and exit code 1, whichever command writes; a reader that goes away is no error."""
    recorded(tmp_path / "x.db")
    line = f"{' '.join(map(shlex.quote, PROGRAM))} {command}"
    full, left = (
        subprocess.run(
            ["sh", "-c", f"{line} {to}"], capture_output=True, text=True, check=False, cwd=tmp_path,
            env=ORDINARY | {"CKPTPROF_DB": "x.db"},
        )
        for to in (">/dev/full", "| true")
    )  # fmt: skip

    assert full.stderr == (
        "ckptprof: standard output: No space left on device\nhint: the output is incomplete: write it to another file\n"
    )
    assert (full.returncode, left.stderr) == (1, "")


@pytest.mark.parametrize("command", [["list", "--json"], ["version"], ["sql"], ["run", "--", "true"]])
def test_units_that_there_are_not_are_refused(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By every command, also where it prints no sizes, and before a job is started."""
    monkeypatch.setenv("CKPTPROF_UNITS", "foo")

    assert cli.main(command) == 2
    said = "ckptprof: CKPTPROF_UNITS='foo' is not a system of units\nhint: use decimal or binary\n"
    assert capsys.readouterr() == ("", said)
    assert cli.main([command[0], "--help"]) == 0


@pytest.fixture
def closed_stderr() -> Callable[[], int]:
    """Return a call of a failing command whose stderr is closed."""

    def call() -> int:
        command = [sys.executable, "-c", "import os; os.close(2)\nfrom ckptprof.cli.main import entry; entry()", "nope"]
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=ORDINARY).returncode

    return call


def test_closed_stderr_keeps_the_exit_code(closed_stderr: Callable[[], int]) -> None:
    """Where the line cannot be printed, the code still tells."""
    assert closed_stderr() == 2
