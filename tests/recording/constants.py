"""Holds every number of detection and diagnosis: doubled or halved, it changes what is told, or fails a test.

    python tests/recording/constants.py [--search] [--only PATTERN] [--workers N]

takes each constant's holder from constants.json (the name of a capture, or a test), gives the constant twice or half of
its value, and asks the holder alone: a second for each constant. `--search` looks for a holder among all captures, then
among the tests of the package, for those that have none or lost theirs, and writes it down, which takes an hour for
all. What nobody holds gets a test or goes; `null` there is what waits for that. The decision table has a script of its
own (weights.py).

A constant is changed in the source, while a process of its own imports it, with what is made of it. Not asked are units
(`ckptprof.units`), and values without a number of their own (of an enumeration, a length, another constant).
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from told import STREAMS, SUFFIX, captures  # noqa: E402 - found by the line above

import ckptprof.frameworks.file_names  # noqa: E402, F401 - imported here once, and not by each process
from ckptprof.recording import Frame, Header, read_file  # noqa: E402

DETECT, DIAGNOSE = "ckptprof.detect", "ckptprof.diagnose"
TESTS = {DETECT: "tests/detect", DIAGNOSE: "tests/diagnose"}
HOLDERS = HERE / "constants.json"
FACTORS = (2.0, 0.5)
IDLE = ("cacheprovider", "randomly", "xdist", "anyio")  # plugins that take time and do nothing here
ELSEWHERE = ("decision_table", "signals")  # weights.py changes these tables


class Constant(NamedTuple):
    """A number at the top of a module, or a tuple of them."""

    module: str
    name: str

    def __str__(self) -> str:
        """Return the name as in constants.json: within detection, or within ckptprof."""
        return f"{self.module.removeprefix(f'{DETECT}.').removeprefix('ckptprof.')}.{self.name}"

    @property
    def package(self) -> str:
        """The package that it is a number of."""
        return next(one for one in TESTS if self.module.startswith(one))


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own, which shares what is loaded here."""
    context = get_context("fork")
    mine, its = context.Pipe(duplex=False)
    child = context.Process(target=lambda: its.send(function(*arguments)))
    child.start()
    its.close()
    try:
        return mine.recv()
    finally:
        child.join()


def constants() -> list[Constant]:
    """Return the constants that are numbers, or tuples of numbers."""
    found = []
    for package in TESTS:
        for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not info.ispkg and info.name.rpartition(".")[2] not in ELSEWHERE:
                found += _of_module(importlib.import_module(info.name))
    return found


def _of_module(module: ModuleType) -> Iterator[Constant]:
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        for name in _names(node):
            value = vars(module)[name]
            if name.strip("_").isupper() and _is_number(value) and times(value, 2) != value and _has_number(node):
                yield Constant(module.__name__, name)


def _names(node: ast.stmt) -> list[str]:
    if not isinstance(node, ast.Assign):
        return []
    return [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def _has_number(node: ast.stmt) -> bool:
    inner = {type(one) for one in ast.walk(node)}
    return ast.Constant in inner and not inner & {ast.Attribute, ast.Call}


def _is_number(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def times(value: Any, factor: float) -> Any:
    """Return a number, or the numbers of a tuple, times a factor."""
    if isinstance(value, tuple):
        return tuple(times(one, factor) for one in value)
    return value * factor if isinstance(value, float) else int(value * factor)


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module in which one constant has another value from the line after its own."""

    change: tuple[Constant, float]

    def source_to_code(self, data: Any, path: Any, **_: Any) -> CodeType:  # type: ignore[override]
        """Compile the source with a line more."""
        tree = ast.parse(data)
        constant, factor = self.change
        place = next(place for place, node in enumerate(tree.body) if constant.name in _names(node))
        line = f"{constant.name} = __import__('constants').times({constant.name}, {factor})"
        added = ast.parse(line).body
        for node in ast.walk(added[0]):
            ast.copy_location(node, tree.body[place])
        tree.body[place + 1 : place + 1] = added
        return compile(tree, path, "exec", dont_inherit=True)

    def get_code(self, _: str) -> CodeType | None:
        """Never take what was compiled before."""
        return self.source_to_code(self.get_data(self.path), self.path)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, constant: Constant, factor: float) -> None:
        self.change = constant, factor

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname != self.change[0].module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert isinstance(spec.loader, importlib.machinery.SourceFileLoader)
        spec.loader = _Changed(spec.loader.name, spec.loader.path)
        spec.loader.change = self.change
        return spec


@functools.cache
def recording(capture: str) -> tuple[Header, list[Frame]]:
    """Return a capture, decoded once."""
    header, frames = read_file(STREAMS / f"{capture}{SUFFIX}")
    return header, list(frames)


def detected(capture: str) -> list[Any]:
    """Return all that detection tells of a capture, revisions included."""
    from ckptprof.detect.pipeline import Detector  # noqa: PLC0415 - only here a process has its constants

    header, frames = recording(capture)
    detector = Detector(header)
    found = [one for frame in frames for one in detector.ingest(frame)]
    return [*found, *detector.finish()]


def told(package: str, capture: str) -> bytes:
    """Return all that a package tells of a capture."""
    if package == DETECT:
        return msgspec.json.encode(detected(capture))
    from ckptprof.diagnose.advice import first_advice  # noqa: PLC0415 - as above
    from ckptprof.diagnose.job_costs import job_costs  # noqa: PLC0415 - as above
    from ckptprof.service.recorder.diagnosing import Diagnosis  # noqa: PLC0415 - as above

    found = Diagnosis().diagnose_all(CHECKPOINTS[capture])
    return msgspec.json.encode([found, first_advice(found), job_costs(found)])


CHECKPOINTS: dict[str, list[Any]] = {}  # of each capture, the newest revision of each


def _newest(names: Sequence[str]) -> dict[str, list[Any]]:
    from ckptprof.detect.describe.revisions import latest_revisions  # noqa: PLC0415 - as above

    return {name: latest_revisions(detected(name)) for name in names}


def _told_all(package: str, names: Sequence[str]) -> dict[str, bytes]:
    return {name: told(package, name) for name in names}


Usual = dict[str, dict[str, bytes]]  # what each package tells of each capture


def noticed(constant: Constant, factor: float, holders: Sequence[str], usual: Usual) -> str | None:
    """Return the first holder that notices a change; whatever a wrong number leads to shows that it matters."""
    sys.modules["constants"] = sys.modules[__name__]
    sys.meta_path.insert(0, _Finder(constant, factor))
    package = constant.package
    for holder in holders:
        if holder.startswith("tests/"):
            if (test := _failing(holder)) is not None:
                return test
            continue
        try:
            differs = told(package, holder) != usual[package][holder]
        except Exception:  # noqa: BLE001 - see above
            differs = True
        if differs:
            return holder
    return None


class _First:
    """Remembers the first test that fails, whatever its parameters."""

    test: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.test is None:
            self.test = report.nodeid.partition("[")[0]


def _failing(tests: str) -> str | None:
    first, plugins = _First(), [f"-pno:{name}" for name in IDLE]
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        pytest.main(["-q", "-x", "-m", "not live and not slow", *plugins, tests], plugins=[first])
    return first.test


def holder_of(constant: Constant, named: str | None, others: list[str], usual: Usual) -> str | None:
    """Return who holds a constant: its named holder, else the first of the others, which then comes first."""
    wider = [*others, TESTS[constant.package]] if others else []
    for asked in ([named] if named else [], wider):
        for factor in FACTORS if asked else ():
            found: str | None = in_a_process(noticed, constant, factor, tuple(asked), usual)
            if found is not None:
                if found in others:
                    others.remove(found)
                    others.insert(0, found)
                return found
    return None


def main(only: str, workers: int, *, search: bool) -> int:
    """Print constants whose holder does not notice a change, or that have no line; return 1 if there are any."""
    named: dict[str, str | None] = json.loads(HOLDERS.read_text())
    everything = in_a_process(constants)
    chosen = [one for one in everything if fnmatch.fnmatch(str(one), only)]
    asked = [one for one in chosen if named.get(str(one)) is not None or search]
    known = {(one.package, named.get(str(one))) for one in chosen}
    packages = sorted({one.package for one in chosen})
    replayed = {package: [one for one in captures() if search or (package, one) in known] for package in packages}
    for capture in {one for names in replayed.values() for one in names}:
        recording(capture)
    CHECKPOINTS.update(in_a_process(_newest, replayed.get(DIAGNOSE, ())))
    usual: Usual = {package: in_a_process(_told_all, package, names) for package, names in replayed.items()}
    others = sorted(captures(), key=lambda name: sum(len(one[name]) for one in usual.values())) if search else []
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda one: holder_of(one, named.get(str(one)), others, usual), asked)
        holders = dict(zip(map(str, asked), found, strict=True))
    if search:
        names = {str(one) for one in everything}
        kept = {name: holder for name, holder in (named | holders).items() if name in names}
        HOLDERS.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
        print(f"{list(kept.values()).count(None)} of {len(kept)} are held by nobody")  # noqa: T201 - a tool
        return 0
    wrong = [f"{name}: not held by {named[name]}" for name, holder in holders.items() if holder is None]
    wrong += [f"{one}: not in constants.json" for one in chosen if str(one) not in named]
    wrong += [f"{name}: not in the code" for name in sorted(set(named) - {str(one) for one in everything})]
    print(*wrong, f"{len(holders) - len(wrong)} of {len(chosen)} are held", sep="\n")  # noqa: T201 - likewise
    return int(bool(wrong))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--search", action="store_true", help="look for holders among all captures, and write them")
    arguments.add_argument("--only", default="*", metavar="PATTERN", help="e.g. '*.stall.*'")
    arguments.add_argument("--workers", type=int, default=2)
    options = arguments.parse_args()
    raise SystemExit(main(options.only, options.workers, search=options.search))
