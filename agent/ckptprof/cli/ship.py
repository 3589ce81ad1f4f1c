"""Ship recorded checkpoints to a folder or a bucket, where `ckptprof fleet` covers all nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof import units
from ckptprof.cli import options, output
from ckptprof.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckptprof.model import Checkpoint
    from ckptprof.service.shipping.shipper import ShippingState, Target

EXAMPLES = """
# To a bucket, or to a folder on a shared file system; the timer of ckptprof-ship.service does this
ckptprof ship --to s3://bucket/ckptprof
ckptprof ship --to /shared/ckptprof --hash-names /etc/ckptprof/site-key
# What was shipped, and what was not
ckptprof ship --to s3://bucket/ckptprof --status
# As log records to an OpenTelemetry collector
ckptprof ship --to https://otel.example:4318
"""
To = Annotated[
    str,
    options.option(
        "--to",
        "URL",
        "A folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX; or https://HOST:PORT, an OpenTelemetry collector.",
        envvar="CKPTPROF_SHIP_TO",
    ),
]
HashNames = Annotated[
    Path | None,
    options.option(
        "--hash-names",
        "FILE",
        "Replace names of jobs, runs, users and paths by hashes, with the key in FILE: the same on all nodes, and "
        "readable only by its owner.",
        envvar="CKPTPROF_SHIP_HASH_NAMES",
    ),
]
Textfile = Annotated[
    Path | None,
    options.option(
        "--textfile",
        "DIR",
        "Write metrics of shipping to DIR/ckptprof-ship.prom, for node_exporter's textfile collector.",
        envvar="CKPTPROF_SHIP_TEXTFILE",
    ),
]
Status = Annotated[bool, typer.Option("--status", help="Show what was shipped, and what was not; ship nothing.")]


def command(
    *, to: To, db: options.Db = None, hash_names: HashNames = None, textfile: Textfile = None, status: Status = False
) -> int:
    """Ship recorded checkpoints to a folder or a bucket, where `ckptprof fleet` covers all nodes.

    It reads the database of this node and writes what changed since its last run as a Parquet file to the inbox of
    this node, then ends: run it from a timer. While a checkpoint is being written here, it waits for its next run, for
    an hour at most. It may be killed at any time: no checkpoint is lost or duplicated. Checkpoints that this node
    deleted before they were shipped are counted. Timelines and the sentences of reports stay on the node. The exit
    code is 6 if the store cannot be reached; the next run tries again.

    Credentials of a bucket are those of its SDK: environment, configuration files, or the role of the machine. It
    needs the extra: pip install 'ckptprof[ship]'; a collector needs 'ckptprof[otel]', gets one log record for each
    revision of a checkpoint, possibly twice, and a token from OTEL_EXPORTER_OTLP_HEADERS.
    """
    from ckptprof.store.location import path_of_database, path_to_read  # noqa: PLC0415 # `--help` needs none of these

    try:
        from ckptprof.service.shipping.shipper import Shipper  # noqa: PLC0415

        shipper = Shipper(
            path_to_read() if db is None else path_of_database(db), to, _target(to), _replacement(hash_names)
        )
    except ImportError as error:
        extra = "otel" if to.startswith("http") else "ship"
        raise UsageError(f"{error.name} is not installed", hint=f"pip install 'ckptprof[{extra}]'") from error
    if status:
        state, waiting = shipper.status()
        output.write(_status(state, waiting))
        return 0 if state is None or state.error is None else StoreError.exit_code
    try:
        state, rows = shipper.ship(time.time_ns())
    finally:
        if textfile is not None:
            _write_metrics(textfile, *shipper.status())
    if rows is None:
        output.write("a checkpoint is being written: shipped next time\n")
    else:
        lost = f"; {units.plural(state.range.lost, 'checkpoint')} deleted before" if state and state.range.lost else ""
        output.write(f"{units.plural(rows, 'checkpoint update')} shipped{lost}\n")
    return 0


def _target(to: str) -> Callable[[], Target]:
    if to.partition("://")[0] in ("http", "https"):
        from ckptprof.service.shipping.otel_logs import OtelCollector  # noqa: PLC0415 # an extra

        return lambda: OtelCollector(to)
    from ckptprof.fleet.files import FleetFiles  # noqa: PLC0415 # an extra

    return lambda: FleetFiles(to)


def _replacement(key_file: Path | None) -> Callable[[Checkpoint], Checkpoint]:
    if key_file is None:
        return lambda one: one
    from ckptprof.service.shipping.hashed_names import HashedNames, read_key  # noqa: PLC0415

    return HashedNames(read_key(key_file)).replace


def _write_metrics(folder: Path, state: ShippingState | None, waiting: int) -> None:
    from ckptprof.export.shipping_metrics import write_shipping  # noqa: PLC0415 # as above

    if state is not None:
        write_shipping(folder, shipped_ns=state.shipped_ns, waiting=waiting, lost=state.range.lost)


def _status(state: ShippingState | None, waiting: int) -> str:
    if state is None:
        return "nothing is recorded\n"
    zone = units.fixed_zone(state.shipped_ns or 0, output.LocalZone())
    last = "never" if state.shipped_ns is None else units.stamp(state.shipped_ns, zone, "%Y-%m-%d %H:%M:%S")
    lines = [
        f"last success: {last}",
        f"not shipped yet: {units.plural(waiting, 'checkpoint')}",
        f"deleted before they were shipped: {units.plural(state.range.lost, 'checkpoint')}",
    ]
    lines += [f"last error: {state.error}"] if state.error is not None else []
    return "\n".join([*lines, ""])
