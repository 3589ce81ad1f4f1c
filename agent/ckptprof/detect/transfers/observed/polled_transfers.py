"""From looks at open files to transfers: what one process did to one file in one direction, from opening to closing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckptprof.detect.tolerances import ALL_SHARE, FEW, LOOK_NS
from ckptprof.detect.transfers.model.looks import Look, Looks
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import Openings
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import FileScan, OpenFile

# open(2) flags as the kernel reports them in fdinfo (include/uapi/asm-generic/fcntl.h)
O_ACCMODE = 0o3
O_APPEND = 0o2000
O_DIRECT = 0o40000 | 0o200000  # arch/arm64/include/uapi/asm/fcntl.h swaps it with O_DIRECTORY; a file is never that

_LAST_STANDARD = 2  # of input, output and errors
_O_TMPFILE = 0o20000000
_UNLINKED = " (deleted)"  # behind a path of /proc/PID/fd

_Key = tuple[FileKey, bool]  # a file, and whether it is written


@dataclass(slots=True)
class _Process:
    """What the looks at one process told."""

    key: ProcessKey
    scanned_ns: int
    mapped_ns: int | None = None  # when its mappings were looked at
    read_ns: int = 0  # when it was last seen to have closed a file that it read
    open: dict[_Key, Transfer] = field(default_factory=dict)


class PolledTransfers:
    """Follows the open files of all processes."""

    def __init__(self, world: World, openings: Openings) -> None:
        self._world = world
        self._openings = openings
        self._processes: dict[ProcessKey, _Process] = {}
        self.done: list[Transfer] = []  # closed, waiting to be grouped

    @property
    def looks(self) -> int:
        """How many looks at open files are kept."""
        return sum(len(transfer.looks) for transfer in self.open_transfers())

    def open_transfers(self) -> list[Transfer]:
        """Return the transfers whose files are still open."""
        return [transfer for process in self._processes.values() for transfer in process.open.values()]

    def open_of(self, process: ProcessKey) -> list[Transfer]:
        """Return the transfers of one process whose files are still open."""
        return list(self._processes[process].open.values()) if process in self._processes else []

    def scan(self, at_ns: int, scan: FileScan) -> None:
        """Take one complete look at a process's files."""
        key = (scan.pid, scan.start_ticks)
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _Process(key, at_ns)
        before_ns = process.scanned_ns if at_ns - process.scanned_ns <= LOOK_NS else at_ns
        foremost = _foremost(scan.files)
        done = [self._look(process, place, at_ns, before_ns, file) for place, file in foremost.items()]
        for over in filter(None, done):  # once all positions are known
            self._reach(process, over, at_ns)
        present = set(foremost)
        if scan.mapped is not None:
            for mapped in scan.mapped:
                place = (mapped.device, mapped.inode), mapped.writable
                present.add(place)
                transfer = process.open.get(place)
                if transfer is None:
                    looked_ns = before_ns if process.mapped_ns is None else process.mapped_ns
                    transfer = _begin(process, place, at_ns, looked_ns, mapped.path)
                    transfer.seen_by = "maps"
                transfer.last_ns = at_ns
                transfer.mapped_bytes = max(transfer.mapped_bytes, mapped.mapped_bytes)
            process.mapped_ns = at_ns
        for place in process.open.keys() - present:
            if scan.mapped is not None or not process.open[place].mapped_bytes:  # else it may be mapped yet
                self._reach(process, self._close(process, place, at_ns), at_ns)
        process.scanned_ns = at_ns

    def _look(self, process: _Process, place: _Key, at_ns: int, before_ns: int, file: OpenFile) -> Transfer | None:
        """Take one look at an open file; return what was over, if this is another writing or reading of it."""
        transfer, over = process.open.get(place), None
        if transfer is not None and transfer.looks:
            last = transfer.looks[-1]
            truncated = place[1] and file.size < last.size and file.position <= last.position  # it is written anew
            if truncated or self._is_read_again(process, transfer, file.position, at_ns):
                self._close(process, place, at_ns)
                transfer, over = None, transfer
        if transfer is None:
            transfer = _begin(process, place, at_ns, before_ns, file.path)
            transfer.unlinked, transfer.retried = True, over if place[1] else None
        transfer.last_ns = at_ns
        transfer.path = file.path.removesuffix(_UNLINKED)
        transfer.unlinked &= transfer.path != file.path
        transfer.size = max(transfer.size, file.size)
        transfer.direct = _is_direct(file.flags)
        transfer.append = bool(file.flags & O_APPEND)
        if not isinstance(transfer.looks, Looks):
            transfer.looks = Looks()
        transfer.looks.append(Look(at_ns, file.position, file.size))
        return over

    def _is_read_again(self, process: _Process, transfer: Transfer, position: int, at_ns: int) -> bool:
        """Return whether a file that was read whole already is read once more: its position is back at its begin.

        It went back, or somebody opened the file since the last look. Only of a process that read nothing else
        meanwhile: its calls tell no file.
        """
        if transfer.writes or transfer.mapped_bytes:
            return False
        last = transfer.looks[-1]
        stands = position == last.position < transfer.size // 2
        if stands and self._openings.opened_between(transfer.file, last.at_ns, at_ns) is None:
            return False
        if not stands and position >= last.position:
            return False
        if any(other is not transfer and not other.writes for other in process.open.values()):
            return False
        since_ns = max(transfer.before_ns, process.read_ns)
        before = transfer.looks[0].position if since_ns == transfer.first_ns else 0  # read before it was met
        history = self._world.histories[transfer.process]
        returned = history.returned_bytes(since_ns, history.last_ns + 1)
        return before + returned >= ALL_SHARE * transfer.size

    def _reach(self, process: _Process, transfer: Transfer, at_ns: int) -> None:
        """Note how far a file can have been written by its closing: from where its process was when that was counted.

        What was written between the last look and the closing no look has seen. Other files had their part of it, as
        far as their positions came.
        """
        if not transfer.writes or not transfer.looks or len(process.open) > FEW:
            return
        written = self._world.histories[process.key].between(transfer.looks[-1].at_ns, at_ns)
        if written:
            since_ns = written[0].start_ns
            others = (other for other in process.open.values() if other.writes and other.looks)
            elsewhere = sum(max(0, other.looks[-1].position - _position(other, since_ns)) for other in others)
            late = sum(interval.written_bytes for interval in written)
            transfer.reach = _position(transfer, since_ns) + late - elsewhere

    def _close(self, process: _Process, place: _Key, at_ns: int | None) -> Transfer:
        transfer = process.open.pop(place)
        transfer.phase = Phase.OVER
        transfer.closed_ns = at_ns
        if at_ns is not None and not transfer.writes:
            process.read_ns = at_ns
        self.done.append(transfer)
        return transfer

    def close_idle(self, now_ns: int, patience_ns: int) -> None:
        """Close the transfers of processes that are no longer looked at: their burst is over."""
        for process in self._processes.values():
            if now_ns - process.scanned_ns > patience_ns:
                for place in list(process.open):
                    self._close(process, place, None)

    def end(self, key: ProcessKey, at_ns: int) -> None:
        """Close everything of a process that has ended."""
        process = self._processes.pop(key, None)
        if process is not None:
            for place in list(process.open):
                self._close(process, place, at_ns)

    def take_done(self) -> list[Transfer]:
        """Return the transfers that were closed since the last call."""
        done, self.done = self.done, []
        return done


def _foremost(files: Iterable[OpenFile]) -> dict[_Key, OpenFile]:
    """Return of several descriptors on one file the one that is furthest in it: mmap keeps one that never moves.

    An empty file that a process would print to is nothing: no server that tells sizes late gives it what it writes.
    """
    foremost: dict[_Key, OpenFile] = {}
    for file in files:
        place = (file.device, file.inode), bool(file.flags & O_ACCMODE)
        is_output = file.fd <= _LAST_STANDARD and not file.size
        if not is_output and (place not in foremost or file.position > foremost[place].position):
            foremost[place] = file
    return foremost


def _is_direct(flags: int) -> bool:
    """Return whether a file is open for direct I/O; a nameless one has the flag of a folder, too."""
    return flags & O_DIRECT == O_DIRECT if flags & _O_TMPFILE else bool(flags & O_DIRECT)


def _position(transfer: Transfer, at_ns: int) -> int:
    """Return where in its file a process was at a time; before the first look at the beginning."""
    return next((look.position for look in reversed(transfer.looks) if look.at_ns <= at_ns), 0)


def _begin(process: _Process, place: _Key, at_ns: int, before_ns: int, path: str) -> Transfer:
    transfer = process.open[place] = Transfer(
        process=process.key,
        file=place[0],
        writes=place[1],
        path=path,
        first_ns=at_ns,
        last_ns=at_ns,
        before_ns=before_ns,
    )
    return transfer
