"""Writes the Grafana dashboards as code: `python dashboards/generate.py`, or `--check` to compare only.

The library is pinned to the line of Grafana 11.6 (pyproject.toml): its version on PyPI is an epoch per Grafana release
and an unpinned install takes the oldest one. It leaves panel ids to the caller.
"""  # noqa: INP001 - a script beside what it writes, no package

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphDrawStyle, LineInterpolation
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    GridPos,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

OUTPUT = Path(__file__).resolve().parent / "ckptprof-node.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${DS_PROMETHEUS}")
NODE = 'job=~"$job",instance=~"$instance"'
COLUMNS = 24


@dataclass(frozen=True)
class Query:
    """One line of a panel; in `text` the word NODE stands for the matchers of job and instance."""

    text: str
    legend: str = "{{instance}}"

    @property
    def expression(self) -> str:
        """The PromQL that Grafana sends, with its variables."""
        return self.text.replace("NODE", NODE)


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, in which unit, and the sentence behind its (i)."""

    title: str
    unit: str
    text: str
    queries: tuple[Query, ...]
    steps: bool = False  # a value that stays until the next one
    maximum: float | None = None


def _rate(family: str, by: str = "instance, device") -> str:
    return f"sum by ({by}) (rate(ckptprof_{family}{{NODE}}[$__rate_interval]))"


def _network(direction: str, port: str) -> str:
    names = f"ckptprof_(network_{direction}|infiniband_port_data_{port})_bytes_total"
    return f'sum by (instance, device) (rate({{__name__=~"{names}",NODE}}[$__rate_interval]))'


_DEVICE = "{{instance}} {{device}}"
_SAVE = 'NODE,kind="save"'

STATS = (
    Panel(
        "Saves",
        "short",
        "Checkpoints saved since the agents started.",
        (Query(f"sum(ckptprof_checkpoint_duration_seconds_count{{{_SAVE}}})", "saves"),),
    ),
    Panel(
        "Restores",
        "short",
        "Checkpoints restored since the agents started.",
        (Query('sum(ckptprof_checkpoint_duration_seconds_count{NODE,kind="restore"})', "restores"),),
    ),
    Panel(
        "Since the last save",
        "s",
        "Time since the end of the newest save: what would be lost if training failed now.",
        (Query(f"time() - max(ckptprof_last_checkpoint_timestamp_seconds{{{_SAVE}}})", "age"),),
    ),
    Panel(
        "Duration of the last save",
        "s",
        "From the first creation or data to the commit; the slowest node counts.",
        (Query(f"max(ckptprof_last_checkpoint_duration_seconds{{{_SAVE}}})", "duration"),),
    ),
    Panel(
        "Size of the last save",
        "bytes",
        "Bytes of the last save, summed over nodes.",
        (Query(f"sum(ckptprof_last_checkpoint_bytes{{{_SAVE}}})", "bytes"),),
    ),
    Panel(
        "Saved in all",
        "bytes",
        "Bytes of all saves since the agents started.",
        (Query(f"sum(ckptprof_checkpoint_bytes_total{{{_SAVE}}})", "bytes"),),
    ),
)

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Checkpoints",
        (
            Panel(
                "Duration",
                "s",
                "Duration of the newest save and restore of each node, shown until the next one ends.",
                (Query("ckptprof_last_checkpoint_duration_seconds{NODE}", "{{instance}} {{kind}}"),),
                steps=True,
            ),
            Panel(
                "Size",
                "bytes",
                "Bytes of the newest save and restore of each node, shown until the next one ends.",
                (Query("ckptprof_last_checkpoint_bytes{NODE}", "{{instance}} {{kind}}"),),
                steps=True,
            ),
            Panel(
                "Saves and restores by pattern",
                "short",
                "How the bytes were laid out, decided by bytes; counted since the agents started.",
                (Query("sum by (kind, pattern) (ckptprof_checkpoints_total{NODE})", "{{kind}} {{pattern}}"),),
                steps=True,
            ),
            Panel(
                "Saves and restores by framework",
                "short",
                "Who wrote them, as far as it was recognised; counted since the agents started.",
                (Query("sum by (kind, framework) (ckptprof_checkpoints_total{NODE})", "{{kind}} {{framework}}"),),
                steps=True,
            ),
            Panel(
                "Training blocked by saves",
                "percentunit",
                "Share of the time in which a save blocked training, as far as it was seen; 5 % is a usual limit.",
                (Query(_rate("checkpoint_stall_seconds_total", "instance")),),
            ),
            Panel(
                "Saves by mode",
                "short",
                "Sync: training waited for the bytes; async: it went on meanwhile; counted since the agents started.",
                (Query("sum by (instance, mode) (ckptprof_checkpoint_saves_total{NODE})", "{{instance}} {{mode}}"),),
                steps=True,
            ),
            Panel(
                "What limited checkpoints",
                "s",
                "What the time of saves and restores went to, on the critical path; counted since the agents started.",
                (Query("sum by (limit) (ckptprof_checkpoint_limit_seconds_total{NODE})", "{{limit}}"),),
                steps=True,
            ),
            Panel(
                "The last save without its limit",
                "s",
                "How long the newest save took, and how long it would have taken had its limit not been there.",
                (
                    Query(f"ckptprof_last_checkpoint_duration_seconds{{{_SAVE}}}", "{{instance}} took"),
                    Query(f"ckptprof_last_checkpoint_expected_seconds{{{_SAVE}}}", "{{instance}} without its limit"),
                ),
                steps=True,
            ),
            Panel(
                "Limit of the last checkpoint",
                "short",
                "What limited the newest save and restore of each node, and how sure that is.",
                (Query("ckptprof_last_checkpoint_limit{NODE}", "{{instance}} {{kind}}: {{limit}}, {{confidence}}"),),
                steps=True,
            ),
            Panel(
                "GPU time blocked by saves",
                "short",
                "GPUs that waited for saves, in the mean: the time in which training was blocked, times its GPUs.",
                (Query(_rate("checkpoint_gpu_seconds_total", "instance")),),
            ),
            Panel(
                "Incomplete saves",
                "short",
                "Saves that were broken off or never committed; counted since the agents started.",
                (Query("sum by (instance) (ckptprof_incomplete_checkpoints_total{NODE})"),),
                steps=True,
            ),
            Panel(
                "At risk after the commit",
                "s",
                "How long the newest save counted as complete before it was on stable storage.",
                (Query("ckptprof_last_checkpoint_at_risk_seconds{NODE}"),),
                steps=True,
            ),
            Panel(
                "Written for each byte saved",
                "short",
                "Staging, copies and rewriting included: 1 is nothing beyond the checkpoints themselves.",
                (
                    Query(
                        "sum by (instance) (ckptprof_checkpoint_written_bytes_total{NODE})"
                        " / (sum by (instance) (ckptprof_checkpoint_unique_bytes_total{NODE}) > 0)"
                    ),
                ),
            ),
            Panel(
                "Restores by source",
                "short",
                "Cold: from a device or the network; warm: from the page cache; counted since the agents started.",
                (Query("sum by (cache) (ckptprof_checkpoint_restores_total{NODE})", "{{cache}}"),),
                steps=True,
            ),
        ),
    ),
    (
        "Devices",
        (
            Panel(
                "Written",
                "Bps",
                "Bytes that each block device wrote; stacked ones (md, dm) show the bytes of those under them again.",
                (Query(_rate("disk_written_bytes_total"), _DEVICE),),
            ),
            Panel(
                "Read", "Bps", "Bytes that each block device read.", (Query(_rate("disk_read_bytes_total"), _DEVICE),)
            ),
            Panel(
                "Busy",
                "percentunit",
                "Share of the time with a request in flight; a device that works in parallel has room even at 100 %.",
                (Query(_rate("disk_io_time_seconds_total"), _DEVICE),),
                maximum=1,
            ),
            Panel(
                "Requests in flight",
                "short",
                "Mean length of the device's queue.",
                (Query(_rate("disk_io_time_weighted_seconds_total"), _DEVICE),),
            ),
        ),
    ),
    (
        "Network",
        (
            Panel(
                "Sent",
                "Bps",
                "Bytes sent by each interface and RDMA port.",
                (Query(_network("transmit", "transmitted"), _DEVICE),),
            ),
            Panel(
                "Received",
                "Bps",
                "Bytes received by each interface and RDMA port.",
                (Query(_network("receive", "received"), _DEVICE),),
            ),
        ),
    ),
    (
        "Memory",
        (
            Panel(
                "Waiting for the disk",
                "bytes",
                "Dirty pages, pages under writeback, and the amount of dirty pages at which the kernel blocks writers.",
                (
                    Query("ckptprof_memory_dirty_bytes{NODE}", "{{instance}} dirty"),
                    Query("ckptprof_memory_writeback_bytes{NODE}", "{{instance}} writeback"),
                    Query("ckptprof_memory_dirty_threshold_bytes{NODE}", "{{instance}} threshold"),
                ),
            ),
            Panel(
                "Page cache made dirty and written back",
                "Bps",
                "Where the first is above the second, a buffered save is faster than the storage under it.",
                (
                    Query(_rate("memory_dirtied_bytes_total", "instance"), "{{instance}} dirtied"),
                    Query(_rate("memory_written_bytes_total", "instance"), "{{instance}} written back"),
                ),
            ),
        ),
    ),
    (
        "Agent",
        (
            Panel(
                "CPU",
                "percentunit",
                "CPU time of ckptprof itself, in cores.",
                (Query(_rate("cpu_seconds_total", "instance, process"), "{{instance}} {{process}}"),),
            ),
            Panel(
                "Resident memory",
                "bytes",
                "Memory of ckptprof itself.",
                (Query("ckptprof_resident_memory_bytes{NODE}", "{{instance}} {{process}}"),),
            ),
            Panel(
                "Lost",
                "short",
                "Frames and writes lost per second, and ticks that came late: all zero on a healthy node.",
                (
                    Query(_rate("sampler_late_ticks_total", "instance"), "{{instance}} late ticks"),
                    Query(_rate("sampler_dropped_frames_total", "instance"), "{{instance}} dropped by the sampler"),
                    Query(_rate("recorder_dropped_frames_total", "instance"), "{{instance}} dropped by the recorder"),
                    Query(_rate("store_errors_total", "instance"), "{{instance}} store errors"),
                ),
            ),
            Panel(
                "Collectors that fail",
                "short",
                "Collectors whose last read failed; zero on a healthy node.",
                (Query("sum by (instance) (1 - ckptprof_collector_success{NODE})"),),
            ),
            Panel(
                "Store",
                "bytes",
                "Size of the node's database.",
                (Query("ckptprof_store_size_bytes{NODE}"),),
            ),
            Panel(
                "Watched processes",
                "short",
                "Processes that are sampled at every tick.",
                (Query("ckptprof_watched_processes{NODE}"),),
            ),
        ),
    ),
)


def _targets(panel: Panel, *, instant: bool) -> list[Dataquery]:
    targets = []
    for number, query in enumerate(panel.queries):
        target = Dataquery().expr(query.expression).legend_format(query.legend).ref_id(chr(ord("A") + number))
        targets.append(target.instant() if instant else target.range())
    return targets


def _stat(panel: Panel, identity: int, place: GridPos) -> stat.Panel:
    built: stat.Panel = stat.Panel().id(identity).title(panel.title).description(panel.text).unit(panel.unit)
    built.datasource(SOURCE).grid_pos(place).no_value("none yet").targets(_targets(panel, instant=True))
    return built  # the builder changes itself


def _graph(panel: Panel, identity: int, place: GridPos) -> timeseries.Panel:
    built: timeseries.Panel = (
        timeseries.Panel()
        .id(identity)
        .title(panel.title)
        .description(panel.text)
        .unit(panel.unit)
        .datasource(SOURCE)
        .grid_pos(place)
        .min(0)
        .draw_style(GraphDrawStyle.LINE)
        .fill_opacity(10)
        .targets(_targets(panel, instant=False))
    )
    if panel.steps:
        built = built.line_interpolation(LineInterpolation.STEP_AFTER)  # type: ignore[arg-type] # the library types its members str
    if panel.maximum is not None:
        built = built.max(panel.maximum)
    return built


def _variable(name: str, query: str) -> QueryVariable:
    variable: QueryVariable = (
        QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003 - the builder's signature
        .include_all(True)  # noqa: FBT003 - the builder's signature
        .all_value(".+")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )
    return variable


def build() -> str:
    """Return the dashboard's JSON as it is committed."""
    board = (
        Dashboard("ckptprof: checkpoints of a node")
        .uid("ckptprof-node")
        .description("Every save and restore of training on a node, and what the machine did meanwhile.")
        .tags(["ckptprof", "checkpoint", "storage"])
        .editable()
        .time("now-6h", "now")
        .refresh("30s")
        .with_variable(DatasourceVariable("DS_PROMETHEUS").label("Data source").type("prometheus"))
        .with_variable(_variable("job", "label_values(ckptprof_build_info, job)"))
        .with_variable(_variable("instance", 'label_values(ckptprof_build_info{job=~"$job"}, instance)'))
    )
    width = COLUMNS // len(STATS)
    for number, panel in enumerate(STATS):
        board = board.with_panel(_stat(panel, number + 1, GridPos(x=number * width, y=0, w=width, h=4)))
    identity, top = len(STATS), 4
    for title, panels in ROWS:
        identity += 1
        board = board.with_row(Row(title).id(identity).grid_pos(GridPos(x=0, y=top, w=COLUMNS, h=1)))
        top += 1
        for number, panel in enumerate(panels):
            identity += 1
            place = GridPos(x=number % 2 * 12, y=top + number // 2 * 8, w=12, h=8)
            board = board.with_panel(_graph(panel, identity, place))
        top += (len(panels) + 1) // 2 * 8
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def main() -> int:
    """Write the dashboard, or with `--check` say whether it is as generated."""
    text = build()
    if sys.argv[1:] == ["--check"]:
        return 0 if OUTPUT.read_text(encoding="utf-8") == text else 1
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
