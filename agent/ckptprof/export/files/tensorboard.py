"""Scalars for TensorBoard by training step, by the library of the extra `ckptprof[tensorboard]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ckptprof.errors import CkptprofError
from ckptprof.store.records import RecordField

_TAGS = ("duration_seconds", "stall_seconds", "at_risk_seconds", "bytes", "bytes_per_second")
_NAME_CHARACTERS = 60  # 255 bytes at most
_UNSAFE = re.compile(r"[^\w.-]|^\.+")  # in the name of a folder


def write(folder: Path, fields: Sequence[RecordField], rows: Iterable[Sequence[Any]]) -> int:
    """Write rows of `v_checkpoints`, a run for each job; return the number without a step.

    The tags are those of the columns, after the kind: `save/duration_seconds`. Raises CkptprofError, OSError.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 # 0.3 s that only this needs
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415 # likewise
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415 # likewise
    except ImportError:
        raise CkptprofError("tensorboard is not installed", hint="pip install 'ckptprof[tensorboard]'") from None
    writers: dict[str, Any] = {}
    without_step = 0
    for values in rows:
        row = dict(zip((field.name for field in fields), values, strict=True))
        if row["step"] is None:
            without_step += 1
            continue
        if (writer := writers.get(row["job"])) is None:
            name = _UNSAFE.sub("_", row["job"])[:_NAME_CHARACTERS] or "_"
            while str(folder / name) in {one.get_logdir() for one in writers.values()}:  # of another job
                name += "_"
            writer = writers[row["job"]] = EventFileWriter(str(folder / name))
        scalars = [
            Summary.Value(tag=f"{row['kind']}/{tag}", simple_value=row[tag]) for tag in _TAGS if row[tag] is not None
        ]
        at_seconds = row["start_time"].timestamp()
        writer.add_event(Event(wall_time=at_seconds, step=row["step"], summary=Summary(value=scalars)))
    for writer in writers.values():
        writer.close()
    return without_step
