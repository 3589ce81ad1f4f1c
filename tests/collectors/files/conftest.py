"""Makes the tests' own module `silentfuse` importable: it is in no package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
