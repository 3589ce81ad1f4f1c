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
    remedy="fewer and larger files: one for each rank",
    remedies={
        "orbax": "fewer and larger files: Orbax with OCDBT (`use_ocdbt=True`)",
        "transformers": "larger shards: `save_pretrained(max_shard_size=...)`; one file for each rank",
        "torch": "one file for each rank: DCP `FileSystemWriter(path, single_file_per_rank=True)`",
    },
    reference="NVIDIA-NeMo/Automodel PR#3369; WEKA: file systems degrade above 100,000 files per directory",
)
