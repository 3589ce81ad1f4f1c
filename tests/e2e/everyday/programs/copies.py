"""Copies, unpacks and hashes files by Python's own means, with and without the libraries of a training job loaded."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path


def main(what: str, source: Path) -> None:
    """Do one of them into the present folder."""
    what, _, library = what.rpartition("-") if what.endswith(("-torch", "-numpy")) else (what, "", "")
    if library:
        __import__(library)
    if what == "tree":
        shutil.copytree(source, Path(source.name))
    elif what == "by-hand":
        with source.open("rb") as read, Path(source.name).open("wb") as write:
            while piece := read.read(8 << 20):
                write.write(piece)
    elif what == "untar":
        with tarfile.open(source) as archive:
            archive.extractall("layer", filter="data")
    elif what == "unzip":
        with zipfile.ZipFile(source) as archive:
            archive.extractall("release")  # noqa: S202 - made by the test itself
    else:
        for path in sorted(source.iterdir()):
            with path.open("rb") as read:
                digest = hashlib.sha256()
                while piece := read.read(1 << 20):
                    digest.update(piece)
            print(digest.hexdigest(), path.name)  # noqa: T201 - a program


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
