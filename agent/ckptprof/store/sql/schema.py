"""The tables as SQLAlchemy sees them; `migrations` creates them, and a test holds the two together.

Times are epoch nanoseconds. The id of a block is `period << 32 | entity`, so that blocks lie in the order of time: new
ones are appended, expired ones are one range, and those of one entity are found by computing their ids.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()


def _text(name: str, *, nullable: bool = False, unique: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable, unique=unique)


def _whole(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _of_checkpoint() -> tuple[Column[int], Column[int]]:
    owner = ForeignKey("checkpoints.id", ondelete="CASCADE")
    return Column("checkpoint_id", Integer, owner, primary_key=True), Column("ordinal", Integer, primary_key=True)


sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("uid", unique=True),
    _text("host"),
    _text("boot_id"),
    _text("kernel"),
    _text("version"),
    _text("level"),
    _whole("start_ns"),
    _whole("end_ns"),
    Column("clean", Boolean, nullable=False),
    _whole("dropped_frames"),
)
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", Integer, primary_key=True),
    _text("uid", unique=True),
    _text("kind"),
    _text("job"),
    _text("framework", nullable=True),
    _whole("step", nullable=True),
    _whole("ranks", nullable=True),
    _whole("start_ns"),
    _whole("end_ns"),
    _whole("durable_ns", nullable=True),
    _whole("bytes"),
    _whole("files"),
    _text("path", nullable=True),
    _text("mode", nullable=True),
    _whole("stall_ns", nullable=True),
    _text("level"),
    Column("confidence", Float, nullable=False),
    _text("pattern_class", nullable=True),
    _text("pattern"),  # JSON
    _text("verdict", nullable=True),  # JSON
    _text("blind"),  # JSON, a list of sentences
    Column("timeline", LargeBinary, nullable=False),  # a block of two columns: end - start, bytes
    _text("status"),
    _text("moments"),  # JSON
    _text("metadata"),  # JSON
    _whole("written_bytes", nullable=True),
    _whole("unique_bytes", nullable=True),
    _text("overheads"),  # JSON, a list of objects
    _whole("storage_bytes", nullable=True),
    _text("cache", nullable=True),
    _text("cost", nullable=True),  # JSON
    _text("measures", nullable=True),  # JSON without what was not seen; a hundred times as long as the verdict
    _text("blocked"),  # JSON, a list of [start, end]
    _whole("committed_ns", nullable=True),  # this and what follows: of the JSON above, for views and other programs
    _text("limit", nullable=True),
    Column("limit_seconds", Float, nullable=True),
    Column("limit_confidence", Float, nullable=True),
    Column("expected_seconds", Float, nullable=True),
    Column("gpu_seconds", Float, nullable=True),
    Column("progress", LargeBinary, nullable=True),  # a block of the points of all streams (progress.py)
    _whole("progress_left_out"),
    _text("sent", nullable=True),  # JSON
    _text("run", nullable=True),  # JSON, as are the next two
    _text("place", nullable=True),
    _text("clock", nullable=True),
    _whole("owner", nullable=True),
    _whole("stored_bytes"),  # about what it takes here, without its measures
)
writers = Table(
    "writers",
    metadata,
    *_of_checkpoint(),
    _whole("pid"),
    _text("comm"),
    _whole("bytes"),
    _whole("rank", nullable=True),
    _whole("start_ns", nullable=True),
    _whole("end_ns", nullable=True),
    _text("role", nullable=True),
)
evidence = Table(
    "evidence", metadata, *_of_checkpoint(), _text("name"), Column("weight", Float, nullable=False), _text("text")
)
streams = Table(
    "streams",
    metadata,
    *_of_checkpoint(),
    _whole("pid"),
    _text("comm"),
    _text("path"),
    _whole("bytes"),
    _whole("size", nullable=True),
    _whole("start_ns"),
    _whole("end_ns"),
    _text("class", nullable=True),
    _text("seen_by"),
)
devices = Table(
    "devices",
    metadata,
    *_of_checkpoint(),
    _text("device"),
    _text("kind"),
    _whole("read_bytes"),
    _whole("written_bytes"),
    Column("busy_seconds", Float, nullable=True),
    _text("under", nullable=True),
    _whole("requests", nullable=True),
    Column("mean_request_bytes", Float, nullable=True),
    Column("sequential_share_bytes", Float, nullable=True),
    Column("latency_p50_seconds", Float, nullable=True),
    Column("latency_p99_seconds", Float, nullable=True),
    _whole("max_in_flight", nullable=True),
)
outbox = Table(  # of each checkpoint its last change
    "outbox",
    metadata,
    Column("change", Integer, primary_key=True),  # rises with each; none is used twice
    Column("checkpoint_id", Integer, ForeignKey("checkpoints.id", ondelete="CASCADE"), nullable=False, unique=True),
    _whole("revision"),  # how often it was stored, this time included
    _whole("first_start_ns"),  # when it began as it was stored first
)
untold = Table("untold", metadata, Column("uid", Text, primary_key=True), Column("data", LargeBinary, nullable=False))
entities = Table(
    "entities", metadata, Column("id", Integer, primary_key=True), _text("name", unique=True), _whole("seen_ns")
)
layouts = Table("layouts", metadata, Column("id", Integer, primary_key=True), _text("fields", unique=True))


def _block_table(name: str) -> Table:
    identity = Column("id", Integer, primary_key=True)
    return Table(name, metadata, identity, _whole("layout"), Column("data", LargeBinary, nullable=False))


minutes = _block_table("minutes")  # period: a minute; as written
hours = _block_table("hours")  # period: an hour; full resolution, made of the minutes
rollups = _block_table("rollups")  # period: a day; the values at the end of each minute
