"""`--help` and `-h` of each command, and the examples in it: what is pasted works."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS

from ckptprof.cli import main as cli

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
PROGRAM = Path(sys.executable).with_name("ckptprof")
JOB = "import time; time.sleep(0.1)\n"
NO_HIT = {3}  # the recording is of another day than the one that the example asks for
# Exit codes of examples, if not 0; None: it is parsed, and not executed
CODES: dict[str, set[int] | None] = {
    "ckptprof plan": {3},  # one save does not tell what a save costs
    "ckptprof plan --job 'train*' --grace 30s": {3},
    "ckptprof run --pid 4242": None,  # whose that is, nobody knows; tests/e2e/test_run_pid.py does that
    "ckptprof agent": None,  # watches until Ctrl-C; tests/service/commands does that
    "ckptprof agent --db mine.db --no-metrics": None,
    "ckptprof service install": None,  # changes this host
    "ckptprof service install --dry-run": None,  # asks whether root alone can write to the environment
    "ckptprof service status": None,  # asks the systemd of this host
    "ckptprof ceiling . --size 256M": None,  # half a minute; test_cli_ceiling does that
    "ckptprof ceiling /scratch --size 20G --yes": None,
    "ckptprof capture host.ckptrec.gz --seconds 60": None,  # a minute
    "ckptprof dashboards -o /var/lib/grafana/dashboards --runbooks https://wiki.example.org/runbooks": None,
    "ckptprof completion fish | source": None,  # test_cli_completion pastes these two into their shells
    'eval "$(ckptprof completion zsh)"': None,
    "ckptprof ship --to s3://bucket/ckptprof": None,  # asks a store
    "ckptprof ship --to /shared/ckptprof --hash-names /etc/ckptprof/site-key": None,  # likewise
    "ckptprof ship --status": None,
    "ckptprof fleet compact --db s3://bucket/ckptprof --keep 90d": None,
    "ckptprof fleet cost --db s3://bucket/ckptprof --since 7d": None,
    "ckptprof ship --to https://otel.example:4318": None,
    "ckptprof doctor": {0, 4},  # 4: something is missing where the test runs
    "ckptprof doctor --json": {0, 4},
    "ckptprof export --since 2h -o checkpoints.csv": NO_HIT,
    "ckptprof export --format parquet -o .": {0, 1},  # 1: pyarrow is not installed
    "ckptprof export --format tensorboard -o runs/ckptprof": {0, 1},  # likewise
    "ckptprof report --since 2h --job 'train*'": NO_HIT,
    "ckptprof list --json --since yesterday": NO_HIT,
    "ckptprof diff 2h..1h 1h..now": NO_HIT,
    "ckptprof report --fail-on 'stall_p95>60s'": {8},  # the stall of these saves was not seen
}


def examples(name: str) -> list[str]:
    """Return the command lines of a command's examples."""
    lines = importlib.import_module(f"ckptprof.cli.{name}").EXAMPLES.strip().splitlines()
    return [line for line in lines if not line.startswith("#")]


EXAMPLES = [(name, line) for name in cli.COMMANDS for line in examples(name)]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_has_two_names_and_examples(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """-h is --help; the examples stand in it as they are to be pasted, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert cli.main([name, "-h"]) == 0

    assert capsys.readouterr().out == text
    assert text.startswith(f"Usage: ckptprof {name} ")
    assert re.search(r"^  -h, --help ", text, re.MULTILINE)
    assert examples(name)
    assert {f"  {line}" for line in examples(name)} <= set(text.splitlines())
    assert "x<=" not in text  # ranges are in words


def test_the_list_of_commands_has_two_names(capsys: pytest.CaptureFixture[str]) -> None:
    """`ckptprof -h` too."""
    assert cli.main(["-h"]) == 0

    assert capsys.readouterr().out.startswith("Usage: ckptprof ")


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_examples_parse(name: str, line: str) -> None:
    """Each names its own command, with options and arguments that there are."""
    inner = re.findall(r"\$\((ckptprof [^|)]*)", line)
    outer = re.sub(r"\$\(.*\)", "1", line).partition("|")[0]  # what stands in its place is a number
    found = [shlex.split(one) for one in (*inner, outer) if one.startswith("ckptprof ")]

    assert name in [words[1] for words in found]
    for words in found:
        cli.load_command(words[1]).make_context(f"ckptprof {words[1]}", words[2:])


def test_codes_are_of_examples() -> None:
    """What the table excuses is there."""
    assert set(CODES) <= {line for _, line in EXAMPLES}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that examples name, and a database in which train.py saved just now."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "train.py").write_text(JOB)
    recording = STREAMS / "torch-save.ckptrec.gz"
    shutil.copy(recording, folder / "recorded.ckptrec.gz")
    (folder / "nodes").mkdir()
    for name in ("before.db", "after.db"):
        assert cli.main(["replay", str(recording), "--db", str(folder / name)]) == 0
        shutil.copy(folder / name, folder / "nodes")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_examples_work(name: str, line: str, place: Path) -> None:
    """Each is pasted into a shell; what has nothing to show here says so."""
    if (expected := CODES.get(line, {0})) is None:
        return
    shutil.copy(place / "recorded.ckptrec.gz", place / "train.ckptrec.gz")  # an example of capture may make its own
    if name == "capture":
        (place / "train.ckptrec.gz").unlink()
    environment = {
        **os.environ,
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "CKPTPROF_DB": str(place / "after.db"),
        "HOME": str(place),
    }

    done = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env=environment,
        timeout=PATIENCE_SECONDS,
    )

    assert "Traceback" not in done.stderr
    assert done.returncode in expected, done.stderr
