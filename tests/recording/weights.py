"""Holds every number and rule of the decision table against the captures and the tests of detection.

    python tests/recording/weights.py [TEST...]

Doubles, halves and removes each weight, need and bound in turn, and each rule and each name in a rule; decides anew
what every event was that a capture or a test in tests/detect has judged; names who holds each, and lists what nobody
holds. Deciding is pure, so the signals are taken once. Events after one that changed are not judged anew: what is held
is held, and a little more may be. Exits with 1 if anything is held by nobody.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from told import STREAMS, SUFFIX, captures  # noqa: E402 - found by the line above

from ckptprof.detect import recognition  # noqa: E402 - and so are the next
from ckptprof.detect.events.decision import Decision, decide  # noqa: E402
from ckptprof.detect.events.decision_table import TABLE, Combination, DecisionTable  # noqa: E402
from ckptprof.detect.events.signal_values import Signal  # noqa: E402
from ckptprof.service.commands.replaying import replay  # noqa: E402

TESTS = HERE.parent / "detect"
COLUMNS = ("save_or_restore", "copy_or_stream", "data")
SHOWN = {"tool", "copies-exactly", "received", "downloaded", "uploads", "sent-on", "unkept", "unseen", "endless"}
RANDOM = "test_properties.py"  # its events are of chance: they assert nothing of a weight


class Event(NamedTuple):
    """An event that was judged once."""

    holder: str
    signals: tuple[Signal, ...]


class Changed(NamedTuple):
    """The table with one thing changed; `what` is held if any of its changes is noticed."""

    what: str
    table: DecisionTable


class Recorder:
    """A plugin of pytest that keeps the signals of all that tests let the detector judge."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.events: dict[Event, None] = {}
        self.failed: set[str] = set()
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Note which test runs."""
        self._test = item.nodeid
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests fail: these hold nothing."""
        if report.failed:
            self.failed.add(report.nodeid)

    def decide(self, signals: tuple[Signal, ...]) -> Decision:
        """Note the signals; decide."""
        self.events[Event(self._test, signals)] = None
        return decide(signals)


def of_captures() -> list[Event]:
    """Return the events of all captures."""
    found = []
    for name in captures():
        judged = replay(STREAMS / f"{name}{SUFFIX}", None).decisions
        found += [Event(name, one.signals) for one in judged]
    return found


def of_tests(paths: list[str]) -> list[Event]:
    """Return the events of tests that pass."""
    recorder = Recorder()
    original = recognition.decide
    recognition.decide = recorder.decide  # type: ignore[assignment] # the table is the default here
    try:
        arguments = ["-q", "-p", "no:xdist", "-p", "no:randomly", "--no-header", "--tb=no", "-m", "not slow"]
        arguments.append("--continue-on-collection-errors")
        pytest.main([*arguments, f"--ignore={TESTS / RANDOM}", *paths], plugins=[recorder])
    finally:
        recognition.decide = original
    return [event for event in recorder.events if event.holder not in recorder.failed]


def changes() -> Iterator[Changed]:
    """Yield the table with each thing changed in turn."""
    for name, row in TABLE.rows.items():
        for column in COLUMNS:
            value = getattr(row, column)
            for factor in (2.0, 0.5, 0.0) if value and name not in SHOWN else ():
                changed = dataclasses.replace(row, **{column: value * factor})
                yield Changed(f"row {name}: {column}", dataclasses.replace(TABLE, rows={**TABLE.rows, name: changed}))
    for hypothesis, need in TABLE.required_sums.items():
        for factor in (2.0, 0.5):
            needed = {**TABLE.required_sums, hypothesis: need * factor}
            yield Changed(f"needed: {hypothesis.value}", dataclasses.replace(TABLE, required_sums=needed))
    for kind in ("overrides", "deferrals", "doubts"):
        rules: tuple[Combination, ...] = getattr(TABLE, kind)
        for number, rule in enumerate(rules):
            for what, others in _without(rule):
                kept = (*rules[:number], *others, *rules[number + 1 :])
                table = dataclasses.replace(TABLE, **{kind: kept})  # type: ignore[arg-type] # mypy sees no names
                yield Changed(f"rule '{rule.name}'{what}", table)
    for name in TABLE.series_of_data:
        yield Changed(
            f"series of data: {name}", dataclasses.replace(TABLE, series_of_data=TABLE.series_of_data - {name})
        )


def _without(rule: Combination) -> Iterator[tuple[str, tuple[Combination, ...]]]:
    """Yield a rule's removal, and what it is without each of its names and bounds."""
    yield "", ()
    for field in ("all", "any", "none"):
        names: tuple[str, ...] = getattr(rule, field)
        for name in names if field == "none" or len(names) > 1 else ():
            rest = tuple(one for one in names if one != name)
            yield f": {field} {name}", (dataclasses.replace(rule, **{field: rest}),)  # type: ignore[arg-type] # as above
    for bound in ("min_sum", "sum_below"):
        value: float = getattr(rule, bound)
        for factor in (2.0, 0.5) if abs(value) < 100 else ():
            yield f": {bound}", (dataclasses.replace(rule, **{bound: value * factor}),)  # type: ignore[arg-type] # as above


def outcome(signals: tuple[Signal, ...], table: DecisionTable) -> tuple[object, ...]:
    """Return what users notice of a decision, but for how sure it is."""
    try:
        decision = decide(signals, table)
    except KeyError:
        return ("a save of what was read",)
    told = decision.hypothesis.value if decision.hypothesis.value not in ("copy", "stream") else "copy"
    return told, decision.deferral is not None, decision.doubt is not None, decision.marks_series_as_data


def holders(events: list[Event]) -> dict[str, list[str]]:
    """Return for each thing that was changed the captures and tests that noticed."""
    before = {event: outcome(event.signals, TABLE) for event in events}
    found: dict[str, list[str]] = {}
    for what, table in changes():
        noticed = found.setdefault(what, [])
        for event, was in before.items():
            if event.holder not in noticed and outcome(event.signals, table) != was:
                noticed.append(event.holder)
    return found


def main(paths: list[str]) -> int:
    """Print who holds what; return the exit code."""
    events = list(dict.fromkeys([*of_captures(), *of_tests(paths or [str(TESTS)])]))
    names = set(captures())
    found = holders(events)
    for what, noticed in found.items():
        held = f"{sum(one in names for one in noticed)} captures, {sum(one not in names for one in noticed)} tests"
        print(f"{what}: {held}" + (f", as {noticed[0]}" if noticed else ""))  # noqa: T201 - a tool
    loose = [what for what, noticed in found.items() if not noticed]
    print(f"\n{len(events)} events; of {len(found)} numbers and rules are")  # noqa: T201
    print("held by nobody:", *(loose or ["none"]), sep="\n  ")  # noqa: T201
    return 1 if loose else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
