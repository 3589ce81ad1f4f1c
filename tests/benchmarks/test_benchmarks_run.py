"""Every benchmark runs and prints its document; what it measures is no matter of tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
from run import QUICK  # noqa: E402 - found by the line above

MARKS = {
    "guest": [pytest.mark.node_exporter, pytest.mark.slow],
    "reliability": [pytest.mark.root, pytest.mark.mount, pytest.mark.capabilities("NET_ADMIN"), pytest.mark.slow],
    "score": [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow],
    "trace_cost": [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow],
}


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
