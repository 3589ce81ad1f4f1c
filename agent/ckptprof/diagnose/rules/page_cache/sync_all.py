"""sync() instead of fsync: it waits for what others have written, too."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.sight import look, some
from ckptprof.model import Checkpoint
from ckptprof.units import size
from ckptprof.verdicts import Limit


def applies(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return what shows it."""
    known = look(checkpoint)
    moved = known.device_bytes
    synced = any(some(one.sync_call_ns) for one in known.measures.threads) or any(
        (one.looks_in or {}).get("sync") for one in known.measures.threads
    )
    if known.remote or not synced or moved is None or moved < 2 * max(known.moved, 64 << 20):
        return None
    return f"the device wrote {size(moved)} while the checkpoint has {size(known.moved)}: others' data was waited for"


RULE = Rule(
    name="sync-all",
    limits=(Limit.FLUSH, Limit.DEVICE),
    applies=applies,
    exclusion="the device wrote no more than the checkpoint",
    remedy="give the writer a path or a real file descriptor, so that it calls fsync and not os.sync(); else syncfs",
    reference="torch.distributed.checkpoint's fallback to os.sync(); questdb#6785 (67 to 266 s)",
)
