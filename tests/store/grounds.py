"""File systems that can be broken: on loop devices, which are gone when the block ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kernel.filesystems import call
from tests.patience import wait_until

MAKERS = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "ext4-plain": ("mkfs.ext4", "-q", "-F", "-O", "^has_journal"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
_GOING_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN are one: _IOR('X', 125, __u32)
LOG_FLUSHED, LOG_LOST = 1, 2
_IMAGE_BYTES = 512 << 20


class Ground:
    """A file system of its own on an image, mounted at a place."""

    def __init__(self, base: Path, kind: str, at: Path, options: str = "noatime") -> None:
        """Make and mount it."""
        self.at = at
        self._options = options
        self._type = kind.partition("-")[0]
        self._image = base / f"{kind}.img"
        with self._image.open("wb") as image:
            image.truncate(_IMAGE_BYTES)
        call(*MAKERS[kind], self._image)
        at.mkdir(exist_ok=True)
        self.mount()

    def mount(self) -> None:
        """Mount it, which replays its log."""
        call("mount", "-t", self._type, "-o", f"loop,{self._options}", self._image, self.at)

    def unmount(self) -> None:
        """Unmount it, so that nothing of it is in memory any more; raises RuntimeError if somebody still holds it.

        That may be an agent of this host that looks at it just now, or a mount namespace that was made meanwhile.
        """
        try:
            wait_until(self._let_go)
        except AssertionError as error:
            call("umount", "--lazy", self.at)
            raise RuntimeError(f"{self.at} is busy") from error
        try:
            wait_until(lambda: not call("losetup", "--associated", self._image))
        except AssertionError as error:
            raise RuntimeError(f"{self.at} is still mounted in another namespace") from error

    def _let_go(self) -> bool:
        with contextlib.suppress(RuntimeError):
            call("umount", self.at)
            return True
        return False

    def shut_down(self, how: int) -> None:
        """Let it fail at once as if its power had gone: with the log in memory flushed, or lost."""
        fd = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _GOING_DOWN, struct.pack("I", how))
        finally:
            os.close(fd)

    def error(self) -> None:
        """Let ext4 find itself damaged: with errors=remount-ro it is read-only from here on."""
        number = self.at.stat().st_dev
        device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1")


@contextlib.contextmanager
def ground(base: Path, kind: str, at: Path, options: str = "noatime") -> Iterator[Ground]:
    """Make one for a while."""
    made = Ground(base, kind, at, options)
    try:
        yield made
    finally:
        with contextlib.suppress(RuntimeError):
            made.unmount()


@contextlib.contextmanager
def memory(at: Path, size: str, options: Sequence[str] = ()) -> Iterator[None]:
    """Mount a tmpfs of this size there for a while."""
    at.mkdir(exist_ok=True)
    call("mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "ckptprof-proof", at)
    try:
        yield
    finally:
        call("umount", "--lazy", at)
