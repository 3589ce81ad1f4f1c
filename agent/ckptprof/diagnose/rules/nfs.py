"""Causes that the client of an NFS mount tells: its server's stable storage, one connection, small or lost requests."""

from __future__ import annotations

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.rules.rule import Rule
from ckptprof.diagnose.sight import look, number
from ckptprof.model import Checkpoint
from ckptprof.units import percent, seconds
from ckptprof.verdicts import Limit

_HELD_BACK = 0.7  # of the data: it went to the server after all of it had been written to the page cache
_LONG = 0.3  # of the save, until then

# The server has to bring everything to stable storage before it answers a COMMIT.
COMMITS = Rule(
    name="nfs-commit",
    limits=(Limit.SERVER,),
    causes=(Cause.COMMITS,),
    exclusion="COMMITs take little of the time of all requests",
    remedy=(
        "have the server's stable storage looked at (a log on flash or NVRAM, as ZFS SLOG); one fsync for each file; "
        "else local NVMe first"
    ),
    reference="RFC 8881, section 18.3 (COMMIT); kernel fs/nfs/write.c",
    without="with stable storage that does not limit it",
)

# The server asks the client to come back later.
DELAYED = Rule(
    name="nfs-delay",
    limits=(Limit.SERVER,),
    causes=(Cause.DELAYED,),
    exclusion="the server never answers that it is to be asked later",
    remedy=(
        "have the server looked at: it brings files back from a slower tier, recalls delegations of other clients, or "
        "is short of threads or memory"
    ),
    reference="RFC 8881, section 15.1.1.3 (NFS4ERR_DELAY); NFS3ERR_JUKEBOX in RFC 1813",
    without="without these delays",
)

# Requests are sent again.
RESENT = Rule(
    name="nfs-retransmission",
    limits=(Limit.NETWORK,),
    causes=(Cause.RESENT,),
    exclusion="no request is sent again",
    remedy=(
        "have the way to the server looked at (`nfsstat -rc`, `ss -ti`, drops of interfaces and switches), then the "
        "server; mount with `proto=tcp`, and leave `timeo` as it is"
    ),
    reference="nfs(5), timeo and retrans; kernel net/sunrpc/clnt.c",
    without="without sending again",
)

# Requests wait at this end for the one connection that the mount has.
ONE_CONNECTION = Rule(
    name="nfs-one-connection",
    limits=(Limit.SINGLE_WRITER,),
    causes=(Cause.ONE_CONNECTION,),
    exclusion="requests wait at the server, or over several connections",
    remedy="mount with `nconnect=8` (Linux 5.3 and newer), or write from several nodes",
    reference="kernel 6619079d0540 (NFSv4: Allow multiple connections to NFSv4.x servers); nfs(5), nconnect",
    without="over more connections",
)

# Each request carries far less than it could.
SMALL_REQUESTS = Rule(
    name="nfs-small-requests",
    limits=(Limit.SMALL_IO,),
    causes=(Cause.SMALL_REQUESTS,),
    exclusion="requests are as large as the mount has room for",
    remedy=(
        "mount without `sync`, open without O_SYNC, write in pieces of 1 MB and more, and direct writes aligned to "
        "pages: then the client gathers them"
    ),
    reference="nfs(5), sync mount option and wsize",
    without="in large requests",
    remedy_of_restore=(
        'read in pieces of 1 MB and more, in order: `open(path, "rb", buffering=16 << 20)`; mount with `rsize=1048576`'
    ),
)


def _held_back(checkpoint: Checkpoint, _accounts: tuple[Spent, ...]) -> str | None:
    sight = look(checkpoint)
    mount = sight.measures.mount
    late = number(mount.late_share) if mount is not None else None
    asked = number(mount.asked_seconds) if mount is not None else None
    if late is None or asked is None or late < _HELD_BACK or asked < _LONG * sight.span:
        return None
    return f"{percent(min(1.0, late))} of it went to the server after it had been written, which took {seconds(asked)}"


# The client keeps what is written until it is closed or synced, and sends it then. Only that of NFS tells when: others
# do not count what was asked for, or not what of it was direct.
HELD_BACK = Rule(
    name="sent-at-the-end",
    limits=(Limit.SERVER, Limit.NETWORK),
    words=_held_back,
    exclusion="data goes to the server while it is written",
    remedy=(
        "let the client send while the save goes on: a lower vm.dirty_background_bytes (64 MB), "
        "`sync_file_range` or `os.posix_fadvise` after each part, or O_DIRECT"
    ),
    reference="nfs(5), DATA AND METADATA COHERENCE: close-to-open; kernel Documentation/admin-guide/sysctl/vm.rst",
    without="sent while it is written",
)
