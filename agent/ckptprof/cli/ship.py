"""Ship what is recorded here to a PostgreSQL server, where one report tells all nodes."""

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
# On each node, for ever, with the names of jobs and paths; the unit ckptprof-ship.service does this
ckptprof ship --to postgresql+psycopg://node-17@db.example/ckptprof --names
# What there is now, as a cron job would
ckptprof ship --once --to postgresql+psycopg://node-17@db.example/ckptprof --password-file /etc/ckptprof/password
# As log records to a collector of OpenTelemetry
ckptprof ship --to https://otel.example:4318
"""
To = Annotated[
    str,
    options.given(
        "--to",
        "URL",
        "The server: postgresql+psycopg://ROLE@HOST/DATABASE, without a password; or https://HOST:PORT, a "
        "collector of OpenTelemetry.",
        envvar="CKPTPROF_SHIP_TO",
    ),
]
PasswordFile = Annotated[
    Path | None,
    options.given(
        "--password-file",
        "FILE",
        "A file that its owner alone may read, whose first line is the password, or the token of a collector. "
        "Default: the credential ckptprof-password of systemd, else ~/.pgpass.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Send what there is now, and end.")]
Names = Annotated[
    bool,
    typer.Option(
        "--names", envvar="CKPTPROF_SHIP_NAMES",
        help="Send names of jobs, runs, paths and processes, and sentences that may have them, as they are.",
    )
]  # fmt: skip
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Make the tables and roles on the server, or bring them up to date, and end.")
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
    """Ship what is recorded here to a PostgreSQL server, where one report tells all nodes.

    It reads the database of this node and sends each checkpoint, and again when more becomes known: some time in
    the two minutes after, and not while the agent sees one being written here. It may be killed at any time: nothing is
    lost, and nothing is there twice. A server that is away is tried again, at most a quarter of an hour later.

    Without --names a hash stands in the place of names, and sentences are left out. Host names are sent.

    The server is verified by TLS (sslmode=verify-full, by the host's authorities or ?sslrootcert=FILE), unless it is
    asked over a socket of this host. A password is read from a file or from systemd's credentials, never from the URL
    or the environment; without one the server may ask for a client's certificate (?sslcert=FILE&sslkey=FILE).

    A collector of OpenTelemetry gets a log record for each revision of a checkpoint (OTLP over HTTP, as JSON), perhaps
    twice: the largest ckptprof.revision of each ckptprof.uid counts. How far it was sent is kept in a file beside your
    database, or in the state directory of the unit.
    """
    from ckptprof.store.fleet.target import target_of  # noqa: PLC0415 # `--help` needs none of these
    from ckptprof.store.location import path_to_read, to_path  # noqa: PLC0415

    if once and prepare:
        raise UsageError("--once and --prepare are two things", hint="prepare the server first")
    if prepare:
        from ckptprof.store.fleet.connecting import connected  # noqa: PLC0415
        from ckptprof.store.fleet.steps import migrate  # noqa: PLC0415

        with connected(target_of(to), password_file) as connection:
            number = migrate(connection)
        output.write(f"{to} is ready for nodes: schema {number}\n")
        return
    from ckptprof.service.commands.systemd import Notifier  # noqa: PLC0415
    from ckptprof.service.shipping.collector import is_collector, to_collector  # noqa: PLC0415
    from ckptprof.service.shipping.shipper import Shipper, to_server  # noqa: PLC0415
    from ckptprof.service.title import set_title  # noqa: PLC0415

    way = to_collector(to, password_file) if is_collector(to) else to_server(target_of(to), password_file)
    shipper = Shipper(path_to_read() if db is None else to_path(db), way, names=names)
    if once:
        found = shipper.send()
        output.write(f"{found.events} checkpoint updates sent\n")
        return
    set_title("shipper")
    notifier = Notifier()
    notifier.ready("waiting for the first turn")
    shipper.run(
        tell=notifier.status,
        complain=lambda line: output.write(f"ckptprof: {line}\n", sys.stderr),
        beat=notifier.watchdog,
    )
