"""From looks at open files to transfers: what one process did to one file in one direction, from opening to closing."""

from __future__ import annotations

from ckptprof.detect.transfers.model.polled import Look, PolledTransfer
from ckptprof.detect.transfers.observed.openings import Openings
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import FileScan, MappedFile, OpenFile

# open(2) flags as the kernel reports them in fdinfo (include/uapi/asm-generic/fcntl.h)
O_ACCMODE = 0o3
O_APPEND = 0o2000
O_DIRECT_X86 = 0o40000
O_DIRECT_ARM = 0o200000  # arch/arm64/include/uapi/asm/fcntl.h swaps it with O_DIRECTORY; a file is never that
_MAX_LOOKS = 4000
_WHOLE = 0.99  # of a file that was read whole: whoever reads its pieces in another order goes back, too
_LATE_NS = 5_000_000  # a look is so much later than the beginning of its frame


class PolledTransfers:
    """Follows the open files of all processes."""

    def __init__(self, world: World, openings: Openings) -> None:
        """Start with nothing."""
        self._world = world
        self._openings = openings
        self._read_ns: dict[ProcessKey, int] = {}  # when it was last seen to have closed a file that it read
        self._open: dict[tuple[ProcessKey, FileKey, bool], PolledTransfer] = {}
        self._by_process: dict[ProcessKey, set[tuple[ProcessKey, FileKey, bool]]] = {}
        self._last_scan_ns: dict[ProcessKey, int] = {}
        self._last_map_ns: dict[ProcessKey, int] = {}
        self.done: list[PolledTransfer] = []  # closed, waiting to be grouped

    def open_transfers(self) -> list[PolledTransfer]:
        """Return the transfers whose files are still open."""
        return list(self._open.values())

    def open_of(self, process: ProcessKey) -> list[PolledTransfer]:
        """Return the transfers of one process whose files are still open."""
        return [self._open[key] for key in self._by_process.get(process, ()) if key in self._open]

    def scan(self, at_ns: int, scan: FileScan) -> None:
        """Take one complete look at a process's files."""
        process = (scan.pid, scan.start_ticks)
        before_ns = self._last_scan_ns.get(process, at_ns)
        if at_ns - before_ns > 1_500_000_000:  # not looked at for a while: the bracket says nothing
            before_ns = at_ns
        foremost: dict[tuple[ProcessKey, FileKey, bool], OpenFile] = {}
        for file in scan.files:
            key = (process, (file.device, file.inode), _writes(file))
            if key not in foremost or file.position > foremost[key].position:
                foremost[key] = file  # of several descriptors on one file: mmap keeps one that never moves
        for key, file in foremost.items():
            self._look(key, at_ns, before_ns, file)
        present = set(foremost)
        if scan.mapped is not None:
            map_before_ns = self._last_map_ns.get(process, before_ns)
            for mapped in scan.mapped:
                key = (process, (mapped.device, mapped.inode), mapped.writable)
                present.add(key)
                self._map(key, at_ns, map_before_ns, mapped)
            self._last_map_ns[process] = at_ns
        for key in self._by_process.get(process, set()) - present:
            if scan.mapped is None and self._open[key].mapped_bytes:  # it may be mapped yet
                continue
            self._close(key, at_ns)
        self._last_scan_ns[process] = at_ns

    def _look(self, key: tuple[ProcessKey, FileKey, bool], at_ns: int, before_ns: int, file: OpenFile) -> None:
        transfer = self._open.get(key)
        if transfer is not None and transfer.looks:
            last = transfer.looks[-1]
            truncated = key[2] and file.size < last.size and file.position <= last.position  # it is written anew
            if truncated or self._is_read_again(key, transfer, file.position, at_ns):
                self._close(key, at_ns)
                transfer = None
        if transfer is None or not transfer.looks:
            earlier = transfer
            transfer = self._begin(key, at_ns, before_ns, file.path)
            if earlier is not None:
                transfer.mapped_bytes = earlier.mapped_bytes
        transfer.last_ns = at_ns
        transfer.path = file.path.removesuffix(" (deleted)")
        transfer.size = max(transfer.size, file.size)
        transfer.direct = bool(file.flags & O_DIRECT_X86) or bool(file.flags & O_DIRECT_ARM)
        transfer.append = bool(file.flags & O_APPEND)
        if len(transfer.looks) >= _MAX_LOOKS:
            transfer.looks.pop()
        transfer.looks.append(Look(at_ns, file.position, file.size))

    def _is_read_again(
        self, key: tuple[ProcessKey, FileKey, bool], transfer: PolledTransfer, position: int, at_ns: int
    ) -> bool:
        """Return whether a file that was read whole already is read once more: its position is back at its begin.

        It went back, or somebody opened the file since the last look. Only of a process that read nothing else
        meanwhile: its calls tell no file.
        """
        if transfer.writes or transfer.mapped_bytes:
            return False
        last = transfer.looks[-1]
        stands = position == last.position < transfer.size // 2
        if stands and self._openings.opened_between(transfer.file, last.at_ns, at_ns + _LATE_NS) is None:
            return False
        if not stands and position >= last.position:
            return False
        closed_ns = self._read_ns.get(transfer.process, 0)
        if closed_ns > transfer.first_ns:
            return False
        if any(other != key and not other[2] for other in self._by_process.get(transfer.process, ())):
            return False
        since_ns = max(transfer.before_ns, closed_ns)
        before = transfer.looks[0].position if since_ns == transfer.first_ns else 0  # read before it was met
        return before + self._world.returned_bytes_since(transfer.process, since_ns) >= _WHOLE * transfer.size

    def _map(self, key: tuple[ProcessKey, FileKey, bool], at_ns: int, before_ns: int, mapped: MappedFile) -> None:
        transfer = self._open.get(key)
        if transfer is None:
            transfer = self._begin(key, at_ns, before_ns, mapped.path)
            transfer.seen_by = "maps"
        transfer.last_ns = at_ns
        transfer.mapped_bytes = max(transfer.mapped_bytes, mapped.mapped_bytes)

    def _begin(self, key: tuple[ProcessKey, FileKey, bool], at_ns: int, before_ns: int, path: str) -> PolledTransfer:
        transfer = PolledTransfer(
            process=key[0], file=key[1], writes=key[2], path=path, first_ns=at_ns, last_ns=at_ns, before_ns=before_ns
        )
        self._open[key] = transfer
        self._by_process.setdefault(key[0], set()).add(key)
        return transfer

    def _close(self, key: tuple[ProcessKey, FileKey, bool], at_ns: int) -> None:
        transfer = self._open.pop(key)
        self._by_process[key[0]].discard(key)
        transfer.closed_ns = at_ns
        if not transfer.writes:
            self._read_ns[transfer.process] = at_ns
        self.done.append(transfer)

    def close_idle(self, now_ns: int, patience_ns: int) -> None:
        """Close the transfers of processes that are no longer looked at: their burst is over."""
        for key, transfer in list(self._open.items()):
            if now_ns - self._last_scan_ns.get(key[0], 0) > patience_ns:
                self._open.pop(key)
                self._by_process[key[0]].discard(key)
                self.done.append(transfer)

    def end(self, process: ProcessKey, at_ns: int) -> None:
        """Close everything of a process that has ended."""
        for key in list(self._by_process.get(process, ())):
            self._close(key, at_ns)
        self._by_process.pop(process, None)
        self._last_scan_ns.pop(process, None)
        self._read_ns.pop(process, None)
        self._last_map_ns.pop(process, None)

    def take_done(self) -> list[PolledTransfer]:
        """Return the transfers that were closed since the last call."""
        done, self.done = self.done, []
        return done


def _writes(file: OpenFile) -> bool:
    return bool(file.flags & O_ACCMODE)
