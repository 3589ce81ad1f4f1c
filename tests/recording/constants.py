"""Holds every number of ckptprof.detect against the captures: each is doubled and halved in turn.

    python tests/recording/constants.py [--only PATTERN] [--workers N]

prints a line for each constant: the capture that tells otherwise when it is changed, or `held by no capture`. What a
test holds is not looked at here: the list is where to look, not a verdict. The weights of the decision table have a
script of their own (weights.py). It takes most of an hour on two cores; a changed constant that is held is found soon,
because captures that held others are asked first.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))
from told import STREAMS, SUFFIX, captures

import ckptprof.detect
from ckptprof.detect.pipeline import Detector
from ckptprof.recording import Frame, Header, read_file

FACTORS = (2.0, 0.5)
ELSEWHERE = ("decision_table", "signals")  # weights.py changes these tables
_order: list[str] = []  # captures, those that held a constant lately in front


class Constant(NamedTuple):
    """A number, or several, with a name at the top of a module."""

    module: str
    name: str


def modules() -> list[ModuleType]:
    """Import and return all modules of detection."""
    found = pkgutil.walk_packages(ckptprof.detect.__path__, "ckptprof.detect.")
    return [importlib.import_module(module.name) for module in found]


def constants() -> Iterator[Constant]:
    """Yield the constants that are numbers or tuples of numbers."""
    for module in modules():
        if module.__name__.rpartition(".")[2] in ELSEWHERE:
            continue
        for node in ast.parse(inspect.getsource(module)).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                    is_name = isinstance(name, ast.Name) and name.id.strip("_").isupper()
                    if is_name and _is_number(vars(module)[name.id]):
                        yield Constant(module.__name__, name.id)


def _is_number(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _times(value: object, factor: float) -> object:
    if isinstance(value, tuple):
        return tuple(_times(one, factor) for one in value)
    assert isinstance(value, (int, float))
    return value * factor if isinstance(value, float) else int(value * factor)


def put(name: str, old: object, new: object) -> None:
    """Give a constant another value wherever it was imported to, in the defaults of functions, too."""
    for module in [one for key, one in sys.modules.items() if key.startswith("ckptprof.detect")]:
        if vars(module).get(name) is old:
            setattr(module, name, new)
        for owner in [module, *(one for one in vars(module).values() if isinstance(one, type))]:
            for function in vars(owner).values():
                if isinstance(function, FunctionType):
                    _put_default(function, old, new)


def _put_default(function: FunctionType, old: object, new: object) -> None:
    if function.__defaults__ and any(one is old for one in function.__defaults__):
        function.__defaults__ = tuple(new if one is old else one for one in function.__defaults__)
    for key, value in (function.__kwdefaults__ or {}).items():
        if value is old:
            function.__kwdefaults__[key] = new


@functools.cache
def recording(capture: str) -> tuple[Header, list[Frame]]:
    """Return a capture, decoded once."""
    header, frames = read_file(STREAMS / f"{capture}{SUFFIX}")
    return header, list(frames)


def told(capture: str) -> bytes:
    """Return all that detection tells of a capture."""
    header, frames = recording(capture)
    detector = Detector(header)
    found = [one for frame in frames for one in detector.feed(frame)]
    return msgspec.json.encode([*found, *detector.finish()])


@functools.cache
def usual(capture: str) -> bytes:
    """Return what is told of a capture as things are."""
    return told(capture)


def holder(constant: Constant) -> str | None:
    """Return the capture that tells otherwise if a constant is doubled or halved; None if none does."""
    if not _order:
        _order.extend(captures())
        for capture in _order:
            usual(capture)
    old = vars(sys.modules[constant.module])[constant.name]
    for factor in FACTORS:
        new = _times(old, factor)
        if new == old:
            continue
        put(constant.name, old, new)
        try:
            for capture in list(_order):
                if _differs(capture):
                    _order.remove(capture)
                    _order.insert(0, capture)
                    return capture
        finally:
            put(constant.name, new, old)
    return None


def _differs(capture: str) -> bool:
    try:
        return told(capture) != usual(capture)
    except Exception:  # noqa: BLE001 - whatever a wrong number leads to shows that it matters
        return True


def main(only: str, workers: int) -> int:
    """Print who holds each constant; return 1 if one is held by none."""
    chosen = [one for one in constants() if fnmatch.fnmatch(f"{one.module}.{one.name}", only)]
    loose = 0
    with ProcessPoolExecutor(workers) as pool:
        for constant, capture in zip(chosen, pool.map(holder, chosen), strict=True):
            loose += capture is None
            place = f"{constant.module.removeprefix('ckptprof.detect.')}.{constant.name}"
            print(f"{place:60} {capture or 'held by no capture'}", flush=True)  # noqa: T201 - a tool
    print(f"{loose} of {len(chosen)} constants are held by no capture")  # noqa: T201 - likewise
    return int(loose > 0)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="*", metavar="PATTERN", help="e.g. '*.stall.*'")
    arguments.add_argument("--workers", type=int, default=2)
    options = arguments.parse_args()
    raise SystemExit(main(options.only, options.workers))
