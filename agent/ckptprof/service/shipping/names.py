"""What people chose, and sentences that may have it, taken out of what is shipped: pure.

A name is replaced by a hash, which is the same wherever the name is the same, so that nodes still have one run. It
hides a name from who reads, not from who guesses it.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from ckptprof.model import Checkpoint, Run, Sent
from ckptprof.store.fleet.outbox import Batch, Changed
from ckptprof.store.rows import checkpoint_of
from ckptprof.verdicts import Cost, Verdict

_DIGITS = 12  # hexadecimal
_Text = TypeVar("_Text", str, str | None)


def without_names(batch: Batch) -> Batch:
    """Return a batch with hashes in the place of names; what cannot be read goes on without its text."""
    return msgspec.structs.replace(batch, events=tuple(map(_changed, batch.events)))


def _changed(one: Changed) -> Changed:
    if one.event is None:
        return one
    try:
        told = redacted(checkpoint_of(one.event))
    except msgspec.MsgspecError:
        return msgspec.structs.replace(one, event=None, problem="it is no checkpoint")
    return msgspec.structs.replace(one, event=msgspec.json.encode(told).decode())


def redacted(one: Checkpoint) -> Checkpoint:
    """Return a checkpoint with hashes in the place of names, and no sentence."""
    return msgspec.structs.replace(
        one,
        job=_hashed(one.job),
        path=_hashed(one.path),
        run=None if one.run is None else _run(one.run),
        place=None if one.place is None else msgspec.structs.replace(one.place, key=_hashed(one.place.key)),
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
    return msgspec.structs.replace(run, key=_hashed(run.key), job=_hashed(run.job), conflict=None)


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
    return name if name is None else hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]
