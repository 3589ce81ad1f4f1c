"""Monitor the whole host in the foreground and record every checkpoint, as the service does."""

from __future__ import annotations

from ckptprof.cli import options
from ckptprof.cli.shared import agent_settings

EXAMPLES = """
# As root: every job on this host, until Ctrl-C
ckptprof agent
# Without root: your own jobs, in a separate database, without /metrics
ckptprof agent --db mine.db --no-metrics
"""


def command(
    *,
    config: agent_settings.Config = None,
    db: options.Db = None,
    level: options.Level = "auto",
    listen: agent_settings.Listen = None,
    no_metrics: agent_settings.NoMetrics = False,
    metrics: agent_settings.Metrics = "full",
    job_names: agent_settings.JobNames = False,
    tls_cert: agent_settings.TlsCert = None,
    tls_key: agent_settings.TlsKey = None,
    client_ca: agent_settings.ClientCa = None,
    textfile: agent_settings.Textfile = None,
    web_config: agent_settings.WebConfig = None,
    rate: agent_settings.Rate = 10.0,
    cpu_budget: agent_settings.CpuBudget = 5.0,
    timeline_days: agent_settings.TimelineDays = 30,
    max_bytes: agent_settings.MaxBytes = 1 << 30,
) -> int:
    """Monitor the whole host in the foreground and record every checkpoint, as the service does.

    SIGTERM or Ctrl-C stores everything observed so far and ends it within 5 seconds; the next start reports what is
    still open. A second signal ends it at once.
    """
    del config, web_config  # config is merged into the other options; web_config is refused
    host, port = options.address(listen)
    from ckptprof.service.commands.agent_service import Agent, AgentOptions  # noqa: PLC0415 - `--help` needs none of it
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
            cpu_budget=cpu_budget / 100,
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
