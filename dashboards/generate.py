"""Generates the Grafana dashboards: `python dashboards/generate.py`, or `--check` to compare only.

Their content is in `fleet_board.py`, `node_board.py` and `job_board.py`. The library is pinned to Grafana 11.6
(pyproject.toml): its version on PyPI has an epoch per Grafana release, and an unpinned install gets the oldest one. It
leaves panel ids to the caller.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import fleet_board
import job_board
import node_board
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
from queries import LIMITS, Board, Panel, Query

BOARDS = (fleet_board.BOARD, node_board.BOARD, job_board.BOARD)
FOLDER = Path(__file__).resolve().parent
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${DS_PROMETHEUS}")
COLUMNS = 24
STAT_HEIGHT = 4
ROW_HEIGHT = 1
SAVE_COLOUR = "#5794f2"
GOOD, WATCH, BAD = "green", "#e0a020", "red"
# The values are times: one mark for each save, at its end.
SAVES = 'ckptprof_last_checkpoint_timestamp_seconds{NODE,kind="save"} * 1000'
Built = Any  # a builder; the library types members of enums as str, and most methods not at all
MAPPED = {
    "limit": {str(number): shown for number, shown in enumerate(LIMITS.values())},
    "level": {"-1": ("silent", WATCH), "0": ("poll", "#808080"), "1": ("trace", "#1da417")},
}


def _targets(board: Board, panel: Panel) -> list[Dataquery]:
    targets = []
    for number, query in enumerate(panel.queries):
        target = Dataquery().expr(board.expression(query.text)).legend_format(query.legend).ref_id(_letter(number))
        target = target.instant() if panel.kind in {"stat", "bars", "table"} else target.range()
        if panel.kind == "table":
            target = target.format(PromQueryFormat.TABLE)
        if panel.kind == "heat":
            target = target.format(PromQueryFormat.HEATMAP)
        targets.append(target)
    return targets


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _steps(steps: tuple[float, ...] | None) -> Built:
    places = zip((None, *(steps or ())), (GOOD, WATCH, BAD), strict=False)
    return ThresholdsConfig().steps([models.Threshold(value=value, color=colour) for value, colour in places])


def _mapping(unit: str) -> models.ValueMap:
    each = {key: models.ValueMappingResult(text=text, color=colour) for key, (text, colour) in MAPPED[unit].items()}
    return models.ValueMap(options=each)


def _colour(mode: Any, fixed: str | None = None) -> Built:
    colour: Built = FieldColor().mode(mode)
    return colour.fixed_color(fixed) if fixed else colour


def _stat(_: Board, panel: Panel) -> Built:
    built: Built = stat.Panel()
    if len(panel.queries) > 1 or "{{" in panel.queries[0].legend:
        built = built.text_mode(BigValueTextMode.VALUE_AND_NAME)
    built = built.graph_mode(BigValueGraphMode.NONE).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    for query in panel.queries:
        if query.steps is not None:
            colour = [_property("color", {"mode": "thresholds"}), _property("thresholds", _steps(query.steps).build())]
            unit = [_property("unit", query.unit)] if query.unit else []
            built = built.override_by_name(query.legend, [*colour, *unit])
    by_steps = _colour(models.FieldColorModeId.THRESHOLDS)  # without any, a value is neither good nor bad
    return built.color_scheme(by_steps if panel.steps else _colour(models.FieldColorModeId.FIXED, "text"))


def _graph(_: Board, panel: Panel) -> Built:
    built: Built = timeseries.Panel()
    built = built.color_scheme(_colour(models.FieldColorModeId.PALETTE_CLASSIC))
    built = built.min(0).draw_style(GraphDrawStyle.LINE).fill_opacity(10)
    if panel.holds:
        built = built.line_interpolation(LineInterpolation.STEP_AFTER)
    if panel.maximum is not None:
        built = built.max(panel.maximum)
    if panel.steps is not None:
        dashed: Built = common.GraphThresholdsStyleConfig()
        built = built.thresholds_style(dashed.mode(GraphThresholdsStyleMode.DASHED_AND_AREA))
    return built


def _bars(_: Board, panel: Panel) -> Built:
    built: Built = bargauge.Panel()
    built = built.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    built = built.orientation(VizOrientation.HORIZONTAL).min(0).display_mode(BarGaugeDisplayMode.BASIC)
    wide = panel.width > COLUMNS // 4  # enough space for names beside the bars
    built = built.name_placement(BarGaugeNamePlacement.LEFT if wide else BarGaugeNamePlacement.TOP)
    by_steps = _colour(models.FieldColorModeId.THRESHOLDS) if panel.steps else None
    fixed_colour = by_steps or _colour(models.FieldColorModeId.FIXED, SAVE_COLOUR)
    built = built.show_unfilled(show_unfilled=False).color_scheme(fixed_colour)
    if panel.unit == "short":
        built = built.decimals(0)
    for limit, (word, colour) in LIMITS.items() if "limit_seconds" in panel.queries[0].text else ():
        fixed = _property("color", {"mode": "fixed", "fixedColor": colour})
        built = built.override_by_name(limit, [fixed, _property("displayName", word)])
    return built


def _states(_: Board, __: Panel) -> Built:
    built: Built = statetimeline.Panel()
    return built.show_value(VisibilityMode.AUTO).fill_opacity(100).merge_values(merge_values=True)


def _heat(_: Board, panel: Panel) -> Built:
    built: Built = heatmap.Panel()
    built = built.calculate(calculate=False).y_axis(heatmap.YAxisConfig().unit(panel.unit))
    built = built.cell_values(heatmap.CellValues().unit("short").decimals(0))
    colours: Built = heatmap.HeatmapColorOptions()
    colours = colours.mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32).exponent(0.5)
    return built.color(colours).filter_values(heatmap.FilterValueRange().le(0.01)).show_legend()


def _table(board: Board, panel: Panel) -> Built:
    """Return a table with a line for each common label value: a node, or a job on it."""
    names = {f"Value #{_letter(number)}": query.legend for number, query in enumerate(panel.queries)}
    hidden = ["Time", "Value", *(value for value, name in names.items() if not name)]
    shown = {value: name for value, name in names.items() if name} | {"instance": "node", "alertname": "alert"}
    order = ["alertname", "severity", "instance", "run", "Value #A", "Value #B", "Value #C", "Value #D", "limit"]
    order += ["confidence", "storage", "training_job", "framework", "ranks"]
    options = {"excludeByName": dict.fromkeys(hidden, True), "renameByName": shown,
               "indexByName": {name: place for place, name in enumerate(order)}}  # fmt: skip
    built: Built = table.Panel()
    built = built.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    built = built.with_transformation(models.DataTransformerConfig(id_val="organize", options=options))
    if panel.queries[0].legend:
        built = built.sort_by([common.TableSortByFieldState().display_name(panel.queries[0].legend).desc(desc=True)])
    for column, variable, uid in (("node", "instance", "ckptprof-node"), ("run", "run", "ckptprof-job")):
        kept = (name for name in ("DS_PROMETHEUS", "cluster", *dict(board.variables)) if name != variable)
        url = "&".join([f"/d/{uid}?var-{variable}=${{__value.raw}}", *(f"${{{name}:queryparam}}" for name in kept)])
        link = {"title": f"this {column} alone", "url": f"{url}&${{__url_time_range}}"}
        built = built.override_by_name(column, [models.DynamicConfigValue(id_val="links", value=[link])])
    built = built.override_by_name("limit", [_property("mappings", [_by_name()]), *_coloured()])
    for query in panel.queries:
        if query.unit is not None:
            built = built.override_by_name(query.legend, _column(query))
    return built


def _by_name() -> models.ValueMap:
    return models.ValueMap(options={n: models.ValueMappingResult(text=w, color=c) for n, (w, c) in LIMITS.items()})


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


_BUILDERS: dict[str, Callable[[Board, Panel], Built]] = {
    "stat": _stat,
    "graph": _graph,
    "bars": _bars,
    "states": _states,
    "heat": _heat,
    "table": _table,
}


def _panel(board: Board, panel: Panel, kind: str, identity: int, place: models.GridPos) -> Built:
    built = _BUILDERS[kind](board, panel).id(identity).grid_pos(place).title(panel.title).description(panel.text)
    built = built.thresholds(_steps(panel.steps))
    if panel.unit in MAPPED:
        built = built.mappings([_mapping(panel.unit)])
    built = built.unit("short" if panel.unit in MAPPED else panel.unit)
    return built.datasource(SOURCE).no_value(panel.empty).targets(_targets(board, panel))


def _variable(name: str, query: str, everything: str) -> QueryVariable:
    variable: QueryVariable = (
        QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003 - the builder's signature
        .include_all(True)  # noqa: FBT003 - the builder's signature
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )
    return variable.all_value(everything) if everything else variable


def _variables(board: Board) -> Iterator[QueryVariable]:
    # Hidden, for `?var-cluster=NAME` and links; `.*`, because most scrapes have no such label.
    cluster = _variable("cluster", "label_values(ckptprof_build_info, cluster)", ".*")
    yield cluster.hide(models.VariableHide.HIDE_VARIABLE)
    before = ["cluster"]
    for name, series in board.variables:
        matchers = ",".join(f'{one}=~"${one}"' for one in before)
        # All nodes of a run are those that have it: their names, instead of any.
        everything = "" if name == "instance" and "run" in before else ".+"
        yield _variable(name, f"label_values({series}{{{matchers}}}, {name})", everything)
        before.append(name)


def _head(board: Board) -> Dashboard:
    others: Built = DashboardLink("Other dashboards of ckptprof")
    others = (
        others.type(models.DashboardLinkType.DASHBOARDS)
        .tags(["ckptprof"])
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )
    built: Dashboard = (
        Dashboard(board.title)
        .uid(board.uid)
        .description(board.text)
        .tags(["ckptprof", "checkpoint", "storage"])
        .editable()
        .time("now-6h", "now")
        .refresh("1m")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(others)
        .with_variable(DatasourceVariable("DS_PROMETHEUS").label("Data source").type("prometheus"))
    )
    for variable in _variables(board):
        built = built.with_variable(variable)
    return built


def _annotations(board: Board) -> dict[str, Any]:
    """Return the marks of saves; the library lacks these fields of the data source."""
    saves = {
        "name": "Saves", "enable": False, "iconColor": SAVE_COLOUR, "expr": board.expression(SAVES),
        "useValueForTime": True,
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


def build(board: Board) -> str:
    """Return a dashboard's JSON as it is committed."""
    built = _head(board)
    identities = count(1)
    top = STAT_HEIGHT
    for number, panel in enumerate(board.stats):
        width = COLUMNS // len(board.stats)
        place = models.GridPos(x=number * width, y=0, w=width, h=STAT_HEIGHT)
        built = built.with_panel(_panel(board, panel, "stat", next(identities), place))
    for group in board.groups:
        row = Row(group.title).id(next(identities)).grid_pos(models.GridPos(x=0, y=top, w=COLUMNS, h=ROW_HEIGHT))
        row = row.collapsed(group.closed)
        top += ROW_HEIGHT
        places = list(_places(group.panels, top))
        shown = [_panel(board, panel, panel.kind, next(identities), place) for panel, place in places]
        if group.closed:  # its panels are part of the row
            for each in shown:
                row = row.with_panel(each)
        built = built.with_row(row)
        if not group.closed:
            for each in shown:
                built = built.with_panel(each)
            top = max(place.y + place.h for _, place in places)
    document = json.loads(JSONEncoder(sort_keys=True).encode(built.build()))
    for variable in document["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min"):  # of intervals; the library writes them into all
            variable.pop(name, None)
    document["annotations"] = _annotations(board)
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def main() -> int:
    """Write the dashboards, or with `--check` exit with 1 if one differs."""
    texts = {FOLDER / f"{board.uid}.json": build(board) for board in BOARDS}
    if sys.argv[1:] == ["--check"]:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in texts.items()))
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
