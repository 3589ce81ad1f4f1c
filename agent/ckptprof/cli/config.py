"""Show each setting of the agent, its value, and where that comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ckptprof.cli import options, output
from ckptprof.cli.shared import settings

EXAMPLES = """
# Before a restart of the service
ckptprof config
# What an agent would do with an option of its own, for a script
ckptprof config --rate 5 --json
"""


def command(
    context: typer.Context,
    *,
    config: settings.ShownConfig = settings.FILE,
    db: options.Db = None,
    level: options.Level = "auto",
    rate: settings.Rate = 10.0,
    no_metrics: settings.NoMetrics = False,
    metrics: settings.Metrics = "full",
    job_names: settings.JobNames = False,
    listen: settings.Listen = None,
    tls_cert: settings.TlsCert = None,
    tls_key: settings.TlsKey = None,
    client_ca: settings.ClientCa = None,
    textfile: settings.Textfile = None,
    web_config: settings.WebConfig = None,
    timeline_days: settings.TimelineDays = 30,
    max_bytes: settings.MaxBytes = 1 << 30,
    json: options.Json = False,
) -> int:
    """Show each setting of the agent, its value, and where that comes from.

    It takes the options of `ckptprof agent` and reads the file of the service, so it shows what an agent does that is
    started like this. The environment is that of this shell: `systemctl show -p Environment ckptprof` tells that of the
    service. The files of TLS are checked, if this user may read them.
    """
    from ckptprof.export.listening import DEFAULT_PORT  # noqa: PLC0415 - `--help` needs none of them
    from ckptprof.report import document  # noqa: PLC0415
    from ckptprof.report import settings as rendering  # noqa: PLC0415
    from ckptprof.store.location import SERVICE_DATABASE, default_path, service_runs  # noqa: PLC0415

    del level, rate, metrics, job_names, textfile, timeline_days, max_bytes  # are taken from the context
    del web_config  # is refused
    if not no_metrics:
        settings.check_served(listen, tls_cert, tls_key, client_ca)
    texts = {
        "db": str(default_path()) if db is None else db,
        "listen": f"127.0.0.1:{DEFAULT_PORT}",
    }  # where nothing is given
    values: dict[str, Any] = {name: context.params[name] for name in ("db", *settings.TYPES)}
    values = {name: texts.get(name) if value is None else value for name, value in values.items()}
    shown = rendering.Settings(
        file=str(config),
        found=config.exists(),
        settings=tuple(
            rendering.Setting(name, str(value) if isinstance(value, Path) else value, _source(context, name))
            for name, value in values.items()
        ),
    )
    service_db = str(SERVICE_DATABASE) if service_runs() and values["db"] != str(SERVICE_DATABASE) else None
    output.write(document.dump(document.of(shown)) if json else rendering.render(shown, service_db))
    return 0


def _source(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    known = {"COMMANDLINE": "option", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}
    return known.get(source.name, "default") if source is not None else "default"
