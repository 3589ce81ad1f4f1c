"""The format of a file, by its first bytes."""

from __future__ import annotations

COMPRESSED = "compressed"  # whatever is within
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")  # gzip, bzip2, xz, zstd, LZ4
_ARCHIVES = (".zip", ".whl", ".jar", ".docx", ".xlsx")


def file_format(magic: bytes | None, path: str) -> str | None:
    """Return the format that the first bytes of a file show; None if they are unknown or could not be read."""
    if not magic:
        return None
    if magic.startswith(b"PK\x03\x04"):
        if path.endswith((".npz", ".keras")):
            return "npz" if path.endswith(".npz") else "keras"
        return "zip" if path.endswith(_ARCHIVES) else "torch-zip"
    if magic.startswith(b"\x93NUMPY"):
        return "npy"
    if magic.startswith(b"\x89HDF"):
        return "hdf5"
    if magic.startswith(b"GGUF"):
        return "gguf"
    if len(magic) >= 10 and magic[8:10] in (b'{"', b"{}") and 0 < int.from_bytes(magic[:8], "little") < 100 << 20:
        return "safetensors"
    if magic[0] == 0x80 and magic[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "pickle"
    return COMPRESSED if magic.startswith(_COMPRESSED) else None
