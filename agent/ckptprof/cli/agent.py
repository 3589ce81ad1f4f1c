"""Watch the whole host in the foreground and record every checkpoint, as the service does."""

from __future__ import annotations

from typing import Annotated

import typer

from ckptprof.cli import options

EXAMPLES = """
# As root: every job on this host, until Ctrl-C
ckptprof agent
# Without root: your own jobs, in a database of their own, and no /metrics
ckptprof agent --db mine.db --no-metrics
"""
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        envvar="CKPTPROF_LISTEN",
        metavar="HOST:PORT",
        help="The address that serves /metrics. Default: 127.0.0.1:12578.",
        show_default=False,
    ),
]
NoMetrics = Annotated[bool, typer.Option("--no-metrics", help="Do not serve /metrics.")]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        metavar="HZ",
        parser=options.between("--rate", 0.5, 100),
        help="How often to read the processes that train, per second; 2.5 times as often while one moves data.",
    ),
]
FixedRate = Annotated[bool, typer.Option("--fixed-rate", help="Keep that rate for everything, always.", hidden=True)]


def command(
    *,
    db: options.Db = None,
    level: options.Level = "auto",
    listen: Listen = None,
    no_metrics: NoMetrics = False,
    rate: Rate = 10.0,
    fixed_rate: FixedRate = False,
) -> int:
    """Watch the whole host in the foreground and record every checkpoint, as the service does.

    It stores everything seen so far and ends on SIGTERM or Ctrl-C; a second signal ends it at once.
    """
    host, port = options.address(listen)
    from ckptprof.service.commands.watch import Agent, AgentOptions  # noqa: PLC0415 - `--help` needs none of it
    from ckptprof.store.location import default_path  # noqa: PLC0415

    agent = Agent(
        AgentOptions(
            db=default_path() if db is None else db,
            host=host,
            port=port,
            serve=not no_metrics,
            base_hz=rate,
            burst_hz=min(100.0, 2.5 * rate),
            fixed_rate=fixed_rate,
            level=level,
        )
    )
    return 0 if agent.run() else 1
