"""Phases of a transfer: what leads from one to the next, and in which module.

Theory of operation. A transfer is the I/O of one process on one file in one direction, from an open to the close after
it. It is never observed completely: frames report it in parts, and each part narrows the bounds of the earlier ones.
It is

OPEN        from the first sample of its file, or the first counted call. Modules of `observed` own it.
ENDED       after its close, the end of its process, or a long pause. It waits until its event is classified. If the
            trace counts one more call, it is OPEN again; samples start another transfer instead.
CLASSIFIED  after its event was classified, or when it cannot be part of a checkpoint. It is retained, because later
            events are compared with it; only syncs that make it durable still change it.

Who changes it, in the order in which that happens:

1. With each frame (`TransferTracker.ingest`):
   observed/polled_transfers    makes it OPEN: samples, mapped bytes, `size`, `last_ns`; then ENDED: `closed_ns`,
                                `max_written_bytes`
   observed/traced_books        makes it OPEN: sessions, `points`, `size`, `last_ns`; then ENDED: `ended_until_ns`
   observed/file_events         of a traced one: creation, renames, syncs and `closed_ns`
2. Twice a second (`TransferTracker.update`), those that are OPEN or ENDED:
   transfer_tracker             drops a polled one that traced ones explain, which get the values only samples show;
                                merges a file truncated and rewritten while open into one transfer
   file_facts                   `fact`, the last `path`, `size`; restarts a transfer credited while its file grew
   unobserved_writes, _reads    make one that is ENDED: no process was observed, only counters
3. Right after that (`CandidateGatherer.gather`), those that are ENDED or OPEN, all of it again:
   estimates                    `name`, the edges (by `edges`) and the bytes (by `transferred_bytes`), within the bounds
   estimates, for each job      a second writing of a file starts after the first; no process read more than was counted
   staging                      a staging file becomes part of its copy (`staging_file`), which starts with it
4. `pipeline`, once its event has ended, makes it CLASSIFIED.
   observed/file_events         later syncs, until it is durable

No other module changes it. `ledger`, `edges` and `transferred_bytes` return their results; `access_order` and
`recent_files` answer queries of signals and descriptions after the estimate.

So process, file and direction are known from the start. Start, end and bytes have bounds at any time. `closed_ns`,
`fact` and the last `path` may arrive as late as the round in which its event is classified. `name`, `start_ns`,
`end_ns`, `bytes` and `staging_file` are valid from its first round on, each until the next round.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """How far a transfer is: open, ended, or part of a classified event."""

    __hash__ = object.__hash__  # a third of the time of Enum's: each round hashes thousands

    OPEN = "open"
    ENDED = "over"
    CLASSIFIED = "judged"
