"""A FUSE mount whose server takes each request and answers none but the first: who asks it hangs for good.

`python silentfuse.py PLACE USER` mounts it there as that user's, and serves until its input ends.
With `flush` or `write` after that, there is a file `x`, and all is answered but what closes it, or writes to it; with
`refused` all is answered, and that it cannot be stored to who closes or syncs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

_IN = struct.Struct("=IIQQIIII")  # include/uapi/linux/fuse.h: fuse_in_header
_OUT = struct.Struct("=IiQ")
_INIT = 26
_INIT_OUT = struct.Struct("=IIIIHHIIHHI7I")
_LOOKUP, _GETATTR, _OPEN, _READ, _WRITE, _RELEASE, _FSYNC, _FLUSH = 1, 3, 14, 15, 16, 18, 20, 25
_UNANSWERED = {"flush": _FLUSH, "write": _WRITE}
_FORGET, _INTERRUPT, _BATCH_FORGET = 2, 36, 42  # want no answer
_NO_SUCH_CALL, _IO_ERROR = -38, -5
_ROOT, _FILE = 1, 2
_LONG = 3600  # seconds for which the kernel need not ask again
_ATTRIBUTES = struct.Struct("=6Q10I")
_OF_DATA = struct.Struct("=QQI")  # handle, offset, length
_FILE_BYTES = 1 << 20


def _attributes(node: int, user: int) -> bytes:
    mode = 0o40755 if node == _ROOT else 0o100666
    return _ATTRIBUTES.pack(node, _FILE_BYTES, 0, 0, 0, 0, 0, 0, 0, mode, 1, user, user, 0, 4096, 0)


def _answer(opcode: int, node: int, user: int, rest: bytes) -> tuple[int, bytes]:
    """Return an error, 0 if there is none, and what a server with one file of zeros says."""
    if opcode == _LOOKUP:
        return 0, struct.pack("=4Q2I", _FILE, 0, _LONG, _LONG, 0, 0) + _attributes(_FILE, user)
    if opcode == _GETATTR:
        return 0, struct.pack("=Q2I", _LONG, 0, 0) + _attributes(node, user)
    if opcode == _OPEN:
        return 0, struct.pack("=Q2I", 1, 0, 0)
    if opcode == _READ:
        return 0, bytes(_OF_DATA.unpack_from(rest)[2])
    if opcode == _WRITE:
        return 0, struct.pack("=2I", _OF_DATA.unpack_from(rest)[2], 0)
    return (0 if opcode == _RELEASE else _NO_SUCH_CALL), b""


def serve(place: str, user: int, unanswered: str = "") -> None:
    """Mount, say so, and read requests until the input ends; then the connection ends and all who wait are let go."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id={user},group_id={user},allow_other"
    if libc.mount(b"silent", place.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(0, select.POLLIN | select.POLLHUP)
    while True:
        ready = {number for number, _ in poll.poll()}
        if 0 in ready:
            break
        length, opcode, unique, node, *_ = _IN.unpack_from(request := os.read(fd, 1 << 20))
        assert length == len(request)
        if opcode == _INIT:
            body = _INIT_OUT.pack(7, 31, 0, 0, 0, 0, 1 << 16, 1, 0, 0, 0, *(0,) * 7)
            os.write(fd, _OUT.pack(_OUT.size + len(body), 0, unique) + body)
            os.write(1, b"ready\n")
        elif not unanswered or opcode == _UNANSWERED.get(unanswered):
            os.write(1, b"asked\n")
        elif opcode not in (_FORGET, _INTERRUPT, _BATCH_FORGET):
            error, body = _answer(opcode, node, user, request[_IN.size :])
            if unanswered == "refused" and opcode in (_FSYNC, _FLUSH):
                error = _IO_ERROR
            os.write(fd, _OUT.pack(_OUT.size + len(body), error, unique) + body)
    libc.umount2(place.encode(), 2)
    os.close(fd)


class SilentMount:
    """One that is mounted; `asked` counts the requests that were made of it."""

    def __init__(
        self, place: Path, user: int, command: Sequence[str] = (sys.executable, "-I", __file__), unanswered: str = ""
    ) -> None:
        """Mount it; returns when it is there. `command` runs this file, perhaps in another mount namespace."""
        self.place = place
        self.asked = 0
        arguments = [str(place), str(user), *filter(None, [unanswered])]
        self._server = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._server.stdout is not None
        for _ in self._server.stdout:
            self.asked += 1

    def close(self) -> None:
        """Let all who wait go, and unmount."""
        assert self._server.stdin is not None
        from tests.patience import PATIENCE_SECONDS  # noqa: PLC0415 - the server itself knows no other module

        self._server.stdin.close()
        try:
            self._server.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()  # the end of /dev/fuse ends the connection, too
            self._server.wait()
        subprocess.run(["umount", "--lazy", str(self.place)], check=False, capture_output=True)
        self._reader.join(PATIENCE_SECONDS)
        assert self._server.stdout is not None
        self._server.stdout.close()


@contextlib.contextmanager
def silent(place: Path, user: int = 65534, unanswered: str = "") -> Iterator[SilentMount]:
    """Mount one for a while."""
    place.mkdir(exist_ok=True)
    made = SilentMount(place, user, unanswered=unanswered)
    try:
        yield made
    finally:
        made.close()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
