"""A training job that saves and restores all the time, and how what is reported of it compares with its own log."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everyday.rounds import Finding
from recorder import EXAMPLES, ONE_THREAD, check_job

from truth import Comparison, compare, read_log

FRAMEWORKS = {"torch": "torch.save", "dcp": "torch-dcp", "safetensors": "safetensors", "npz": "numpy"}
_TOLD = ("kind", "job", "step", "files", "bytes", "start_ns", "end_ns", "path")


@dataclass
class JobBeside:
    """examples/train_torch.py again and again in a folder, until it is told to end."""

    folder: Path
    formats: tuple[str, ...] = ("torch", "dcp", "safetensors")
    size_mb: int = 150
    interval: float = 2.0
    saves: int = 3
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _last: subprocess.CompletedProcess[bytes] | None = None  # of its lives, of which one that failed is the last

    @property
    def truth(self) -> Path:
        """Return the job's own log."""
        return self.folder / "truth.jsonl"

    def start(self) -> None:
        """Begin."""
        self.folder.mkdir()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let the present life of the job come to its end; raises JobBrokeError if one of its lives has failed."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._last is not None:
            check_job(self._last)

    def _train(self) -> None:
        lives = 0
        while not self._over.is_set() and (self._last is None or self._last.returncode == 0):
            format_ = self.formats[lives // 2 % len(self.formats)]
            program = "train_numpy.py" if format_ == "npz" else "train_torch.py"
            command = [sys.executable, str(EXAMPLES / program), "--dir", str(self.folder / format_)]
            command += ["--format", format_, "--truth", str(self.truth), "--size-mb", str(self.size_mb)]
            command += ["--interval", str(self.interval), "--saves", str(self.saves)]
            command += ["--resume"] if any((self.folder / format_).glob("ckpt_*")) else []
            self._last = subprocess.run(command, check=False, capture_output=True, env={**os.environ, **ONE_THREAD})
            lives += 1

    def compared(self, findings: Sequence[Finding]) -> Comparison:
        """Return the job's log against those findings that lie in its folder."""
        mine = [finding.checkpoint for finding in findings if self.owns(finding)]
        return compare(read_log(self.truth), mine)

    def owns(self, finding: Finding) -> bool:
        """Tell whether a finding is of this job's files."""
        path = finding.checkpoint["path"]
        return path is not None and Path(path).is_relative_to(self.folder)


def summary(comparison: Comparison) -> dict[str, Any]:
    """Return the figures of a comparison; what is wrong in the events that were found is counted by kind."""
    found = comparison.of("found")
    pairs = [(row.truth, row.seen) for row in found if row.truth is not None and row.seen is not None]
    edge, size = comparison.median_edge_error_ms, comparison.worst_bytes_error_percent
    return {
        "found": len(found),
        "missed": len(comparison.of("missed")),
        "invented": len(comparison.of("invented")),
        "edges_ms": None if edge is None else round(edge, 1),
        "bytes_percent": None if size is None else round(size, 2),
        "wrong_framework": sum(seen["framework"] != FRAMEWORKS[truth.format] for truth, seen in pairs),
        "wrong_step": sum(seen["step"] != truth.step for truth, seen in pairs),
        "wrong_path": sum(Path(seen["path"]) != Path(truth.path) for truth, seen in pairs),
        "wrong_status": sum(seen.get("status", "complete") != "complete" for _, seen in pairs),
    }


def otherwise(comparison: Comparison) -> list[str]:
    """Return a line for each event that was missed or invented."""
    lines = [
        f"missed: {row.truth.kind} of step {row.truth.step}, {row.truth.path}"
        for row in comparison.of("missed")
        if row.truth is not None
    ]
    for row in comparison.of("invented"):
        seen = row.seen or {}
        reasons = " ".join(f"{reason['name']}{reason['weight']:+.2f}" for reason in seen.get("evidence", ()))
        told = {name: seen.get(name) for name in _TOLD}
        lines.append(f"invented: {told} [{reasons}]")
    return lines
