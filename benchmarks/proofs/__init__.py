"""The proofs of benchmarks/reliability.py, a module for each kind; they stand on what the tests have."""

from __future__ import annotations

import sys

from contenders import ROOT

sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/service"), str(ROOT / "tests/systemd")]
