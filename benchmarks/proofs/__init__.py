"""The proofs of benchmarks/reliability.py, a module for each kind; they stand on what the tests have."""

from __future__ import annotations

import sys

from contenders import ROOT

_ROOMS = ("tests", "tests/service", "tests/systemd", "tests/e2e", "tests/e2e/faults")
sys.path[:0] = [str(ROOT), *(str(ROOT / room) for room in _ROOMS)]
