"""The one definition of the tables: `compiled` has the statements that create them, `migrations` runs these.

Times are epoch nanoseconds. The id of a block is `period << 32 | entity`, so that blocks lie in the order of time: new
ones are appended, expired ones are one range, and those of one entity are found by computing their ids.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()


class _BooleanInteger(sa.Boolean):
    __visit_name__ = "INTEGER"  # the type that SQLite stores


def _text(name: str, *, nullable: bool = False, unique: bool = False, default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable, unique=unique, server_default=default)


def _integer(name: str, *, nullable: bool = False, default: int | None = None) -> sa.Column[int]:
    return sa.Column(
        name, sa.Integer, nullable=nullable, server_default=None if default is None else sa.text(str(default))
    )


def _real(name: str, *, nullable: bool = True) -> sa.Column[float]:
    return sa.Column(name, sa.REAL, nullable=nullable)


def _blob(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=nullable)


def _id(name: str = "id") -> sa.Column[int]:
    return sa.Column(name, sa.Integer, primary_key=True, nullable=True)  # a NULL becomes the next number


def _of_checkpoint() -> tuple[sa.Column[int], sa.Column[int]]:
    owner = sa.ForeignKey("checkpoints.id", ondelete="CASCADE")
    return sa.Column("checkpoint_id", sa.Integer, owner, primary_key=True), sa.Column(
        "ordinal", sa.Integer, primary_key=True
    )


sessions = sa.Table(
    "sessions",
    metadata,
    _id(),
    _text("uid", unique=True),
    _text("host"),
    _text("boot_id"),
    _text("kernel"),
    _text("version"),
    _text("level"),
    _integer("start_ns"),
    _integer("end_ns"),
    sa.Column("clean", _BooleanInteger, nullable=False),
    _integer("dropped_frames"),
)
checkpoints = sa.Table(
    "checkpoints",
    metadata,
    _id(),
    _text("uid", unique=True),
    _text("kind"),
    _text("job"),
    _text("framework", nullable=True),
    _integer("step", nullable=True),
    _integer("ranks", nullable=True),
    _integer("start_ns"),
    _integer("end_ns"),
    _integer("durable_ns", nullable=True),
    _integer("bytes"),
    _integer("files"),
    _text("path", nullable=True),
    _text("mode", nullable=True),
    _integer("stall_ns", nullable=True),
    _text("level"),
    _real("confidence", nullable=False),
    _text("pattern_class", nullable=True),
    _text("pattern"),  # JSON
    _text("verdict", nullable=True),  # JSON
    _text("limitations"),  # JSON, a list of sentences
    _blob("timeline"),  # a block of two columns: end - start, bytes
    _text("status", default="complete"),
    _text("moments", default="{}"),  # JSON
    _text("metadata", default="{}"),  # JSON
    _integer("written_bytes", nullable=True),
    _integer("unique_bytes", nullable=True),
    _text("overheads", default="[]"),  # JSON, a list of objects
    _integer("storage_bytes", nullable=True),
    _text("cache", nullable=True),
    _text("cost", nullable=True),  # JSON
    _text("measures", nullable=True),  # JSON without null values; a hundred times as long as the verdict
    _text("blocked", default="[]"),  # JSON, a list of [start, end]
    _integer(
        "committed_ns", nullable=True
    ),  # this and the next ones: copies from the JSON, for views and other programs
    _text("limit", nullable=True),
    _real("limit_seconds"),
    _real("limit_confidence"),
    _real("expected_seconds"),
    _real("gpu_seconds"),
    _blob("progress", nullable=True),  # a block of the points of all streams
    _integer("progress_left_out", default=0),
    _text("sent", nullable=True),  # JSON
    _text("run", nullable=True),  # JSON, as are the next two
    _text("place", nullable=True),
    _text("clock", nullable=True),
    _integer("owner", nullable=True),
    _integer("stored_bytes", default=5600),  # its approximate size in the database, without its measures
    sa.Index("checkpoints_by_start", "start_ns"),
    sa.Index("checkpoints_by_owner", "owner", "start_ns", "stored_bytes"),
    sqlite_autoincrement=True,
)
writers = sa.Table(
    "writers",
    metadata,
    *_of_checkpoint(),
    _integer("pid"),
    _text("comm"),
    _integer("bytes"),
    _integer("rank", nullable=True),
    _integer("start_ns", nullable=True),
    _integer("end_ns", nullable=True),
    _text("role", nullable=True),
    sqlite_with_rowid=False,
)
evidence = sa.Table(
    "evidence",
    metadata,
    *_of_checkpoint(),
    _text("name"),
    _real("weight", nullable=False),
    _text("text"),
    sqlite_with_rowid=False,
)
streams = sa.Table(
    "streams",
    metadata,
    *_of_checkpoint(),
    _integer("pid"),
    _text("comm"),
    _text("path"),
    _integer("bytes"),
    _integer("size", nullable=True),
    _integer("start_ns"),
    _integer("end_ns"),
    _text("class", nullable=True),
    _text("observed_by"),
    sqlite_with_rowid=False,
)
devices = sa.Table(
    "devices",
    metadata,
    *_of_checkpoint(),
    _text("device"),
    _text("kind"),
    _integer("read_bytes"),
    _integer("written_bytes"),
    _real("busy_seconds"),
    _text("under", nullable=True),
    _integer("requests", nullable=True),
    _real("mean_request_bytes"),
    _real("sequential_share_bytes"),
    _real("latency_p50_seconds"),
    _real("latency_p99_seconds"),
    _integer("max_in_flight", nullable=True),
    sqlite_with_rowid=False,
)
outbox = sa.Table(  # the last change of each checkpoint
    "outbox",
    metadata,
    _id("change"),  # rising, never reused
    sa.Column(
        "checkpoint_id", sa.Integer, sa.ForeignKey("checkpoints.id", ondelete="CASCADE"), nullable=False, unique=True
    ),
    _integer("revision"),  # how often it was stored, this time included
    _integer("first_start_ns"),  # its start as first stored
    sqlite_autoincrement=True,
)
pending = sa.Table(
    "pending", metadata, sa.Column("uid", sa.Text, primary_key=True), _blob("data"), sqlite_with_rowid=False
)
entities = sa.Table(
    "entities", metadata, _id(), _text("name", unique=True), _integer("observed_ns"), sqlite_autoincrement=True
)
layouts = sa.Table("layouts", metadata, _id(), _text("fields", unique=True))
# Minutes as written, hours in full resolution, and days with the values at the end of each minute
blocks = sa.Table(
    sa.quoted_name("{0}", quote=False), sa.MetaData(), _id(), _integer("layout"), _blob("data")
)  # its name is filled in where a statement is run
