"""Downloads and uploads files over HTTP as hubs and trackers do, with and without torch loaded."""

from __future__ import annotations

import hashlib
import http.server
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the store, and takes what is put."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_PUT(self) -> None:
        """Throw away what comes."""
        left = int(self.headers["Content-Length"])
        while left > 0 and (piece := self.rfile.read(min(left, 1 << 20))):
            left -= len(piece)
        self.send_response(200)
        self.end_headers()


def serve(store: Path) -> str:
    """Serve a folder from a thread of this process; return its address."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: Handler(*arguments, directory=str(store))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def download(url: str, target: Path) -> None:
    """Stream a file to its name as urllib's users do."""
    with urllib.request.urlopen(url) as answer, target.open("wb") as out:  # noqa: S310 - of this host
        shutil.copyfileobj(answer, out, 1 << 20)


def snapshot(url: str, names: list[str]) -> None:
    """Fill a cache as a model hub's client does: blobs by their hash, and a folder of links to them."""
    blobs, links = Path("models--org--name/blobs"), Path("models--org--name/snapshots/0a1b2c")
    blobs.mkdir(parents=True)
    links.mkdir(parents=True)
    for name in names:
        blob = blobs / hashlib.sha256(name.encode()).hexdigest()
        partial = blob.with_suffix(".incomplete")
        download(f"{url}/{name}", partial)
        partial.replace(blob)
        (links / Path(name).name).symlink_to(Path("../../blobs") / blob.name)


def upload(url: str, path: Path) -> None:
    """Send a file as trackers and hubs' clients do."""
    with path.open("rb") as source:
        request = urllib.request.Request(url, data=source, method="PUT")  # noqa: S310 - of this host
        request.add_header("Content-Length", str(path.stat().st_size))
        urllib.request.urlopen(request).close()  # noqa: S310 - of this host


def client(what: str, store: Path, url: str) -> None:
    """Do one thing as a process of its own."""
    if what.endswith("-torch"):
        import torch  # noqa: F401, PLC0415 - loaded as in a job that fetches its model
    what = what.removesuffix("-torch")
    if what == "urllib":
        download(f"{url}/checkpoint-500/model.safetensors", Path("model-00001-of-00002.safetensors"))
    elif what == "snapshot":
        snapshot(url, ["checkpoint-500/model.safetensors", "checkpoint-500/optimizer.pt", "checkpoint-500/config.json"])
    elif what == "upload":
        for path in sorted((store / "checkpoint-500").iterdir()):
            upload(f"{url}/{path.name}", path)


def main(what: str, store: Path) -> None:
    """Serve the store and start the client beside."""
    if what.startswith("client-"):
        client(what.removeprefix("client-"), store, sys.argv[3])
        return
    url = serve(store)
    model = f"{url}/checkpoint-500/model.safetensors"
    commands = {
        "curl": ["curl", "-sf", "--limit-rate", "40M", "-o", "model.safetensors", model],
        "wget": ["wget", "-q", "--limit-rate=60M", "-O", "pytorch_model.bin", f"{url}/checkpoint-500/optimizer.pt"],
    }
    subprocess.run(commands.get(what) or [sys.executable, __file__, f"client-{what}", str(store), url], check=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
