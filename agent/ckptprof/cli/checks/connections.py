"""What `ckptprof doctor` looks at: whether the kernel tells what TCP connections wait for."""

from __future__ import annotations

from ckptprof.report.doctor import Check
from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.networks.inetdiag import TcpSocket, TcpTable

_BLIND = "whether the server or the network limits a save is told by links alone"


def tcp(fs: KernelFs) -> Check:
    """Ask for the TCP sockets of this network namespace, as the sampler does."""
    if not fs.is_live:
        return Check("tcp", "note", f"TCP sockets are asked of the kernel itself, and not here: {_BLIND}")
    try:
        table = TcpTable(TcpSocket)
    except UnavailableError as error:
        return Check("tcp", "note", f"{error}: {_BLIND}", "load the module tcp_diag, and allow AF_NETLINK sockets")
    counts = [one.counts() for one in table.open()]
    table.close()
    if counts and all(one.busy_us is None for one in counts):
        text = f"the kernel does not count what TCP connections wait for (since 4.10): {_BLIND}"
        return Check("tcp", "note", text)
    return Check("tcp", "ok", f"what TCP connections wait for can be read, {len(counts)} of them in sight")
