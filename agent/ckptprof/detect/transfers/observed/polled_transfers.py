"""From polled open files to transfers: the I/O of one process on one file in one direction, from open to close."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckptprof.detect.tolerances import ALL_SHARE, FEW, POLL_INTERVAL_NS
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.position_samples import PositionSample, PositionSamples
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.world import World
from ckptprof_collectors.samples import FileScan, OpenFile

# open(2) flags as the kernel reports them in fdinfo (include/uapi/asm-generic/fcntl.h)
O_ACCMODE = 0o3
O_APPEND = 0o2000
O_DIRECT = 0o40000 | 0o200000  # arch/arm64/include/uapi/asm/fcntl.h swaps it with O_DIRECTORY; a file is never that

_LAST_STANDARD_FD = 2  # of input, output and errors
_O_TMPFILE = 0o20000000
_DELETED_SUFFIX = " (deleted)"  # behind a path of /proc/PID/fd

_FileAndDirection = tuple[FileKey, bool]  # a file, and whether it is written


@dataclass(slots=True)
class _PolledProcess:
    """State of one polled process."""

    key: ProcessKey
    polled_ns: int
    mappings_polled_ns: int | None = None  # when its mappings were last read
    last_read_close_ns: int = 0  # last observed close of a file that it read
    open_files: dict[_FileAndDirection, Transfer] = field(default_factory=dict)


class PolledTransfers:
    """Follows the open files of all processes."""

    def __init__(self, world: World, openings: FileOpenings) -> None:
        self._world = world
        self._openings = openings
        self._processes: dict[ProcessKey, _PolledProcess] = {}
        self.ended: list[Transfer] = []  # closed, waiting to be grouped

    @property
    def sample_count(self) -> int:
        """Number of retained position samples."""
        return sum(len(transfer.samples) for transfer in self.open_transfers())

    def open_transfers(self) -> list[Transfer]:
        """Return the transfers whose files are still open."""
        return [transfer for process in self._processes.values() for transfer in process.open_files.values()]

    def open_of(self, process: ProcessKey) -> list[Transfer]:
        """Return the transfers of one process whose files are still open."""
        return list(self._processes[process].open_files.values()) if process in self._processes else []

    def ingest(self, at_ns: int, scan: FileScan) -> None:
        """Ingest one complete scan of a process's open files."""
        key = (scan.pid, scan.start_ticks)
        process = self._processes.get(key)
        if process is None:
            process = self._processes[key] = _PolledProcess(key, at_ns)
        before_ns = process.polled_ns if at_ns - process.polled_ns <= POLL_INTERVAL_NS else at_ns
        foremost = _furthest_descriptors(scan.files)
        ended = [self._ingest_file(process, place, at_ns, before_ns, file) for place, file in foremost.items()]
        for transfer_ended in filter(None, ended):  # after all positions are known
            self._record_max_written(process, transfer_ended, at_ns)
        present = set(foremost)
        if scan.mapped is not None:
            for mapped in scan.mapped:
                place = (mapped.device, mapped.inode), mapped.writable
                present.add(place)
                transfer = process.open_files.get(place)
                if transfer is None:
                    polled_ns = before_ns if process.mappings_polled_ns is None else process.mappings_polled_ns
                    transfer = _start_transfer(process, place, at_ns, polled_ns, mapped.path)
                    transfer.observed_by = "maps"
                transfer.last_ns = at_ns
                transfer.mapped_bytes = max(transfer.mapped_bytes, mapped.mapped_bytes)
            process.mappings_polled_ns = at_ns
        for place in process.open_files.keys() - present:
            if scan.mapped is not None or not process.open_files[place].mapped_bytes:  # else it may still be mapped
                self._record_max_written(process, self._close(process, place, at_ns), at_ns)
        process.polled_ns = at_ns

    def _ingest_file(
        self, process: _PolledProcess, place: _FileAndDirection, at_ns: int, before_ns: int, file: OpenFile
    ) -> Transfer | None:
        """Ingest one sample of an open file; return the ended transfer if this sample starts another one."""
        transfer, ended = process.open_files.get(place), None
        if transfer is not None and transfer.samples:
            last = transfer.samples[-1]
            truncated = place[1] and file.size < last.size and file.position <= last.position  # it is rewritten
            if truncated or self._is_read_again(process, transfer, file.position, at_ns):
                self._close(process, place, at_ns)
                transfer, ended = None, transfer
        if transfer is None:
            transfer = _start_transfer(process, place, at_ns, before_ns, file.path)
            transfer.unlinked, transfer.before_truncation = True, ended if place[1] else None
        transfer.last_ns = at_ns
        transfer.path = file.path.removesuffix(_DELETED_SUFFIX)
        transfer.unlinked &= transfer.path != file.path
        transfer.size = max(transfer.size, file.size)
        direct = file.flags & O_DIRECT  # O_TMPFILE includes the flag of a folder: O_DIRECT on another architecture
        transfer.direct = direct == O_DIRECT if file.flags & _O_TMPFILE else bool(direct)
        transfer.append = bool(file.flags & O_APPEND)
        if not isinstance(transfer.samples, PositionSamples):
            transfer.samples = PositionSamples()
        transfer.samples.append(PositionSample(at_ns, file.position, file.size))
        return ended

    def _is_read_again(self, process: _PolledProcess, transfer: Transfer, position: int, at_ns: int) -> bool:
        """Recognise a second read of a file that was read whole: its position is back at the start.

        It went back, or the file was opened since the last sample. Only if the process read no other file in that time:
        its counters name no file.
        """
        if transfer.writes or transfer.mapped_bytes:
            return False
        last = transfer.samples[-1]
        is_still = position == last.position < transfer.size // 2
        if is_still and self._openings.opened_between(transfer.file, last.at_ns, at_ns) is None:
            return False
        if not is_still and position >= last.position:
            return False
        if any(other is not transfer and not other.writes for other in process.open_files.values()):
            return False
        since_ns = max(transfer.before_ns, process.last_read_close_ns)
        before = transfer.samples[0].position if since_ns == transfer.first_ns else 0  # read before the first sample
        history = self._world.histories[transfer.process]
        return before + history.returned_bytes(since_ns, history.last_ns + 1) >= ALL_SHARE * transfer.size

    def _record_max_written(self, process: _PolledProcess, transfer: Transfer, at_ns: int) -> None:
        """Record the most that a file can have been written until its close: its position, and the bytes counted since.

        Bytes between the last sample and the close are in no sample. Those of other files, by their positions, are
        subtracted.
        """
        if not transfer.writes or not transfer.samples or len(process.open_files) > FEW:
            return
        written = self._world.histories[process.key].between(transfer.samples[-1].at_ns, at_ns)
        if written:
            since_ns = written[0].start_ns
            others = (other for other in process.open_files.values() if other.writes and other.samples)
            elsewhere = sum(max(0, other.samples[-1].position - _position_at(other, since_ns)) for other in others)
            late_bytes = sum(interval.written_bytes for interval in written)
            transfer.max_written_bytes = _position_at(transfer, since_ns) + late_bytes - elsewhere

    def _close(self, process: _PolledProcess, place: _FileAndDirection, at_ns: int | None) -> Transfer:
        transfer = process.open_files.pop(place)
        transfer.phase = Phase.ENDED
        transfer.closed_ns = at_ns
        if at_ns is not None and not transfer.writes:
            process.last_read_close_ns = at_ns
        self.ended.append(transfer)
        return transfer

    def close_unpolled(self, now_ns: int, patience_ns: int) -> None:
        """Close the transfers of processes that are no longer polled: their burst has ended."""
        for process in self._processes.values():
            if now_ns - process.polled_ns > patience_ns:
                for place in list(process.open_files):
                    self._close(process, place, None)

    def close_all(self, key: ProcessKey, at_ns: int) -> None:
        """Close everything of a process that has ended."""
        process = self._processes.pop(key, None)
        if process is not None:
            for place in list(process.open_files):
                self._close(process, place, at_ns)

    def take_ended(self) -> list[Transfer]:
        """Return the transfers that were closed since the last call."""
        ended, self.ended = self.ended, []
        return ended


def _furthest_descriptors(files: Iterable[OpenFile]) -> dict[_FileAndDirection, OpenFile]:
    """Return for each file the descriptor with the highest position: that of a mapping never advances.

    An empty file on a standard descriptor is ignored: it is an output file, not one whose server reports sizes late.
    """
    furthest: dict[_FileAndDirection, OpenFile] = {}
    for file in files:
        place = (file.device, file.inode), bool(file.flags & O_ACCMODE)
        is_output = file.fd <= _LAST_STANDARD_FD and not file.size
        if not is_output and (place not in furthest or file.position > furthest[place].position):
            furthest[place] = file
    return furthest


def _position_at(transfer: Transfer, at_ns: int) -> int:
    """Return the position in a file at a time; 0 before the first sample."""
    return next((sample.position for sample in reversed(transfer.samples) if sample.at_ns <= at_ns), 0)


def _start_transfer(
    process: _PolledProcess, place: _FileAndDirection, at_ns: int, before_ns: int, path: str
) -> Transfer:
    transfer = process.open_files[place] = Transfer(
        process=process.key,
        file=place[0],
        writes=place[1],
        path=path,
        first_ns=at_ns,
        last_ns=at_ns,
        before_ns=before_ns,
    )
    return transfer
