"""What a recorder runs is what SQLAlchemy makes of the statements; CKPTPROF_UPDATE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ckptprof.store.sql import compiled
from ckptprof.store.sql.statements import compiled_text
from ckptprof.store.writer import StoreWriter


def test_the_texts_are_what_sqlalchemy_makes_today() -> None:
    """Each statement, and no other."""
    path = Path(compiled.__file__)
    if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
        path.write_text(compiled_text(), encoding="utf-8")

    assert path.read_text(encoding="utf-8") == compiled_text()


def test_only_who_asks_for_checkpoints_loads_sqlalchemy(writer: StoreWriter) -> None:
    """It takes 15 MB: a recorder, which lives as long as the host, and reads what it needs, does without."""
    done = subprocess.run(
        [sys.executable, "-c", _READS, str(writer.path)], capture_output=True, text=True, timeout=300, check=True
    )

    assert done.stdout == "False\nTrue\n"


_READS = """
import ckptprof.export.metrics, ckptprof.service.commands.running, ckptprof.service.commands.agent_service, sys
from ckptprof.model import CheckpointQuery
from ckptprof.service.recorder.pending import load_pending
from ckptprof.service.recorder.storing import truncated_saves, saved_paths
from ckptprof.store.reader import StoreReader

db = sys.argv[1]
load_pending(db), saved_paths(db), truncated_saves(db, 1 << 60)
print("sqlalchemy" in sys.modules)
StoreReader(db).report(CheckpointQuery())
print("sqlalchemy" in sys.modules)
"""
