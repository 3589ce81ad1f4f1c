"""The types of a board, and queries and panels that several boards share.

NODE stands for a board's matchers of series of a node, RUN for those of series of runs, RECORDED for those of series of
the recording rules, which have no node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ckptprof.report.certainty import UNEXPLAINED, account_name
from ckptprof.report.pictures.colours import OF_LIMIT

Kind = Literal["stat", "graph", "bars", "states", "heat", "table"]

# The word and the colour of the pages of `--html` for each value of a label; the last is unexplained time
LIMITS = {limit.value if limit else UNEXPLAINED: (account_name(limit), one.colour) for limit, one in OF_LIMIT.items()}

SAVE = 'NODE,kind="save"'
# Yellow from here on, as alerts of severity warning; red is for critical alone
TWICE = (2.0,)  # intervals between saves
AGE = f"max by (instance) (time() - last_over_time(ckptprof_last_checkpoint_timestamp_seconds{{{SAVE}}}[$__range]))"
SAVES = f"sum by (instance) (increase(ckptprof_checkpoint_duration_seconds_count{{{SAVE}}}[$__range]))"
# Share of the time range in which saves blocked training, by node
STALLED = "sum by (instance) (increase(ckptprof_checkpoint_stall_seconds_total{NODE}[$__range])) / $__range_s"
RESPONDS = "and on (instance) ckptprof_build_info{NODE}"
# Time since the newest save of each node that responds, divided by its mean interval between saves
INTERVALS = f"({AGE} / on (instance) ($__range_s / ({SAVES} >= 2)) {RESPONDS})"
_SAVES_OF_RUN = "(max by (instance, run) (increase(ckptprof_run_saves_total{RUN}[$__range])) > 0)"
RUN_STALLED = f"max by (run) ({_SAVES_OF_RUN} * 0 + on (instance) group_left () ({STALLED}))"  # on its worst node
UNNAMED = "these agents do not export the names of jobs (`job_names`), or the recording rules are not loaded"


@dataclass(frozen=True)
class Query:
    """One line of a panel, with the legend of its series."""

    text: str
    legend: str = "{{instance}}"  # empty: no column of its own
    unit: str | None = None  # of a column of a table, if it differs from the panel's
    steps: tuple[float, ...] | None = None  # likewise, the thresholds for yellow and red


@dataclass(frozen=True)
class Panel:
    """One panel. `empty`: its text without data, such as what it waits for."""

    title: str
    unit: str
    text: str
    queries: tuple[Query, ...]
    empty: str = "none yet"
    kind: Kind = "graph"
    holds: bool = False  # a value stays until the next one
    maximum: float | None = None
    steps: tuple[float, ...] | None = None  # the thresholds for yellow and red
    width: int = 12
    height: int = 8


@dataclass(frozen=True)
class Group:
    """A row of the dashboard; a closed one sends no queries."""

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


@dataclass(frozen=True)
class Board:
    """A dashboard; each variable is a label, with the name of the series that has it."""

    uid: str
    title: str
    text: str
    variables: tuple[tuple[str, str], ...]
    stats: tuple[Panel, ...]
    groups: tuple[Group, ...]

    def expression(self, text: str) -> str:
        """Return the PromQL that Grafana sends, with the board's variables."""
        names = ["cluster", *(name for name, _ in self.variables)]
        for word, omitted in (("NODE", {"run"}), ("RUN", set()), ("RECORDED", {"instance"})):
            matchers = ",".join(f'{name}=~"${name}"' for name in names if name not in omitted)
            text = text.replace(f"{{{word}", f"{{{matchers}")
        return text


def rate(family: str, by: str = "instance, device") -> str:
    """Return the growth of a counter per second."""
    return f"sum by ({by}) (rate(ckptprof_{family}{{NODE}}[$__rate_interval]))"


def hourly(family: str) -> str:
    """Return the growth of a counter per second, over an hour, for counters that change only when a save ends."""
    return f"sum by (instance) (rate(ckptprof_{family}{{NODE}}[1h]))"


def grown(family: str, by: str, matchers: str = "NODE") -> str:
    """Return the growth of a counter in the time range.

    A series that starts within the range has no value before: `increase` alone would lose its first value.
    """
    series = f"ckptprof_{family}{{{matchers}}}"
    began = f"min_over_time({series}[$__range]) unless {series} offset $__range"
    grown = f'increase({series}[$__range]) or label_replace({began}, "began", "in the range", "", "")'
    return f"sort_desc(sum by ({by}) ({grown}))"


def network(direction: str, port: str) -> str:
    """Return the bytes per second of interfaces and RDMA ports."""
    names = f"ckptprof_(network_{direction}|infiniband_port_data_{port})_bytes_total"
    return f'sum by (instance, device) (rate({{NODE,__name__=~"{names}"}}[$__rate_interval]))'


def limit_number() -> str:
    """Return the limit of each node's newest checkpoint as its index in `LIMITS`: states are numbers."""
    each = (
        f'ckptprof_last_checkpoint_limit{{NODE,limit="{limit}"}} * {number}'
        for number, limit in enumerate(LIMITS)
        if limit != UNEXPLAINED
    )
    return f"max by (instance, kind) ({' or '.join(each)})"


def slowness() -> str:
    """Return the mean duration of each node's saves, divided by that of the median node of the same run.

    Only runs in which the node saved within the time range count.
    """
    took = (
        'sum by (instance) (increase(ckptprof_checkpoint_duration_seconds_sum{NODE,kind="save"}[$__range])) / '
        '(sum by (instance) (increase(ckptprof_checkpoint_duration_seconds_count{NODE,kind="save"}[$__range])) > 0)'
    )
    each = f"{_SAVES_OF_RUN} * 0 + on (instance) group_left () ({took})"
    return f"({each}) / on (run) group_left () quantile by (run) (0.5, {each})"
