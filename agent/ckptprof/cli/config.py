"""Show each setting of the agent, its value and its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ckptprof.cli import options, output
from ckptprof.cli.shared import agent_settings

EXAMPLES = """
# Before a restart of the service
ckptprof config
# With an option of `ckptprof agent`, for a script
ckptprof config --rate 5 --json
"""


def command(
    context: typer.Context,
    *,
    config: agent_settings.ShownConfig = agent_settings.FILE,
    db: options.Db = None,
    level: options.Level = "auto",
    rate: agent_settings.Rate = 10.0,
    cpu_budget: agent_settings.CpuBudget = 5.0,
    no_metrics: agent_settings.NoMetrics = False,
    metrics: agent_settings.Metrics = "full",
    job_names: agent_settings.JobNames = False,
    listen: agent_settings.Listen = None,
    tls_cert: agent_settings.TlsCert = None,
    tls_key: agent_settings.TlsKey = None,
    client_ca: agent_settings.ClientCa = None,
    textfile: agent_settings.Textfile = None,
    web_config: agent_settings.WebConfig = None,
    timeline_days: agent_settings.TimelineDays = 30,
    max_bytes: agent_settings.MaxBytes = 1 << 30,
    json: options.Json = False,
) -> int:
    """Show each setting of the agent, its value and its source.

    It takes the options of `ckptprof agent` and reads the service's settings file, so it shows the settings of an agent
    started the same way. The environment is that of this shell; `systemctl show -p Environment ckptprof` shows that of
    the service. TLS files are checked if this user may read them.
    """
    from ckptprof.export.listening import DEFAULT_PORT  # noqa: PLC0415 - `--help` needs none of them
    from ckptprof.report import document  # noqa: PLC0415
    from ckptprof.report import settings as rendering  # noqa: PLC0415
    from ckptprof.store.location import SERVICE_DATABASE, default_path, is_service_running  # noqa: PLC0415

    del level, rate, cpu_budget, metrics, job_names, textfile, timeline_days, max_bytes  # read from the context
    del web_config  # always refused
    if not no_metrics:
        agent_settings.check_served(listen, tls_cert, tls_key, client_ca)
    texts = {
        "db": str(default_path()) if db is None else db,
        "listen": f"127.0.0.1:{DEFAULT_PORT}",
    }  # defaults
    values: dict[str, Any] = {name: context.params[name] for name in ("db", *agent_settings.TYPES)}
    values = {name: texts.get(name) if value is None else value for name, value in values.items()}
    shown = rendering.Settings(
        file=str(config),
        found=config.exists(),
        settings=tuple(
            rendering.Setting(name, str(value) if isinstance(value, Path) else value, _source(context, name))
            for name, value in values.items()
        ),
    )
    service_db = str(SERVICE_DATABASE) if is_service_running() and values["db"] != str(SERVICE_DATABASE) else None
    output.write(document.dump(document.to_document(shown)) if json else rendering.render(shown, service_db))
    return 0


def _source(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    names = {"COMMANDLINE": "option", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}
    return names.get(source.name, "default") if source is not None else "default"
