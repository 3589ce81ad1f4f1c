"""Watch the whole host in the foreground and record every checkpoint, as the service does."""

from __future__ import annotations

from ckptprof.cli import options
from ckptprof.cli.shared import settings

EXAMPLES = """
# As root: every job on this host, until Ctrl-C
ckptprof agent
# Without root: your own jobs, in a database of their own, and no /metrics
ckptprof agent --db mine.db --no-metrics
"""


def command(
    *,
    config: settings.Config = None,
    db: options.Db = None,
    level: options.Level = "auto",
    listen: settings.Listen = None,
    no_metrics: settings.NoMetrics = False,
    metrics: settings.Metrics = "full",
    job_names: settings.JobNames = False,
    tls_cert: settings.TlsCert = None,
    tls_key: settings.TlsKey = None,
    client_ca: settings.ClientCa = None,
    textfile: settings.Textfile = None,
    web_config: settings.WebConfig = None,
    rate: settings.Rate = 10.0,
    timeline_days: settings.TimelineDays = 30,
    max_bytes: settings.MaxBytes = 1 << 30,
) -> int:
    """Watch the whole host in the foreground and record every checkpoint, as the service does.

    It stores everything seen so far and ends on SIGTERM or Ctrl-C; a second signal ends it at once.
    """
    del config, web_config  # the other options have taken what the one says; the other is refused
    host, port = options.address(listen)
    from ckptprof.service.commands.watch import Agent, AgentOptions  # noqa: PLC0415 - `--help` needs none of it
    from ckptprof.store.location import default_path  # noqa: PLC0415

    agent = Agent(
        AgentOptions(
            db=default_path() if db is None else db,
            host=host,
            port=port,
            serve=not no_metrics,
            job_names=job_names,
            minimal=metrics == "minimal",
            base_hz=rate,
            burst_hz=min(100.0, 2.5 * rate),
            level=level,
            tls_cert=tls_cert,
            tls_key=tls_key,
            client_ca=client_ca,
            textfile=textfile,
            timeline_days=timeline_days,
            max_bytes=max_bytes,
        )
    )
    return 0 if agent.run() else 1
