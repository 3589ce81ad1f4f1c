"""The suite's own rules: what skips says why, nothing skips where that is forbidden, and `alone` is alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.kernel.filesystems import call
from tests.suite.ownrules import copy_rules

CASES = """
    import pytest
    def test_runs(): pass
    @pytest.mark.prometheus
    def test_marked(): pass
    def test_skips_itself(): pytest.skip("for a reason")
    @pytest.mark.xfail(strict=True)
    def test_known(): assert False
"""
CROWD = """
    import os, pytest, time
    from pathlib import Path
    HERE = Path(os.environ["MEETING"])
    def meet(kind, apart=()):
        mine = HERE / f"{kind}-{os.getpid()}"
        mine.touch()
        time.sleep(0.05)
        others = [path for path in HERE.iterdir() if path != mine and path.name.startswith(apart)]
        mine.unlink()
        assert not others
    @pytest.mark.alone
    @pytest.mark.parametrize("i", range(4))
    def test_alone(i): meet("alone", "")
    @pytest.mark.xdist_group("one")
    @pytest.mark.parametrize("i", range(4))
    def test_group(i): meet("group", "group")
    @pytest.mark.parametrize("i", range(12))
    def test_together(i): meet("together")
"""


def run_suite(directory: Path, cases: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on some cases beside a copy of the suite's conftest."""
    copy_rules(directory)
    (directory / "test_cases.py").write_text(textwrap.dedent(cases))
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    prometheus: x\n    slow: x\n")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "CKPTPROF_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**inherited, "PYTEST_DEBUG_TEMPROOT": str(directory), **environment},
    )


def test_a_missing_program_skips_by_name(tmp_path: Path) -> None:
    """Without Prometheus on PATH its tests skip, and the summary names it."""
    result = run_suite(tmp_path, CASES, PATH=str(tmp_path))

    assert result.returncode == 0, result.stdout
    assert "prometheus: not installed: prometheus, promtool" in result.stdout
    assert "1 passed, 2 skipped, 1 xfailed" in result.stdout


def test_a_missing_program_of_a_file_system_skips_by_name() -> None:
    """As mkfs.xfs, which some hosts do not have: its name is the reason, and no error of Python's."""
    with pytest.raises(pytest.skip.Exception, match=r"not installed: mkfs\.none"):
        call("mkfs.none", "-q")


def test_requiring_all_turns_every_skip_into_a_failure(tmp_path: Path) -> None:
    """A test that skips itself fails, one that lacks a program is an error; an expected failure stays one."""
    result = run_suite(tmp_path, CASES, PATH=str(tmp_path), CKPTPROF_REQUIRE="all")

    assert result.returncode == 1, result.stdout
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in result.stdout
    assert "for a reason, and CKPTPROF_REQUIRE=all forbids to skip" in result.stdout


def test_a_module_that_skips_itself_fails_too(tmp_path: Path) -> None:
    """`importorskip` at the top of a module is a skip as well."""
    cases = "import pytest\npytest.importorskip('no_such_module')\ndef test_runs(): pass\n"

    result = run_suite(tmp_path, cases, CKPTPROF_REQUIRE="all")

    assert result.returncode not in (0, 5), result.stdout
    assert "forbids to skip" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("way", ["load", "loadgroup"])
def test_alone_means_beside_no_other_worker(tmp_path: Path, way: str) -> None:
    """With three workers, a test that measures time never overlaps another, nor one of a group another of it."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    result = run_suite(tmp_path, CROWD, "-n", "3", "--dist", way, MEETING=str(meeting))

    assert result.returncode == 0, result.stdout
    assert "20 passed" in result.stdout
