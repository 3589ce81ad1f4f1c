"""TCP connections of a checkpoint: what they did while it went on, and which of them may matter for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.detect.observed import frame
from tests.detect.stage import MIB, Stage

from ckptprof.detect.world.counter_history import MAX_HISTORY_BYTES
from ckptprof.detect.world.host.connection_counters import ConnectionCounters, ConnectionTraffic, Endpoint
from ckptprof.detect.world.host.fuse_mounts import FuseMounts
from ckptprof.measures import ConnectionMeasure
from ckptprof_collectors.samples import FuseDaemon, MountInfo, Sample, TcpSample

SECOND = 1_000_000_000
TICK = SECOND // 5
NFS = MountInfo(1, 0, 40, "/", "/ckpt", "nfs4", "filer:/x", None, "filer", ("10.0.0.9",))
SSHFS = MountInfo(1, 0, 41, "/", "/ckpt", "fuse.sshfs", "filer:/x", None, "filer")
CEPH = MountInfo(1, 0, 42, "/", "/ckpt", "ceph", "10.0.0.1:6789:/", None, "10.0.0.1", ("10.0.0.1",))
LOCAL = MountInfo(1, 8, 1, "/", "/ckpt", "ext4", "/dev/sda", "sda", None)


def tcp(sent: int = 0, **more: Any) -> TcpSample:
    """Return an endpoint that has sent so much, for 30 % of its time held up by the receiver's window."""
    told: dict[str, Any] = {
        "remote": "10.0.0.9", "port": 2049, "is_accepted": False, "local": "10.0.0.2", "interfaces": ("eth0",),
        "pid": None, "start_ticks": None, "sockets": 2, "bytes_acked": sent, "bytes_received": sent // 100,
        "bytes_retrans": sent // 1000, "busy_us": sent // 100, "rwnd_limited_us": 3 * sent // 1000,
        "sndbuf_limited_us": 0, "rtt_us": 8000, "min_rtt_us": 40, "delivery_rate": None,
    }  # fmt: skip
    return TcpSample(**{**told, **more})


def seen(*ticks: TcpSample | None) -> ConnectionCounters:
    """Return what was seen of one sample a tick; None: the collector was read and told nothing."""
    made = ConnectionCounters()
    for tick, sample in enumerate(ticks, start=1):
        made.ingest(frame(tick * TICK, (tick - 1) * TICK, *([sample] if sample is not None else [])))
    return made


def only(made: ConnectionCounters, start_s: float, end_s: float) -> ConnectionTraffic:
    """Return what the only endpoint did between two times."""
    ((_, traffic),) = made.traffic_between(int(start_s * SECOND), int(end_s * SECOND))
    return traffic


def test_an_endpoint_is_told_by_what_it_did_meanwhile() -> None:
    """Sums of that time; a new one stood at zero when it was not told yet, the round is that of the looks."""
    made = seen(None, tcp(MIB, is_new=True, rtt_us=1000), tcp(3 * MIB, rtt_us=3000, min_rtt_us=30), tcp(4 * MIB))
    whole, part = only(made, 0, 0.8), only(made, 0.4, 0.6)

    assert (whole.sent_bytes, whole.busy_us, whole.sockets) == (4 * MIB, 4 * MIB // 100, 2)
    assert (whole.rtt_us, whole.min_rtt_us) == (4000, 30)
    assert (part.sent_bytes, part.rwnd_limited_us) == (2 * MIB, pytest.approx(6 * MIB / 1000, abs=1))


def test_what_an_endpoint_did_before_it_was_looked_at_is_not_known() -> None:
    """It is in the midst of something when the recording begins."""
    made = seen(tcp(90 * MIB), tcp(91 * MIB))
    assert only(made, 0, 0.4).sent_bytes == MIB


def test_an_endpoint_that_had_to_give_way_begins_anew() -> None:
    """Its counters do, too."""
    made = seen(tcp(90 * MIB), None, tcp(2 * MIB, is_new=True), tcp(3 * MIB))
    assert only(made, 0.4, 0.8).sent_bytes == 3 * MIB


def test_what_an_old_kernel_does_not_count_is_not_known() -> None:
    """None, and not zero."""
    old = {"busy_us": None, "rwnd_limited_us": None, "sndbuf_limited_us": None, "bytes_retrans": None, "rtt_us": None}
    traffic = only(seen(tcp(MIB, **old), tcp(2 * MIB, **old)), 0.2, 0.4)

    assert (traffic.sent_bytes, traffic.busy_us, traffic.rwnd_limited_us) == (MIB, None, None)
    assert (traffic.retransmitted_bytes, traffic.rtt_us) == (None, None)


def test_who_moved_nothing_is_not_told() -> None:
    """Data that nobody acknowledges is on its way for minutes."""
    made = seen(tcp(MIB), tcp(MIB, busy_us=400_000))
    assert list(made.traffic_between(int(0.2 * SECOND), int(0.4 * SECOND))) == []


def test_hours_of_hundreds_of_endpoints_fit_in_a_few_megabytes() -> None:
    """The older a look is, the fewer of its neighbours are kept."""
    made = ConnectionCounters()
    for tick in range(2000):
        made.ingest(frame(tick * TICK, max(0, tick - 1) * TICK, tcp(tick * MIB)))
    (past,) = made._histories.values()
    assert MAX_HISTORY_BYTES // 64 < 8 * 10 * len(past) <= MAX_HISTORY_BYTES // 16


def endpoint(owner: tuple[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """Return the fields of a sample of an owner."""
    pid, start_ticks = owner or (None, None)
    return {"pid": pid, "start_ticks": start_ticks, **more}


def told(mount: MountInfo, *endpoints: dict[str, Any], extra: tuple[Sample, ...] = (), share: float = 1.0,
         reads: bool = False) -> tuple[ConnectionMeasure, ...]:  # fmt: skip
    """Return the connections of a save of 200 MiB in 2 s, over each of which went a share of its bytes meanwhile."""
    stage = Stage()
    trainer = stage.process()
    samples: list[tuple[float, Sample]] = [(0.1, mount), *((0.2, one) for one in extra)]
    if reads:
        stage.read(trainer, "/ckpt/step_1.pt", 3.0, 2.0, 200 * MIB)
    else:
        stage.write(trainer, "/ckpt/step_1.pt", 3.0, 2.0, 200 * MIB, held_s=0.3)
    for tick in range(60):
        moved = int(min(max(0.0, tick / 10 - 3.0), 2.0) / 2 * share * 200 * MIB)
        ways = {"bytes_acked": moved // 100, "bytes_received": moved} if reads else {}
        samples += [(tick / 10 + 0.01, tcp(moved, **{**ways, **one})) for one in endpoints]
    stage.extra = sorted(samples, key=lambda pair: pair[0])
    found = stage.play(12, saved_paths=("/ckpt/step_1.pt",))
    assert len(found) == 1
    assert found[0].measures is not None
    return found[0].measures.connections


def test_the_connections_of_a_mount_are_those_with_its_server() -> None:
    """With what they did; connections with others, and those that others opened, are none."""
    (one,) = told(NFS, endpoint(), endpoint(remote="10.0.0.7"), endpoint(is_accepted=True, remote="10.0.0.8"))

    assert (one.remote, one.port, one.relation, one.links) == ("10.0.0.9", 2049, "server", ("eth0",))
    assert one.sent_bytes == pytest.approx(200 * MIB, rel=0.05)
    assert one.rwnd_share == pytest.approx(0.3, abs=0.01)
    assert one.busy_seconds == pytest.approx(2.1, abs=0.1)
    assert (one.rtt_seconds, one.min_rtt_seconds, one.processes) == (0.008, 0.00004, None)


def test_owners_of_one_remote_port_are_told_together() -> None:
    """The kernel's, that of a process, and one from another address."""
    (one,) = told(NFS, endpoint(), endpoint((100, 1000)), endpoint(local="10.0.0.3"))
    assert (one.processes, one.sockets) == ((100,), 6)
    assert one.sent_bytes == pytest.approx(600 * MIB, rel=0.05)


def test_the_connections_of_a_fuse_mount_are_those_of_who_serves_it() -> None:
    """Its source names no address."""
    daemon = FuseDaemon(0, 41, "sshfs", ((50, 500), (51, 510)))
    (one,) = told(SSHFS, endpoint((51, 510)), endpoint((60, 600)), extra=(daemon,))
    assert (one.relation, one.processes) == ("daemon", (51,))


def test_the_processes_of_the_job_have_connections_of_their_own() -> None:
    """Whatever it saves on: ranks that gather; but not keep-alives."""
    (one,) = told(LOCAL, endpoint((100, 1000)), endpoint((60, 600)))
    assert (one.relation, one.processes) == ("process", (100,))
    assert told(LOCAL, endpoint((100, 1000)), share=0.004) == ()


def test_where_nobody_is_known_the_bytes_tell() -> None:
    """A ceph of which the mount names the monitors alone; nothing that stays on the host."""
    osds = [endpoint(remote=f"10.0.0.{number}", port=6800) for number in (11, 12)]
    found = told(CEPH, *osds, endpoint(interfaces=("lo",)), endpoint(is_accepted=True))
    assert {(one.remote, one.relation) for one in found} == {("10.0.0.11", "bytes"), ("10.0.0.12", "bytes")}
    assert told(CEPH, *osds, share=0.05) == ()
    assert told(LOCAL, *osds) == ()


@pytest.mark.parametrize("reads", [False, True])
def test_bytes_count_in_the_direction_of_the_checkpoint(reads: bool) -> None:  # noqa: FBT001 - a case
    """A restore receives."""
    (one,) = told(CEPH, endpoint(remote="10.0.0.11"), reads=reads)
    assert max(one.received_bytes, one.sent_bytes) == (one.received_bytes if reads else one.sent_bytes)


@pytest.mark.parametrize(("mount", "apart", "said"), [(NFS, True, True), (NFS, False, False), (LOCAL, True, False)])
def test_a_job_in_another_network_namespace_is_said_to_be(mount: MountInfo, apart: bool, said: bool) -> None:  # noqa: FBT001 - a case
    """A pod of its own network saves to a server: its connections are where nobody looks."""
    stage = Stage(extra=[(0.1, mount)])
    stage.write(stage.process(in_other_network=apart), "/ckpt/step_1.pt", 3.0, 2.0, 200 * MIB)
    (save,) = stage.play(12)
    assert any("in another network namespace" in one for one in save.limitations) == said


def test_they_are_bounded() -> None:
    """Sixteen, those that moved most."""
    assert len(told(NFS, *(endpoint(port=port) for port in range(40)))) == 16


def test_recordings_of_before_have_none() -> None:
    """Nothing is told, and nothing fails."""
    assert told(NFS) == ()


def test_what_serves_a_mount_is_told_by_the_cores_that_it_used() -> None:
    """Another process behind the same mount begins anew; without a look nothing is known."""
    book = FuseMounts(100)
    for tick in range(11):
        daemon = FuseDaemon(0, 41, "sshfs", ((50, 500),), 1000 + 10 * tick)
        book.ingest_daemons(frame(tick * TICK, max(0, tick - 1) * TICK, daemon))
    seen = book.measure(SSHFS, 0, 2 * SECOND)
    assert seen.daemon_busy == pytest.approx(0.5)
    assert (seen.client, seen.daemon, seen.daemon_pid) == ("sshfs", "sshfs", 50)
    assert book.daemon_of(SSHFS) == ((50, 500),)
    book.ingest_daemons(frame(3 * SECOND, 2 * SECOND, FuseDaemon(0, 41, "sshfs", ((70, 700),), 5)))
    assert book.measure(SSHFS, 0, 2 * SECOND).daemon_busy is None
    nfs = book.measure(NFS, 0, SECOND)
    assert (nfs.daemon_busy, nfs.client, nfs.daemon, book.daemon_of(NFS)) == (None, None, None, ())


def test_an_endpoint_is_one_of_an_owner() -> None:
    """So that a sum of all counts no byte twice."""
    made = seen(tcp(MIB, pid=1, start_ticks=10), tcp(9 * MIB, pid=1, start_ticks=11))
    made.ingest(frame(5 * TICK, 4 * TICK, tcp(4 * MIB, pid=1, start_ticks=10)))
    found = dict(made.traffic_between(0, SECOND))
    expected = Endpoint("10.0.0.9", 2049, accepted=False, interfaces=("eth0",), local="10.0.0.2", owner=(1, 10))
    assert {one: traffic.sent_bytes for one, traffic in found.items()} == {expected: 3 * MIB}
