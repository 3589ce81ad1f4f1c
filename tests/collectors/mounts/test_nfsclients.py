"""What NFS clients count, out of texts of /proc/self/mountstats."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collectors.mounts.mountstats import HOST, block, mounted, put

from ckptprof_collectors.kernelfs import KernelFile, KernelFs
from ckptprof_collectors.mounts import nfs_client
from ckptprof_collectors.mounts.nfs_client import MAX_OPERATIONS, NfsClients
from ckptprof_collectors.samples import ClientOperation, ClientSample, MountInfo

FIXTURE = Path(__file__).parents[2] / "fixtures/nfs/mountstats"
WRITE = (64, 65, 1, 67_000_000, 9_000, 3_200, 640, 3_840, 2)


def read(root: Path, *blocks: bytes, mounts: tuple[MountInfo, ...] = (mounted(),)) -> list[ClientSample]:
    """Return what is read of such a file."""
    clients = NfsClients(KernelFs(proc=put(root, *blocks)))
    found = clients.read(mounts)
    clients.close()
    return list(found)


def test_a_mount_is_told_with_its_bytes_operations_and_connection(tmp_path: Path) -> None:
    """Milliseconds become microseconds; operations that were never asked for are left out."""
    (found,) = read(tmp_path, block(counted={"READ": (0,) * 9, "WRITE": WRITE},
                                    read_write=(1, 2, 3, 4, 5, 6, 7, 8), delays=9))  # fmt: skip

    assert found == ClientSample(
        0, 40, "nfs 4.2", "tcp", 1, 2, 3, 4, 5, 6,
        operations=(
            ClientOperation("NULL", 1, 0, 0, 0, 44, 24, 1, 0, 0),
            ClientOperation("WRITE", 64, 3_840_000, 3_200_000, 640_000, 67_000_000, 9_000, 65, 1, 2),
        ),
        delays=9, connections=1, sends=64, backlog=32, in_use=640, slots=24,
        settings={"rsize": 1 << 20, "wsize": 1 << 20, "timeo": 600, "retrans": 2},
    )  # fmt: skip


def test_who_may_not_read_those_of_init_reads_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container that has the host's pids, without privileges."""
    opened = []

    def kept(path: Path, **more: int) -> KernelFile:
        opened.append(path.parent.name)
        if path.parent.name == "1":
            raise PermissionError
        return KernelFile(path, **more)

    monkeypatch.setattr(nfs_client, "host_mounts", lambda fs: fs.proc / "1")
    monkeypatch.setattr(nfs_client, "KernelFile", kept)

    assert len(read(tmp_path, block(counted={"WRITE": WRITE}))) == 1
    assert opened == ["1", "self"]


def test_a_capture_of_others_is_understood(tmp_path: Path) -> None:
    """Operations of version 1.0 have no errors; what the kernel printed of a negative number is not known."""
    mount = mounted(point="/mnt/nfs/test", source="192.168.1.1:/srv/test")
    (found,) = read(tmp_path, FIXTURE.read_bytes(), mounts=(mount,))
    reads, access = found.operations

    assert (found.client, found.transport, found.connections, found.slots) == ("nfs 4.0", "tcp", 1, 24)
    assert (found.read_bytes, found.wire_read_bytes, found.written_bytes) == (1_207_640_230, 1_210_214_218, 0)
    assert (found.sends, found.in_use, found.backlog) == (6428, 12154, 0)
    assert reads == ClientOperation("READ", 1298, 79_407_000, 6_000, 79_386_000, 207_680, 1_210_292_152, 1298, 0, None)
    assert (access.kind, access.queue_us, access.server_us) == ("ACCESS", None, 1_667_369_447_000)


def test_the_connections_of_a_mount_are_summed_up(tmp_path: Path) -> None:
    """`nconnect=3`; of RDMA what follows the first ten numbers is of another kind, UDP counts no connecting."""
    three = [f"tcp 83{at} 0 1 0 11 10 10 0 100 5 {20 + at} 1 1" for at in range(3)]
    (tcp,) = read(tmp_path, block(transports=three, options="rw,vers=4.1,nconnect=3,sync"))
    (rdma,) = read(tmp_path, block(transports=["rdma 0 0 14094 145 0 49 48 27 70 25 105561370 12"] * 2))
    (udp,) = read(tmp_path, block(transports=["udp 700 1 40 41 0 50 60 16 7 8"]))
    (other,) = read(tmp_path, block(transports=["quic 1 2 3 4 5 6 7 8 9 10 11"]))
    (none,) = read(tmp_path, block(transports=[]))

    assert (tcp.connections, tcp.sends, tcp.in_use, tcp.backlog, tcp.slots) == (3, 30, 300, 15, 22)
    assert tcp.settings == {"nconnect": 3, "sync": 1}
    assert (rdma.transport, rdma.connections, rdma.sends, rdma.in_use, rdma.slots) == ("rdma", 2, 98, 140, None)
    assert (udp.transport, udp.sends, udp.in_use, udp.backlog, udp.slots) == ("udp", 40, 50, 60, 16)
    assert (other.transport, other.connections, other.sends, other.slots) == ("quic", 1, None, None)
    assert (none.transport, none.connections) == (None, None)


def test_what_data_servers_do_is_said_to_be_unseen(tmp_path: Path) -> None:
    """With pNFS the connections that are counted are those to another server."""
    (apart,) = read(tmp_path, block(pnfs="LAYOUT_NFSV4_1_FILES"))
    (plain,) = read(tmp_path, block())

    assert ["pNFS" in one for one in apart.limitations] == [True]
    assert plain.limitations == ()


@pytest.mark.parametrize("word", ["18446743919241604546", "-5", "+5", "x", "1_0", "9" * 5000, "0x10", "٣"])
def test_a_number_that_makes_no_sense_is_not_known(tmp_path: Path, word: str) -> None:
    """And what it stands beside is known."""
    (found,) = read(tmp_path, block(counted={"WRITE": (64, 64, 0, word, *WRITE[4:])}, delays=word,
                                    read_write=(7, word, 0, 0, 0, 0, 0, 0)))  # fmt: skip

    assert (found.read_bytes, found.written_bytes, found.delays) == (7, None, None)
    assert (found.operations[1].count, found.operations[1].sent_bytes) == (64, None)
    assert read(tmp_path, block(counted={"WRITE": (word, *WRITE[1:])}))[0].operations[1:] == ()


@pytest.mark.parametrize("cut", [30, 100, 300, 420, 560, 640, 700])
def test_a_text_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    """Whatever is missing is None, or not there."""
    whole = block(counted={"WRITE": WRITE})
    found = read(tmp_path, whole[:cut])

    assert all(one.minor == 40 for one in found)
    assert read(tmp_path, whole[:cut] + b"\n" + HOST) is not None


def test_names_are_compared_without_the_kernels_escapes(tmp_path: Path) -> None:
    """A space, and a byte that is no UTF-8; two mounts of one file system show the same, and count once."""
    point = r"/a b\xff"
    mount = mounted(41, point)
    twice = mounted(41, "/second")
    texts = block(point=rb"/a\040b" + b"\xff"), block(point=b"/second")
    found = read(tmp_path, *texts, mounts=(mount, twice))

    assert [(one.major, one.minor) for one in found] == [(0, 41)]


def test_mounts_that_hide_each_other_are_not_told_apart(tmp_path: Path) -> None:
    """Nothing says which is which; one that is not asked for is not told."""
    assert read(tmp_path, block(), block(), mounts=(mounted(41), mounted(42))) == []
    assert read(tmp_path, block(), mounts=(mounted(41, "/other"),)) == []


def test_a_block_is_parsed_again_only_if_something_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its age and the idle time of its connection change every second."""
    parsed: list[bytes] = []
    from ckptprof_collectors.mounts import nfs_client  # noqa: PLC0415 - to count what it does

    parse = nfs_client.parse_block
    monkeypatch.setattr(nfs_client, "parse_block", lambda device, text: parsed.append(text) or parse(device, text))
    clients = NfsClients(KernelFs(proc=put(tmp_path, block(counted={"WRITE": WRITE}, age=10))))
    first = clients.read([mounted()])
    put(tmp_path, block(counted={"WRITE": WRITE}, age=11, transports=["tcp 832 0 1 0 12 64 64 0 640 32 24 26 57"]))
    assert clients.read([mounted()]) == first
    assert len(parsed) == 1

    put(tmp_path, block(counted={"WRITE": (65, *WRITE[1:])}, age=12))
    assert clients.read([mounted()])[0].operations[1].count == 65
    assert len(parsed) == 2
    clients.close()


def test_five_megabytes_of_other_mounts_are_not_parsed(tmp_path: Path) -> None:
    """A host with thousands of mounts; of operations there are no more than a bound either."""
    other = b"".join(b"device tmpfs mounted on /run/user/%d with fstype tmpfs\n" % at for at in range(90_000))
    many = {f"OP{at}": (1,) * 9 for at in range(5000)}
    (found,) = read(tmp_path, other, block(counted=many))

    assert len(other) > 5_000_000
    assert len(found.operations) == MAX_OPERATIONS
