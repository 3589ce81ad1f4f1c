"""Make the schema of Grafana's dashboards from its own types, by hand: `python tests/dashboards/grafana_schema.py`.

It needs npm and its registry: @grafana/schema has the types in TypeScript, ts-json-schema-generator makes a JSON schema
of them. Each object is closed, and options and fields of a panel are those of its kind.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).resolve().parents[1] / "fixtures/grafana/dashboard-11.6.json"
PACKAGES = ("@grafana/schema@11.6.0", "ts-json-schema-generator@1.5.1")
RAW = "./node_modules/@grafana/schema/dist/esm/raw"
KINDS = {"stat": "Stat", "timeseries": "TimeSeries", "bargauge": "BarGauge", "state-timeline": "StateTimeline",
         "heatmap": "Heatmap", "table": "Table"}  # fmt: skip
WITHOUT_FIELDS = ("stat", "bargauge")
TYPES = """
type Of<T extends string, O, C> = Omit<raw.Panel, 'type' | 'options' | 'fieldConfig'> & {
  type: T; options?: Partial<O>;
  fieldConfig?: {
    defaults: Omit<raw.FieldConfig, 'custom'> & { custom?: Partial<C> }; overrides: raw.FieldConfigSource['overrides'];
  };
};
type Row = Omit<raw.RowPanel, 'panels'> & { panels: AnyPanel[] };
export type Board = Omit<raw.Dashboard, 'panels'> & { panels: Array<AnyPanel | Row> };
"""
NOT_CHECKED = {"$comment", "default", "deprecated", "description", "examples"}


def source() -> str:
    """Return the types of a dashboard with these kinds of panels."""
    lines = [f"import * as raw from '{RAW}/dashboard/x/dashboard_types.gen';"]
    panels = []
    for kind, name in KINDS.items():
        module = kind.replace("-", "")
        lines.append(f"import * as {module} from '{RAW}/composable/{module}/panelcfg/x/{name}PanelCfg_types.gen';")
        fields = "{}" if kind in WITHOUT_FIELDS else f"{module}.FieldConfig"
        panels.append(f"Of<'{kind}', {module}.Options, {fields}>")
    return "\n".join([*lines, f"type AnyPanel = {' | '.join(panels)};", TYPES])


def checked(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without its descriptions; `names`: its keys are names of properties."""
    if isinstance(schema, dict):
        return {
            key: checked(value, names=key in ("properties", "definitions") and not names)
            for key, value in schema.items()
            if names or key not in NOT_CHECKED
        }
    return [checked(each) for each in schema] if isinstance(schema, list) else schema


def main() -> None:
    """Write the schema."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "board.ts").write_text(source(), encoding="utf-8")
        (Path(directory) / "package.json").write_text("{}", encoding="utf-8")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *PACKAGES], cwd=directory, check=True)
        options = ["--path", "board.ts", "--type", "Board", "--no-type-check"]
        done = subprocess.run(
            ["npx", "ts-json-schema-generator", *options], cwd=directory, check=True, stdout=subprocess.PIPE
        )
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(
        json.dumps(checked(json.loads(done.stdout)), separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
