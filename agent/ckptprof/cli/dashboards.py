"""Write the Grafana dashboard, its provisioning file and the Prometheus alert rules into a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

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
_FILES = ("ckptprof-node.json", "grafana-provider.yml", "rules/ckptprof.rules.yml")
_RUNBOOKS = "docs/runbooks.md"  # in the rules: a path in the repository

Out = Annotated[str, options.option("--output", "DIR", "An existing folder.", short="-o")]
Runbooks = Annotated[
    str, options.option("--runbooks", "URL", "Where alerts link to: your copy of docs/runbooks.md, with its anchors.")
]


def command(*, out: Out = ".", runbooks: Runbooks = _RUNBOOKS, force: html_option.Force = False) -> None:
    """Write the Grafana dashboard, its provisioning file and the Prometheus alert rules into a folder.

    Import the dashboard into Grafana 11 or newer, or let its provisioning file read the folder. Prometheus reads the
    rules by `rule_files`.
    """
    is_page = runbooks.startswith(("http://", "https://")) and not any(c.isspace() or c in "'\"#" for c in runbooks)
    if runbooks != _RUNBOOKS and not is_page:
        raise UsageError(
            f"--runbooks {runbooks!r} is not the address of a page", hint="https://wiki.example.org/runbooks"
        )
    folder = Path(out).absolute()
    for name in _FILES:
        text = asset(f"dashboards/{name}").read_text(encoding="utf-8")
        text = text.replace("path: DIRECTORY", f"path: {json.dumps(str(folder))}")
        path = str(folder / Path(name).name)
        with html_option.create_file(path, force=force) as file:
            file.write(text.replace(f"runbook_url: {_RUNBOOKS}#", f"runbook_url: {runbooks}#").encode())
        output.write(f"{clean(path)}\n")
