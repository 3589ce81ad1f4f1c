"""What `ckptprof ship` did, for node_exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, write_to_textfile

from ckptprof.errors import CkptprofError


def write_shipping(folder: Path, *, shipped_ns: int | None, waiting: int, lost: int) -> None:
    """Replace `ckptprof-ship.prom`; `shipped_ns`: the last success, None: never. Raises CkptprofError."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, value: float) -> None:
        Gauge(f"ckptprof_ship_{name}", text, registry=registry).set(value)

    if shipped_ns is not None:
        gauge("last_success_timestamp_seconds", "End of the last run that shipped all changes.", shipped_ns / 1e9)
    gauge("waiting_checkpoints", "Checkpoints that changed since they were shipped.", waiting)
    name, text = "ckptprof_ship_lost_checkpoints", "Checkpoints deleted before they were shipped."
    Counter(name, text, registry=registry).inc(lost)
    try:
        write_to_textfile(str(folder / "ckptprof-ship.prom"), registry)
    except OSError as error:
        raise CkptprofError(f"--textfile {folder}: {error.strerror}", hint="the folder must exist") from error
