"""What a checkpoint that was limited is called, by its limit."""

from __future__ import annotations

from ckptprof.verdicts import Limit

WORDS = {
    Limit.GATHER: "bound by gathering the state",
    Limit.STAGING: "bound by copying the state first",
    Limit.SERIALIZE: "serialisation-bound",
    Limit.CPU: "short of processors",
    Limit.PAGE_CACHE: "bound by the page cache",
    Limit.FLUSH: "bound by flushes",
    Limit.DEVICE: "device-bound",
    Limit.NETWORK: "network-bound",
    Limit.SERVER: "bound by the storage server",
    Limit.SMALL_IO: "bound by small operations",
    Limit.METADATA: "bound by the number of files",
    Limit.STRAGGLER: "delayed by one rank",
    Limit.SINGLE_WRITER: "written by one of several ranks",
    Limit.PREVIOUS_SAVE: "saves wait for each other",
    Limit.CLEAN_UP: "blocked by deletion",
    Limit.PAGE_FAULT: "bound by page faults",
}
