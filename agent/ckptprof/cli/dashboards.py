"""Write the Grafana dashboards, their provisioning file and the Prometheus alert rules into a folder."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

from ckptprof.assets import asset
from ckptprof.cli import options, output
from ckptprof.cli.shared import html_option
from ckptprof.errors import UsageError
from ckptprof.report.clean import clean

EXAMPLES = """
# Into this folder
ckptprof dashboards
# Into the folder that Grafana reads, with alerts that link to your own copy of the runbooks
ckptprof dashboards -o /var/lib/grafana/dashboards --runbooks https://wiki.example.org/runbooks
"""
_BOARDS = ("fleet", "node", "job")
_PROVISIONED, _IMPORTED = "provisioned", "import"  # folders: Grafana takes a board with a uid once
_SOURCE = "PROMETHEUS"  # the input: the data source that whoever imports a board chooses
_RUNBOOKS = "docs/runbooks.md"  # in the rules: a path in the repository

Out = Annotated[str, options.option("--output", "DIR", "The folder, which is made if it is missing.", short="-o")]
Runbooks = Annotated[
    str, options.option("--runbooks", "URL", "Where alerts link to: your copy of docs/runbooks.md, with its anchors.")
]


def command(*, out: Out = ".", runbooks: Runbooks = _RUNBOOKS, force: html_option.Force = False) -> None:
    """Write the Grafana dashboards, their provisioning file and the Prometheus alert rules into a folder.

    The dashboards of a fleet, a node and a job are for Grafana 11 or newer: import those in the folder `import`, or put
    the provisioning file where Grafana reads it; it names the folder `provisioned`. Prometheus reads the rules by
    `rule_files`.
    """
    is_page = runbooks.startswith(("http://", "https://")) and not any(c.isspace() or c in "'\"#" for c in runbooks)
    if runbooks != _RUNBOOKS and not is_page:
        raise UsageError(
            f"--runbooks {runbooks!r} is not the address of a page", hint="https://wiki.example.org/runbooks"
        )
    folder = Path(out).absolute()
    provider, rules = _asset("grafana-provider.yml"), _asset("rules/ckptprof.rules.yml")
    texts = {
        "grafana-provider.yml": provider.replace("path: DIRECTORY", f"path: {json.dumps(str(folder / _PROVISIONED))}"),
        "ckptprof.rules.yml": rules.replace(f"runbook_url: {_RUNBOOKS}#", f"runbook_url: {runbooks}#"),
    }
    for board in _BOARDS:
        name = f"ckptprof-{board}.json"
        texts[f"{_PROVISIONED}/{name}"] = _asset(name)
        texts[f"{_IMPORTED}/{name}"] = importable(_asset(name))
    with contextlib.suppress(OSError):  # `create_file` names it
        for name in (_PROVISIONED, _IMPORTED):
            (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = str(folder / name)
        with html_option.create_file(path, force=force) as file:
            file.write(text.encode())
        output.write(f"{clean(path)}\n")


def _asset(name: str) -> str:
    return asset(f"dashboards/{name}").read_text(encoding="utf-8")


def importable(text: str) -> str:
    """Return a dashboard that makes Grafana ask for its data source when it is imported."""
    board: dict[str, Any] = json.loads(text)
    panels = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", ()))]
    kinds = sorted({panel["type"] for panel in panels} - {"row"})
    required = [{"type": "grafana", "id": "grafana", "name": "Grafana", "version": "11.0.0"}]
    required += [{"type": "panel", "id": kind, "name": kind, "version": ""} for kind in kinds]
    prometheus = {"name": "Prometheus", "type": "datasource"}
    required.append({**prometheus, "id": "prometheus", "version": "1.0.0"})
    source = {
        **prometheus,
        "name": _SOURCE,
        "label": "Prometheus",
        "pluginId": "prometheus",
        "pluginName": "Prometheus",
    }
    (variable,) = (one for one in board["templating"]["list"] if one["type"] == "datasource")
    chosen = f"${{{_SOURCE}}}"
    variable["current"] = {"selected": True, "text": chosen, "value": chosen}
    board |= {"__inputs": [source], "__requires": required}
    return json.dumps(board, indent=2, sort_keys=True) + "\n"
