"""Groups waiting transfers into candidates, job by job, and decides which of them have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, further_gap_ns, group
from ckptprof.detect.events.waits import LONGEST_CLOSING_NS, patience_ns
from ckptprof.detect.tolerances import AT_ONCE_NS, FEW, PATIENCE_NS
from ckptprof.detect.transfers.estimates import is_nothing
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfers import QUIET_NS, Transfers
from ckptprof.detect.world.building import built_after
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import cut, merged
from ckptprof.detect.world.world import World

MANY_PARTS = 2_000  # few saves have more files under names of no framework
_MOST = 10_000  # 5 KB each: no candidate with more waits for its end
_MOST_NAMED = 250_000  # under a checkpoint's name

_Owner = tuple[str, bool]  # a job, or its tools: a `cp` that it started is no writer of its saves
_BothWays = tuple[list[Transfer], list[Transfer]]  # written, read


class Turn(Enum):
    """The next step of a candidate."""

    WAITS = "more may follow"
    OVER = "its last sign is old enough, or it has more files than memory may retain"
    ENDLESS = "it continues without end under names of no framework"


class Gatherer:
    """Groups waiting transfers into candidates of their jobs."""

    def __init__(self, world: World, transfers: Transfers) -> None:
        self._world = world
        self._jobs = world.jobs
        self._transfers = transfers
        self._estimates = transfers.estimates
        self._recent = transfers.recent

    def gather(self, waiting: list[Transfer], still_open: Sequence[Transfer]) -> list[Candidate]:
        """Return the candidates of waiting transfers, earliest first, with open transfers that may belong to them.

        A transfer with nothing of a checkpoint is closed at once and is part of no candidate.
        """
        owners: dict[ProcessKey, _Owner] = {}
        moved, nothing = self._moved(waiting, owners)
        for transfer in nothing:
            transfer.judged()
        for owner, part in self._open_parts(moved, still_open, owners):
            moved[owner][not part.writes].append(part)
        return self._candidates(moved)

    def gather_as_over(self, transfers: Sequence[Transfer]) -> list[Candidate]:
        """Return the candidates as if every open transfer had ended; nothing is closed."""
        return self._candidates(self._moved(transfers, {})[0])

    def _moved(
        self, transfers: Sequence[Transfer], owners: dict[ProcessKey, _Owner]
    ) -> tuple[dict[_Owner, _BothWays], list[Transfer]]:
        """Return the transfers of each owner, and those with nothing of a checkpoint."""
        self._estimates.begin_round()
        moved: dict[_Owner, _BothWays] = {}
        nothing = []
        for transfer in transfers:
            if self._estimates.estimate(transfer):
                moved.setdefault(self._owner_of(transfer, owners), ([], []))[not transfer.writes].append(transfer)
            else:
                nothing.append(transfer)
        return moved, nothing

    def _candidates(self, moved: dict[_Owner, _BothWays]) -> list[Candidate]:
        found: list[Candidate] = []
        for (job, _), directions in moved.items():
            for parts in self._estimates.join(*directions):
                found += [made for made in group(job, parts, self._pause_ns) if any(made.over())]
        return sorted(found, key=lambda candidate: candidate.start_ns)

    def _pause_ns(self, earlier: Candidate, later: Candidate) -> int:
        """Return the longest pause between two candidates; reading what was just saved is none.

        Such reading averages, merges or checks the save.
        """
        between, folders = (earlier.end_ns, later.start_ns), {part.folder for part in earlier.parts[-FEW:]}
        readings = [
            (move.start_ns, move.end_ns)
            for process in later.processes[:FEW] if later.writes and process in earlier.processes[:FEW]
            for move in self._recent.moved(process, *between, writes=False) if move.folder in folders
        ]  # fmt: skip
        steps = [(between[0], between[0]), *merged(cut(readings, [between])), (between[1], between[1])]
        return max(after[0] - before[1] for before, after in pairwise(steps))

    def _owner_of(self, transfer: Transfer, owners: dict[ProcessKey, _Owner]) -> _Owner:
        owner = owners.get(transfer.process)
        if owner is None:
            process = transfer.process
            owner = owners[process] = self._jobs.job_of(process), self._jobs.is_tool(process)
        return owner

    def _open_parts(
        self,
        moved: dict[_Owner, _BothWays],
        still_open: Sequence[Transfer],
        owners: dict[ProcessKey, _Owner],
    ) -> Iterator[tuple[_Owner, Transfer]]:
        """Yield the open transfers of jobs with waiting ones: all writes, and reads of the same files."""
        since: dict[_Owner, int] = {}
        directories: dict[_Owner, set[str]] = {}
        files: dict[_Owner, set[tuple[int, int]]] = {}
        for owner, (written, read) in moved.items():
            since[owner] = min(part.start_ns for part in (*written, *read)) - CERTAIN_GAP_NS
            directories[owner] = {part.name.directory for part in read}
            files[owner] = {part.file for part in written}
        for transfer in still_open:
            owner = self._owner_of(transfer, owners)
            if owner not in moved or transfer.first_ns < since[owner]:
                continue
            known = self._estimates.estimate_open(transfer)
            if known and (
                transfer.writes or transfer.name.directory in directories[owner] or transfer.file in files[owner]
            ):
                yield owner, transfer

    def turn(self, candidate: Candidate, now_ns: int) -> Turn:
        """Return the next step of a candidate."""
        if _is_endless(candidate):
            return Turn.ENDLESS
        is_over = len(candidate.parts) >= _MOST_NAMED or self._is_over(candidate, now_ns)
        return Turn.OVER if is_over else Turn.WAITS

    def _is_over(self, candidate: Candidate, now_ns: int) -> bool:
        signs = [max(part.end_ns, part.last_ns) for part in candidate.parts if not part.is_open]
        signs += [transfer.last_ns for part in candidate.parts for transfer in part.copied_from]
        quiet_ns = now_ns - max(signs, default=0)
        if quiet_ns < (PATIENCE_NS if candidate.open_parts else QUIET_NS):
            return False
        candidate.patience_ns = self._patience_ns(candidate)
        quiet_ns -= self._world.starvation.late_ns(now_ns - quiet_ns, now_ns)  # no samples then: no silence
        return quiet_ns >= candidate.patience_ns and not self._builds(candidate, now_ns)

    def _builds(self, candidate: Candidate, now_ns: int) -> bool:
        """Return whether readers still build memory from it: until that ends the stall of training is not known."""
        start_ns, end_ns = candidate.start_ns, candidate.end_ns
        if candidate.writes or now_ns - end_ns >= PATIENCE_NS:
            return False
        memories = (self._world.usage.memory(process, end_ns, now_ns) for process in candidate.processes)
        built = (built_after(looks, start_ns, end_ns, candidate.bytes) for looks in memories)
        return any(span is not None and now_ns - span[1] <= AT_ONCE_NS for span in built)

    def settled(self, candidate: Candidate) -> Candidate:
        """Return the candidate without open parts and without those that turned out to be no checkpoint."""
        ended = (part for part in candidate.parts if not part.is_open)
        kept = [part for part in ended if not (is_nothing(part) or self._transfers.is_nameless(part))]
        if len(kept) == len(candidate.parts):
            return candidate
        closed = Candidate(candidate.job, candidate.writes, patience_ns=candidate.patience_ns)
        for part in kept:
            closed.add(part)
        return closed

    def _patience_ns(self, candidate: Candidate) -> int:
        """Return how long more of its files may follow: those of a step's folder come even after a long barrier."""
        ended, complete = self._world.ended, candidate.committed_ns is not None
        # the process that forked them to write has exited too: it may fork the next rank
        over = all(process in ended and self._jobs.works_for(process) in ended for process in candidate.processes)
        folder = any(part.name.certain and "#" not in part.name.directory for part in candidate.parts)
        return patience_ns(
            ended=over,
            writes=candidate.writes,
            lacks_ranks=not over and not complete and self._lacks_ranks(candidate),
            lacks_files=(folder and not complete) or any(part.temporary for part in candidate.parts),
            again_ns=further_gap_ns(candidate) if may_come_again(candidate) else 0,
        )

    def _lacks_ranks(self, candidate: Candidate) -> bool:
        """Return whether several local ranks have written or read their parts and others, still alive, have not."""
        if len(candidate.processes) < 2 or not any(part.name.certain for part in candidate.parts):
            return False
        here = self._jobs.living_ranks(candidate.processes[0])
        if len(here) < 2:
            return False
        seen = {part.name.rank for part in candidate.parts}
        seen |= {self._jobs.rank(process) for process in candidate.processes}
        return len(seen & here) >= 2 and not here <= seen


def may_come_again(candidate: Candidate) -> bool:
    """Return whether its framework writes it once more under a name like `last.ckpt`, and has not yet."""
    named = [part.name for part in candidate.parts[:FEW]]
    if not candidate.writes or any(name.alias for name in named):
        return False
    return any(name.framework is not None and name.framework.copies_whole for name in named)


def _is_endless(candidate: Candidate) -> bool:
    """Return whether it continues without end under names of no framework: a data set, a transfer.

    Waiting for its end would keep all of it in memory for days.
    """
    number = len(candidate.parts)
    if number < MANY_PARTS or _speaks_of_checkpoint(candidate):
        return False
    return number >= _MOST or candidate.end_ns - candidate.start_ns >= LONGEST_CLOSING_NS


def _speaks_of_checkpoint(candidate: Candidate) -> bool:
    """Return whether a framework, a step's folder, a marker or a word is in the names of its first files."""
    return any(
        part.name.certain
        or part.name.commit
        or part.name.hint
        or (part.name.framework is not None and not part.name.framework.weak)
        for part in candidate.parts[:FEW]
    )
