"""The house is as its documents say: no room is crowded, and each path that a page names is there."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("agent", "collectors", "tests", "benchmarks", "examples", "docs", "dashboards", "systemd", "deploy")
MOST_FILES = 25  # in one folder
TREES = ("*.md", "docs/*.md", "docs/tasks/*.md", "[a-z]*/README.md")
# frameworks.md names files of frameworks; the changelog, what was
PAGES = sorted(page for tree in TREES for page in ROOT.glob(tree) if page.name not in ("frameworks.md", "CHANGELOG.md"))
THEIRS = {"train.py"}  # the reader's own
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_PLAIN = r"(?<![\w./~<-])"
FILE = re.compile(_PLAIN + r"((?:[\w.-]+/)*[\w-]+\.(?:py|bpf\.c|h)\b(?!/)|(?:" + "|".join(SOURCES) + r")/[\w./-]+)")
FOLDER = re.compile(r"`((?:[a-z_]+/){2,})`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
SYMBOL = re.compile(r"(?:[A-Za-z]\w*\.)*(_?[A-Za-z]\w*)(?:\(\))?")
WILDCARD = re.compile(r"[A-Z]{3,}")  # NAME, ROOM: the reader's choice
NAMES = re.compile(r"[\w/]+(?:(?:, |  (?=\w+/))[\w/]+)*")  # at the head of a line of the architecture's tree


@functools.cache
def _files() -> list[str]:
    found = [path for source in SOURCES for path in (ROOT / source).rglob("*") if "__pycache__" not in path.parts]
    return ["/" + path.relative_to(ROOT).as_posix() for path in (*found, *ROOT.iterdir())]


@functools.cache
def _code() -> dict[str, str]:
    return {path: (ROOT / path[1:]).read_text(encoding="utf-8") for path in _files() if path.endswith(".py")}


@functools.cache
def _lines() -> str:
    return "\n".join(_files())


def _missing(named: str) -> bool:
    """Return whether no file or folder, at whatever depth, has this path."""
    pattern = WILDCARD.sub(r"[^/\\n]+", re.escape(named.rstrip("/.")))
    return named not in THEIRS and re.search(rf"/{pattern}$", _lines(), re.MULTILINE) is None


def test_no_folder_is_crowded() -> None:
    """A room that one can take in has 25 files at most."""
    names = [path.rpartition("/") for path in _files() if path.endswith((".py", ".c", ".h", ".md"))]
    count = Counter(folder for folder, _, name in names if name != "__init__.py")

    assert {folder: files for folder, files in count.items() if files > MOST_FILES} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_of_a_page_exists(page: Path) -> None:
    """Files, folders and links that a page names; a capital word such as NAME stands for any."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(CODE.findall(text))
    named = {*FILE.findall(code), *FOLDER.findall(text)}
    links = {link for link in LINK.findall(text) if not (page.parent / link).exists()}

    assert links | {path for path in named if _missing(path)} == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "tasks"], ids=lambda page: page.stem)
def test_a_page_of_a_task_names_what_its_files_have(page: Path) -> None:
    """A word of code is in a file that the same sentence names, or in any file of code where it names none."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    unknown = set()
    for sentence in re.split(r"\.\s|\n", text):
        spans = set(re.findall(r"`([^`\n]+)`", sentence))
        files = {span: code for path, code in _code().items() for span in spans if path.endswith(f"/{span}")}
        for span in spans - set(files):
            word = SYMBOL.fullmatch(span)
            chosen = WILDCARD.search(span) is not None and not span.isupper()
            if word is None or chosen:
                continue
            if not any(re.search(rf"\b{word[1]}\b", code) for code in files.values() or _code().values()):
                unknown.add(span)

    assert unknown == set()


def test_the_rooms_of_the_architecture_exist() -> None:
    """Each name in the tree of docs/architecture.md is a folder or a module where the tree puts it."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    tree = next(block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if "agent/ckptprof/" in block)
    at: list[tuple[int, Path]] = []
    missing: list[Path] = []
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent > 8:  # the description goes on
            continue
        names = re.split(r", |  ", NAMES.findall(line)[0])
        at = [(depth, folder) for depth, folder in at if depth < indent]
        places = [(at[-1][1] if at else ROOT) / name for name in names]
        missing += [place for place in places if not place.is_dir() and not place.with_suffix(".py").is_file()]
        at.append((indent, places[0]))

    assert missing == []


def _unnamed(path: str) -> set[str]:
    """Return the numbers within functions of a module that no constant names; 0, 1 and 2 are no thresholds."""
    tree = ast.parse(_code()[path])
    inside = [
        node for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in ast.walk(function)
    ]
    numbers = [node.value for node in inside if isinstance(node, ast.Constant) and type(node.value) in (int, float)]
    return {f"{path}: {number}" for number in numbers if number not in (0, 1, 2)}


def test_each_number_of_the_diagnosis_has_a_name() -> None:
    """So that it has a reason, and `make constants` asks who holds it; a published formula has its own numbers."""
    room = "/agent/ckptprof/diagnose/"
    found = {one for path in _code() if path.startswith(room) for one in _unnamed(path)}

    assert {one for one in found if not one.startswith(f"{room}plan/intervals.py")} == set()
