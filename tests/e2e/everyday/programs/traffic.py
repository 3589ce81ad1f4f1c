"""A rank that trains, and sends or receives over TCP what is no state: `python traffic.py WAY STORE`.

What it talks to is a process of its own (jobs/sends.py), which takes what it is sent, and gives zeros.
"""

from __future__ import annotations

import hashlib
import http.client
import mmap
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

JOBS = Path(__file__).resolve().parents[2] / "jobs"
sys.path.insert(0, str(JOBS))
from sends import MIB, PORT, note_pid, serve, store, train  # noqa: E402 - found by the line above

EPOCHS = 5
EPOCH_SECONDS = 4.5  # what is sent at a smaller distance is taken for one
Talk = Callable[[http.client.HTTPConnection, Path], None]


def put(connection: http.client.HTTPConnection, body: object, name: str = "object") -> None:
    """Send one object."""
    connection.request("PUT", f"/bucket/{name}", body)  # type: ignore[arg-type] # bytes, a file or a mapping
    connection.getresponse().read()


def get(connection: http.client.HTTPConnection) -> int:
    """Fetch 8 MiB; return how much it was."""
    connection.request("GET", "/bucket/shard")
    return len(connection.getresponse().read())


def data_set(connection: http.client.HTTPConnection, _: Path) -> None:
    """Fetch shards by three threads, as loaders do that stream a data set."""
    until = time.monotonic() + EPOCHS * EPOCH_SECONDS

    def fetch() -> None:
        with closing(http.client.HTTPConnection(connection.host, connection.port)) as own:
            while time.monotonic() < until:
                get(own)
                time.sleep(0.3)

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    train(until - time.monotonic())
    for thread in threads:
        thread.join()


def workers(connection: http.client.HTTPConnection, _: Path) -> None:
    """Fetch as much in each epoch by two workers, which are other processes each time."""
    from torch.utils.data import DataLoader, IterableDataset  # noqa: PLC0415 - the others load no data

    class Shards(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            note_pid(Path.cwd())
            with closing(http.client.HTTPConnection(connection.host, connection.port)) as own:
                for _shard in range(4):
                    yield get(own)

    for _epoch in range(EPOCHS):
        for _size in DataLoader(Shards(), batch_size=None, num_workers=2):
            train(0.2)
        train(EPOCH_SECONDS - 1.6)


def pretrained(connection: http.client.HTTPConnection, _: Path) -> None:
    """Fetch a model into memory once, before it trains."""
    model = []
    for _piece in range(7):
        connection.request("GET", "/bucket/shard")
        model.append(connection.getresponse().read())
    train(EPOCHS * EPOCH_SECONDS)
    del model


def pulled(connection: http.client.HTTPConnection, _: Path) -> None:
    """Fetch the newest model after each epoch, as who evaluates or rolls out does."""
    for _epoch in range(EPOCHS):
        for _piece in range(7):
            get(connection)
        train(EPOCH_SECONDS)


def downloaded(connection: http.client.HTTPConnection, _: Path) -> None:
    """Download a model of several files, as clients of hubs do, and train."""
    folder = Path("models--org--name/blobs")
    folder.mkdir(parents=True)
    for number in range(3):
        with (folder / f"{number}.incomplete").open("wb") as file:
            for _piece in range(5):
                connection.request("GET", "/bucket/shard")
                file.write(connection.getresponse().read())
        (folder / f"{number}.incomplete").rename(folder / f"{number}")
    train(EPOCHS * EPOCH_SECONDS)


def labels(connection: http.client.HTTPConnection, _: Path) -> None:
    """Fetch what is to be labelled, and send the labels of each shard of it, all of one size."""
    for _epoch in range(EPOCHS):
        for _shard in range(8):
            get(connection)
            train(0.2)
        put(connection, os.urandom(48 * MIB))
        train(EPOCH_SECONDS - 1.6)


def artefacts(connection: http.client.HTTPConnection, _: Path) -> None:
    """Write a file after each epoch, which a thread uploads a little later, as trackers do."""

    def upload(path: Path) -> None:
        time.sleep(1.0)
        with path.open("rb") as file, closing(http.client.HTTPConnection(connection.host, connection.port)) as own:
            put(own, file, path.name)

    for epoch in range(EPOCHS):
        train(EPOCH_SECONDS)
        path = Path(f"embeddings_{epoch}.data")
        path.write_bytes(os.urandom(40 * MIB))
        threading.Thread(target=upload, args=(path,)).start()
    train(EPOCH_SECONDS)


def mapped(connection: http.client.HTTPConnection, folder: Path) -> None:
    """Upload half of a large file at each epoch, out of a mapping of it: nothing counts these reads."""
    for epoch in range(EPOCHS):
        train(EPOCH_SECONDS)
        begin = epoch % 2 * 50 * MIB
        with (folder / "blob.bin").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            put(connection, pages[begin : begin + 50 * MIB])


def hub(connection: http.client.HTTPConnection, folder: Path) -> None:
    """Commit a folder of files again and again, as clients of hubs do: hashed first, then sent in parts."""
    for _epoch in range(EPOCHS - 1):
        train(EPOCH_SECONDS)
        for path in sorted((folder / "checkpoint-500").iterdir()):
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")
            put(connection, b"{}", "preupload")
            with path.open("rb") as file:
                while piece := file.read(8 * MIB):
                    put(connection, piece, path.name)


def media(connection: http.client.HTTPConnection, _: Path) -> None:
    """Send a picture of 2 MiB every second or so, from memory."""
    for _number in range(2 * EPOCHS):
        train(EPOCH_SECONDS / 2)
        put(connection, os.urandom(2 * MIB))


def pictures(connection: http.client.HTTPConnection, _: Path) -> None:
    """Post the pictures of an evaluation after each epoch: 64 of them, each as large as it happens to be."""
    for _epoch in range(EPOCHS):
        train(EPOCH_SECONDS)
        for number in range(64):
            put(connection, os.urandom(random.randint(400_000, 1_200_000)), f"picture_{number}.png")  # noqa: S311


def videos(connection: http.client.HTTPConnection, _: Path) -> None:
    """Post a video after each epoch, which is as large as it happens to be."""
    for _epoch in range(EPOCHS):
        train(EPOCH_SECONDS)
        put(connection, os.urandom(random.randint(45 * MIB, 75 * MIB)))  # noqa: S311


def log_lines(connection: http.client.HTTPConnection, _: Path) -> None:
    """Ship lines of a log five times a second."""
    for _number in range(round(EPOCHS * EPOCH_SECONDS * 5)):
        put(connection, b"step 100 loss 0.1234 lr 1e-4\n" * 7000)
        train(0.2)


def log_batches(connection: http.client.HTTPConnection, _: Path) -> None:
    """Ship what was logged meanwhile in even batches."""
    for _number in range(EPOCHS):
        train(EPOCH_SECONDS)
        put(connection, b"step 100 loss 0.1234 lr 1e-4\n" * 250_000)


def rows(connection: http.client.HTTPConnection, _: Path) -> None:
    """Insert as many rows after each epoch: predictions, embeddings, rollouts."""
    for _epoch in range(EPOCHS):
        train(EPOCH_SECONDS)
        put(connection, os.urandom(48 * MIB))


def parameters(connection: http.client.HTTPConnection, _: Path) -> None:
    """Push gradients to a parameter server at each step, and pull its parameters."""
    for _step in range(EPOCHS):
        train(EPOCH_SECONDS)
        put(connection, bytes(48 * MIB))
        for _piece in range(6):
            get(connection)


def seldom_pulled(connection: http.client.HTTPConnection, _: Path) -> None:
    """Push gradients to a parameter server, and pull its parameters with every third step only."""
    for step in range(EPOCHS + 1):
        train(EPOCH_SECONDS)
        put(connection, bytes(48 * MIB))
        if step % 3 == 0:
            for _piece in range(6):
                get(connection)


def answers(connection: http.client.HTTPConnection, _: Path) -> None:
    """Be called by a client, and give 50 MB of one size at each call, as who serves a model does."""
    from http.server import BaseHTTPRequestHandler, HTTPServer  # noqa: PLC0415 - the others serve nothing

    class Answers(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(50 * MIB))
            self.end_headers()
            self.wfile.write(bytes(50 * MIB))

    server = HTTPServer((connection.host, 8000), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for _call in range(EPOCHS):
        train(EPOCH_SECONDS)
        subprocess.run(["curl", "-sf", "-o", "/dev/null", f"http://{connection.host}:8000/"], check=True)


def pushed(connection: http.client.HTTPConnection, _: Path) -> None:
    """Give its weights to a server of inference on this host after each epoch, as rollouts need them."""
    words = [sys.executable, __file__, "serve", connection.host]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            with closing(http.client.HTTPConnection(connection.host, 8001)) as own:
                for _epoch in range(EPOCHS):
                    train(EPOCH_SECONDS)
                    put(own, bytes(48 * MIB), "weights")
        finally:
            server.kill()


def packages(connection: http.client.HTTPConnection, folder: Path) -> None:
    """Install what is missing before it trains, from an index on this host."""
    command = [sys.executable, "-m", "http.server", "8080", "--bind", connection.host, "--directory", folder / "wheels"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as index:
        try:
            for number in range(3):
                train(EPOCH_SECONDS)
                fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-index", "--no-cache-dir"]
                fetch += ["--disable-pip-version-check", "--find-links", f"http://{connection.host}:8080/"]
                trusted = ["--trusted-host", connection.host, "--retries", "9"]
                subprocess.run([*fetch, *trusted, "-d", f"wheels_{number}", "weights"], check=True)
        finally:
            index.kill()


def revisions(connection: http.client.HTTPConnection, folder: Path) -> None:
    """Clone a repository with models, and push a commit of other results after each epoch, over git's own protocol."""
    shutil.copytree(folder / "models.git", "served/models.git")
    address = connection.host
    own = subprocess.run(["git", "--exec-path"], check=True, capture_output=True, text=True).stdout.strip()
    command = [f"{own}/git-daemon", "--reuseaddr", f"--listen={address}", f"--base-path={Path.cwd()}/served"]
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.compression=0"]
    with subprocess.Popen([*command, "--export-all", "--enable=receive-pack"]) as daemon:
        try:
            train(1.0)
            subprocess.run(["git", "clone", "-q", f"git://{address}/models.git", "out"], check=True)
            for _epoch in range(3):
                train(EPOCH_SECONDS)
                Path("out/results.npy").write_bytes(os.urandom(30 * MIB))
                for words in (["add", "."], ["commit", "-qm", "results"], ["push", "-q", "origin", "HEAD"]):
                    subprocess.run(["git", *identity, *words], cwd="out", check=True)
        finally:
            daemon.kill()


def results(connection: http.client.HTTPConnection, folder: Path) -> None:
    """Let rsync take files to another host after each epoch, by its own daemon."""
    Path("there").mkdir()
    Path("rsyncd.conf").write_text(
        f"address = {connection.host}\nport = 8730\nuse chroot = no\npid file = {Path.cwd()}/rsyncd.pid\n"
        f"[there]\npath = {Path.cwd()}/there\nread only = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n"
    )
    with subprocess.Popen(["rsync", "--daemon", "--no-detach", "--config=rsyncd.conf"]) as daemon:
        try:
            for epoch in range(3):
                train(EPOCH_SECONDS)
                target = f"rsync://{connection.host}:8730/there/{epoch}/"
                subprocess.run(["rsync", "-a", folder / "shards", target], check=True)
        finally:
            daemon.kill()


# by the name of a way: what is done, and the port of the other side
WAYS: dict[str, tuple[Talk, int]] = {
    "data-set": (data_set, PORT),
    "workers": (workers, PORT),
    "pretrained": (pretrained, 443),
    "pulled": (pulled, PORT),
    "downloaded": (downloaded, 443),
    "labels": (labels, PORT),
    "artefacts": (artefacts, PORT),
    "mapped": (mapped, PORT),
    "hub": (hub, 443),
    "media": (media, 443),
    "pictures": (pictures, 443),
    "videos": (videos, 443),
    "log-lines": (log_lines, 80),
    "log-batches": (log_batches, 80),
    "rows-of-postgres": (rows, 5432),
    "rows-of-redis": (rows, 6379),
    "rows-of-kafka": (rows, 9092),
    "parameters": (parameters, 40123),
    "seldom-pulled": (seldom_pulled, 40124),
    "answers": (answers, PORT),
    "pushed": (pushed, PORT),
    "packages": (packages, PORT),
    "revisions": (revisions, PORT),
    "results": (results, PORT),
}


def main(way: str, folder: Path) -> None:
    """Do it, and train on for a while."""
    note_pid(Path.cwd())
    talk, port = WAYS[way]
    train(2.0)
    with store(Path.cwd(), port=port) as address, closing(http.client.HTTPConnection(address, port)) as connection:
        talk(connection, folder)
        train(4.0)


def infer(address: str) -> None:
    """Be a server of inference: one that takes weights."""
    import torch  # noqa: F401, PLC0415 - loaded as such a server has it

    serve(address, 8001, "")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        infer(sys.argv[2])
    else:
        main(sys.argv[1], Path(sys.argv[2]))
