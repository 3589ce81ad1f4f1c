"""Classifies what a sleeping thread waits for, by its system call and the kernel function that it is in.

Pure. Numbers are those of x86-64, whatever the machine: `canonical` translates those of arm64
(arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
"""

from __future__ import annotations

RUNNING = -1  # on a CPU, or asleep in a page fault
UNKNOWN = -2  # a call that does not exist on x86-64, or is not in the table

# name: (number on x86-64, number on arm64 or -1, word)
CALLS: dict[str, tuple[int, int, str]] = {
    "read": (0, 63, "data"),
    "write": (1, 64, "data"),
    "pread64": (17, 67, "data"),
    "pwrite64": (18, 68, "data"),
    "readv": (19, 65, "data"),
    "writev": (20, 66, "data"),
    "preadv": (295, 69, "data"),
    "pwritev": (296, 70, "data"),
    "preadv2": (327, 286, "data"),
    "pwritev2": (328, 287, "data"),
    "sendfile": (40, 71, "data"),
    "splice": (275, 76, "data"),
    "vmsplice": (278, 75, "data"),
    "copy_file_range": (326, 285, "data"),
    "readahead": (187, 213, "data"),
    "io_submit": (209, 2, "data"),
    "io_getevents": (208, 4, "data"),
    "io_pgetevents": (333, 292, "data"),
    "io_uring_enter": (426, 426, "data"),
    "fsync": (74, 82, "sync"),
    "fdatasync": (75, 83, "sync"),
    "sync_file_range": (277, 84, "sync"),
    "msync": (26, 227, "sync"),
    "sync": (162, 81, "sync"),
    "syncfs": (306, 267, "sync"),
    "close": (3, 57, "close"),
    "close_range": (436, 436, "close"),
    "open": (2, -1, "create"),
    "creat": (85, -1, "create"),
    "openat": (257, 56, "create"),
    "openat2": (437, 437, "create"),
    "mkdir": (83, -1, "create"),
    "mkdirat": (258, 34, "create"),
    "link": (86, -1, "create"),
    "linkat": (265, 37, "create"),
    "symlink": (88, -1, "create"),
    "symlinkat": (266, 36, "create"),
    "rename": (82, -1, "rename"),
    "renameat": (264, 38, "rename"),
    "renameat2": (316, 276, "rename"),
    "unlink": (87, -1, "unlink"),
    "unlinkat": (263, 35, "unlink"),
    "rmdir": (84, -1, "unlink"),
    "stat": (4, -1, "metadata"),
    "fstat": (5, 80, "metadata"),
    "lstat": (6, -1, "metadata"),
    "newfstatat": (262, 79, "metadata"),
    "statx": (332, 291, "metadata"),
    "statfs": (137, 43, "metadata"),
    "fstatfs": (138, 44, "metadata"),
    "access": (21, -1, "metadata"),
    "faccessat": (269, 48, "metadata"),
    "faccessat2": (439, 439, "metadata"),
    "readlink": (89, -1, "metadata"),
    "readlinkat": (267, 78, "metadata"),
    "lseek": (8, 62, "metadata"),
    "getdents": (78, -1, "metadata"),
    "getdents64": (217, 61, "metadata"),
    "truncate": (76, 45, "metadata"),
    "ftruncate": (77, 46, "metadata"),
    "fallocate": (285, 47, "metadata"),
    "chmod": (90, -1, "metadata"),
    "fchmod": (91, 52, "metadata"),
    "fchmodat": (268, 53, "metadata"),
    "chown": (92, -1, "metadata"),
    "fchown": (93, 55, "metadata"),
    "fchownat": (260, 54, "metadata"),
    "utimensat": (280, 88, "metadata"),
    "setxattr": (188, 5, "metadata"),
    "fsetxattr": (190, 7, "metadata"),
    "getxattr": (191, 8, "metadata"),
    "fgetxattr": (193, 10, "metadata"),
    "flock": (73, 32, "file-lock"),
    "fcntl": (72, 25, "file-lock"),
    "futex": (202, 98, "lock"),
    "futex_waitv": (449, 449, "lock"),
    "futex_wait": (455, 455, "lock"),
    "semop": (65, 193, "lock"),
    "semtimedop": (220, 192, "lock"),
    "msgrcv": (70, 188, "lock"),
    "wait4": (61, 260, "child"),
    "waitid": (247, 95, "child"),
    "nanosleep": (35, 101, "sleep"),
    "clock_nanosleep": (230, 115, "sleep"),
    "pause": (34, -1, "sleep"),
    "sched_yield": (24, 124, "sleep"),
    "rt_sigtimedwait": (128, 137, "sleep"),
    "rt_sigsuspend": (130, 133, "sleep"),
    "connect": (42, 203, "network"),
    "accept": (43, 202, "network"),
    "accept4": (288, 242, "network"),
    "sendto": (44, 206, "network"),
    "recvfrom": (45, 207, "network"),
    "sendmsg": (46, 211, "network"),
    "recvmsg": (47, 212, "network"),
    "shutdown": (48, 210, "network"),
    "recvmmsg": (299, 243, "network"),
    "sendmmsg": (307, 269, "network"),
    "poll": (7, -1, "poll"),
    "ppoll": (271, 73, "poll"),
    "select": (23, -1, "poll"),
    "pselect6": (270, 72, "poll"),
    "epoll_wait": (232, -1, "poll"),
    "epoll_pwait": (281, 22, "poll"),
    "epoll_pwait2": (441, 441, "poll"),
    "mmap": (9, 222, "memory"),
    "munmap": (11, 215, "memory"),
    "mprotect": (10, 226, "memory"),
    "mremap": (25, 216, "memory"),
    "madvise": (28, 233, "memory"),
    "ioctl": (16, 29, "other"),  # drivers: of a GPU, mostly
}
FILE_WORDS = frozenset({"data", "sync", "close", "create", "rename", "unlink", "metadata", "fault"})
_WORDS = {number: word for number, _, word in CALLS.values()}
_STOPPED = frozenset("Tt")
_FROZEN = frozenset({"__refrigerator", "do_freezer_trap"})  # of cgroup v1, v2
_FROM_ARM64 = {other: number for number, other, _ in CALLS.values() if other >= 0}
# prefixes of kernel functions (wchan) that are more specific than a call, or replace it if not permitted
_WAITS: tuple[tuple[str, str], ...] = (
    ("pipe_", "lock"),  # what is at its other end is another process or thread
    ("anon_pipe_", "lock"),
    ("eventfd_", "lock"),
    ("do_wait", "child"),
    ("futex_", "lock"),
    ("__futex_", "lock"),
    ("unix_", "network"),
    ("sk_", "network"),
    ("__skb_", "network"),
    ("inet_", "network"),
    ("tcp_", "network"),
    ("wait_woken", "network"),
    ("hrtimer_", "sleep"),
    ("do_nanosleep", "sleep"),
    ("do_epoll_", "poll"),
    ("ep_poll", "poll"),
    ("do_poll", "poll"),
    ("poll_schedule", "poll"),
    ("do_select", "poll"),
)
_STORAGE_WAITS: tuple[tuple[str, str], ...] = (  # used only if the call is unknown
    ("jbd2_log_wait", "sync"),
    ("xlog_", "sync"),
    ("xfs_log", "sync"),
    ("__xfs_log", "sync"),
    ("blkdev_issue_flush", "sync"),
    ("file_write_and_wait", "sync"),
    ("balance_dirty_pages", "data"),
    ("folio_wait", "data"),
    ("__folio_", "data"),
    ("wait_on_page", "data"),
    ("filemap_", "data"),
    ("iomap_", "data"),
    ("__iomap_", "data"),
    ("blkdev_", "data"),
    ("submit_bio_wait", "data"),
    ("rq_qos_wait", "data"),
    ("blk_mq_get_tag", "data"),
    ("request_wait_answer", "data"),
    ("fuse_", "data"),
    ("rpc_wait", "data"),
    ("nfs_", "data"),
    ("read_events", "data"),
    ("io_cqring_wait", "data"),
)


def canonical(number: int, machine: str) -> int:
    """Translate to the number of the same call on x86-64; RUNNING stays, UNKNOWN where it has none."""
    if number < 0 or machine == "x86_64":
        return number
    return _FROM_ARM64.get(number, UNKNOWN) if machine in {"aarch64", "arm64"} else UNKNOWN


def classify(state: str, call: int | None, wait: str | None) -> str:
    """Classify the call or wait of a thread in a sample (see `ThreadSample`).

    data | sync | close | create | rename | unlink | metadata | lock | file-lock | child (its end) | sleep | network |
    poll | memory | other | running | fault (a page came in) | stopped (by a signal, a debugger or a frozen cgroup) |
    unknown.
    """
    if state == "R":
        return "running"
    if state in _STOPPED or (wait or "") in _FROZEN:
        return "stopped"
    if call is None:
        return _word_of_wait(wait, _STORAGE_WAITS) or _word_of_wait(wait, _WAITS) or "unknown"
    if call == RUNNING:
        return "fault" if state == "D" or _word_of_wait(wait, _STORAGE_WAITS) else "other"
    word = _WORDS.get(call, "other")
    if word == "data":  # on something that is no file?
        return _word_of_wait(wait, _WAITS) or word
    return word


def _word_of_wait(wait: str | None, table: tuple[tuple[str, str], ...]) -> str | None:
    return next((word for start, word in table if wait.startswith(start)), None) if wait else None
