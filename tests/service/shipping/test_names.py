"""What people chose does not leave the host, unless that is wanted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest
from tests.cluster.nodes import Job

from ckptprof.cluster.merging import merge
from ckptprof.model import Destination, Overhead, Run, Sent
from ckptprof.service.shipping.names import redacted, without_names
from ckptprof.store.fleet.outbox import Batch, Changed
from ckptprof.verdicts import Cost

SAVE = Job(saves=1).seen()[0][0].checkpoints[0]
HASH = re.compile(r"[0-9a-f]{12}")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def test_no_text_is_left_but_words_of_our_own() -> None:
    """Whatever a checkpoint has: each text is a hash, empty, or one short word without a space or a slash."""
    whole = msgspec.structs.replace(
        SAVE,
        job="secret job",
        path="/home/secret/ckpt",
        run=Run(key="slurm:secret/1", scheduler="slurm", job="secret", conflict="it says secret"),
        sent=Sent(destinations=(Destination(remote="10.1.2.3", port=443, bytes=1),), connections=4),
        overheads=(Overhead(reason="staging", bytes=1, text="staged in /secret"),),
        blind=("nobody saw /secret",),
        cost=Cost(gpu_seconds=1.0, ceiling_from="/secret"),
    )

    told = msgspec.to_builtins(redacted(whole))

    words = {text for text in _texts(told) if not HASH.fullmatch(text)}
    assert {word for word in words if re.search(r"[\s/:]|\d\.", word)} == set()
    assert not [word for word in words if "secret" in word]
    assert redacted(whole).bytes == whole.bytes
    assert redacted(whole).verdict is not None


def test_nodes_still_have_one_run() -> None:
    """Parts are joined as before: the same name has the same hash."""
    records, _ = Job(nodes=4, saves=3, late_s={1: 4.0}).seen()
    hidden = [
        msgspec.structs.replace(record, checkpoints=tuple(map(redacted, record.checkpoints))) for record in records
    ]

    plain, bare = merge(records), merge(hidden)

    assert [len(one.nodes) for one in bare] == [len(one.nodes) for one in plain] == [4, 4, 4]
    assert [one.straggler is not None and one.straggler.host for one in bare] == ["train-node-1"] * 3
    assert {one.whole.job for one in bare}.isdisjoint({"train"})


@pytest.mark.parametrize("event", ["{", '{"id": 1}', "\x00"])
def test_what_cannot_be_read_is_not_sent_as_it_is(event: str) -> None:
    """Nobody knows what names it has."""
    one = Changed(id=1, uid="u", revision=1, first_start_ns=0, event=event)
    batch = Batch(after=0, until=1, is_last=True, last_id=1, kept_ids=1, events=(one,), sessions=())

    (told,) = without_names(batch).events

    assert (told.event, told.uid) == (None, "u")
    assert told.problem is not None
