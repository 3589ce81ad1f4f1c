"""Makes the tests' own module `sockdiag` importable: it is in no package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
