"""The jobs with real frameworks in jobs/, how one is run under ckptprof, and what was found beside what it logged."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from recorder import Recorder, check_job

from truth import Comparison, Row, compare, read_log

JOBS_DIRECTORY = Path(__file__).resolve().parent / "jobs"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
OFFLINE |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "KERAS_BACKEND": "torch"}

BOTH = ("trace", "poll")


@dataclass(frozen=True)
class Job:
    """One way of one framework to save and restore."""

    script: str
    variant: str = ""
    ranks: int = 1  # more than one: under torchrun
    family: str = "frameworks"  # the marker of the tests that need the libraries
    proven: tuple[str, ...] = ("trace",)  # the levels whose promise it was seen to keep
    usual: tuple[str, ...] = ()  # the levels at which CI runs it; CKPTPROF_JOBS=all runs all that is proven
    size_mb: int = 120  # on a busy host a stack is seen every 0.4 s: what saves in the background has to last

    @property
    def name(self) -> str:
        """Return what it is called in tests and tables."""
        return "-".join(part for part in (self.script.replace("_", "-"), self.variant) if part)

    def command(self, *arguments: str) -> list[str]:
        """Return its command line."""
        python = [sys.executable]
        if self.ranks > 1:
            python += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
        variant = ["--variant", self.variant] if self.variant else []
        size = ["--size-mb", str(self.size_mb)]
        return [*python, str(JOBS_DIRECTORY / f"{self.script}.py"), *variant, *size, *arguments]


JOBS = (
    Job("torch_save", "zip", proven=BOTH, usual=BOTH),
    Job("torch_save", "legacy", proven=BOTH),
    Job("torch_save", "safetensors", proven=BOTH),
    Job("torch_save", "pickle", proven=BOTH),
    Job("torch_save", "joblib", proven=BOTH),
    Job("dcp", "sync", ranks=2, family="torch", proven=BOTH, usual=BOTH),
    Job("dcp", "async-thread", ranks=2, family="torch"),  # as dcp-async in test_modes.py
    Job("dcp", "async-process", ranks=4, family="torch", proven=()),
    Job("hf_trainer", proven=BOTH, usual=("trace",)),
    Job("accelerator", "plain", ranks=2),
    Job("accelerator", "fsdp", ranks=2, usual=("trace",)),
    Job("lightning_fit", "renamed"),
    Job("lightning_fit", "moved", usual=("trace",)),
    Job("deepspeed_zero", "zero1", ranks=2, usual=("trace",)),
    Job("deepspeed_zero", "zero3", ranks=2),
    Job("megatron_core", "sync", ranks=2, usual=("trace",)),
    Job("orbax_manager", "sync", family="orbax"),
    Job("orbax_manager", "async", family="orbax", usual=("trace",), size_mb=360),
    Job("keras_fit", "keras", proven=BOTH, usual=("poll",)),
    Job("keras_fit", "weights", proven=BOTH),
    Job("new_writers", "checkpointing", family="writers", proven=BOTH, size_mb=240),
    Job("new_writers", "checkpointing-async", family="writers", proven=(), size_mb=240),  # the first starts the child
    Job("new_writers", "tensorizer", family="writers", size_mb=240),
    Job("new_writers", "fastsafetensors", family="writers", proven=(), size_mb=240),  # the mode of 2 in 6 saves
    Job("new_writers", "runai", family="writers", proven=BOTH, size_mb=240),
)


def run_job(recorder: Recorder, job: Job, *others: Recorder, saves: int = 3) -> list[Comparison]:
    """Save under `ckptprof run`, restore in a second life without the files in memory, and compare.

    All recorders watch the same two lives; the comparisons are in their order.
    """
    directory, log = recorder.work / "job", recorder.work / "truth" / "truth.jsonl"
    log.parent.mkdir(exist_ok=True)
    recorder.environment |= OFFLINE
    life = job.command("--dir", str(directory), "--truth", str(log))
    lives = recorder.restarted([*life, "--saves", str(saves)], [*life, "--saves", "0", "--resume"])
    result = recorder.run_with(others, *lives)
    check_job(result)
    return [compare(read_log(log), one.checkpoints()) for one in (recorder, *others)]


def wrong(row: Row, words: Iterable[str]) -> list[str]:
    """Say of an event that was found where ckptprof says something else than the job."""
    told: list[str] = []
    for word in words:
        mine, theirs = getattr(row.truth, word), (row.seen or {}).get(word)
        if mine is not None and mine != theirs:
            why = [one["text"] for one in (row.seen or {}).get("evidence", ()) if one["name"] == word]
            said = "".join(f" ({text})" for text in why)
            told.append(f"{row.truth.kind if row.truth else '?'} {word} {theirs} instead of {mine}{said}")
    return told


def edge_errors_ms(rows: Iterable[Row]) -> list[float]:
    """Return how far starts and ends are from the log, all of them."""
    return [abs(edge) for row in rows for edge in (row.start_error_ms, row.end_error_ms) if edge is not None]


def edge_share(rows: Iterable[Row]) -> float:
    """Return how far the edges of saves are from the log, in the median, as a share of how long each save took.

    A busy machine makes both longer; in milliseconds they are figures of benchmarks.
    """
    shares = [
        edge / ((row.truth.end_ns - row.truth.start_ns) / 1e6)
        for row in rows
        if row.truth is not None and row.truth.kind == "save"
        for edge in edge_errors_ms([row])
    ]
    return statistics.median(shares)


def figure(level: str, job: Job, comparison: Comparison) -> str:
    """Return one line for the summary of a test run."""
    counts = "/".join(str(len(comparison.of(verdict))) for verdict in ("found", "missed", "invented"))
    edges, size = edge_errors_ms(comparison.rows), comparison.worst_bytes_error_percent
    if not edges or size is None:
        return f"{level:5} {job.name:28} {counts} found/missed/invented"
    spread = f"edges {statistics.median(edges):.0f} ms (median), {max(edges):.0f} ms (worst)"
    return f"{level:5} {job.name:28} {counts} found/missed/invented, {spread}, bytes {size:.2f} % (worst)"
