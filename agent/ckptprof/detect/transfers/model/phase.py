"""A transfer's life: its phases, what moves it from one to the next, and which module does so.

Theory of operation. A transfer is what one process moves of one file in one direction, from an opening to the closing
after it. Nobody sees all of that: frames tell it in parts, and a later part narrows what an earlier one left open.
It is

OPEN        from the first sample of its file, or the first call that was counted. The rooms of `observed` have it.
ENDED       from its closing, or the end of its process, or when it has stood still for long. It waits until its event
            is classified. A trace that counts one more call opens it again; samples start another one instead.
CLASSIFIED  once its event was classified, or when it carries nothing of a checkpoint's. It is retained, because later
            events are compared with it, and nothing changes any more but the syncs that store it.

Who changes it, in the order in which that happens:

1. With each frame (`TransferTracker.ingest`):
   observed/polled_transfers    makes it OPEN: samples, mapped bytes, `size`, `last_ns`; then ENDED: `closed_ns`,
                                `max_written_bytes`
   observed/traced_transfers    makes it OPEN: sessions, `points`, `size`, `last_ns`; then ENDED: `ended_until_ns`
   observed/file_events         of a traced one: its creation, renames, syncs and `closed_ns`, whichever comes
2. Twice a second (`TransferTracker.update`), those that are OPEN or ENDED:
   transfer_tracker             drops a polled one that traced ones explain; what only samples knew goes there
                                a file that was emptied and written again while it was open is one transfer, not two
   file_facts                   `fact`, the last `path`, `size`; what was found of a file while it grew is its start
   unobserved_writes, _reads    make one that is ENDED: no process was observed, only counters
3. Right after that (`Gatherer.gather`), those that are ENDED or OPEN, all of it again:
   estimates                    `name`, the edges (by `edges`) and the bytes (by `transferred_bytes`), within the bounds
   estimates, for each job      a second writing of a file starts after the first; nobody read more than was counted
   staging                      what is copied on stands behind its copy (`staging_file`), which starts with it
4. `pipeline`, once its event has ended, makes it CLASSIFIED.
   observed/file_events         syncs that come later, up to when it is durable

No other room changes it. `ledger`, `edges` and `transferred_bytes` return what they work out; `access_order` and
`recent_files` answer what signals and descriptions ask of it once it was estimated.

So who, what file and which way are true from the start. Start, end and bytes have bounds at any time. `closed_ns`,
`fact` and the last `path` may come as late as in the round in which its event is classified. `name`, `start_ns`,
`end_ns`, `bytes` and `staging_file` are true from its first round on, each until the next round.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a transfer is in its life."""

    __hash__ = object.__hash__  # a third of the time of Enum's: each round asks for thousands

    OPEN = "open"
    ENDED = "over"
    CLASSIFIED = "judged"
