"""Whether TCP tells the server from the network, and what looks at its sockets and at clients of remote mounts cost.

    python benchmarks/connections.py [--saves 20] [--each 5] [--sockets 500] [--mounts 40]

The triad of saves over SFTP (tests/e2e/faults/triad.py): a path that is slow beyond this host, a server that takes
bytes slowly, a job that is slow itself; polled as an ordinary user, and traced as root. Needs root, sshfs and socat.
A look is timed by the CPU time of its thread, at connections of this process with itself, which stand still or of
which some have moved since the last look. Clients are those of a made-up host: half of the mounts are of NFS, half of
Lustre with 16 OSTs each, of which nothing moved since the last look, one mount did, or all did; a host without any.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.mounts.clients import RemoteClients
from ckptprof_collectors.networks.tcpsockets import TELLING_BYTES, TcpSockets
from contenders import ROOT
from figures import median, parser, show

sys.path[:0] = [str(ROOT / "tests/e2e/faults"), str(ROOT / "tests/e2e")]
from tests.collectors.mounts.mountstats import block, mounted, put  # noqa: E402 - found by the line above
from tests.lustretree import MIB, LustreTree, lustre_mount  # noqa: E402
from triad import NOBODY, TRIAD, Planted, verdicts  # noqa: E402 - found by the line above

LOOKS = 60
USERS = {"poll": NOBODY, "trace": None}


def told(planted: Planted, level: str, user: int | None, *, saves: int, each: int) -> dict[str, Any]:
    """Return how often the limit of some saves was told, by jobs of a few saves each."""
    found: list[dict[str, Any]] = []
    for _ in range(-(-saves // each)):
        found += verdicts(planted, saves=each, level=level, user=user)
    limits = Counter(one["verdict"]["limit"] if one["verdict"] else "none told" for one in found)
    mine = [one for one in found if one["verdict"] and one["verdict"]["limit"] == planted.limit]
    storage = [one["measures"]["connections"][0] for one in mine if one["measures"]["connections"]]
    shares = [one["rwnd_share"] for one in storage if one["rwnd_share"] is not None]
    busy = [one["busy_seconds"] / one["seconds"] for one in storage if one["busy_seconds"] is not None]
    return {
        "planted": planted.name,
        "level": level,
        "user": "root" if user is None else user,
        "saves": len(found),
        "right": len(mine),
        "told": ", ".join(f"{limit} x{number}" for limit, number in limits.most_common()),
        "median_busy_share": median(busy) if busy else None,
        "median_rwnd_share": median(shares) if shares else None,
    }


@contextlib.contextmanager
def connected(number: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Give so many pairs of connected sockets."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        pairs = []
        for _ in range(number):
            client = stack.enter_context(socket.create_connection(server.getsockname()))
            pairs.append((client, stack.enter_context(server.accept()[0])))
        yield pairs


def cost(sockets: int, moving: int) -> dict[str, Any]:
    """Return what a look costs, at so many sockets of which some have moved."""
    now = [0.0]
    collector = TcpSockets(KernelFs(), clock=lambda: now[0])
    spent = []
    with connected(sockets // 2) as pairs:
        collector.read()
        for _ in range(LOOKS):
            for client, taken in pairs[: moving // 2]:
                client.sendall(bytes(TELLING_BYTES))
                left = TELLING_BYTES
                while left:
                    left -= len(taken.recv(left))
            now[0] += 100
            began = time.thread_time_ns()
            collector.read()
            spent.append((time.thread_time_ns() - began) / 1e6)
    collector.close()
    return {"sockets": sockets, "moved": moving, "median_ms": median(spent), "worst_ms": max(spent)}


def _move(number: int, moving: int, look: int, root: Path, trees: list[LustreTree]) -> None:
    """Let some of so many NFS mounts, and these of Lustre, have been asked for more at each look."""
    texts = []
    for at in range(number):
        count = 1000 + (look if at < moving else 0)
        counted = {f"OP{kind}": (count, count, 0, 1 << 30, 1 << 20, 5, 500, 505, 0) for kind in range(20)}
        texts.append(block(point=f"/n{at}".encode(), source=f"filer:/{at}".encode(), counted=counted, age=look))
    put(root / "proc", *texts)
    for tree in trees:
        for ost in tree.names:
            tree.wrote(ost, 10, MIB, 2000)
        tree.flush()


def clients_cost(number: int, moving: int) -> dict[str, Any]:
    """Return what a look at the clients of so many remote mounts costs, of which some of each kind have moved."""
    now, spent, half = 0.0, [], number // 2
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        trees = [LustreTree(root, "2.15.5", name=f"fs{at}", hex=f"ffff8810{at:08x}") for at in range(half)]
        _move(half, 0, 0, root, trees)
        collector = RemoteClients(KernelFs(proc=root / "proc", sys=root / "sys"), clock=lambda: now)
        mounts = [mounted(at, f"/n{at}", f"filer:/{at}") for at in range(half)]
        collector.follow([*mounts, *(lustre_mount(f"fs{at}", f"/l{at}", 1000 + at) for at in range(half))])
        collector.read()
        for look in range(LOOKS):
            _move(half, moving, look, root, trees[:moving])
            now += 4.0
            began = time.thread_time_ns()
            collector.read()
            spent.append((time.thread_time_ns() - began) / 1e6)
        collector.close()
    return {"mounts": number, "moved": 2 * moving, "median_ms": median(spent), "worst_ms": max(spent)}


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--saves", type=int, default=20, help="of each kind, level and user")
    options.add_argument("--each", type=int, default=5, help="saves of one job")
    options.add_argument(
        "--levels", nargs="+", choices=USERS, default=list(USERS), help="polled as nobody, traced as root"
    )
    options.add_argument("--sockets", type=int, default=500)
    options.add_argument("--mounts", type=int, default=40)
    chosen = options.parse_args()
    rows = [cost(chosen.sockets, moving) for moving in (0, chosen.sockets // 16, chosen.sockets)]
    show("connections: a look at TCP sockets", rows, as_json=chosen.json)
    rows = [
        clients_cost(*each)
        for each in ((0, 0), (chosen.mounts, 0), *((chosen.mounts, one) for one in (1, chosen.mounts // 2)))
    ]
    show("connections: a look at clients of remote mounts", rows, as_json=chosen.json)
    if chosen.saves:
        rows = [
            told(planted, level, USERS[level], saves=chosen.saves, each=chosen.each)
            for level in chosen.levels
            for planted in TRIAD
        ]
        show("connections: the triad", rows, as_json=chosen.json)


if __name__ == "__main__":
    main()
