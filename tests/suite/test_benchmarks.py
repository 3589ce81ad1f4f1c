"""Each case of the hold-out has its job, and each attack its program."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOLDOUT = ROOT / "benchmarks/holdout"
WAYS = ("saves", "processes", "ranks", "restores")  # of job.py
sys.path += [str(ROOT / "benchmarks"), str(HOLDOUT)]
from catalogue import CASES  # noqa: E402 - found by the line above

from proofs import attackers, attacks  # noqa: E402 - likewise
from run import QUICK  # noqa: E402 - likewise


def test_each_attack_is_started() -> None:
    """A program that does not compile, or that no row starts, would show no harm."""
    programs = {name: text for name, text in vars(attackers).items() if name.isupper() and name != "HEAD"}
    for name, text in programs.items():
        compile(attackers.HEAD + text, name, "exec")

    assert {one.program for one in attacks.ATTACKS if one.program} == {*programs.values()}
    assert [one.name for one in attacks.ATTACKS if bool(one.program) == bool(one.judged)] == []


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
