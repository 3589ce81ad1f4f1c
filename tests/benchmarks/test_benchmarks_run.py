"""Every benchmark runs and prints its document; what it measures is no matter of tests."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MARKS = {
    "frameworks": [pytest.mark.frameworks, pytest.mark.slow],
    "guest": [pytest.mark.node_exporter, pytest.mark.slow],
    "faults": [pytest.mark.root, pytest.mark.bpf, pytest.mark.torch, pytest.mark.slow],
    "reliability": [pytest.mark.root, pytest.mark.mount, pytest.mark.capabilities("NET_ADMIN"), pytest.mark.slow],
    "score": [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow],
    "scrape": [pytest.mark.node_exporter, pytest.mark.slow],
    "trace_cost": [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow],
}


def quick_settings() -> dict[str, list[str]]:
    """Return what benchmarks/run.py holds for --quick."""
    tree = ast.parse((BENCHMARKS / "run.py").read_text())
    values = [node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.value is not None]
    settings: dict[str, list[str]] = ast.literal_eval(values[0])
    return settings


QUICK = quick_settings()


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in QUICK])
def test_a_benchmark_prints_its_document(name: str) -> None:
    """With tiny settings it ends well and each line that it prints is a document with rows."""
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json", *QUICK[name]]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert documents
    assert all(document["benchmark"].startswith(name) and document["rows"] for document in documents)
    assert all(document["machine"]["cpus"] > 0 for document in documents)


def test_make_bench_runs_every_benchmark() -> None:
    """Every module with a `main` in benchmarks/ is in the list of benchmarks/run.py."""
    programs = {
        path.stem for path in BENCHMARKS.glob("*.py") if "\ndef main()" in path.read_text() and path.stem != "run"
    }

    assert programs == set(QUICK)
