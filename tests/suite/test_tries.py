"""What failed is tried again, and what is green after it: tests/tries.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests import tries
from tests.suite.ownrules import copy_rules
from tests.tries import LIVE, Case, Kind, add, verdict

ROOT = Path(__file__).resolve().parents[2]
# fails in its first tries, as often as the environment says
CASES = """
    import os
    import pytest
    class JobBrokeError(RuntimeError): pass
    def tries(name):
        with open(os.path.join(os.environ["TRIES"], name), "a+") as file:
            file.write("x")
            return file.tell()
    def test_right(): pass
    def test_first(): assert tries("first") > int(os.environ["FIRST"])
    def test_job():
        if tries("job") <= int(os.environ["JOB"]): raise JobBrokeError("the job")
    @pytest.mark.xdist_group("live")
    def test_live(): assert tries("live") > int(os.environ["LIVE"])
"""


def told(nodeid: str, *failed: bool) -> Iterator[str]:
    """Return the lines of a try of one test; for each failed step, whether the job had broken."""
    yield json.dumps({"id": nodeid, "step": "setup", "outcome": "passed", "broke": False})
    for broke in failed:
        yield json.dumps({"id": nodeid, "step": "call", "outcome": "failed", "broke": broke, "text": "E  wrong"})
    yield json.dumps({"id": nodeid, "step": "teardown", "outcome": "passed", "broke": False})


def scored(kind: Kind, **tries: list[list[bool]]) -> tuple[dict[str, Case], bool]:
    """Return what came of tests, each with its tries, and whether all of it is green."""
    cases: dict[str, Case] = {}
    for name, all_of_it in tries.items():
        for one in all_of_it:
            add(cases, told(name, *one))
    return cases, verdict(cases, kind)[1]


@pytest.mark.parametrize(
    ("tries", "again", "green"),
    [
        ([[]], False, True),
        ([[False]], True, False),
        ([[False], []], False, True),
        ([[False], [False]], True, False),
        ([[False]] * 3, False, False),
        ([[True]] * 4, True, False),
        ([*[[True]] * 4, []], False, True),
        ([[True]] * 5, False, False),
        ([[True, False]] * 3, False, False),  # the job broke, and its end was told wrongly, too
    ],
)
def test_three_failures_of_a_live_case_are_red(tries: list[list[bool]], *, again: bool, green: bool) -> None:
    """A try in which the job broke is none, up to five of them."""
    cases, is_green = scored(LIVE, one=tries)

    assert (cases["one"].is_to_be_tried(LIVE), is_green) == (again, green)


@pytest.mark.parametrize(("level", "most"), [("trace", 5), ("poll", 15)])
def test_too_many_second_tries_are_red(level: str, most: int) -> None:
    """A regression that makes cases fail now and then does not hide behind them."""
    right: dict[str, list[list[bool]]] = {f"{level}{number}": [[]] for number in range(most, 100)}

    for failed, green in ((most, True), (most + 1, False)):
        wrong = {f"{level}{number}": [[False], []] for number in range(failed)}
        assert scored(LIVE, **{**right, **wrong})[1] is green


def tried(directory: Path, *flags: str, first: int = 0, job: int = 0, live: int = 0) -> tuple[int, str]:
    """Run the cases beside a copy of the suite's conftest; return the exit code and what was printed."""
    copy_rules(directory)
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "test_cases.py").write_text("\n".join(line[4:] for line in CASES.splitlines()) + "\n")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CKPTPROF_"))}
    environment = {"TRIES": str(directory), "FIRST": str(first), "JOB": str(job), "LIVE": str(live)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/tries.py"), *flags, "-p", "no:cacheprovider"],
        cwd=directory, env={**inherited, "PYTEST_DEBUG_TEMPROOT": str(directory), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.slow
def test_what_failed_is_tried_again_and_named(tmp_path: Path) -> None:
    """Of the kind that is asked for only, with every failed try in full."""
    code, said = tried(tmp_path, first=1, job=3, live=99)

    assert code == 0, said
    assert "not live: 3 cases, 1 failed at first" in said
    assert "green in the end: test_cases.py::test_first: failed 1 times, the job broke 0 times" in said
    assert "green in the end: test_cases.py::test_job: failed 0 times, the job broke 3 times" in said
    assert said.count("def test_first(): assert") == 1


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Give what scores a live run of which each pass writes such lines and ends with such an exit code."""

    def scored(*each: tuple[int | None, Iterable[str]]) -> int:
        left = iter(each)

        def one(_command: list[str], environment: dict[str, str], _end: float) -> int | None:
            code, lines = next(left)
            Path(environment["CKPTPROF_TEST_OUTCOMES"]).write_text("\n".join(lines))
            return code

        monkeypatch.setattr(tries, "exit_code", one)
        code = tries.run(LIVE, "1", 1.0, [])
        assert not list(left), "a pass was not run"
        return code

    return scored


WRONG = list(told("wrong", *[False]))
BEGUN = list(told("begun"))[:1]


def test_what_did_not_run_to_its_end_is_red(passes: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """With what came of the others until then; a try that was cut off does not count."""
    assert passes((2, [*told("right"), *WRONG, *BEGUN])) == 2
    said = capsys.readouterr().out
    assert "red: wrong: failed 1 times" in said
    assert "live at trace: 2 cases, 1 failed at first" in said
    assert "not all of them ran to their end" in said


@pytest.mark.parametrize(
    ("each", "code"),
    [
        ([(None, [*told("right"), *BEGUN])], 0),
        ([(None, [*told("right"), *WRONG]), (0, told("wrong"))], 0),
        ([(None, [*told("right"), *WRONG]), (1, WRONG), (1, WRONG)], 1),
        ([(None, BEGUN)], 1),  # nothing was tried
        ([(None, WRONG), (2, BEGUN)], 2),
    ],
)
def test_as_many_as_the_time_allows_are_scored(
    passes: Callable[..., int], each: list[tuple[int | None, Iterable[str]]], code: int
) -> None:
    """On a machine that is too slow for all of them; what failed has its other tries all the same."""
    assert passes(*each) == code


def test_what_cannot_be_green_any_more_is_not_tried_again(passes: Callable[..., int]) -> None:
    """So many second tries would take long, and change nothing."""
    assert passes((1, [line for number in range(9) for line in told(f"wrong{number}", *[False])])) == 1
