"""RDMA ports: /sys/class/infiniband/*/ports/* (Documentation/ABI/stable/sysfs-class-infiniband).

On Ethernet (RoCE) these bytes are not in the counters of the network interface; on InfiniBand those of IPoIB are in
both. Congestion counters are in `hw_counters`, with names by driver.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, list_names, parse_counter, read_int, read_text
from ckptprof_collectors.samples import EntityGone, RdmaInfo, RdmaSample, Sample, text

REVIEW_SECONDS = 10.0  # between reads of state and rate, which query the device
DATA_UNIT_BYTES = 4  # of port_rcv_data and port_xmit_data: "in units of 4 octets"
_MAX_UNITS = ((1 << 63) - 1) // DATA_UNIT_BYTES  # a device that fell off its bus reads as all ones
# counter -> its possible files, the first existing one is used (drivers/infiniband/hw/{mlx5,bnxt_re,irdma,efa})
_COUNTERS = (
    ("counters/port_rcv_data",),
    ("counters/port_xmit_data",),
    ("counters/port_rcv_packets", "hw_counters/rx_pkts"),
    ("counters/port_xmit_packets", "hw_counters/tx_pkts"),
    ("counters/port_xmit_wait",),
    ("counters/port_xmit_discards",),
    ("counters/port_rcv_errors",),
    ("hw_counters/np_cnp_sent", "hw_counters/tx_cnp_pkts", "hw_counters/cnpSent"),
    ("hw_counters/rp_cnp_handled", "hw_counters/rx_cnp_pkts", "hw_counters/cnpHandled"),
    ("hw_counters/np_ecn_marked_roce_packets", "hw_counters/rx_ecn_marked_pkts", "hw_counters/RxECNMrkd"),
    ("hw_counters/out_of_sequence",),
    ("hw_counters/packet_seq_err", "hw_counters/seq_err_naks_rcvd"),
    ("hw_counters/local_ack_timeout_err", "hw_counters/to_retransmits", "hw_counters/retrans_timeout_events"),
    ("hw_counters/rnr_nak_retry_err", "hw_counters/rnr_naks_rcvd"),
)
_BYTES = (("hw_counters/rx_bytes",), ("hw_counters/tx_bytes",))  # of drivers whose ports count no data (efa)
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")


class _RdmaPort:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.info: RdmaInfo | None = None
        self.previous: RdmaSample | None = None
        self._fds = [_open_first(folder, files) for files in _COUNTERS]
        self._in_bytes = [_open_first(folder, files) for files in _BYTES] if self._fds[:2] == [None, None] else []

    def sample(self) -> RdmaSample:
        received, sent, *others = map(_read, self._fds)
        if self._in_bytes:
            received, sent = map(_read, self._in_bytes)
        else:
            received, sent = map(_to_bytes, (received, sent))
        return RdmaSample(self.name, received, sent, *others)

    def describe(self) -> RdmaInfo:
        rate = _RATE.match(read_text(self.folder / "rate") or "")
        state = (read_text(self.folder / "state") or "").partition(":")[2].strip()  # "4: ACTIVE"
        return RdmaInfo(
            port=self.name,
            rate_bits_per_second=round(float(rate[1]) * 1e9) if rate else None,
            state=state or None,
            link_layer=read_text(self.folder / "link_layer") or None,
            interface=self._interface(),
        )

    def _interface(self) -> str | None:
        """Network interface of the port: of its first GID, else that of the same device and port number."""
        if of_gid := read_text(self.folder / "gid_attrs" / "ndevs" / "0"):
            return of_gid
        net = self.folder.parent.parent / "device" / "net"
        port = int(self.folder.name)
        for candidate in list_names(net):
            dev_port = read_int(net / candidate / "dev_port")
            if dev_port is not None and dev_port == port - 1:
                return text(os.fsencode(candidate))
        return None

    def close(self) -> None:
        for fd in (*self._fds, *self._in_bytes):
            if fd is not None:
                os.close(fd)
        self._fds, self._in_bytes = [None] * len(_COUNTERS), []


class RdmaPorts:
    """Reports each port's counters when they changed, and each port when first seen, changed or gone."""

    name = "rdma"

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the counters of each port; raises UnavailableError if there is none."""
        self._class = fs.sys / "class" / "infiniband"
        self._clock = clock
        self._ports: dict[str, _RdmaPort] = {}
        self._review_at = clock()
        if not self._list():
            raise UnavailableError("no RDMA port: /sys/class/infiniband is absent or empty")

    def read(self) -> Sequence[Sample]:
        samples: list[Sample] = []
        if self._clock() >= self._review_at:
            self._review_at = self._clock() + REVIEW_SECONDS
            samples += self._review()
        for port in self._ports.values():
            current = port.sample()
            if current != port.previous:
                port.previous = current
                samples.append(current)
        return samples

    def _review(self) -> list[Sample]:
        samples: list[Sample] = []
        now = self._list()
        for name in self._ports.keys() - now.keys():
            self._ports.pop(name).close()
            samples.append(EntityGone("port", name))
        for name, folder in now.items():
            port = self._ports.get(name)
            if port is None:
                port = self._ports[name] = _RdmaPort(name, folder)
            info = port.describe()
            if info != port.info:
                port.info = info
                samples.append(info)
        return samples

    def _list(self) -> dict[str, Path]:
        ports: dict[str, Path] = {}
        for device in list_names(self._class):
            for number in filter(str.isdecimal, list_names(self._class / device / "ports")):
                ports[f"{text(os.fsencode(device))}/{number}"] = self._class / device / "ports" / number
        return ports

    def close(self) -> None:
        for port in self._ports.values():
            port.close()


def _open_first(folder: Path, files: Sequence[str]) -> int | None:
    for name in files:
        with contextlib.suppress(OSError):
            return os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _to_bytes(units: int | None) -> int | None:
    return None if units is None or units > _MAX_UNITS else units * DATA_UNIT_BYTES


def _read(fd: int | None) -> int | None:
    """Read a counter; None if the device does not have it, is gone (ENODEV), or shows no valid number."""
    if fd is None:
        return None
    try:
        return parse_counter(os.pread(fd, 64, 0).strip())
    except OSError:
        return None
