"""Completeness of a file by its own format: distinguishes a truncated save from a complete one."""

from __future__ import annotations

import os
import re

_ZIP = b"PK\x03\x04"
_ZIP_END = b"PK\x05\x06"  # APPNOTE.TXT 4.3.16: the end of the central directory, the last thing that is written
_ZIP_TAIL_BYTES = 1024  # 22 without a comment, which neither PyTorch nor NumPy writes
_MAX_HEADER_BYTES = 4 << 20  # of safetensors
_OFFSETS = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d{1,20}\s*,\s*(\d{1,20})\s*\]')


def is_complete(fd: int, size: int, magic: bytes) -> bool | None:
    """Test whether an open file is complete; None if its format does not show that, or it cannot be read."""
    try:
        if magic.startswith(_ZIP):
            tail = os.pread(fd, _ZIP_TAIL_BYTES, max(0, size - _ZIP_TAIL_BYTES))
            return _ZIP_END in tail
        if magic[8:10] in (b'{"', b"{}"):
            return _safetensors(fd, size, int.from_bytes(magic[:8], "little"))
    except OSError:
        return None
    return None


def _safetensors(fd: int, size: int, header_bytes: int) -> bool | None:
    if not 2 <= header_bytes <= _MAX_HEADER_BYTES:
        return None
    header = os.pread(fd, header_bytes, 8)
    if len(header) < header_bytes:
        return False
    end = max((int(found) for found in _OFFSETS.findall(header)), default=0)
    return size >= 8 + header_bytes + end
