"""A save that reads what it wrote before to change it: zarr chunks, one for each parameter."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.rules.seen import is_restore, overhead
from ckptprof.diagnose.sight import look, some
from ckptprof.model import Checkpoint
from ckptprof.units import size
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    read = sum(some(one.read_bytes) for one in look(checkpoint).measures.threads)
    if not is_restore(checkpoint) and read >= 0.3 * max(1, checkpoint.bytes):
        return f"{size(read)} of its own files were read during the save"
    return overhead(checkpoint, "rewrite")


RULE = Rule(
    name="read-modify-write",
    limits=(Limit.DEVICE, Limit.NETWORK, Limit.SERVER, Limit.SMALL_IO, Limit.FLUSH, Limit.METADATA, Limit.SERIALIZE),
    applies=applies,
    exclusion="nothing is read during the save",
    remedy="write new files instead of changing those that are there; chunks as large as what one rank writes",
    remedies={
        "megatron": "save as torch_dist instead of zarr (Megatron-LM `--ckpt-format torch_dist`)",
    },
    reference="NVIDIA/Megatron-LM#834 (10 s became 64 s)",
    without="without reading back",
)
