"""What a benchmark measures beside has gone on until the end; each case of the hold-out has its job."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import wait_until

ROOT = Path(__file__).resolve().parents[2]
HOLDOUT = ROOT / "benchmarks/holdout"
WAYS = ("saves", "processes", "ranks", "restores")  # of job.py
sys.path += [str(ROOT / "benchmarks"), str(HOLDOUT)]
from catalogue import CASES  # noqa: E402 - found by the line above

import beside  # noqa: E402 - likewise
import contenders  # noqa: E402 - likewise
from proofs import attackers, attacks  # noqa: E402 - likewise
from run import QUICK  # noqa: E402 - likewise

LIVES = "import signal; print('ready', flush=True); signal.pause()"
ENDS = "print('ready', flush=True)"
SHRINKS = """
import os, signal, time
child = os.fork()
if not child:
    signal.pause()
print('ready', flush=True)
while not os.path.exists('over'):
    time.sleep(0.01)
os.kill(child, 9)
os.wait()
signal.pause()
"""


def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let a program stand where the job that trains is."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/train_numpy.py").write_text(text)
    monkeypatch.setattr(beside, "ROOT", tmp_path)


def test_a_job_that_cannot_start_ends_the_benchmark_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one without its library: no figure for `saves` may follow."""
    job(tmp_path, monkeypatch, "import no_such_library")

    with pytest.raises(SystemExit, match="no_such_library"), beside.training(tmp_path):
        raise AssertionError("it was measured")


def test_a_job_that_ends_while_it_is_measured_ends_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saved once, then it is gone."""
    job(tmp_path, monkeypatch, "import sys; open(sys.argv[sys.argv.index('--truth') + 1], 'w').write('{}\\n')")

    with pytest.raises(SystemExit, match="ended by itself with 0"), beside.training(tmp_path) as process:
        process.wait()


def test_a_job_that_sleeps_does_not_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without load is no job that trains."""
    job(tmp_path, monkeypatch, "import signal; signal.pause()")
    monkeypatch.setattr(beside, "cpu_ns", lambda _: 0)

    with pytest.raises(SystemExit, match="does not train"), beside.training(tmp_path, beside.NEVER_SECONDS):
        pass


def test_a_job_that_logs_no_saves_ends_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes, but of the saves that were due it has logged none."""
    job(
        tmp_path,
        monkeypatch,
        "import signal, sys; open(sys.argv[sys.argv.index('--truth') + 1], 'w').write('{}\\n'); signal.pause()",
    )
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(beside, "cpu_ns", lambda _: next(clock) * 10**9)
    monkeypatch.setattr(beside.time, "monotonic", lambda: float(next(clock)))

    with pytest.raises(SystemExit, match="logged 0 saves"), beside.training(tmp_path):
        pass


@pytest.mark.parametrize(
    ("program", "words"),
    [("", "did not come"), (ENDS, "ended by itself"), (SHRINKS, "has become smaller"), (LIVES, "stands still")],
)
def test_a_crowd_that_does_not_go_on_ends_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    """Whether it never came, is gone, has lost a member or does nothing."""
    monkeypatch.setitem(beside.PROGRAMS, "files", program)
    monkeypatch.setattr(beside, "cpu_ns", lambda _: 0)

    def measure(process: subprocess.Popen[str]) -> None:
        if program == ENDS:
            process.wait()
        if program == SHRINKS:
            (tmp_path / "over").touch()
            wait_until(lambda: len(contenders.tree(process.pid)) == 1)

    with pytest.raises(SystemExit, match=words), beside.crowd("files", 1, tmp_path) as process:
        measure(process)


def test_an_agent_that_ended_has_no_figures() -> None:
    """Its group would show that it costs nothing."""
    with (
        pytest.raises(SystemExit, match="ended by itself with 0"),
        contenders.Contender("gone", [sys.executable, "-c", ""]) as one,
    ):
        one.process.wait()


def test_each_attack_is_started_and_names_a_proof_that_is_there() -> None:
    """A program that does not compile, or that no row starts, would show no harm."""
    programs = {name: text for name, text in vars(attackers).items() if name.isupper() and name != "HEAD"}
    for name, text in programs.items():
        compile(attackers.HEAD + text, name, "exec")

    assert {one.program for one in attacks.ATTACKS if one.program} == {*programs.values()}
    assert [one.name for one in attacks.ATTACKS if bool(one.program) == bool(one.judged)] == []
    proofs = " ".join((*(one.proof for one in attacks.ATTACKS), *attacks.OLDER.values()))
    for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", proofs):
        assert f"\ndef {name}(" in (ROOT / path).read_text(), (path, name)


@pytest.mark.parametrize("count", ["", "12 forks", "Traceback (most recent call last):"])
def test_an_attack_that_did_not_run_proves_nothing(count: str) -> None:
    """What its attacker counts itself decides."""
    assert attacks.did_not_run(count, 13)
    assert attacks.did_not_run("13 forks", 13) == []


def functions(*modules: str) -> set[str]:
    """Return the public functions of modules of the hold-out, which are not imported: they take PyTorch and more."""
    trees = (ast.parse((HOLDOUT / f"{module}.py").read_text()) for module in modules)
    found = (one.name for tree in trees for one in tree.body if isinstance(one, ast.FunctionDef))
    return {name for name in found if not name.startswith("_")}


def test_each_case_of_the_hold_out_has_its_job_and_each_job_its_case() -> None:
    """Whatever is left without the other is removed."""
    named: dict[str, set[str]] = {}
    for case in CASES:
        named.setdefault(case.job.removesuffix(".py"), set()).add(case.way.replace("-", "_"))
    ways = named.pop("job") - {"none"}

    assert len({case.name for case in CASES}) == len(CASES)
    assert all(functions(job) == jobs for job, jobs in named.items())
    assert ways == functions(*WAYS) - {"old_folders", "tensors", "write_slowly"}
    assert {case.beside for case in CASES} - {""} == functions("others")


def test_make_bench_runs_every_benchmark() -> None:
    """Every module with a `main` in benchmarks/ is in the list of benchmarks/run.py."""
    modules = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    programs = {name for name, text in modules.items() if "\ndef main()" in text} - {"run"}

    assert programs == set(QUICK)
