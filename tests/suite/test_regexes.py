"""No regular expression over foreign text works more than its input is long: each pattern of the product is tried.

A pattern that grows quadratically stops the recorder for seconds at a few thousand characters, which a file name, a
header or a command line may have.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.suite.regexes import LINEAR, Matcher, worst

from ckptprof.frameworks.framework_table import FRAMEWORKS
from ckptprof_collectors.processes.python_stacks import MAX_NAME

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for folder in ("agent", "collectors") for path in sorted((ROOT / folder).rglob("*.py"))]
COLLECT = """
import importlib, json, pkgutil, re, sys
found, compile_ = set(), re._compile
def noting(pattern, flags):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in ("re", "functools"):
        frame = frame.f_back
    if frame.f_globals["__name__"].startswith("ckptprof"):
        text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
        found.add((text, int(flags), frame.f_code.co_filename, frame.f_lineno))
    return compile_(pattern, flags)
re._compile = noting
for name in ("ckptprof", "ckptprof_collectors"):
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of an extra
                pass
json.dump(sorted(found), sys.stdout)
"""

# Patterns that are compared with the whole of a text by the name of another variable.
WHOLE = {"_CLIENT", "_TARGET", "_POD_OF_SET", "_POD_OF_ROLE"}
# Put together of patterns that are tried themselves, or of words of the product: where, and how many.
MADE_UP = {"agent/ckptprof/frameworks/file_names.py": 2, "agent/ckptprof/frameworks/runkeys.py": 1}
# More than linear, and why their texts are short or not foreign: by pattern, or by file.
OWN = "what the user who runs the command has typed"
EXCEPTIONS = {
    r"(?:[^/-]|-(?!-))*--[^/]*(?:epoch|step|consumed_samples)=[^/]*\.ckpt": "the kernel ends a name at 255 bytes",
    "frameworks/code_patterns.py": "names of Python files are cut to MAX_NAME",
    "cli/filters.py": OWN,
    "shared/typed_values.py": OWN,
    "report/conditions.py": OWN,
}
OF_FILES = {mark.file.pattern for one in FRAMEWORKS for mark in (*one.files, *one.commit, *one.in_progress)}
OF_FOLDERS = {directory.folder.pattern for one in FRAMEWORKS for directory in one.directories}


@cache
def sources() -> dict[Path, str]:
    """Return each source of the product."""
    return {path: path.read_text(encoding="utf-8") for path in SOURCES}


def is_whole(pattern: str, path: Path, line: int) -> bool:
    """Return whether the pattern at a place is only compared from the begin of a text on, and never searched in it."""
    if path.name == "framework_entry.py":
        return pattern in OF_FILES | OF_FOLDERS
    lines = sources()[path].splitlines()[:line]
    found = re.fullmatch(r"\s*(\w+) = re\.compile.*", next((one for one in reversed(lines) if "re.compile" in one), ""))
    if found is None:
        return False
    name = found[1]
    texts = [sources()[path]] if name.startswith("_") else sources().values()
    used = {method for text in texts for method in re.findall(rf"\b{name}\.(\w+)\(", text)}
    return name in WHOLE or (bool(used) and used <= {"match", "fullmatch"})


def compiled() -> list[tuple[str, int, bool, str]]:
    """Return pattern, flags, `is_whole` and place of all that the modules of the product compile."""
    done = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, check=True, cwd=ROOT)
    found = [(pattern, flags, Path(file), line) for pattern, flags, file, line in json.loads(done.stdout)]
    return [
        (pattern, flags, is_whole(pattern, path, line), "/".join(path.parts[-2:]))
        for pattern, flags, path, line in found
        if path.name != "file_names.py" or "frameworks" not in path.parts or pattern.count("|") == 0
    ]


def called() -> list[tuple[str, int, bool, str]]:
    """Return those that functions hand to `re` itself; asserts that none is unknown."""
    found, made_up = [], {}
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in {"match", "fullmatch", "search", "sub", "findall", "finditer", "split"}
            ):
                pattern = node.args[0]
                if isinstance(pattern, ast.Constant):
                    text_of = pattern.value if isinstance(pattern.value, str) else pattern.value.decode("latin-1")
                    whole = node.func.attr in {"match", "fullmatch"}
                    found.append((text_of, 0, whole, "/".join(path.parts[-2:])))
                elif not isinstance(pattern, ast.Name):
                    made_up[str(path.relative_to(ROOT))] = made_up.get(str(path.relative_to(ROOT)), 0) + 1
    assert made_up == {place: count for place, count in MADE_UP.items() if place in made_up}
    return found


def test_no_pattern_works_more_than_its_text_is_long() -> None:
    """Inputs that are made of each pattern show it, by the steps of a matcher that backtracks as CPython's does."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        patterns = sorted({*compiled(), *called()})
        growth = {(pattern, place): worst(pattern, flags, whole=whole) for pattern, flags, whole, place in patterns}
    finally:
        sys.setrecursionlimit(before)
    worse = {key: found for key, found in growth.items() if found[0] > LINEAR}

    assert len(patterns) > 200
    assert {key: found for key, found in worse.items() if EXCEPTIONS.keys().isdisjoint(key)} == {}
    assert EXCEPTIONS.keys() <= {one for key in worse for one in key}  # each of them is needed
    assert MAX_NAME <= 256


@pytest.mark.parametrize(
    ("pattern", "whole"),
    [
        (r"(?:^|[,\s])(?:gzip|\*)\s*(?:;\s*q=([0-9.]{1,5}))?\s*(?:,|$)", False),  # was in `request.py`
        (r"^[ \t]*\[*[ \t]*x", True),
        (r"kubepods[^/]*(?:/[^/]*)*?[/-]pod[0-9a-f]{32}", False),
        (r"(?:a+)+b", True),
        (r"(?:a|aa)+b", True),
        (r"\s+$", False),
        (r"(.*)x(.*)y", True),
        (r"\d+\.\d+", False),
    ],
)
def test_a_pattern_that_is_worse_is_found(pattern: str, *, whole: bool) -> None:
    """Two repeats side by side or one in another, and a search that begins anew in the midst of a repeat."""
    assert worst(pattern, whole=whole)[0] > LINEAR


@pytest.mark.parametrize(
    ("pattern", "whole"),
    [
        (r"[a-z]+", False),
        (r".*\.pt", True),
        (r"(?:\d+[a-z])+", True),
        (r"(?<![0-9])[0-9]+x", False),
        (r"a{1,9}b", False),
    ],
)
def test_a_linear_pattern_is_left_alone(pattern: str, *, whole: bool) -> None:
    """What repeats in one way only, or may not begin within a repeat."""
    assert worst(pattern, whole=whole)[0] < LINEAR


def test_it_matches_as_re_does() -> None:
    """The counting matcher agrees with the real one on what is a match."""
    for pattern, texts in (
        (r"(?:a|ab)(?:c|bcd)(?:d*)x?", ("abcd", "acd", "abcdx", "b")),
        (r"[^/-]+?-(?=\d)\d{1,3}$", ("a-1", "a-1234", "/-1", "x-y-12")),
        (r"(?i)Step_\w\b", ("sTEP_9", "step_", "step_9 ")),
    ):
        for text in texts:
            assert Matcher(pattern, 0).matches(text) is (re.fullmatch(pattern, text) is not None)
