"""The socket of `ckptprof live`: who listens is told, who hangs or talks is in nobody's way."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.patience import wait_until

from ckptprof.errors import CkptprofError
from ckptprof.report.live.state import State
from ckptprof.service.live import wire
from ckptprof.service.live.client import Listener, is_believed, listen
from ckptprof.service.live.server import MAX_CLIENTS, LiveServer, serve_beside
from ckptprof.store.location import SERVICE_DATABASE

STATE = State(at_ns=7, host="node-1", level="poll", since_ns=1, source="agent")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return the path of a database, in a folder whose name is too long for the address of a socket."""
    folder = tmp_path / ("f" * 120)
    folder.mkdir()
    (folder / "x.db").touch()
    return folder / "x.db"


@pytest.fixture
def server(database: Path) -> Iterator[LiveServer]:
    """Return a server that listens."""
    made = LiveServer(wire.socket_of(database))
    made.start()
    yield made
    made.close()


def joined(server: LiveServer, database: Path) -> Listener:
    """Return a client that has been accepted."""
    before = len(server._clients)
    found = listen(database)
    assert found is not None
    wait_until(lambda: len(server._clients) > before)
    return found


def told(listener: Listener) -> State:
    """Wait until something was told."""
    return wait_until(lambda: listener.take() and listener.newest)


def test_who_listens_is_told(server: LiveServer, database: Path) -> None:
    """The newest state, as it was put; nobody is wanted before he comes or after he went."""
    assert not server.is_wanted
    client = joined(server, database)

    server.put(STATE)
    assert told(client) == STATE
    client.close()

    def is_left() -> bool:
        server.put(STATE)
        return not server.is_wanted

    wait_until(is_left)


def test_the_socket_is_its_owners_and_goes_with_the_server(server: LiveServer, database: Path) -> None:
    """Whatever the umask is; a second server beside it finds its place taken."""
    path = wire.socket_of(database)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CkptprofError):
        LiveServer(path).start()
    server.close()
    assert not path.exists()
    assert listen(database) is None


def test_what_a_killed_server_left_is_replaced(database: Path) -> None:
    """Nobody answers there."""
    with wire.short(wire.socket_of(database)) as name, socket.socket(socket.AF_UNIX) as left:
        left.bind(name)

    server = serve_beside(database, pytest.fail)

    assert server is not None
    server.close()


def test_no_socket_is_told_and_stops_nobody(tmp_path: Path) -> None:
    """Here the folder is none."""
    complaints: list[str] = []

    assert serve_beside(tmp_path / "missing" / "x.db", complaints.append) is None
    assert len(complaints) == 1


def test_the_fifth_client_is_turned_away(server: LiveServer, database: Path) -> None:
    """The first four go on being told."""
    clients = [joined(server, database) for _ in range(MAX_CLIENTS)]
    fifth = listen(database)
    assert fifth is not None

    wait_until(lambda: not fifth.take())
    server.put(STATE)
    assert [told(client) for client in clients] == [STATE] * MAX_CLIENTS
    for client in (*clients, fifth):
        client.close()


def test_who_is_gone_takes_nobodys_place(server: LiveServer, database: Path) -> None:
    """Also if nothing was told since."""
    for client in [joined(server, database) for _ in range(MAX_CLIENTS)]:
        client.close()

    new = listen(database)
    assert new is not None
    wait_until(lambda: len(server._clients) == 1)
    server.put(STATE)
    assert told(new) == STATE
    new.close()


def test_one_who_hangs_is_let_go_and_the_others_are_told(server: LiveServer, database: Path) -> None:
    """Once the kernel keeps no more for him; `put` never waits."""
    stuck, client = joined(server, database), joined(server, database)
    large = msgspec.structs.replace(STATE, notes=("x" * 50_000,))
    turns = 0

    def one_is_gone() -> bool:
        nonlocal turns
        turns += 1
        server.put(large)
        assert wait_until(client.take)
        return len(server._clients) == 1

    wait_until(one_is_gone)
    client.newest = None
    server.put(STATE)
    assert told(client) == STATE
    assert turns > 1
    stuck.close()
    client.close()


def test_nothing_is_heard(server: LiveServer, database: Path) -> None:
    """A client that talks gets an error, and no answer but the state."""
    client = joined(server, database)
    server.put(STATE)
    told(client)

    def is_refused() -> bool:
        try:
            client._socket.send(b"POST /stop HTTP/1.1\r\n\r\n" * 4096, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    wait_until(is_refused)
    server.put(msgspec.structs.replace(STATE, at_ns=8))
    wait_until(lambda: client.take() and client.newest is not None and client.newest.at_ns == 8)
    client.close()


@pytest.mark.parametrize("line", [b"{}", b"\xff\xfe", b'{"version":2,"state":{}}', b'{"version":1,"state":{}}', b"[]"])
def test_other_versions_are_none(line: bytes) -> None:
    """Nothing of a line that is not ours is taken."""
    assert wire.decode(line) is None
    assert wire.decode(wire.encode(STATE).rstrip()) == STATE


def test_a_name_that_is_no_text_is_told_escaped() -> None:
    """A lone surrogate is in no JSON."""
    found = wire.decode(wire.encode(msgspec.structs.replace(STATE, host="a\udcff")))

    assert found is not None
    assert found.host == r"a\udcff"


def test_an_endless_line_is_not_kept(database: Path) -> None:
    """Whoever sends it is left."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    client = Listener(ours)
    theirs.settimeout(0)

    def is_left() -> bool:
        with contextlib.suppress(BlockingIOError):
            theirs.send(b"x" * 65536)
        return not client.take()

    wait_until(is_left)
    client.close()
    theirs.close()
    assert listen(database) is None  # nobody is there


def test_the_service_has_its_socket_in_run() -> None:
    """Which its group may read, where there is one; beside any other database it is its owner's."""
    assert wire.socket_of(SERVICE_DATABASE) == Path("/run/ckptprof/live.sock")
    assert wire.socket_of(Path("/a/b.db")) == Path("/a/b.db.live.sock")
    assert wire.mode_of(Path("/a/b.db.live.sock")) == (0o600, None)


def test_only_root_oneself_and_the_owner_of_the_record_are_believed(database: Path) -> None:
    """A stranger may have put a socket beside a database that lies in a folder of all."""
    owner = database.stat().st_uid

    assert is_believed(0, database)
    assert is_believed(os.geteuid(), database)
    assert is_believed(owner, database)
    assert not is_believed(owner + 65_000, database)
