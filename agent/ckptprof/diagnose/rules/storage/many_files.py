"""Tens of thousands of small files."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import spent
from ckptprof.model import Checkpoint
from ckptprof.verdicts import Limit


def applies(_checkpoint: Checkpoint, accounts: tuple[Spent, ...]) -> Spent | None:
    """Return what shows it."""
    return spent(accounts, Limit.METADATA)


RULE = Rule(
    name="many-files",
    limits=(Limit.METADATA,),
    applies=applies,
    exclusion="few files",
    remedy=(
        "one file for each rank: DCP `FileSystemWriter(path, single_file_per_rank=True)`, Orbax with OCDBT, "
        "larger safetensors shards"
    ),
    reference="NVIDIA-NeMo/Automodel PR#3369; WEKA: file systems degrade above 100,000 files per directory",
)
