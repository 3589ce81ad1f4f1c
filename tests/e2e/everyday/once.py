"""Does one piece of everyday work and ends: `python once.py NAME FOLDER STORE`, to be looked at by itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from everyday.table import BY_NAME
from everyday.task import Place

if __name__ == "__main__":
    folder, store = Path(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    BY_NAME[sys.argv[1]].do(Place(folder, store))
