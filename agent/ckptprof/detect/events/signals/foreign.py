"""What it is instead: data, a cache, a database, a dump of memory, a film, a download."""

from __future__ import annotations

import re
from collections.abc import Callable

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.pass_through import is_poured
from ckptprof.detect.events.traits import candidate_bytes, largest, shapes
from ckptprof.detect.transfers.part import Part

# places where programs keep what is not theirs to save: caches, packages, databases, build trees
_PLACES = re.compile(
    r"/(?:torchinductor_[^/]+|torch_compile_debug|torch_extensions|\.triton|inductor_cache|ComputeCache|\.nv|\.ccache|"
    r"__pycache__|site-packages|dist-packages|node_modules|\.npm|_cacache|\.cargo|\.rustup|\.git|\.svn|\.gradle|\.m2|"
    r"\.conda|pkgs|wheels|\.cache/(?!huggingface/|torch/)[^/]+)/"
    r"|^/var/(?:lib/(?:postgresql|mysql|pgsql|redis|mongodb|docker|containerd|apt|dpkg|rpm|elasticsearch|clickhouse|"
    r"prometheus|grafana|etcd|influxdb|cassandra|rabbitmq|systemd)|cache|log|backups|crash)/"
    r"|/(?:base|global)/\d+/\d+(?:\.\d+)?$|/pg_wal/|/pgdata/|/target/(?:debug|release)/|/datasets/[^/]+/[^/]+\.(?:bin|dat)$"
    r"|/wandb/[^/]+/(?:logs|tmp)/"
)
_CORES = re.compile(r"/core(?:[.-][^/]*)?$|\.(?:core|dmp|mdmp|hprof|crash|vmcore|kdump)(?:\.\d+)?$", re.IGNORECASE)
_SUFFIXES = re.compile(
    r"\.(?:sst|ldb|mdb|rdb|aof|ibd|frm|myd|myi|tsm|tsi|wandb|rrd|dbf|duckdb|parquet|orc|avro|arrow|feather|lance|"
    r"tfrecords?|recordio|mds|webdataset|idx|beton|ffcv|mkv|webm|avi|mov|mpe?g|flac|mp3|ogg|tiff?|webp|gif|bmp|exr|"
    r"nsys-rep|qdrep|ncu-rep|perf|etl|ftrace|pftrace|perfetto-trace|iso|img|qcow2|vmdk|vdi|squashfs|sif|deb|rpm|apk|"
    r"jar|class|so|cubin|ptx|fatbin|cuh?|cpp|hpp|hsaco|ttir|ttgir|llir|neff|rlib|rmeta|pdb|dll|exe|dylib|node|wasm|pack|pdf|docx?|xlsx?|pptx?|ya?ml|xml|svg|log|json|ipynb)"
    r"(?:[.-]\d+)?$|/data\.mdb$|\.db-(?:wal|shm|journal)$|\.sqlite-\w+$",
    re.IGNORECASE,
)
_MAGICS: tuple[tuple[int, bytes, str], ...] = (
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
)
_COMPRESSIONS = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz"}
_CACHES = re.compile(
    r"/\.cache/(?:huggingface|torch)/|/models--[^/]+/|/hub/checkpoints/|/\.modelscope/|/datasets--[^/]+/"
)
_UNFINISHED = re.compile(
    r"\.(?:incomplete|partial|crdownload|aria2|download|filepart|!ut)$|/\.?[^/]+\.[A-Za-z0-9]{8}\.part$"
)
_CHUNK = re.compile(r"\.[0-9a-f]{32}\.partial$")  # as zarr calls what it writes, of data sets, too
_MOST = 256  # files
_RECEIVED = (0.9, 1.6)
_RECEIVED_EXACTLY = (0.97, 1.2)  # of what a trainer writes
_RECEIVED_BYTES = 8 << 20
_BUFFERED_NS = 1_000_000_000


def is_data(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether a word for data sets or results is in its name."""
    return _mostly(candidate, lambda part: part.name.data)


def is_placed(candidate: Candidate, _: Knowledge) -> bool:
    """Return whether it is in a place of caches, packages or databases."""
    return _mostly(candidate, lambda part: _PLACES.search(part.stream.path) is not None)


def is_foreign(candidate: Candidate, _: Knowledge) -> str | None:
    """Return what its suffix or first bytes say it is, if that holds no model."""
    kinds = (kind for part in largest(candidate, _MOST) if (kind := _other_format(part)) is not None)
    return next(kinds, None) if _mostly(candidate, lambda part: _other_format(part) is not None) else None


def received(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether as much came in by the network as was written, at the same time."""
    size = candidate_bytes(candidate)
    if not candidate.writes or size < _RECEIVED_BYTES or _has_ranks(candidate, known):
        return False
    trains = known.world.trains(candidate.processes)
    if trains and (candidate.step is not None or known.past.series(candidate.job, shapes(candidate), writes=True)):
        return False  # it counts its training, or saves such files again and again; the network may serve anybody
    low, high = _RECEIVED_EXACTLY if trains else _RECEIVED
    came = known.world.devices.received_bytes(candidate.start_ns, candidate.end_ns)
    if came is None or not low * size <= came <= high * size:
        # others receive, too, and what waited in buffers came before the file was there: then its pieces must tell
        came = known.world.devices.received_bytes(candidate.start_ns - _BUFFERED_NS, candidate.end_ns)
        return came is not None and came >= low * size and is_poured(candidate, known)
    return True


def downloaded(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether it is in a cache of what hubs of models give, or was named as what is not downloaded yet."""
    if not candidate.writes:
        return False
    trains = known.world.trains(candidate.processes)

    def is_download(part: Part) -> bool:
        earlier = part.stream.earlier_path or ""
        if any(_CACHES.search(path) for path in (part.stream.path, earlier)):
            return True
        if trains or (part.name.hint and _CHUNK.search(earlier)):
            return False
        return any(_UNFINISHED.search(path) for path in (part.stream.path, earlier))

    return _mostly(candidate, is_download)


def _has_ranks(candidate: Candidate, known: Knowledge) -> bool:
    return any(known.world.jobs.rank(process) is not None for process in candidate.processes)


def _other_format(part: Part) -> str | None:
    path = part.stream.path
    if part.name.commit:
        return None
    if _CORES.search(path):
        return "a dump of memory"
    found = _SUFFIXES.search(path)
    if found is not None:
        return f"a file of another kind, {found[0][:20]!r}"
    magic = part.stream.fact.magic if part.stream.fact is not None else None
    for offset, mark, kind in _MAGICS if magic else ():
        if magic is not None and magic[offset : offset + len(mark)] == mark:
            packed = part.name.framework is not None and path.endswith(_COMPRESSIONS.get(kind, "\0"))
            return None if packed else kind
    return None


def _mostly(candidate: Candidate, is_such: Callable[[Part], bool]) -> bool:
    parts = largest(candidate, _MOST)
    return sum(part.bytes for part in parts if is_such(part)) * 2 > sum(part.bytes for part in parts)
