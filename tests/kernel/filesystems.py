"""Real file systems for the oracle: on loop devices, in memory, stacked, and in user space; gone when closed.

They are made when first asked for. All of them lie below one directory of the test session, so that workers that run
in parallel never meet; a loop device that was bound by `mount -o loop` frees itself when its file system is unmounted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS

KINDS = ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuse")
_IMAGES_MIB = {"ext4": 512, "xfs": 512, "btrfs": 512, "full-ext4": 12, "quota-btrfs": 512}
_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0"),
    "full-ext4": ("mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
    "quota-btrfs": ("mkfs.btrfs", "-q"),
}
_TMPFS_OPTIONS = {"tmpfs": "size=256m", "full-tmpfs": "size=1m"}


def call(program: str, *arguments: str | Path) -> str:
    """Run a program and return what it printed; skips where it is not installed, raises RuntimeError where it fails."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"not installed: {program}")
    done = subprocess.run([found, *map(str, arguments)], capture_output=True, check=False, timeout=PATIENCE_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{program} {arguments}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode(errors="replace")


class FileSystems:
    """The file systems of one session; `close` unmounts them all, also after a failure."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._stack = contextlib.ExitStack()
        self._ready: dict[str, Path] = {}
        self._broken: dict[str, str] = {}

    def directory(self, kind: str) -> Path:
        """Return an empty-at-first directory on this kind of file system; skips, saying what is missing."""
        if kind in self._broken:
            pytest.skip(self._broken[kind])
        if kind not in self._ready:
            try:
                self._ready[kind] = self._make(kind)
            except (RuntimeError, OSError) as error:
                self._broken[kind] = f"cannot make a file system of kind {kind}: {error}"
                pytest.skip(self._broken[kind])
        return self._ready[kind]

    def close(self) -> None:
        """Unmount everything, the last one first."""
        self._stack.close()
        self._ready.clear()

    def _make(self, kind: str) -> Path:
        place = self.base / kind
        place.mkdir(exist_ok=True)
        if kind in _TMPFS_OPTIONS:
            call("mount", "-t", "tmpfs", "-o", _TMPFS_OPTIONS[kind], "none", place)
        elif kind == "overlay":
            below = self.directory("ext4")
            names = [below / f"overlay-{layer}" for layer in ("lower", "upper", "work")]
            for name in names:
                name.mkdir()
            options = "lowerdir={},upperdir={},workdir={}".format(*names)
            call("mount", "-t", "overlay", "-o", options, "overlay", place)
        elif kind == "fuse":
            below = self.directory("ext4") / "below-fuse"
            below.mkdir()
            call("bindfs", below, place)
        else:
            self._on_a_loop_device(kind, place)
        self._stack.callback(_unmount, place)
        return place

    def _on_a_loop_device(self, kind: str, place: Path) -> None:
        image = self.base / f"{kind}.img"
        with image.open("wb") as made:
            made.truncate(_IMAGES_MIB[kind] << 20)
        self._stack.callback(image.unlink)
        call(*_MAKE[kind], image)
        call("mount", "-o", "loop,noatime", image, place)
        if kind == "quota-btrfs":
            call("btrfs", "quota", "enable", place)
            call("btrfs", "qgroup", "limit", "8M", "0/5", place)


def _unmount(place: Path) -> None:
    for options in ((), ("-l",)):  # lazily if a process that a failed test left behind still holds it
        if subprocess.run(["umount", *options, str(place)], capture_output=True, check=False).returncode == 0:
            return
