"""Ship recorded checkpoints to a folder or a bucket, where `ckptprof fleet` covers all nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckptprof import units
from ckptprof.cli import options, output
from ckptprof.errors import NothingFoundError, StoreError, UsageError
from ckptprof.report.clean import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckptprof.service.shipping.shipper import ShippingState, Target

EXAMPLES = """
# To a bucket, or to a folder on a shared file system; the timer of ckptprof-ship.service does this
ckptprof ship --to s3://bucket/ckptprof
ckptprof ship --to /shared/ckptprof --hash-names /etc/ckptprof/site-key
# What was shipped, and what was not
ckptprof ship --status
# As log records, traces and metrics to an OpenTelemetry collector
ckptprof ship --to https://otel.example:4318
"""
To = Annotated[
    str | None,
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
Status = Annotated[
    bool,
    typer.Option("--status", help="Show what was shipped to --to, or to each target, and what was not; ship nothing."),
]


def command(
    *, to: To = None, db: options.Db = None, key: HashNames = None, textfile: Textfile = None, status: Status = False
) -> int:
    """Ship recorded checkpoints to a folder or a bucket, where `ckptprof fleet` covers all nodes.

    It reads the database of this node and writes what changed since its last run as a Parquet file to the inbox of
    this node, then ends: run it from a timer. It may be killed at any time: no checkpoint is lost or duplicated.
    Checkpoints that this node deleted before they were shipped are counted. Timelines and the sentences of reports
    stay on the node. The exit code is 6 if the store cannot be reached; the next run tries again.

    Credentials of a bucket are those of its SDK: environment, configuration files, or the role of the machine. It
    needs the extra: pip install 'ckptprof[ship]'; a collector needs 'ckptprof[otel]', gets one log record and one trace
    for each revision of a checkpoint, possibly twice, metrics of each checkpoint, and a token from
    OTEL_EXPORTER_OTLP_HEADERS; OTEL_METRICS_EXPORTER=none omits metrics (also LOGS, TRACES).
    """
    from ckptprof.store.location import path_of_database, path_to_read  # noqa: PLC0415 # `--help` needs none of these

    if not (to or status):
        raise UsageError("--to is missing", hint="give a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    try:
        target = _target(to) if to else None
        from ckptprof.service.shipping import hashed_names, shipper  # noqa: PLC0415
    except ImportError as error:
        extra = "otel" if to and to.startswith("http") else "ship"
        raise UsageError(f"{error.name} is not installed", hint=f"pip install 'ckptprof[{extra}]'") from error
    database = path_to_read() if db is None else path_of_database(db)
    if to is None or target is None or status:
        return _show_status(shipper.read_status(database, to))
    hashed = (lambda one: one) if key is None else hashed_names.HashedNames(hashed_names.read_key(key)).replace

    def write_metrics() -> None:
        if textfile is not None:
            from ckptprof.export.textfile import write_shipping  # noqa: PLC0415 # as above

            for now, waiting in shipper.read_status(database, to):
                write_shipping(textfile, now.shipped_ns, waiting, now.range.lost)

    write_metrics()  # for a store that never answers
    try:
        state, rows = shipper.Shipper(database, to, target, hashed).ship(time.time_ns())
    finally:
        write_metrics()
    lost = f"; {units.plural(state.range.lost, 'checkpoint')} deleted before" if state and state.range.lost else ""
    output.write(f"{units.plural(rows, 'checkpoint update')} shipped{lost}\n")
    return 0


def _target(to: str) -> Callable[[], Target]:
    """Return what opens a target; raises UsageError for a URL that is none."""
    if to.startswith(("http://", "https://")):
        from ckptprof.service.shipping.otel_collector import OtelCollector  # noqa: PLC0415 # an extra

        collector = OtelCollector(to)
        return lambda: collector
    from ckptprof.fleet.files import FleetFiles, scheme_of  # noqa: PLC0415 # an extra

    scheme_of(to)
    return lambda: FleetFiles(to)  # which asks a bucket for its region


def _show_status(found: list[tuple[ShippingState, int]]) -> int:
    if not found:
        raise NothingFoundError("nothing was shipped yet by this user", hint="ask as root, or give --to URL")
    output.write("\n".join(_described(state, waiting) for state, waiting in found))
    return StoreError.exit_code if any(state.error is not None for state, _ in found) else 0


def _described(state: ShippingState, waiting: int) -> str:
    zone = units.fixed_zone(state.shipped_ns or 0, output.LocalZone())
    last = "never" if state.shipped_ns is None else units.stamp(state.shipped_ns, zone, "%Y-%m-%d %H:%M:%S")
    error = "" if state.error is None else f"last error: {state.error}\n"
    return (
        f"target: {clean(state.url)}\nlast success: {last}\n"
        f"not shipped yet: {units.plural(waiting, 'checkpoint')}\n"
        f"deleted before they were shipped: {units.plural(state.range.lost, 'checkpoint')}\n{error}"
    )
