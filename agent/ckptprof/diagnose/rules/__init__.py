"""The causes that users reported, in the order in which they are asked: the first that fits a limit is told."""

from __future__ import annotations

from ckptprof.diagnose.rules import job, no_limit, page_cache, storage
from ckptprof.diagnose.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    page_cache.MAPPED_FAR,
    page_cache.MAPPED_PRESSED,
    page_cache.MAPPED,
    page_cache.SYNC_FAR,
    page_cache.SYNC_ALL,
    page_cache.FLUSH_EACH,
    page_cache.SYNC_PIECES,
    storage.STAGING_COPY,
    storage.SAVED_TWICE,
    storage.READ_MODIFY_WRITE,
    job.PLANNING,
    job.GATHERED,
    job.STRAGGLER,
    job.SINGLE_WRITER_FAR,
    job.SINGLE_WRITER,
    job.GIL,
    job.CRC,
    job.COMPRESSION,
    job.OBJECTS,
    job.COPIES,
    job.STARVED,
    job.UNPICKLING,
    job.SINGLE_THREAD,
    job.STAGING_MEMORY,
    job.SHARED_MEMORY,
    job.STAGING,
    job.CLEAN_UP,
    storage.CONGESTED,
    storage.SLOW_PATH,
    storage.READ_BY_ALL,
    storage.STRIPES,
    storage.SINGLE_STREAM,
    storage.MANY_FILES_RANKS,
    storage.MANY_FILES,
    job.PREVIOUS,
    page_cache.DIRTY_LIMITS,
    page_cache.COPYING,
    storage.BUFFERED,
    storage.THROTTLED,
    storage.SMALL_IO,
    storage.SLOW_DEVICE,
    storage.SHAPED,
    storage.FULL_LINK,
    storage.SLOW_SERVER,
    no_limit.TIMEOUT,
    no_limit.UNEXPLAINED,
    no_limit.WARM,
)

__all__ = ["RULES", "Rule"]
