"""What samples declare of their counters: nothing is forgotten, and one declaration is all that a new one needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from ckptprof_collectors.counters import Unit
from ckptprof_collectors.registry import COLLECTORS
from ckptprof_collectors.samples import COUNTED, NOT_COUNTED, Sample

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {
    Unit.SECTOR: "_bytes_total", Unit.MILLISECOND: "_seconds_total", Unit.MICROSECOND: "_seconds_total",
}  # fmt: skip


def numbers(kind: Any) -> set[str]:
    """Return the fields of a sample that hold a number, or None."""
    found = set()
    for field in msgspec.structs.fields(kind):
        kinds = set(get_args(field.type)) or {field.type}
        if kinds - {type(None)} <= {int, float}:
            found.add(field.name)
    return found


def test_every_sample_is_counted_or_listed_as_not() -> None:
    """A new sample fails here until it declares its counters, or says where they go instead."""
    assert not set(COUNTED) & set(NOT_COUNTED)
    assert {*COUNTED, *NOT_COUNTED} == set(get_args(Sample))
    assert all(NOT_COUNTED.values())


@pytest.mark.parametrize("kind", COUNTED, ids=lambda kind: kind.__name__)
def test_every_counter_is_kept_or_left_out(kind: Any) -> None:
    """A new field of a sample fails here until it is declared, or named among those that are not kept."""
    counted = kind.counted
    fields = [column.field for column in counted.columns]
    named = [*fields, *counted.excluded, *counted.name]
    assert len(set(named)) == len(named)
    assert set(named) == numbers(kind) | set(counted.name)


@pytest.mark.parametrize("kind", COUNTED, ids=lambda kind: kind.__name__)
def test_a_metric_is_in_base_units_and_has_a_sentence(kind: Any) -> None:
    """Its name ends as its kind and its unit want; the same field is not shown twice."""
    shown = [column for column in kind.counted.columns if column.metric is not None]
    assert len({column.metric for column in shown}) == len(shown)
    for column in shown:
        assert column.metric.endswith("_total") != column.gauge
        assert column.metric.endswith(SUFFIXES.get(column.unit, ""))
        assert column.text.endswith(".")
    if shown:
        assert len(kind.counted.name) <= 1
        assert bool(kind.counted.labels) == bool(kind.counted.name)


@pytest.mark.parametrize("kind", COUNTED, ids=lambda kind: kind.__name__)
def test_a_counted_sample_has_a_collector(kind: Any) -> None:
    """By its name the timeline knows when all entities were read; a process is read when it is watched."""
    assert (kind.counted.collector is None) == (kind.counted.entity == "process")
    assert kind.counted.collector in {None, *(name for name, _ in COLLECTORS)}


NEW = """
from typing import ClassVar
import msgspec
from ckptprof_collectors import samples
from ckptprof_collectors.counters import CounterField, CounterGroup, Unit

class Load(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    running: int
    counted: ClassVar = CounterGroup("load", (CounterField("running", "load_running", "Tasks that run.", gauge=True),),
                                collector="load")

class Fan(msgspec.Struct, frozen=True, array_like=True, tag="fan"):
    fan: str
    turned_ms: int | None
    counted: ClassVar = CounterGroup(
        "fan", (CounterField("turned_ms", "fan_turned_seconds_total", "Time of turning.", Unit.MILLISECOND),),
        name=("fan",), collector="fans", gone_entity="fan", labels=("fan",))

samples.COUNTED += (Load, Fan)
from prometheus_client import generate_latest
from ckptprof.export.metrics import Metrics
from ckptprof.store.timeline import TimelineBuilder

metrics, builder = Metrics(), TimelineBuilder()
for at_ns in (1, 2):
    gone = (samples.EntityGone("fan", "left"),) if at_ns == 2 else ()
    told = (Load(5 + at_ns), Fan("left", 1500 * at_ns), Fan("right", None), *gone)
    frame = samples.Frame(at_ns, at_ns, ("load", "fans"), told)
    metrics.observe(frame)
    builder.feed(frame)
    if at_ns == 1:
        page = generate_latest(metrics).decode()
        assert 'ckptprof_fan_turned_seconds_total{fan="left"} 1.5' in page, page
page = generate_latest(metrics).decode()
assert "ckptprof_load_running 7.0" in page, page
assert 'fan="left"' not in page, page
assert 'fan="right"' not in page and 'ckptprof_series_dropped_total{kind="fan"} 0.0' in page, page
windows = {window.entity: window for window in builder.consume(before_wall_ns=None)}
assert {name: [list(column) for column in window.columns] for name, window in windows.items()} == {
    "load": [[6, 7]], "fan:left": [[1500, 3000]], "fan:right": [[None, None]]}, windows
builder.feed(samples.Frame(3, 90_000_000_000, ("load", "fans"), ()))
assert "fan:left" not in {window.entity for window in builder.consume(before_wall_ns=None)}
"""


def test_one_declaration_is_all_that_a_new_sample_needs() -> None:
    """The timeline keeps it and the metrics page shows it, of the host or of entities that come and go."""
    done = subprocess.run([sys.executable, "-c", NEW], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
