"""What is said of checkpoints that went to an object store, or came from one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timezone

from ckptprof.measures import Measures, UploadMeasure
from ckptprof.model import Checkpoint, Destination, Kind, Sent
from ckptprof.report import show

SECOND = 1_000_000_000
STORE = Sent(
    destinations=(Destination(remote="10.0.0.9", port=443, bytes=100 << 20),),
    connections=4,
    parts=12,
    part_bytes=8 << 20,
)


def facts(told: Checkpoint, zone: timezone) -> dict[str, str]:
    """Return the lines that begin with a word and have one meaning."""
    text = show.render(told, width=160, colour=False, zone=zone)
    return dict(re.findall(r"^ *(Path|Transferred|Page cache|Uploaded) +(.*)$", text, re.MULTILINE))


def test_a_restore_from_an_object_store_says_where_it_came_from(
    make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """No page cache of this host was in its way."""
    restore = make_checkpoint(1, 0, kind=Kind.RESTORE, bytes=100 << 20, path=None, files=0, sent=STORE)
    told = facts(restore, zone)

    assert told["Path"] == "object store 10.0.0.9:443"
    assert told["Transferred"].startswith("105 MB in 12 parts over 4 connections in ")
    assert "Page cache" not in told


def test_an_upload_is_told_with_its_end(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """As a tier more of the save; whose name may be anything."""
    save = make_checkpoint(1, 0)
    last_ns = save.moments.last_data_ns or save.end_ns
    upload = UploadMeasure(
        remote="10.0.0.9\x1b", port=443, bytes=100 << 20, start_ns=last_ns, end_ns=last_ns + 3 * SECOND, processes=(7,)
    )

    assert "Uploaded" not in facts(save, zone)
    line = facts(make_checkpoint(1, 0, measures=Measures(uploads=(upload,))), zone)["Uploaded"]
    assert line.startswith("105 MB to the object store at 10.0.0.9\\x1b port 443, 3.00 s after the last write")
