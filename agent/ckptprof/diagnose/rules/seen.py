"""What several rules ask of a checkpoint."""

from __future__ import annotations

from ckptprof.diagnose.causes import Spent
from ckptprof.diagnose.rules.rule import Words
from ckptprof.diagnose.sight import SLIGHT, look, some
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.units import percent, size

MUCH = 0.3  # of a checkpoint's bytes: less beside it is not why it took long
_SHOWN = 0.4  # of the looks in its own code: nothing else was shown as often
_LOW = 0.08  # of all memory: the kernel reclaims


def stacks_in(name: str) -> Words:
    """Say that most looks at the stack of the writing thread, of those in its own code, showed this."""

    def words(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
        shares = look(checkpoint).stacks()
        own = sum(shares.get(one, 0.0) for one in ("pickle", "crc", "compress", "copy", "gather", "other"))
        if not shares.get(name) or shares[name] < _SHOWN * own:
            return None
        return f"{percent(shares[name])} of the looks at the writing thread's stack were in {name}"

    return words


def is_far(checkpoint: Checkpoint) -> bool:
    """Whether its files are behind a network."""
    return look(checkpoint).remote


def fs_type(checkpoint: Checkpoint) -> str:
    """Return the type of its file system, "" if that is not known."""
    mount = checkpoint.measures.mount if checkpoint.measures is not None else None
    return mount.fs_type.lower() if mount is not None else ""


def is_restore(checkpoint: Checkpoint) -> bool:
    """Whether it reads."""
    return checkpoint.kind is Kind.RESTORE


def is_save(checkpoint: Checkpoint) -> bool:
    """Whether it writes."""
    return not is_restore(checkpoint)


def in_background(checkpoint: Checkpoint, *roles: str) -> bool:
    """Whether most was written beside training, by something of these roles."""
    mine = sum(some(one.bytes) for one in checkpoint.writers if one.role in roles)
    return checkpoint.mode is Mode.ASYNC and mine * 2 > some(checkpoint.bytes)


def pressed(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    """Return that memory was short."""
    memory = look(checkpoint).memory
    total, available = some(memory.total_bytes), memory.available_min_bytes
    if total and available is not None and 0 <= available < _LOW * total:
        return f"only {size(available)} of {size(total)} of memory were available"
    if some(memory.memory_some_share) >= SLIGHT:
        return f"processes waited for memory in {percent(min(1.0, some(memory.memory_some_share)))} of the time"
    return None


def written_beyond(*reasons: str) -> Words:
    """Say that many bytes were written beyond the checkpoint for one of these reasons."""

    def words(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
        found = [one for one in checkpoint.overheads if one.reason in reasons]
        extra, unique = sum(some(one.bytes) for one in found), some(checkpoint.unique_bytes or checkpoint.bytes)
        if not found or extra < MUCH * unique:
            return None
        return f"{size(extra)} were written beyond the checkpoint's {size(unique)}"

    return words
