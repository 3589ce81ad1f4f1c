"""File formats, by first bytes and endings: those that frameworks write, and those that contain no model."""

from __future__ import annotations

import re

from ckptprof.frameworks.framework_table import FRAMEWORKS

COMPRESSED = "compressed"  # the format of a compressed file, whatever its content
_MAGICS = tuple(pair for framework in FRAMEWORKS for pair in framework.magics)
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")  # gzip, bzip2, xz, zstd, LZ4
_ZIPS = (".zip", ".whl", ".jar", ".docx", ".xlsx")  # other zips are torch.save's
# archives, which other programs unpack
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".gz", ".zst", ".xz", ".bz2", ".7z")
SQLITE_LOGS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")  # write-ahead logs (sqlite.org/fileformat.html, 4.1)

# files without a model
DUMPS = re.compile(r"/core(?:[.-][^/]*)?$|\.(?:core|dmp|mdmp|hprof|crash|vmcore|kdump)(?:\.\d+)?$", re.IGNORECASE)
OTHER_ENDINGS = re.compile(
    r"\.(?:sst|ldb|mdb|rdb|aof|ibd|frm|myd|myi|tsm|tsi|wandb|rrd|dbf|duckdb|parquet|orc|avro|arrow|feather|lance|"
    r"tfrecords?|recordio|mds|webdataset|idx|beton|ffcv|mkv|webm|avi|mov|mpe?g|flac|mp3|ogg|tiff?|webp|gif|bmp|exr|"
    r"nsys-rep|qdrep|ncu-rep|perf|etl|ftrace|pftrace|perfetto-trace|iso|img|qcow2|vmdk|vdi|squashfs|sif|deb|rpm|apk|"
    r"jar|class|so|cubin|ptx|fatbin|cuh?|cpp|hpp|hsaco|ttir|ttgir|llir|neff|rlib|rmeta|pdb|dll|exe|dylib|node|wasm|pack|pdf|docx?|xlsx?|pptx?|ya?ml|xml|svg|log|json|ipynb)"
    r"(?:[.-]\d+)?$|/data\.mdb$|\.db-(?:wal|shm|journal)$|\.sqlite-\w+$",
    re.IGNORECASE,
)
TEXTS = (".json",)  # may also contain models (XGBoost's `model.json`); with only a step, traces of profilers
OTHER_MAGICS: tuple[tuple[int, bytes, str], ...] = (  # (offset, bytes there, description)
    (0, b"\x7fELF", "a program or a core dump"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ", "xz"),
    (0, b"7z\xbc\xaf", "7-Zip"),
    (0, b"SQLite format 3", "SQLite"),
    (0, b"PAR1", "Parquet"),
    (0, b"ARROW1", "Arrow"),
    (0, b"REDIS", "Redis"),
    (0, b"\x89PNG", "an image"),
    (0, b"\xff\xd8\xff", "an image"),
    (0, b"GIF8", "an image"),
    (0, b"RIFF", "sound or film"),
    (4, b"ftyp", "a film"),
    (0, b"\x1a\x45\xdf\xa3", "a film"),
    (0, b"OggS", "sound"),
    (0, b"fLaC", "sound"),
    (0, b"%PDF", "a document"),
    (0, b"!<arch>", "an archive of objects"),
    (0, b"PACK", "objects of git"),
    (0, b"\xca\xfe\xba\xbe", "Java classes"),
    (11, b"}\x94(\x8c\x08segments", "what PyTorch's allocator holds"),  # a pickle of torch.cuda.memory._snapshot()
)
COMPRESSIONS = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz"}  # may be around a model


def identify_format(magic: bytes | None, path: str) -> str | None:
    """Identify the format by the first bytes of a file; None if unknown, or if they could not be read."""
    if not magic:
        return None
    if magic.startswith(b"PK\x03\x04"):
        if path.endswith((".npz", ".keras")):
            return "npz" if path.endswith(".npz") else "keras"
        return "zip" if path.endswith(_ZIPS) else "torch-zip"
    for mark, name in _MAGICS:
        if magic.startswith(mark):
            return name
    if len(magic) >= 10 and magic[8:10] in (b'{"', b"{}") and 0 < int.from_bytes(magic[:8], "little") < 100 << 20:
        return "safetensors"
    if magic[0] == 0x80 and magic[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "pickle"
    return COMPRESSED if magic.startswith(_COMPRESSED) else None
