"""Generates the Grafana dashboard: `python dashboards/generate.py`, or `--check` to compare only.

Its content is in `panels.py`. The library is pinned to Grafana 11.6 (pyproject.toml): its version on PyPI has an epoch
per Grafana release, and an unpinned install gets the oldest one. It leaves panel ids to the caller.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, heatmap, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    FieldColor,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BarGaugeNamePlacement,
    BigValueGraphMode,
    BigValueTextMode,
    GraphDrawStyle,
    GraphThresholdsStyleMode,
    LineInterpolation,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from panels import GROUPS, STATS
from queries import LIMIT_COLOURS, Panel, Query

OUTPUT = Path(__file__).resolve().parent / "ckptprof-node.json"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${DS_PROMETHEUS}")
RUNS = 'cluster=~"$cluster",job=~"$job"'  # for series of the recording rules
NODE = f'{RUNS},instance=~"$instance"'
COLUMNS = 24
STAT_HEIGHT = 4
ROW_HEIGHT = 1
SAVE_COLOUR = "#5794f2"
GOOD, WATCH, BAD = "green", "#e0a020", "red"
# The values are times: one mark for each save, at its end.
SAVES = 'ckptprof_last_checkpoint_timestamp_seconds{NODE,kind="save"} * 1000'
Built = Any  # a builder; the library types members of enums as str, and most methods not at all
MAPPED = {
    "limit": {str(number): (limit, colour) for number, (limit, colour) in enumerate(LIMIT_COLOURS.items())},
    "level": {"0": ("poll", "#808080"), "1": ("trace", "#1da417")},
}


def expression(text: str) -> str:
    """Return the PromQL that Grafana sends, with its variables."""
    return text.replace("NODE", NODE).replace("RUNS", RUNS)


def _targets(panel: Panel) -> list[Dataquery]:
    targets = []
    for number, query in enumerate(panel.queries):
        target = Dataquery().expr(expression(query.text)).legend_format(query.legend).ref_id(_letter(number))
        target = target.instant() if panel.kind in {"stat", "bars", "table"} else target.range()
        if panel.kind == "table":
            target = target.format(PromQueryFormat.TABLE)
        if panel.kind == "heat":
            target = target.format(PromQueryFormat.HEATMAP)
        targets.append(target)
    return targets


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _steps(steps: tuple[float, float] | None) -> Built:
    places = zip((None, *(steps or ())), (GOOD, WATCH, BAD), strict=False)
    return ThresholdsConfig().steps([models.Threshold(value=value, color=colour) for value, colour in places])


def _mapping(unit: str) -> models.ValueMap:
    each = {key: models.ValueMappingResult(text=text, color=colour) for key, (text, colour) in MAPPED[unit].items()}
    return models.ValueMap(options=each)


def _colour(mode: Any, fixed: str | None = None) -> Built:
    colour: Built = FieldColor().mode(mode)
    return colour.fixed_color(fixed) if fixed else colour


def _stat(panel: Panel) -> Built:
    built: Built = stat.Panel()
    if len(panel.queries) > 1:
        built = built.text_mode(BigValueTextMode.VALUE_AND_NAME)
    built = built.graph_mode(BigValueGraphMode.NONE).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return built.color_scheme(_colour(models.FieldColorModeId.THRESHOLDS))


def _graph(panel: Panel) -> Built:
    built: Built = timeseries.Panel()
    built = built.color_scheme(_colour(models.FieldColorModeId.PALETTE_CLASSIC))
    built = built.min(0).draw_style(GraphDrawStyle.LINE).fill_opacity(10)
    if panel.holds:
        built = built.line_interpolation(LineInterpolation.STEP_AFTER)
    if panel.maximum is not None:
        built = built.max(panel.maximum)
    if panel.steps is not None:
        dashed: Built = common.GraphThresholdsStyleConfig()
        built = built.thresholds_style(dashed.mode(GraphThresholdsStyleMode.DASHED))
    return built


def _bars(panel: Panel) -> Built:
    built: Built = bargauge.Panel()
    built = built.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    built = built.orientation(VizOrientation.HORIZONTAL).min(0).display_mode(BarGaugeDisplayMode.BASIC)
    wide = panel.width > COLUMNS // 4  # enough space for names beside the bars
    built = built.name_placement(BarGaugeNamePlacement.LEFT if wide else BarGaugeNamePlacement.TOP)
    built = built.show_unfilled(show_unfilled=False).color_scheme(_colour(models.FieldColorModeId.FIXED, SAVE_COLOUR))
    if panel.unit == "short":
        built = built.decimals(0)
    for limit, colour in LIMIT_COLOURS.items() if "limit_seconds" in panel.queries[0].text else ():
        fixed = models.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})
        built = built.override_by_name(limit, [fixed])
    return built


def _states(_: Panel) -> Built:
    built: Built = statetimeline.Panel()
    return built.show_value(VisibilityMode.AUTO).fill_opacity(100).merge_values(merge_values=True)


def _heat(panel: Panel) -> Built:
    built: Built = heatmap.Panel()
    built = built.calculate(calculate=False).y_axis(heatmap.YAxisConfig().unit(panel.unit))
    built = built.cell_values(heatmap.CellValues().unit("short").decimals(0))
    colours: Built = heatmap.HeatmapColorOptions()
    colours = colours.mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32).exponent(0.5)
    return built.color(colours).filter_values(heatmap.FilterValueRange().le(0.01)).show_legend()


def _table(panel: Panel) -> Built:
    """Return a table with a line for each common label value: a node, or a job on it."""
    names = {f"Value #{_letter(number)}": query.legend for number, query in enumerate(panel.queries)}
    hidden = ["Time", "Value", *(value for value, name in names.items() if not name)]
    shown = {value: name for value, name in names.items() if name} | {"instance": "node"}
    order = ["instance", "run", "Value #A", "Value #B", "Value #C", "Value #D", "limit", "confidence"]
    order += ["training_job", "framework", "ranks"]
    options = {"excludeByName": dict.fromkeys(hidden, True), "renameByName": shown,
               "indexByName": {name: place for place, name in enumerate(order)}}  # fmt: skip
    built: Built = table.Panel()
    built = built.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    built = built.with_transformation(models.DataTransformerConfig(id_val="organize", options=options))
    if panel.queries[0].legend:
        built = built.sort_by([common.TableSortByFieldState().display_name(panel.queries[0].legend).desc(desc=True)])
    kept = "&".join(f"${{{name}:queryparam}}" for name in ("DS_PROMETHEUS", "cluster", "job"))
    url = f"/d/ckptprof-node?var-instance=${{__value.raw}}&{kept}&${{__url_time_range}}"
    link = {"title": "this node alone", "url": url}
    built = built.override_by_name("node", [models.DynamicConfigValue(id_val="links", value=[link])])
    built = built.override_by_name("limit", [_property("mappings", [_by_name()]), *_coloured()])
    for query in panel.queries:
        if query.unit is not None:
            built = built.override_by_name(query.legend, _column(query))
    return built


def _by_name() -> models.ValueMap:
    return models.ValueMap(options={n: models.ValueMappingResult(text=n, color=c) for n, c in LIMIT_COLOURS.items()})


def _column(query: Query) -> list[models.DynamicConfigValue]:
    if query.unit in MAPPED:
        return [_property("mappings", [_mapping(query.unit)])]
    found = [_property("unit", query.unit)]
    if query.steps is not None:
        found += [_property("thresholds", _steps(query.steps).build()), *_coloured()]
    return found


def _coloured() -> list[models.DynamicConfigValue]:
    return [_property("custom.cellOptions", {"type": "color-text"})]


def _property(name: str, value: Any) -> models.DynamicConfigValue:
    return models.DynamicConfigValue(id_val=name, value=value)


_BUILDERS: dict[str, Callable[[Panel], Built]] = {
    "stat": _stat,
    "graph": _graph,
    "bars": _bars,
    "states": _states,
    "heat": _heat,
    "table": _table,
}


def _panel(panel: Panel, kind: str, identity: int, place: models.GridPos) -> Built:
    built = _BUILDERS[kind](panel).id(identity).grid_pos(place).title(panel.title).description(panel.text)
    built = built.thresholds(_steps(panel.steps))
    if panel.unit in MAPPED:
        built = built.mappings([_mapping(panel.unit)])
    built = built.unit("short" if panel.unit in MAPPED else panel.unit)
    return built.datasource(SOURCE).no_value(panel.empty).targets(_targets(panel))


def _variable(name: str, query: str, *, everything: str = ".+") -> QueryVariable:
    variable: QueryVariable = (
        QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003 - the builder's signature
        .include_all(True)  # noqa: FBT003 - the builder's signature
        .all_value(everything)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )
    return variable


def _head() -> Dashboard:
    # Hidden, for `?var-cluster=NAME` and links; `.*`, because most scrapes have no such label.
    cluster = _variable("cluster", "label_values(ckptprof_build_info, cluster)", everything=".*")
    others: Built = DashboardLink("Other dashboards of ckptprof")
    others = (
        others.type(models.DashboardLinkType.DASHBOARDS)
        .tags(["ckptprof"])
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )
    board: Dashboard = (
        Dashboard("ckptprof: checkpoints of a node")
        .uid("ckptprof-node")
        .description("Every save and restore of training on a node, with the activity of the machine at that time.")
        .tags(["ckptprof", "checkpoint", "storage"])
        .editable()
        .time("now-6h", "now")
        .refresh("1m")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(others)
        .with_variable(DatasourceVariable("DS_PROMETHEUS").label("Data source").type("prometheus"))
        .with_variable(cluster.hide(models.VariableHide.HIDE_VARIABLE))
        .with_variable(_variable("job", 'label_values(ckptprof_build_info{cluster=~"$cluster"}, job)'))
        .with_variable(
            _variable("instance", 'label_values(ckptprof_build_info{cluster=~"$cluster",job=~"$job"}, instance)')
        )
    )
    return board


def _annotations() -> dict[str, Any]:
    """Return the marks of saves; the library lacks these fields of the data source."""
    saves = {
        "name": "Saves", "enable": False, "iconColor": SAVE_COLOUR, "expr": expression(SAVES), "useValueForTime": True,
        "datasource": {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}, "titleFormat": "save", "tagKeys": "instance",
        "textFormat": "A save on {{instance}} ended.",
    }  # fmt: skip
    return {"list": [saves]}


def _places(panels: tuple[Panel, ...], top: int) -> Iterator[tuple[Panel, models.GridPos]]:
    """Yield the position of each panel: from left to right, line by line."""
    left, bottom = 0, top
    for panel in panels:
        if left + panel.width > COLUMNS:
            left, top = 0, bottom
        yield panel, models.GridPos(x=left, y=top, w=panel.width, h=panel.height)
        left, bottom = left + panel.width, max(bottom, top + panel.height)


def build() -> str:
    """Return the dashboard's JSON as it is committed."""
    board = _head()
    identities = count(1)
    top = STAT_HEIGHT
    for number, panel in enumerate(STATS):
        width = COLUMNS // len(STATS)
        place = models.GridPos(x=number * width, y=0, w=width, h=STAT_HEIGHT)
        board = board.with_panel(_panel(panel, "stat", next(identities), place))
    for group in GROUPS:
        row = Row(group.title).id(next(identities)).grid_pos(models.GridPos(x=0, y=top, w=COLUMNS, h=ROW_HEIGHT))
        row = row.collapsed(group.closed)
        top += ROW_HEIGHT
        places = list(_places(group.panels, top))
        built = [_panel(panel, panel.kind, next(identities), place) for panel, place in places]
        if group.closed:  # its panels are part of the row
            for each in built:
                row = row.with_panel(each)
        board = board.with_row(row)
        if not group.closed:
            for each in built:
                board = board.with_panel(each)
            top = max(place.y + place.h for _, place in places)
    document = json.loads(JSONEncoder(sort_keys=True).encode(board.build()))
    document["annotations"] = _annotations()
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def main() -> int:
    """Write the dashboard, or with `--check` exit with 1 if it differs."""
    text = build()
    if sys.argv[1:] == ["--check"]:
        return 0 if OUTPUT.read_text(encoding="utf-8") == text else 1
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
