"""What people chose, and sentences that may have it, taken out of what is shipped: pure.

A name is replaced by a hash, which is the same wherever the name is the same; paths and keys by one of each part, so
that nodes still have one run, and folders one file system. It hides a name from who reads, not from who guesses it.
"""

from __future__ import annotations

import hashlib
import re
from typing import TypeVar

import msgspec

from ckptprof.model import Checkpoint, Run, Sent
from ckptprof.store.fleet.outbox import Batch, Changed
from ckptprof.store.rows import checkpoint_of
from ckptprof.verdicts import Cost, Verdict

_DIGITS = 12  # hexadecimal
_PART = re.compile(r"[^:/@+]+")
_KIND = re.compile(r"[a-z0-9.]+")
_NUMBER = re.compile(r"\d+(\.\d+)?")  # of a job and its step, a port, an inode
_Text = TypeVar("_Text", str, str | None)


def without_names(batch: Batch) -> Batch:
    """Return a batch with hashes in the place of names; what cannot be read goes on without its text."""
    return msgspec.structs.replace(batch, events=tuple(map(_changed, batch.events)))


def _changed(one: Changed) -> Changed:
    if one.event is None:
        return one
    try:
        told = redacted(checkpoint_of(one.event))
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return msgspec.structs.replace(one, event=None, problem="it is no checkpoint")
    return msgspec.structs.replace(one, event=msgspec.json.encode(told).decode())


def redacted(one: Checkpoint) -> Checkpoint:
    """Return a checkpoint with hashes in the place of names, and no sentence."""
    return msgspec.structs.replace(
        one,
        job=_hashed(one.job),
        path=_hashed(one.path),
        run=None if one.run is None else _run(one.run),
        place=None if one.place is None else msgspec.structs.replace(one.place, key=_hashed_key(one.place.key)),
        sent=None if one.sent is None else Sent(
            destinations=(), connections=one.sent.connections, parts=one.sent.parts, part_bytes=one.sent.part_bytes
        ),
        writers=tuple(msgspec.structs.replace(writer, comm="") for writer in one.writers),
        overheads=tuple(msgspec.structs.replace(overhead, text="") for overhead in one.overheads),
        evidence=tuple(msgspec.structs.replace(evidence, text="") for evidence in one.evidence),
        verdict=None if one.verdict is None else _verdict(one.verdict),
        cost=None if one.cost is None else _cost(one.cost),
        blind=(),
        measures=None,
        streams=(),
        devices=(),
    )  # fmt: skip


def _run(run: Run) -> Run:
    return Run(
        key=_hashed_key(run.key), scheduler=run.scheduler, job=_hashed(run.job), restart=run.restart, ranks=run.ranks,
        nodes=run.nodes, node=run.node, user=_hashed(run.user), account=_hashed(run.account),
        partition=_hashed(run.partition),
    )  # fmt: skip


def _verdict(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(
        verdict,
        sentence="",
        accounts=tuple(msgspec.structs.replace(account, text="") for account in verdict.accounts),
        evidence=(),
        excluded=(),
        lacking=(),
        capped_by=None,
        remedy=None,
        reference=None,
    )


def _cost(cost: Cost) -> Cost:
    return msgspec.structs.replace(cost, ceiling_from=None)


def _hashed(name: _Text) -> _Text:
    return name if name is None else _PART.sub(_part, name)


def _hashed_key(key: str) -> str:
    """Return a key whose first word, which tells what kind of key it is, stays."""
    kind, _, rest = key.partition(":")
    return f"{kind}:{_hashed(rest)}" if rest and _KIND.fullmatch(kind) else _hashed(key)


def _part(found: re.Match[str]) -> str:
    part = found[0]
    if _NUMBER.fullmatch(part):
        return part
    return hashlib.sha256(part.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]
