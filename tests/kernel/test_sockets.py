"""What processes send and receive over TCP: held against what the programs themselves say that they moved."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernel.tracer import Seen, Tracer

from ckptprof.service.sampler.tracing import FOLLOWED, TRAINS
from ckptprof_collectors.ebpf.trace import EbpfTrace
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import SocketTraffic

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

MIB = 1 << 20
HEAD_BYTES, ANSWER_BYTES = 9, 100
CLIENT = f"""
import json, os, socket, ssl, sys
host, port, how, parts, size, connections = *sys.argv[1:4], *map(int, sys.argv[4:])
def connect():
    one = socket.create_connection((host, int(port)))
    if how == "tls":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        one = context.wrap_socket(one)
    return one
body, sent, received = os.urandom(size), 0, 0
source = os.memfd_create("source")
os.write(source, body)
def send(one, data):
    global sent
    at = 0
    while at < len(data):
        if how == "sendfile" and data is body:
            at += os.sendfile(one.fileno(), source, at, len(data) - at)
        else:
            more = data[at:]
            at += {{
                "write": lambda: os.write(one.fileno(), more),
                "sendmsg": lambda: one.sendmsg([more[:9], more[9:]]),
            }}.get(how, lambda: one.send(more))()
    sent += at
def receive(one, size):
    global received
    while size:
        if how == "peek":
            one.recv(size, socket.MSG_PEEK)
        data = os.read(one.fileno(), size) if how == "write" else one.recv(size)
        size -= len(data)
        received += len(data)
for _ in range(connections):
    one = connect()
    for _ in range(parts):
        if how == "get":
            send(one, b"G" + size.to_bytes(8, "big"))
            receive(one, size)
        elif how == "told-meanwhile":
            send(one, b"T" + size.to_bytes(8, "big"))
            rest = memoryview(body)
            one.setblocking(False)
            try:
                while rest:
                    more = one.send(rest)
                    sent, rest = sent + more, rest[more:]
            except BlockingIOError:
                one.setblocking(True)
            receive(one, 1)
            with connect() as bell:
                send(bell, bytes(9))
            send(one, bytes(rest))
            receive(one, {ANSWER_BYTES})
        else:
            send(one, b"P" + size.to_bytes(8, "big"))
            send(one, body)
            receive(one, {ANSWER_BYTES})
    if how == "fork" and not os.fork():
        send(one, b"P" + size.to_bytes(8, "big"))
        send(one, body)
        receive(one, {ANSWER_BYTES})
        print(json.dumps([os.getpid(), sent, received]), flush=True)
        os._exit(0)
    if how == "fork":
        os.wait()
    one.close()
print(json.dumps([os.getpid(), sent, received]))
"""
OTHERS = """
import os, socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    for _ in range(100):
        here.send(bytes(10_000))
        there.recv(10_000)
here, there = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
there.bind(("127.0.0.1", 0))
for _ in range(100):
    here.sendto(bytes(10_000), there.getsockname())
    there.recv(10_000)
read, write = os.pipe()
os.write(write, bytes(10_000))
print(os.getpid())
"""


class Server:
    """Takes what it is sent and answers with a little, or gives what it is asked for."""

    def __init__(self, host: str, context: ssl.SSLContext | None = None) -> None:
        self.host = host
        self._context = context
        self._rung = threading.Semaphore(0)
        self._socket = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with self._context.wrap_socket(one, server_side=True) if self._context else one as connection:
            while head := _exactly(connection, HEAD_BYTES):
                size = int.from_bytes(head[1:], "big")
                if head[:1] == b"G":
                    connection.sendall(bytes(size))
                elif head[:1] == b"\0":
                    self._rung.release()
                else:
                    if head[:1] == b"T":
                        connection.sendall(b"t")
                        self._rung.acquire()
                    _exactly(connection, size)
                    connection.sendall(bytes(ANSWER_BYTES))

    def close(self) -> None:
        """Take no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, MIB))
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@pytest.fixture
def server() -> Iterator[Server]:
    """Listen on loopback."""
    made = Server("127.0.0.1")
    yield made
    made.close()


def run(
    tracer: Tracer, server: Server, how: str, *, parts: int = 3, size: int = MIB, connections: int = 1
) -> tuple[Seen, list[list[int]]]:
    """Run the client; return what was seen of it, and of each of its processes its pid, and what it sent and got."""
    command = [sys.executable, "-I", "-S", "-c", CLIENT, server.host, server.port, how, parts, size, connections]
    seen = tracer.run([str(word) for word in command])
    return seen, [json.loads(line) for line in seen.output.splitlines()]


def moved(traffic: SocketTraffic) -> tuple[int, int]:
    """Return what it says that was sent and received."""
    return traffic.sent_bytes, traffic.received_bytes


@pytest.mark.parametrize("how", ["send", "write", "sendmsg", "sendfile", "peek"])
def test_each_way_to_send_is_counted_to_the_byte(tracer: Tracer, server: Server, how: str) -> None:
    """And the parts are what was sent between two answers."""
    seen, ((pid, sent, received),) = run(tracer, server, how)

    traffic = seen.traffic[pid, "127.0.0.1", server.port]
    assert moved(traffic) == (sent, received)
    assert (traffic.parts, traffic.parts_bytes, traffic.part_bytes) == (3, sent, sent // 3)
    assert (traffic.answers, traffic.sockets, traffic.tid) == (0, 1, pid)
    assert traffic.send_start_ns is not None
    assert traffic.sent_ns is not None
    assert traffic.received_ns is not None
    assert traffic.send_start_ns < traffic.sent_ns < traffic.received_ns


def test_what_is_told_while_a_part_is_on_its_way_does_not_end_it(tracer: Tracer, server: Server) -> None:
    """As the tickets of TLS 1.3, which a client may read once it has begun to send."""
    seen, ((pid, sent, received),) = run(tracer, server, "told-meanwhile", parts=2, size=32 * MIB)

    traffic = seen.traffic[pid, "127.0.0.1", server.port]
    assert moved(traffic) == (sent, received)
    assert (traffic.parts, traffic.part_bytes) == (2, 32 * MIB + HEAD_BYTES)


def test_what_is_fetched_is_counted_in_answers(tracer: Tracer, server: Server) -> None:
    """Each is over when something is sent again."""
    seen, ((pid, sent, received),) = run(tracer, server, "get", parts=4)

    traffic = seen.traffic[pid, "127.0.0.1", server.port]
    assert moved(traffic) == (sent, received) == (4 * HEAD_BYTES, 4 * MIB)
    assert (traffic.answers, traffic.answers_bytes, traffic.parts) == (3, 3 * MIB, 0)


def test_what_tls_sends_is_its_payload_and_little_more(tracer: Tracer, tmp_path: Path) -> None:
    """Of 16 KiB each, records have 22 bytes more."""
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=localhost", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = Server("127.0.0.1", context)

    seen, ((pid, sent, received),) = run(tracer, server, "tls")
    server.close()

    traffic = seen.traffic[pid, "127.0.0.1", server.port]
    assert sent < traffic.sent_bytes < sent * 1.01
    assert received < traffic.received_bytes < received + 8192  # of which the most is its certificate
    assert (traffic.parts, traffic.sends // 3) == (3, pytest.approx(MIB // 16384, rel=0.1))


@pytest.mark.parametrize("host", ["::1", "::ffff:127.0.0.1"])
def test_the_next_version_of_the_protocol_is_counted_as_well(tracer: Tracer, host: str) -> None:
    """IPv4 within it is told as what it is."""
    server = Server("::1" if host == "::1" else "127.0.0.1")
    server.host = host

    seen, ((pid, sent, received),) = run(tracer, server, "send")
    server.close()

    assert moved(seen.traffic[pid, host.removeprefix("::ffff:"), server.port]) == (sent, received)


def test_what_is_no_tcp_is_not_counted(tracer: Tracer) -> None:
    """Sockets of this host alone, datagrams, pipes."""
    seen = tracer.run([sys.executable, "-I", "-S", "-c", OTHERS])
    assert int(seen.output) not in {pid for pid, *_ in seen.traffic}  # clients of other tests may be told late


def test_connections_that_have_closed_stay_in_the_sum(tracer: Tracer, server: Server) -> None:
    """Of many short ones to one place all bytes are told."""
    seen, ((pid, sent, received),) = run(tracer, server, "send", parts=1, size=100_000, connections=20)

    traffic = seen.traffic[pid, "127.0.0.1", server.port]
    assert moved(traffic) == (sent, received)
    assert (traffic.sockets, traffic.parts) == (20, 20)


def test_a_connection_that_two_processes_share_counts_for_who_uses_it(tracer: Tracer, server: Server) -> None:
    """The child has sent what it sent itself."""
    seen, ((child, *all_of_it), (parent, *before)) = run(tracer, server, "fork")

    assert moved(seen.traffic[parent, "127.0.0.1", server.port]) == tuple(before)
    assert moved(seen.traffic[child, "127.0.0.1", server.port]) == tuple(
        whole - part for whole, part in zip(all_of_it, before, strict=True)
    )


def test_connections_without_room_are_told_in_one_sum(server: Server) -> None:
    """What they moved is not lost, but where it went is."""
    trace = EbpfTrace(KernelFs(), family_of=(os.getpid(),), max_connections=4)
    try:
        seen, ((pid, sent, received),) = run(Tracer(trace), server, "send", parts=1, connections=10)
    finally:
        trace.close()

    told, rest = seen.traffic[pid, "127.0.0.1", server.port], seen.traffic[pid, "", 0]
    assert tuple(map(sum, zip(moved(told), moved(rest), strict=True))) == (sent, received)
    assert told.sockets == 4
    assert rest.parts == 0


def test_nothing_is_counted_while_nobody_trains(server: Server) -> None:
    """Then the programs are not even attached; and of others than those that are watched nothing is told."""
    with socket.create_connection((server.host, server.port)) as one:
        trace = EbpfTrace(KernelFs())
        try:
            told = []
            for watched in ({}, {os.getpid(): FOLLOWED}, {1: TRAINS}, {os.getpid(): TRAINS}, {}):
                trace.set_attended(watched, 0)
                one.sendall(b"P" + MIB.to_bytes(8, "big") + bytes(MIB))
                _exactly(one, ANSWER_BYTES)
                seen = {sample.pid for sample in trace.read(final=True) if isinstance(sample, SocketTraffic)}
                told.append(("sends" in trace.programs, seen))
        finally:
            trace.close()

    assert told == [(False, set()), (False, set()), (True, set()), (True, {os.getpid()}), (False, set())]
