"""A fleet in an object store: the same answers, whole objects, and no node in the inbox of another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.nodes import Job
from tests.fleet.bucket import Bucket, Policy, served
from tests.fleet.inboxes import compact, fleet_answers, put, records

from ckptprof.errors import StoreError, UsageError
from ckptprof.fleet import files
from ckptprof.fleet.files import FleetFiles


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Return a bucket, in which the key `site` may do everything."""
    with served() as bucket:
        bucket.policies["site"] = Policy(put="", read="")
        _use(monkeypatch, "site")
        yield bucket


def _use(monkeypatch: pytest.MonkeyPatch, access_key: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_answers_are_those_of_a_folder(bucket: Bucket, tmp_path: Path) -> None:
    """From inboxes and from days; one object for each file, and none besides."""
    nodes = records(Job(nodes=2, late_s={1: 4.0}))
    folder, store = FleetFiles(str(tmp_path / "fleet")), FleetFiles(bucket.url)
    for one in (folder, store):
        put(one, nodes)
    assert sorted(bucket.objects) == [f"site/{name}" for name in sorted(store.names("v1"))]
    assert [method for method, _ in bucket.asked].count("PUT") == 4

    for _ in range(2):
        found, missing = fleet_answers(store, tmp_path)
        assert (found, missing) == fleet_answers(folder, tmp_path)
        assert found["stragglers"]["nodes"][0]["host"] == "train-node-1"
        for one in (folder, store):
            compact(one)


def test_a_node_writes_into_its_own_inbox_alone(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each has a key with a policy for its prefix; and it reads no other."""
    for node in ("a", "b"):
        prefix = f"site/{files.inbox_folder(node)}/"
        bucket.policies[node] = Policy(put=prefix, read=prefix)
    _use(monkeypatch, "a")
    store = FleetFiles(bucket.url)

    store.put(f"{files.inbox_folder('a')}/x-0-1.parquet", b"mine")
    with pytest.raises(StoreError, match="ACCESS_DENIED"):
        store.put(f"{files.inbox_folder('b')}/x-0-1.parquet", b"not mine")
    with pytest.raises(StoreError, match="ACCESS_DENIED"):
        store.names(files.INBOX)

    assert list(bucket.objects.values()) == [b"mine"]


def test_a_secret_in_a_url_is_refused() -> None:
    """Every user of the host could read it."""
    with pytest.raises(UsageError, match="secret"):
        FleetFiles("s3://key:secret@fleet/site")


@pytest.mark.parametrize("node", ["..", "a/b", "node=1", "\x1b[2J", "\u202e"])
def test_the_name_of_a_node_leads_nowhere_else(node: str, tmp_path: Path) -> None:
    """Whatever it is; it comes back as it was."""
    store = FleetFiles(str(tmp_path))
    store.put(f"{files.inbox_folder(node)}/a-0-1.parquet", b"x")

    (name,) = store.names(files.INBOX)

    assert files.partition_of(name) == node
    assert (tmp_path / name).read_bytes() == b"x"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
