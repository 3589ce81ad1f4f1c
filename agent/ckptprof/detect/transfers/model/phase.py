"""A transfer's life: its phases, what moves it from one to the next, and which module does so.

Theory of operation. A transfer is what one process moves of one file in one direction, from an opening to the closing
after it. Nobody sees all of that: frames tell it in parts, and a later part narrows what an earlier one left open.
It is

OPEN    from the first look at its file, or the first call that was counted. It is in the books of `observed`.
OVER    from its closing, or the end of its process, or when it has stood still for long. It is in `Transfers.waiting`
        until its event is judged. A trace that counts one more call opens it again; looks begin another one instead.
JUDGED  once its event was judged, or when it carries nothing of a checkpoint's. It is remembered, for later events are
        compared with it, and nothing changes any more but the syncs that store it.

Who changes it, in the order in which that happens:

1. With each frame (`Transfers.take`):
   observed/polled_transfers    makes it OPEN: looks, mapped bytes, `size`, `last_ns`; then OVER: `closed_ns`, `reach`
   observed/traced_transfers    makes it OPEN: sessions, `points`, `size`, `last_ns`; then OVER: `over_ns`
   observed/file_events         of a traced one: its creation, renames, syncs and `closed_ns`, whichever comes
2. Twice a second (`Transfers.update`), those that are OPEN or OVER:
   transfers                    drops a polled one that traced ones explain; what only looks knew goes to these
                                a file that was emptied and written anew while it was open is one transfer, not two
   file_facts                   `fact`, the last `path`, `size`; what was found of a file while it grew is its begin
   unseen_writes, unseen_reads  make one that is OVER: nobody was seen at the file, counters say who moved it
3. Right after that (`Gatherer.gather`), those that are OVER, and beside them those that are OPEN, all of it anew:
   estimates                    `name`, the edges (by `edges`) and the bytes (by `moved_bytes`), within the bounds
   estimates, for each job      a second writing of a file begins after the first; nobody read more than was counted
   staging                      what is copied on stands behind its copy (`staged`), which begins with it
4. `pipeline`, once its event is over, makes it JUDGED.
   observed/file_events         syncs that come later, up to when it is durable

No other room changes it. `ledger`, `edges` and `moved_bytes` return what they work out; `order` and `remembered`
answer what signals and descriptions ask of it once it was estimated.

So who, what file and which way are true from the start. Begin, end and bytes have bounds at any time. `closed_ns`,
`fact` and the last `path` may come as late as in the round in which its event is judged. `name`, `start_ns`, `end_ns`,
`bytes` and `staged` are true from its first round on, each until the next round.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a transfer is in its life."""

    __hash__ = object.__hash__  # a third of the time of Enum's: each round asks for thousands

    OPEN = "open"
    OVER = "over"
    JUDGED = "judged"
