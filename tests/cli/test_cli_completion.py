"""Completion, in the shells themselves: the line that --help prints is pasted, and what is typed is completed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof.cli import main as cli
from ckptprof.cli.completion import EXAMPLES

PROGRAM = Path(sys.executable).with_name("ckptprof")
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
LINES = {re.match(r"# (\w+):", comment)[1]: line for comment, line in zip(*[iter(EXAMPLES.strip().splitlines())] * 2)}  # type: ignore[index] # noqa: B905 # of each comment and its line
# What asks a shell for its completions of a line, and prints them one by one
ASK = {
    "bash": """
_ask() {{
    COMP_LINE="$*"; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    local function=$(complete -p ckptprof | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
    "$function" ckptprof "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
    printf '%s\\n' "${{COMPREPLY[@]}}"
}}
{line}
_ask {typed}
""",
    "fish": "{line}\ncomplete --do-complete '{plain}'\n",
}


def completed(shell: str, *typed: str) -> list[str]:
    """Return what a shell offers for a line, the last word of which is not complete."""
    script = ASK[shell].format(line=LINES[shell], typed=" ".join(word or "''" for word in typed), plain=" ".join(typed))
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.stderr == ""
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def test_there_is_a_line_for_each_shell() -> None:
    """--help prints one line to paste for each shell that it knows."""
    assert set(LINES) == {"bash", "zsh", "fish"}


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("ckptprof", "ver"), ["version"]),
        (("ckptprof", ""), list(cli.COMMANDS)),
        (("ckptprof", "report", "--kin"), ["--kind"]),
        (("ckptprof", "report", "--kind", "re"), ["restore"]),
        (("ckptprof", "completion", ""), ["bash", "zsh", "fish"]),
        (("ckptprof", "service", "st"), ["status"]),
    ],
)
def test_a_shell_completes(shell: str, typed: tuple[str, ...], expected: list[str]) -> None:
    """Commands, options and values."""
    if shutil.which(shell) is None:
        pytest.skip(f"not installed: {shell}")

    assert sorted(completed(shell, *typed)) == sorted(expected)


def test_zsh_completes() -> None:
    """It takes a terminal to complete in: what its function is told is enough, if it takes the script."""
    if shutil.which("zsh") is None:
        pytest.skip("not installed: zsh")
    script = f"autoload -Uz compinit; compinit -u; {LINES['zsh']}; words=(ckptprof ver); CURRENT=2\n"
    script += '_arguments() { print -r -- "$@" }; _ckptprof_completion; print -r -- $_comps[ckptprof]'

    done = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, check=False, env=ENVIRONMENT)

    assert done.stderr == ""
    assert '"version":"Print the version."' in done.stdout
    assert done.stdout.splitlines()[-1] == "_ckptprof_completion"


def test_a_shell_that_is_not_known() -> None:
    """Is refused as every other value is."""
    assert cli.main(["completion", "tcsh"]) == 2
