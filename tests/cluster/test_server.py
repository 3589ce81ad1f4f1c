"""What a server has of all nodes is told as their own databases, put together, are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cluster.nodes import GOOD, Job
from tests.cluster.test_commands import write
from tests.postgres import Server, bounced
from tests.report.schemas import validate

from ckptprof.cli.main import main
from ckptprof.service.shipping.shipper import Shipper, to_server
from ckptprof.store.fleet import server_reader
from ckptprof.store.fleet.target import parse_target

pytestmark = pytest.mark.postgres


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    """Return the databases of four nodes, of which one is slow, of two runs and of copies."""
    records, _ = Job(nodes=4, late_s={1: 4.0}, ahead_s={2: 700.0}, clocks=dict.fromkeys(range(4), GOOD)).seen()
    return write(tmp_path / "nodes", records)


@pytest.fixture
def url(server: Server, fleet: str, nodes: list[Path]) -> str:
    """Return where all of them were shipped to."""
    url = server.url(fleet)
    for db in nodes:
        Shipper(db, to_server(parse_target(url)), names=True).send()
    return url


def _told(capsys: pytest.CaptureFixture[str], words: Sequence[str], *names: object) -> tuple[int, str]:
    """Return what a command says, with one name for each database."""
    code = main([*words])
    text, complaints = capsys.readouterr()
    assert complaints == ""
    for name in names:
        text = text.replace(str(name), "DB")
    return code, text


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--json"], ["list", "--json", "--limit", "3"],
        ["list", "--job", "tr*", "--since", "2026-03-20T10:30Z"],
        ["show", "7", "--json"], ["plan", "--json", "--mttf", "3h"],
        ["diff", "train", "train", "--json"], ["fleet", "stragglers", "--json"], ["fleet", "cost", "--by", "week"],
        ["fleet", "limits", "--json"], ["fleet", "collisions"], ["fleet", "nodes", "--json"],
        ["fleet", "newest"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_server_tells_what_the_files_tell(
    words: list[str], url: str, nodes: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last digit, clocks that are off included."""
    files = _told(capsys, [*words, "--db", str(nodes[0].parent)], *nodes, nodes[0].parent)

    server = _told(capsys, [*words, "--db", url], url)

    assert server == files
    assert server[0] == 0


@pytest.mark.programs("pgbouncer")
def test_all_of_it_goes_through_pgbouncer(
    server: Server, fleet: str, nodes: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """In transaction mode, where the transactions of four nodes and their readers take turns at one connection."""
    roles = server.role("site", "ckptprof_site"), server.role("alice", "ckptprof_reader")
    with bounced(server, *roles) as bouncer, ThreadPoolExecutor(len(nodes)) as together:
        target = parse_target(bouncer.url(fleet, "site"))
        ways = [Shipper(db, to_server(target), names=True) for db in nodes * 2]
        sent = [round_.events for round_ in together.map(Shipper.send, ways)]

        told = _told(capsys, ["report", "--json", "--db", bouncer.url(fleet, "alice")], bouncer.url(fleet, "alice"))

    assert sum(sent) >= 48
    assert server.ask("SELECT count(*) FROM ckptprof.checkpoints", fleet) == [(48,)]
    assert told == _told(capsys, ["report", "--json", "--db", str(nodes[0].parent)], *nodes, nodes[0].parent)


def test_what_is_of_one_node_is_not_on_a_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Timelines and streams stay on the node; SQL is asked of the server itself."""
    assert main(["show", "7", "--all", "--db", url]) == 2
    assert main(["export", "--db", url]) == 6
    assert main(["sql", "SELECT 1", "--db", url]) == 6
    assert "not supported" in capsys.readouterr().err


def test_one_node_that_sends_rubbish_hides_no_other(
    url: str, server: Server, fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, as a file is that cannot be read, and the exit code says so."""
    server.ask(
        "INSERT INTO ckptprof.checkpoints (first_start_ns, node, uid, revision, detail)"
        " VALUES (0, 'evil\x1b', 'x', 1, '{\"id\": 1}'), (0, 'evil\x1b', 'y', 1,"
        " ('{\"deep\": ' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb)",
        fleet,
    )

    assert main(["report", "--json", "--db", url]) == 6

    text, complaints = capsys.readouterr()
    told = json.loads(text)
    validate("cluster", told)
    assert (len(told["checkpoints"]), len(told["unread"])) == (12, 1)
    assert "2 checkpoints of evil\\x1b are invalid" in complaints


def test_more_than_can_be_read_at_once_is_not_begun(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would fill the memory is told before; exactly as many are read."""
    monkeypatch.setattr(server_reader, "MAX_CHECKPOINTS", 48)
    assert main(["list", "--db", url]) == 0
    monkeypatch.setattr(server_reader, "MAX_CHECKPOINTS", 47)

    assert main(["list", "--db", url]) == 6

    assert "has more than 47 checkpoints" in capsys.readouterr().err


def test_a_server_that_has_nothing_says_so(server: Server, fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And what would change that."""
    assert main(["report", "--db", server.url(fleet)]) == 6
    assert "no node has shipped" in capsys.readouterr().err


def test_a_server_that_is_away_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, and a password in its URL is not repeated."""
    assert main(["list", "--db", f"postgresql+psycopg:///x?host={tmp_path}"]) == 6
    assert main(["list", "--db", "postgresql+psycopg://u:secret@h/x"]) == 2

    assert "secret" not in capsys.readouterr().err
