"""What a URL of a server may say, and where a password comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptprof.errors import StoreError, UsageError
from ckptprof.store.fleet import target
from ckptprof.store.fleet.target import PASSWORD_CREDENTIAL, clear_libpq_environment, parse_target, read_password
from ckptprof.store.location import is_server_url

CERTIFICATES = "/the/host/certificates"


@pytest.fixture(autouse=True)
def authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host have authorities."""
    monkeypatch.setattr(target, "_ca_bundle", lambda: CERTIFICATES)


@pytest.mark.parametrize(
    ("url", "parameters"),
    [
        (
            "postgresql+psycopg://node-1@db.example/fleet",
            {
                "host": "db.example", "user": "node-1", "dbname": "fleet", "sslmode": "verify-full",
                "sslrootcert": CERTIFICATES,
            },
        ),
        (
            "postgresql+psycopg://db:6432/fleet?sslrootcert=/etc/ca.pem&sslcert=/c&sslkey=/k",
            {
                "host": "db", "port": "6432", "dbname": "fleet", "sslmode": "verify-full", "sslrootcert": "/etc/ca.pem",
                "sslcert": "/c", "sslkey": "/k",
            },
        ),
        ("postgresql+psycopg:///fleet?host=/run/postgresql", {"host": "/run/postgresql", "dbname": "fleet"}),
        ("postgresql+psycopg:///fleet", {"dbname": "fleet"}),
        (
            "postgresql+psycopg://a%40b@localhost/fleet?sslmode=disable",
            {"host": "localhost", "user": "a@b", "dbname": "fleet", "sslmode": "disable"},
        ),
    ],
)  # fmt: skip
def test_a_server_is_verified_unless_it_is_this_host(url: str, parameters: dict[str, str]) -> None:
    """Its name and its certificate, by the host's authorities or by those that are named."""
    assert is_server_url(url)
    assert parse_target(url).parameters == parameters


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql+psycopg://u:secret@h/d", "a password in a URL can be read by every user"),
        ("postgresql+psycopg://h/d?password=secret", "a password in a URL can be read by every user"),
        ("postgresql+psycopg://u@h/d?sslmode=require", "sslmode=require does not verify who answers"),
        ("postgresql+psycopg://u@h/d?sslmode=disable", "sslmode=disable does not verify who answers"),
        ("postgresql+psycopg://h/d?options=-cfoo", "the option 'options' is not known"),
        ("postgresql+psycopg://h/d?passfile=/x", "the option 'passfile' is not known"),
        ("postgresql+psycopg://h", "it names no database"),
        ("postgresql+psycopg://h:port/d", "not a database URL"),
        ("postgresql+psycopg://u:secret/word@h/d", "not a database URL"),
        ("postgresql+psycopg://u:12/secret@h/d", "a password in a URL can be read by every user"),
        ("postgresql+psycopg://u:12#secret@h/d", "a password in a URL can be read by every user"),
        ("postgresql+psycopg://u:12?host=secret@h/d", "a password in a URL can be read by every user"),
        ("postgresql+psycopg:///d?host=/tmp,h", "name one host"),
        ("postgresql://h/d", "kind 'postgresql' is not supported"),
    ],
)
def test_what_is_not_safe_is_refused(url: str, why: str) -> None:
    """In one sentence, which has no secret in it."""
    with pytest.raises(UsageError, match=why) as caught:
        parse_target(url)

    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_a_file_is_no_server() -> None:
    """A path, and SQLite's own URL."""
    assert not any(map(is_server_url, ("a.db", "sqlite:////a.db", "/postgresql", "")))


def test_a_password_comes_from_a_file_that_its_owner_alone_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first line; or from systemd's credentials, whose modes systemd chooses."""
    file = tmp_path / PASSWORD_CREDENTIAL
    file.write_text("s3cret\nnot this\n")
    file.chmod(0o640)
    with pytest.raises(StoreError, match="others may read the password"):
        read_password(file)
    file.chmod(0o600)
    assert read_password(file) == "s3cret"
    file.write_bytes(b"s3cret\r\n")
    assert read_password(file) == "s3cret"
    file.chmod(0o440)
    assert read_password(None) is None

    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    assert read_password(None) == "s3cret"
    with pytest.raises(StoreError, match="away: No such file"):
        read_password(tmp_path / "away")
    with pytest.raises(StoreError, match="is no file"):
        read_password(tmp_path)
    file.chmod(0o600)
    file.write_bytes(b"s" * 4097)
    with pytest.raises(StoreError, match="more than 4096 bytes"):
        read_password(file)


def test_the_environment_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a password nor a weaker check; only where ~/.pgpass is."""
    for name in ("PGPASSWORD", "PGSSLMODE", "PGSERVICEFILE", "PGPASSFILE"):
        monkeypatch.setenv(name, "x")

    clear_libpq_environment()

    import os  # noqa: PLC0415 # as the function leaves it

    assert [name for name in os.environ if name.startswith("PG")] == ["PGPASSFILE"]
