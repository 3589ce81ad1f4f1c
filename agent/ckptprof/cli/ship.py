"""Ship recorded checkpoints to a PostgreSQL server, where one report covers all nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ckptprof.cli import options, output
from ckptprof.errors import UsageError

EXAMPLES = """
# Once, by the owner of the database: its tables, and the roles for nodes and readers
ckptprof ship --prepare --to postgresql+psycopg://owner@db.example/ckptprof
# On each node, continuously, with names of jobs and paths; the unit ckptprof-ship.service does this
ckptprof ship --to postgresql+psycopg://node-17@db.example/ckptprof --names
# Once, for a cron job
ckptprof ship --once --to postgresql+psycopg://node-17@db.example/ckptprof --password-file /etc/ckptprof/password
# As log records to an OpenTelemetry collector
ckptprof ship --to https://otel.example:4318
"""
To = Annotated[
    str,
    options.option(
        "--to",
        "URL",
        "The server: postgresql+psycopg://ROLE@HOST/DATABASE, without a password; or https://HOST:PORT, an "
        "OpenTelemetry collector.",
        envvar="CKPTPROF_SHIP_TO",
    ),
]
PasswordFile = Annotated[
    Path | None,
    options.option(
        "--password-file",
        "FILE",
        "A file readable only by its owner; its first line is the password, or the token of a collector. "
        "Default: the systemd credential ckptprof-password, else ~/.pgpass.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Send what is recorded now, then exit.")]
Names = Annotated[
    bool,
    typer.Option(
        "--names", envvar="CKPTPROF_SHIP_NAMES",
        help="Send names of jobs, runs, paths and processes, and sentences that contain them, in clear text.",
    )
]  # fmt: skip
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Create or update the tables and roles on the server, then exit.")
]


def command(
    *,
    to: To,
    db: options.Db = None,
    password_file: PasswordFile = None,
    names: Names = False,
    once: Once = False,
    prepare: Prepare = False,
) -> None:
    """Ship recorded checkpoints to a PostgreSQL server, where one report covers all nodes.

    It reads the database of this node and sends each checkpoint, and each change of its record, within two minutes; it
    waits while a checkpoint is being written here. It may be killed at any time: no checkpoint is lost or duplicated.
    If the server is unreachable, it retries after at most 15 minutes.

    Without --names, names are hashed and sentences are omitted. Host names are sent.

    The server is verified by TLS (sslmode=verify-full, with the host's authorities or ?sslrootcert=FILE), unless it is
    reached over a local socket. A password is read from a file or a systemd credential, never from the URL or the
    environment; without one, the server may require a client certificate (?sslcert=FILE&sslkey=FILE).

    An OpenTelemetry collector gets one log record for each revision of a checkpoint (OTLP over HTTP, JSON), possibly
    twice: use the largest ckptprof.revision of each ckptprof.uid. The position is stored in a file next to your
    database, or in the state directory of the unit.
    """
    from ckptprof.store.fleet.target import parse_target  # noqa: PLC0415 # `--help` needs none of these
    from ckptprof.store.location import path_of_database, path_to_read  # noqa: PLC0415

    if once and prepare:
        raise UsageError("--once and --prepare cannot be combined", hint="prepare the server first")
    if prepare:
        from ckptprof.store.fleet.server_connection import connected  # noqa: PLC0415
        from ckptprof.store.fleet.server_migrations import migrate  # noqa: PLC0415

        with connected(parse_target(to), password_file) as connection:
            number = migrate(connection)
        output.write(f"{to} is ready for nodes: schema {number}\n")
        return
    from ckptprof.service.commands.systemd import Notifier  # noqa: PLC0415
    from ckptprof.service.shipping.otlp_collector import is_collector, to_collector  # noqa: PLC0415
    from ckptprof.service.shipping.shipper import Shipper, to_server  # noqa: PLC0415
    from ckptprof.service.title import set_title  # noqa: PLC0415

    way = to_collector(to, password_file) if is_collector(to) else to_server(parse_target(to), password_file)
    shipper = Shipper(path_to_read() if db is None else path_of_database(db), way, names=names)
    if once:
        found = shipper.send()
        output.write(f"{found.events} checkpoint updates sent\n")
        return
    set_title("shipper")
    notifier = Notifier()
    notifier.ready("waiting for the first transfer")
    shipper.run(
        on_status=notifier.status,
        warn=lambda line: output.write(f"ckptprof: {line}\n", sys.stderr),
        beat=notifier.watchdog,
    )
