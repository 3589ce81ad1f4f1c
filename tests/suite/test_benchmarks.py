"""Each case of the hold-out has its job, each attack its program, and no figure is measured beside what has stopped."""

from __future__ import annotations

import ast
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.patience import wait_until

ROOT = Path(__file__).resolve().parents[2]
HOLDOUT = ROOT / "benchmarks/holdout"
WAYS = ("saves", "processes", "ranks", "restores")  # of job.py
sys.path += [str(ROOT / "benchmarks"), str(HOLDOUT)]
from catalogue import CASES  # noqa: E402 - found by the line above

import contenders  # noqa: E402 - likewise
from contenders import Count, StoppedError, computing, logging_lines, proving, scraping, sleepers  # noqa: E402 - likewise
from gains import FAULTS  # noqa: E402 - likewise
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
    ways.update(way.replace("-", "_") for fault in FAULTS for way in (fault.way, fault.remedy))

    assert len({case.name for case in CASES}) == len(CASES)
    assert all(functions(job) == jobs for job, jobs in named.items())
    assert ways == functions(*WAYS) - {"old_folders", "tensors", "write_slowly"}
    assert {case.beside for case in (*CASES, *FAULTS)} - {""} == functions("others")


def test_make_bench_runs_every_benchmark() -> None:
    """Every module with a `main` in benchmarks/ is in the list of benchmarks/run.py."""
    modules = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    programs = {name for name, text in modules.items() if "\ndef main()" in text} - {"run"}

    assert programs == set(QUICK)


@pytest.mark.parametrize(
    ("ends", "counts", "error"),
    [
        ([None, None], [(3, 8), (0, 6)], None),
        ([None], [(3, 3)], "it: count 0 grew by 0 in 10 s: its last words"),
        ([None], [(0, 9), (3, 7)], "it: count 1 grew by 4 in 10 s: its last words"),
        ([None, 1], [(0, 9)], "it ended by itself with 1: its last words"),
        ([0], [], "it ended by itself with 0: its last words"),
    ],
)
def test_what_has_stopped_ends_a_benchmark(
    ends: list[int | None],
    counts: list[tuple[float, float]],
    error: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that has ended, or a count that grew by less than it must in ten seconds: 0.5 each second."""
    log = tmp_path / "log"
    log.write_text("its last words")
    monkeypatch.setattr(time, "monotonic", iter([100.0, 110.0]).__next__)
    processes = [Mock(spec=subprocess.Popen, returncode=code, poll=lambda code=code: code) for code in ends]
    ways = [Count(f"count {number}", iter(values).__next__, 0.5) for number, values in enumerate(counts)]
    raised = None
    try:
        with proving("it", processes, *ways, log=log):
            pass
    except StoppedError as stopped:
        raised = str(stopped)

    assert raised == error


def test_an_error_in_the_block_is_not_hidden() -> None:
    """It comes before what has stopped."""
    ended = Mock(spec=subprocess.Popen, returncode=1, **{"poll.return_value": 1})

    with pytest.raises(KeyError, match="first"), proving("it", [ended]):
        raise KeyError("first")


def test_no_busy_loops_are_none_that_have_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case of the hold-out that runs alone has none beside it."""
    monkeypatch.setattr(time, "monotonic", iter([100.0, 110.0]).__next__)

    with proving("the busy loops", [], computing([])):
        pass


def test_the_lines_of_a_log_are_counted(tmp_path: Path) -> None:
    """One that is not there has none."""
    saves = logging_lines(tmp_path / "truth", 1.0)
    found = [saves.now()]
    (tmp_path / "truth").write_text("one\ntwo\n")

    assert [*found, saves.now()] == [0, 2]


def test_a_page_that_never_answers_ends_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent is measured while it is scraped, or not at all."""
    refused = Mock(side_effect=ConnectionRefusedError)
    monkeypatch.setattr(contenders, "scrape", refused)
    monkeypatch.setattr(
        contenders, "time", Mock(monotonic=itertools.count().__next__)
    )  # seconds pass, however fast it is

    with pytest.raises(StoppedError, match="scraping"), scraping(["http://agent/metrics"], every_seconds=0.001):
        wait_until(lambda: refused.call_count > 10)


def test_idle_processes_that_end_end_a_benchmark() -> None:
    """Their number is what is measured."""

    def end_one() -> None:
        with sleepers(2) as pids:
            os.kill(pids[0], signal.SIGKILL)
            wait_until(lambda: not Path(f"/proc/{pids[0]}").exists())

    with pytest.raises(StoppedError, match="idle processes"):
        end_one()
