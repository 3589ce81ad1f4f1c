"""Files of metrics for node_exporter's textfile collector."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from ckptprof.errors import CkptprofError
from ckptprof.export.wsgi_pages import Pages

TEXTFILE_SECONDS = 10.0
_END_SECONDS = 1.0  # for the last write


class Textfile:
    """`ckptprof.prom` for node_exporter's textfile collector, written every TEXTFILE_SECONDS by a thread."""

    def __init__(self, folder: Path, pages: Pages, complain: Callable[[str], None]) -> None:
        """Errors after `start` go to `complain`, once until the next success."""
        self._path = folder / "ckptprof.prom"
        self._pages = pages
        self._complain = complain
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ckptprof-textfile", daemon=True)

    def start(self) -> None:
        """Write the file and start the thread; raises CkptprofError."""
        try:
            self.write()
        except OSError as error:
            name = self._path.parent
            hint = f"the folder must exist, and the user that runs the agent must be able to write to it: ls -ld {name}"
            raise CkptprofError(f"--textfile {name}: {error.strerror}", hint=hint) from error
        self._thread.start()

    def close(self) -> None:
        """Stop and delete the file, so that its series end; a second call does nothing."""
        self._closing.set()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():  # its file system hangs
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._complain(f"{self._path}: {error.strerror}")

    def write(self) -> None:
        """Write the metrics of now; raises OSError."""
        _replace(self._path, self._pages.metrics().body)

    def _work(self) -> None:
        reported = ""
        while not self._closing.wait(TEXTFILE_SECONDS):
            fault = ""
            try:
                self.write()
            except OSError as error:
                fault = error.strerror or str(error)
            if fault not in {"", reported}:
                self._complain(f"{self._path} is not written: {fault}")
            reported = fault


def write_shipping(folder: Path, shipped_ns: int | None, waiting: int, lost: int) -> None:
    """Replace `ckptprof-ship.prom`; `shipped_ns`: the last success, None: never. Raises CkptprofError."""
    disable_created_metrics()  # type: ignore[no-untyped-call] # as in `metrics`
    registry = CollectorRegistry()
    if shipped_ns is not None:
        name, text = "ckptprof_ship_last_success_timestamp_seconds", "End of the last run that shipped all changes."
        Gauge(name, text, registry=registry).set(shipped_ns / 1e9)
    name, text = "ckptprof_ship_waiting_checkpoints", "Checkpoints that changed since they were shipped."
    Gauge(name, text, registry=registry).set(waiting)
    name, text = "ckptprof_ship_lost_checkpoints", "Checkpoints deleted before they were shipped."
    Counter(name, text, registry=registry).inc(lost)
    try:
        _replace(folder / "ckptprof-ship.prom", generate_latest(registry))
    except OSError as error:
        raise CkptprofError(f"--textfile {folder}: {error.strerror}", hint="the folder must exist") from error


def _replace(path: Path, metrics: bytes) -> None:
    """Replace a file of metrics atomically, readable by all; raises OSError."""
    part = path.with_suffix(".new")  # not *.prom, which node_exporter reads
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC), "wb") as file:
        os.fchmod(file.fileno(), 0o644)  # the units have UMask=0027 and 0077
        file.write(metrics)
    part.rename(path)
