"""Groups waiting transfers into candidates, job by job, and decides which of them have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, group_parts, second_copy_gap_ns
from ckptprof.detect.events.lifecycle import LONGEST_CLOSING_NS, patience_ns
from ckptprof.detect.tolerances import CONCURRENT_NS, FEW, HEADER_BYTES, LITTLE_SHARE, MOST_SHARE, PATIENCE_NS
from ckptprof.detect.transfers.estimates import is_no_checkpoint
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.transfer_tracker import QUIET_NS, TransferTracker
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.memory_growth import find_build_after, pause_limit_ns
from ckptprof.detect.world.spans import clip, merged
from ckptprof.detect.world.world import World

MANY_PARTS = 2_000  # few saves have more files under names of no framework
_MAX_PARTS = 10_000  # 5 KB each: no candidate with more waits for its end
_MAX_NAMED_PARTS = 250_000  # under a checkpoint's name

_Owner = tuple[str, bool]  # (job, is by a tool that it does not wait for, or by a converter): no writer of its saves
_Written = dict[ProcessKey, list[Transfer]]
_BothDirections = tuple[list[Transfer], list[Transfer]]  # written, read


class NextStep(Enum):
    """The next step of a candidate."""

    WAITS = "more may follow"
    ENDED = "its last sign is old enough, or it has more files than memory may retain"
    ENDLESS = "it continues without end under names of no framework"


class CandidateGatherer:
    """Groups waiting transfers into candidates of their jobs."""

    def __init__(self, world: World, transfers: TransferTracker) -> None:
        self._world = world
        self._jobs = world.jobs
        self._transfers = transfers
        self._estimates = transfers.estimates
        self._recent = transfers.recent
        self._converters: set[ProcessKey] = set()

    def gather(self, waiting: list[Transfer], still_open: Sequence[Transfer]) -> list[Candidate]:
        """Return the candidates of waiting transfers, earliest first, with open transfers that may belong to them.

        A transfer with nothing of a checkpoint is closed at once and is part of no candidate.
        """
        owners: dict[ProcessKey, _Owner] = {}
        transferred, irrelevant = self._group_by_owner(waiting, owners)
        for transfer in irrelevant:
            transfer.mark_classified()
        for owner, part in self._open_parts(transferred, still_open, owners):
            transferred[owner][not part.writes].append(part)
        return self._candidates(transferred)

    def gather_as_ended(self, transfers: Sequence[Transfer]) -> list[Candidate]:
        """Return the candidates as if every open transfer had ended; nothing is closed."""
        return self._candidates(self._group_by_owner(transfers, {})[0])

    def _group_by_owner(
        self, transfers: Sequence[Transfer], owners: dict[ProcessKey, _Owner]
    ) -> tuple[dict[_Owner, _BothDirections], list[Transfer]]:
        """Return the transfers of each owner, and those with nothing of a checkpoint."""
        self._estimates.begin_round()
        self._converters = self._find_converters([one for one in transfers if one.writes])
        transferred: dict[_Owner, _BothDirections] = {}
        estimated = {id(one): one for one in transfers if self._estimates.estimate(one)}
        self._estimates.divide_shared_files([one for one in estimated.values() if one.writes])
        for transfer in filter(lambda one: one.bytes, estimated.values()):
            transferred.setdefault(self._owner_of(transfer, owners), ([], []))[not transfer.writes].append(transfer)
        return transferred, [one for one in transfers if id(one) not in estimated or not one.bytes]

    def _candidates(self, transferred: dict[_Owner, _BothDirections]) -> list[Candidate]:
        found: list[Candidate] = []
        for (job, _), directions in transferred.items():
            for parts in self._estimates.reconcile(*directions):
                tools = set(filter(self._jobs.is_tool, {part.process for part in parts}))
                by_tools_alone = [part for part in parts if part.process in tools and part.staging_file is None]
                own = [part for part in parts if part.process not in tools or part.staging_file is not None]
                found += [
                    grouped
                    for alike in (own, by_tools_alone)
                    for grouped in group_parts(job, alike, self._longest_pause_ns)
                    if any(grouped.ended_transfers())
                ]
        return sorted(found, key=lambda candidate: candidate.start_ns)

    def _longest_pause_ns(self, earlier: Candidate, later: Candidate) -> int:
        """Return the longest pause between two candidates; reading what was just saved is none.

        Such reading averages, merges or checks the save.
        """
        between, folders = (earlier.end_ns, later.start_ns), {part.folder for part in earlier.parts[-FEW:]}
        readings = [
            (one.start_ns, one.end_ns)
            for process in later.processes[:FEW] if later.writes and process in earlier.processes[:FEW]
            for one in self._recent.transfers_between(process, *between, writes=False) if one.folder in folders
        ]  # fmt: skip
        steps = [(between[0], between[0]), *merged(clip(readings, [between])), (between[1], between[1])]
        return max(after[0] - before[1] for before, after in pairwise(steps))

    def _owner_of(self, transfer: Transfer, owners: dict[ProcessKey, _Owner]) -> _Owner:
        owner = owners.get(transfer.process)
        if owner is None:
            process = transfer.process
            own = self._waiting_trainer(transfer) if self._jobs.is_tool(process) else process
            owner = owners[process] = self._jobs.job_of(own or process), own is None or process in self._converters
        return owner

    def _find_converters(self, written: Sequence[Transfer]) -> set[ProcessKey]:
        """Find who only reads what others of its job just wrote, and writes less, or as much that nobody waits for."""
        by_process: _Written = {}
        for one in written:
            by_process.setdefault(one.process, []).append(one)
        found, jobs = set[ProcessKey](), {process: self._jobs.job_of(process) for process in by_process}
        in_jobs = Counter(jobs.values())
        sharing = [process for process, job in jobs.items() if in_jobs[job] > 1]
        writers: dict[str, dict[FileKey, set[ProcessKey]]] = {}
        for process in sharing:
            for one in by_process[process]:
                writers.setdefault(jobs[process], {}).setdefault(one.file, set()).add(process)
        for process in sharing:
            own, job = by_process[process], jobs[process]
            span = min(one.first_ns for one in own) - CERTAIN_GAP_NS, max(one.last_ns for one in own)
            readings = self._recent.readings_of(process, writers[job], span)
            others = [one for one in readings if process not in writers[job][one.file]]
            since_ns = min((one.first_ns for one in others), default=0)
            before = sum(one.size_in_use for one in own if one.first_ns < since_ns)
            read_bytes = sum(one.size_in_use for one in others)
            wrote = sum(one.size_in_use for one in own)
            is_smaller = wrote < MOST_SHARE * read_bytes
            makers = {maker: by_process[maker] for one in others for maker in writers[job][one.file]}
            is_apart = is_smaller or (len(own) >= len(others) and self._moves_alone(process, own, makers))
            if others and before < HEADER_BYTES and before < wrote and is_apart:
                found.add(process)
        return found

    def _moves_alone(self, process: ProcessKey, own: list[Transfer], makers: _Written) -> bool:
        """Return True if it ran before those who wrote what it copies began to, and they went on while it did so."""
        world, span = self._world, (min(one.first_ns for one in own), max(one.last_ns for one in own))
        is_older = all(0 < world.histories[process].first_ns < one.first_ns for row in makers.values() for one in row)
        return is_older and all((world.trainers.running_share(one, *span) or 0) > LITTLE_SHARE for one in makers)

    def _waiting_trainer(self, transfer: Transfer) -> ProcessKey | None:
        """Find the trainer that started a tool and hardly ran while that transferred: it waits for it."""
        trainer = next(filter(self._world.may_save, self._world.starters(transfer.process)), None)
        ran = None if trainer is None else self._world.trainers.running_share(trainer, *transfer.data_span)
        return trainer if ran is not None and ran <= LITTLE_SHARE else None

    def _open_parts(
        self,
        transferred: dict[_Owner, _BothDirections],
        still_open: Sequence[Transfer],
        owners: dict[ProcessKey, _Owner],
    ) -> Iterator[tuple[_Owner, Transfer]]:
        """Yield the open transfers of jobs with waiting ones: all writes, and reads of the same files."""
        since_ns_by_owner: dict[_Owner, int] = {}
        directories: dict[_Owner, set[str]] = {}
        files: dict[_Owner, set[tuple[int, int]]] = {}
        for owner, (written, read) in transferred.items():
            since_ns_by_owner[owner] = min(part.start_ns for part in (*written, *read)) - CERTAIN_GAP_NS
            directories[owner] = {part.name.directory for part in read}
            files[owner] = {part.file for part in written}
        for transfer in still_open:
            owner = self._owner_of(transfer, owners)
            if owner not in transferred or transfer.first_ns < since_ns_by_owner[owner]:
                continue
            known = self._estimates.estimate_open(transfer)
            if known and (
                transfer.writes or transfer.name.directory in directories[owner] or transfer.file in files[owner]
            ):
                yield owner, transfer

    def next_step(self, candidate: Candidate, now_ns: int) -> NextStep:
        """Return the next step of a candidate."""
        if _is_endless(candidate):
            return NextStep.ENDLESS
        has_ended = len(candidate.parts) >= _MAX_NAMED_PARTS or self._has_ended(candidate, now_ns)
        return NextStep.ENDED if has_ended else NextStep.WAITS

    def _has_ended(self, candidate: Candidate, now_ns: int) -> bool:
        sign_times = [max(part.end_ns, part.last_ns) for part in candidate.parts if not part.is_open]
        sign_times += [transfer.last_ns for part in candidate.parts for transfer in part.stands_for]
        quiet_ns = now_ns - max(sign_times, default=0)
        if quiet_ns < (PATIENCE_NS if candidate.open_parts else QUIET_NS):
            return False
        candidate.patience_ns = self._patience_ns(candidate)
        candidate.due_ns = now_ns - quiet_ns + candidate.patience_ns
        quiet_ns -= self._world.starvation.late_ns(now_ns - quiet_ns, now_ns)  # no samples then: no silence
        return quiet_ns >= candidate.patience_ns and not self._is_in_use(candidate, now_ns)

    def _is_in_use(self, candidate: Candidate, now_ns: int) -> bool:
        """Return True while readers build memory from it, or a writer waits for a child: the stall is not known yet."""
        start_ns, end_ns, world = candidate.start_ns, candidate.end_ns, self._world
        if now_ns - end_ns >= PATIENCE_NS:
            return False
        if candidate.writes:
            files, own = {part.file for part in candidate.parts}, candidate.processes
            if not any(world.threads.child_waits(one, now_ns - CONCURRENT_NS, now_ns) for one in own[:FEW]):
                return False
            others = (one for one in world.histories if self._jobs.job_of(one) == candidate.job and one not in own)
            return candidate.is_unnamed or any(self._recent.readings_of(one, files, (end_ns, now_ns)) for one in others)
        memories = (world.usage.memory_changes(process, end_ns, now_ns) for process in candidate.processes)
        built = (find_build_after(changes, start_ns, end_ns, candidate.bytes) for changes in memories)
        return any(span is not None and now_ns - span[1] <= pause_limit_ns(span[1] - end_ns) for span in built)

    def without_open_parts(self, candidate: Candidate) -> Candidate:
        """Return the candidate without open parts and without those that turned out to be no checkpoint."""
        ended = (part for part in candidate.parts if not part.is_open)
        selected = [part for part in ended if not (is_no_checkpoint(part) or self._transfers.is_nameless(part))]
        if len(selected) == len(candidate.parts):
            return candidate
        closed = Candidate(candidate.job, candidate.writes, patience_ns=candidate.patience_ns)
        for part in selected:
            closed.add(part)
        return closed

    def _patience_ns(self, candidate: Candidate) -> int:
        """Return how long more of its files may follow: those of a step's folder come even after a long barrier."""
        ended, complete = self._world.ended, candidate.committed_ns is not None
        # the process that forked the writers has exited, too: while alive it may fork the next rank
        all_exited = all(
            process in ended and self._jobs.rank_process(process) in ended for process in candidate.processes
        )
        is_step_folder = any(part.name.is_certain and "#" not in part.name.directory for part in candidate.parts)
        return patience_ns(
            ended=all_exited,
            writes=candidate.writes,
            lacks_ranks=not all_exited and not complete and self._is_missing_ranks(candidate),
            lacks_files=(is_step_folder and not complete) or candidate.is_unnamed,
            second_copy_ns=second_copy_gap_ns(candidate) if may_be_written_twice(candidate) else 0,
        )

    def _is_missing_ranks(self, candidate: Candidate) -> bool:
        """Return True if some local ranks have written or read their parts, and others, still alive, have not."""
        if len(candidate.processes) < 2 or not any(part.name.is_certain for part in candidate.parts):
            return False
        local_ranks = self._jobs.local_living_ranks(candidate.processes[0])
        observed_ranks = {part.name.rank for part in candidate.parts}
        observed_ranks |= {self._jobs.rank(process) for process in candidate.processes}
        return len(observed_ranks & local_ranks) >= 2 and not local_ranks <= observed_ranks


def may_be_written_twice(candidate: Candidate) -> bool:
    """Return True if its framework writes it once more under a name like `last.ckpt`, and has not yet."""
    named = [part.name for part in candidate.parts[:FEW]]
    if not candidate.writes or any(name.alias for name in named):
        return False
    return any(name.framework is not None and name.framework.copies_whole for name in named)


def _is_endless(candidate: Candidate) -> bool:
    """Recognise a data set or a transfer, which continues for days under names of no framework.

    Waiting for its end would retain all of it in memory.
    """
    number = len(candidate.parts)
    if number < MANY_PARTS or _has_checkpoint_name(candidate):
        return False
    return number >= _MAX_PARTS or candidate.end_ns - candidate.start_ns >= LONGEST_CLOSING_NS


def _has_checkpoint_name(candidate: Candidate) -> bool:
    """Find a framework, a step's folder, a marker or a word in the names of its first files."""
    names = [part.name for part in candidate.parts[:FEW]]
    is_of_framework = any(name.framework is not None and not name.framework.weak for name in names)
    return is_of_framework or any(name.is_certain or name.commit or name.hint for name in names)
