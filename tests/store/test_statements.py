"""What a recorder runs is what SQLAlchemy makes of the statements; CKPTPROF_UPDATE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ckptprof.store.sql import columns, compiled, schema
from ckptprof.store.sql.statements import compiled_text


def test_the_texts_are_what_sqlalchemy_makes_today() -> None:
    """Each statement, and no other."""
    path = Path(compiled.__file__)
    if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
        path.write_text(compiled_text(), encoding="utf-8")

    assert path.read_text(encoding="utf-8") == compiled_text()


def test_every_table_has_its_name() -> None:
    """For who does not load the schema."""
    assert sorted(columns.TABLES) == sorted(schema.metadata.tables)


def test_a_recorder_does_not_load_sqlalchemy() -> None:
    """It takes 15 MB, for as long as the host runs."""
    parts = "ckptprof.service.commands.watch, ckptprof.service.commands.running, ckptprof.export.metrics"
    done = subprocess.run(
        [sys.executable, "-c", f"import {parts}, sys; print('sqlalchemy' in sys.modules)"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip

    assert done.stdout == "False\n"
